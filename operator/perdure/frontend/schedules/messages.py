"""Convert schedules between Temporal's messages and Schedule objects. Pure.

An update keeps the original form of unchanged parts: cron lines stay cron lines, a RetryPolicy stays referenced by name, and
fields without a counterpart in Temporal are kept.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec
from temporalio.api.common.v1 import Memo, SearchAttributes, WorkflowExecution
from temporalio.api.enums.v1 import ScheduleOverlapPolicy, TaskQueueKind, WorkflowExecutionStatus, WorkflowIdReusePolicy
from temporalio.api.schedule.v1 import (
    CalendarSpec,
    IntervalSpec,
    Range,
    Schedule,
    ScheduleAction,
    ScheduleActionResult,
    ScheduleInfo,
    ScheduleListEntry,
    SchedulePolicies,
    ScheduleSpec,
    ScheduleState,
    StructuredCalendarSpec,
)
from temporalio.api.workflow.v1 import NewWorkflowExecutionInfo

from perdure.api import labels
from perdure.api.kinds import schedule as kind
from perdure.api.kinds.schedule import Calendar
from perdure.api.search_attributes import attribute_field
from perdure.api.stored import StoredStruct, newer_annotation, read_annotation
from perdure.api.times import format_duration, format_time, parse_duration
from perdure.archive.records import status_named
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import StartExtras
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.messages import histories, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.histories import versioning_override
from perdure.frontend.messages.values import UnfitError, duration, from_enum, timestamp, to_enum
from perdure.frontend.runs.starts import TIMEOUTS, requested_run
from perdure.language.program import retry_policy
from perdure.schedule.calendar import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    YEAR,
    Field,
    InvalidTimesError,
    Work,
    depends_on_month,
    read_field,
)
from perdure.schedule.run_manifests import id_of, workflow_id_of
from perdure.schedule.times import Times

_SECOND = timedelta(seconds=1)
_FIELDS: tuple[tuple[str, Field, str], ...] = (
    ("second", SECOND, "0"),
    ("minute", MINUTE, "0"),
    ("hour", HOUR, "0"),
    ("day_of_month", DAY_OF_MONTH, "*"),
    ("month", MONTH, "*"),
    ("day_of_week", DAY_OF_WEEK, "*"),
    ("year", YEAR, "*"),
)
"""Fields of Temporal's calendars, their ranges, and their defaults in a CalendarSpec."""

TIMES = (
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "startTime",
    "endTime",
    "jitter",
    "timeZone",
    "timeZoneData",
)
"""Fields of a Schedule's spec that define its times."""


KubeObject = dict[str, Any]

SHOWN, SHOWN_IN_LISTS = 10, 5
"""Number of actions and future times in a description; a list has half of them."""
_CATCHUP, _SHORTEST_CATCHUP = timedelta(days=365), timedelta(seconds=10)
"""The default window and the shortest window (service/worker/scheduler/workflow.go)."""
_KEPT_RUNS = 100
_DEFAULTS = {"executionTimeout": "0s", "runTimeout": "", "taskTimeout": "10s"}
_COUNTERPARTS: tuple[tuple[tuple[str, ...], Callable[[NewWorkflowExecutionInfo], Any]], ...] = (
    (("workflowId",), attrgetter("workflow_id")),
    (("workflow", "inline"), attrgetter("workflow_type.name", "task_queue.name")),
    (
        ("input",),
        attrgetter("input", "task_queue.name"),
    ),  # Workflows, which have their own queue, read it in another form
    (("retryPolicy",), lambda start: start.retry_policy if start.HasField("retry_policy") else None),
    (("searchAttributes",), attrgetter("search_attributes")),
    *(((ours,), attrgetter(theirs)) for theirs, ours in TIMEOUTS.items()),
)
"""Fields of a template, and what a client sends in place of them."""
_REUSE = ("Unspecified", "AllowDuplicate")


