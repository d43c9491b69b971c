"""State: what the engine knows of a run between two passes, and how events change it.

``state = fold(events)``, but for what Temporal too keeps beside the history: which attempt of an open activity is due, when it
started, its last failure and heartbeat, and the workflow task that could not be decided.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

import msgspec

from perdure.api.durations import show_duration
from perdure.engine import events as ev
from perdure.engine.activity_options import OpenActivityOptions
from perdure.engine.code import DEFAULT_TIMEOUT, Code, UpdateRecord, WorkflowTask, task_timeout
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.opaque import size_of
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import Callback, ParentClosePolicy, WorkflowStart
from perdure.engine.versioning import AUTO_UPGRADE, PINNED, Versioning

PODS_QUEUE = "pods/"
"""Before the name of a Workflow: the task queue of its activities, each attempt of which is a pod."""
WORKFLOWS_QUEUE = "workflows"
"""The task queue of those workflows that are no code: each type is the name of a Workflow."""
RECORD_START_AFTER = timedelta(seconds=2)
"""An attempt that a worker has for this long is recorded as started, so that a restart of the operator does not hand it out
again. Shorter ones cost no write of their own."""


class RunStatus(StrEnum):
    """How a run stands (temporal.api.enums.v1.WorkflowExecutionStatus)."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    CONTINUED_AS_NEW = "ContinuedAsNew"
    TERMINATED = "Terminated"
    TIMED_OUT = "TimedOut"


class PauseInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """That a run or an activity is paused, since when, and why."""

    reason: str = ""
    identity: str = ""
    time: datetime | None = None
    """None in states of earlier versions."""


class PendingActivity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An activity that has not closed."""

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
    """Where workers poll for it; empty: it is done by a pod."""
    header: Any = None
    priority: Any = None
    first_scheduled_time: datetime

    # Kept beside the history:
    attempt: int = 1
    """The attempt that runs, or that starts at `scheduled_time`; every pod is one attempt."""
    scheduled_time: datetime
    """When this attempt may start: in the future while it backs off."""
    losses: int = 0
    """How many of the earlier attempts were lost to the infrastructure: the retry policy does not count them."""
    uncounted: int = 0
    """How many of the earlier attempts, lost ones among them, it does not count because the activity was reset since."""
    reset: bool = False
    """It was reset during an attempt, which counts as the first now. The answer to the next heartbeat tells the worker."""
    forgets_heartbeat: bool = False
    """With `reset`: the next attempt gets no heartbeat details."""
    original: OpenActivityOptions | None = None
    """What the history says of its options, where a client has changed them."""
    started_time: datetime | None = None
    last_started_time: datetime | None = None
    """When the attempt before has started, of a standalone activity."""
    last_heartbeat_time: datetime | None = None
    heartbeats: int = 0
    """Heartbeats of workers in all attempts, of a standalone activity."""
    heartbeat_details: Any = None
    last_failure: Failure | None = None
    waiting_reason: str | None = None
    """Why the attempt had not started when it was last asked."""
    stuck: bool = False
    """Something is in the way of the attempt, and has been for a while."""
    paused: bool = False
    """No further attempt is started."""
    pause: PauseInfo | None = None
    """Who has paused it, when and why; None unless it is paused, and in states of earlier versions."""
    fence: str = ""
    """Which handing out of the attempt counts, where workers do it."""
    identity: str = ""
    """The worker that has it."""
    start_recorded: bool = False
    """Whether a commit has recorded that a worker has the attempt."""
    last_identity: str = ""
    """The worker that had the attempt before."""
    last_attempt_complete_time: datetime | None = None
    """When the attempt before ended."""

    cancel_requested: bool = False
    """The decider has asked it to stop; it is not retried any more."""
    cancel_requested_event_id: int = 0
    """The event that says so; 0 also where an older version has recorded it."""

    @property
    def tries(self) -> int:
        """The number of the attempt, as the retry policy counts."""
        return self.attempt - self.losses - self.uncounted

    @property
    def expiration(self) -> datetime | None:
        """When schedule-to-close ends."""
        return _after(self.first_scheduled_time, self.schedule_to_close_timeout)

    @property
    def start_deadline(self) -> datetime | None:
        """When schedule-to-start ends; None once the attempt has started."""
        return None if self.started_time else _after(self.scheduled_time, self.schedule_to_start_timeout)

    @property
    def close_deadline(self) -> datetime | None:
        """When start-to-close ends; None until the attempt has started."""
        return _after(self.started_time, self.start_to_close_timeout)

    @property
    def heartbeat_deadline(self) -> datetime | None:
        """When the next heartbeat is due, as far as is known; None until the attempt has started."""
        if self.started_time is None:
            return None
        return _after(max(self.started_time, self.last_heartbeat_time or self.started_time), self.heartbeat_timeout)

    @property
    def by_worker(self) -> bool:
        """Whether workers do it that poll a task queue, and no pod is made for an attempt."""
        return bool(self.task_queue) and not self.task_queue.startswith(PODS_QUEUE)

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Every deadline that is armed; of equal ones, the first counts.

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


class PendingTimer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A timer that has not fired."""

    started_event_id: int
    timer_id: str
    fire_time: datetime


