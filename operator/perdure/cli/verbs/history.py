"""`history`: every event of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.cluster import connect
from perdure.cli.errors import CliError
from perdure.cli.invocation import page_of, program_of
from perdure.cli.options import (
    ColorOption,
    ContextOption,
    NamespaceOption,
    ReportOption,
    RunName,
    TimeFormat,
    TimeOption,
    WorkflowIdOption,
    check_named,
)
from perdure.cli.terminal import Color, Screen

if TYPE_CHECKING:
    from perdure.runtime.segments import Past

HELP = """Show the event history of a run.

Times count from the start of the run. The JSON output is the stored history,
which `{program} replay` reads.

\b
Examples:
  {program} history order-42
  {program} history --workflow-id A-1001
  {program} history order-42 --detailed --time-format iso
  {program} history order-42 --output json > order-42.json
"""


def command(
    context: typer.Context,
    name: RunName = None,
    *,
    workflow_id: WorkflowIdOption = None,
    namespace: NamespaceOption = None,
    output: ReportOption = "text",
    detailed: Annotated[bool, typer.Option("--detailed", help="Show every attribute of every event")] = False,
    times: TimeOption = TimeFormat.RELATIVE,
    color: ColorOption = Color.AUTO,
    cluster: ContextOption = None,
) -> None:
    """Show the event history of a run."""
    check_named(name, workflow_id)
    screen = Screen(color)
    called, past = asyncio.run(_read(name, workflow_id, namespace, cluster, program_of(context)))
    from perdure.cli.view import events as view

    events = past.events
    wrong = [damage.message for damage in past.damage]
    try:
        view.check(events)
    except view.GapError as error:
        wrong.append(str(error))
    if wrong:
        raise CliError(
            f"the history of `{called}` is incomplete: {'; '.join(wrong)}; list its segments with "
            f"`kubectl get historysegments`"
        )
    if output != "text":
        screen.write_data(output, {"events": events})
    elif events:
        screen.show(view.table(events, page_of(context, screen, times=times), detailed=detailed))
    else:
        typer.echo(f"The run `{called}` has not started: it has no events yet.", err=True)


async def _read(
    name: str | None, workflow_id: str | None, namespace: str | None, context: str | None, program: str
) -> tuple[str, Past]:
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        run = await cluster.runs.chosen(name, workflow_id)
        return run["metadata"]["name"], await cluster.runs.past(run)
