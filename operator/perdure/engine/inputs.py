"""Inputs: what can happen to a run from outside. The controller observes them; `step` turns them into events.

An input about an attempt names the attempt. One that names another than the current attempt is stale and changes nothing:
this is the fence that keeps a superseded pod from reporting.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeAlias

from perdure.api.reasons import ConditionReason
from perdure.engine.activity_options import OpenActivityOptions
from perdure.engine.commands import Command
from perdure.engine.effects import Effect
from perdure.engine.failures import Failure, RetryState
from perdure.engine.starts import Callback, ExternalReference
from perdure.engine.versioning import DeploymentVersion, VersioningOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The attempt's container runs since `time`."""

    scheduled_event_id: int
    attempt: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWaiting:
    """The attempt has not started, and this is why: for people, and for the message of a timeout."""

    scheduled_event_id: int
    attempt: int
    reason: str
    stuck: bool = False
    """It does not look as if that would pass by itself: the run's condition is to say so."""
    worth_telling: bool = False
    """Whether it is to be told at once: it may be so for long, and nothing else tells of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRead:
    """The attempt's Lease was read just now: its last heartbeat, and the details that came with it.

    Only such a reading lets a heartbeat timeout fire: heartbeats are not watched, they are looked up when due.
    """

    scheduled_event_id: int
    attempt: int
    time: datetime | None
    """`renewTime` of the Lease; None where the pod has not heartbeat yet, or the Lease is gone."""
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCompleted:
    """The attempt succeeded, with proof."""

    scheduled_event_id: int
    attempt: int
    result: Any = None
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt failed by its own doing: it counts against the retry policy."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The attempt's pod was lost to the infrastructure: retried without using up an attempt of the retry policy."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The attempt was told to stop, and has stopped."""

    scheduled_event_id: int
    attempt: int
    details: Any = None
    started_time: datetime | None = None


AttemptInput: TypeAlias = (
    AttemptStarted | AttemptWaiting | HeartbeatRead | AttemptCompleted | AttemptFailed | AttemptLost | AttemptCancelled
)


# What somebody asks of the run. A request that was recorded is not recorded again: its id stays in the state until
# `RequestForgotten` says that whoever asked has had the answer. `identity` is what a client says of itself, `principal` the
# user that the API server has authenticated; empty where that is not known.


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequested:
    """Somebody tells the run something."""

    request_id: str
    signal_name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    header: Any = None
    external: ExternalReference | None = None
    """The run that sends it; None where no run does."""
    client_request_id: str = ""
    """The `request_id` if a client of Temporal's API chose it: the event shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody asks the run to cancel itself."""

    request_id: str
    reason: str = ""
    identity: str = ""
    principal: str = ""
    external: ExternalReference | None = None
    """The run that asks; None where no run does."""
    stop: bool = False
    """Whether only `finally` is to run, and no other handler."""


OPERATOR: Final = "perdure.dev/operator"
"""Identity of the operator, where it stops a run without being asked to stop that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequested:
    """Somebody stops the run."""

    request_id: str
    reason: str = ""
    details: Any = None
    identity: str = ""
    principal: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that goes on from a point in its past; empty where none does."""
    reset_event_id: int = 0
    """That point: what the run was to others up to there, that one is from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """Somebody wants nothing new to begin: in the whole run, or no new attempt of one activity."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequested:
    """Somebody ends a pause."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityAnswered:
    """Somebody answers for an open activity, in place of its pod: with a result, a failure, or that it was cancelled."""

    request_id: str
    activity_id: str
    result: Any = None
    """Its output; where it was cancelled, how far it came."""
    failure: Failure | None = None
    cancelled: bool = False
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReset:
    """Somebody wants the attempts of an activity to be counted anew, and the next one to begin now."""

    request_id: str
    activity_id: str
    heartbeat: bool = False
    """Whether the heartbeat details are forgotten too."""
    keep_paused: bool = False
    restore: bool = False
    """Whether its options become again what the workflow has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsChanged:
    """Somebody wants an open activity that workers do to have other options."""

    request_id: str
    activity_id: str
    options: OpenActivityOptions | None
    """All of them; None: again what the workflow has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbacksAttached:
    """Somebody who has wanted to start the workflow is content with the run that is open, and waits for its end."""

    request_id: str
    callbacks: tuple[Callback, ...]
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
    """Whoever asked has had the answer, and will not ask again."""

    request_id: str


# What workers ask and answer that poll task queues. Each names the attempt it is about, and by `fence` the handing out: what
# was handed out to somebody else since counts no more. Their answers are not remembered: asked again, they are stale.


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityTaken:
    """A worker takes an attempt that is due."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReported:
    """A worker says how an attempt has ended: with a result, a failure, or that it was cancelled."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    """Empty: whoever has it."""
    identity: str = ""
    principal: str = ""
    result: Any = None
    failure: Failure | None = None
    cancelled: bool = False
    heartbeat_details: Any = None
    """Those of the last heartbeat, where the failure brings them along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBeat:
    """A worker says that an attempt goes on."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReturned:
    """A worker went away before it had the attempt that it was given."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    fence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWanted:
    """Somebody wants a worker to be asked without anything having happened: an update is to be validated, or a query."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTaken:
    """A worker takes the workflow task."""

    request_id: str
    epoch: str
    identity: str = ""
    suggest_events: int = 4_096
    """Events from which on the worker is told to continue as new."""
    target_version_changed: bool = False
    """Whether new runs of the task queue start on another version than the one that the run is pinned to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToken:
    """Names one handing out of a workflow task."""

    scheduled_event_id: int
    started_event_id: int
    attempt: int
    epoch: str

    def text(self) -> str:
        """In one word."""
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
    """The worker is not done, and wants more time."""
    receives_again: bool = False
    """Whether the worker takes events that it has received before (`discard_speculative_workflow_task_with_events`)."""
    rejects_only: bool = False
    """It has rejected updates, and done nothing else."""
    rejected: tuple[str, ...] = ()
    """Ids of the updates that it has rejected."""
    following: TaskTaken | None = None
    """Take the next task with this answer, if one is due: the worker waits for it with its response."""
    eager: tuple[str, ...] = ()
    """IDs of scheduled activities that the worker does itself, immediately: they do not wait in a task queue."""

    def fence(self, activity_id: str) -> str:
        """The fence of an activity that the worker does itself; the same if it sends its answer again."""
        return f"{self.token.text()}/{activity_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReturned:
    """A worker went away before it had the task that it was given."""

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
    """The worker that has the workflow in its memory goes away."""

    request_id: str