class ClientOptions(StoredStruct, frozen=True, kw_only=True):
    """The options of a Temporal client for a schedule that its spec does not have."""

    request_id: str = ""
    memo: dict[str, Any] | None = None
    search_attributes: dict[str, Any] | None = None
    updated: datetime | None = None
    remaining_actions: int = 0
    """The remaining actions of a schedule without a limit: stored and shown, but without effect."""


def client_options(obj: KubeObject) -> ClientOptions:
    """Read the options of a Temporal client for a schedule; empty if there are none."""
    return read_annotation(obj, labels.CLIENT_ANNOTATION, ClientOptions) or ClientOptions()


def spec_of(obj: KubeObject) -> kind.ScheduleSpec:
    """Read the spec of a Schedule.

    Raises:
        pydantic.ValidationError: It cannot be read.
    """
    return kind.ScheduleSpec.parse(obj["spec"])


# From Temporal


def new_schedule(
    requested: Schedule,
    types: Mapping[str, str],
    *,
    namespace: str,
    name: str,
    schedule_id: str,
    options: ClientOptions,
    identity: str,
) -> KubeObject:
    """Build the Schedule that a client requests.

    Args:
        requested: The request.
        types: The types of the registered search attributes, by name.
        namespace: The namespace.
        name: The name of the object.
        schedule_id: The schedule ID of the client.
        options: The options that the spec does not have.
        identity: The identity of the client.

    Raises:
        ValueError: The request is not valid; the message names the field.
    """
    template, extras = _template(requested.action, types, namespace)
    spec = {
        **to_times(requested.spec),
        **_policies(requested.policies),
        **_state(requested.state),
        "daylightSaving": {"skipped": "Skip", "repeated": "Both"},
        "successfulRunsHistoryLimit": _KEPT_RUNS,
        "failedRunsHistoryLimit": _KEPT_RUNS,
        "workflowRunTemplate": {"spec": template},
    }
    annotations = {
        labels.CLIENT_ANNOTATION: _json(_with_state(options, requested.state)),
        labels.START_ANNOTATION: _json(msgspec.structs.replace(extras, identity=identity)),
    }
    if schedule_id != name:
        annotations[labels.SCHEDULE_ID_ANNOTATION] = schedule_id
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "Schedule",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": spec,
    }


def newer_options(obj: KubeObject) -> str:
    """Say what only a newer version can read in the options of a client for a schedule; empty if there is nothing."""
    return newer_annotation(obj, labels.CLIENT_ANNOTATION, ClientOptions) or newer_annotation(
        obj, labels.START_ANNOTATION, StartExtras
    )


def changed_schedule(
    obj: KubeObject, requested: Schedule, types: Mapping[str, str], options: ClientOptions
) -> KubeObject:
    """Return a Schedule after the update of a client.

    Args:
        obj: The current Schedule.
        requested: The request.
        types: The types of the registered search attributes, by name.
        options: The options that the spec does not have.

    Raises:
        ValueError: The request is not valid; the message names the field.
        pydantic.ValidationError: The Schedule cannot be read.
    """
    before, spec = described(obj), dict(obj["spec"])
    annotations = {
        **(obj["metadata"].get("annotations") or {}),
        labels.CLIENT_ANNOTATION: _json(_with_state(options, requested.state)),
    }
    if requested.spec not in (before.spec, _as_sdks_read(before.spec)):
        spec = {field: value for field, value in spec.items() if field not in TIMES} | to_times(requested.spec)
    if requested.policies != before.policies:
        spec |= _policies(requested.policies)
    if requested.state != before.state:
        spec.pop("remainingActions", None)
        spec |= _state(requested.state)
    if requested.action != before.action:
        template, extras = _template(requested.action, types, obj["metadata"]["namespace"])
        old = spec["workflowRunTemplate"]
        replaced = _replaced_fields(before.action.start_workflow, requested.action.start_workflow)
        spec["workflowRunTemplate"] = {
            **old,
            "spec": {field: value for field, value in old["spec"].items() if field not in replaced}
            | {field: value for field, value in template.items() if field in replaced},
        }
        annotations[labels.START_ANNOTATION] = _json(extras)
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}, "spec": spec}


