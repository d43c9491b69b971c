"""Build the WorkflowRuns of a schedule, and recognize them.

The input in the template is not evaluated here; see `perdure.language.schedule_input`.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import msgspec

from perdure.api import labels
from perdure.api.json_values import mapping, text
from perdure.api.names import label_value, schedule_name
from perdure.api.stored import StoredStruct, read_annotation
from perdure.api.times import format_time, read_kubernetes_time
from perdure.engine.starts import StartExtras
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.state import NAME_FORM, ScheduledRun, ScheduleState
from perdure.schedule.times import EARLIEST, Times

KubeObject = dict[str, Any]

MAX_ANNOTATIONS = 240 * 1024
"""Size limit of all annotations of a run together, in bytes. The API server accepts 256 KiB (apimachinery:
TotalAnnotationSizeLimitB); the rest is left for search attributes."""

START_TIME_ATTRIBUTE = "TemporalScheduledStartTime"
ID_ATTRIBUTE = "TemporalScheduledById"
"""Temporal's names for the search attributes of runs that a schedule started."""


_NAMED = re.compile(r"(?P<time>\d{8}t\d{6}z)(?P<manual>-[tb][0-9a-f]{8})?(?P<instead>-x[0-9a-f]{4})?(?:-r\d+)?")
"""The part of a run's name after the name of its schedule."""


class ScheduledBy(StoredStruct, frozen=True, kw_only=True):
    """The annotation of a run about the schedule that started it."""

    name: str
    scheduled_time: datetime
    request: str = ""
    """ID of the request that started the run; empty for a scheduled time."""
    last_completion_result: Any = None
    last_failure: dict[str, Any] | None = None

    def scope(self) -> dict[str, Any]:
        """The value of `schedule` in expressions."""
        return {
            "name": self.name,
            "scheduledTime": self.scheduled_time,
            "lastCompletionResult": self.last_completion_result,
            "lastFailure": self.last_failure,
        }


