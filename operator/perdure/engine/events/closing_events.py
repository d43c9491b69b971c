"""Events that close a run: exactly one ends every history."""

from datetime import timedelta
from typing import Any, TypeAlias

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal


class WorkflowExecutionCompleted(CommandEvent, frozen=True, kw_only=True):
    """The run has ended well. A closing event: nothing follows it."""

    result: Any = None
    new_workflow_run: str = ""
    """Name of the WorkflowRun that follows by the cron schedule; empty where there is none."""
    new_run_backoff: timedelta | None = None


class WorkflowExecutionFailed(CommandEvent, frozen=True, kw_only=True):
    """The run has failed. A closing event: nothing follows it."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET
    new_workflow_run: str = ""
    """Name of the WorkflowRun that retries it, or follows by the cron schedule; empty where none does."""
    new_run_backoff: timedelta | None = None
    """How long that one waits before its first decision."""


class WorkflowExecutionCanceled(CommandEvent, frozen=True, kw_only=True):
    """The run was asked to cancel itself, and has. A closing event: nothing follows it."""

    details: Any = None
    failure: Failure | None = None
    """What went wrong while it cancelled itself: handlers and compensations that failed."""


class WorkflowExecutionContinuedAsNew(CommandEvent, frozen=True, kw_only=True):
    """The run goes on as another run of the same workflow id. A closing event: nothing follows it."""

    input: Any = None
    signals: tuple[CarriedSignal, ...] = ()
    """Signals that were received and not consumed, in order: the next run begins with them."""
    new_workflow_run: str
    """Name of the WorkflowRun that continues it."""
    new_run_backoff: timedelta | None = None
    """How long that one waits before its first decision."""
    workflow_type: str = ""
    """From here on: what is to be another in the next run; empty or None: as it is."""
    task_queue: str = ""
    workflow_run_timeout: timedelta | None = None
    workflow_task_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None
    header: Any = None
    memo: Any = None
    search_attributes: Any = None
    initiator: str = ""
    failure: Failure | None = None
    last_completion_result: Any = None
    cron_schedule: str = ""
    initial_versioning_behavior: str = ""
    """AutoUpgrade: the next run does not inherit the version that this one is pinned to."""


class WorkflowExecutionTerminated(Event, frozen=True, kw_only=True):
    """The run was stopped from outside, unasked. A closing event: nothing follows it."""

    reason: str
    details: Any = None
    identity: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that goes on from a point in its past; empty where none does."""
    reset_event_id: int = 0
    """That point: children and requests to other runs from up to there are no longer this run's affair, but that one's."""


class WorkflowExecutionTimedOut(Event, frozen=True, kw_only=True):
    """The run or execution timeout has passed. A closing event: nothing follows it."""

    failure: Failure | None = None
    """The timeout of the activity, where the run is a standalone activity and a timeout of that has passed."""

    retry_state: RetryState = RetryState.TIMEOUT
    new_workflow_run: str = ""
    """Name of the WorkflowRun that retries it, or follows by the cron schedule; empty where none does."""
    new_run_backoff: timedelta | None = None
    """How long that one waits before its first decision."""


ClosingEvent: TypeAlias = (
    WorkflowExecutionCanceled
    | WorkflowExecutionCompleted
    | WorkflowExecutionContinuedAsNew
    | WorkflowExecutionFailed
    | WorkflowExecutionTerminated
    | WorkflowExecutionTimedOut
)

CLOSING: tuple[type[Event], ...] = (
    WorkflowExecutionCanceled,
    WorkflowExecutionCompleted,
    WorkflowExecutionContinuedAsNew,
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
        case WorkflowExecutionCanceled():
            return event.failure
        case WorkflowExecutionTerminated():
            return Failure(kind=FailureKind.TERMINATED, message=event.reason)
        case WorkflowExecutionTimedOut():
            return event.failure or Failure(
                kind=FailureKind.TIMEOUT, message="workflow timeout", timeout_type=TimeoutType.START_TO_CLOSE
            )
        case _:
            return None
