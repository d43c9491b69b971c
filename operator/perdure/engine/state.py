"""State: what the engine knows of a run between two passes, and how events change it.

``state = fold(events)``, but for what Temporal too keeps beside the history: which attempt of an open activity is due, when it
started, its last failure and heartbeat, and the workflow task that could not be decided.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

import msgspec

from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.retry import RetryPolicy


class RunStatus(StrEnum):
    """How a run stands (temporal.api.enums.v1.WorkflowExecutionStatus)."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATED = "Terminated"
    TIMED_OUT = "TimedOut"


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
    first_scheduled_time: datetime

    # Kept beside the history:
    attempt: int = 1
    """The attempt that runs, or that starts at `scheduled_time`; every pod is one attempt."""
    scheduled_time: datetime
    """When this attempt may start: in the future while it backs off."""
    losses: int = 0
    """How many of the earlier attempts were lost to the infrastructure: the retry policy does not count them."""
    started_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    heartbeat_details: Any = None
    last_failure: Failure | None = None
    waiting_reason: str | None = None
    """Why the attempt had not started when it was last asked."""

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

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Every deadline that is armed."""
        for deadline, kind in (
            (self.expiration, TimeoutType.SCHEDULE_TO_CLOSE),
            (self.start_deadline, TimeoutType.SCHEDULE_TO_START),
            (self.close_deadline, TimeoutType.START_TO_CLOSE),
            (self.heartbeat_deadline, TimeoutType.HEARTBEAT),
        ):
            if deadline is not None:
                yield deadline, kind

    def timeout_failure(self, kind: TimeoutType, message: str | None = None) -> Failure:
        """The failure of a timeout of this activity, with its last heartbeat's details and its last failure as the cause."""
        return Failure(
            kind=FailureKind.TIMEOUT,
            message=(message or f"activity {kind} timeout")
            + (f": the attempt has not started: {self.waiting_reason}" if self.waiting_reason else ""),
            timeout_type=kind,
            last_heartbeat_details=self.heartbeat_details,
            cause=self.last_failure,
        )


class PendingTimer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A timer that has not fired."""

    started_event_id: int
    timer_id: str
    fire_time: datetime


class UndecidedTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Events that a decider could not decide; it is asked again at `next_attempt_time`."""

    attempt: int
    message: str
    next_attempt_time: datetime
    events: tuple[ev.AnyEvent, ...]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run between two passes."""

    status: RunStatus = RunStatus.RUNNING
    next_event_id: int = 1
    start_time: datetime
    close_time: datetime | None = None
    run_deadline: datetime | None = None
    """The earlier of run timeout and execution timeout."""
    activities: dict[str, PendingActivity] = {}
    """By scheduled event id (decimal: the keys of a JSON object are strings)."""
    timers: dict[str, PendingTimer] = {}
    """By timer id."""
    task: UndecidedTask | None = None
    """None unless the last attempt to decide failed."""
    memory: Any = None
    """The decider's own state, opaque to the engine."""

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self.status is not RunStatus.RUNNING

    def activity(self, scheduled_event_id: int) -> PendingActivity | None:
        """The open activity of that event, or None."""
        return self.activities.get(str(scheduled_event_id))

    def with_activity(self, activity: PendingActivity) -> "State":
        """This state with `activity` added or replaced."""
        return msgspec.structs.replace(self, activities={**self.activities, str(activity.scheduled_event_id): activity})


def apply(state: State | None, event: ev.AnyEvent) -> State:
    """Fold one event into the state. `state` is None before the first event.

    Raises:
        ValueError: the event does not follow the state (a gap, or an event after the closing one).
    """
    expected = state.next_event_id if state else 1
    if event.event_id != expected:
        raise ValueError(f"history is out of order: expected event {expected}, got {event.event_id}")
    if isinstance(event, ev.WorkflowExecutionStarted):
        return State(
            next_event_id=2,
            start_time=event.event_time,
            run_deadline=min(
                filter(
                    None,
                    (
                        _after(event.event_time, event.workflow_run_timeout),
                        event.workflow_execution_expiration_time,
                    ),
                ),
                default=None,
            ),
        )
    if state is None:
        raise ValueError("a history begins with WorkflowExecutionStarted")
    if state.closed:
        raise ValueError(f"event {event.event_id} follows the closing event")
    return _apply(msgspec.structs.replace(state, next_event_id=event.event_id + 1), event)


_CLOSED_AS: dict[type[ev.Event], RunStatus] = {
    ev.WorkflowExecutionCompleted: RunStatus.COMPLETED,
    ev.WorkflowExecutionFailed: RunStatus.FAILED,
    ev.WorkflowExecutionTerminated: RunStatus.TERMINATED,
    ev.WorkflowExecutionTimedOut: RunStatus.TIMED_OUT,
}


def _apply(state: State, event: ev.AnyEvent) -> State:
    match event:
        case ev.ActivityTaskCompleted() | ev.ActivityTaskFailed() | ev.ActivityTaskTimedOut():
            closed = str(event.scheduled_event_id)
            return msgspec.structs.replace(state, activities={k: a for k, a in state.activities.items() if k != closed})
        case ev.ActivityTaskScheduled():
            return state.with_activity(
                PendingActivity(
                    scheduled_event_id=event.event_id,
                    activity_id=event.activity_id,
                    activity_type=event.activity_type,
                    input=event.input,
                    schedule_to_close_timeout=event.schedule_to_close_timeout,
                    schedule_to_start_timeout=event.schedule_to_start_timeout,
                    start_to_close_timeout=event.start_to_close_timeout,
                    heartbeat_timeout=event.heartbeat_timeout,
                    retry_policy=event.retry_policy,
                    first_scheduled_time=event.event_time,
                    scheduled_time=event.event_time,
                )
            )
        case ev.ActivityTaskStarted():
            return state
        case ev.TimerFired():
            return msgspec.structs.replace(state, timers={k: t for k, t in state.timers.items() if k != event.timer_id})
        case ev.TimerStarted():
            timer = PendingTimer(
                started_event_id=event.event_id,
                timer_id=event.timer_id,
                fire_time=event.event_time + event.start_to_fire_timeout,
            )
            return msgspec.structs.replace(state, timers={**state.timers, event.timer_id: timer})
        case (
            ev.WorkflowExecutionCompleted()
            | ev.WorkflowExecutionFailed()
            | ev.WorkflowExecutionTerminated()
            | ev.WorkflowExecutionTimedOut()
        ):
            return msgspec.structs.replace(
                state,
                status=_CLOSED_AS[type(event)],
                close_time=event.event_time,
                activities={},
                timers={},
                task=None,
            )
        case ev.WorkflowExecutionStarted():
            raise ValueError("a history begins only once")
        case _:
            assert_never(event)


def beside_history_removed(state: State) -> State:
    """The state without what is kept beside the history: what a fold over all events must equal."""
    return msgspec.structs.replace(
        state,
        task=None,
        activities={
            k: msgspec.structs.replace(
                a,
                attempt=1,
                scheduled_time=a.first_scheduled_time,
                losses=0,
                started_time=None,
                last_heartbeat_time=None,
                heartbeat_details=None,
                last_failure=None,
                waiting_reason=None,
            )
            for k, a in state.activities.items()
        },
    )


def _after(start: datetime | None, length: timedelta | None) -> datetime | None:
    return None if start is None or length is None else start + length
