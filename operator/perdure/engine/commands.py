"""Commands and deciders: what a run does next, with Temporal's names, and the interface to those who decide it.

Each command becomes exactly one event. A command whose target no longer exists, such as the cancellation of a closed activity,
becomes none.

The YAML interpreter is a decider. That of standalone activities and Nexus operations is here: it schedules one, and closes the
run with its outcome.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from perdure.api.policies import ParentClosePolicy
from perdure.engine import events as ev
from perdure.engine.failures import Failure
from perdure.engine.retry import PolicyChoice, RetryPolicy
from perdure.engine.starts import Callback, CarriedSignal, WorkflowStart


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleActivityTask:
    """Schedule an activity. `activity_id` is unique among the run's open activities."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: PolicyChoice | None = None
    """None: Temporal's default; but if code schedules an activity in a pod, that of its definition."""
    task_queue: str = ""
    """The task queue of its workers; empty: it runs in a pod."""
    header: Any = None
    priority: Any = None
    start_delay: timedelta | None = None
    """How long the first attempt waits."""
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelActivityTask:
    """Cancel an activity: immediately if it has not started, otherwise when it stops."""

    activity_id: str = ""
    scheduled_event_id: int = 0
    """Identifies the activity in place of `activity_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Wake the decider after a while. `timer_id` is unique among the run's open timers."""

    timer_id: str
    start_to_fire_timeout: timedelta
    restarts: bool = False
    """Whether it starts again if the run is reset, as the timeouts of the run do."""
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Cancel a timer."""

    timer_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartChildWorkflowExecution:
    """Start a child of this run. `child_id` is unique among the run's open children.

    Without a workflow ID, the child gets the ID from `perdure.api.names.child_workflow_id`.
    """

    child_id: str
    start: WorkflowStart
    retry_policy: PolicyChoice | None = None
    """Replaces the value in `start` for the runs of the child."""
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalExternalWorkflowExecution:
    """Send a signal to another run. `signal_id` is the decider's own name for it."""

    signal_id: str
    workflow_id: str
    run_id: str = ""
    signal_name: str
    input: Any = None
    child_workflow_only: bool = False
    header: Any = None
    control: str = ""
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelExternalWorkflowExecution:
    """Request the cancellation of another run: by workflow ID, or, for an open child, by the decider's name for it."""

    child_id: str = ""
    workflow_id: str = ""
    run_id: str = ""
    child_workflow_only: bool = False
    reason: str = ""
    control: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleNexusOperation:
    """Schedule an operation on the workers of an endpoint."""

    endpoint: str
    endpoint_id: str
    handler_namespace: str
    service: str
    operation: str
    request_id: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    nexus_header: dict[str, str] = field(default_factory=dict)
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelNexusOperation:
    """Request the cancellation of an operation."""

    scheduled_event_id: int = 0
    """Identifies the operation; 0: the only operation of the run."""
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMarker:
    """Record a marker in the history."""

    marker_name: str
    details: Any = None
    header: Any = None
    failure: Failure | None = None
    user_metadata: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertWorkflowSearchAttributes:
    """Change search attributes of the run."""

    search_attributes: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModifyWorkflowProperties:
    """Change the run's memo."""

    upserted_memo: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptUpdate:
    """Accept an update."""

    update_id: str
    accepted_request_message_id: str = ""
    accepted_request_sequencing_event_id: int = 0
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""
    principal: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteUpdate:
    """Complete an accepted update."""

    update_id: str
    identity: str = ""
    result: Any = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteWorkflowExecution:
    """Complete the run."""

    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailWorkflowExecution:
    """Fail the run. Its retry policy, if it has one, may start another run."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelWorkflowExecution:
    """Close the run as canceled, after a request."""

    details: Any = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOutWorkflowExecution:
    """Close the run of a standalone activity or Nexus operation that has timed out."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueAsNewWorkflowExecution:
    """Close the run, and continue as a new run of the same workflow ID with its own history."""

    input: Any = None
    signals: tuple[CarriedSignal, ...] = ()
    """Signals that the decider has received but not consumed."""
    workflow_type: str = ""
    """This and the fields below change the next run; empty or None: the same as this run."""
    task_queue: str = ""
    workflow_run_timeout: timedelta | None = None
    workflow_task_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None
    new_run_backoff: timedelta | None = None
    header: Any = None
    memo: Any = None
    search_attributes: Any = None
    initiator: str = ""
    failure: Failure | None = None
    last_completion_result: Any = None
    cron_schedule: str = ""
    initial_versioning_behavior: str = ""
    """AutoUpgrade: the next run does not inherit the version that this one is pinned to."""