def _as_sdks_read(spec: ScheduleSpec) -> ScheduleSpec:
    """The times without calendars in the older format, which SDKs ignore, and so do not send back."""
    made = ScheduleSpec()
    made.CopyFrom(spec)
    made.ClearField("calendar")
    made.ClearField("exclude_calendar")
    return made


def _replaced_fields(before: NewWorkflowExecutionInfo, requested: NewWorkflowExecutionInfo) -> set[str]:
    """The fields of a template whose counterparts a client has changed."""
    return {field for fields, read in _COUNTERPARTS if read(before) != read(requested) for field in fields}


def paused_schedule(obj: KubeObject, paused: bool, notes: str) -> KubeObject:
    """Return a Schedule with its pause and the reason set or removed."""
    return {**obj, "spec": {**obj["spec"], "paused": paused, "notes": notes}}


def _template(action: ScheduleAction, types: Mapping[str, str], namespace: str) -> tuple[dict[str, Any], StartExtras]:
    start = action.start_workflow
    if not action.HasField("start_workflow"):
        raise ValueError("schedule.action.start_workflow: must be set")
    values.name(start.workflow_id, "schedule.action.start_workflow.workflow_id", required=False)
    for value, field in (
        (start.workflow_type.name, "workflow_type"),
        (start.task_queue.name, "task_queue"),
    ):
        if not value:
            raise ValueError(f"schedule.action.start_workflow.{field}: must be set")
        values.name(value, f"schedule.action.start_workflow.{field}")
    if start.cron_schedule:
        raise ValueError("schedule.action.start_workflow.cron_schedule: is not supported in a schedule")
    if from_enum(WorkflowIdReusePolicy, start.workflow_id_reuse_policy) not in _REUSE:
        raise ValueError(
            "schedule.action.start_workflow.workflow_id_reuse_policy: must be ALLOW_DUPLICATE in a schedule"
        )
    try:
        spec, extras = requested_run(start, types, namespace)
    except ValueError as error:
        raise ValueError(f"schedule.action.start_workflow: {error}") from error
    if not start.workflow_id:
        del spec["workflowId"]  # the Schedule sets the workflow IDs of its runs
    return spec, extras


def _policies(requested: SchedulePolicies) -> dict[str, Any]:
    if requested.keep_original_workflow_id:
        message = "is not supported: two runs with the same ID would be indistinguishable"
        raise ValueError(f"schedule.policies.keep_original_workflow_id: {message}")
    window = duration(requested, "catchup_window") if requested.HasField("catchup_window") else _CATCHUP
    return {
        "overlapPolicy": from_enum(ScheduleOverlapPolicy, requested.overlap_policy).replace("Unspecified", "Skip"),
        "catchupWindow": format_duration(max(window, _SHORTEST_CATCHUP)),
        "pauseOnFailure": requested.pause_on_failure,
    }


def _state(requested: ScheduleState) -> dict[str, Any]:
    state: dict[str, Any] = {"paused": requested.paused, "notes": requested.notes}
    if requested.limited_actions:
        state["remainingActions"] = requested.remaining_actions
    return state


def _with_state(options: ClientOptions, requested: ScheduleState) -> ClientOptions:
    unlimited = 0 if requested.limited_actions else requested.remaining_actions
    return msgspec.structs.replace(options, remaining_actions=unlimited)


def _json(message: msgspec.Struct) -> str:
    return msgspec.json.encode(message).decode()


# To Temporal


