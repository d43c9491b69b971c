"""Events: what has happened to a run, under Temporal's names and attribute names.

A history is a gap-free, append-only list of these. Temporal's ``temporal.api.history.v1`` is the model; what differs:

* attributes stand beside ``eventId`` and ``eventTime`` instead of in a nested object, payloads are plain JSON values;
* the closing events of an activity also carry its ``activityId`` and `attempt`, so that a decider needs no table to know
  which step ended, and how often it was tried;
* a decider that runs in the operator's process (the YAML interpreter) decides within the commit, so its workflow tasks leave no
  WorkflowTask events. Where a Temporal SDK worker decides, they are all here, and the history is Temporal's own.
"""

from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import (
    Callback,
    CarriedSignal,
    ExternalReference,
    ParentClosePolicy,
    ParentReference,
    WorkflowStart,
)
from perdure.engine.versioning import DeploymentVersion, VersioningOverride


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
    user_metadata: Any = None
    """Summary and details that a program gave along, opaque; only where a Temporal SDK decides."""
    principal: str = ""
    """User that asked for what it records, as the API server has authenticated it; empty where none did, or it is not known."""


class CommandEvent(Event, frozen=True, kw_only=True):
    """What every event has that records a command."""

    workflow_task_completed_event_id: int = 0
    """The workflow task that asked for it; 0 where the decider runs in the operator's process."""


# Activities


class ActivityTaskScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider asked for an activity. Timeouts and retry policy are final here: later edits of resources change nothing."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    task_queue: str = ""
    """Where workers poll for it; empty: it is done by a pod."""
    header: Any = None
    priority: Any = None
    start_delay: timedelta | None = None
    """How long the first attempt waits; the timeouts count from its end."""


class ActivityTaskStarted(Event, frozen=True, kw_only=True):
    """An activity's last attempt had started. As in Temporal, written when the activity closes, and for no earlier attempt."""

    scheduled_event_id: int
    attempt: int
    last_failure: Failure | None = None
    identity: str = ""
    """Of the worker that does it."""


class ActivityTaskCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider asked an activity to stop."""

    scheduled_event_id: int
    activity_id: str


class _ActivityClosed(Event, frozen=True, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    """0 where the last attempt never started."""
    activity_id: str
    attempt: int
    identity: str = ""
    """Of the worker that reported it."""
    losses: int = 0
    """How many of the attempts were lost to the infrastructure: the retry policy has not counted them."""


class ActivityTaskCompleted(_ActivityClosed, frozen=True, kw_only=True):
    """An activity's last attempt succeeded."""

    result: Any = None


class ActivityTaskFailed(_ActivityClosed, frozen=True, kw_only=True):
    """An activity failed for good; `retry_state` says why it is not retried."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskTimedOut(_ActivityClosed, frozen=True, kw_only=True):
    """An activity ran into a timeout for good."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskCanceled(_ActivityClosed, frozen=True, kw_only=True):
    """An activity was asked to stop, and has stopped or had not started."""

    details: Any = None
    latest_cancel_requested_event_id: int = 0


# Timers


class TimerStarted(CommandEvent, frozen=True, kw_only=True):
    """A decider asked to be woken."""

    timer_id: str
    start_to_fire_timeout: timedelta


class TimerFired(Event, frozen=True, kw_only=True):
    """A timer's time has come."""

    timer_id: str
    started_event_id: int


class TimerCanceled(CommandEvent, frozen=True, kw_only=True):
    """A decider no longer wants to be woken."""

    timer_id: str
    started_event_id: int
    identity: str = ""
    """The worker that decided it."""


# Child workflows


class StartChildWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider asked for a child. The run that is to be made for it follows after the commit."""

    child_id: str
    """The decider's own name for it, unique among the run's open children: the step."""
    start: WorkflowStart
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE


class StartChildWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The child was not started; `failure` says why, its type is for example WorkflowExecutionAlreadyStarted."""

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    failure: Failure


class ChildWorkflowExecutionStarted(Event, frozen=True, kw_only=True):
    """The child has started."""

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    run_id: str
    header: Any = None


class _ChildClosed(Event, frozen=True, kw_only=True):
    initiated_event_id: int
    started_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    run_id: str
    """The run of the child's chain that closed last."""


class ChildWorkflowExecutionCompleted(_ChildClosed, frozen=True, kw_only=True):
    """The child has ended well."""

    result: Any = None


