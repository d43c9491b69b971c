"""`schedule`: schedules and their times."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from perdure.cli.connection import connect
from perdure.cli.operations import Inquiry, ReasonOption, ScheduleName, ask, ask_to_start, asking_schedule
from perdure.cli.options import ContextOption, NamespaceOption, OutputOption, TimeOption, word_of, words_shown
from perdure.cli.schedules import has_zone, moment, rfc3339
from perdure.cli.starts import check_input
from perdure.cli.terminal import Screen, TimeFormat, for_people, page_of, program_of, reference
from perdure.cli.verbs.schedule_next import NEXT, next_times, read_schedule
from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, ExistsError
from perdure.kube import clock

HELP = """Create, inspect, and control Schedules.

\b
Examples:
  {program} schedule next -f nightly.yaml --count 3
  {program} schedule next nightly --after 2026-03-28
"""
_LIST = """List schedules.

\b
Examples:
  {program} schedule list
  {program} schedule list --all-namespaces --output json
  {program} schedule list --output wide
"""
_DESCRIBE = """Show a Schedule: its times, its last runs, and why it does not start runs.

\b
Examples:
  {program} schedule describe nightly
  {program} schedule describe nightly --output json
  {program} schedule describe Nightly_Invoices
"""
_CREATE = """Create a Schedule that runs a Workflow.

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
_PAUSE = """Pause a Schedule: no scheduled runs start until you unpause it.

\b
Examples:
  {program} schedule pause nightly --reason 'the database is being moved'
"""
_UNPAUSE = """Unpause a Schedule. No runs start for times that have passed.

\b
Examples:
  {program} schedule unpause nightly
"""
_TRIGGER = """Start a run of a Schedule now, even if it is paused.

\b
Examples:
  {program} schedule trigger nightly
  {program} schedule trigger nightly --overlap-policy AllowAll
"""
_BACKFILL = """Start the runs of all times between two points in time.

A time without an offset is in the time zone of the Schedule.

\b
Examples:
  {program} schedule backfill nightly --start-time 2026-11-01 \\
    --end-time 2026-11-08 --overlap-policy BufferAll
"""
_DELETE = """Delete a Schedule and its runs.

\b
Examples:
  {program} schedule delete nightly
  {program} schedule delete nightly --cascade orphan
"""
_IMPORT = """Convert a CronJob, a CronWorkflow, or a Temporal schedule to manifests.

Prints manifests for `kubectl apply`. Fails if a field has no equivalent. The
JSON of `temporal schedule describe` has no ID, so it requires --name.

\b
Examples:
  kubectl get cronjob nightly -o yaml | {program} schedule import -f -
  temporal schedule describe -s nightly -o json > nightly.json
  {program} schedule import -f nightly.json --name nightly
"""


class Overlap(StrEnum):
    """Overlap policies, as in the API."""

    SKIP = "Skip"
    BUFFER_ONE = "BufferOne"
    BUFFER_ALL = "BufferAll"
    CANCEL_OTHER = "CancelOther"
    TERMINATE_OTHER = "TerminateOther"
    ALLOW_ALL = "AllowAll"


_CONCURRENCY_POLICIES = {"forbid": "Skip", "allow": "AllowAll", "replace": "TerminateOther, or CancelOther"}
"""The names of some policies in CronJob and CronWorkflow."""


class Cascade(StrEnum):
    """The deletion of the runs of a deleted Schedule."""

    BACKGROUND = "background"
    ORPHAN = "orphan"


OverlapPolicy = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap-policy",
        parser=word_of(Overlap, _CONCURRENCY_POLICIES),
        metavar=words_shown(Overlap),
        help="What to do if an earlier run is open",
        show_default=False,
    ),
]
Many = list[str] | None


def list_schedules(
    context: typer.Context,
    *,
    namespace: NamespaceOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List Schedules of all namespaces")
    ] = False,
    output: OutputOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    cluster: ContextOption = None,
) -> None:
    """List schedules."""

    async def read(found: Cluster) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        schedules = await found.list("schedules", everywhere=everywhere)
        return schedules, await found.runs.of_schedules(everywhere=everywhere) if schedules else []

    screen = Screen()
    items, runs = _with_cluster(context, cluster, namespace, read)
    if not for_people(output):
        screen.write_objects(output, items)
    elif items:
        from perdure.view.schedules import table

        page = page_of(context, screen, times=times)
        screen.show(table(items, page, runs, namespaces=everywhere, wide=output == "wide"))
    else:
        typer.echo(f"There are no Schedules; create one with `{program_of(context)} schedule create`.", err=True)


