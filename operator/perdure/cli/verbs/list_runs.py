"""`list`: all runs."""

import asyncio
from typing import Annotated

import typer

from perdure.cli.choosing import AttributeOption, PhaseOption, SelectorOption, SinceOption, chosen
from perdure.cli.cluster import Object, connect
from perdure.cli.invocation import page_of, program_of
from perdure.cli.options import (
    ColorOption,
    ContextOption,
    NamespaceOption,
    OutputOption,
    TimeFormat,
    TimeOption,
)
from perdure.cli.terminal import Color, Screen, for_people
from perdure.kube import clock

HELP = """List runs, newest first.

\b
Examples:
  {program} list
  {program} list --all-namespaces --output wide
  {program} list --phase Failed --phase TimedOut --since 2h
  {program} list -l team=shop --search-attribute Customer=C-7
  {program} list --output name
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List the runs of all namespaces")] = False,
    phases: PhaseOption = None,
    selector: SelectorOption = None,
    attributes: AttributeOption = None,
    since: SinceOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Only the newest N runs", min=1, metavar="N", show_default=False)
    ] = None,
    output: OutputOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List runs."""
    screen = Screen(color)
    choice = chosen(phases, selector, attributes, since)

    async def read() -> tuple[list[Object], str]:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await choice.read(found, clock.now(), everywhere=everywhere), found.namespace

    items, asked = asyncio.run(read())
    items.sort(key=_named)
    items.sort(key=_created, reverse=True)
    items = items[:limit]
    if not for_people(output):
        screen.write_objects(output, items)
        return
    if not items:
        where = "any namespace" if everywhere else f"namespace {asked}"
        what = f"runs in phase {' or '.join(sorted(choice.phases))}" if choice.phases else "runs"
        filtered = selector or attributes or since
        advice = " that match" if filtered else "" if choice.phases else "; start one with `kubectl apply -f run.yaml`"
        typer.echo(f"There are no {what} in {where}{advice}.", err=True)
        return
    from perdure.cli.view.facts import read_run
    from perdure.cli.view.runs import table

    runs = [read_run(item, now=clock.now()) for item in items]
    page = page_of(context, screen, times=times)
    screen.show(table(runs, page, namespaces=everywhere, wide=output == "wide"))


def _named(run: Object) -> tuple[str, str]:
    return run["metadata"]["namespace"], run["metadata"]["name"]


def _created(run: Object) -> str:
    created: str = run["metadata"].get("creationTimestamp", "")  # RFC 3339 in UTC, whose order is that of the texts
    return created
