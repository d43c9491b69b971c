"""The state of a run between two steps. `fold` describes how events change it.

All entries are immutable. Tables have strings as keys, because the keys of a JSON object are strings. A run that Temporal SDK
workers decide has more state (`Code`): its workflow task, and the events that wait for it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from perdure.api.policies import ParentClosePolicy
from perdure.api.stored import StoredStruct
from perdure.api.times import format_time, show_duration
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import Callback, WorkflowStart
from perdure.engine.versioning import UNVERSIONED, Versioning

DEFAULT_TIMEOUT = timedelta(seconds=10)
"""The default timeout of a workflow task."""
LONGEST_TIMEOUT = timedelta(seconds=120)
"""The maximum timeout of a workflow task. Longer ones are silently reduced, as on Temporal's server (create_workflow_util.go)."""


def task_timeout(wanted: timedelta | None, run_timeout: timedelta | None) -> timedelta:
    """The timeout of a workflow task: no longer than that of the run (overrideWorkflowTaskTimeout)."""
    return min(wanted or DEFAULT_TIMEOUT, LONGEST_TIMEOUT, run_timeout or LONGEST_TIMEOUT)


class WorkflowTask(StoredStruct, frozen=True, kw_only=True):
    """A workflow task that waits for a worker, or that a worker is deciding."""

    attempt: int = 1
    scheduled_event_id: int = 0
    """ID of the event that records it; 0 if there is none yet, as for further attempts and speculative tasks."""
    scheduled_time: datetime
    original_scheduled_time: datetime
    """The time of the first task in a series that a worker has only prolonged."""
    start_to_close_timeout: timedelta
    speculative: bool = False
    sticky_queue: str = ""
    """The queue of the worker that gets the task; empty: any worker of the task queue."""
    seen_event_id: int = 0
    """`next_event_id` when a further attempt was scheduled, to detect events since then."""

    # The fields below are set once a worker has the task. They stay in memory, and are written only with another commit.
    started_time: datetime | None = None
    started_event_id: int = 0
    """ID of the future WorkflowTaskStarted: nothing is appended to the history until the task has ended."""
    epoch: str = ""
    """The process that delivered the task; deliveries of other processes are no longer valid."""
    identity: str = ""
    request_id: str = ""
    suggest_continue_as_new: bool = False
    history_size_bytes: int = 0
    target_version_changed: bool = False

    @property
    def number(self) -> int:
        """ID of its WorkflowTaskScheduled, even if that is not written yet. Valid only once the task has started."""
        return self.scheduled_event_id or self.started_event_id - 1


class UpdateRecord(StoredStruct, frozen=True, kw_only=True):
    """An update that was accepted."""

    accepted_event_id: int
    completed_event_id: int = 0
    """0: not yet."""


class Code(StoredStruct, frozen=True, kw_only=True):
    """The additional state of a run that Temporal SDK workers decide."""

    workflow_type: str
    task_queue: str
    task_timeout: timedelta = DEFAULT_TIMEOUT
    cron_schedule: str = ""
    priority: Any = None
    """Priority of the start, as JSON of temporal.api.common.v1.Priority; activities and children inherit it."""
    previous_started_event_id: int = 0
    """ID of the WorkflowTaskStarted of the last completed task."""
    updates: dict[str, UpdateRecord] = {}
    """Accepted updates, by update ID."""
    memo: dict[str, Any] = {}
    search_attributes: dict[str, Any] = {}
    versioning: Versioning = UNVERSIONED

    # Not recorded by events:
    admitted: dict[str, int] = {}
    """Updates from a reset that no worker has accepted or rejected yet: the IDs of their events, by update ID."""
    task: WorkflowTask | None = None
    wanted: bool = False
    """Whether a worker must decide but no task is scheduled, because the first one is delayed or the run is paused."""
    buffered: tuple[ev.AnyEvent, ...] = ()
    """Events that occurred while a worker decides. They have no IDs, and are recorded when the task ends."""
    sticky_queue: str = ""
    sticky_timeout: timedelta = DEFAULT_TIMEOUT
    failure: str = ""
    """Why the last task failed; empty once a task is completed."""
    closing: bool = False
    """The workflow tried to close, but there were new events: signals are rejected until it has decided about them."""
    completed: str = ""
    """The last completed task and its response: the same response, sent again, gets the same answer."""

    @property
    def task_started(self) -> bool:
        """Whether a worker has a task."""
        return self.task is not None and self.task.started_time is not None

    def ended_activities(self) -> frozenset[int]:
        """The activities whose end is buffered, by the IDs of their ActivityTaskScheduled."""
        return frozenset(event.scheduled_event_id for event in self.buffered if isinstance(event, ACTIVITY_CLOSED))

    def operations_buffered(self) -> frozenset[int]:
        """The Nexus operations with buffered events, by the IDs of their NexusOperationScheduled."""
        return frozenset(event.scheduled_event_id for event in self.buffered if isinstance(event, OF_OPERATIONS))


