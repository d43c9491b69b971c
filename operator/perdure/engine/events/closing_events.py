"""Events that close a run. The history of each closed run ends with exactly one of them."""

from datetime import timedelta
from typing import Any, TypeAlias

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal


class WorkflowExecutionCompleted(CommandEvent, frozen=True, kw_only=True):
    """The run completed. A closing event: nothing follows it."""

    result: Any = None
    new_workflow_run: str = ""
    """Name of the next WorkflowRun of the cron schedule; empty if there is none."""
    new_run_backoff: timedelta | None = None


class WorkflowExecutionFailed(CommandEvent, frozen=True, kw_only=True):
    """The run failed. A closing event: nothing follows it."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET
    new_workflow_run: str = ""
    """Name of the WorkflowRun that retries it, or that the cron schedule starts next; empty if there is none."""
    new_run_backoff: timedelta | None = None
    """How long that run waits before its first decision."""


class WorkflowExecutionCanceled(CommandEvent, frozen=True, kw_only=True):
    """The run was canceled on request. A closing event: nothing follows it."""

    details: Any = None
    failure: Failure | None = None
    """Failures during the cancellation, of handlers and compensations."""


class WorkflowExecutionContinuedAsNew(CommandEvent, frozen=True, kw_only=True):
    """The run continues as another run of the same workflow ID. A closing event: nothing follows it."""

    input: Any = None
    signals: tuple[CarriedSignal, ...] = ()
    """Signals that were received and not consumed, in order: the next run starts with them."""
    new_workflow_run: str
    """Name of the WorkflowRun that continues it."""
    new_run_backoff: timedelta | None = None
    """How long that run waits before its first decision."""
    workflow_type: str = ""
    """This and the fields below change the next run; empty or None: the same as this run."""
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
    """The run was terminated. A closing event: nothing follows it."""

    reason: str
    details: Any = None
    identity: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that a reset of this one created; empty if it was not reset."""
    reset_event_id: int = 0
    """The point of the reset: children and requests to other runs up to it belong to the new run."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


class WorkflowExecutionTimedOut(Event, frozen=True, kw_only=True):
    """The run or execution timeout has passed. A closing event: nothing follows it."""

    failure: Failure | None = None
    """The timeout of the activity or the Nexus operation, if the run is standalone."""

    retry_state: RetryState = RetryState.TIMEOUT
    new_workflow_run: str = ""
    """Name of the WorkflowRun that retries it, or that the cron schedule starts next; empty if there is none."""
    new_run_backoff: timedelta | None = None
    """How long that run waits before its first decision."""


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
"""The events that close a run. Each history of a closed run ends with exactly one."""


def failure_of(event: Event) -> Failure | None:
    """Why a run closed with this event; None if it completed, or if the event does not close a run."""
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