class ChildWorkflowExecutionFailed(_ChildClosed, frozen=True, kw_only=True):
    """The child has failed for good."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET


class ChildWorkflowExecutionCanceled(_ChildClosed, frozen=True, kw_only=True):
    """The child was cancelled."""

    details: Any = None


class ChildWorkflowExecutionTimedOut(_ChildClosed, frozen=True, kw_only=True):
    """The child ran into its timeout."""

    retry_state: RetryState = RetryState.TIMEOUT


class ChildWorkflowExecutionTerminated(_ChildClosed, frozen=True, kw_only=True):
    """The child was stopped from outside, or its resource was deleted."""

    reason: str = ""


# Other workflows


class SignalExternalWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider asked to signal another run."""

    signal_id: str
    """The decider's own name for it: the step."""
    workflow_id: str
    run_id: str = ""
    """Empty: whichever run of that workflow id is open."""
    signal_name: str
    input: Any = None
    child_workflow_only: bool = False
    header: Any = None
    control: str = ""


class ExternalWorkflowExecutionSignaled(Event, frozen=True, kw_only=True):
    """The other run has recorded the signal."""

    initiated_event_id: int
    signal_id: str
    workflow_id: str
    run_id: str = ""
    control: str = ""


class SignalExternalWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The signal could not be given: no such run is open."""

    initiated_event_id: int
    signal_id: str
    workflow_id: str
    run_id: str = ""
    control: str = ""
    failure: Failure


class RequestCancelExternalWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider asked to cancel another run, for the most part a child of its own."""

    workflow_id: str
    run_id: str = ""
    child_workflow_only: bool = False
    reason: str = ""
    control: str = ""


class ExternalWorkflowExecutionCancelRequested(Event, frozen=True, kw_only=True):
    """The other run has recorded the request."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    control: str = ""


class RequestCancelExternalWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The other run could not be asked: none is open."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    control: str = ""
    failure: Failure


# Nexus operations


class NexusOperationScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider asked for an operation, which workers of another namespace may handle."""

    endpoint: str
    endpoint_id: str
    handler_namespace: str
    """That the endpoint named then: only from there can the operation be completed."""
    service: str
    operation: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    nexus_header: dict[str, str] = {}
    request_id: str
    """The same for every attempt: a handler that is asked again finds what it has started. A secret of both namespaces."""


class NexusOperationStarted(Event, frozen=True, kw_only=True):
    """The handler has started the operation, and completes it later."""

    scheduled_event_id: int
    operation_token: str
    request_id: str
    handler_namespace: str
    links: Any = None


class NexusOperationCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider asked for the cancellation of an operation."""

    scheduled_event_id: int


class NexusOperationCancelRequestCompleted(Event, frozen=True, kw_only=True):
    """The handler has accepted the request to cancel; the operation ends later, or not at all by it."""

    scheduled_event_id: int
    requested_event_id: int


class NexusOperationCancelRequestFailed(Event, frozen=True, kw_only=True):
    """The handler has refused the request to cancel."""

    scheduled_event_id: int
    requested_event_id: int
    failure: Failure


class _OperationClosed(Event, frozen=True, kw_only=True):
    scheduled_event_id: int
    request_id: str


class NexusOperationCompleted(_OperationClosed, frozen=True, kw_only=True):
    """The operation succeeded."""

    result: Any = None
    links: Any = None


class NexusOperationFailed(_OperationClosed, frozen=True, kw_only=True):
    """The operation failed."""

    failure: Failure


class NexusOperationCanceled(_OperationClosed, frozen=True, kw_only=True):
    """The operation was cancelled."""

    failure: Failure


class NexusOperationTimedOut(_OperationClosed, frozen=True, kw_only=True):
    """The operation ran into one of its timeouts."""

    failure: Failure


# The run itself


class WorkflowExecutionStarted(Event, frozen=True, kw_only=True):
    """The first event of every history."""

    workflow_type: str
    workflow_id: str
    input: Any = None
    task_queue: str | None = None
    workflow_execution_timeout: timedelta | None = None
    workflow_run_timeout: timedelta | None = None
    workflow_task_timeout: timedelta | None = None
    workflow_execution_expiration_time: datetime | None = None
    first_workflow_task_backoff: timedelta | None = None
    """How long the first decision waits: a start delay, the wait before a retry, or for the next time of a cron schedule."""
    retry_policy: RetryPolicy | None = None
    """None: a failed run is not retried."""
    original_execution_run_id: str
    first_execution_run_id: str
    continued_execution_run_id: str | None = None
    """The run before in the chain: this one continues or retries it."""
    continued_failure: Failure | None = None
    """Why the run before failed, where this one is its retry, or follows it by a cron schedule."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first of the runs that retry each other has started, where this is not the first."""
    parent: ParentReference | None = None
    search_attributes: dict[str, Any] = {}
    successor: str = ""
    """Name that the WorkflowRun which continues or retries this one is to have."""
    identity: str = ""
    """Who started it."""
    header: Any = None
    memo: Any = None
    cron_schedule: str = ""
    initiator: str = ""
    """What made the run: Workflow (it continues another as new), Retry or CronSchedule; empty for other first runs."""
    last_completion_result: Any = None
    priority: Any = None
    root_workflow_id: str = ""
    root_run_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()
    links: Any = None
    standalone: bool = False
    """The run is a standalone activity: it schedules one activity, and closes as that closes."""
    versioning_override: VersioningOverride | None = None
    inherited_pinned_version: DeploymentVersion | None = None
    """The version of its parent, or of the run before, which was pinned to it."""


