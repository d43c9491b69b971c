"""`describe`, `history`, `trace`, and `logs`: one run."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import click
from click.exceptions import Exit

from perdure.api.labels import PARENT_RUN_ID_LABEL
from perdure.cli.archive import ArchiveRoute, is_archived, reads_archive
from perdure.cli.command import WholeNumber, option, verb
from perdure.cli.connection import connect
from perdure.cli.options import (
    check_named,
    color_option,
    namespace_option,
    output_option,
    report_option,
    run_argument,
    seconds_of,
    time_option,
    workflow_id_option,
)
from perdure.cli.progress import Waiter
from perdure.cli.terminal import Color, Output, Screen, TimeFormat, is_for_users, page_of, program_of, reference
from perdure.client.connection import LOG_STREAMS
from perdure.client.errors import ClientError, CliError, ExitCode, UnreachableError
from perdure.client.selection import Selection, newest
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.cli import temporal_history
    from perdure.cli.files import histories
    from perdure.client import logs as log_reader
    from perdure.view.runs import describe as view
    from perdure.view.runs import events as events_view
    from perdure.view.runs import logs as log_lines
    from perdure.view.runs import replay, timeline
    from perdure.view.runs import run as run_view

if TYPE_CHECKING:
    from perdure.client.cluster import Cluster
    from perdure.client.requests import Object
    from perdure.view.runs.events import Event
    from perdure.view.runs.run import RunView


@verb()
@run_argument
@workflow_id_option
@option("--last", "-L", is_flag=True, help="Instead of NAME: the newest run of the namespace")
@option("--all", "every", is_flag=True, help="Show all steps and pending activities of a run with many steps")
@namespace_option
@option("--watch", "-W", is_flag=True, help="Show the progress until the run ends, then the whole run")
@output_option
@time_option
@color_option
@reads_archive
def describe(
    context: click.Context,
    archive: ArchiveRoute,
    *,
    name: str | None,
    workflow_id: str | None,
    last: bool,
    every: bool,
    namespace: str | None,
    watch: bool,
    output: Output,
    times: TimeFormat,
    color: Color,
) -> None:
    """Show a run: its steps, what it waits for, why it failed.

    Shows each step with its attempts, times, pods or worker, and notes; then what
    the run waits for, the chain of causes if it failed, useful next commands, and
    the last Events. Of a run with many steps, shows those that failed or are open,
    and counts the others; --all shows all.

    \b
    Examples:
      {program} describe order-42
      {program} describe --workflow-id A-1001
      {program} describe order-42 --namespace shop --time-format iso
      {program} describe --last
      {program} describe order-42 --output json
      {program} describe order-42 --watch
      {program} describe order-42 --all
    """
    if last and (name or workflow_id):
        raise click.BadParameter("leave out NAME and --workflow-id", param_hint="--last")
    if last:
        name = asyncio.run(_newest(namespace, archive.cluster, program_of(context)))
    check_named(name, workflow_id)
    screen = Screen(color)
    if watch:
        if not is_for_users(output):
            raise click.BadParameter("shows text only; leave out --output", param_hint="--watch")
        asyncio.run(Waiter(context, screen, times, archive.cluster, archive).wait(name, workflow_id, namespace, None))
    run, events = asyncio.run(_read_with_events(name, workflow_id, namespace, archive, program_of(context)))
    page = page_of(context, screen, times=times, cluster=archive.cluster, brief=not every)

    if is_for_users(output):
        screen.show(view.describe(run, page))
        screen.show(view.event_lines(events, page))
    else:
        screen.write_data(output, view.as_data(run, page), [reference("WorkflowRun", run.name)])


async def _newest(namespace: str | None, context: str | None, program: str) -> str:
    """Return the name of the newest run.

    Raises:
        CliError: There are no runs, or they cannot be read.
    """
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        found = newest(await Selection().read_metadata(cluster, clock.now()), 1)
        if not found:
            raise CliError(f"there are no runs in namespace `{cluster.namespace}`; choose the namespace with -n")
        return str(found[0]["metadata"]["name"])


async def _read_with_events(
    name: str | None, workflow_id: str | None, namespace: str | None, archive: ArchiveRoute, program: str
) -> tuple[RunView, list[Object]]:
    """Read a run and its Events."""
    async with connect(context=archive.cluster, namespace=namespace, program=program) as cluster:
        found = await cluster.runs.with_history(await archive.find(cluster, name, workflow_id))
        live = await cluster.runs.live_state(found)
        events = await cluster.runs.events(found)
        retention = await cluster.runs.retention(found)
        retries = await cluster.runs.retries(found)

    run = run_view.read_run(
        found, now=clock.now(), live=live, trace=replay.trace(found), retention=retention, retries=retries
    )
    return run, events


_PAUSE = 0.5
"""Seconds between two reads of a followed history."""


@verb()
@run_argument
@workflow_id_option
@option("--follow", "-f", is_flag=True, help="Print new events until the run ends")
@option("--reverse", is_flag=True, help="Show the newest event first")
@namespace_option
@report_option
@option("--file", metavar="FILE", help="Instead of NAME: file of the archive, or of `history -o json`; -: stdin")
@option("--temporal", is_flag=True, help="Write the JSON of Temporal, for the replayers of SDKs")
@option("--detailed", is_flag=True, help="Show every attribute of every event")
@time_option
@color_option
@reads_archive
def history(
    context: click.Context,
    archive: ArchiveRoute,
    *,
    name: str | None,
    workflow_id: str | None,
    follow: bool,
    reverse: bool,
    namespace: str | None,
    output: Output,
    file: str | None,
    temporal: bool,
    detailed: bool,
    times: TimeFormat,
    color: Color,
) -> None:
    """Show the event history of a run.

    Times count from the start of the run. With --follow, prints new events until
    the run ends. The JSON output is the stored history, which `{program} replay`
    reads; with --reverse, the newest event comes first in it too.

    --temporal writes the history in Temporal's JSON, which the replayers of SDKs
    read. --file shows a history without a cluster, such as a file of the archive in
    a bucket.

    \b
    Examples:
      {program} history order-42
      {program} history --workflow-id A-1001
      {program} history order-42 --follow
      {program} history order-42 --reverse --detailed --time-format iso
      {program} history order-42 --output json > order-42.json
      {program} history order-42 --temporal > order-42.temporal.json
      {program} history --file 20261130T154740Z-12-48213.json.gz
    """
    if file is None:
        check_named(name, workflow_id)
    elif name or workflow_id or follow or temporal:
        raise click.BadParameter("leave out NAME, --workflow-id, --follow, and --temporal", param_hint="--file")
    if follow and (reverse or output != "text"):
        raise click.BadParameter("leave out --reverse and --output", param_hint="--follow")
    if temporal and (follow or reverse or output not in {"text", "json"}):
        raise click.BadParameter("leave out --follow, --reverse, and --output", param_hint="--temporal")
    screen = Screen(color)

    def show(events: list[Event], after: int = 0) -> None:
        if output != "text":
            screen.write_data(output, {"events": events[::-1] if reverse else events})
        else:
            page = page_of(context, screen, times=times)
            screen.show(events_view.table(events, page, detailed=detailed, reverse=reverse, after=after))

    if file is not None:
        show([*histories.events_in(histories.read_text(file), file)])
        return

    async def read() -> None:
        async with connect(context=archive.cluster, namespace=namespace, program=program_of(context)) as found:
            run, shown = await archive.find(found, name, workflow_id), 0
            while True:
                events = await _events(found, run)
                if temporal:
                    screen.write_data("json", await temporal_history.temporal_history(found, run, events))
                    return
                if output != "text" or len(events) > shown:
                    show(events, shown)
                    shown = len(events)
                elif not follow:
                    message = f"The run `{run['metadata']['name']}` has not started: it has no events yet."
                    click.echo(message, err=True)
                if not follow or (run.get("status") or {}).get("completionTime"):
                    return
                run = await _next(found, run)

    asyncio.run(read())


async def _events(cluster: Cluster, run: Object) -> list[Event]:
    """Read the whole history.

    Raises:
        CliError: A part of the history is missing.
    """
    past = await cluster.runs.history(run)

    wrong = [damage.message for damage in past.damage]
    try:
        events_view.check(past.events)
    except events_view.GapError as error:
        wrong.append(str(error))
    if wrong:
        raise CliError(
            f"the history of `{run['metadata']['name']}` is incomplete: {'; '.join(wrong)}; list its segments with "
            f"`kubectl get historysegments`"
        )
    return list(past.events)


async def _next(cluster: Cluster, run: Object) -> Object:
    """Read a run again until it has changed.

    Raises:
        CliError: The run was deleted, or cannot be read.
    """
    meta, away = run["metadata"], False
    while True:
        await asyncio.sleep(_PAUSE)
        try:
            found = await cluster.runs.get(meta["name"])
        except UnreachableError as error:
            if not away:
                click.echo(f"{error}; still following", err=True)
            away = True
            continue
        if found["metadata"]["uid"] != meta["uid"]:
            raise CliError(f"the run `{meta['name']}` was deleted, and another one of that name was created")
        if found["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            return found
        away = False


@verb()
@run_argument
@workflow_id_option
@namespace_option
@report_option
@option("--otlp", is_flag=True, help="Write a closed run as OTLP in JSON")
@time_option
@color_option
@reads_archive
def trace(
    context: click.Context,
    archive: ArchiveRoute,
    *,
    name: str | None,
    workflow_id: str | None,
    namespace: str | None,
    output: Output,
    otlp: bool,
    times: TimeFormat,
    color: Color,
) -> None:
    """Show when each step of a run waited, started its pod, and ran.

    Attempts whose pod is deleted are not shown, except for the last one of a step.
    The JSON output is in the trace event format, which https://ui.perfetto.dev and
    chrome://tracing open. --otlp writes a closed run as spans of OpenTelemetry,
    which collectors accept. The ID of the trace is the ID of the run.

    \b
    Examples:
      {program} trace order-42
      {program} trace order-42 --time-format iso
      {program} trace order-42 --output json > order-42.trace.json
      {program} trace order-42 --otlp > order-42.otlp.json
    """
    check_named(name, workflow_id)
    if otlp and output != "text":
        raise click.BadParameter("has a format of its own; leave out --output", param_hint="--otlp")
    screen = Screen(color)
    found, pods = asyncio.run(_read_with_pods(name, workflow_id, namespace, archive, program_of(context)))

    now = clock.now()
    run = run_view.read_run(found, now=now, trace=replay.trace(found))
    steps = timeline.spans(run, pods)
    if otlp:
        if run.start is None or run.end is None:
            raise CliError(
                f"the run `{run.name}` has not ended, and exported spans cannot change; wait for it with "
                f"`{program_of(context)} wait {run.name}`"
            )

        screen.write_data(
            "json", timeline.as_otlp(run, steps, (found["metadata"].get("labels") or {}).get(PARENT_RUN_ID_LABEL))
        )
    elif output != "text":
        screen.write_data(output, timeline.as_chrome_trace(run.name, steps, run.start, run.end, now))
    elif not steps or run.start is None:
        click.echo(f"No step of the run `{run.name}` has started.", err=True)
    else:
        screen.show(timeline.timeline_lines(steps, run.start, run.end or now, page_of(context, screen, times=times)))


async def _read_with_pods(
    name: str | None, workflow_id: str | None, namespace: str | None, archive: ArchiveRoute, program: str
) -> tuple[Object, list[Object]]:
    """Read the run with its whole history, and its pods."""
    async with connect(context=archive.cluster, namespace=namespace, program=program) as cluster:
        found = await cluster.runs.with_history(await archive.find(cluster, name, workflow_id))
        try:
            return found, await cluster.runs.pods(found)
        except ClientError as error:
            click.echo(f"Warning: only the history is shown, because the pods cannot be read: {error}", err=True)
            return found, []


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
@reads_archive
def logs(
    context: click.Context,
    archive: ArchiveRoute,
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
) -> None:
    """Show the logs of the pods of a run.

    Each line begins with the step and the attempt, such as `charge#2: `, unless
    you set --no-prefix. With --follow, follows new pods until the run ends. By default, pods of successful
    attempts are kept for five minutes, pods of failed ones until the run is
    deleted; see `podRetention`. Later, logs are read from the artifact store, where
    `artifacts.archiveLogs` has stored them: a pod in the namespace of the run
    writes them to its own log, so you need permission to create pods. Attempts
    without a pod and an archived log are listed on stderr. The end of the log of a
    failed attempt is in its failure, and is shown after its pod was deleted.

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
            context=archive.cluster, namespace=namespace, program=program, connections=LOG_STREAMS + 4
        ) as reached:
            found = await archive.find(reached, name, workflow_id)

            reader = log_reader.LogReader(
                cluster=reached,
                run=found,
                selection=log_lines.LogSelection(steps=tuple(steps or ()), attempt=attempt, failed=failed),
                children=children,
                write=lambda log, text: click.echo(f"{log.title(with_run=children)}: {text}" if prefix else text),
                report=lambda text: click.echo(text, err=True),
                query=query,
                lines=lambda: log_lines.LogLines(timestamps=timestamps, pattern=pattern),
            )
            await reader.check_steps()
            shown = await (reader.follow() if follow and not is_archived(found) else reader.read())
            if not shown:
                raise Exit(ExitCode.NO)

    asyncio.run(read())


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"invalid regular expression: {error}", param_hint="--grep") from error