ACTIVITY_CLOSED = (ev.ActivityTaskCompleted, ev.ActivityTaskFailed, ev.ActivityTaskTimedOut, ev.ActivityTaskCanceled)
"""The events that end an activity."""
OPERATION_CLOSED = (
    ev.NexusOperationCompleted,
    ev.NexusOperationFailed,
    ev.NexusOperationCanceled,
    ev.NexusOperationTimedOut,
)
"""The events that end a Nexus operation."""
OF_OPERATIONS = (
    *OPERATION_CLOSED,
    ev.NexusOperationStarted,
    ev.NexusOperationCancelRequestCompleted,
    ev.NexusOperationCancelRequestFailed,
)
"""The events of Nexus operations that record no command."""


def deadline_after(start: datetime | None, timeout: timedelta | None) -> datetime | None:
    """The end of a timeout; None if it has not begun, or if there is none."""
    return None if start is None or timeout is None else start + timeout


WORKFLOWS_QUEUE = "workflows"
"""The task queue of the workflows in YAML: each workflow type is the name of a Workflow."""

PODS_QUEUE = "pods/"
"""Prefix of a task queue whose activities run in pods; the name of their Workflow follows."""

TAKE_LIMITS = "perdure.dev/limits"
"""The type of an activity that only takes the WorkflowLimits of a step. It completes without a pod when it holds all of them."""

AWAIT_SERVICE = "perdure.dev/service"
"""The type of an activity that only waits for a service of steps. It completes without a pod when the service is ready, with the
address of the service as its result."""

DEAD_LETTER = "DeadLetter"
"""Name of a marker whose details become a DeadLetter; the state keeps it until that is created."""

LIMITS_RELEASED = "LimitsReleased"
"""Name of a marker that ends the hold of a step on its WorkflowLimits; its details are the ID of the activity that took them."""

RECORD_START_AFTER = timedelta(seconds=2)
"""How long a worker has an attempt before its start is recorded, so that a restart of the operator does not deliver it again.
Shorter attempts need no separate write."""


class PauseInfo(StoredStruct, frozen=True, kw_only=True):
    """Who paused a run or an activity, when, and why."""

    reason: str = ""
    identity: str = ""
    time: datetime | None = None
    """None in states of earlier versions."""


# Activities


class OpenActivityOptions(StoredStruct, frozen=True, kw_only=True):
    """The options that a client may change, named like the fields of the activity."""

    task_queue: str
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    priority: Any = None


class ScheduledActivity(StoredStruct, frozen=True, kw_only=True):
    """The part of an open activity that the history records."""

    scheduled_event_id: int
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
    first_scheduled_time: datetime
    cancel_requested: bool = False
    """Whether the decider has requested the cancellation, so that the activity is no longer retried."""
    cancel_requested_event_id: int = 0
    """The event that records the request; 0 also if an older version has recorded it."""