def describe(
    context: typer.Context,
    name: ScheduleName,
    *,
    namespace: NamespaceOption = None,
    output: OutputOption = "text",
    times: TimeOption = TimeFormat.RELATIVE,
    cluster: ContextOption = None,
) -> None:
    """Show a schedule."""

    async def read(reached: Cluster) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        schedule = await reached.read("Schedule", "schedules", name)
        return schedule, await reached.runs.of_schedules(name) if for_people(output) else []

    screen = Screen()
    found, runs = _with_cluster(context, cluster, namespace, read)
    found["metadata"].pop("managedFields", None)
    if not for_people(output):
        screen.write_object(output, found)
    else:
        from perdure.view.schedules import description

        screen.show(description(found, page_of(context, screen, times=times), runs))


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Schedule", show_default=False)],
    *,
    workflow: Annotated[str, typer.Option("--workflow", help="Name of the Workflow to run")],
    input_: Annotated[
        str | None, typer.Option("--input", "-i", help="Input of the runs: JSON", show_default=False)
    ] = None,
    workflow_id: Annotated[
        str | None,
        typer.Option("--workflow-id", "-w", help="Workflow ID; the operator appends the time", show_default=False),
    ] = None,
    cron: Annotated[Many, typer.Option("--cron", help="Cron line; repeatable", show_default=False)] = None,
    interval: Annotated[
        Many,
        typer.Option(
            "--interval", help="Interval such as 90m, or 90m/13m with an offset; repeatable", show_default=False
        ),
    ] = None,
    calendar: Annotated[
        Many, typer.Option("--calendar", help="Calendar as JSON; repeatable", show_default=False)
    ] = None,
    exclude_calendar: Annotated[
        Many, typer.Option("--exclude-calendar", help="Times to exclude, as JSON; repeatable", show_default=False)
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option("--time-zone", help="IANA name, such as Europe/Berlin", show_default=False)
    ] = None,
    start_time: Annotated[
        str | None, typer.Option("--start-time", help="No runs start before this time", show_default=False)
    ] = None,
    end_time: Annotated[
        str | None, typer.Option("--end-time", help="No runs start after this time", show_default=False)
    ] = None,
    jitter: Annotated[
        str | None, typer.Option("--jitter", help="Maximum random delay of each start", show_default=False)
    ] = None,
    overlap_policy: OverlapPolicy = None,
    catchup_window: Annotated[
        str | None, typer.Option("--catchup-window", help="How late a run can start", show_default=False)
    ] = None,
    pause_on_failure: Annotated[bool, typer.Option("--pause-on-failure", help="Pause when a run fails")] = False,
    remaining_actions: Annotated[
        int | None, typer.Option("--remaining-actions", help="Number of runs to start", min=0, show_default=False)
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create the Schedule paused")] = False,
    notes: Annotated[str | None, typer.Option("--notes", help="Notes for people", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifest without creating it")] = False,
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Create a schedule that runs a Workflow."""
    from perdure.cli.schedules import new_schedule, outlook_of, read_json, times_of

    run: dict[str, Any] = {"workflow": {"name": workflow}}
    run |= {"workflowId": workflow_id} if workflow_id else {}
    run |= {"input": read_json("--input", input_)} if input_ is not None else {}
    spec = {
        "cron": cron,
        "intervals": [dict(zip(("every", "offset"), each.split("/", 1), strict=False)) for each in interval or ()],
        "calendars": [read_json("--calendar", each) for each in calendar or ()],
        "exclude": [read_json("--exclude-calendar", each) for each in exclude_calendar or ()],
        "timeZone": time_zone,
        "jitter": jitter,
        "overlapPolicy": overlap_policy and overlap_policy.value,
        "catchupWindow": catchup_window,
        "pauseOnFailure": pause_on_failure or None,
        "remainingActions": remaining_actions,
        "paused": paused or None,
        "notes": notes,
        "workflowRunTemplate": {"spec": run},
    }
    limits = {"startTime": start_time, "endTime": end_time}
    if any(limits.values()):
        zone = times_of(new_schedule(name, spec)).zone.rules
        spec |= {field: rfc3339(moment(text, zone)) for field, text in limits.items() if text}
    manifest = new_schedule(name, spec)
    found = outlook_of(manifest, clock.now())
    if not found.ready:
        raise CliError(f"{found.path}: {found.message}; nothing was created")
    if found.message:
        typer.echo(f"Note: it has no times. {found.message}: `{program_of(context)} schedule trigger {name}`", err=True)
    if dry_run:
        Screen().write_data("yaml", manifest)
        return

    async def make(found: Cluster) -> None:
        await check_input(found, workflow, run.get("input"))
        try:
            await found.create("schedules", manifest)
        except ExistsError:
            where = f"{name} -n {found.namespace}"
            raise CliError(
                f"the Schedule `{name}` already exists in namespace `{found.namespace}`; change it with `kubectl edit "
                f"schedule {where}`, or delete it with `{program_of(context)} schedule delete {where}`"
            ) from None

    _with_cluster(context, cluster, namespace, make)
    typer.echo(f"{reference('Schedule', name)} created")


@asking_schedule
def pause(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    reason: ReasonOption = "",
) -> None:
    """Pause a schedule."""
    ask(context, "pause", {"reason": reason or None}, inquiry)


@asking_schedule
def unpause(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    reason: ReasonOption = "",
) -> None:
    """End the pause of a schedule."""
    ask(context, "unpause", {"reason": reason or None}, inquiry)


@asking_schedule
def trigger(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    overlap_policy: OverlapPolicy = None,
) -> None:
    """Start a run of a schedule now."""
    ask_to_start(context, "trigger", {"overlapPolicy": overlap_policy and overlap_policy.value}, inquiry)


@asking_schedule
def backfill(
    context: typer.Context,
    inquiry: Inquiry,
    *,
    start_time: Annotated[str, typer.Option("--start-time", help="First time to consider")],
    end_time: Annotated[str, typer.Option("--end-time", help="Last time to consider")],
    overlap_policy: OverlapPolicy = None,
) -> None:
    """Start the runs of all times between two instants."""
    zone: tzinfo = UTC
    if not (has_zone(start_time) and has_zone(end_time)):
        schedule = asyncio.run(
            read_schedule(str(inquiry.name), inquiry.namespace, inquiry.cluster, program_of(context))
        )
        from perdure.cli.schedules import times_of

        zone = times_of(schedule).zone.rules
    times = {"startTime": rfc3339(moment(start_time, zone)), "endTime": rfc3339(moment(end_time, zone))}
    ask(context, "backfill", {**times, "overlapPolicy": overlap_policy and overlap_policy.value}, inquiry)


def delete(
    context: typer.Context,
    name: ScheduleName,
    *,
    cascade: Annotated[Cascade, typer.Option("--cascade", help="What happens to its runs")] = Cascade.BACKGROUND,
    namespace: NamespaceOption = None,
    cluster: ContextOption = None,
) -> None:
    """Delete a schedule."""

    async def remove(found: Cluster) -> None:
        await found.delete("Schedule", "schedules", name, orphan=cascade is Cascade.ORPHAN)

    _with_cluster(context, cluster, namespace, remove)
    typer.echo(f"{reference('Schedule', name)} deleted")


def import_(
    *,
    file: Annotated[str, typer.Option("--file", "-f", help="YAML or JSON; - for standard input")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the new object; default: that of the original")
    ] = None,
    namespace: NamespaceOption = None,
) -> None:
    """Convert schedules of other systems to manifests."""
    from perdure.cli.foreign import read_foreign
    from perdure.importing.schedules import UnsupportedScheduleError, convert

    found = read_foreign(file)
    if name is not None and len(found) > 1:
        raise CliError(f"--name: {file} has {len(found)} manifests, which cannot all have the same name")
    try:
        made = [each for manifest in found for each in convert(manifest, file, name)]
    except UnsupportedScheduleError as error:
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
    context: typer.Context, cluster: str | None, namespace: str | None, work: Callable[[Cluster], Awaitable[_Answer]]
) -> _Answer:
    async def run() -> _Answer:
        async with connect(context=cluster, namespace=namespace, program=program_of(context)) as found:
            return await work(found)

    return asyncio.run(run())


COMMANDS = {
    "backfill": (backfill, _BACKFILL),
    "create": (create, _CREATE),
    "delete": (delete, _DELETE),
    "describe": (describe, _DESCRIBE),
    "import": (import_, _IMPORT),
    "list": (list_schedules, _LIST),
    "next": (next_times, NEXT),
    "pause": (pause, _PAUSE),
    "trigger": (trigger, _TRIGGER),
    "unpause": (unpause, _UNPAUSE),
}
"""The function and the help of each verb."""