def with_runs(obj: KubeObject, run_id_of: Callable[[str], str]) -> KubeObject:
    """Return a schedule whose status lists only existing runs, with their IDs.

    Decisions are written before they are applied, so the status may briefly name runs that are about to be created. A request
    for such a run would not find it.

    Args:
        obj: The Schedule.
        run_id_of: Returns the ID of a run of its namespace by name; empty if it does not exist.
    """
    status = dict(obj.get("status") or {})
    for field in ("recentActions", "runningWorkflows"):
        runs = []
        for run in status.get(field) or ():
            run_id = run.get("runId") or run_id_of(run["workflowRun"])
            if run_id or run.get("status", "Running") != "Running":
                runs.append({**run, "runId": run_id})
        status[field] = runs
    return {**obj, "status": status}


def described(obj: KubeObject) -> Schedule:
    """Describe a schedule for Temporal clients.

    Raises:
        pydantic.ValidationError: It cannot be read.
    """
    spec, status = spec_of(obj), obj.get("status") or {}
    made = Schedule(spec=from_times(spec), action=ScheduleAction(start_workflow=_action(obj, spec)))
    made.policies.overlap_policy = to_enum(ScheduleOverlapPolicy, spec.overlap_policy.value)
    made.policies.catchup_window.FromTimedelta(spec.catchup_window)
    made.policies.pause_on_failure = spec.pause_on_failure
    since = status.get("paused")
    made.state.paused = spec.paused or since is not None
    made.state.notes = (since or {}).get("reason") or spec.notes
    if spec.remaining_actions is not None:
        made.state.limited_actions = True
        made.state.remaining_actions = _remaining(obj, spec) or 0
    else:
        made.state.remaining_actions = client_options(obj).remaining_actions
    return made


def _remaining(obj: KubeObject, spec: kind.ScheduleSpec) -> int | None:
    """The number of remaining actions, ignoring a status of an older spec."""
    status, generation = obj.get("status") or {}, obj["metadata"].get("generation")
    if spec.remaining_actions is None or status.get("observedGeneration") != generation:
        return spec.remaining_actions
    left: int | None = status.get("remainingActions", spec.remaining_actions)
    return left


def _action(obj: KubeObject, spec: kind.ScheduleSpec) -> NewWorkflowExecutionInfo:
    run = spec.workflow_run_template.spec
    extras = read_annotation(obj, labels.START_ANNOTATION, StartExtras) or StartExtras()
    made = NewWorkflowExecutionInfo(workflow_id=run.workflow_id or obj["metadata"]["name"])
    reference = run.workflow
    made.workflow_type.name = (reference.type or reference.name or "") if reference else obj["metadata"]["name"]
    made.task_queue.name = (reference.task_queue if reference else None) or WORKFLOWS_QUEUE
    made.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    kept = data.payloads(run.input)
    if kept is not None:
        made.input.CopyFrom(kept)
    written = obj["spec"]["workflowRunTemplate"]["spec"]
    for field, ours in TIMEOUTS.items():
        # No client has set the defaults of the API server.
        if written.get(ours, _DEFAULTS[ours]) != _DEFAULTS[ours]:
            getattr(made, field).FromTimedelta(parse_duration(written[ours]))
    policy = retry_policy(run.retry_policy) if run.retry_policy is not None else None
    if isinstance(policy, RetryPolicy):
        made.retry_policy.CopyFrom(histories.retry_policy(policy))
    for field, value in (
        ("memo", data.memo(extras.memo)),
        ("header", data.header(extras.header)),
        ("search_attributes", data.attributes(run.search_attributes)),
        ("user_metadata", data.user_metadata(extras.user_metadata)),
    ):
        if value is not None:
            getattr(made, field).CopyFrom(value)
    if extras.versioning_override is not None:
        made.versioning_override.CopyFrom(versioning_override(extras.versioning_override))
    if extras.priority is not None:
        made.priority.CopyFrom(data.message_from_json(extras.priority, type(made.priority)))
    return made


