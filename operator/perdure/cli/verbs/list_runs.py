"""`list`: all runs."""

import asyncio
from typing import Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, OutputOption, TimeOption
from perdure.cli.selection import (
    AttributeOption,
    CompletedOption,
    OlderOption,
    PhaseOption,
    PrefixOption,
    RunningOption,
    SelectorOption,
    SinceOption,
    chosen,
    newest,
)
from perdure.cli.terminal import Color, Screen, TimeFormat, for_people, page_of, program_of
from perdure.client.requests import Object
from perdure.kube import clock

HELP = """List runs, newest first.

With --watch, prints a line for each run whose phase, progress, or reason
changes, until Ctrl-C.

\b
Examples:
  {program} list
  {program} list --all-namespaces --output wide
  {program} list --phase Failed --phase TimedOut --since 2h
  {program} list --prefix nightly-
  {program} list -l team=shop --search-attribute Customer=C-7
  {program} list --running --watch
  {program} list --completed --older-than 7d --reverse --output name
  {program} list --output custom-columns=RUN:.metadata.name
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List the runs of all namespaces")] = False,
    phases: PhaseOption = None,
    running: RunningOption = False,
    completed: CompletedOption = False,
    selector: SelectorOption = None,
    attributes: AttributeOption = None,
    since: SinceOption = None,
    older: OlderOption = None,
    prefix: PrefixOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Only the newest N runs", min=1, metavar="N", show_default=False)
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="List the oldest run first")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-W", help="Then print a line for each change")] = False,
    output: OutputOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List runs."""
    screen = Screen(color)
    choice = chosen(phases, selector, attributes, since, older, prefix=prefix, running=running, completed=completed)
    if watch:
        if not for_people(output):
            raise typer.BadParameter("shows text only; leave out --output", param_hint="--watch")
        if reverse:
            raise typer.BadParameter("the newest change comes last; leave out --reverse", param_hint="--watch")
        from perdure.cli.watching import RunWatcher

        watcher = RunWatcher(context, screen, times, choice, wide=output == "wide")
        asyncio.run(watcher.watch(cluster, namespace, limit, everywhere=everywhere))
        return

    async def read() -> tuple[list[Object], str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            if output == "name":
                items = newest(await choice.read_briefly(found, clock.now(), everywhere=everywhere), limit)
            elif limit is not None:
                items = await choice.read_newest(found, clock.now(), limit, everywhere=everywhere)
            else:
                items = newest(await choice.read(found, clock.now(), everywhere=everywhere), None)
            return items, found.namespace

    items, searched = asyncio.run(read())
    if reverse:
        items.reverse()
    if not for_people(output):
        screen.write_objects(output, items)
        return
    if not items:
        where = "any namespace" if everywhere else f"namespace {searched}"
        what = f"runs in phase {' or '.join(sorted(choice.phases))}" if choice.phases else "runs"
        filtered = selector or attributes or since or older or prefix
        advice = " that match" if filtered else "" if choice.phases else "; start one with `kubectl apply -f run.yaml`"
        typer.echo(f"There are no {what} in {where}{advice}.", err=True)
        return
    from perdure.view.runs import read_listed, table

    page = page_of(context, screen, times=times)
    screen.show(table([read_listed(item) for item in items], page, namespaces=everywhere, wide=output == "wide"))
