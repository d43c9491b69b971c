"""Inputs: external occurrences that affect a run. The controller observes them; `step` turns them into events.

An input about an attempt names the attempt. If that is not the current attempt, the input is stale and changes nothing: this
fence keeps a superseded pod from reporting. Reports of workers also identify the delivery (`fence`, or the token of a workflow
task): a report is stale once the attempt or the task was dispatched to another worker. The answers to workers are not stored,
because a report that is sent again is stale.

A request of a client or of another run is recorded only once: the state keeps its ID until `RequestForgotten` reports that the
client has the answer. `identity` is the client's own name for itself, `principal` the user that the API server has
authenticated; empty if unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine.commands import Command
from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, RetryState
from perdure.engine.starts import Callback, ExternalReference
from perdure.engine.state import OpenActivityOptions
from perdure.engine.versioning import DeploymentVersion, VersioningOverride

# Answers to requests


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request. The client gets it only after the transition is committed."""

    ok: bool
    reason: str = ""
    """Why the request failed, as one CamelCase word; `CLOSED` also if nothing had to be done because the run has closed. After a
    success, a warning."""
    message: str = ""
    """Why the request failed, as a sentence."""
    result: dict[str, Any] = field(default_factory=dict)
    """Details, such as the run that a Schedule started."""


CLOSED = ConditionReason.WORKFLOW_EXECUTION_COMPLETED
"""The reason in answers of a run that has already closed."""

OPERATION_NOT_FOUND = "OperationNotFound"
"""The reason in the answer of a run without this open Nexus operation."""

TOO_MANY_CALLBACKS = "TooManyCallbacks"
"""The reason in the answer of a run that already has the maximum number of callbacks."""

CLOSING = ConditionReason.WORKFLOW_CLOSING
"""The reason in answers of a run that is about to close or must decide once more: the client must retry."""


# Observations of the pods of attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The container of the attempt has been running since `time`."""

    scheduled_event_id: int
    attempt: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWaiting:
    """The attempt has not started. The status and the message of a timeout show the reason."""

    scheduled_event_id: int
    attempt: int
    reason: str
    stuck: bool = False
    """Whether the user probably must act, so that the condition of the run must show it."""
    queued: bool = False
    """Whether it waits for its turn in a WorkflowLimit."""
    commit_now: bool = False
    """Whether to commit the reason immediately, because it may last and nothing else shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRead:
    """The Lease of the attempt was read just now: its last heartbeat with details.

    A heartbeat timeout fires only after such a read: heartbeats are not watched, but read when they are due.
    """

    scheduled_event_id: int
    attempt: int
    time: datetime | None
    """`renewTime` of the Lease; None if the pod has sent no heartbeat, or if the Lease does not exist."""
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCompleted:
    """The attempt provably succeeded, or an earlier result takes its place."""

    scheduled_event_id: int
    attempt: int
    result: Any = None
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    """References to its output artifacts, by name."""
    cached: str = ""
    """Name of the CachedResult that has the result, if the attempt did not run."""
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt itself failed, and the retry policy counts it."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The infrastructure lost the pod of the attempt. It is retried, and the retry policy does not count it."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The attempt was canceled on request."""

    scheduled_event_id: int
    attempt: int
    details: Any = None
    started_time: datetime | None = None


AttemptInput: TypeAlias = (
    AttemptStarted | AttemptWaiting | HeartbeatRead | AttemptCompleted | AttemptFailed | AttemptLost | AttemptCancelled
)


