"""`list`: all runs."""

import asyncio
from enum import StrEnum
from typing import Annotated, Any

import typer

from perdure.api.workflowrun import Phase
from perdure.cli.cluster import connect
from perdure.cli.options import ColorOption, ContextOption, NamespaceOption, TimeFormat, TimeOption
from perdure.cli.page import page_of, program_of
from perdure.cli.terminal import Color, Screen
from perdure.cli.view.facts import Run, read_run
from perdure.cli.view.runs import table
from perdure.kube import clock

HELP = """List runs, the newest first.

\b
Examples:
  {program} list
  {program} list --all-namespaces --output wide
  {program} list --phase Failed --phase TimedOut --output name
"""


class Output(StrEnum):
    """How runs are printed."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    NAME = "name"


def command(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="List the runs of all namespaces")] = False,
    phases: Annotated[
        list[Phase] | None,
        typer.Option("--phase", help="Only runs in this phase; may be given several times", show_default=False),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print them")] = Output.TEXT,
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """List runs."""
    screen = Screen(color)
    items, asked = asyncio.run(_read(namespace, cluster, program_of(context), everywhere=everywhere))
    if phases:
        items = [item for item in items if ((item.get("status") or {}).get("phase") or Phase.PENDING) in phases]
    if output is Output.JSON:
        screen.write_json({"apiVersion": "v1", "kind": "List", "items": items})
        return
    if not items:
        where = "any namespace" if everywhere else f"namespace {asked}"
        which = f" that are {' or '.join(phases)}" if phases else ""
        how = "" if phases else f"; start one with `{program_of(context)} start WORKFLOW`"
        typer.echo(f"There are no runs{which} in {where}{how}.", err=True)
        return
    runs = sorted((read_run(item, now=clock.now()) for item in items), key=_newest_first)
    if output is Output.NAME:
        for run in runs:
            screen.write(f"workflowrun.perdure.dev/{run.name}")
    else:
        page = page_of(context, screen, times=times)
        screen.show(table(runs, page, namespaces=everywhere, wide=output is Output.WIDE))


def _newest_first(run: Run) -> tuple[float, str, str]:
    return (-run.created.timestamp() if run.created else 0, run.namespace, run.name)


async def _read(
    namespace: str | None, context: str | None, program: str, *, everywhere: bool
) -> tuple[list[dict[str, Any]], str]:
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        return await cluster.runs(everywhere=everywhere), cluster.namespace