class PendingActivity(ScheduledActivity, frozen=True, kw_only=True):
    """An activity that has not closed, with the status of its attempts, which no event records until it closes.

    The stored state holds the fields of both classes side by side.
    """

    attempt: int = 1
    """Number of the attempt that runs, or that starts at `scheduled_time`."""
    scheduled_time: datetime
    """When this attempt may start: in the future during a backoff."""
    losses: int = 0
    """Number of earlier attempts that were lost to the infrastructure: the retry policy does not count them."""
    uncounted: int = 0
    """Number of earlier attempts, lost ones included, that the retry policy does not count because of a reset."""
    reset: bool = False
    """Whether it was reset during an attempt, which now counts as the first. The response to the next heartbeat says so."""
    forgets_heartbeat: bool = False
    """With `reset`: the next attempt gets no heartbeat details."""
    original: OpenActivityOptions | None = None
    """The options that the history records, if a client has changed them."""
    started_time: datetime | None = None
    last_started_time: datetime | None = None
    """When the previous attempt started; only of a standalone activity."""
    last_heartbeat_time: datetime | None = None
    heartbeats: int = 0
    """Number of heartbeats of workers in all attempts; only of a standalone activity."""
    heartbeat_details: Any = None
    last_failure: Failure | None = None
    waiting_reason: str | None = None
    """Why the attempt had not started when it was last observed."""
    stuck: bool = False
    """Whether the attempt has been blocked for a while."""
    queued: bool = False
    """Whether the attempt waits for its turn in a WorkflowLimit."""
    paused: bool = False
    """Whether the activity is paused, so that no further attempt starts."""
    pause: PauseInfo | None = None
    """Who paused it, when and why; None unless it is paused, and in states of earlier versions."""
    fence: str = ""
    """Identifies the valid delivery of the attempt to a worker."""
    identity: str = ""
    """The worker that has the attempt."""
    start_recorded: bool = False
    """Whether a commit has recorded that a worker has the attempt."""
    last_identity: str = ""
    """The worker that had the previous attempt."""
    last_attempt_complete_time: datetime | None = None
    """When the previous attempt ended."""

    @property
    def tries(self) -> int:
        """The number of the attempt as the retry policy counts it."""
        return self.attempt - self.losses - self.uncounted

    @property
    def expiration(self) -> datetime | None:
        """When schedule-to-close ends."""
        return deadline_after(self.first_scheduled_time, self.schedule_to_close_timeout)

    @property
    def start_deadline(self) -> datetime | None:
        """When schedule-to-start ends; None once the attempt has started."""
        return None if self.started_time else deadline_after(self.scheduled_time, self.schedule_to_start_timeout)

    @property
    def close_deadline(self) -> datetime | None:
        """When start-to-close ends; None until the attempt has started."""
        return deadline_after(self.started_time, self.start_to_close_timeout)

    @property
    def heartbeat_deadline(self) -> datetime | None:
        """When the next heartbeat is due after the last known one; None until the attempt has started."""
        if self.started_time is None:
            return None
        return deadline_after(
            max(self.started_time, self.last_heartbeat_time or self.started_time), self.heartbeat_timeout
        )

    @property
    def by_worker(self) -> bool:
        """Whether workers that poll a task queue run it, instead of pods."""
        return bool(self.task_queue) and not self.task_queue.startswith(PODS_QUEUE)

    @property
    def takes_limits(self) -> bool:
        """Whether it only takes the WorkflowLimits of a step, and has neither a pod nor a worker."""
        return self.activity_type == TAKE_LIMITS and not self.task_queue

    @property
    def awaits_service(self) -> bool:
        """Whether it only waits for a service of steps, and has neither a pod nor a worker."""
        return self.activity_type == AWAIT_SERVICE and not self.task_queue

    @property
    def runs_nothing(self) -> bool:
        """Whether it has neither a pod nor a worker: it takes limits, or waits for a service."""
        return self.takes_limits or self.awaits_service

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Yield every deadline; of equal ones, the first counts.

        The order is that of Temporal's server (service/history/workflow/timer_sequence.go), except that schedule-to-close comes
        before start-to-close: there an attempt starts a moment after it was scheduled, here an eager one at the same time.
        """
        for deadline, kind in (
            (self.start_deadline, TimeoutType.SCHEDULE_TO_START),
            (self.expiration, TimeoutType.SCHEDULE_TO_CLOSE),
            (self.close_deadline, TimeoutType.START_TO_CLOSE),
            (self.heartbeat_deadline, TimeoutType.HEARTBEAT),
        ):
            if deadline is not None:
                yield deadline, kind

    def timeout_failure(self, kind: TimeoutType, message: str | None = None) -> Failure:
        """The failure of a timeout of this activity, without a cause."""
        limit = {
            TimeoutType.SCHEDULE_TO_CLOSE: self.schedule_to_close_timeout,
            TimeoutType.SCHEDULE_TO_START: self.schedule_to_start_timeout,
            TimeoutType.START_TO_CLOSE: self.start_to_close_timeout,
            TimeoutType.HEARTBEAT: self.heartbeat_timeout,
        }[kind]
        return Failure(
            kind=FailureKind.TIMEOUT,
            message=(
                message or f"activity {kind} timeout" if self.task_queue else timeout_message(kind, limit, message)
            )
            + (f": the attempt has not started: {self.waiting_reason}" if self.waiting_reason else ""),
            timeout_type=kind,
        )


def timeout_message(kind: TimeoutType, limit: timedelta | None, message: str | None = None) -> str:
    """The message of an activity timeout: that of Temporal's server, followed by the length of the timeout.

    Args:
        kind: The timeout.
        limit: The length of the timeout.
        message: The message of Temporal's server, if it has a longer one.

    Returns:
        For example, `activity StartToClose timeout after 10s`.
    """
    text = message or f"activity {kind} timeout"
    if limit is None:
        return text
    return f"{text} (the timeout is {show_duration(limit)})" if message else f"{text} after {show_duration(limit)}"


# Timers, children, requests to other runs, limits, and callbacks


class PendingTimer(StoredStruct, frozen=True, kw_only=True):
    """A timer that has not fired."""

    started_event_id: int
    timer_id: str
    fire_time: datetime
    restarts: timedelta | None = None
    """The length of a timer that starts again if the run is reset; None for others."""


class PendingChild(StoredStruct, frozen=True, kw_only=True):
    """A child that has not closed; in a closed run, a child whose parent close policy has not been applied yet.

    Until the child starts, it has the data for the start; afterwards, it only has the child's identity.
    """

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    start: WorkflowStart | None = None
    """None once the child has started."""
    started_event_id: int = 0
    """The event of its start; of a restarted child, that of its first start."""
    restarted: bool = False
    """Whether it starts again, or has, after a reset of code. SDKs accept no second start event, so none records it."""
    run_id: str = ""
    """Run ID of the first run of the child; empty until it has started."""


class KeptResult(StoredStruct, frozen=True, kw_only=True):
    """The result of an activity or a child that does not run again in a retry, if it is scheduled with the same input."""

    type: str
    """The type of the activity, or the workflow type of the child."""
    input_digest: str
    result: Any = None
    artifacts: dict[str, Any] = {}
    run_id: str = ""
    """The run of the child; empty for an activity."""

    def fits(self, type_: str, value: Any) -> bool:
        """Whether it is the result for a type and an input."""
        return (self.type, self.input_digest) == (type_, digest_of(value))


def digest_of(value: Any) -> str:
    """The digest of an input."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


