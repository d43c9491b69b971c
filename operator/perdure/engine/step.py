"""One pass over a run: inputs and due deadlines become events, events become decisions, decisions become events again.

``step`` is the whole engine: pure, with the time as an argument. What it returns is committed in one write; what the
committed state asks for (pods, timers) is done afterwards and may be done again.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

import msgspec

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.decider import Decider, UndecidableError
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import decide_retry
from perdure.engine.state import PendingActivity, State, UndecidedTask, apply

MAX_ROUNDS = 1_000
"""Decisions one pass may take. A run that wants more gets them in further passes, after other runs had their turn."""

_MAX_FAILURE_MESSAGE = 4_096
_LONGEST_TASK_BACKOFF = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Retired:
    """An attempt whose end this pass has recorded: its pod is no longer needed, and is stopped if it still runs."""

    scheduled_event_id: int
    attempt: int
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Transition:
    """What a pass has come to."""

    state: State
    events: tuple[ev.AnyEvent, ...]
    """New events, to be appended to the history."""
    retired: tuple[Retired, ...]
    durable: bool
    """Whether this must be committed. What is only for show (an attempt runs, a heartbeat came) waits for the next commit."""
    more: bool
    """Whether the pass stopped at `MAX_ROUNDS` and should go on at once."""


def start(attributes: ev.WorkflowExecutionStarted, decider: Decider) -> Transition:
    """The first pass of a run: `attributes` is its first event."""
    first = _Pass(apply(None, attributes), attributes.event_time, decider)
    first.events.append(attributes)
    first.undecided.append(attributes)
    return first.run((), frozenset())


def step(state: State, inputs: Sequence[inp.AttemptInput], now: datetime, decider: Decider) -> Transition:
    """Advance a run.

    Args:
        state: where it stands.
        inputs: what has been observed since, in order. Stale ones (another attempt, a closed activity) change nothing.
        now: the time, UTC. Deadlines up to now fire, the earliest first, after the inputs: a result that is there counts,
            also a late one.
        decider: decides what follows.
    """
    if state.closed:
        return Transition(state, (), (), durable=False, more=False)
    checked = frozenset(i.scheduled_event_id for i in inputs if isinstance(i, inp.HeartbeatRead))
    return _Pass(state, now, decider).run(inputs, checked)


def terminate(state: State, reason: str, now: datetime, decider: Decider) -> Transition:
    """Stop a run at once, without asking anyone: what is open is retired, nothing is decided any more.

    Args:
        state: where it stands; open.
        reason: why, as a sentence.
        now: the time, UTC.
        decider: not asked.
    """
    last = _Pass(state, now, decider)
    last.close(ev.WorkflowExecutionTerminated(reason=reason, **last.here))
    return Transition(last.state, tuple(last.events), tuple(last.retired), durable=True, more=False)


def next_wake(state: State, after: datetime) -> datetime | None:
    """When the run wants its next pass if nothing happens before.

    Args:
        state: where it stands after a pass.
        after: the time of that pass; what was due by then has been seen to.

    Returns:
        A time after `after`; None if the run is closed, or waits only for something outside.
    """
    if state.closed:
        return None
    return min((moment for moment in _moments(state) if moment > after), default=None)


def _moments(state: State) -> Iterator[datetime]:
    if state.run_deadline:
        yield state.run_deadline
    if state.task:
        yield state.task.next_attempt_time
    for timer in state.timers.values():
        yield timer.fire_time
    for activity in state.activities.values():
        if activity.started_time is None:
            yield activity.scheduled_time
        for deadline, _ in activity.deadlines():
            yield deadline


class _Pass:
    """The work of one `step`; lives no longer than it."""

    def __init__(self, state: State, now: datetime, decider: Decider) -> None:
        self.state = state
        self.now = now
        self.decider = decider
        self.events: list[ev.AnyEvent] = []
        self.undecided: list[ev.AnyEvent] = []
        self.retired: list[Retired] = []
        self.durable = False
        self.rounds = 0

    def run(self, inputs: Sequence[inp.AttemptInput], checked: Collection[int]) -> Transition:
        for item in inputs:
            self.take(item)
        if self.state.task and self.state.task.next_attempt_time <= self.now:
            self.decide()
        self.decide_new()
        while self.open() and self.rounds < MAX_ROUNDS:
            due = sorted(self.due(checked), key=lambda d: d[:3])
            if not due:
                break
            for _, _, _, fire in due:
                if self.open():
                    fire()
                    self.decide_new()
        return Transition(
            self.state,
            tuple(self.events),
            tuple(self.retired),
            durable=self.durable or bool(self.events),
            more=self.rounds >= MAX_ROUNDS and self.open(),
        )

    def open(self) -> bool:
        return not self.state.closed

    # Events

    def emit(self, event: ev.AnyEvent, *, decide: bool) -> None:
        """Append an event. `decide`: the decider has not asked for it, so it must hear of it."""
        self.state = apply(self.state, event)
        self.events.append(event)
        if decide:
            self.undecided.append(event)

    def close(self, event: ev.AnyEvent) -> None:
        """Append the closing event; whatever is still open is stopped."""
        self.retired += [Retired(a.scheduled_event_id, a.attempt) for a in self.state.activities.values()]
        self.undecided.clear()
        self.emit(event, decide=False)

    @property
    def here(self) -> dict[str, Any]:
        """Id and time of the next event."""
        return {"event_id": self.state.next_event_id, "event_time": self.now}

    # Inputs

    def take(self, item: inp.AttemptInput) -> None:
        activity = self.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return  # stale: the fence
        match item:
            case inp.AttemptStarted():
                self.started(activity, item.time)
            case inp.AttemptWaiting():
                waiting = msgspec.structs.replace(activity, waiting_reason=item.reason)
                self.state = self.state.with_activity(waiting)
            case inp.HeartbeatRead():
                self.heartbeat(activity, item)
            case inp.AttemptCompleted():
                self.completed(self.started(activity, item.started_time), item)
            case inp.AttemptFailed():
                self.failed(self.started(activity, item.started_time), item.failure)
            case inp.AttemptLost():
                self.lost(self.started(activity, item.started_time), item.failure)
            case _:
                assert_never(item)

    def started(self, activity: PendingActivity, time: datetime | None) -> PendingActivity:
        """Note that the attempt runs. A node's clock may be off: the time is held between scheduling and now."""
        if activity.started_time is None and time is not None:
            time = max(activity.scheduled_time, min(time, self.now))
            activity = msgspec.structs.replace(activity, started_time=time, waiting_reason=None)
            self.state = self.state.with_activity(activity)
        return activity

    def heartbeat(self, activity: PendingActivity, read: inp.HeartbeatRead) -> None:
        if read.time is None:
            return
        self.state = self.state.with_activity(
            msgspec.structs.replace(
                activity, last_heartbeat_time=min(read.time, self.now), heartbeat_details=read.details
            )
        )

    def completed(self, activity: PendingActivity, item: inp.AttemptCompleted) -> None:
        self.emit(
            ev.ActivityTaskCompleted(
                scheduled_event_id=activity.scheduled_event_id,
                started_event_id=self.emit_started(activity),
                activity_id=activity.activity_id,
                attempt=activity.attempt,
                result=item.result,
                **self.here,
            ),
            decide=True,
        )
        self.retired.append(Retired(activity.scheduled_event_id, activity.attempt, succeeded=True))

    def failed(self, activity: PendingActivity, failure: Failure) -> None:
        """The attempt failed: try again, or close the activity."""
        failure = msgspec.structs.replace(failure, message=failure.message[:_MAX_FAILURE_MESSAGE])
        decision = decide_retry(
            activity.retry_policy,
            failure,
            attempt=activity.attempt - activity.losses,
            now=self.now,
            expiration=activity.expiration,
        )
        if decision.delay is not None:
            self.again(activity, failure, decision.delay, losses=activity.losses)
        elif failure.kind is FailureKind.TIMEOUT and decision.state is RetryState.TIMEOUT:
            # As Temporal's server: the timeout of the attempt becomes the timeout of the whole.
            late = msgspec.structs.replace(activity, last_failure=failure)
            message = (
                "not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying"
            )
            self.give_up(activity, late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE, message), RetryState.TIMEOUT)
        else:
            self.give_up(activity, failure, decision.state)

    def lost(self, activity: PendingActivity, failure: Failure) -> None:
        """The attempt's pod was lost: try again without counting it, within schedule-to-close."""
        delay = activity.retry_policy.interval(activity.losses + 1)
        if activity.expiration is not None and self.now + delay >= activity.expiration:
            late = msgspec.structs.replace(activity, last_failure=failure)
            self.give_up(activity, late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE), RetryState.TIMEOUT)
        else:
            self.again(activity, failure, delay, losses=activity.losses + 1)

    def again(self, activity: PendingActivity, failure: Failure, delay: timedelta, *, losses: int) -> None:
        self.retired.append(Retired(activity.scheduled_event_id, activity.attempt))
        self.state = self.state.with_activity(
            msgspec.structs.replace(
                activity,
                attempt=activity.attempt + 1,
                scheduled_time=self.now + delay,
                losses=losses,
                started_time=None,
                last_heartbeat_time=None,
                waiting_reason=None,
                last_failure=msgspec.structs.replace(failure, cause=None),
            )
        )
        self.durable = True

    def give_up(self, activity: PendingActivity, failure: Failure, retry_state: RetryState) -> None:
        """Close the activity with its failure."""
        closing = ev.ActivityTaskTimedOut if failure.kind is FailureKind.TIMEOUT else ev.ActivityTaskFailed
        started = self.emit_started(activity) if activity.started_time else 0
        self.emit(
            closing(
                scheduled_event_id=activity.scheduled_event_id,
                started_event_id=started,
                activity_id=activity.activity_id,
                attempt=activity.attempt,
                failure=failure,
                retry_state=retry_state,
                **self.here,
            ),
            decide=True,
        )
        self.retired.append(Retired(activity.scheduled_event_id, activity.attempt))

    def emit_started(self, activity: PendingActivity) -> int:
        """Write the event that the last attempt had started, just before the one that closes the activity; its id."""
        event = ev.ActivityTaskStarted(
            event_id=self.state.next_event_id,
            event_time=activity.started_time or self.now,
            scheduled_event_id=activity.scheduled_event_id,
            attempt=activity.attempt,
            last_failure=activity.last_failure,
        )
        self.emit(event, decide=False)
        return event.event_id

    # Deadlines

    def due(self, checked: Collection[int]) -> Iterator[tuple[datetime, int, str, Any]]:
        """What is due now: (deadline, rank, key, what to do). The rank and key make the order of equal times certain."""
        if self.state.run_deadline and self.state.run_deadline <= self.now:
            yield self.state.run_deadline, 2, "", self.run_timed_out
        for timer in self.state.timers.values():
            if timer.fire_time <= self.now:
                yield timer.fire_time, 0, timer.timer_id, lambda timer=timer: self.timer_fired(timer.timer_id)
        for activity in self.state.activities.values():
            for deadline, kind in activity.deadlines():
                unread = kind is TimeoutType.HEARTBEAT and activity.scheduled_event_id not in checked
                if deadline <= self.now and not unread:
                    key = f"{activity.scheduled_event_id}/{kind}"
                    yield deadline, 1, key, lambda a=activity, k=kind: self.activity_timed_out(a, k)

    def run_timed_out(self) -> None:
        self.close(ev.WorkflowExecutionTimedOut(**self.here))

    def timer_fired(self, timer_id: str) -> None:
        timer = self.state.timers.get(timer_id)
        if timer is not None:
            self.emit(
                ev.TimerFired(timer_id=timer_id, started_event_id=timer.started_event_id, **self.here),
                decide=True,
            )

    def activity_timed_out(self, seen: PendingActivity, kind: TimeoutType) -> None:
        activity = self.state.activity(seen.scheduled_event_id)
        if activity is None or activity.attempt != seen.attempt:
            return  # an earlier deadline of the same pass has ended this attempt
        failure = activity.timeout_failure(kind)
        match kind:
            case TimeoutType.SCHEDULE_TO_CLOSE:
                self.give_up(activity, failure, RetryState.TIMEOUT)
            case TimeoutType.SCHEDULE_TO_START:
                self.give_up(activity, failure, RetryState.NON_RETRYABLE_FAILURE)
            case TimeoutType.START_TO_CLOSE | TimeoutType.HEARTBEAT:
                self.failed(activity, msgspec.structs.replace(failure, cause=None))
            case _:
                assert_never(kind)

    # Decisions

    def decide_new(self) -> None:
        if self.undecided and self.open():
            self.decide()

    def decide(self) -> None:
        """Ask the decider about everything undecided, and do what it says; all of it or, where it cannot decide, nothing."""
        self.rounds += 1
        task = self.state.task
        events = (*(task.events if task else ()), *self.undecided)
        self.undecided.clear()
        before = self.state, len(self.events), len(self.retired)
        try:
            decision = self.decider.decide(self.state.memory, events)
            self.state = msgspec.structs.replace(self.state, memory=decision.memory, task=None)
            for command in decision.commands:
                self.obey(command)
        except UndecidableError as error:
            self.state = before[0]
            del self.events[before[1] :]
            del self.retired[before[2] :]
            attempt = task.attempt + 1 if task else 1
            backoff = min(timedelta(seconds=2 ** min(attempt, 10)), _LONGEST_TASK_BACKOFF)
            self.state = msgspec.structs.replace(
                self.state,
                task=UndecidedTask(
                    attempt=attempt,
                    message=str(error)[:_MAX_FAILURE_MESSAGE],
                    next_attempt_time=self.now + backoff,
                    events=events,
                ),
            )
        self.durable = True

    def obey(self, command: cmd.Command) -> None:
        if self.state.closed:
            raise UndecidableError("invalid command sequence: a command follows the one that closes the run")
        match command:
            case cmd.CompleteWorkflowExecution():
                self.close(ev.WorkflowExecutionCompleted(result=command.result, **self.here))
            case cmd.FailWorkflowExecution():
                self.close(ev.WorkflowExecutionFailed(failure=command.failure, **self.here))
            case cmd.ScheduleActivityTask():
                self.schedule_activity(command)
            case cmd.StartTimer():
                if command.timer_id in self.state.timers:
                    raise UndecidableError(f"timer id {command.timer_id!r} is in use")
                self.emit(
                    ev.TimerStarted(
                        timer_id=command.timer_id,
                        start_to_fire_timeout=command.start_to_fire_timeout,
                        **self.here,
                    ),
                    decide=False,
                )
            case _:
                assert_never(command)

    def schedule_activity(self, command: cmd.ScheduleActivityTask) -> None:
        """Schedule an activity with its timeouts made whole, as Temporal's server does (chasm/lib/activity/validator.go)."""
        if any(a.activity_id == command.activity_id for a in self.state.activities.values()):
            raise UndecidableError(f"activity id {command.activity_id!r} is in use")
        whole = command.schedule_to_close_timeout
        close = command.start_to_close_timeout or whole
        if close is None:
            raise UndecidableError(
                f"activity {command.activity_id!r}: `startToCloseTimeout` or `scheduleToCloseTimeout` must be set"
            )
        left = self.state.run_deadline - self.now if self.state.run_deadline else timedelta.max
        start = command.schedule_to_start_timeout or whole
        beat = command.heartbeat_timeout
        self.emit(
            ev.ActivityTaskScheduled(
                activity_id=command.activity_id,
                activity_type=command.activity_type,
                input=command.input,
                schedule_to_close_timeout=min(whole, left) if whole else None,
                schedule_to_start_timeout=min(start, left) if start else None,
                start_to_close_timeout=min(close, left),
                heartbeat_timeout=min(beat, close, left) if beat else None,
                retry_policy=command.retry_policy,
                **self.here,
            ),
            decide=False,
        )