# Reports of workers about activities of the task queues that they poll


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityDispatched:
    """A due attempt is dispatched to a worker that polls."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReported:
    """A worker reports the end of an attempt: a result, a failure, or a cancellation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    """The delivery; empty: the report is valid for every delivery."""
    identity: str = ""
    principal: str = ""
    result: Any = None
    failure: Failure | None = None
    cancelled: bool = False
    heartbeat_details: Any = None
    """Details of the last heartbeat, if the failure contains them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityHeartbeat:
    """A worker sends a heartbeat of an attempt."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReturned:
    """A worker disconnected before it received the attempt."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str


ActivityInput: TypeAlias = ActivityDispatched | ActivityReturned | ActivityReported | ActivityHeartbeat


# Reports of workers about the workflow task of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequested:
    """An update or a query needs a worker, although there are no new events."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDispatched:
    """The workflow task is dispatched to a worker that polls."""

    request_id: str
    epoch: str
    identity: str = ""
    suggest_events: int = 4_096
    """The number of events above which continue-as-new is suggested to the worker."""
    target_version_changed: bool = False
    """Whether new runs of the task queue start on another version than the pinned one of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToken:
    """Identifies one delivery of a workflow task."""

    scheduled_event_id: int
    started_event_id: int
    attempt: int
    epoch: str

    def text(self) -> str:
        """The token as one word."""
        return f"{self.epoch}/{self.scheduled_event_id}/{self.started_event_id}/{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompleted:
    """A worker has decided."""

    request_id: str
    token: TaskToken
    commands: tuple[Command, ...] = ()
    identity: str = ""
    principal: str = ""
    sdk_metadata: Any = None
    metering_metadata: Any = None
    worker_version: Any = None
    binary_checksum: str = ""
    worker_deployment_name: str = ""
    deployment_version: DeploymentVersion | None = None
    versioning_behavior: str = ""
    sticky_queue: str = ""
    sticky_timeout: timedelta | None = None
    force_new_task: bool = False
    """Whether the worker has not finished and needs more time."""
    receives_again: bool = False
    """Whether the worker accepts events that it has received before (`discard_speculative_workflow_task_with_events`)."""
    rejects_only: bool = False
    """Whether the worker has only rejected updates."""
    rejected: Mapping[str, Failure] = field(default_factory=dict)
    """The updates that it has rejected, by ID, and why."""
    following: TaskDispatched | None = None
    """How the worker takes the next task with the answer, if one is due; None: it does not wait for one."""
    eager: tuple[str, ...] = ()
    """IDs of scheduled activities that the worker runs itself immediately, without a task queue."""
    digest: str = ""
    """The digest of the response. A response to the same task with another digest is not a repeated one."""

    def text(self) -> str:
        """The task and the response as one word."""
        return f"{self.token.text()}/{self.digest}"

    def fence(self, activity_id: str) -> str:
        """The fence of an activity that the worker runs itself. It is the same if the worker sends its answer again."""
        return f"{self.token.text()}/{activity_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReturned:
    """A worker disconnected before it received the task."""

    request_id: str
    token: TaskToken


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed:
    """A worker could not decide."""

    request_id: str
    token: TaskToken
    cause: str
    failure: Failure | None = None
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StickinessReset:
    """The worker that has the workflow in its cache is stopping."""

    request_id: str


TaskInput: TypeAlias = TaskRequested | TaskDispatched | TaskReturned | TaskCompleted | TaskFailed | StickinessReset


# Responses of handlers to Nexus operations, and the completion of operations that a handler has started


class OperationOutcome(StrEnum):
    """The result of an operation, or of one attempt to start it."""

    STARTED = "Started"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    REFUSED = "Refused"
    """The attempt failed, and a retry would not help."""
    ATTEMPT_FAILED = "AttemptFailed"
    """The attempt failed, and a retry may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationReported:
    """A handler responds to an attempt to start an operation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    outcome: OperationOutcome
    handler_namespace: str = ""
    operation_token: str = ""
    result: Any = None
    failure: Failure | None = None
    links: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCancelReported:
    """A handler responds to an attempt to cancel an operation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    failure: Failure | None = None
    """Why the handler rejected the request; None: it has accepted it."""
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEnded:
    """A run that a handler has started has closed, which completes the operation."""

    request_id: str
    scheduled_event_id: int
    operation_request_id: str
    """Request ID of the operation; a client that does not know it cannot complete the operation."""
    handler_namespace: str
    outcome: OperationOutcome
    operation_token: str = ""
    result: Any = None
    failure: Failure | None = None
    links: Any = None


OperationInput: TypeAlias = OperationReported | OperationCancelReported | OperationEnded


