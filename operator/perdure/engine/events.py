"""Events of a run, with Temporal's names and attribute names.

A history is a gap-free, append-only list of events, which begins with WorkflowExecutionStarted. The history of a closed run
ends with exactly one closing event. Temporal's ``temporal.api.history.v1`` is the model; the differences are:

* attributes are next to ``eventId`` and ``eventTime`` instead of in a nested object, and payloads are plain JSON values;
* the closing events of an activity also have its ``activityId`` and `attempt`, so that a decider can identify the step and the
  number of attempts without a table;
* a decider in the operator's process (the YAML interpreter) decides within the commit, so there are no WorkflowTask events.
  If a Temporal SDK worker decides, the history has all of them, and is the same as Temporal's.
"""

from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from perdure.api.policies import ParentClosePolicy
from perdure.api.stored import StoredStruct
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import (
    Callback,
    CarriedSignal,
    ExternalReference,
    ParentReference,
    RestartedOperation,
    WorkflowStart,
)
from perdure.engine.versioning import DeploymentVersion, InheritedAutoUpgradeInfo, VersioningOverride


class Event(
    StoredStruct,
    frozen=True,
    kw_only=True,
    tag_field="eventType",
    tag=True,
):
    """The attributes of every event."""

    event_id: int
    """Position in the history: 1, 2, 3, … without gaps."""
    event_time: datetime
    """When it was recorded (UTC); for ActivityTaskStarted, when the attempt started."""
    user_metadata: Any = None
    """Summary and details from the code of an SDK workflow, opaque."""
    principal: str = ""
    """User that requested it, authenticated by the API server; empty if no user did, or if it is not known."""


class CommandEvent(Event, frozen=True, kw_only=True):
    """The attributes of every event that records a command."""

    workflow_task_completed_event_id: int = 0
    """The workflow task that the command comes from; 0 if the decider runs in the operator's process."""


# The run itself


class WorkflowExecutionStarted(Event, frozen=True, kw_only=True):
    """The run started: the first event of every history."""

    workflow_type: str
    workflow_id: str
    input: Any = None
    task_queue: str | None = None
    workflow_execution_timeout: timedelta | None = None
    workflow_run_timeout: timedelta | None = None
    steps_timeout: timedelta | None = None
    """The `stepsTimeout` of the run, which replaces that of its definition."""
    workflow_task_timeout: timedelta | None = None
    workflow_execution_expiration_time: datetime | None = None
    first_workflow_task_backoff: timedelta | None = None
    """How long the first decision waits: a start delay, a retry backoff, or the time until the next run of a cron schedule."""
    retry_policy: RetryPolicy | None = None
    """None: a failed run is not retried."""
    original_execution_run_id: str
    first_execution_run_id: str
    continued_execution_run_id: str | None = None
    """The previous run of the chain, which this one continues or retries."""
    continued_failure: Failure | None = None
    """Why the previous run failed, if this one retries it or follows it by a cron schedule."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first run in a series of retries started, if this is not the first."""
    parent: ParentReference | None = None
    search_attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    successor: str = ""
    """Name of the WorkflowRun that will continue or retry this one."""
    identity: str = ""
    """The client that started it."""
    header: Any = None
    memo: Any = None
    cron_schedule: str = ""
    initiator: str = ""
    """The initiator of the run: Workflow (continue-as-new), Retry or CronSchedule; empty for the first run of a chain."""
    last_completion_result: Any = None
    priority: Any = None
    root_workflow_id: str = ""
    root_run_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()
    eager_execution_accepted: bool = False
    """The client that started the run gets its first workflow task."""
    links: Any = None
    standalone: bool = False
    """The run is a standalone activity or Nexus operation: it schedules one, and closes with its outcome."""
    versioning_override: VersioningOverride | None = None
    inherited_pinned_version: DeploymentVersion | None = None
    """The pinned version of its parent or of the previous run."""
    inherited_auto_upgrade_info: InheritedAutoUpgradeInfo | None = None


