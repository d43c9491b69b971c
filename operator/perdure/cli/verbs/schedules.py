"""`schedule`: Schedules and their times."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Any, Final, TypeVar

import click
from click.exceptions import Exit

from perdure.api import labels
from perdure.api.names import schedule_name
from perdure.api.policies import CatchupPolicy, OverlapPolicy
from perdure.api.times import format_time
from perdure.cli.command import AnyCase, WholeNumber, Words, argument, group, option
from perdure.cli.completion import names_of
from perdure.cli.connection import connect
from perdure.cli.inputs import has_zone, parse_days, parse_time, value
from perdure.cli.operations import (
    TargetOptions,
    reason_option,
    request_to_schedule,
    schedule_argument,
    send,
    send_to_start,
)
from perdure.cli.options import (
    Named,
    context_option,
    everywhere_option,
    namespace_option,
    output_option,
    report_option,
    seconds_of,
    time_option,
)
from perdure.cli.selection import yes_option
from perdure.cli.starts import check_input
from perdure.cli.terminal import Output, Screen, TimeFormat, is_for_users, page_of, program_of, reference
from perdure.client.cluster import Cluster
from perdure.client.errors import AlreadyExistsError, ClientError, CliError, ExitCode, ForbiddenError, NotFoundError
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.cli.files import documents
    from perdure.client import schedule_manifests
    from perdure.importing import reader
    from perdure.importing import schedules as conversion
    from perdure.view import schedules as view

_CONCURRENCY_POLICIES = {"forbid": "Skip", "allow": "AllowAll", "replace": "TerminateOther, or CancelOther"}
"""The names of some policies in CronJob and CronWorkflow."""


class Cascade(StrEnum):
    """The deletion of the runs of a deleted Schedule."""

    BACKGROUND = "background"
    ORPHAN = "orphan"


overlap_policy_option = option(
    "--overlap-policy", type=AnyCase(OverlapPolicy, _CONCURRENCY_POLICIES), help="What to do if an earlier run is open"
)


OTHER_SCHEDULE_NAMES: Final = {
    "disable": "use `{program} schedule pause NAME`",
    "edit": "use `kubectl edit schedule NAME`",
    "enable": "use `{program} schedule unpause NAME`",
    "get": "use `{program} schedule describe NAME` for a Schedule, and `{program} schedule list` for all of them",
    "ls": "use `{program} schedule list`",
    "resume": "use `{program} schedule unpause NAME`",
    "run": "use `{program} schedule trigger NAME`",
    "suspend": "use `{program} schedule pause NAME`",
    "toggle": "use `{program} schedule pause NAME`, or `{program} schedule unpause NAME`",
    "update": "use `kubectl edit schedule NAME`",
}
"""What to use in place of the commands about schedules of other tools, by the name of the command."""


@group(advice=OTHER_SCHEDULE_NAMES)
def schedule() -> None:
    """Create, inspect, and control Schedules.

    \b
    Examples:
      {program} schedule next -f nightly.yaml --count 3
      {program} schedule next nightly --after 2026-03-28
    """


@schedule.command("list")
@namespace_option
@everywhere_option("List Schedules of all namespaces")
@output_option
@time_option
@context_option
@click.pass_context
def list_schedules(
    context: click.Context,
    *,
    namespace: str | None,
    everywhere: bool,
    output: Output,
    times: TimeFormat,
    cluster: str | None,
) -> None:
    """List schedules.

    \b
    Examples:
      {program} schedule list
      {program} schedule list --all-namespaces --output json
      {program} schedule list --output wide
    """

    async def read(found: Cluster) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        schedules = await found.list("schedules", everywhere=everywhere)
        return schedules, await found.runs.of_schedules(everywhere=everywhere) if schedules else []

    screen = Screen()
    items, runs = _with_cluster(context, cluster, namespace, read)
    screen.show_all(
        output,
        items,
        lambda: view.table(
            items, page_of(context, screen, times=times), runs, namespaces=everywhere, wide=output == "wide"
        ),
        otherwise=f"There are no Schedules; create one with `{program_of(context)} schedule create`.",
    )


@schedule.command("describe")
@schedule_argument
@namespace_option
@output_option
@time_option
@context_option
@click.pass_context
def describe(
    context: click.Context, *, name: str, namespace: str | None, output: Output, times: TimeFormat, cluster: str | None
) -> None:
    """Show a Schedule: its times, its last runs, and why it does not start runs.

    \b
    Examples:
      {program} schedule describe nightly
      {program} schedule describe nightly --output json
      {program} schedule describe Nightly_Invoices
    """

    async def read(reached: Cluster) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        schedule = await reached.read("Schedule", "schedules", name)
        return schedule, await reached.runs.of_schedules(name) if is_for_users(output) else []

    screen = Screen()
    found, runs = _with_cluster(context, cluster, namespace, read)
    found["metadata"].pop("managedFields", None)
    if not is_for_users(output):
        screen.write_object(output, found)
    else:
        screen.show(view.description(found, page_of(context, screen, times=times), runs))


@schedule.command("create")
@argument("name", metavar="NAME", help="Name of the Schedule")
@option("--workflow", required=True, help="Name of the Workflow to run")
@option("--input", "-i", "input_", help="Input of the runs: JSON, @FILE, or @- for standard input")
@option("--workflow-id", "-w", help="Workflow ID; the operator appends the time")
@option("--cron", multiple=True, help="Cron line; repeatable")
@option("--interval", multiple=True, help="Interval such as 90m, or 90m/13m with an offset; repeatable")
@option("--calendar", multiple=True, help="Calendar: JSON or @FILE; repeatable")
@option("--exclude-calendar", multiple=True, help="Times to exclude: JSON or @FILE; repeatable")
@option("--time-zone", help="IANA name, such as Europe/Berlin")
@option("--start-time", help="No runs start before this time")
@option("--end-time", help="No runs start after this time")
@option("--jitter", help="Maximum random delay of each start")
@overlap_policy_option
@option("--catchup-window", help="How late a run can start")
@option(
    "--catchup-policy",
    metavar="POLICY",
    type=AnyCase(CatchupPolicy, {}),
    help=f"Which missed times start a run: {', '.join(CatchupPolicy)}",
)
@option("--pause-on-failure", is_flag=True, help="Pause when a run fails")
@option("--remaining-actions", type=WholeNumber(min=0), help="Number of runs to start")
@option("--paused", is_flag=True, help="Create the Schedule paused")
@option("--notes", help="Notes for people")
@option("--dry-run", is_flag=True, help="Print the manifest without creating it")
@namespace_option
@context_option
@click.pass_context
def create(
    context: click.Context,
    *,
    name: str,
    workflow: str,
    input_: str | None,
    workflow_id: str | None,
    cron: tuple[str, ...],
    interval: tuple[str, ...],
    calendar: tuple[str, ...],
    exclude_calendar: tuple[str, ...],
    time_zone: str | None,
    start_time: str | None,
    end_time: str | None,
    jitter: str | None,
    overlap_policy: OverlapPolicy | None,
    catchup_window: str | None,
    catchup_policy: CatchupPolicy | None,
    pause_on_failure: bool,
    remaining_actions: int | None,
    paused: bool,
    notes: str | None,
    dry_run: bool,
    namespace: str | None,
    cluster: str | None,
) -> None:
    """Create a Schedule that runs a Workflow.

    Fails before it creates anything if the spec is invalid or has no future time.
    Warns if the Workflow does not exist.

    \b
    Examples:
      {program} schedule create nightly --workflow report --cron '30 2 * * *' \\
        --time-zone Europe/Berlin --overlap-policy BufferOne
      {program} schedule create hourly --workflow sync --interval 1h/5m --dry-run
      {program} schedule create quarters --workflow bill \\
        --calendar '{{"month": "Jan,Apr,Jul,Oct", "dayOfMonth": "1", "hour": "6"}}'
    """
    run: dict[str, Any] = {"workflow": {"name": workflow}}
    run |= {"workflowId": workflow_id} if workflow_id else {}
    run |= {"input": value(input_, "--input")} if input_ is not None else {}
    spec = {
        "cron": list(cron),
        "intervals": [dict(zip(("every", "offset"), each.split("/", 1), strict=False)) for each in interval],
        "calendars": [value(each, "--calendar") for each in calendar],
        "exclude": [value(each, "--exclude-calendar") for each in exclude_calendar],
        "timeZone": time_zone,
        "jitter": jitter,
        "overlapPolicy": overlap_policy and overlap_policy.value,
        "catchupWindow": catchup_window,
        "catchupPolicy": catchup_policy and catchup_policy.value,
        "pauseOnFailure": pause_on_failure or None,
        "remainingActions": remaining_actions,
        "paused": paused or None,
        "notes": notes,
        "workflowRunTemplate": {"spec": run},
    }
    limits = {"startTime": start_time, "endTime": end_time}
    if any(limits.values()):
        zone = schedule_manifests.times_of(schedule_manifests.new_schedule(name, spec)).zone.rules
        spec |= {field: format_time(parse_time(text, zone)) for field, text in limits.items() if text}
    manifest = schedule_manifests.new_schedule(name, spec)
    found = schedule_manifests.outlook_of(manifest, clock.now())
    if not found.ready:
        raise CliError(f"{found.path}: {found.message}; nothing was created")
    if found.message:
        click.echo(f"Note: it has no times. {found.message}: `{program_of(context)} schedule trigger {name}`", err=True)
    if dry_run:
        Screen().write_data("yaml", manifest)
        return

    async def make(found: Cluster) -> None:
        await check_input(found, workflow, run.get("input"), may_wait="", scheduled=True)
        try:
            await found.create("schedules", manifest)
        except AlreadyExistsError:
            where = f"{name} -n {found.namespace}"
            raise CliError(
                f"the Schedule `{name}` already exists in namespace `{found.namespace}`; change it with `kubectl edit "
                f"schedule {where}`, or delete it with `{program_of(context)} schedule delete {where}`"
            ) from None

    _with_cluster(context, cluster, namespace, make)
    click.echo(f"{reference('Schedule', name)} created")


@schedule.command("pause")
@schedule_argument
@reason_option
@request_to_schedule
def pause(context: click.Context, target: TargetOptions, *, reason: str) -> None:
    """Pause a Schedule: no scheduled runs start until you unpause it.

    A backfill in progress waits as well. Open runs continue.

    \b
    Examples:
      {program} schedule pause nightly --reason 'the database is being moved'
    """
    send(context, "pause", {"reason": reason or None}, target)


@schedule.command("unpause")
@schedule_argument
@reason_option
@request_to_schedule
def unpause(context: click.Context, target: TargetOptions, *, reason: str) -> None:
    """Unpause a Schedule. No runs start for times that have passed.

    Also ends the pause of a Temporal client or of `kubectl`: it sets `spec.paused`
    to false, which requires the permission to update the Schedule.

    \b
    Examples:
      {program} schedule unpause nightly
    """
    asyncio.run(_end_pause_in_spec(context, target, reason))
    send(context, "unpause", {"reason": reason or None}, target)


async def _end_pause_in_spec(context: click.Context, target: TargetOptions, reason: str) -> None:
    """Set `spec.paused` of a Schedule to false, and wait until the operator has seen it.

    Without the permission, nothing is changed; the answer to the Operation then says what to change.
    """
    name, was_paused, seconds = str(target.name), False, seconds_of(target.timeout, "--timeout")

    def changed(found: dict[str, Any]) -> dict[str, Any] | None:
        nonlocal was_paused
        was_paused = bool(found["spec"].get("paused"))
        if not was_paused:
            return None
        is_of_client = labels.CLIENT_ANNOTATION in (found["metadata"].get("annotations") or {})
        notes = {"notes": reason} if is_of_client else {}  # a client has written the reason of its pause there
        return {**found, "spec": {**found["spec"], "paused": False, **notes}}

    async with connect(context=target.cluster, namespace=target.namespace, program=program_of(context)) as cluster:
        try:
            written = await cluster.change("Schedule", "schedules", name, changed)
        except (ForbiddenError, NotFoundError):
            return
        if not was_paused:
            return
        click.echo(
            "Note: `spec.paused` was true and is now false; if a file or a Git repository has the manifest, change it there too",
            err=True,
        )
        end = time.monotonic() + (seconds if target.wait else 0.0)
        generation = written["metadata"].get("generation") or 0
        while (written.get("status") or {}).get("observedGeneration", 0) < generation and time.monotonic() < end:
            await asyncio.sleep(_POLL_SECONDS)
            written = await cluster.read("Schedule", "schedules", name)


_POLL_SECONDS = 0.25
"""Seconds between two reads of a changed Schedule."""


@schedule.command("trigger")
@schedule_argument
@overlap_policy_option
@request_to_schedule
def trigger(context: click.Context, target: TargetOptions, *, overlap_policy: OverlapPolicy | None) -> None:
    """Start a run of a Schedule now, even if it is paused.

    \b
    Examples:
      {program} schedule trigger nightly
      {program} schedule trigger nightly --overlap-policy AllowAll
    """
    send_to_start(context, "trigger", {"overlapPolicy": overlap_policy and overlap_policy.value}, target)


@schedule.command("backfill")
@schedule_argument
@option("--start-time", help="First time to consider")
@option("--end-time", help="Last time to consider")
@option(
    "--date",
    help="All times of a day, such as 2026-11-01, today or yesterday, or of days, such as 2026-11-01..2026-11-07",
)
@option("--max-concurrency", type=WholeNumber(min=1), help="Maximum number of its runs that are open at the same time")
@overlap_policy_option
@option("--cancel", is_flag=True, help="Start no further runs of the backfills in progress; open runs continue")
@reason_option
@yes_option
@request_to_schedule
def backfill(
    context: click.Context,
    target: TargetOptions,
    *,
    start_time: str | None,
    end_time: str | None,
    date: str | None,
    max_concurrency: int | None,
    overlap_policy: OverlapPolicy | None,
    cancel: bool,
    reason: str,
    yes: bool,
) -> None:
    """Start the runs of all times between two points in time, or of days.

    A day, or a time without an offset, is in the time zone of the Schedule. For
    more than 1000 times, asks for confirmation. `{program} schedule describe` shows
    the progress, `{program} schedule pause` holds a backfill, and --cancel ends all
    backfills of the Schedule.

    \b
    Examples:
      {program} schedule backfill nightly --start-time 2026-11-01 \\
        --end-time 2026-11-08 --overlap-policy BufferAll
      {program} schedule backfill nightly --date yesterday
      {program} schedule backfill hourly --date 2026-11-01..2026-11-07 \\
        --max-concurrency 4
      {program} schedule backfill hourly --cancel
    """
    if cancel:
        chosen = (start_time, end_time, date, max_concurrency, overlap_policy)
        if any(each is not None for each in chosen):
            raise click.UsageError("--cancel ends all backfills of the Schedule: leave out the options for a new one")
        send(context, "cancel", {"reason": reason or None}, target)
        return
    if reason:
        raise click.BadParameter("requires --cancel", param_hint="--reason")
    if date is None and (start_time is None or end_time is None):
        raise click.UsageError("set --start-time and --end-time, or --date")
    if date is not None and (start_time is not None or end_time is not None):
        raise click.UsageError("--date replaces --start-time and --end-time; set one or the other")
    zone: tzinfo = UTC
    times = None
    is_local = date is not None or not (has_zone(str(start_time)) and has_zone(str(end_time)))
    if is_local or not yes:
        schedule = asyncio.run(read_schedule(str(target.name), target.namespace, target.cluster, program_of(context)))
        times = schedule_manifests.times_of(schedule)
        zone = times.zone.rules
    now = clock.now()
    if date is not None:
        start, end = parse_days(date, zone, now)
    else:
        start, end = parse_time(str(start_time), zone), parse_time(str(end_time), zone)
    option_name = "--start-time" if date is None else "--date"
    if start > now:
        message = f"{format_time(start)} is in the future; a backfill starts runs of past times"
        raise click.BadParameter(message, param_hint=option_name)
    if end < start:
        raise click.BadParameter(f"{format_time(end)} is before --start-time", param_hint="--end-time")
    if times is not None and not yes:
        _confirm_backfill(schedule_manifests.count_between(times, start, min(end, now), _MANY_RUNS), str(target.name))
    request = {
        "startTime": format_time(start),
        "endTime": format_time(end),
        "overlapPolicy": overlap_policy and overlap_policy.value,
        "maxConcurrency": max_concurrency,
    }
    send(context, "backfill", request, target)


_MANY_RUNS: Final = 1000
"""How many runs a backfill can have without a confirmation."""


def _confirm_backfill(count: int, name: str) -> None:
    """Ask the user whether a backfill is to start very many runs.

    Raises:
        CliError: The input is not a terminal.
        Abort: The user declines.
    """
    if count <= _MANY_RUNS:
        return
    what = f"the backfill starts more than {_MANY_RUNS} runs of `{name}`"
    if not sys.stdin.isatty():
        raise CliError(f"{what}; pass --yes to start them, or use a shorter range")
    click.confirm(f"Note: {what}. Do you want to start them?", abort=True, err=True)


@schedule.command("delete")
@schedule_argument
@option("--cascade", type=Words(Cascade), default=Cascade.BACKGROUND.value, help="What happens to its runs")
@namespace_option
@context_option
@click.pass_context
def delete(context: click.Context, *, name: str, cascade: Cascade, namespace: str | None, cluster: str | None) -> None:
    """Delete a Schedule and its runs.

    \b
    Examples:
      {program} schedule delete nightly
      {program} schedule delete nightly --cascade orphan
    """

    async def remove(found: Cluster) -> None:
        await found.delete("Schedule", "schedules", name, orphan=cascade is Cascade.ORPHAN)

    _with_cluster(context, cluster, namespace, remove)
    click.echo(f"{reference('Schedule', name)} deleted")


@schedule.command("import")
@option("--file", "-f", required=True, help="YAML or JSON; - for standard input")
@option("--name", help="Name of the new object; default: that of the original")
@namespace_option
def import_(*, file: str, name: str | None, namespace: str | None) -> None:
    """Convert a CronJob, a CronWorkflow, or a Temporal schedule to manifests.

    Prints manifests for `kubectl apply`. Fails if a field has no equivalent. The
    JSON of `temporal schedule describe` has no ID, so it requires --name.

    \b
    Examples:
      kubectl get cronjob nightly -o yaml | {program} schedule import -f -
      temporal schedule describe -s nightly -o json > nightly.json
      {program} schedule import -f nightly.json --name nightly
    """
    found = documents.read_manifests(file)
    if name is not None and len(found) > 1:
        raise CliError(f"--name: {file} has {len(found)} manifests, which cannot all have the same name")
    try:
        made = [each for manifest in found for each in conversion.convert(manifest, file, name)]
    except reader.UnsupportedScheduleError as error:
        raise CliError(str(error)) from error
    for each in made:
        if namespace:
            each["metadata"]["namespace"] = namespace
    screen = Screen()
    for index, each in enumerate(made):
        if index:
            screen.write("---")
        screen.write_data("yaml", each)


_Answer = TypeVar("_Answer")


def _with_cluster(
    context: click.Context, cluster: str | None, namespace: str | None, work: Callable[[Cluster], Awaitable[_Answer]]
) -> _Answer:
    async def run() -> _Answer:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await work(found)

    return asyncio.run(run())


@schedule.command("next")
@argument(
    "name",
    metavar="NAME",
    type=Named("Schedule", schedule_name),
    required=False,
    shell_complete=names_of("schedules"),
    help="Name of the Schedule, or the ID from the Temporal client that created it",
)
@option("--file", "-f", help="File with the Schedule; - for standard input")
@option("--after", help="Only times after this one; default: now")
@option("--count", type=WholeNumber(min=1, max=10_000), default=10, help="Number of times to show")
@namespace_option
@report_option
@context_option
@click.pass_context
def next_times(
    context: click.Context,
    *,
    name: str | None,
    file: str | None,
    after: str | None,
    count: int,
    namespace: str | None,
    output: Output,
    cluster: str | None,
) -> None:
    """Show when a Schedule will start runs.

    With --file, works offline; with NAME, reads the Schedule from the cluster.
    NOMINAL is the time in the spec, ACTUAL includes jitter. NOTE marks clock
    changes: a time that does not exist and runs later, and a time that occurs
    twice. A time without an offset is in the time zone of the Schedule. Jitter
    depends on namespace and name: if the file has no namespace, set --namespace.
    If the Schedule is paused, prints a warning on stderr. Exit status 1: there
    are no times; the message says why.

    \b
    Examples:
      {program} schedule next -f nightly.yaml
      {program} schedule next nightly --after 2026-03-28T00:00:00Z --count 3
      {program} schedule next -f nightly.yaml --output json
    """
    if file is None and name is None:
        raise click.BadParameter("set either NAME or --file")
    stored = None if file else asyncio.run(read_schedule(str(name), namespace, cluster, program_of(context)))

    found = stored if stored is not None else _schedule_in(str(file), name)
    times = schedule_manifests.times_of(found)
    start = parse_time(after, times.zone.rules) if after else clock.now()
    dues = schedule_manifests.upcoming(times, found, namespace or "default", start, count)
    screen = Screen()
    if output != "text":
        screen.write_data(output, view.times_json(dues, times))
    elif dues:
        screen.show(view.times_table(dues, times))
    if dues and view.is_paused(found):
        click.echo("The schedule is paused: no runs start at these times until it is unpaused.", err=True)
    if not dues:
        click.echo(f"{schedule_manifests.outlook_of(found, start).message}.", err=True)
        raise Exit(ExitCode.NO)


async def read_schedule(name: str, namespace: str | None, context: str | None, program: str) -> dict[str, Any]:
    """Read a Schedule from the cluster, by its name or its ID."""
    async with connect(context=context, namespace=namespace, program=program) as cluster:
        return await cluster.read("Schedule", "schedules", name)


def _schedule_in(file: str, name: str | None) -> dict[str, Any]:
    """Read the manifest of a Schedule.

    Args:
        file: A file of manifests; `-` is standard input.
        name: Name of the Schedule, if there are several.

    Raises:
        CliError: The file cannot be read, or does not contain the Schedule.
    """
    found = [
        each for each in documents.read_documents(file) if isinstance(each, dict) and each.get("kind") == "Schedule"
    ]
    named = [each for each in found if name is None or (each.get("metadata") or {}).get("name") == name]
    if not named:
        raise CliError(f"{file}: has no Schedule" + (f" `{name}`" if name else ""))
    if len(named) > 1:
        names = ", ".join(str((each.get("metadata") or {}).get("name")) for each in named)
        raise CliError(f"{file}: has {len(named)} Schedules ({names}); set NAME to one of them")
    try:
        schedule_manifests.check(named[0])
    except ClientError as error:
        raise CliError(f"{file}: {error}") from error
    return named[0]


schedule.commands = dict(sorted(schedule.commands.items()))  # the help lists them by name
