"""Events: what has happened to a run, under Temporal's names and attribute names.

A history is a gap-free, append-only list of these. Temporal's ``temporal.api.history.v1`` is the model; what differs:

* attributes stand beside ``eventId`` and ``eventTime`` instead of in a nested object, payloads are plain JSON values;
* the closing events of an activity also carry its ``activityId`` and `attempt`, so that a decider needs no table to know
  which step ended, and how often it was tried;
* a decider that runs in the operator's process (the YAML interpreter) decides within the commit, so its workflow tasks leave no
  WorkflowTask events.
"""

from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import RetryPolicy


class Event(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="eventType",
    tag=True,
):
    """What every event has."""

    event_id: int
    """Position in the history, from 1, without gaps."""
    event_time: datetime
    """When it was recorded (UTC); for ActivityTaskStarted, when the attempt started."""


class ActivityTaskCompleted(Event, frozen=True, kw_only=True):
    """An activity's last attempt succeeded."""

    scheduled_event_id: int
    started_event_id: int
    activity_id: str
    attempt: int
    result: Any = None


class ActivityTaskFailed(Event, frozen=True, kw_only=True):
    """An activity failed for good; `retry_state` says why it is not retried."""

    scheduled_event_id: int
    started_event_id: int
    activity_id: str
    attempt: int
    failure: Failure
    retry_state: RetryState


class ActivityTaskScheduled(Event, frozen=True, kw_only=True):
    """A decider asked for an activity. Timeouts and retry policy are final here: later edits of resources change nothing."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()


class ActivityTaskStarted(Event, frozen=True, kw_only=True):
    """An activity's last attempt had started. As in Temporal, written when the activity closes, and for no earlier attempt."""

    scheduled_event_id: int
    attempt: int
    last_failure: Failure | None = None


class ActivityTaskTimedOut(Event, frozen=True, kw_only=True):
    """An activity ran into a timeout for good."""

    scheduled_event_id: int
    started_event_id: int
    activity_id: str
    attempt: int
    failure: Failure
    retry_state: RetryState


class TimerFired(Event, frozen=True, kw_only=True):
    """A timer's time has come."""

    timer_id: str
    started_event_id: int


class TimerStarted(Event, frozen=True, kw_only=True):
    """A decider asked to be woken."""

    timer_id: str
    start_to_fire_timeout: timedelta


class WorkflowExecutionCompleted(Event, frozen=True, kw_only=True):
    """The run has ended well. A closing event: nothing follows it."""

    result: Any = None


class WorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The run has failed. A closing event: nothing follows it."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET


class WorkflowExecutionStarted(Event, frozen=True, kw_only=True):
    """The first event of every history."""

    workflow_type: str
    workflow_id: str
    input: Any = None
    task_queue: str | None = None
    workflow_execution_timeout: timedelta | None = None
    workflow_run_timeout: timedelta | None = None
    workflow_execution_expiration_time: datetime | None = None
    original_execution_run_id: str
    first_execution_run_id: str
    attempt: int = 1


class WorkflowExecutionTerminated(Event, frozen=True, kw_only=True):
    """The run was stopped from outside, unasked. A closing event: nothing follows it."""

    reason: str


class WorkflowExecutionTimedOut(Event, frozen=True, kw_only=True):
    """The run or execution timeout has passed. A closing event: nothing follows it."""

    retry_state: RetryState = RetryState.TIMEOUT


AnyEvent: TypeAlias = (
    ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskScheduled
    | ActivityTaskStarted
    | ActivityTaskTimedOut
    | TimerFired
    | TimerStarted
    | WorkflowExecutionCompleted
    | WorkflowExecutionFailed
    | WorkflowExecutionStarted
    | WorkflowExecutionTerminated
    | WorkflowExecutionTimedOut
)

CLOSING: tuple[type[Event], ...] = (
    WorkflowExecutionCompleted,
    WorkflowExecutionFailed,
    WorkflowExecutionTerminated,
    WorkflowExecutionTimedOut,
)
"""The events that end a history. Exactly one stands at the end of every closed run's."""


def failure_of(event: Event) -> Failure | None:
    """Why a run closed with this event; None if it completed, or if the event closes nothing."""
    match event:
        case WorkflowExecutionFailed():
            return event.failure
        case WorkflowExecutionTerminated():
            return Failure(kind=FailureKind.TERMINATED, message=event.reason)
        case WorkflowExecutionTimedOut():
            return Failure(
                kind=FailureKind.TIMEOUT, message="workflow timeout", timeout_type=TimeoutType.START_TO_CLOSE
            )
        case _:
            return None
