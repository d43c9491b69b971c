"""The state of steps in a history: the newest event of each activity, timer, child, Nexus operation, and signal."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from perdure.api.json_values import Json, integer, mapping
from perdure.api.policies import ParentClosePolicy
from perdure.api.stored import convert
from perdure.api.times import read_kubernetes_time
from perdure.engine.state import PODS_QUEUE, TAKE_LIMITS
from perdure.runtime.chains import ResetOrigin
from perdure.view.text import duration

_RESET = "ResetWorkflow"
_IDS = ("activityId", "childId", "signalId", "timerId")
_START_IDS = ("scheduledEventId", "initiatedEventId", "startedEventId")
_ENDED = {
    "ActivityTaskCompleted": "Succeeded",
    "ActivityTaskFailed": "Failed",
    "ActivityTaskTimedOut": "Failed",
    "ActivityTaskCanceled": "Cancelled",
    "TimerFired": "Succeeded",
    "TimerCanceled": "Cancelled",
    "StartChildWorkflowExecutionFailed": "Failed",
    "ChildWorkflowExecutionCompleted": "Succeeded",
    "ChildWorkflowExecutionFailed": "Failed",
    "ChildWorkflowExecutionTimedOut": "Failed",
    "ChildWorkflowExecutionTerminated": "Failed",
    "ChildWorkflowExecutionCanceled": "Cancelled",
    "ExternalWorkflowExecutionSignaled": "Succeeded",
    "SignalExternalWorkflowExecutionFailed": "Failed",
    "NexusOperationCompleted": "Succeeded",
    "NexusOperationFailed": "Failed",
    "NexusOperationTimedOut": "Failed",
    "NexusOperationCanceled": "Cancelled",
}
_KEPT = {"ActivityTaskCompleted", "ChildWorkflowExecutionCompleted"}
"""The events with results that a retry can keep."""


@dataclass(slots=True)
class HistoryEntry:
    """The state of one activity, timer, child, operation, or signal in the history."""

    kind: str
    path: str = ""
    """ID of the entry: the path of its step, unless code chose it; for a Nexus operation, the service and the operation."""
    event_id: int | None = None
    """ID of the event that started it."""
    target: str = ""
    task_queue: str = ""
    """The task queue of its workers; empty if it runs in a pod."""
    worker: str = ""
    """The worker that executed it, if any."""
    workflow_id: str = ""
    """Workflow ID of the child, or of the signaled run."""
    abandoned: bool = False
    """Whether the activity or child continues after the run ends."""
    has_started: bool = False
    """Whether a child or a Nexus operation has started."""
    maximum_attempts: int = 0
    attempt: int | None = None
    losses: int = 0
    start: datetime | None = None
    last_start: datetime | None = None
    end: datetime | None = None
    closed_by: str = ""
    """The event that ended it."""
    closing_id: int = 0
    """ID of that event; 0 if it has not ended."""
    ended: str | None = None
    failure: Json | None = None
    retry_state: str | None = None
    last_failure: Json | None = None
    cached: str = ""
    """The CachedResult that had the result of an activity; empty if its last attempt ran."""
    earlier_run: str = ""
    """Name of the earlier run in which it ran, if a reset or a retry has kept its result."""


@dataclass(slots=True)
class HistoryView:
    """The state according to the available events."""

    tasks: dict[str, HistoryEntry] = field(default_factory=dict)
    """Activities, children and signals, by the path of their step."""
    timers: dict[str, HistoryEntry] = field(default_factory=dict)
    """Timers by timer ID."""
    entries: dict[Any, HistoryEntry] = field(default_factory=dict)
    """All entries in order, by the ID of their first event."""
    first: Json = field(default_factory=dict)
    """The first event; empty if it is missing."""
    last: Json = field(default_factory=dict)
    cancel: Json = field(default_factory=dict)
    """The request to cancel the run."""
    resets: dict[datetime, str] = field(default_factory=dict)
    """The resets and retries that the run goes back to, by time in order, with the IDs of the runs that they repeated."""
    task_failed: Json = field(default_factory=dict)
    """The last failure of a workflow task that no worker has completed since; empty if there is none."""

    @property
    def reset_time(self) -> datetime | None:
        """When the run itself began, after the events of earlier ones; None if there are none."""
        return max(self.resets, default=None)


def read_history(events: Iterable[Json], reset: ResetOrigin | None = None) -> HistoryView:
    """Read the state of steps from events.

    Args:
        events: The events, in order.
        reset: The earlier runs that recorded the first events; None if there are none.

    Returns:
        The state.
    """
    shown = HistoryView()
    entries = shown.entries
    for event in events:
        shown.last = event
        kind, number = str(event.get("eventType")), event.get("eventId")
        if number == 1:
            shown.first = event
        if kind == "WorkflowExecutionCancelRequested":
            shown.cancel = event
        if kind == "WorkflowTaskFailed" and event.get("cause") == _RESET:
            time = read_kubernetes_time(event.get("eventTime"))
            shown.resets |= {time: str(event.get("baseRunId"))} if time is not None else {}
        shown.task_failed = _task_failed(shown.task_failed, kind, event)
        new = _new_entry(kind, event)
        path = next((str(event[key]) for key in _IDS if event.get(key)), "")
        if new is not None:
            new.path, new.event_id = path or new.path, integer(number)
            (shown.timers if new.kind == "timer" else shown.tasks)[new.path] = entries[number] = new
            continue
        known = next((entries[event[key]] for key in _START_IDS if event.get(key) in entries), None)
        if known is not None:
            _update(known, kind, event)
    if reset is not None and shown.reset_time is not None:
        for entry in entries.values():
            _assign_earlier_run(entry, reset, shown.resets, shown.reset_time)
    return shown


def _assign_earlier_run(
    entry: HistoryEntry, reset: ResetOrigin, resets: Mapping[datetime, str], last: datetime
) -> None:
    """Note the earlier run in which an entry ended; otherwise, count its time from the reset."""
    recorder = reset.recorder(entry.closing_id) if entry.closing_id else None
    base = _base_of_kept(entry, resets)
    if kept := next((each for each in reset.lineage if each.run_id == base), None):
        entry.earlier_run = kept.name
        entry.start = entry.end = entry.attempt = None
    elif recorder is not None:
        entry.earlier_run = recorder.name
    elif entry.start is not None:
        entry.start = max(entry.start, last)


def _base_of_kept(entry: HistoryEntry, resets: Mapping[datetime, str]) -> str | None:
    """Return the ID of the run whose result an entry has, if a retry has kept it.

    A retry completes what it keeps in the step that schedules it, or in its first step if it was open before. An attempt
    takes longer: its pod is created after the step that schedules it.
    """
    if entry.closed_by not in _KEPT or entry.cached:
        return None
    begun = max((time for time in resets if entry.end is not None and time <= entry.end), default=None)
    if begun is None or entry.start is None or entry.end != max(entry.start, begun):
        return None
    return resets[begun]


def _task_failed(before: Json, kind: str, event: Json) -> Json:
    """Return the failure of the workflow task after an event. A lost sticky worker is not a failure."""
    match kind:
        case "WorkflowTaskFailed" if event.get("cause") != _RESET:
            return event
        case "WorkflowTaskTimedOut" if event.get("timeoutType") == "StartToClose":
            return event
        case "WorkflowTaskFailed" | "WorkflowTaskCompleted":
            return {}
        case _:
            return before


def by_worker(task_queue: Any) -> str:
    """Return the task queue of an activity, if workers execute it.

    Args:
        task_queue: The task queue in its events.

    Returns:
        The task queue; empty if it runs in a pod.
    """
    return "" if str(task_queue or "").startswith(PODS_QUEUE) else str(task_queue or "")


def _new_entry(kind: str, event: Json) -> HistoryEntry | None:
    start = read_kubernetes_time(event.get("eventTime"))
    match kind:
        case "ActivityTaskScheduled":
            return HistoryEntry(
                "limits" if event.get("activityType") == TAKE_LIMITS else "activity",
                target=str(event.get("activityType") or ""),
                task_queue=by_worker(event.get("taskQueue")),
                maximum_attempts=integer(mapping(event.get("retryPolicy")).get("maximumAttempts")) or 0,
                start=start,
            )
        case "TimerStarted":
            length = convert(event.get("startToFireTimeout"), timedelta)
            return HistoryEntry("timer", target="" if length is None else duration(length), start=start)
        case "StartChildWorkflowExecutionInitiated":
            child = mapping(event.get("start"))
            return HistoryEntry(
                "childWorkflow",
                target=str(child.get("workflowType") or ""),
                workflow_id=str(child.get("workflowId") or ""),
                abandoned=event.get("parentClosePolicy") == ParentClosePolicy.ABANDON,
                start=start,
            )
        case "SignalExternalWorkflowExecutionInitiated":
            return HistoryEntry(
                "signal",
                target=str(event.get("signalName") or ""),
                workflow_id=str(event.get("workflowId") or ""),
                start=start,
            )
        case "NexusOperationScheduled":
            return HistoryEntry(
                "nexus",
                path=f"{event.get('service')}.{event.get('operation')}",
                target=str(event.get("endpoint") or ""),
                start=start,
            )
        case _:
            return None


def _update(known: HistoryEntry, kind: str, event: Json) -> None:
    time = read_kubernetes_time(event.get("eventTime"))
    if kind == "ActivityTaskStarted":
        known.attempt = integer(event.get("attempt"))
        known.last_start = time
        known.worker = str(event.get("identity") or "")
        known.last_failure = mapping(event.get("lastFailure")) or None
    elif kind == "ChildWorkflowExecutionStarted":
        known.has_started = True
    elif kind == "NexusOperationStarted":
        known.has_started = known.abandoned = True
    elif kind in _ENDED:
        known.end, known.closed_by, known.ended = time, kind, _ENDED[kind]
        known.closing_id = integer(event.get("eventId")) or 0
        known.attempt = integer(event.get("attempt")) or known.attempt
        known.losses = integer(event.get("losses")) or 0
        known.cached = str(event.get("cached") or "")
        known.failure = mapping(event.get("failure")) or None
        if kind == "ChildWorkflowExecutionTerminated":
            known.failure = {"kind": "Terminated", "message": str(event.get("reason") or "")}
        known.retry_state = event.get("retryState")
        if known.retry_state == "CancelRequested":  # its outcome does not matter
            known.ended = "Cancelled"