def upcoming(obj: KubeObject, now: datetime, work: Work) -> Iterator[datetime]:
    """Yield the next times with jitter, limited by the remaining actions, and by the budget of `work`.

    Raises:
        pydantic.ValidationError: The schedule cannot be read.
    """
    spec = spec_of(obj)
    try:
        yield from islice(between(obj, spec, now, work), _remaining(obj, spec))
    except InvalidTimesError:
        return


def between(obj: KubeObject, spec: kind.ScheduleSpec, after: datetime, work: Work) -> Iterator[datetime]:
    """Yield the times after an instant, with jitter.

    Raises:
        InvalidTimesError: The times are not valid, or the budget of `work` is used up.
    """
    meta = obj["metadata"]
    for due in Times(spec, work).dues(after, f"{meta['namespace']}/{meta['name']}"):
        yield due.actual


def info(obj: KubeObject, future: Iterable[datetime]) -> ScheduleInfo:
    """The recent actions of a schedule, and the times of the next ones.

    Raises:
        pydantic.ValidationError: It cannot be read.
    """
    spec, status = spec_of(obj), obj.get("status") or {}
    counts = status.get("counts") or {}
    made = ScheduleInfo(
        action_count=counts.get("actions", 0),
        missed_catchup_window=counts.get("missedCatchupWindow", 0),
        overlap_skipped=counts.get("overlapSkipped", 0),
        buffer_dropped=counts.get("bufferDropped", 0),
        buffer_size=status.get("bufferSize", 0),
        running_workflows=[_execution(obj, spec, run) for run in status.get("runningWorkflows") or ()],
        recent_actions=_recent(obj, spec, SHOWN),
        invalid_schedule_error=_problem(status),
        state_size_bytes=len(msgspec.json.encode(status)),
    )
    for time in future:
        made.future_action_times.add().FromDatetime(time)
    made.create_time.FromDatetime(datetime.fromisoformat(obj["metadata"]["creationTimestamp"]))
    updated = client_options(obj).updated
    if updated is not None:
        made.update_time.FromDatetime(updated)
    return made


def _execution(obj: KubeObject, spec: kind.ScheduleSpec, run: Mapping[str, Any]) -> WorkflowExecution:
    base = spec.workflow_run_template.spec.workflow_id
    workflow_id = workflow_id_of(run["workflowRun"], obj["metadata"]["name"], base)
    return WorkflowExecution(workflow_id=workflow_id, run_id=run.get("runId", ""))


def _recent(obj: KubeObject, spec: kind.ScheduleSpec, limit: int) -> list[ScheduleActionResult]:
    found = []
    for run in ((obj.get("status") or {}).get("recentActions") or ())[-limit:]:
        made = ScheduleActionResult(
            start_workflow_result=_execution(obj, spec, run),
            start_workflow_status=to_enum(WorkflowExecutionStatus, status_named(run.get("status", ""))),
        )
        made.schedule_time.FromDatetime(datetime.fromisoformat(run.get("scheduledTime") or run["actualTime"]))
        made.actual_time.FromDatetime(datetime.fromisoformat(run["actualTime"]))
        found.append(made)
    return found