class ScheduleTimes(StoredStruct, frozen=True, kw_only=True):
    """The annotation of a run about the zone of its schedule, and the times around its own.

    The run keeps it, because the rules of a zone and the spec of the schedule may change. A rerun copies it.
    """

    time_zone: str = ""
    """The IANA name of the zone; empty for a zone without a name."""
    utc_offset: int = 0
    """How far clocks in the zone are ahead of UTC at the scheduled time, in seconds."""
    previous_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """The time of the schedule before the scheduled time; None if there is none."""
    next_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """The time of the schedule after the scheduled time; None if there is none."""

    @classmethod
    def around(cls, nominal: datetime, times: Times) -> "ScheduleTimes":
        """Find the times around a scheduled time. Those that cannot be computed are left out."""
        before = after = None
        with suppress(InvalidTimesError):
            before = times.previous(nominal)
        with suppress(InvalidTimesError):
            after = next(times.nominal(nominal), None)
        offset = times.zone.offset((nominal - EARLIEST) // timedelta(seconds=1))
        return cls(time_zone=times.zone.name, utc_offset=offset, previous_time=before, next_time=after)

    def scope(self, scheduled: datetime) -> dict[str, Any]:
        """The values of `schedule` in expressions about a scheduled time."""
        local = scheduled.astimezone(timezone(timedelta(seconds=self.utc_offset)))
        around = {"previousTime": self.previous_time, "nextTime": self.next_time}
        return {
            "timeZone": self.time_zone,
            "utcOffset": local.strftime("%z")[:3] + ":" + local.strftime("%z")[3:5],
            "localTime": local.isoformat(),
            "localDate": local.date().isoformat(),
            **{name: time for name, time in around.items() if time is not None},
        }


def scheduled_by(run: KubeObject) -> ScheduledBy | None:
    """Read the annotation of a run about its schedule; None if there is none, or if it is not ours."""
    return read_annotation(run, labels.SCHEDULED_BY_ANNOTATION, ScheduledBy)


def schedule_scope(run: KubeObject) -> dict[str, Any]:
    """The value of `schedule` in expressions of a run; empty if the run is not due at a time of a Schedule.

    Users cannot write the annotation about the Schedule. So a run that repeats one, such as that of `perdure rerun`, has the name
    and the time from the search attributes, which are part of the spec that it repeats. It does not belong to the Schedule.
    """
    annotation = scheduled_by(run)
    if annotation is not None:
        return {**annotation.scope(), **_times_scope(run, annotation.scheduled_time)}
    attributes = mapping(mapping(run.get("spec")).get("searchAttributes"))
    time, schedule_id = read_kubernetes_time(attributes.get(START_TIME_ATTRIBUTE)), text(attributes.get(ID_ATTRIBUTE))
    if time is None or not schedule_id:
        return {}
    return {"name": schedule_name(schedule_id), "scheduledTime": time, **_times_scope(run, time)}


def _times_scope(run: KubeObject, scheduled: datetime) -> dict[str, Any]:
    times = read_annotation(run, labels.SCHEDULE_TIMES_ANNOTATION, ScheduleTimes)
    try:
        return {} if times is None else times.scope(scheduled)
    except (ValueError, OverflowError):  # a user can write the annotation
        return {}


def scheduled_run(
    schedule: KubeObject, run: ScheduledRun, state: ScheduleState, times: Times | None = None
) -> KubeObject:
    """Build the WorkflowRun that a schedule starts. Its name is a lock.

    Args:
        schedule: The Schedule.
        run: The run to start.
        state: The state that starts the run; its last result and failure are passed to the run.
        times: The times of the schedule; None if its spec is invalid by now.
    """
    meta, template = schedule["metadata"], schedule["spec"]["workflowRunTemplate"]
    nominal = run.start.nominal.astimezone(UTC)
    annotation = ScheduledBy(
        name=meta["name"],
        scheduled_time=nominal,
        request=run.start.request,
        last_completion_result=state.result,
        last_failure=state.failure,
    )
    spec = dict(template["spec"])
    attributes = {START_TIME_ATTRIBUTE: format_time(nominal), ID_ATTRIBUTE: id_of(schedule)}
    spec["searchAttributes"] = {**(spec.get("searchAttributes") or {}), **attributes}
    workflow_id = workflow_id_of(run.name, meta["name"], spec.get("workflowId"))
    if workflow_id != run.name:
        spec["workflowId"] = workflow_id
    if run.attempt > 1 or run.start.request:
        # A run with the same ID may exist already; a request or a retry may start another one.
        spec["workflowIdReusePolicy"] = "AllowDuplicate"
    template_meta = template.get("metadata") or {}
    # Only the operator sets the labels and annotations that link runs: the author of a Schedule must not set them through it.
    foreign = {field: _without_ours(template_meta.get(field) or {}) for field in ("labels", "annotations")}
    start = _start_of(schedule)
    if times is not None:
        around = ScheduleTimes.around(nominal, times)
        start[labels.SCHEDULE_TIMES_ANNOTATION] = msgspec.json.encode(around).decode()
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {
            "name": run.name,
            "namespace": meta["namespace"],
            "labels": {**foreign["labels"], labels.SCHEDULE_LABEL: label_value(meta["name"])},
            "annotations": {
                **foreign["annotations"],
                **start,
                labels.SCHEDULED_BY_ANNOTATION: _fit_annotation(annotation, {**foreign["annotations"], **start}),
            },
            "ownerReferences": [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": "Schedule",
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": spec,
    }


def id_of(schedule: KubeObject) -> str:
    """The schedule's ID for Temporal's clients: its name, unless they gave it an ID that is not valid as a name."""
    meta = schedule["metadata"]
    return str((meta.get("annotations") or {}).get(labels.SCHEDULE_ID_ANNOTATION) or meta["name"])


def workflow_id_of(run: str, schedule: str, base: str | None) -> str:
    """The workflow ID of a run that a schedule started.

    Args:
        run: Name of the WorkflowRun.
        schedule: Name of the Schedule.
        base: The `workflowId` of the template, to which the nominal time is appended. Without it, the ID is the run's name.
    """
    parts = _NAMED.fullmatch(run.removeprefix(f"{schedule}-"))
    if parts is None:
        return run
    manual = parts["manual"] or ""
    if not base:
        return f"{schedule}-{parts['time']}{manual}{parts['instead'] or ''}"
    time = datetime.strptime(parts["time"], NAME_FORM).replace(tzinfo=UTC)
    return f"{base}-{format_time(time)}{manual}"


def _start_of(schedule: KubeObject) -> dict[str, str]:
    """The annotation with the start options that the Temporal client set when it created the schedule."""
    if "type" not in (schedule["spec"]["workflowRunTemplate"]["spec"].get("workflow") or {}):
        return {}
    options = read_annotation(schedule, labels.START_ANNOTATION, StartExtras) or StartExtras()
    extras = StartExtras(
        identity=f"temporal-scheduler-{schedule['metadata']['namespace']}-{id_of(schedule)}",
        header=options.header,
        memo=options.memo,
        user_metadata=options.user_metadata,
        priority=options.priority,
    )
    return {labels.START_ANNOTATION: msgspec.json.encode(extras).decode()} if extras != StartExtras() else {}


def omitted_data(obj: KubeObject, state: ScheduleState) -> str:
    """Name the data that a run does not get because it is too large; empty if nothing was left out."""
    annotation = scheduled_by(obj)
    assert annotation is not None
    left_out = [
        *(
            ["the last completion result"]
            if state.result is not None and annotation.last_completion_result is None
            else []
        ),
        *(["the last failure"] if state.failure is not None and annotation.last_failure is None else []),
    ]
    return " and ".join(left_out)


def is_of(obj: KubeObject, schedule: KubeObject, run: ScheduledRun) -> bool:
    """Whether a WorkflowRun is the run that the schedule is about to create: it may exist already after a crash."""
    annotation = scheduled_by(obj)
    return (
        annotation is not None
        and (annotation.scheduled_time, annotation.request) == (run.start.nominal, run.start.request)
        and annotation.name == schedule["metadata"]["name"]
        and owner_of(obj) == schedule["metadata"]["uid"]
    )


def owner_of(run: KubeObject) -> str:
    """UID of the Schedule of the same namespace that owns a run; empty if there is none.

    An owner reference alone is not enough: the operator's annotation must name the same Schedule.
    """
    for owner in run["metadata"].get("ownerReferences") or ():
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        if (group, owner.get("kind")) == (labels.GROUP, "Schedule") and owner.get("controller"):
            annotation = scheduled_by(run)
            return str(owner["uid"]) if annotation is not None and annotation.name == owner.get("name") else ""
    return ""


def _fit_annotation(annotation: ScheduledBy, others: dict[str, str]) -> str:
    """Encode the annotation. Leave out the result, the failure, or both if it does not fit next to the other annotations."""
    free = MAX_ANNOTATIONS - sum(len(name.encode()) + len(value.encode()) for name, value in others.items())
    for smaller in (
        annotation,
        msgspec.structs.replace(annotation, last_completion_result=None),
        msgspec.structs.replace(annotation, last_failure=None),
    ):
        encoded = msgspec.json.encode(smaller)
        if len(encoded) <= free:
            return encoded.decode()
    return msgspec.json.encode(
        msgspec.structs.replace(annotation, last_completion_result=None, last_failure=None)
    ).decode()


def _without_ours(marks: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in marks.items() if not name.startswith(labels.RESERVED_PREFIXES)}
