"""`logs`: the logs of the steps of a run."""

import asyncio
import re
from typing import Annotated

import typer

from perdure.cli.connection import LOG_STREAMS, connect
from perdure.cli.options import (
    ContextOption,
    NamespaceOption,
    RunName,
    WorkflowIdOption,
    check_named,
    seconds_of,
)
from perdure.cli.terminal import program_of

HELP = """Show the logs of the pods of a run.

Each line begins with the step and the attempt, such as `charge#2: `, unless
you set --no-prefix. With --follow, follows new pods until the run ends. By default, pods of successful
attempts are kept for five minutes, pods of failed ones until the run is
deleted; see `podRetention`. Later, logs are read from the artifact store, where
`artifacts.archiveLogs` has stored them: a pod in the namespace of the run
writes them to its own log, so you need permission to create pods. Attempts
without a pod and an archived log are listed on stderr.

Exit status: 0 there are logs, 1 there are none (no pod has started, or all
are deleted), 2 error.

\b
Examples:
  {program} logs order-42
  {program} logs order-42 --follow --step charge
  {program} logs order-42 --failed --tail 50 --timestamps
  {program} logs order-42 --step charge --no-prefix | jq .message
  {program} logs order-42 --since 10m --grep 'timeout|refused'
"""


def command(
    context: typer.Context,
    name: RunName = None,
    *,
    workflow_id: WorkflowIdOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until the run ends")] = False,
    steps: Annotated[
        list[str] | None,
        typer.Option("--step", help="Only this step and the steps inside it; repeatable", show_default=False),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", help="Only attempts with this number", min=1, show_default=False)
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed attempts")] = False,
    children: Annotated[bool, typer.Option("--children", help="Include the children of the run")] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="Only lines newer than this, such as 10m", show_default=False)
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", help="Only the last N lines of each attempt", min=0, metavar="N", show_default=False),
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show the time of each line")] = False,
    prefix: Annotated[
        bool, typer.Option("--prefix/--no-prefix", help="Begin each line with the step and the attempt")
    ] = True,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep", help="Only lines that match this regular expression", metavar="REGEX", show_default=False
        ),
    ] = None,
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Show the logs of the steps of a run."""
    check_named(name, workflow_id)
    query = {"timestamps": "true"}
    if since is not None:
        query["sinceSeconds"] = str(max(1, round(seconds_of(since, "--since"))))
    if tail is not None:
        query["tailLines"] = str(tail)
    pattern = _pattern(grep)

    async def read() -> None:
        program = program_of(context)
        async with connect(
            context=cluster, namespace=namespace, program=program, connections=LOG_STREAMS + 4
        ) as reached:
            found = await reached.runs.chosen(name, workflow_id)
            from perdure.cli.logs import LogReader
            from perdure.view.logs import Choice, Lines

            reader = LogReader(
                cluster=reached,
                run=found,
                choice=Choice(steps=tuple(steps or ()), attempt=attempt, failed=failed),
                children=children,
                prefix=prefix,
                query=query,
                streams=asyncio.Semaphore(LOG_STREAMS),
                lines=lambda: Lines(timestamps=timestamps, pattern=pattern),
            )
            await reader.check_steps()
            await (reader.follow() if follow else reader.read())

    asyncio.run(read())


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"invalid regular expression: {error}", param_hint="--grep") from error