class WorkflowExecutionSignaled(Event, frozen=True, kw_only=True):
    """Somebody has told the run something."""

    signal_name: str
    input: Any = None
    identity: str = ""
    """Who: an Operation, or another run."""
    header: Any = None
    external: ExternalReference | None = None
    """The run that has sent it; None where no run has."""
    request_id: str = ""
    """The ID of the request if a client of Temporal's API chose it."""


class WorkflowExecutionCancelRequested(Event, frozen=True, kw_only=True):
    """Somebody has asked the run to cancel itself. The first time counts, there is no second event."""

    cause: str = ""
    identity: str = ""
    external: ExternalReference | None = None
    """The run that has asked for it; None where no run has."""
    stop: bool = False
    """Whether only `finally` is to run, and no other handler."""


class WorkflowExecutionPaused(Event, frozen=True, kw_only=True):
    """Nothing is decided, and no attempt is started, until the run is unpaused."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionUnpaused(Event, frozen=True, kw_only=True):
    """A pause has ended."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionOptionsUpdated(Event, frozen=True, kw_only=True):
    """A client has set or removed the versioning override, or another start has attached what the end of the run completes."""

    attached_request_id: str = ""
    versioning_override: VersioningOverride | None = None
    unset_versioning_override: bool = False
    attached_completion_callbacks: tuple[Callback, ...] = ()
    identity: str = ""
    links: Any = None


class MarkerRecorded(CommandEvent, frozen=True, kw_only=True):
    """A decider noted something for itself or for whoever reads the history."""

    marker_name: str
    details: Any = None
    header: Any = None
    failure: Failure | None = None


class UpsertWorkflowSearchAttributes(CommandEvent, frozen=True, kw_only=True):
    """A decider has changed what the run can be found by; null removes one."""

    search_attributes: dict[str, Any]


class WorkflowPropertiesModified(CommandEvent, frozen=True, kw_only=True):
    """A decider has changed the run's memo; null removes an entry."""

    upserted_memo: dict[str, Any]


# Updates: requests that the decider answers


class WorkflowExecutionUpdateAdmitted(Event, frozen=True, kw_only=True):
    """A run that was reset is given an update which the run before had accepted."""

    update_id: str
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""


class WorkflowExecutionUpdateAccepted(Event, frozen=True, kw_only=True):
    """A decider has taken on an update; from here on it is durable. Where it was admitted, that event has its request."""

    update_id: str
    accepted_request_message_id: str = ""
    accepted_request_sequencing_event_id: int = 0
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""


class WorkflowExecutionUpdateCompleted(Event, frozen=True, kw_only=True):
    """An update has come to its end: with a result, or with a failure."""

    update_id: str
    accepted_event_id: int
    identity: str = ""
    result: Any = None
    failure: Failure | None = None


# Workflow tasks: only where a Temporal SDK worker decides


class WorkflowTaskScheduled(Event, frozen=True, kw_only=True):
    """A worker is to decide what follows."""

    task_queue: str
    sticky: bool = False
    """Whether that is the queue of the one worker that has the workflow in its memory."""
    normal_name: str = ""
    """Of a sticky queue: the task queue that its worker polls for new workflows."""
    start_to_close_timeout: timedelta
    attempt: int = 1