class PendingExternal(StoredStruct, frozen=True, kw_only=True):
    """A signal or a cancellation request to another run, which that run has not recorded yet."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    child_workflow_only: bool = False
    signal_id: str | None = None
    """None: it is a cancellation request."""
    signal_name: str = ""
    input: Any = None
    reason: str = ""
    header: Any = None
    control: str = ""


class HeldLimits(StoredStruct, frozen=True, kw_only=True):
    """The WorkflowLimits that a step holds."""

    scheduled_event_id: int
    """The event that requested them, which identifies the step in the queues of the limits."""
    activity_id: str
    limits: Any
    """The input of that event: see `perdure.language.keys`."""


class PendingCallback(StoredStruct, frozen=True, kw_only=True):
    """A Nexus operation that the end of the run or of an update completes."""

    callback: Callback
    update_id: str = ""
    """The update whose end completes the operation; empty: the end of the run does."""
    rejection: Failure | None = None
    """Why a worker rejected the update, which a reset had passed on. No event records it."""
    registration_time: datetime
    request_id: str = ""
    """Request ID of the start or update that attached it to the open run; empty if it is from the start of the run."""
    event_id: int = 0
    """ID of the event that records the attachment; 0 if the callback is from the start of the run."""
    state: str = ""
    """In a closed run: Succeeded or Failed; empty if it is not done yet."""
    failure: Failure | None = None
    complete_time: datetime | None = None


# Nexus operations


REQUEST_TIMEOUT = timedelta(seconds=10)
"""The timeout of one call of the handler of a Nexus operation (component.nexusoperations.request.timeout)."""

SHORTEST_REQUEST = timedelta(seconds=1.5)
"""If less of the timeout of an operation is left, its handler is not called again (limit.request.timeout.min)."""

_ANSWER_BUFFER = timedelta(seconds=1)
"""How much earlier than the caller the handler times out (limit.dispatch.task.timeout.min)."""

_FIRST_BACKOFF, _LONGEST_BACKOFF = timedelta(seconds=1), timedelta(hours=1)


class HandlerCalls(StoredStruct, frozen=True, kw_only=True):
    """The calls of the handler of a Nexus operation, which are retried after a failure."""

    due: datetime
    """When the next call begins, or has begun."""
    attempts: int = 0
    """Number of calls with a response."""
    last_attempt_complete_time: datetime | None = None
    last_failure: Failure | None = None

    @property
    def attempt(self) -> int:
        """Number of the due call; the first is 1."""
        return self.attempts + 1

    def answered(self, now: datetime) -> "HandlerCalls":
        """Return these calls after the last one got its response."""
        return msgspec.structs.replace(self, attempts=self.attempt, last_attempt_complete_time=now, last_failure=None)

    def failed(self, failure: Failure, now: datetime) -> "HandlerCalls":
        """Return these calls after a failed one. The delay before the next call grows each time."""
        wait = min(_FIRST_BACKOFF * (1 << min(self.attempts, 16)), _LONGEST_BACKOFF)
        return msgspec.structs.replace(self.answered(now), last_failure=failure, due=now + wait)


class OperationCancellation(StoredStruct, frozen=True, kw_only=True):
    """The cancellation of a Nexus operation."""

    requested_event_id: int
    calls: HandlerCalls | None = None
    """None until the operation has started."""
    requested_time: datetime | None = None
    """When the handler could first be called."""
    state: str = ""
    """The response: Succeeded or Failed; empty if there is none yet."""


class PendingOperation(StoredStruct, frozen=True, kw_only=True):
    """A Nexus operation that has not closed."""

    scheduled_event_id: int
    endpoint: str
    endpoint_id: str
    handler_namespace: str
    service: str
    operation: str
    input: Any = None
    """The input; None once the operation has started."""
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    header: dict[str, str] = {}
    request_id: str
    scheduled_time: datetime
    started_time: datetime | None = None
    operation_token: str = ""
    cancellation: OperationCancellation | None = None
    restarted: bool = False
    """Whether it starts again, or has, after a reset, although the history has its start. SDKs accept no second start event."""
    calls: HandlerCalls

    @property
    def open_call(self) -> HandlerCalls | None:
        """The pending calls: to start the operation or, once it has started, to cancel it."""
        if self.started_time is None:
            return self.calls
        cancellation = self.cancellation
        return cancellation.calls if cancellation is not None and not cancellation.state else None

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Yield every deadline; of equal ones, the first counts."""
        expiration = deadline_after(self.scheduled_time, self.schedule_to_close_timeout)
        start = (
            deadline_after(self.scheduled_time, self.schedule_to_start_timeout) if self.started_time is None else None
        )
        close = deadline_after(self.started_time, self.start_to_close_timeout)
        for deadline, kind in (
            (expiration, TimeoutType.SCHEDULE_TO_CLOSE),
            (start, TimeoutType.SCHEDULE_TO_START),
            (close, TimeoutType.START_TO_CLOSE),
        ):
            if deadline is not None:
                yield deadline, kind

    def call_deadline(self, calls: HandlerCalls) -> datetime:
        """The deadline for the response to a call."""
        ends = (deadline for deadline, _ in self.deadlines())
        return min((calls.due + REQUEST_TIMEOUT, *ends)) - _ANSWER_BUFFER

    def too_late_for(self, calls: HandlerCalls) -> TimeoutType | None:
        """The timeout that leaves no time for a call; None if there is time."""
        ends = sorted((deadline, kind) for deadline, kind in self.deadlines())
        return ends[0][1] if ends and ends[0][0] - calls.due < SHORTEST_REQUEST else None


