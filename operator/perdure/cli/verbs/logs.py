"""`logs`: the logs of the steps of a run."""

import asyncio
import re

import click

from perdure.cli.command import WholeNumber, option, verb
from perdure.cli.connection import LOG_STREAMS, connect
from perdure.cli.options import (
    check_named,
    context_option,
    namespace_option,
    run_argument,
    seconds_of,
    workflow_id_option,
)
from perdure.cli.terminal import program_of


@verb()
@run_argument
@workflow_id_option
@option("--follow", "-f", is_flag=True, help="Follow the logs until the run ends")
@option("--step", "steps", multiple=True, help="Only this step and the steps inside it; repeatable")
@option("--attempt", type=WholeNumber(min=1), help="Only attempts with this number")
@option("--failed", is_flag=True, help="Only failed attempts")
@option("--children", is_flag=True, help="Include the children of the run")
@option("--since", help="Only lines newer than this, such as 10m")
@option("--tail", type=WholeNumber(min=0), help="Only the last N lines of each attempt")
@option("--timestamps", is_flag=True, help="Show the time of each line")
@option("--prefix/--no-prefix", default=True, help="Begin each line with the step and the attempt")
@option("--grep", metavar="REGEX", help="Only lines that match this regular expression")
@namespace_option
@context_option
@click.pass_context
def logs(
    context: click.Context,
    *,
    name: str | None,
    workflow_id: str | None,
    follow: bool,
    steps: tuple[str, ...],
    attempt: int | None,
    failed: bool,
    children: bool,
    since: str | None,
    tail: int | None,
    timestamps: bool,
    prefix: bool,
    grep: str | None,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Show the logs of the pods of a run.

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
            found = await reached.runs.find(name, workflow_id)
            from perdure.cli.logs import LogReader
            from perdure.view.logs import LogLines, LogSelection

            reader = LogReader(
                cluster=reached,
                run=found,
                selection=LogSelection(steps=tuple(steps or ()), attempt=attempt, failed=failed),
                children=children,
                prefix=prefix,
                query=query,
                streams=asyncio.Semaphore(LOG_STREAMS),
                lines=lambda: LogLines(timestamps=timestamps, pattern=pattern),
            )
            await reader.check_steps()
            await (reader.follow() if follow else reader.read())

    asyncio.run(read())


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"invalid regular expression: {error}", param_hint="--grep") from error
