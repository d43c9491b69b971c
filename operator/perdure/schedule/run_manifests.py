"""The WorkflowRuns of a schedule: built, and recognised."""

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.api import labels
from perdure.api.fields import format_time
from perdure.api.lenient import read_annotation
from perdure.api.names import label_value
from perdure.engine.starts import StartExtras
from perdure.schedule.state import NAME_FORM, Running, ScheduleState

KubeObject = dict[str, Any]

MOST_ANNOTATIONS = 240 * 1024
"""Bytes of all annotations of a run together: the API server takes 256 KiB (apimachinery: TotalAnnotationSizeLimitB); some is
left for search attributes."""

START_TIME_ATTRIBUTE = "TemporalScheduledStartTime"
ID_ATTRIBUTE = "TemporalScheduledById"
"""Search attributes of runs that a schedule has started, as Temporal names them."""


_NAMED = re.compile(r"(?P<time>\d{8}t\d{6}z)(?P<asked>-[tb][0-9a-f]{8})?(?P<instead>-x[0-9a-f]{4})?(?:-r\d+)?")
"""The suffix of the name of a run after the schedule's name."""


class ScheduledBy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a run knows of the schedule that has started it."""

    name: str
    scheduled_time: datetime
    request: str = ""
    """ID of the request for it, if there was one."""
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


def scheduled_by(run: KubeObject) -> ScheduledBy | None:
    """What a run knows of its schedule; None for one that has none, or whose annotation is not ours."""
    return read_annotation(run, labels.SCHEDULED_BY_ANNOTATION, ScheduledBy)


def scheduled_run(schedule: KubeObject, run: Running, state: ScheduleState) -> KubeObject:
    """The WorkflowRun that a schedule starts; its name is a lock.

    Args:
        schedule: The Schedule.
        run: The run to start.
        state: The state in which that was decided: the run is given the last result and failure of that moment.
    """
    meta, template = schedule["metadata"], schedule["spec"]["workflowRunTemplate"]
    nominal = run.start.nominal.astimezone(UTC)
    tie = ScheduledBy(
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
        # One of the same ID may have run before; a request for another, or its failure, is reason enough.
        spec["workflowIdReusePolicy"] = "AllowDuplicate"
    own = template.get("metadata") or {}
    # What ties runs together is the operator's: someone who writes a Schedule must not write it by way of the operator.
    foreign = {field: _without_ours(own.get(field) or {}) for field in ("labels", "annotations")}
    said = _start_of(schedule)
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {
            "name": run.name,
            "namespace": meta["namespace"],
            "labels": {**foreign["labels"], labels.SCHEDULE_LABEL: label_value(meta["name"])},
            "annotations": {
                **foreign["annotations"],
                **said,
                labels.SCHEDULED_BY_ANNOTATION: _fitting(tie, {**foreign["annotations"], **said}),
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
    """The workflow id of a run that a schedule has started.

    Args:
        run: Name of the WorkflowRun.
        schedule: Name of the Schedule.
        base: The `workflowId` of its template: the nominal time is added to it. Without, runs are called by their names.
    """
    said = _NAMED.fullmatch(run.removeprefix(f"{schedule}-"))
    if said is None:
        return run
    asked = said["asked"] or ""
    if not base:
        return f"{schedule}-{said['time']}{asked}{said['instead'] or ''}"
    time = datetime.strptime(said["time"], NAME_FORM).replace(tzinfo=UTC)
    return f"{base}-{format_time(time)}{asked}"


def _start_of(schedule: KubeObject) -> dict[str, str]:
    """What code gets in addition to the spec: what the Temporal client that created the schedule has set."""
    if "type" not in (schedule["spec"]["workflowRunTemplate"]["spec"].get("workflow") or {}):
        return {}
    said = read_annotation(schedule, labels.START_ANNOTATION, StartExtras) or StartExtras()
    told = StartExtras(
        identity=f"temporal-scheduler-{schedule['metadata']['namespace']}-{id_of(schedule)}",
        header=said.header,
        memo=said.memo,
        user_metadata=said.user_metadata,
        priority=said.priority,
    )
    return {labels.START_ANNOTATION: msgspec.json.encode(told).decode()} if told != StartExtras() else {}


def not_handed_on(obj: KubeObject, state: ScheduleState) -> str:
    """Report the values that a built run lacks because they are too large; empty if it has all."""
    tie = scheduled_by(obj)
    assert tie is not None
    left_out = [
        *(["the last completion result"] if state.result is not None and tie.last_completion_result is None else []),
        *(["the last failure"] if state.failure is not None and tie.last_failure is None else []),
    ]
    return " and ".join(left_out)


def is_of(obj: KubeObject, schedule: KubeObject, run: Running) -> bool:
    """Whether a WorkflowRun is the one that the schedule is about to make: a crash may have come in between."""
    tie = scheduled_by(obj)
    return (
        tie is not None
        and (tie.scheduled_time, tie.request) == (run.start.nominal, run.start.request)
        and tie.name == schedule["metadata"]["name"]
        and owner_of(obj) == schedule["metadata"]["uid"]
    )


def owner_of(run: KubeObject) -> str:
    """UID of the Schedule that a run of the same namespace belongs to; empty for none.

    An owner reference alone does not count: the annotation of the operator must name the same Schedule.
    """
    for owner in run["metadata"].get("ownerReferences") or ():
        group = str(owner.get("apiVersion", "")).partition("/")[0]
        if (group, owner.get("kind")) == (labels.GROUP, "Schedule") and owner.get("controller"):
            tie = scheduled_by(run)
            return str(owner["uid"]) if tie is not None and tie.name == owner.get("name") else ""
    return ""


def _fitting(tie: ScheduledBy, beside: dict[str, str]) -> str:
    """The annotation; the result is left out where it does not fit beside the other annotations, then the failure."""
    free = MOST_ANNOTATIONS - sum(len(name.encode()) + len(value.encode()) for name, value in beside.items())
    for smaller in (
        tie,
        msgspec.structs.replace(tie, last_completion_result=None),
        msgspec.structs.replace(tie, last_failure=None),
    ):
        text = msgspec.json.encode(smaller)
        if len(text) <= free:
            return text.decode()
    return msgspec.json.encode(msgspec.structs.replace(tie, last_completion_result=None, last_failure=None)).decode()


def _without_ours(marks: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in marks.items() if not name.startswith(labels.RESERVED_PREFIXES)}