class WorkflowExecutionSignaled(Event, frozen=True, kw_only=True):
    """The run received a signal."""

    signal_name: str
    input: Any = None
    identity: str = ""
    """The client: an Operation, or another run."""
    header: Any = None
    external: ExternalReference | None = None
    """The run that sent it; None if another client did."""
    request_id: str = ""
    """The ID of the request if a client of Temporal's API chose it."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


class WorkflowExecutionCancelRequested(Event, frozen=True, kw_only=True):
    """The cancellation of the run was requested. Only the first request leaves an event."""

    cause: str = ""
    identity: str = ""
    external: ExternalReference | None = None
    """The run that requested it; None if another client did."""
    stop: bool = False
    """Whether only `finally` runs, and no other handler."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


class WorkflowExecutionPaused(Event, frozen=True, kw_only=True):
    """The run was paused: there are no decisions and no new attempts until it is unpaused."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionUnpaused(Event, frozen=True, kw_only=True):
    """The run was unpaused."""

    reason: str = ""
    identity: str = ""


class WorkflowExecutionOptionsUpdated(Event, frozen=True, kw_only=True):
    """A client changed the versioning override, or attached callbacks by starting the run or sending an update again."""

    attached_request_id: str = ""
    update_id: str = ""
    """The update that the attached callbacks wait for; empty: they wait for the end of the run."""
    versioning_override: VersioningOverride | None = None
    unset_versioning_override: bool = False
    attached_completion_callbacks: tuple[Callback, ...] = ()
    identity: str = ""
    links: Any = None


class MarkerRecorded(CommandEvent, frozen=True, kw_only=True):
    """A decider recorded something for itself or for readers of the history."""

    marker_name: str
    details: Any = None
    header: Any = None
    failure: Failure | None = None


class UpsertWorkflowSearchAttributes(CommandEvent, frozen=True, kw_only=True):
    """A decider changed search attributes of the run; null removes one."""

    search_attributes: dict[str, Any]


class WorkflowPropertiesModified(CommandEvent, frozen=True, kw_only=True):
    """A decider changed the memo of the run; null removes an entry."""

    upserted_memo: dict[str, Any]


# Activities


class ActivityTaskScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider scheduled an activity. Timeouts and retry policy are final: later edits of resources change nothing."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    task_queue: str = ""
    """The task queue that its workers poll; empty: each attempt is a pod."""
    header: Any = None
    priority: Any = None
    start_delay: timedelta | None = None
    """How long the first attempt waits; the timeouts count from its end."""


class ActivityTaskStarted(Event, frozen=True, kw_only=True):
    """The last attempt of an activity started. As in Temporal, it is written when the activity closes, for no other attempt."""

    scheduled_event_id: int
    attempt: int
    last_failure: Failure | None = None
    identity: str = ""
    """Identity of the worker that runs it."""


class ActivityTaskCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider requested the cancellation of an activity."""

    scheduled_event_id: int
    activity_id: str


