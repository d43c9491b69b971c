"""`signal`: send a signal to a run."""

import asyncio
from typing import Annotated, Any

import typer

from perdure.cli.connection import connect
from perdure.cli.inputs import value
from perdure.cli.operations import BatchInquiry, Inquiry, ask_runs, ask_to_start, asking_runs
from perdure.cli.starts import check_input
from perdure.cli.terminal import program_of

HELP = """Send a signal to a run, or to all open runs with some labels.

A run receives the signal exactly once, in order. With --start, a run of that
Workflow starts first if no run with the workflow ID is open.

Warns if the workflow never waits for a signal of that name.

Exit status: 0 done, 1 refused (the run is closed, or the input of the new run
is invalid), 2 error, 124 timeout.

\b
Examples:
  {program} signal order-42 --name approved --input true
  {program} signal -w order-42 --name approved --input @approval.json
  {program} signal --selector team=shop --name reload --rps 10 --yes
  {program} signal -w cart-7 --name add --input '"lamp"' --start cart
"""


@asking_runs
def command(
    context: typer.Context,
    batch: BatchInquiry,
    *,
    signal: Annotated[str, typer.Option("--name", help="Name of the signal", show_default=False)],
    given: Annotated[
        str | None,
        typer.Option("--input", "-i", help="Input of the signal: JSON or @FILE", show_default=False),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", help="Workflow to start if no run is open; requires --workflow-id", show_default=False),
    ] = None,
    start_input: Annotated[
        str | None,
        typer.Option("--start-input", help="Input of that run: JSON or @FILE", show_default=False),
    ] = None,
) -> None:
    """Send a signal to a run."""
    request = {"name": signal, "input": value(given, "--input")}
    if start is None:
        if start_input is not None:
            raise typer.BadParameter("requires --start", param_hint="--start-input")
        ask_runs(context, "signal", request, batch)
        return
    if batch.selector is not None or batch.dry_run or batch.rps is not None:
        raise typer.BadParameter("leave out --selector, --rps, and --dry-run", param_hint="--start")
    inquiry = batch.one
    if inquiry.workflow_id is None:
        raise typer.BadParameter("requires --workflow-id, because it may have to start the run", param_hint="--start")
    run = {"workflow": {"name": start}, "input": value(start_input, "--start-input")}
    run = {key: each for key, each in run.items() if each is not None}
    asyncio.run(_check(context, start, run.get("input"), inquiry, inquiry.workflow_id))
    ask_to_start(context, "signalWithStart", {**request, "start": run}, inquiry)


async def _check(context: typer.Context, workflow: str, given: Any, inquiry: Inquiry, workflow_id: str) -> None:
    """Before sending the request, check the input of the run to start if no run is open."""
    async with connect(context=inquiry.cluster, namespace=inquiry.namespace, program=program_of(context)) as cluster:
        if await cluster.runs.open_run(workflow_id) is None:
            await check_input(cluster, workflow, given)