ClosingCommand: TypeAlias = (
    CompleteWorkflowExecution
    | FailWorkflowExecution
    | CancelWorkflowExecution
    | TimeOutWorkflowExecution
    | ContinueAsNewWorkflowExecution
)
Command: TypeAlias = (
    ScheduleActivityTask
    | RequestCancelActivityTask
    | StartTimer
    | CancelTimer
    | StartChildWorkflowExecution
    | SignalExternalWorkflowExecution
    | RequestCancelExternalWorkflowExecution
    | ScheduleNexusOperation
    | RequestCancelNexusOperation
    | RecordMarker
    | UpsertWorkflowSearchAttributes
    | ModifyWorkflowProperties
    | AcceptUpdate
    | CompleteUpdate
    | ClosingCommand
)


# Deciders


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision: commands in order, and the state of the decider for the next one."""

    commands: tuple[Command, ...]
    memory: Any
    work: int = 0
    """Cost of the decision in units of about 0.1 us. It limits the number of decisions per step."""
    more: bool = False
    """Whether the decider has stopped so that others get their turn, and must be called again to continue."""


class UndecidableError(Exception):
    """The decider cannot decide, for a reason that is not a failure of the run.

    The run stays open, and the decision is retried with backoff until someone has fixed the cause.
    """

    def __init__(self, message: str, reason: str = "", *, cause: str = "Unspecified") -> None:
        """Create the error.

        Args:
            message: Why the decider cannot decide.
            reason: The reason for the run's condition, one CamelCase word; empty for the default.
            cause: The cause for workers, a name of temporal.api.enums.v1.WorkflowTaskFailedCause in CamelCase.
        """
        super().__init__(message)
        self.reason = reason
        self.cause = cause


class Decider(Protocol):
    """Decides what a run does next. Deterministic: the same memory and event always give the same decision."""

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        """Decide what follows an event that records no command.

        Args:
            memory: The memory from the last decision, None at first; after a restart, plain JSON with the keys of objects in
                any order.
            event: The event to decide about; None to continue the last decision, which stopped with `more`.
            continue_as_new_suggested: Whether the history was long when the event was recorded.

        Raises:
            UndecidableError: The decider cannot decide now.
        """
        ...


@dataclass(frozen=True, slots=True)
class StandaloneDecider:
    """Decides for a standalone activity or Nexus operation."""

    work: ScheduleActivityTask | ScheduleNexusOperation
    """The activity, or the operation."""

    def decide(
        self,
        memory: Any,
        event: ev.AnyEvent | None,
        *,
        continue_as_new_suggested: bool = False,  # noqa: ARG002 (the protocol)
    ) -> Decision:
        """Schedule the work, pass on a cancellation to it, and close with its outcome. Ignore all other events."""
        command = self._command(event)
        return Decision((command,) if command is not None else (), memory)

    def _command(self, event: ev.AnyEvent | None) -> Command | None:
        match event:
            case ev.WorkflowExecutionStarted():
                return self.work
            case ev.WorkflowExecutionCancelRequested():
                if isinstance(self.work, ScheduleActivityTask):
                    return RequestCancelActivityTask(activity_id=self.work.activity_id)
                return RequestCancelNexusOperation()
            case ev.ActivityTaskCompleted() | ev.NexusOperationCompleted():
                return CompleteWorkflowExecution(result=event.result)
            case ev.ActivityTaskFailed() | ev.NexusOperationFailed():
                return FailWorkflowExecution(failure=event.failure)
            case ev.ActivityTaskTimedOut() | ev.NexusOperationTimedOut():
                return TimeOutWorkflowExecution(failure=event.failure)
            case ev.ActivityTaskCanceled():
                return CancelWorkflowExecution(details=event.details)
            case ev.NexusOperationCanceled():
                return CancelWorkflowExecution(failure=event.failure)
            case _:
                return None