# Nexus operations: what handlers answer, and what completes an operation that a handler has started.


class OperationOutcome(StrEnum):
    """What has become of an operation, or of one attempt to start it."""

    STARTED = "Started"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"
    REFUSED = "Refused"
    """The attempt failed, and no other would do better."""
    ATTEMPT_FAILED = "AttemptFailed"
    """The attempt failed, and the next may do better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationReported:
    """A handler answers an attempt to start an operation."""

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
    """A handler answers an attempt to cancel an operation."""

    request_id: str
    scheduled_event_id: int
    attempt: int
    failure: Failure | None = None
    """None: the handler has accepted the request."""
    retryable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEnded:
    """What a handler has started has ended: a run of its namespace, which completes the operation."""

    request_id: str
    scheduled_event_id: int
    operation_request_id: str
    """Of the operation; whoever does not know it completes nothing."""
    handler_namespace: str
    outcome: OperationOutcome
    operation_token: str = ""
    result: Any = None
    failure: Failure | None = None
    links: Any = None


OperationInput: TypeAlias = OperationReported | OperationCancelReported | OperationEnded
TaskInput: TypeAlias = TaskWanted | TaskTaken | TaskReturned | TaskCompleted | TaskFailed | StickinessReset
ActivityInput: TypeAlias = ActivityTaken | ActivityReturned | ActivityReported | ActivityBeat
WorkerInput: TypeAlias = ActivityInput | TaskInput | OperationInput
Request: TypeAlias = (
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
    | WorkerInput
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request has come to. It is given only once the transition is recorded."""

    ok: bool
    reason: str = ""
    """Why not, as one CamelCase word; `CLOSED` also where nothing was to be done because the run has closed; of what was done,
    what is doubtful about it."""
    message: str = ""
    """Why not, as a sentence."""
    result: dict[str, Any] = field(default_factory=dict)
    """What came of it, such as the run that a Schedule has started."""


CLOSED = ConditionReason.WORKFLOW_EXECUTION_COMPLETED
"""Reason of the answers of a run that has closed before it was asked."""
OPERATION_NOT_FOUND = "OperationNotFound"
"""Reason of the answer of a run that waits for no such Nexus operation, or not any more."""
TOO_MANY_CALLBACKS = "TooManyCallbacks"
"""Reason of the answer to a client that attaches a callback to a run with as many as it may have."""
CLOSING = ConditionReason.WORKFLOW_CLOSING
"""Reason of the answers of a run that is about to close, or has to decide once more: it is to be asked again."""


# What became of what the run has asked others for.


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
    """Why, where it failed; for a terminated one the message is the reason."""
    retry_state: RetryState | None = None
    """Why it was not retried, as its last event has it; None: the event says nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateAdmitted:
    """A reset has brought an update that the run before had accepted."""

    update_id: str
    name: str
    input: Any = None
    header: Any = None
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDone:
    """The other run has recorded the signal or the request to cancel; or could not, and `failure` says why."""

    initiated_event_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDone:
    """What the state asked for is done, and need not be remembered."""

    effect: Effect
    refused: str = ""
    """Of `StartSuccessor`: why the next run of the chain cannot be created; empty where it was. Of `CompleteOperation`: why the
    operation was not completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideAgain:
    """What the decider could not decide without may be there now: it is asked again, whatever it was to wait for."""


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
