"""The timeline of a simulation for users, with one line per moment."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.api.times import LONGEST, format_duration
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import LIMITS_RELEASED, TAKE_LIMITS
from perdure.language.coercion import shown

Entry = tuple[str, str, str]
"""Step, its new status, and the text."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of the timeline."""

    time: datetime
    run: str
    """Name of the run."""
    path: str
    """Path of the step; empty for an entry about the run."""
    word: str
    """The new status of the step or run."""
    detail: str


def length(time: timedelta) -> str:
    """Format a length of time as in manifests."""
    return format_duration(min(max(time, timedelta(0)), LONGEST))


def why(failure: Failure) -> str:
    """Describe a failure in one line."""
    if failure.kind in {FailureKind.APPLICATION, FailureKind.CANCELLED}:
        return ": ".join(part for part in (failure.type or failure.kind.value, failure.message) if part)
    return failure.message or failure.kind.value


def _given(value: Any, before: str = "") -> str:
    return "" if value is None else f"{before}{shown(value)}"


def describe_event(event: ev.AnyEvent) -> Entry | None:
    """Return the entry of an event; None for events that the entries of attempts cover."""
    return _of_step(event) or _of_run(event)


def _of_step(event: ev.AnyEvent) -> Entry | None:  # noqa: C901, PLR0911, PLR0912 (one case for each event)
    match event:
        case ev.ActivityTaskScheduled() if event.activity_type == TAKE_LIMITS and not event.task_queue:
            return event.activity_id, "Waiting", f"for {_wanted(event.input)}"
        case ev.MarkerRecorded() if event.marker_name == LIMITS_RELEASED:
            return str(event.details), "Succeeded", "released"
        case ev.ActivityTaskCompleted():
            return event.activity_id, "Succeeded", f"{'cached ' if event.cached else ''}{_given(event.result)}".rstrip()
        case ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut():
            return event.activity_id, "Failed", f"{why(event.failure)} ({event.retry_state})"
        case ev.ActivityTaskCanceled():
            return event.activity_id, "Cancelled", ""
        case ev.ActivityTaskCancelRequested():
            return event.activity_id, "CancelRequested", ""
        case ev.TimerStarted() if not event.timer_id.endswith(":timeout"):
            return event.timer_id, "Waiting", f"for {length(event.start_to_fire_timeout)}"
        case ev.TimerFired():
            step, limit = event.timer_id.removesuffix(":timeout"), event.timer_id.endswith(":timeout")
            return step, "TimedOut" if limit else "Waiting", "" if limit else "the time has passed"
        case ev.StartChildWorkflowExecutionInitiated():
            return event.child_id, "Running", f"child {event.start.workflow_type}{_given(event.start.input, ' ')}"
        case ev.ChildWorkflowExecutionCompleted():
            return event.child_id, "Succeeded", _given(event.result)
        case ev.StartChildWorkflowExecutionFailed() | ev.ChildWorkflowExecutionFailed():
            return event.child_id, "Failed", why(event.failure)
        case ev.ChildWorkflowExecutionTimedOut():
            return event.child_id, "TimedOut", ""
        case ev.ChildWorkflowExecutionTerminated():
            return event.child_id, "Terminated", event.reason
        case ev.ChildWorkflowExecutionCanceled():
            return event.child_id, "Cancelled", ""
        case ev.ExternalWorkflowExecutionSignaled():
            return event.signal_id, "Succeeded", f"`{event.workflow_id}` received the signal"
        case ev.SignalExternalWorkflowExecutionFailed():
            return event.signal_id, "Failed", why(event.failure)
        case _:
            return None


def _wanted(limits: Any) -> str:
    """Return the names and keys of the limits that a step takes."""
    return ", ".join(f"`{each['name']}`" + (f" (key `{each['key']}`)" if each["key"] else "") for each in limits)


def _of_run(event: ev.AnyEvent) -> Entry | None:  # noqa: C901, PLR0911, PLR0912 (one case for each event)
    match event:
        case ev.WorkflowExecutionStarted():
            attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
            wait = event.first_workflow_task_backoff
            return "", "Running", f"starts{attempt}{f', in {length(wait)}' if wait else ''}{_given(event.input, ': ')}"
        case ev.WorkflowExecutionSignaled():
            return "", "Running", f"signal `{event.signal_name}`{_given(event.input, ': ')}"
        case ev.WorkflowExecutionCancelRequested():
            return "", "CancelRequested", event.cause
        case ev.WorkflowExecutionPaused():
            return "", "Paused", ""
        case ev.WorkflowExecutionUnpaused():
            return "", "Running", "continues"
        case ev.WorkflowExecutionCompleted():
            return "", "Completed", _given(event.result)
        case ev.WorkflowExecutionFailed():
            return "", "Failed", f"{why(event.failure)}{_again(event.new_run_backoff)}"
        case ev.WorkflowExecutionTimedOut():
            return "", "TimedOut", _again(event.new_run_backoff).removeprefix("; ")
        case ev.WorkflowExecutionCanceled():
            return "", "Cancelled", why(event.failure) if event.failure else ""
        case ev.WorkflowExecutionTerminated():
            return "", "Terminated", event.reason
        case ev.WorkflowExecutionContinuedAsNew():
            return "", "ContinuedAsNew", _given(event.input)
        case ev.MarkerRecorded():
            return "", "Running", f"{event.marker_name}{_given(event.details, ': ')}"
        case _:
            return None


def _again(wait: timedelta | None) -> str:
    return "" if wait is None else f"; again in {length(wait)}"