class _ActivityClosed(Event, frozen=True, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    """ID of its ActivityTaskStarted; 0 if the last attempt did not start."""
    activity_id: str
    attempt: int
    identity: str = ""
    """Identity of the worker that reported it."""
    losses: int = 0
    """Number of attempts that were lost to the infrastructure, which the retry policy does not count."""


class ActivityTaskCompleted(_ActivityClosed, frozen=True, kw_only=True):
    """An activity's last attempt succeeded."""

    result: Any = None
    artifacts: dict[str, Any] = msgspec.field(default_factory=dict)
    """References to its output artifacts, by name."""
    cached: str = ""
    """Name of the CachedResult that had the result; empty if the attempt ran."""


class ActivityTaskFailed(_ActivityClosed, frozen=True, kw_only=True):
    """An activity failed permanently; `retry_state` says why it is not retried."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskTimedOut(_ActivityClosed, frozen=True, kw_only=True):
    """An activity timed out permanently."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskCanceled(_ActivityClosed, frozen=True, kw_only=True):
    """An activity was canceled on request, after it stopped or before it started."""

    details: Any = None
    latest_cancel_requested_event_id: int = 0


# Workflow tasks, of runs that a Temporal SDK worker decides


class WorkflowTaskScheduled(Event, frozen=True, kw_only=True):
    """A workflow task was scheduled for a worker."""

    task_queue: str
    sticky: bool = False
    """Whether the queue is that of the worker that has the workflow in its cache."""
    normal_name: str = ""
    """For a sticky queue: the task queue that its worker polls for new workflows."""
    start_to_close_timeout: timedelta
    attempt: int = 1


class WorkflowTaskStarted(Event, frozen=True, kw_only=True):
    """A worker took the task. This is written together with the result, so that the delivery of a task needs no write."""

    scheduled_event_id: int
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_worker_deployment_version_changed: bool = False
    """Whether the run is pinned while new runs of its task queue start on another version."""


class WorkflowTaskCompleted(Event, frozen=True, kw_only=True):
    """A worker completed the task; the events of its commands follow."""

    scheduled_event_id: int
    started_event_id: int
    identity: str = ""
    sdk_metadata: Any = None
    metering_metadata: Any = None
    worker_version: Any = None
    binary_checksum: str = ""
    """The build of the worker, if `worker_version` does not have it: workflow code may read it, even during a replay."""
    worker_deployment_name: str = ""
    deployment_version: DeploymentVersion | None = None
    """The version of a versioned worker."""
    versioning_behavior: str = ""
    """Pinned or AutoUpgrade; empty from an unversioned worker."""


class WorkflowTaskFailed(Event, frozen=True, kw_only=True):
    """A worker could not decide, or its decision is not valid.

    With the cause ``ResetWorkflow``, the run was reset: the events before this one are from another run's history, and the run
    decides again from here, as on Temporal's server (service/history/ndc/workflow_resetter.go). Open activities start with their
    first attempt, and timeouts of the run count from here.
    """

    scheduled_event_id: int = 0
    started_event_id: int = 0
    cause: str
    """A name of temporal.api.enums.v1.WorkflowTaskFailedCause, in CamelCase."""
    failure: Failure | None = None
    reason: str = ""
    identity: str = ""
    base_run_id: str = ""
    """The run whose history this is. This and the fields below are set only by a reset."""
    new_run_id: str = ""
    workflow_execution_expiration_time: datetime | None = None
    workflow_run_expiration_time: datetime | None = None
    successor: str = ""
    """Name of the WorkflowRun that will continue or retry this one."""
    restarted_children: dict[str, WorkflowStart] = {}
    """The open children that start again, by the ID of the event that initiated them: the other run has cancelled them after this
    point, or a retry repeats them."""
    restarted_operations: dict[str, RestartedOperation] = {}
    """The open Nexus operations that start again, by the ID of the event that scheduled them."""


class WorkflowTaskTimedOut(Event, frozen=True, kw_only=True):
    """A worker did not respond in time, or did not take the task from its sticky queue."""

    scheduled_event_id: int
    started_event_id: int = 0
    timeout_type: TimeoutType


# Timers


class TimerStarted(CommandEvent, frozen=True, kw_only=True):
    """A decider started a timer."""

    timer_id: str
    start_to_fire_timeout: timedelta
    restarts: bool = False
    """Whether it starts again if the run is reset."""


class TimerFired(Event, frozen=True, kw_only=True):
    """A timer fired."""

    timer_id: str
    started_event_id: int


class TimerCanceled(CommandEvent, frozen=True, kw_only=True):
    """A decider canceled a timer."""

    timer_id: str
    started_event_id: int
    identity: str = ""
    """The worker that decided it."""


# Child workflows


class StartChildWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider started a child. Its run is created after the commit."""

    child_id: str
    """The decider's own name for it, unique among the run's open children: the step."""
    start: WorkflowStart
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE


class StartChildWorkflowExecutionFailed(Event, frozen=True, kw_only=True):
    """The child was not started. `failure` says why, for example with the type WorkflowExecutionAlreadyStarted."""

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


class ChildClosed(Event, frozen=True, kw_only=True):
    """A child has closed: what the events of its outcomes have in common."""

    initiated_event_id: int
    started_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    run_id: str
    """The run of the child's chain that closed last."""


class ChildWorkflowExecutionCompleted(ChildClosed, frozen=True, kw_only=True):
    """The child completed."""

    result: Any = None


class ChildNotCompleted(ChildClosed, frozen=True, kw_only=True):
    """A child has closed without a result."""


class ChildWorkflowExecutionFailed(ChildNotCompleted, frozen=True, kw_only=True):
    """The child failed permanently."""

    failure: Failure
    retry_state: RetryState = RetryState.RETRY_POLICY_NOT_SET


class ChildWorkflowExecutionCanceled(ChildNotCompleted, frozen=True, kw_only=True):
    """The child was cancelled."""

    details: Any = None


class ChildWorkflowExecutionTimedOut(ChildNotCompleted, frozen=True, kw_only=True):
    """The child timed out."""

    retry_state: RetryState = RetryState.TIMEOUT


class ChildWorkflowExecutionTerminated(ChildNotCompleted, frozen=True, kw_only=True):
    """The child was terminated, or its WorkflowRun was deleted."""

    reason: str = ""


# Signals and cancellation requests to other workflows


class SignalExternalWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider sent a signal to another run."""

    signal_id: str
    """The decider's own name for it: the step."""
    workflow_id: str
    run_id: str = ""
    """Empty: the open run of the workflow ID."""
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
    """The signal could not be delivered: no such run is open."""

    initiated_event_id: int
    signal_id: str
    workflow_id: str
    run_id: str = ""
    control: str = ""
    failure: Failure


class RequestCancelExternalWorkflowExecutionInitiated(CommandEvent, frozen=True, kw_only=True):
    """A decider requested the cancellation of another run, usually a child."""

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
    """The request could not be delivered: no such run is open."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    control: str = ""
    failure: Failure


# Nexus operations


class NexusOperationScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider scheduled an operation, which workers of another namespace may handle."""

    endpoint: str
    endpoint_id: str
    handler_namespace: str
    """The namespace of the endpoint at that time. Only this namespace can complete the operation."""
    service: str
    operation: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    nexus_header: dict[str, str] = msgspec.field(default_factory=dict)
    request_id: str
    """The ID of the request, which only the two namespaces know. It is the same for every attempt, so that a handler finds the
    operation that it has started."""


class NexusOperationStarted(Event, frozen=True, kw_only=True):
    """The handler has started the operation, and will complete it later."""

    scheduled_event_id: int
    operation_token: str
    request_id: str
    handler_namespace: str
    links: Any = None


class NexusOperationCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider requested the cancellation of an operation."""

    scheduled_event_id: int


class NexusOperationCancelRequestCompleted(Event, frozen=True, kw_only=True):
    """The handler has accepted the cancellation request. The operation may end later because of it."""

    scheduled_event_id: int
    requested_event_id: int


class NexusOperationCancelRequestFailed(Event, frozen=True, kw_only=True):
    """The handler has rejected the cancellation request."""

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
    """A timeout of the operation has passed."""

    failure: Failure


# Updates, requests that the decider answers


class WorkflowExecutionUpdateAdmitted(Event, frozen=True, kw_only=True):
    """A run that a reset created received an update that the previous run had accepted."""

    update_id: str
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


class WorkflowExecutionUpdateAccepted(Event, frozen=True, kw_only=True):
    """A decider accepted an update, which is durable now. If it was admitted before, that event has its request."""

    update_id: str
    accepted_request_message_id: str = ""
    accepted_request_sequencing_event_id: int = 0
    name: str = ""
    input: Any = None
    header: Any = None
    identity: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


class WorkflowExecutionUpdateCompleted(Event, frozen=True, kw_only=True):
    """An update completed, with a result or a failure."""

    update_id: str
    accepted_event_id: int
    identity: str = ""
    result: Any = None
    failure: Failure | None = None


# The end of the run


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