def _problem(status: Mapping[str, Any]) -> str:
    """Why a schedule is invalid; empty if it is valid."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "False" and condition["reason"] != "NoMoreTimes":
            return str(condition.get("message", ""))
    return ""


def entry(obj: KubeObject, future: Iterable[datetime]) -> ScheduleListEntry:
    """Convert a schedule for a list, with the times of its next actions.

    Raises:
        pydantic.ValidationError: It cannot be read.
    """
    spec, schedule = spec_of(obj), described(obj)
    made = ScheduleListEntry(schedule_id=id_of(obj), memo=memo(obj) or Memo(), search_attributes=search_attributes(obj))
    made.info.spec.CopyFrom(schedule.spec)
    made.info.workflow_type.CopyFrom(schedule.action.start_workflow.workflow_type)
    made.info.notes = schedule.state.notes
    made.info.paused = schedule.state.paused
    made.info.recent_actions.extend(_recent(obj, spec, SHOWN_IN_LISTS))
    for time in future:
        made.info.future_action_times.add().FromDatetime(time)
    return made


def memo(obj: KubeObject) -> Memo | None:
    """The memo of a schedule."""
    return data.memo(client_options(obj).memo)


def search_attributes(obj: KubeObject) -> SearchAttributes | None:
    """The search attributes of a schedule."""
    return data.attributes(client_options(obj).search_attributes)


def lookup(obj: KubeObject) -> Callable[[str], Any]:
    """Return a function that looks up the values for filters by name."""
    attributes = client_options(obj).search_attributes or {}

    def find(name: str) -> Any:
        match name:
            case "ScheduleId":
                return id_of(obj)
            case "TemporalSchedulePaused":
                return bool(obj["spec"].get("paused") or (obj.get("status") or {}).get("paused"))
            case _:
                return attribute_field(attributes, name)

    return find


# Times


def to_times(spec: ScheduleSpec) -> dict[str, Any]:
    """The fields of a Schedule's spec that define its times.

    Raises:
        ValueError: A Schedule cannot express the times; the message names the field.
    """
    times: dict[str, Any] = {
        "cron": list(spec.cron_string),
        "intervals": [_interval(each, index) for index, each in enumerate(spec.interval)],
        "calendars": [
            *_all_structured(spec.structured_calendar, "structured_calendar"),
            *_all_written(spec.calendar),
        ],
        "exclude": [
            *_all_structured(spec.exclude_structured_calendar, "exclude_structured_calendar"),
            *_all_written(spec.exclude_calendar),
        ],
        "timeZone": spec.timezone_name,
        "timeZoneData": base64.b64encode(spec.timezone_data).decode(),
    }
    start, end, jitter = timestamp(spec, "start_time"), timestamp(spec, "end_time"), duration(spec, "jitter")
    if start is not None:
        times["startTime"] = format_time(start)
    if end is not None:
        times["endTime"] = format_time(end)
    if jitter:
        times["jitter"] = format_duration(jitter)
    return {field: value for field, value in times.items() if value}


def _interval(spec: IntervalSpec, index: int) -> dict[str, str]:
    # Fractions of seconds are ignored (Temporal: service/worker/scheduler/spec.go).
    try:
        every, phase = (duration(spec, field) // _SECOND * _SECOND for field in ("interval", "phase"))
    except UnfitError as error:
        raise UnfitError(f"schedule.spec.interval[{index}]: {error}") from None
    if every < _SECOND:
        raise ValueError(f"schedule.spec.interval[{index}].interval: must be at least a second")
    if not timedelta(0) <= phase < every:
        raise ValueError(f"schedule.spec.interval[{index}].phase: must be at least zero, and less than the interval")
    written = {"every": format_duration(every)}
    if phase:
        written["offset"] = format_duration(phase)
    return written


def _all_written(specs: Iterable[CalendarSpec]) -> list[dict[str, str]]:
    found = []
    for spec in specs:
        written = {_ours(field): getattr(spec, field) or default for field, _, default in _FIELDS}
        found.append({**written, **({"comment": spec.comment} if spec.comment else {})})
    return found


def _all_structured(specs: Iterable[StructuredCalendarSpec], name: str) -> list[dict[str, str]]:
    found = []
    for index, spec in enumerate(specs):
        written = {"comment": spec.comment} if spec.comment else {}
        for field, allowed, _ in _FIELDS:
            ranges = getattr(spec, field)
            if not ranges and allowed is not YEAR:
                message = "is empty and matches nothing; set the values to match"
                raise ValueError(f"schedule.spec.{name}[{index}].{field}: {message}")
            written[_ours(field)] = ",".join(_range(each, allowed) for each in ranges) or "*"
        found.append(written)
    return found


def _ours(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def _range(proto: Range, allowed: Field) -> str:
    end, step = max(proto.start, proto.end), proto.step or 1
    if (proto.start, end, step) == (allowed.low, allowed.high, 1) and allowed is not YEAR:
        return "*"
    if step > 1:
        return f"{proto.start}-{end}/{step}"  # always with its end: without one, a step extends to the last value
    return str(proto.start) if end == proto.start else f"{proto.start}-{end}"


def from_times(spec: kind.ScheduleSpec) -> ScheduleSpec:
    """Convert the times of a Schedule like Temporal's server: cron lines become the equivalent calendars."""
    made = ScheduleSpec(
        timezone_name=spec.time_zone or "",
        timezone_data=base64.b64decode(spec.time_zone_data) if spec.time_zone_data else b"",
    )
    try:
        times = Times(spec)
        calendars, intervals = times.calendars, times.intervals
        if times.zone.name not in {"", "UTC"}:
            made.timezone_name = times.zone.name
    except InvalidTimesError:
        calendars, intervals = list(spec.calendars), list(spec.intervals)
        made.cron_string.extend(spec.cron)
    _put_calendars(made, calendars, spec.exclude)
    for interval in intervals:
        message = made.interval.add()
        message.interval.FromTimedelta(interval.every)
        if interval.offset:
            message.phase.FromTimedelta(interval.offset)
    if spec.start_time is not None:
        made.start_time.FromDatetime(spec.start_time)
    if spec.end_time is not None:
        made.end_time.FromDatetime(spec.end_time)
    if spec.jitter:
        made.jitter.FromTimedelta(spec.jitter)
    return made