# The run


class RunStatus(StrEnum):
    """The status of a run (temporal.api.enums.v1.WorkflowExecutionStatus)."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    CONTINUED_AS_NEW = "ContinuedAsNew"
    TERMINATED = "Terminated"
    TIMED_OUT = "TimedOut"


class TaskFailure(StoredStruct, frozen=True, kw_only=True):
    """The decider could not decide about the first undecided event. It is retried at `next_attempt_time`."""

    attempt: int
    message: str
    reason: str = ""
    """A specific reason as one CamelCase word, if there is one."""
    next_attempt_time: datetime


class CircuitResult(StrEnum):
    """The meaning of the end of an attempt for a circuit breaker."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RELEASED = "Released"
    """It ended for a reason unrelated to the called service: lost, canceled, or a failure that is not retried."""


class CircuitReport(StoredStruct, frozen=True, kw_only=True):
    """The end of an attempt, to report to a circuit breaker."""

    policy: str
    """Name of the RetryPolicy that has the circuit breaker."""
    result: CircuitResult
    time: datetime


class RunState(StoredStruct, frozen=True, kw_only=True):
    """A run between two steps."""

    workflow_id: str = ""
    run_id: str = ""
    """Run ID. After a reset, it is the ID of the new run, so that derived names differ from those of the other run."""
    status: RunStatus = RunStatus.RUNNING
    next_event_id: int = 1
    history_size: int = 0
    """Bytes of all events so far, as JSON."""
    suggested_event_id: int = 0
    """The first event at which continue-as-new is suggested; 0: not yet."""
    start_time: datetime
    """When its history begins; after a reset, when the history of the other run begins."""
    reset_time: datetime | None = None
    """When the run began, if a reset created it."""
    close_time: datetime | None = None
    run_deadline: datetime | None = None
    """When the run timeout or the execution timeout ends, whichever is first."""
    run_timeout: timedelta | None = None
    """The run timeout; None also if an older version recorded the start."""
    expiration: datetime | None = None
    """When the execution timeout of the whole chain ends."""
    first_decision_time: datetime | None = None
    """The earliest time of the first decision: the end of a start delay or retry backoff, or earlier if an update arrived."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first run in a series of retries started; None: this is the first."""
    retry_policy: RetryPolicy | None = None
    successor: str = ""
    """Name of the WorkflowRun that would continue or retry this one."""
    cancel_requested: bool = False
    signals: int = 0
    """Number of received signals."""
    paused: PauseInfo | None = None
    activities: dict[str, PendingActivity] = {}
    """Open activities by scheduled event ID (decimal, because the keys of a JSON object are strings)."""
    left_activities: dict[str, PendingActivity] = {}
    """Activities that were open when a worker-decided run closed, and a closed standalone activity, without their inputs. Clients
    can still describe them."""
    holds: dict[str, HeldLimits] = {}
    """The WorkflowLimits that steps hold, by scheduled event ID."""
    timers: dict[str, PendingTimer] = {}
    """Open timers by timer ID."""
    children: dict[str, PendingChild] = {}
    """By initiated event ID."""
    externals: dict[str, PendingExternal] = {}
    """By initiated event ID."""
    operations: dict[str, PendingOperation] = {}
    """Nexus operations, by scheduled event ID."""
    left_operations: dict[str, PendingOperation] = {}
    """A closed standalone Nexus operation, without its input. Clients can still describe it."""
    callbacks: dict[str, PendingCallback] = {}
    """Nexus operations of other runs: by number if the end of this run completes them, and by ``<event ID>/<number>`` if the end
    of an update does."""
    markers: dict[str, ev.MarkerRecorded] = {}
    """Markers whose dead letters are not created yet, by event ID."""
    kept: dict[str, KeptResult] = {}
    """In a retry: results of the previous run, by the ID of the activity or child that has not been scheduled again yet. No event
    records them."""
    start_successor: bool = False
    """In a closed run: whether the next run of the chain must still be created."""
    successor_refused: str = ""
    """In a closed run: why the next run of the chain cannot be created."""
    memory: Any = None
    """The decider's own state, opaque to the engine."""
    code: Code | None = None
    """The state for Temporal SDK workers that decide the run; None if the decider runs in this process."""
    standalone: bool = False
    """Whether the run is a standalone activity or a standalone Nexus operation."""

    # Not recorded by events:
    reports: dict[str, CircuitReport] = {}
    """Undelivered reports to circuit breakers, by ``<scheduled event ID>/<attempt>``."""
    undecided: tuple[ev.AnyEvent, ...] = ()
    """Events without a decision, because the run is paused or the decider could not decide."""
    unfinished: bool = False
    """Whether the decider has stopped in the middle of a decision and must continue."""
    task: TaskFailure | None = None
    """The failure of the last attempt to decide; None if it succeeded."""
    requests: tuple[str, ...] = ()
    """IDs of applied requests whose clients may not have the answer yet."""

    @property
    def began(self) -> datetime:
        """When the run itself began: its timeouts count from here."""
        return self.reset_time or self.start_time

    @property
    def pause(self) -> PauseInfo | None:
        """Who paused the run or its standalone activity; None if it is not paused."""
        if self.paused is not None or not self.standalone:
            return self.paused
        return next((each.pause for each in self.open_activities() if each.paused), None)

    @property
    def ended_undecided(self) -> bool:
        """Whether the run was refused, or ended before its definition decided anything."""
        return self.closed and self.memory is None and not self.for_clients

    @property
    def for_clients(self) -> bool:
        """Whether Temporal's clients get the payloads of the run, because workers decide it or it is standalone."""
        return self.code is not None or self.standalone

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self.status is not RunStatus.RUNNING

    @property
    def has_pending_work(self) -> bool:
        """Whether a closed run still has effects."""
        left = self.children or self.externals or self.markers or self.start_successor or self.reports
        return self.closed and (bool(left) or any(not callback.state for callback in self.callbacks.values()))

    def is_due(self, callback: PendingCallback) -> bool:
        """Whether the operation of a callback can be completed now, and is not yet."""
        if callback.state:
            return False
        if not callback.update_id:
            return self.closed and not self.start_successor
        return self.closed or callback.rejection is not None or self.has_completed(callback.update_id)

    def has_completed(self, update_id: str) -> bool:
        """Whether an update has completed."""
        record = self.code.updates.get(update_id) if self.code is not None else None
        return record is not None and bool(record.completed_event_id)

    def open_activities(self) -> Iterable[PendingActivity]:
        """The activities that have not ended. One whose end is buffered has, although no event records it yet."""
        ended = self.code.ended_activities() if self.code is not None else ()
        return (each for each in self.activities.values() if each.scheduled_event_id not in ended)

    def activity(self, scheduled_event_id: int) -> PendingActivity | None:
        """The open activity that an event scheduled; None if there is none, or if its end is buffered."""
        if self.code is not None and scheduled_event_id in self.code.ended_activities():
            return None
        return self.activities.get(str(scheduled_event_id))

    def defers_until(self, now: datetime) -> str:
        """When the decider gets what happens now, as the end of a sentence; empty if it gets it immediately."""
        if self.closed:
            return ""
        if self.paused is not None:
            return "once the run is unpaused"
        if self.first_decision_time is not None and self.first_decision_time > now:
            return f"when the run starts, at {format_time(self.first_decision_time)}"
        return f"once the run can continue: {self.task.message}" if self.task is not None else ""

    def is_held(self, now: datetime) -> bool:
        """Whether the run makes no decisions at a time, because it is paused or its start is delayed."""
        return self.paused is not None or self.is_delayed(now)

    def is_delayed(self, now: datetime) -> bool:
        """Whether the start of the run is delayed beyond a time."""
        return self.first_decision_time is not None and self.first_decision_time > now

    def may_start(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the attempt of an open activity may have a pod: it is due or runs, and is not paused."""
        if activity.started_time is not None:
            return not self.closed
        return not self.closed and not self.is_paused(activity) and activity.scheduled_time <= now

    def is_paused(self, activity: PendingActivity) -> bool:
        """Whether no attempt of an activity may start, because the activity or the whole run is paused."""
        return activity.paused or self.paused is not None

    def stuck(self) -> Iterator[PendingActivity]:
        """The open activities whose attempts are blocked."""
        return (activity for activity in self.open_activities() if activity.stuck)

    def queued(self) -> Iterator[PendingActivity]:
        """The open activities whose attempts wait for their turn in a WorkflowLimit."""
        return (activity for activity in self.open_activities() if activity.queued)

    def offered_task(self) -> WorkflowTask | None:
        """The workflow task, if it waits for a worker."""
        task = self.code.task if self.code is not None and self.paused is None else None
        return task if task is not None and task.started_time is None else None

    def offered_activities(self, now: datetime) -> Iterator[PendingActivity]:
        """The open activities whose attempts wait for a worker."""
        for activity in self.open_activities():
            if activity.by_worker and activity.started_time is None and self.may_start(activity, now):
                yield activity

    def offered_calls(self, now: datetime) -> Iterator[tuple[PendingOperation, HandlerCalls]]:
        """The Nexus operations whose handlers must be called, to start or to cancel them."""
        known = self.code.operations_buffered() if self.code is not None else frozenset()
        for operation in () if self.closed else self.operations.values():
            calls = operation.open_call
            if calls is None or calls.due > now or operation.scheduled_event_id in known:
                continue
            if operation.too_late_for(calls) is None and now < operation.call_deadline(calls):
                yield operation, calls

    def suggests_continue_as_new(self, event: ev.AnyEvent) -> bool:
        """Whether the history was long enough at `event` to suggest continue-as-new."""
        return 0 < self.suggested_event_id <= event.event_id

    def with_activity(self, activity: PendingActivity) -> "RunState":
        """This state with `activity` added or replaced."""
        return msgspec.structs.replace(self, activities={**self.activities, str(activity.scheduled_event_id): activity})


def closing_failure(state: RunState, event: ev.Event) -> Failure | None:
    """Why a run closed, like `perdure.engine.events.failure_of`; for a timeout of the run, with its kind and length."""
    failure = ev.failure_of(event)
    if failure is None or not isinstance(event, ev.WorkflowExecutionTimedOut) or state.run_deadline is None:
        return failure
    if state.expiration is not None and state.expiration <= state.run_deadline:
        reason = "the executionTimeout of the workflow has passed"
    else:
        limit = state.run_timeout or state.run_deadline - (state.first_decision_time or state.began)
        reason = f"the runTimeout of {show_duration(limit)} has passed"
    return msgspec.structs.replace(failure, message=f"{failure.message}: {reason}")