class PendingChild(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A child that has not closed; in a closed run, one whose parent close policy has not been applied yet.

    It holds what is needed to start the child until that is done; then only what names it.
    """

    initiated_event_id: int
    child_id: str
    workflow_id: str
    workflow_type: str = ""
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    start: WorkflowStart | None = None
    """None once the child has started."""
    started_event_id: int = 0
    run_id: str = ""
    """Of the child's first run; empty until it has started."""


class PendingExternal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A signal to another run, or a request that it cancel itself, which that run has not recorded yet."""

    initiated_event_id: int
    workflow_id: str
    run_id: str = ""
    child_workflow_only: bool = False
    signal_id: str | None = None
    """None: it is a request to cancel."""
    signal_name: str = ""
    input: Any = None
    reason: str = ""
    header: Any = None
    control: str = ""


REQUEST_TIMEOUT = timedelta(seconds=10)
"""How long one call of the handler of a Nexus operation may take (component.nexusoperations.request.timeout)."""
SHORTEST_REQUEST = timedelta(seconds=1.5)
"""Where less is left of an operation's timeout, its handler is not called again (limit.request.timeout.min)."""
_ANSWER_BUFFER = timedelta(seconds=1)
"""So much earlier than the caller gives up, the handler's time is over (limit.dispatch.task.timeout.min)."""
_FIRST_BACKOFF, _LONGEST_BACKOFF = timedelta(seconds=1), timedelta(hours=1)


class HandlerCalls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The calls of the handler of a Nexus operation, each of which may fail and be repeated."""

    due: datetime
    """When the next one begins, or has begun."""
    attempts: int = 0
    """How many were answered."""
    last_attempt_complete_time: datetime | None = None
    last_failure: Failure | None = None

    @property
    def attempt(self) -> int:
        """Number of the call that is due, from 1."""
        return self.attempts + 1

    def answered(self, now: datetime) -> "HandlerCalls":
        """These calls after the last one."""
        return msgspec.structs.replace(self, attempts=self.attempt, last_attempt_complete_time=now, last_failure=None)

    def failed(self, failure: Failure, now: datetime) -> "HandlerCalls":
        """These calls after one that failed; the next follows later each time."""
        wait = min(_FIRST_BACKOFF * (1 << min(self.attempts, 16)), _LONGEST_BACKOFF)
        return msgspec.structs.replace(self.answered(now), last_failure=failure, due=now + wait)


class OperationCancellation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """That a Nexus operation is to be cancelled."""

    requested_event_id: int
    calls: HandlerCalls | None = None
    """None until the operation has started."""
    requested_time: datetime | None = None
    """When the handler could first be asked."""
    state: str = ""
    """How it was answered: Succeeded or Failed; empty: not yet."""


class PendingOperation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A Nexus operation that has not closed."""

    scheduled_event_id: int
    endpoint: str
    endpoint_id: str
    handler_namespace: str
    service: str
    operation: str
    input: Any = None
    """None once it has started."""
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    header: dict[str, str] = {}
    request_id: str
    scheduled_time: datetime
    started_time: datetime | None = None
    operation_token: str = ""
    cancellation: OperationCancellation | None = None
    calls: HandlerCalls

    @property
    def open_call(self) -> HandlerCalls | None:
        """The calls of which the next is due some time: to start it or, once it has started, to cancel it."""
        if self.started_time is None:
            return self.calls
        cancellation = self.cancellation
        return cancellation.calls if cancellation is not None and not cancellation.state else None

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Every deadline that is armed; of equal ones, the first counts."""
        expiration = _after(self.scheduled_time, self.schedule_to_close_timeout)
        start = _after(self.scheduled_time, self.schedule_to_start_timeout) if self.started_time is None else None
        close = _after(self.started_time, self.start_to_close_timeout)
        for deadline, kind in (
            (expiration, TimeoutType.SCHEDULE_TO_CLOSE),
            (start, TimeoutType.SCHEDULE_TO_START),
            (close, TimeoutType.START_TO_CLOSE),
        ):
            if deadline is not None:
                yield deadline, kind

    def call_deadline(self, calls: HandlerCalls) -> datetime:
        """Until when the handler has to answer a call."""
        ends = (deadline for deadline, _ in self.deadlines())
        return min((calls.due + REQUEST_TIMEOUT, *ends)) - _ANSWER_BUFFER

    def too_late_for(self, calls: HandlerCalls) -> TimeoutType | None:
        """The timeout that leaves no time for a call when it is due; None if there is time."""
        ends = sorted((deadline, kind) for deadline, kind in self.deadlines())
        return ends[0][1] if ends and ends[0][0] - calls.due < SHORTEST_REQUEST else None


class PendingCallback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the end of the run completes."""

    callback: Callback
    registration_time: datetime
    request_id: str = ""
    """Of the start that has attached it to the open run; empty where it is from the start of the run."""
    event_id: int = 0
    """The event that tells of that; 0 where it is from the start of the run."""
    state: str = ""
    """Of a run that has closed: Succeeded or Failed; empty: it is still to be done, or waits for the end."""
    failure: Failure | None = None
    complete_time: datetime | None = None


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The decider could not decide the first of the undecided events; it is asked again at `next_attempt_time`."""

    attempt: int
    message: str
    reason: str = ""
    """Why, as one CamelCase word, where there is a better one than that nothing could be decided."""
    next_attempt_time: datetime


class CircuitResult(StrEnum):
    """What the end of an attempt means to a circuit breaker."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RELEASED = "Released"
    """It ended for a reason that says nothing of what it calls: lost, cancelled, or a failure that is not retried."""


class CircuitReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a circuit breaker has to hear of an attempt that has ended."""

    policy: str
    """Name of the RetryPolicy whose breaker that is."""
    result: CircuitResult
    time: datetime


class RunState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run between two passes."""

    workflow_id: str = ""
    run_id: str = ""
    """Of the run; of one that was reset, the new run's from there on: what is named by it is not what the other run has named."""
    status: RunStatus = RunStatus.RUNNING
    next_event_id: int = 1
    history_size: int = 0
    """Bytes of all events so far, as JSON."""
    suggested_event_id: int = 0
    """From this event on, continue-as-new is suggested; 0: not yet."""
    start_time: datetime
    """When its history begins, also that of a run which was reset."""
    reset_time: datetime | None = None
    """When the run began, if it began with the history of another one."""
    close_time: datetime | None = None
    run_deadline: datetime | None = None
    """The earlier of run timeout and execution timeout."""
    run_timeout: timedelta | None = None
    """How long the run may take; None also where an older version has recorded the start."""
    expiration: datetime | None = None
    """When the execution timeout of the whole chain ends."""
    first_decision_time: datetime | None = None
    """Nothing is decided before: the end of a start delay, or of the wait before a retry; earlier if an update came."""
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first of the runs that retry each other has started; None: this is the first."""
    retry_policy: RetryPolicy | None = None
    successor: str = ""
    """Name of the WorkflowRun that would continue or retry this one."""
    cancel_requested: bool = False
    signals: int = 0
    """How many were received."""
    paused: PauseInfo | None = None
    activities: dict[str, PendingActivity] = {}
    """By scheduled event id (decimal: the keys of a JSON object are strings)."""
    left_activities: dict[str, PendingActivity] = {}
    """Those that were open when a run of workers closed, and a standalone activity that has closed: without their input.
    Clients can still describe them."""
    timers: dict[str, PendingTimer] = {}
    """By timer id."""
    children: dict[str, PendingChild] = {}
    """By initiated event id."""
    externals: dict[str, PendingExternal] = {}
    """By initiated event id."""
    operations: dict[str, PendingOperation] = {}
    """Nexus operations, by scheduled event id."""
    callbacks: dict[str, PendingCallback] = {}
    """Nexus operations of others that the end of the run completes, numbered."""
    markers: dict[str, ev.MarkerRecorded] = {}
    """Markers somebody still has to act on, by event id: dead letters that are to be written."""
    start_successor: bool = False
    """In a closed run: the next run of the chain is still to be made."""
    successor_refused: str = ""
    """In a closed run: why the next run of the chain was not made, and will not be."""
    memory: Any = None
    """The decider's own state, opaque to the engine."""
    code: Code | None = None
    """Where Temporal SDK workers decide; None where the decider runs in this process."""
    standalone: bool = False
    """The run is a standalone activity."""

    # Kept beside the history:
    reports: dict[str, CircuitReport] = {}
    """What circuit breakers still have to hear, by ``<scheduled event id>/<attempt>``."""
    undecided: tuple[ev.AnyEvent, ...] = ()
    """Events that the decider has not been asked about yet: while the run is paused, or nobody could decide."""
    unfinished: bool = False
    """The decider has stopped in the middle of a decision, and is to go on."""
    task: TaskFailure | None = None
    """None unless the last attempt to decide failed."""
    requests: tuple[str, ...] = ()
    """Requests that were recorded, and whose askers may not know it yet."""

    @property
    def began(self) -> datetime:
        """When the run itself began: its timeouts count from here."""
        return self.reset_time or self.start_time

    @property
    def pause(self) -> PauseInfo | None:
        """Who has paused the run, or what it does as a standalone activity; None where it is not paused."""
        if self.paused is not None or not self.standalone:
            return self.paused
        return next((each.pause for each in self.activities.values() if each.paused), None)

    @property
    def for_clients(self) -> bool:
        """Whether Temporal's clients get the payloads of the run: workers decide it, or it is a standalone activity."""
        return self.code is not None or self.standalone

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self.status is not RunStatus.RUNNING

    @property
    def has_chores(self) -> bool:
        """Whether something is left to be done after the run has closed."""
        left = self.children or self.externals or self.markers or self.start_successor or self.reports
        return self.closed and (bool(left) or any(not callback.state for callback in self.callbacks.values()))

    def activity(self, scheduled_event_id: int) -> PendingActivity | None:
        """The open activity of that event, or None."""
        return self.activities.get(str(scheduled_event_id))

    def may_start(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether the attempt of an open activity may have its pod: it is due, or runs already, and nobody holds it back."""
        if activity.started_time is not None:
            return not self.closed
        return not self.closed and not self.holds_back(activity) and activity.scheduled_time <= now

    def holds_back(self, activity: PendingActivity) -> bool:
        """Whether no attempt of an activity may start: it is paused, or the whole run."""
        return activity.paused or self.paused is not None

    def stuck(self) -> Iterator[PendingActivity]:
        """The open activities whose attempts something is in the way of."""
        return (activity for activity in self.activities.values() if activity.stuck)

    def offered_task(self) -> WorkflowTask | None:
        """The workflow task, if it waits for a worker."""
        task = self.code.task if self.code is not None and self.paused is None else None
        return task if task is not None and task.started_time is None else None

    def offered_activities(self, now: datetime) -> Iterator[PendingActivity]:
        """The open activities whose attempts wait for a worker."""
        for activity in self.activities.values():
            if activity.by_worker and activity.started_time is None and self.may_start(activity, now):
                yield activity

    def offered_calls(self, now: datetime) -> Iterator[tuple[PendingOperation, HandlerCalls]]:
        """The Nexus operations whose handlers are to be called, to start or to cancel them."""
        known = self.code.operations_buffered() if self.code is not None else frozenset()
        for operation in () if self.closed else self.operations.values():
            calls = operation.open_call
            if calls is None or calls.due > now or operation.scheduled_event_id in known:
                continue
            if operation.too_late_for(calls) is None and now < operation.call_deadline(calls):
                yield operation, calls

    def suggests_continuing(self, event: ev.AnyEvent) -> bool:
        """Whether the history was so long when `event` was recorded that the run should continue as new."""
        return 0 < self.suggested_event_id <= event.event_id

    def with_activity(self, activity: PendingActivity) -> "RunState":
        """This state with `activity` added or replaced."""
        return msgspec.structs.replace(self, activities={**self.activities, str(activity.scheduled_event_id): activity})


DEAD_LETTER = "DeadLetter"
"""Name of a marker whose details are to become a DeadLetter; it is kept in the state until that is written."""
SUGGEST_EVENTS = 10_000
"""Events from which on continue-as-new is suggested."""
SUGGEST_BYTES = 8 * 1024 * 1024
"""Bytes of history from which on continue-as-new is suggested."""


def apply(state: RunState | None, event: ev.AnyEvent) -> RunState:
    """Fold one event into the state. `state` is None before the first event.

    Raises:
        ValueError: the event does not follow the state (a gap, or an event after the closing one).
    """
    expected = state.next_event_id if state else 1
    if event.event_id != expected:
        raise ValueError(f"history is out of order: expected event {expected}, got {event.event_id}")
    size = size_of(_encode(event))
    if isinstance(event, ev.WorkflowExecutionStarted):
        return RunState(
            next_event_id=2,
            history_size=size,
            start_time=event.event_time,
            run_deadline=min(
                filter(
                    None,
                    (
                        _after(
                            event.event_time + (event.first_workflow_task_backoff or timedelta(0)),
                            event.workflow_run_timeout,
                        ),
                        event.workflow_execution_expiration_time,
                    ),
                ),
                default=None,
            ),
            run_timeout=event.workflow_run_timeout,
            expiration=event.workflow_execution_expiration_time,
            first_decision_time=_after(event.event_time, event.first_workflow_task_backoff),
            attempt=event.attempt,
            retries_since=event.retries_since,
            retry_policy=event.retry_policy,
            workflow_id=event.workflow_id,
            run_id=event.original_execution_run_id,
            successor=event.successor,
            code=_code(event) if event.task_queue else None,
            standalone=event.standalone,
            callbacks={
                str(number): PendingCallback(callback=callback, registration_time=event.event_time)
                for number, callback in enumerate(event.completion_callbacks, 1)
            },
        )
    if state is None:
        raise ValueError("a history begins with WorkflowExecutionStarted")
    if state.closed:
        raise ValueError(f"event {event.event_id} follows the closing event")
    grown = msgspec.structs.replace(state, next_event_id=event.event_id + 1, history_size=state.history_size + size)
    if not state.suggested_event_id and (event.event_id > SUGGEST_EVENTS or grown.history_size > SUGGEST_BYTES):
        grown = msgspec.structs.replace(grown, suggested_event_id=event.event_id)
    return _apply(grown, event)


_encode = msgspec.json.Encoder().encode

_CLOSED_AS: dict[type[ev.Event], RunStatus] = {
    ev.WorkflowExecutionCanceled: RunStatus.CANCELLED,
    ev.WorkflowExecutionCompleted: RunStatus.COMPLETED,
    ev.WorkflowExecutionContinuedAsNew: RunStatus.CONTINUED_AS_NEW,
    ev.WorkflowExecutionFailed: RunStatus.FAILED,
    ev.WorkflowExecutionTerminated: RunStatus.TERMINATED,
    ev.WorkflowExecutionTimedOut: RunStatus.TIMED_OUT,
}


_Entry = TypeVar("_Entry")


def _without(entries: dict[str, _Entry], key: Any) -> dict[str, _Entry]:
    kept = dict(entries)
    kept.pop(str(key), None)
    return kept


def _apply(state: RunState, event: ev.AnyEvent) -> RunState:  # noqa: C901, PLR0912 (one case for each event)
    change = msgspec.structs.replace
    match event:
        case ev.ActivityTaskScheduled():
            return state.with_activity(_pending_activity(event))
        case (
            ev.ActivityTaskCompleted() | ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut() | ev.ActivityTaskCanceled()
        ):
            key = str(event.scheduled_event_id)
            left = _without_payloads({key: state.activities[key]}) if state.standalone else state.left_activities
            return change(state, activities=_without(state.activities, key), left_activities=left)
        case ev.ActivityTaskCancelRequested():
            activity = state.activities[str(event.scheduled_event_id)]
            return state.with_activity(
                change(activity, cancel_requested=True, cancel_requested_event_id=event.event_id)
            )
        case ev.TimerStarted():
            timer = PendingTimer(
                started_event_id=event.event_id,
                timer_id=event.timer_id,
                fire_time=event.event_time + event.start_to_fire_timeout,
            )
            return change(state, timers={**state.timers, event.timer_id: timer})
        case ev.TimerFired() | ev.TimerCanceled():
            return change(state, timers=_without(state.timers, event.timer_id))
        case ev.StartChildWorkflowExecutionInitiated():
            return _with_child(
                state,
                PendingChild(
                    initiated_event_id=event.event_id,
                    child_id=event.child_id,
                    workflow_id=event.start.workflow_id,
                    workflow_type=event.start.workflow_type,
                    parent_close_policy=event.parent_close_policy,
                    start=event.start,
                ),
            )
        case ev.ChildWorkflowExecutionStarted():
            child = state.children[str(event.initiated_event_id)]
            return _with_child(state, change(child, start=None, started_event_id=event.event_id, run_id=event.run_id))
        case (
            ev.StartChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionCompleted()
            | ev.ChildWorkflowExecutionFailed()
            | ev.ChildWorkflowExecutionCanceled()
            | ev.ChildWorkflowExecutionTimedOut()
            | ev.ChildWorkflowExecutionTerminated()
        ):
            return change(state, children=_without(state.children, event.initiated_event_id))
        case ev.SignalExternalWorkflowExecutionInitiated() | ev.RequestCancelExternalWorkflowExecutionInitiated():
            return change(state, externals={**state.externals, str(event.event_id): _pending_external(event)})
        case (
            ev.ExternalWorkflowExecutionSignaled()
            | ev.SignalExternalWorkflowExecutionFailed()
            | ev.ExternalWorkflowExecutionCancelRequested()
            | ev.RequestCancelExternalWorkflowExecutionFailed()
        ):
            return change(state, externals=_without(state.externals, event.initiated_event_id))
        case (
            ev.NexusOperationScheduled()
            | ev.NexusOperationStarted()
            | ev.NexusOperationCancelRequested()
            | ev.NexusOperationCancelRequestCompleted()
            | ev.NexusOperationCancelRequestFailed()
        ):
            operation = operation_after(state.operations.get(str(event_operation(event))), event)
            if operation is None:
                return state  # it has ended meanwhile
            return change(state, operations={**state.operations, str(operation.scheduled_event_id): operation})
        case (
            ev.NexusOperationCompleted()
            | ev.NexusOperationFailed()
            | ev.NexusOperationCanceled()
            | ev.NexusOperationTimedOut()
        ):
            return change(state, operations=_without(state.operations, event.scheduled_event_id))
        case ev.MarkerRecorded():
            if event.marker_name != DEAD_LETTER or state.code is not None:
                return state
            return change(state, markers={**state.markers, str(event.event_id): event})
        case ev.WorkflowExecutionOptionsUpdated():
            attached = {
                str(number): PendingCallback(
                    callback=callback,
                    registration_time=event.event_time,
                    request_id=event.attached_request_id,
                    event_id=event.event_id,
                )
                for number, callback in enumerate(event.attached_completion_callbacks, len(state.callbacks) + 1)
            }
            return change(state, callbacks={**state.callbacks, **attached}, code=_with_override(state.code, event))
        case ev.WorkflowExecutionSignaled():
            return change(state, signals=state.signals + 1)
        case ev.WorkflowExecutionCancelRequested():
            return change(state, cancel_requested=True)
        case ev.WorkflowExecutionPaused():
            return change(state, paused=PauseInfo(reason=event.reason, identity=event.identity, time=event.event_time))
        case ev.WorkflowExecutionUnpaused():
            return change(state, paused=None)
        case ev.ActivityTaskStarted():
            return state
        case ev.WorkflowTaskFailed() if event.cause == "ResetWorkflow":
            return _reset(state, event)
        case (
            ev.WorkflowTaskScheduled()
            | ev.WorkflowTaskStarted()
            | ev.WorkflowTaskCompleted()
            | ev.WorkflowTaskFailed()
            | ev.WorkflowTaskTimedOut()
            | ev.UpsertWorkflowSearchAttributes()
            | ev.WorkflowPropertiesModified()
            | ev.WorkflowExecutionUpdateAdmitted()
            | ev.WorkflowExecutionUpdateAccepted()
            | ev.WorkflowExecutionUpdateCompleted()
        ):
            assert state.code is not None
            first = state.first_decision_time
            if first is not None and isinstance(event, ev.WorkflowTaskScheduled):
                first = min(first, event.event_time)  # an update has not waited for the end of the delay
            return change(state, first_decision_time=first, code=_apply_to_code(state.code, event))
        case ev.WorkflowExecutionStarted():
            raise ValueError("a history begins only once")
        case _:
            return _closed(state, event)


def _code(event: ev.WorkflowExecutionStarted) -> Code:
    return Code(
        workflow_type=event.workflow_type,
        task_queue=event.task_queue or "",
        task_timeout=task_timeout(event.workflow_task_timeout, event.workflow_run_timeout),
        cron_schedule=event.cron_schedule,
        priority=event.priority,
        memo=event.memo or {},
        search_attributes=event.search_attributes,
        versioning=_versioning(event),
    )


def _versioning(event: ev.WorkflowExecutionStarted) -> Versioning:
    upgrade = event.inherited_auto_upgrade_info
    if upgrade is not None:
        return Versioning(
            behavior=AUTO_UPGRADE,
            version=upgrade.source_deployment_version,
            override=event.versioning_override,
            initial_behavior=upgrade.continue_as_new_initial_versioning_behavior,
        )
    inherited = event.inherited_pinned_version
    behavior = PINNED if inherited is not None else ""
    return Versioning(behavior=behavior, version=inherited, override=event.versioning_override)


def _with_override(code: Code | None, event: ev.WorkflowExecutionOptionsUpdated) -> Code | None:
    if code is None or (event.versioning_override is None and not event.unset_versioning_override):
        return code
    versioning = msgspec.structs.replace(code.versioning, override=event.versioning_override)
    return msgspec.structs.replace(code, versioning=versioning)


def _apply_to_code(code: Code, event: ev.AnyEvent) -> Code:
    change = msgspec.structs.replace
    match event:
        case ev.WorkflowTaskScheduled():
            task = WorkflowTask(
                attempt=event.attempt,
                scheduled_event_id=event.event_id,
                scheduled_time=event.event_time,
                original_scheduled_time=event.event_time,
                start_to_close_timeout=event.start_to_close_timeout,
                sticky_queue=event.task_queue if event.sticky else "",
            )
            return change(code, task=task, wanted=False)
        case ev.WorkflowTaskCompleted():
            return change(
                code,
                task=None,
                previous_started_event_id=event.started_event_id,
                closing=False,
                versioning=code.versioning.completed(event.versioning_behavior, event.deployment_version),
            )
        case ev.WorkflowTaskFailed() | ev.WorkflowTaskTimedOut():
            return change(code, task=None)
        case ev.UpsertWorkflowSearchAttributes():
            return change(code, search_attributes=_upserted(code.search_attributes, event.search_attributes))
        case ev.WorkflowPropertiesModified():
            return change(code, memo=_upserted(code.memo, event.upserted_memo))
        case ev.WorkflowExecutionUpdateAdmitted():
            return change(code, admitted={**code.admitted, event.update_id: event.event_id})
        case ev.WorkflowExecutionUpdateAccepted():
            record = UpdateRecord(accepted_event_id=event.event_id)
            admitted = _without(code.admitted, event.update_id)
            return change(code, updates={**code.updates, event.update_id: record}, admitted=admitted)
        case ev.WorkflowExecutionUpdateCompleted():
            record = UpdateRecord(accepted_event_id=event.accepted_event_id, completed_event_id=event.event_id)
            return change(code, updates={**code.updates, event.update_id: record})
        case _:
            return code


OperationEvent: TypeAlias = (
    ev.NexusOperationScheduled
    | ev.NexusOperationStarted
    | ev.NexusOperationCancelRequested
    | ev.NexusOperationCancelRequestCompleted
    | ev.NexusOperationCancelRequestFailed
)


def event_operation(event: OperationEvent) -> int:
    """The event that has scheduled the operation which an event is about."""
    return event.event_id if isinstance(event, ev.NexusOperationScheduled) else event.scheduled_event_id


def operation_after(before: PendingOperation | None, event: OperationEvent) -> PendingOperation | None:
    """An operation after an event; None if there is no such operation any more."""
    change = msgspec.structs.replace
    if isinstance(event, ev.NexusOperationScheduled):
        return PendingOperation(
            scheduled_event_id=event.event_id,
            endpoint=event.endpoint,
            endpoint_id=event.endpoint_id,
            handler_namespace=event.handler_namespace,
            service=event.service,
            operation=event.operation,
            input=event.input,
            schedule_to_close_timeout=event.schedule_to_close_timeout,
            schedule_to_start_timeout=event.schedule_to_start_timeout,
            start_to_close_timeout=event.start_to_close_timeout,
            header=event.nexus_header,
            request_id=event.request_id,
            scheduled_time=event.event_time,
            calls=HandlerCalls(due=event.event_time),
        )
    if before is None:
        return None
    cancellation = before.cancellation
    match event:
        case ev.NexusOperationStarted():
            if cancellation is not None:
                cancellation = _may_cancel(cancellation, event.event_time)
            return change(
                before,
                input=None,
                handler_namespace=event.handler_namespace,
                started_time=event.event_time,
                operation_token=event.operation_token,
                cancellation=cancellation,
                calls=before.calls.answered(event.event_time),
            )
        case ev.NexusOperationCancelRequested():
            cancellation = OperationCancellation(requested_event_id=event.event_id)
            if before.started_time is not None:
                cancellation = _may_cancel(cancellation, event.event_time)
        case _:
            assert cancellation is not None
            done = isinstance(event, ev.NexusOperationCancelRequestCompleted)
            calls = cancellation.calls and cancellation.calls.answered(event.event_time)
            if calls is not None and isinstance(event, ev.NexusOperationCancelRequestFailed):
                calls = change(calls, last_failure=event.failure)
            cancellation = change(cancellation, state="Succeeded" if done else "Failed", calls=calls)
    return change(before, cancellation=cancellation)


def _may_cancel(cancellation: OperationCancellation, time: datetime) -> OperationCancellation:
    return msgspec.structs.replace(cancellation, calls=HandlerCalls(due=time), requested_time=time)


def _upserted(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**before, **changes}.items() if value is not None}


def _reset(state: RunState, event: ev.WorkflowTaskFailed) -> RunState:
    """What was another run's goes on as this one's. Its dead letters that other run has written."""
    anew = {"first_scheduled_time": event.event_time, "scheduled_time": event.event_time}
    return msgspec.structs.replace(
        state,
        reset_time=event.event_time,
        first_decision_time=None,
        run_deadline=event.workflow_run_expiration_time,
        expiration=event.workflow_execution_expiration_time,
        run_id=event.new_run_id,
        successor=event.successor,
        activities={key: msgspec.structs.replace(each, **anew) for key, each in state.activities.items()},
        operations={key: _called_again(each, event.event_time) for key, each in state.operations.items()},
        markers={},
        code=msgspec.structs.replace(state.code, task=None, wanted=True) if state.code is not None else None,
    )


def _called_again(operation: PendingOperation, time: datetime) -> PendingOperation:
    """An operation of a run that was reset. Its request ID stays the same, so the handler finds what it has started."""
    if operation.started_time is not None:
        return operation
    return msgspec.structs.replace(operation, calls=HandlerCalls(due=time))


def _closed(state: RunState, event: ev.ClosingEvent) -> RunState:
    """What is open ends with the run; what others still have to hear of stays, until they have."""
    kept = event.reset_event_id if isinstance(event, ev.WorkflowExecutionTerminated) else 0
    return msgspec.structs.replace(
        state,
        status=_CLOSED_AS[type(event)],
        close_time=event.event_time,
        activities={},
        left_activities=state.left_activities | (_without_payloads(state.activities) if state.for_clients else {}),
        timers={},
        operations={},
        callbacks={} if kept else state.callbacks,
        children={
            key: child
            for key, child in state.children.items()
            if child.initiated_event_id > kept
            and (child.parent_close_policy is not ParentClosePolicy.ABANDON or child.start is not None)
        },
        externals={key: each for key, each in state.externals.items() if each.initiated_event_id > kept},
        start_successor=bool(getattr(event, "new_workflow_run", "")),
        paused=None,
        undecided=(),
        unfinished=False,
        task=None,
        code=state.code
        and msgspec.structs.replace(state.code, admitted={}, task=None, wanted=False, buffered=(), closing=False),
    )


def _without_payloads(activities: dict[str, PendingActivity]) -> dict[str, PendingActivity]:
    return {key: msgspec.structs.replace(each, input=None, header=None) for key, each in activities.items()}


def _pending_activity(event: ev.ActivityTaskScheduled) -> PendingActivity:
    due = event.event_time + (event.start_delay or timedelta(0))
    return PendingActivity(
        scheduled_event_id=event.event_id,
        activity_id=event.activity_id,
        activity_type=event.activity_type,
        input=event.input,
        schedule_to_close_timeout=event.schedule_to_close_timeout,
        schedule_to_start_timeout=event.schedule_to_start_timeout,
        start_to_close_timeout=event.start_to_close_timeout,
        heartbeat_timeout=event.heartbeat_timeout,
        retry_policy=event.retry_policy,
        task_queue=event.task_queue,
        header=event.header,
        priority=event.priority,
        first_scheduled_time=due,
        scheduled_time=due,
    )


def _with_child(state: RunState, child: PendingChild) -> RunState:
    return msgspec.structs.replace(state, children={**state.children, str(child.initiated_event_id): child})


def _pending_external(
    event: ev.SignalExternalWorkflowExecutionInitiated | ev.RequestCancelExternalWorkflowExecutionInitiated,
) -> PendingExternal:
    whom = PendingExternal(
        initiated_event_id=event.event_id,
        workflow_id=event.workflow_id,
        run_id=event.run_id,
        child_workflow_only=event.child_workflow_only,
        control=event.control,
    )
    if isinstance(event, ev.RequestCancelExternalWorkflowExecutionInitiated):
        return msgspec.structs.replace(whom, reason=event.reason)
    return msgspec.structs.replace(
        whom, signal_id=event.signal_id, signal_name=event.signal_name, input=event.input, header=event.header
    )


def beside_history_removed(state: RunState) -> RunState:
    """The state without what is kept beside the history: what a fold over all events must equal."""
    return msgspec.structs.replace(
        state,
        undecided=(),
        unfinished=False,
        task=None,
        requests=(),
        code=state.code
        and msgspec.structs.replace(
            state.code,
            admitted={},
            task=None,
            wanted=False,
            buffered=(),
            sticky_queue="",
            sticky_timeout=DEFAULT_TIMEOUT,
            failure="",
            closing=False,
            completed="",
        ),
        reports={},
        successor_refused="",
        **({"children": {}, "externals": {}, "callbacks": {}, "start_successor": False} if state.closed else {}),
        markers={},
        operations={key: _as_recorded(each) for key, each in state.operations.items()},
        activities=_as_scheduled(state.activities),
        left_activities=_as_scheduled(state.left_activities),
    )


def _as_recorded(operation: PendingOperation) -> PendingOperation:
    """An operation without the calls that have failed: only the history of the others tells."""
    calls, cancellation = HandlerCalls(due=operation.scheduled_time), operation.cancellation
    if cancellation is not None:
        cancellation = msgspec.structs.replace(cancellation, calls=None)
    return msgspec.structs.replace(operation, calls=calls, cancellation=cancellation)


def _as_scheduled(activities: dict[str, PendingActivity]) -> dict[str, PendingActivity]:
    return {
        k: msgspec.structs.replace(
            a,
            **(msgspec.structs.asdict(a.original) if a.original is not None else {}),
            attempt=1,
            scheduled_time=a.first_scheduled_time,
            losses=0,
            uncounted=0,
            reset=False,
            forgets_heartbeat=False,
            original=None,
            started_time=None,
            last_started_time=None,
            last_heartbeat_time=None,
            heartbeats=0,
            heartbeat_details=None,
            last_failure=None,
            waiting_reason=None,
            stuck=False,
            paused=False,
            pause=None,
            fence="",
            identity="",
            start_recorded=False,
            last_identity="",
            last_attempt_complete_time=None,
        )
        for k, a in activities.items()
    }


def timeout_message(kind: TimeoutType, limit: timedelta | None, message: str | None = None) -> str:
    """Say that an activity timed out: as Temporal's server begins, and then after how long.

    Args:
        kind: The timeout.
        limit: How long it is.
        message: What Temporal's server says where it says more.

    Returns:
        For instance `activity StartToClose timeout after 10s`.
    """
    said = message or f"activity {kind} timeout"
    if limit is None:
        return said
    return f"{said} (the timeout is {show_duration(limit)})" if message else f"{said} after {show_duration(limit)}"


def closing_failure(state: RunState, event: ev.Event) -> Failure | None:
    """Why a run closed, as `perdure.engine.events.failure_of`; a timeout of the run says which one, and how long it is."""
    failure = ev.failure_of(event)
    if failure is None or not isinstance(event, ev.WorkflowExecutionTimedOut) or state.run_deadline is None:
        return failure
    if state.expiration is not None and state.expiration <= state.run_deadline:
        told = "the executionTimeout of the workflow has passed"
    else:
        limit = state.run_timeout or state.run_deadline - (state.first_decision_time or state.began)
        told = f"the runTimeout of {show_duration(limit)} has passed"
    return msgspec.structs.replace(failure, message=f"{failure.message}: {told}")


def _after(start: datetime | None, length: timedelta | None) -> datetime | None:
    return None if start is None or length is None else start + length