def _put_calendars(spec: ScheduleSpec, calendars: Iterable[Calendar], exclude: Iterable[Calendar]) -> None:
    for each in calendars:
        if _depends_on_month(each):
            spec.calendar.append(_written(each))
        else:
            spec.structured_calendar.append(_structured(each))
    for each in exclude:
        if _depends_on_month(each):
            spec.exclude_calendar.append(_written(each))
        else:
            spec.exclude_structured_calendar.append(_structured(each))


def _depends_on_month(calendar: Calendar) -> bool:
    """Whether a calendar has days such as `L` or `MON#1`, which ranges of numbers cannot express."""
    return any(map(depends_on_month, f"{calendar.day_of_month},{calendar.day_of_week}".split(",")))


def _written(calendar: Calendar) -> CalendarSpec:
    """Convert a calendar to Temporal's older format with text fields, so that an update sends it back unchanged."""
    return CalendarSpec(comment=calendar.comment, **{field: getattr(calendar, field) for field, _, _ in _FIELDS})


def _structured(calendar: Calendar) -> StructuredCalendarSpec:
    made = StructuredCalendarSpec(comment=calendar.comment)
    for field, allowed, _ in _FIELDS:
        text = getattr(calendar, field)
        if allowed is not YEAR or text != "*":
            getattr(made, field).extend(_ranges(text, allowed))
    return made


def _ranges(text: str, allowed: Field) -> list[Range]:
    """The ranges of a field. A range that wraps around becomes single values."""
    try:
        return [each for item in text.split(",") for each in _item(item.strip(), allowed)]
    except InvalidTimesError:
        return []


def _item(item: str, allowed: Field) -> list[Range]:
    values, slash, step = item.partition("/")
    first, dash, last = values.partition("-")
    if values == "*":
        start, end = allowed.low, allowed.high
    else:
        start = _value(first, allowed)
        end = _value(last, allowed) if dash else allowed.high if slash else start
    if start <= end:
        return [Range(start=start, end=end, step=int(step or 1))]
    bits = read_field(allowed, item)
    return [Range(start=v, end=v, step=1) for v in range(allowed.low, allowed.high + 1) if bits >> v & 1]


def _value(text: str, allowed: Field) -> int:
    text = text.strip()
    return int(text) if text.isdecimal() else read_field(allowed, text).bit_length() - 1
