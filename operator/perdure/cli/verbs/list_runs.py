"""`list`: all runs."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Annotated, Any

import typer

from perdure.cli.cluster import Object, connect
from perdure.cli.invocation import page_of, program_of
from perdure.cli.options import (
    ColorOption,
    ContextOption,
    NamespaceOption,
    OutputOption,
    TimeFormat,
    TimeOption,
    word_of,
)
from perdure.cli.terminal import Color, Screen, for_people
from perdure.cli.view.phases import RunPhase
from perdure.kube import clock

HELP = """List runs, newest first.

\b
Examples:
  {program} list
  {program} list --all-namespaces --output wide
  {program} list --phase Failed --phase TimedOut
  {program} list --output name
"""


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List the runs of all namespaces")] = False,
    phases: Annotated[
        list[RunPhase] | None,
        typer.Option(
            "--phase",
            parser=word_of(RunPhase),
            metavar="PHASE",
            help=f"Only runs in this phase ({', '.join(RunPhase)}); repeatable",
        ),
    ] = None,
    output: OutputOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List runs."""
    screen = Screen(color)
    wanted = {phase.value for phase in phases or ()}
    items, asked = asyncio.run(_read(namespace, cluster, program_of(context), everywhere=everywhere, phases=wanted))
    items.sort(key=_named)
    items.sort(key=_created, reverse=True)
    if not for_people(output):
        screen.write_objects(output, items)
        return
    if not items:
        where = "any namespace" if everywhere else f"namespace {asked}"
        what = f"runs in phase {' or '.join(sorted(wanted))}" if wanted else "runs"
        advice = "" if wanted else "; start one with `kubectl apply -f run.yaml`"
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


async def _read(
    namespace: str | None, context: str | None, program: str, *, everywhere: bool, phases: Collection[str]
) -> tuple[list[dict[str, Any]], str]:
    # The API server does not know a run as Pending that no operator has seen yet.
    (only,) = phases if len(phases) == 1 and "Pending" not in phases else (None,)
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        selector = {"fieldSelector": f"status.phase={only}"} if only else {}
        items = await cluster.list("workflowruns", everywhere=everywhere, **selector)
        return in_phases(items, phases), cluster.namespace


def in_phases(items: Iterable[dict[str, Any]], phases: Collection[str]) -> list[dict[str, Any]]:
    """The runs that are in one of the phases; all where none is named. One that no operator has seen is Pending."""
    return [item for item in items if not phases or ((item.get("status") or {}).get("phase") or "Pending") in phases]