class WorkflowTaskStarted(Event, frozen=True, kw_only=True):
    """A worker has taken the task. Written with what became of it: handing a task out needs no write."""

    scheduled_event_id: int
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_worker_deployment_version_changed: bool = False
    """The run is pinned, and new runs of its task queue start on another version."""


class WorkflowTaskCompleted(Event, frozen=True, kw_only=True):
    """A worker has decided; the events of its commands follow."""

    scheduled_event_id: int
    started_event_id: int
    identity: str = ""
    sdk_metadata: Any = None
    metering_metadata: Any = None
    worker_version: Any = None
    binary_checksum: str = ""
    """Which build of the worker has decided, where `worker_version` does not say so: code may ask, also when replayed."""
    worker_deployment_name: str = ""
    deployment_version: DeploymentVersion | None = None
    """Of a versioned worker."""
    versioning_behavior: str = ""
    """Pinned or AutoUpgrade; empty from an unversioned worker."""


class WorkflowTaskFailed(Event, frozen=True, kw_only=True):
    """A worker could not decide, or what it has decided cannot be done.

    Or, with the cause ``ResetWorkflow``: the run was reset. Up to here it has the history of another one, and what follows is
    decided anew, as Temporal's server tells it (service/history/ndc/workflow_resetter.go). Activities that are open are tried
    from the beginning, and timeouts of the run count from here.
    """

    scheduled_event_id: int = 0
    started_event_id: int = 0
    cause: str
    """In the words of temporal.api.enums.v1.WorkflowTaskFailedCause, CamelCase."""
    failure: Failure | None = None
    reason: str = ""
    identity: str = ""
    base_run_id: str = ""
    """From here on, of a reset: the run whose history it is."""
    new_run_id: str = ""
    workflow_execution_expiration_time: datetime | None = None
    workflow_run_expiration_time: datetime | None = None
    successor: str = ""
    """Name that the WorkflowRun which continues or retries this one is to have."""


class WorkflowTaskTimedOut(Event, frozen=True, kw_only=True):
    """A worker did not answer in time, or nobody took the task from a sticky queue."""

    scheduled_event_id: int
    started_event_id: int = 0
    timeout_type: TimeoutType


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


AnyEvent: TypeAlias = (
    ActivityTaskCancelRequested
    | ActivityTaskCanceled
    | ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskScheduled
    | ActivityTaskStarted
    | ActivityTaskTimedOut
    | ChildWorkflowExecutionCanceled
    | ChildWorkflowExecutionCompleted
    | ChildWorkflowExecutionFailed
    | ChildWorkflowExecutionStarted
    | ChildWorkflowExecutionTerminated
    | ChildWorkflowExecutionTimedOut
    | ExternalWorkflowExecutionCancelRequested
    | ExternalWorkflowExecutionSignaled
    | MarkerRecorded
    | NexusOperationCancelRequestCompleted
    | NexusOperationCancelRequestFailed
    | NexusOperationCancelRequested
    | NexusOperationCanceled
    | NexusOperationCompleted
    | NexusOperationFailed
    | NexusOperationScheduled
    | NexusOperationStarted
    | NexusOperationTimedOut
    | RequestCancelExternalWorkflowExecutionFailed
    | RequestCancelExternalWorkflowExecutionInitiated
    | SignalExternalWorkflowExecutionFailed
    | SignalExternalWorkflowExecutionInitiated
    | StartChildWorkflowExecutionFailed
    | StartChildWorkflowExecutionInitiated
    | TimerCanceled
    | TimerFired
    | TimerStarted
    | UpsertWorkflowSearchAttributes
    | WorkflowExecutionCancelRequested
    | WorkflowExecutionCanceled
    | WorkflowExecutionCompleted
    | WorkflowExecutionContinuedAsNew
    | WorkflowExecutionFailed
    | WorkflowExecutionOptionsUpdated
    | WorkflowExecutionPaused
    | WorkflowExecutionSignaled
    | WorkflowExecutionStarted
    | WorkflowExecutionTerminated
    | WorkflowExecutionTimedOut
    | WorkflowExecutionUnpaused
    | WorkflowExecutionUpdateAccepted
    | WorkflowExecutionUpdateAdmitted
    | WorkflowExecutionUpdateCompleted
    | WorkflowPropertiesModified
    | WorkflowTaskCompleted
    | WorkflowTaskFailed
    | WorkflowTaskScheduled
    | WorkflowTaskStarted
    | WorkflowTaskTimedOut
)

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