# Requests of clients and of other runs


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequested:
    """A client sends a signal."""

    request_id: str
    signal_name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    header: Any = None
    external: ExternalReference | None = None
    """The run that sends the signal; None if another client sends it."""
    client_request_id: str = ""
    """The `request_id` that a client of Temporal's API chose; the event shows it."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A client requests the cancellation of the run."""

    request_id: str
    reason: str = ""
    identity: str = ""
    principal: str = ""
    external: ExternalReference | None = None
    """The run that requests the cancellation; None if another client requests it."""
    stop: bool = False
    """Whether only `finally` runs, without other handlers."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequested:
    """A client terminates the run."""

    request_id: str
    reason: str = ""
    details: Any = None
    identity: str = ""
    principal: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that a reset creates; empty if this is not a reset."""
    reset_event_id: int = 0
    """The point of the reset: children and requests up to it belong to the new run."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """A client pauses the run, one activity, or all activities of a type."""

    request_id: str
    activity_id: str | None = None
    activity_type: str | None = None
    """The type of the activities, or `ANY_TYPE`."""
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequested:
    """A client unpauses the run, one activity, or all activities of a type."""

    request_id: str
    activity_id: str | None = None
    activity_type: str | None = None
    """The type of the activities, or `ANY_TYPE`."""
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityAnswered:
    """A client completes, fails or cancels an open activity in place of its pod."""

    request_id: str
    activity_id: str
    result: Any = None
    """Its output; for a cancellation, the details."""
    failure: Failure | None = None
    cancelled: bool = False
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReset:
    """A client resets one activity or all of a type: the next attempt starts now and counts as the first."""

    request_id: str
    activity_id: str | None = None
    activity_type: str | None = None
    """The type of the activities, or `ANY_TYPE`."""
    heartbeat: bool = False
    """Whether the heartbeat details are also removed."""
    keep_paused: bool = False
    restore: bool = False
    """Whether to restore the options from the workflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChanges:
    """Changes of the options of open activities, each of which keeps its other options."""

    options: Mapping[str, Any]
    """New values by the name of the field of `OpenActivityOptions`, without that of the retry policy."""
    retry_policy: Mapping[str, Any]
    """New values by the name of the field of `RetryPolicy`."""

    def apply(self, options: OpenActivityOptions) -> OpenActivityOptions:
        """Return the options of an activity after the changes."""
        policy = msgspec.structs.replace(options.retry_policy, **self.retry_policy)
        return msgspec.structs.replace(options, **self.options, retry_policy=policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsChanged:
    """A client changes the options of one open activity that workers run, or of all of a type."""

    request_id: str
    activity_id: str | None = None
    activity_type: str | None = None
    """The type of the activities, or `ANY_TYPE`."""
    options: OpenActivityOptions | OptionChanges | None
    """All options, or changes of some; None: the options from the workflow again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbacksAttached:
    """A client that tried to start the workflow attaches to the open run, or to one of its updates, and waits for its end."""

    request_id: str
    callbacks: tuple[Callback, ...]
    update_id: str = ""
    """The update to wait for; empty: the end of the run."""
    identity: str = ""
    principal: str = ""
    links: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideChanged:
    """A client sets the versioning override of a run, or removes it."""

    request_id: str
    override: VersioningOverride | None
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForgotten:
    """The client has the answer to its request, and will not send the request again."""

    request_id: str


OPERATOR: Final = "perdure.dev/operator"
"""Identity of the operator when it terminates a run without a request for that run."""


# Results of the requests of a run to other runs, and what the controller reports


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted:
    """The child's first run has started."""

    initiated_event_id: int
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStartFailed:
    """The child could not be started."""

    initiated_event_id: int
    failure: Failure


class ChildOutcome(StrEnum):
    """How a child closed."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIMED_OUT = "TimedOut"
    TERMINATED = "Terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildClosed:
    """The last run of the child's chain has closed."""

    initiated_event_id: int
    run_id: str
    outcome: ChildOutcome
    result: Any = None
    failure: Failure | None = None
    """Why the child failed; for a terminated child, the message is the reason."""
    retry_state: RetryState | None = None
    """Why the child was not retried, from its last event; None if the event does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAdmitted:
    """A reset passes on an update that the previous run had accepted."""

    update_id: str
    name: str
    input: Any = None
    header: Any = None
    identity: str = ""
    principal: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDone:
    """The other run has recorded the signal or the cancellation request, or could not record it: see `failure`."""

    initiated_event_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """An effect of the state is done, so the state can drop it."""

    effect: Effect
    refused: str = ""
    """For `StartSuccessor`: why the next run of the chain cannot be created; empty if it was. For `CompleteOperation`: why the
    operation was not completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideAgain:
    """An object that the decider was missing may exist now: decide again, without waiting for the backoff."""


# All inputs


WorkerInput: TypeAlias = ActivityInput | TaskInput | OperationInput
ClientRequest: TypeAlias = (
    SignalRequested
    | CancelRequested
    | TerminateRequested
    | PauseRequested
    | UnpauseRequested
    | ActivityAnswered
    | ActivityReset
    | OptionsChanged
    | CallbacksAttached
    | OverrideChanged
)
Request: TypeAlias = ClientRequest | WorkerInput
RunInput: TypeAlias = (
    AttemptInput
    | Request
    | RequestForgotten
    | ChildStarted
    | ChildStartFailed
    | ChildClosed
    | ExternalDone
    | UpdateAdmitted
    | EffectDone
    | DecideAgain
)
