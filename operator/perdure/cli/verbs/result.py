"""`result`: the output of a run."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.connection import connect
from perdure.cli.options import (
    ContextOption,
    NamespaceOption,
    ReportOption,
    RunName,
    WorkflowIdOption,
    check_named,
    seconds_of,
)
from perdure.cli.terminal import Screen, program_of
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExitCode, UnreachableError
from perdure.kube import clock

if TYPE_CHECKING:
    from perdure.view.run import ShownRun

HELP = """Wait until a run ends, and print only its output.

Follows the runs that continue it. If the run does not complete, prints the
failure on stderr. To see the progress, use `wait`.

Exit status: 0 the run completed, 1 it ended in any other way, 2 error (no
cluster, run not found or deleted), 124 timeout.

\b
Examples:
  {program} result order-42
  {program} result --workflow-id A-1001 --timeout 5m
  {program} result order-42 --output json > order-42.json
"""

_PAUSE = 0.5
"""Seconds between two polls."""


def command(
    context: typer.Context,
    name: RunName = None,
    *,
    workflow_id: WorkflowIdOption = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="How long to wait, such as 90s or 1h30m; default: no limit", show_default=False),
    ] = None,
    namespace: NamespaceOption = None,
    output: ReportOption = "text",
    cluster: ContextOption = None,
) -> None:
    """Print the output of a run."""
    check_named(name, workflow_id)
    seconds = None if timeout is None else seconds_of(timeout, "--timeout")

    async def read() -> "ShownRun":
        async with (
            asyncio.timeout(seconds),
            connect(context=cluster, namespace=namespace, program=program_of(context)) as found,
        ):
            run = await _ended(found, str((await found.runs.chosen(name, workflow_id))["metadata"]["name"]))
            while run.chain.continued_as:
                run = await _ended(found, run.chain.continued_as)
            return run

    try:
        run = asyncio.run(read())
    except TimeoutError:
        typer.echo(f"Error: the run has not ended within {timeout}; it keeps running", err=True)
        raise typer.Exit(ExitCode.TIMEOUT) from None
    if run.phase == "Completed":
        Screen().write_value(output, run.output)
        return
    from perdure.view.failure import summary

    why = summary(run.failure) if run.failure else run.message
    typer.echo(f"Error: the run `{run.name}` ended as {run.phase}{why and f': {why}'}", err=True)
    raise typer.Exit(ExitCode.NO)


async def _ended(cluster: Cluster, name: str) -> "ShownRun":
    """Wait until a run has ended.

    Raises:
        CliError: The run does not exist, was replaced by another one, or cannot be read.
    """
    uid, away = None, False
    while True:
        try:
            found = await cluster.runs.named(name)
        except UnreachableError as error:
            if uid is None:
                raise
            if not away:
                typer.echo(f"{error}; still waiting", err=True)
            away = True
            await asyncio.sleep(_PAUSE)
            continue
        away = False
        if uid not in {None, found["metadata"]["uid"]}:
            raise CliError(f"the run `{name}` was deleted, and another one of that name was created")
        uid = found["metadata"]["uid"]
        if (found.get("status") or {}).get("completionTime"):
            from perdure.view.run import read_run

            return read_run(found, now=clock.now())
        await asyncio.sleep(_PAUSE)
