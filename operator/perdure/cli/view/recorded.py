"""What the events of a history say of steps: of each activity, timer, child and signal the newest one."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from perdure.api.lenient import Json, convert, integer, mapping
from perdure.cli.view.text import duration, read_time

_IDS = ("activityId", "childId", "signalId", "timerId")
_BEGUN = ("scheduledEventId", "initiatedEventId", "startedEventId")
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
}


@dataclass(slots=True)
class Recorded:
    """What the history says of one thing that was begun."""

    kind: str
    target: str = ""
    scheduled_event_id: int | None = None
    maximum_attempts: int = 0
    attempt: int | None = None
    losses: int = 0
    start: datetime | None = None
    last_start: datetime | None = None
    end: datetime | None = None
    ended: str | None = None
    failure: Json | None = None
    retry_state: str | None = None
    last_failure: Json | None = None


@dataclass(slots=True)
class History:
    """What the events tell, as far as they are there."""

    tasks: dict[str, Recorded] = field(default_factory=dict)
    """Activities, children and signals, by the path of their step."""
    timers: dict[str, Recorded] = field(default_factory=dict)
    """By timer id."""
    first: Json = field(default_factory=dict)
    """The first event; empty where it is not there."""
    last: Json = field(default_factory=dict)
    cancel: Json = field(default_factory=dict)
    """The request to cancel the run."""


def read_history(events: Iterable[Json]) -> History:
    """Read what events tell.

    Args:
        events: The events, in order.

    Returns:
        What they tell.
    """
    told = History()
    begun: dict[Any, Recorded] = {}
    for event in events:
        told.last = event
        kind, number = str(event.get("eventType")), event.get("eventId")
        if number == 1:
            told.first = event
        if kind == "WorkflowExecutionCancelRequested":
            told.cancel = event
        new = _begun(kind, event)
        path = next((str(event[key]) for key in _IDS if event.get(key)), "")
        if new is not None:
            (told.timers if new.kind == "timer" else told.tasks)[path] = begun[number] = new
            continue
        known = next((begun[event[key]] for key in _BEGUN if event.get(key) in begun), None)
        if known is not None:
            _follow(known, kind, event)
    return told


def _begun(kind: str, event: Json) -> Recorded | None:
    start = read_time(event.get("eventTime"))
    match kind:
        case "ActivityTaskScheduled":
            return Recorded(
                "activity",
                target=str(event.get("activityType") or ""),
                scheduled_event_id=integer(event.get("eventId")),
                maximum_attempts=integer(mapping(event.get("retryPolicy")).get("maximumAttempts")) or 0,
                start=start,
            )
        case "TimerStarted":
            length = convert(event.get("startToFireTimeout"), timedelta)
            return Recorded("timer", target="" if length is None else duration(length), start=start)
        case "StartChildWorkflowExecutionInitiated":
            asked = mapping(event.get("start"))
            return Recorded("childWorkflow", target=str(asked.get("workflowType") or ""), start=start)
        case "SignalExternalWorkflowExecutionInitiated":
            return Recorded("signal", target=str(event.get("signalName") or ""), start=start)
        case _:
            return None


def _follow(known: Recorded, kind: str, event: Json) -> None:
    time = read_time(event.get("eventTime"))
    if kind == "ActivityTaskStarted":
        known.attempt = integer(event.get("attempt"))
        known.last_start = time
        known.last_failure = mapping(event.get("lastFailure")) or None
    elif kind in _ENDED:
        known.end, known.ended = time, _ENDED[kind]
        known.attempt = integer(event.get("attempt")) or known.attempt
        known.losses = integer(event.get("losses")) or 0
        known.failure = mapping(event.get("failure")) or None
        if kind == "ChildWorkflowExecutionTerminated":
            known.failure = {"kind": "Terminated", "message": str(event.get("reason") or "")}
        known.retry_state = event.get("retryState")
        if known.retry_state == "CancelRequested":  # how it has stopped is its own affair
            known.ended = "Cancelled"
