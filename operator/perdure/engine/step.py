"""One pass over a run: inputs and due deadlines become events, events become decisions, decisions become events again.

``step`` is the whole engine: pure, with the time as an argument. What it returns is committed in one write; what the
committed state asks for (pods, timers) is done afterwards and may be done again.

Events wait in a queue, in the order of the history, until the decider is asked about them: nobody is asked while the run is
paused, before its first decision is due, while a decider that could not decide backs off, and once a pass has done enough.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, assert_never

import msgspec

from perdure.engine import changing
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.decider import Decider, UndecidableError
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.inputs import Answer
from perdure.engine.opaque import plain
from perdure.engine.recording import activity_named, event_of, next_run
from perdure.engine.retry import RetryPolicy, decide_retry, is_retryable
from perdure.engine.starts import CarriedSignal, ParentClosePolicy
from perdure.engine.state import (
    RECORD_START_AFTER,
    CircuitReport,
    CircuitResult,
    PendingActivity,
    PendingChild,
    State,
    TaskFailure,
    apply,
)
from perdure.engine.tasks import machine

MAX_ROUNDS = 1_000
"""Decisions one pass may take. A run that wants more gets them in further passes, after other runs had their turn."""
MAX_WORK_PER_PASS = 600_000
"""What the decisions of one pass may cost together, in the units of `Decision.work`: about 50 ms."""
MAX_SIGNALS = 10_000
"""Signals one run may receive."""
MAX_REQUESTS = 10_000
"""Requests that are remembered at most; the oldest are forgotten first."""
MAX_EVENTS = 51_200
"""A run with a longer history is terminated."""
MAX_BYTES = 50 * 1024 * 1024
"""A run with a larger history is terminated."""

_MAX_FAILURE_MESSAGE = 4_096
_LOGS_KEPT = 32
"""Open activities up to which each keeps the end of the log of its last failed attempt: they are 4 KiB each."""
_LONGEST_TASK_BACKOFF = timedelta(minutes=10)


class AttemptOutcome(StrEnum):
    """How an attempt has ended."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    LOST = "Lost"
    CANCELED = "Canceled"
    STOPPED = "Stopped"
    """Its run has closed."""


_OUTCOMES: dict[type[ev.AnyEvent], AttemptOutcome] = {
    ev.ActivityTaskCompleted: AttemptOutcome.COMPLETED,
    ev.ActivityTaskFailed: AttemptOutcome.FAILED,
    ev.ActivityTaskTimedOut: AttemptOutcome.TIMED_OUT,
    ev.ActivityTaskCanceled: AttemptOutcome.CANCELED,
}


@dataclass(frozen=True, slots=True)
class Retired:
    """An attempt whose end this pass has recorded: its pod is no longer needed, and is stopped if it still runs."""

    scheduled_event_id: int
    attempt: int
    outcome: AttemptOutcome


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
    """Whether the pass stopped because it has done enough, and the next should follow at once."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """By request id."""


def start(
    attributes: ev.WorkflowExecutionStarted,
    decider: Decider,
    signals: Sequence[CarriedSignal] = (),
    *,
    requests: Sequence[inp.SignalRequested] = (),
    paused: bool = False,
    policies: Mapping[str, RetryPolicy] | None = None,
) -> Transition:
    """The first pass of a run.

    Args:
        attributes: its first event.
        decider: decides what follows.
        signals: what the run before in the chain has not consumed.
        requests: the signals that the run is started for; it has them before its first decision.
        paused: whether the run waits to be unpaused before its first decision.
        policies: the RetryPolicies that deciders may mean by name.
    """
    first = _Pass(apply(None, attributes), attributes.event_time, decider, policies)
    first.events.append(attributes)
    if first.tasks is None:
        first.queue.append(attributes)
    first.news = True
    for signal in signals:
        said = msgspec.structs.asdict(signal)
        first.emit(ev.WorkflowExecutionSignaled(**said, **first.here), decide=True)
    for request in requests:
        first.take_request(request)
    if paused:
        first.emit(ev.WorkflowExecutionPaused(**first.here), decide=False)
    return first.run(())


def step(
    state: State,
    inputs: Sequence[inp.RunInput],
    now: datetime,
    decider: Decider,
    policies: Mapping[str, RetryPolicy] | None = None,
) -> Transition:
    """Advance a run; of a closed one, what is left to be done.

    Args:
        state: where it stands.
        inputs: what has been observed and asked since, in order. Stale ones (another attempt, a closed activity) change nothing.
        now: the time, UTC. Deadlines up to now fire, the earliest first, after the inputs: a result that is there counts,
            also a late one.
        decider: decides what follows.
        policies: the RetryPolicies that deciders may mean by name.
    """
    return _Pass(state, now, decider, policies).run(inputs)


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
    return last.transition()


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
    if state.code is not None:
        yield from machine.moments(state)
    if not state.paused and (state.undecided or state.unfinished):
        if state.task:
            yield state.task.next_attempt_time
        if state.first_decision_time:
            yield state.first_decision_time
    for timer in state.timers.values():
        yield timer.fire_time
    yield from _moments_of_activities(state)


def _moments_of_activities(state: State) -> Iterator[datetime]:
    for activity in state.activities.values():
        if activity.by_worker and activity.started_time is not None and not activity.start_recorded:
            yield activity.started_time + RECORD_START_AFTER
        if activity.started_time is None and not state.holds_back(activity):
            yield activity.scheduled_time
        for deadline, _ in activity.deadlines():
            yield deadline


def _counts(activity: PendingActivity, failure: Failure) -> bool:
    """Whether a circuit breaker counts a failure: one that might be retried, or that an attempt which ran took too long."""
    if failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE and activity.started_time is not None:
        return failure.type_names().isdisjoint(activity.retry_policy.non_retryable_error_types)
    return is_retryable(failure, activity.retry_policy)


_OK = Answer(ok=True)


def _no_activity(activity_id: str) -> Answer:
    return Answer(ok=False, reason="ActivityNotFound", message=f"no activity `{activity_id}` is open")


class _Pass:
    """The work of one `step`; lives no longer than it."""

    def __init__(
        self, state: State, now: datetime, decider: Decider, policies: Mapping[str, RetryPolicy] | None = None
    ) -> None:
        self.policies = policies
        self.state = state
        self.now = now
        self.decider = decider
        self.events: list[ev.AnyEvent] = []
        self.queue = deque(state.undecided)
        self.retired: list[Retired] = []
        self.answers: dict[str, Answer] = {}
        self.durable = False
        self.news = False
        self.enough = False
        self.rounds = 0
        self.work = 0
        self.tasks = machine.Tasks(self) if state.code is not None else None

    def run(self, inputs: Sequence[inp.RunInput]) -> Transition:
        checked = {(i.scheduled_event_id, i.attempt) for i in inputs if isinstance(i, inp.HeartbeatRead)}
        if self.tasks is None:
            self.cancel_unstarted()
        self.decide()
        for item in inputs:
            self.take(item)
            self.decide()
        while self.open() and (due := sorted(self.due(checked), key=lambda d: d[:3])):
            for _, _, _, fire in due:
                if self.open():
                    fire()
                    self.decide()
        return self.transition()

    def transition(self) -> Transition:
        if self.open():
            self.change(undecided=tuple(self.queue))
        return Transition(
            self.state,
            tuple(self.events),
            tuple(self.retired),
            durable=self.durable or bool(self.events),
            more=self.tasks is None and self.enough and self.state.task is None and self.has_to_ask(),
            answers=self.answers,
        )

    def open(self) -> bool:
        return not self.state.closed

    def change(self, **attributes: Any) -> None:
        self.state = msgspec.structs.replace(self.state, **attributes)

    # Events

    def emit(self, event: ev.AnyEvent, *, decide: bool) -> None:
        """Append an event. `decide`: the decider has not asked for it, so it must hear of it."""
        if self.tasks is not None:
            if self.tasks.holds_back(event):
                return
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        self.state = apply(self.state, event)
        self.events.append(event)
        if decide and self.tasks is None:
            self.queue.append(event)
        self.news |= decide

    def close(self, event: ev.AnyEvent) -> None:
        """Append the closing event; whatever is still open is stopped."""
        if self.tasks is not None:
            self.tasks.close()
            event = msgspec.structs.replace(event, event_id=self.state.next_event_id)
        still_open = sorted(self.state.activities.values(), key=lambda a: a.scheduled_event_id)
        for activity in still_open:
            self.retire(activity, AttemptOutcome.STOPPED)
        self.emit(event, decide=False)

    def retire(self, activity: PendingActivity, outcome: AttemptOutcome, failure: Failure | None = None) -> None:
        """The attempt is over: nobody waits for its pod; a circuit breaker that has let it through has to hear of it."""
        self.retired.append(Retired(activity.scheduled_event_id, activity.attempt, outcome))
        policy = activity.retry_policy
        if not policy.circuit_breaker:
            return
        result = CircuitResult.RELEASED
        if outcome is AttemptOutcome.COMPLETED:
            result = CircuitResult.SUCCEEDED
        elif failure is not None and outcome is not AttemptOutcome.LOST and _counts(activity, failure):
            result = CircuitResult.FAILED
        report = CircuitReport(policy=policy.name, result=result, time=self.now)
        key = f"{activity.scheduled_event_id}/{activity.attempt}"
        self.change(reports={**self.state.reports, key: report})

    @property
    def here(self) -> dict[str, Any]:
        """Id and time of the next event."""
        return {"event_id": self.state.next_event_id, "event_time": self.now}

    # Inputs

    def take(self, item: inp.RunInput) -> None:
        match item:
            case inp.RequestForgotten():
                self.change(requests=tuple(r for r in self.state.requests if r != item.request_id))
            case inp.ChoreDone():
                self.chore_done(item.chore)
            case inp.DecideAgain():
                self.news = True
            case inp.ChildStarted() | inp.ChildStartFailed() | inp.ChildClosed():
                self.take_child(item)
            case inp.ExternalDone():
                self.external_done(item)
            case (
                inp.SignalRequested()
                | inp.CancelRequested()
                | inp.TerminateRequested()
                | inp.PauseRequested()
                | inp.UnpauseRequested()
                | inp.ActivityAnswered()
                | inp.ActivityReset()
                | inp.OptionsChanged()
            ):
                self.take_request(item)
            case inp.ActivityTaken() | inp.ActivityReturned() | inp.ActivityReported() | inp.ActivityBeat():
                self.answers[item.request_id] = self.take_report(item)
            case (
                inp.TaskWanted()
                | inp.TaskTaken()
                | inp.TaskReturned()
                | inp.TaskCompleted()
                | inp.TaskFailed()
                | inp.StickinessReset()
            ):
                no = Answer(ok=False, reason="TaskNotFound", message="no worker decides this run")
                self.answers[item.request_id] = self.tasks.take(item) if self.tasks is not None else no
            case _:
                self.take_attempt(item)

    def chore_done(self, chore: str) -> None:
        """Forget what was to be done after a commit. An open run has no haste: it forgets with its next commit."""
        kind, _, key = chore.partition("/")
        before = self.state
        match kind:
            case "marker":
                self.change(markers=_without(before.markers, key))
            case "child" if before.closed:
                self.change(children=_without(before.children, key))
            case "external" if before.closed:
                self.change(externals=_without(before.externals, key))
            case "successor" if before.closed:
                self.change(start_successor=False)
            case "report":
                self.change(reports=_without(before.reports, key))
                self.durable = True  # in an open run too: what a breaker has counted must not be told it again, later
            case _:
                pass
        self.durable |= before.closed and self.state != before

    # Requests

    def take_request(self, request: inp.Request) -> None:
        """Answer a request. One that was heeded is remembered, so that asking again changes nothing."""
        if request.request_id in self.state.requests:
            self.answers[request.request_id] = _OK
            return
        if self.open():
            answer = self.heed(request)
            if answer.ok:
                self.change(requests=(*self.state.requests, request.request_id)[-MAX_REQUESTS:])
        elif isinstance(request, inp.CancelRequested):
            answer = _OK  # it has ended, which is what was wanted
        else:
            message = f"the run has closed: {self.state.status}"
            answer = Answer(ok=False, reason="WorkflowExecutionCompleted", message=message)
        self.answers[request.request_id] = answer

    def heed(self, request: inp.Request) -> Answer:
        if self.tasks is not None and isinstance(request, inp.SignalRequested) and self.tasks.refuses():
            return Answer(ok=False, reason="WorkflowClosing", message="workflow is closing")
        match request:
            case inp.SignalRequested():
                if self.state.signals >= MAX_SIGNALS:
                    message = (
                        f"the run has received {MAX_SIGNALS:,} signals, and takes no more; it should continue as new"
                    )
                    return Answer(ok=False, reason="SignalLimitExceeded", message=message)
                self.emit(
                    ev.WorkflowExecutionSignaled(
                        signal_name=request.signal_name,
                        input=request.input if self.state.code is not None else plain(request.input),
                        identity=request.identity,
                        header=request.header,
                        **self.here,
                    ),
                    decide=True,
                )
            case inp.CancelRequested():
                if not self.state.cancel_requested and not (self.tasks and self.tasks.cancel_is_buffered()):
                    event = ev.WorkflowExecutionCancelRequested
                    self.emit(event(cause=request.reason, identity=request.identity, **self.here), decide=True)
            case inp.TerminateRequested():
                self.close(
                    ev.WorkflowExecutionTerminated(
                        reason=request.reason,
                        details=request.details,
                        identity=request.identity,
                        reset_run=request.reset_run,
                        reset_event_id=request.reset_event_id,
                        **self.here,
                    )
                )
            case inp.PauseRequested() | inp.UnpauseRequested():
                return self.pause(request)
            case inp.ActivityAnswered():
                return self.activity_answered(request)
            case inp.ActivityReset() | inp.OptionsChanged():
                return self.activity_changed(request)
            case _:
                raise TypeError(f"not a request: {request}")
        return _OK

    def pause(self, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause the run, which its history tells, or an activity, which it does not."""
        pause = isinstance(request, inp.PauseRequested)
        if request.activity_id is None:
            if pause is (self.state.paused is None):
                event = ev.WorkflowExecutionPaused if pause else ev.WorkflowExecutionUnpaused
                self.emit(event(reason=request.reason, identity=request.identity, **self.here), decide=False)
            return _OK
        activity = activity_named(self.state, request.activity_id)
        if activity is None:
            return _no_activity(request.activity_id)
        if activity.paused is not pause:
            self.state = self.state.with_activity(msgspec.structs.replace(activity, paused=pause))
            self.durable = True
        return _OK

    def activity_changed(self, request: inp.ActivityReset | inp.OptionsChanged) -> Answer:
        """Change an open activity, which the history does not tell."""
        activity = activity_named(self.state, request.activity_id)
        if activity is None:
            return _no_activity(request.activity_id)
        if isinstance(request, inp.ActivityReset):
            changed = changing.reset(activity, request, self.now)
        elif not activity.by_worker:
            message = f"activity `{request.activity_id}` is done by pods: its options stand in the Workflow"
            return Answer(ok=False, reason="NotSupported", message=message)
        else:
            changed = changing.with_options(activity, request.options)
        self.state = self.state.with_activity(changed)
        self.durable = True
        return _OK

    def activity_answered(self, answered: inp.ActivityAnswered) -> Answer:
        activity = activity_named(self.state, answered.activity_id)
        if activity is None:
            return _no_activity(answered.activity_id)
        if answered.cancelled:
            if not activity.cancel_requested:
                message = (
                    f"activity `{answered.activity_id}` was not asked to cancel itself; answer with a failure instead"
                )
                return Answer(ok=False, reason="CancelNotRequested", message=message)
            self.ended(activity, ev.ActivityTaskCanceled, details=answered.result)
        elif answered.failure is not None:
            self.failed(activity, answered.failure)
        else:
            self.ended(activity, ev.ActivityTaskCompleted, result=answered.result)
        return _OK

    # Activities

    def take_report(self, item: inp.ActivityInput) -> Answer:  # noqa: PLR0911 (one for each case)
        """What a worker says of an attempt."""
        activity = self.state.activity(item.scheduled_event_id)
        ended = self.state.code.ended_activities() if self.state.code else ()
        if not self.open() or activity is None or activity.attempt != item.attempt or item.scheduled_event_id in ended:
            return Answer(ok=False, reason="ActivityNotFound", message="activity task not found, or it has ended")
        if isinstance(item, inp.ActivityTaken):
            if activity.started_time is not None or not self.state.may_start(activity, self.now):
                return Answer(ok=False, reason="ActivityNotFound", message="the attempt is not to be started")
            once = activity.retry_policy.maximum_attempts == 1
            started = msgspec.structs.replace(
                activity, started_time=self.now, fence=item.fence, identity=item.identity, start_recorded=once
            )
            self.state = self.state.with_activity(started)
            self.durable |= once
            return _OK
        if item.fence and item.fence != activity.fence and activity.started_time is not None:
            return Answer(ok=False, reason="ActivityNotFound", message="the attempt was handed out to another worker")
        if isinstance(item, inp.ActivityReturned):
            returned = msgspec.structs.replace(activity, started_time=None, fence="", identity="", start_recorded=False)
            self.state = self.state.with_activity(returned)
            self.durable |= activity.start_recorded
            return _OK
        if isinstance(item, inp.ActivityBeat):
            beat = inp.HeartbeatRead(
                scheduled_event_id=item.scheduled_event_id, attempt=item.attempt, time=self.now, details=item.details
            )
            self.heartbeat(self.started(activity, self.now), beat)
            return _OK
        return self.reported(self.started(activity, self.now), item)

    def reported(self, activity: PendingActivity, report: inp.ActivityReported) -> Answer:
        if report.heartbeat_details is not None:
            activity = msgspec.structs.replace(activity, heartbeat_details=report.heartbeat_details)
        if report.cancelled and not activity.cancel_requested:
            message = "the activity was not asked to cancel itself"
            return Answer(ok=False, reason="CancelNotRequested", message=message)
        if report.cancelled:
            self.ended(activity, ev.ActivityTaskCanceled, details=report.result, identity=report.identity)
        elif report.failure is not None:
            self.failed(activity, report.failure, identity=report.identity)
        else:
            result = report.result if self.state.code is not None else plain(report.result)
            self.ended(activity, ev.ActivityTaskCompleted, result=result, identity=report.identity)
        return _OK

    def take_attempt(self, item: inp.AttemptInput) -> None:
        activity = self.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return  # stale: the fence
        match item:
            case inp.AttemptStarted():
                self.started(activity, item.time)
            case inp.AttemptWaiting():
                # The first that is stuck is told in the run's condition, and so is that none is any more.
                self.durable |= item.stuck and not any(self.state.stuck())
                stuck = activity.stuck or item.stuck
                waiting = msgspec.structs.replace(activity, waiting_reason=item.reason, stuck=stuck)
                self.state = self.state.with_activity(waiting)
                self.durable |= item.worth_telling
            case inp.HeartbeatRead():
                self.heartbeat(activity, item)
            case inp.AttemptCompleted():
                activity = self.started(activity, item.started_time or self.now)
                self.ended(activity, ev.ActivityTaskCompleted, result=item.result)
            case inp.AttemptFailed():
                self.failed(self.started(activity, item.started_time), item.failure)
            case inp.AttemptLost():
                self.lost(self.started(activity, item.started_time), item.failure)
            case inp.AttemptCancelled():
                self.cancelled(self.started(activity, item.started_time), item.details)
            case _:
                assert_never(item)

    def started(self, activity: PendingActivity, time: datetime | None) -> PendingActivity:
        """Note that the attempt runs. A node's clock may be off: the time is held between scheduling and now."""
        if activity.started_time is None and time is not None:
            time = max(activity.scheduled_time, min(time, self.now))
            was_stuck = activity.stuck
            activity = msgspec.structs.replace(activity, started_time=time, waiting_reason=None, stuck=False)
            self.state = self.state.with_activity(activity)
            self.durable |= was_stuck and not any(self.state.stuck())
        return activity

    def heartbeat(self, activity: PendingActivity, read: inp.HeartbeatRead) -> None:
        if read.time is None:
            return
        self.state = self.state.with_activity(
            msgspec.structs.replace(
                activity, last_heartbeat_time=min(read.time, self.now), heartbeat_details=read.details
            )
        )

    def failed(self, activity: PendingActivity, failure: Failure, *, identity: str = "") -> None:
        """The attempt failed: try again, or close the activity. One that was asked to stop is not tried again."""
        failure = msgspec.structs.replace(failure, message=failure.message[:_MAX_FAILURE_MESSAGE])
        if activity.cancel_requested:
            self.give_up(activity, failure, RetryState.CANCEL_REQUESTED, identity=identity)
            return
        decision = decide_retry(
            activity.retry_policy,
            failure,
            attempt=activity.tries,
            now=self.now,
            expiration=activity.expiration,
            since=activity.first_scheduled_time,
        )
        if decision.delay is not None:
            self.again(activity, failure, decision.delay, losses=activity.losses)
        elif failure.kind is FailureKind.TIMEOUT and decision.expired:
            # As Temporal's server: the timeout of the attempt becomes the timeout of the whole.
            late = msgspec.structs.replace(activity, last_failure=failure)
            message = (
                "not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying"
            )
            self.give_up(activity, late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE, message), RetryState.TIMEOUT)
        else:
            self.give_up(activity, failure, decision.state, identity=identity)

    def lost(self, activity: PendingActivity, failure: Failure) -> None:
        """The attempt's pod was lost: try again without counting it, within schedule-to-close."""
        delay = activity.retry_policy.interval(activity.losses + 1)
        if activity.cancel_requested:
            self.ended(activity, ev.ActivityTaskCanceled)  # it has stopped, which is what was asked for
        elif activity.expiration is not None and self.now + delay >= activity.expiration:
            late = msgspec.structs.replace(activity, last_failure=failure, losses=activity.losses + 1)
            self.give_up(late, late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE), RetryState.TIMEOUT)
        else:
            self.again(activity, failure, delay, losses=activity.losses + 1)

    def cancelled(self, activity: PendingActivity, details: Any) -> None:
        """The attempt says that it was cancelled. Where nobody has asked for that, it is a failure like others, but final."""
        if activity.cancel_requested:
            self.ended(activity, ev.ActivityTaskCanceled, details=details)
        else:
            message = "the activity has cancelled itself"
            self.failed(activity, Failure(kind=FailureKind.CANCELLED, message=message, details=details))

    def cancel_unstarted(self) -> None:
        """End the activities that were asked to stop while they ran, in a history that this one was forked from."""
        for activity in self.state.activities.values():
            if activity.cancel_requested and activity.started_time is None:
                self.ended(activity, ev.ActivityTaskCanceled)

    def again(self, activity: PendingActivity, failure: Failure, delay: timedelta, *, losses: int) -> None:
        outcome = (
            AttemptOutcome.LOST
            if losses > activity.losses
            else AttemptOutcome.TIMED_OUT
            if failure.kind is FailureKind.TIMEOUT
            else AttemptOutcome.FAILED
        )
        self.retire(activity, outcome, failure)
        activity = msgspec.structs.replace(activity, losses=losses)
        if activity.reset:
            activity = changing.counted_anew(activity, activity.attempt + 1)
        self.state = self.state.with_activity(
            msgspec.structs.replace(
                activity,
                attempt=activity.attempt + 1,
                scheduled_time=self.now + delay,
                started_time=None,
                last_heartbeat_time=None,
                waiting_reason=None,
                fence="",
                identity="",
                start_recorded=False,
                stuck=False,
                last_failure=msgspec.structs.replace(
                    failure, cause=None, log=failure.log if len(self.state.activities) <= _LOGS_KEPT else None
                ),
            )
        )
        self.durable = True

    def give_up(
        self, activity: PendingActivity, failure: Failure, retry_state: RetryState, *, identity: str = ""
    ) -> None:
        """Close the activity with its failure."""
        closing = ev.ActivityTaskTimedOut if failure.kind is FailureKind.TIMEOUT else ev.ActivityTaskFailed
        self.ended(activity, closing, failure=failure, retry_state=retry_state, identity=identity)

    def ended(
        self,
        activity: PendingActivity,
        closing: type[
            ev.ActivityTaskCompleted | ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled
        ],
        **attributes: Any,
    ) -> None:
        """Close the activity; that its last attempt had started is written just before."""
        started_event_id = 0
        if self.tasks is not None:
            self.tasks.make_normal()
        if activity.started_time is not None:
            started_event_id = self.state.next_event_id
            self.emit(
                ev.ActivityTaskStarted(
                    event_id=started_event_id,
                    event_time=activity.started_time,
                    scheduled_event_id=activity.scheduled_event_id,
                    attempt=activity.attempt,
                    last_failure=activity.last_failure,
                    identity=activity.identity,
                ),
                decide=False,
            )
        self.emit(
            closing(
                scheduled_event_id=activity.scheduled_event_id,
                started_event_id=started_event_id,
                activity_id=activity.activity_id,
                attempt=activity.attempt,
                losses=activity.losses,
                **attributes,
                **self.here,
            ),
            decide=True,
        )
        self.retire(activity, _OUTCOMES[closing], attributes.get("failure"))

    # Children and other runs

    def take_child(self, item: inp.ChildStarted | inp.ChildStartFailed | inp.ChildClosed) -> None:
        child = self.state.children.get(str(item.initiated_event_id))
        if child is None:
            return  # stale
        if not self.open():
            self.child_left_behind(child, item)
            return
        if isinstance(item, inp.ChildStartFailed):
            if child.start is not None:
                self.emit(
                    ev.StartChildWorkflowExecutionFailed(
                        initiated_event_id=child.initiated_event_id,
                        child_id=child.child_id,
                        workflow_id=child.workflow_id,
                        workflow_type=child.workflow_type,
                        failure=item.failure,
                        **self.here,
                    ),
                    decide=True,
                )
            return
        if child.start is not None:
            started = ev.ChildWorkflowExecutionStarted(
                initiated_event_id=child.initiated_event_id,
                child_id=child.child_id,
                workflow_id=child.workflow_id,
                workflow_type=child.workflow_type,
                run_id=item.run_id,
                **self.here,
            )
            self.emit(started, decide=True)
            child = self.state.children[str(child.initiated_event_id)]
        if isinstance(item, inp.ChildClosed):
            self.child_closed(child, item)

    def child_closed(self, child: PendingChild, item: inp.ChildClosed) -> None:
        attributes: dict[str, Any] = {
            "initiated_event_id": child.initiated_event_id,
            "started_event_id": child.started_event_id,
            "child_id": child.child_id,
            "workflow_id": child.workflow_id,
            "workflow_type": child.workflow_type,
            "run_id": item.run_id,
            **self.here,
        }
        closing: ev.AnyEvent
        match item.outcome:
            case inp.ChildOutcome.COMPLETED:
                closing = ev.ChildWorkflowExecutionCompleted(result=item.result, **attributes)
            case inp.ChildOutcome.FAILED:
                failure = item.failure or Failure(kind=FailureKind.SERVER, message="the child failed")
                closing = ev.ChildWorkflowExecutionFailed(failure=failure, **attributes)
            case inp.ChildOutcome.CANCELLED:
                closing = ev.ChildWorkflowExecutionCanceled(details=item.result, **attributes)
            case inp.ChildOutcome.TIMED_OUT:
                closing = ev.ChildWorkflowExecutionTimedOut(**attributes)
            case inp.ChildOutcome.TERMINATED:
                reason = item.failure.message if item.failure else ""
                closing = ev.ChildWorkflowExecutionTerminated(reason=reason, **attributes)
            case _:
                assert_never(item.outcome)
        self.emit(closing, decide=True)

    def child_left_behind(
        self, child: PendingChild, item: inp.ChildStarted | inp.ChildStartFailed | inp.ChildClosed
    ) -> None:
        """The run has closed: a child needs nothing more once it has ended, or, abandoned, once it has started."""
        abandoned = child.parent_close_policy is ParentClosePolicy.ABANDON
        if not isinstance(item, inp.ChildStarted) or abandoned:
            self.chore_done(f"child/{child.initiated_event_id}")

    def external_done(self, item: inp.ExternalDone) -> None:
        external = self.state.externals.get(str(item.initiated_event_id))
        if external is None:
            return  # stale
        if not self.open():
            self.chore_done(f"external/{item.initiated_event_id}")
            return
        attributes: dict[str, Any] = {
            "initiated_event_id": external.initiated_event_id,
            "workflow_id": external.workflow_id,
            "run_id": external.run_id,
            "control": external.control,
            **self.here,
        }
        signal = external.signal_id is not None
        done: ev.AnyEvent
        if signal:
            attributes["signal_id"] = external.signal_id
        if item.failure is None:
            event = ev.ExternalWorkflowExecutionSignaled if signal else ev.ExternalWorkflowExecutionCancelRequested
            done = event(**attributes)
        else:
            failed = (
                ev.SignalExternalWorkflowExecutionFailed if signal else ev.RequestCancelExternalWorkflowExecutionFailed
            )
            done = failed(failure=item.failure, **attributes)
        self.emit(done, decide=True)

    # Deadlines

    def due(self, checked: Collection[tuple[int, int]]) -> Iterator[tuple[datetime, int, str, Callable[[], None]]]:
        """What is due now: (deadline, rank, key, what to do). The rank and key make the order of equal times certain."""
        if self.state.run_deadline and self.state.run_deadline <= self.now:
            yield self.state.run_deadline, 2, "", self.run_timed_out
        if self.tasks is not None:
            yield from self.tasks.due()
        timers = self.state.timers.values() if self.takes_others() else ()
        for timer in timers:
            if timer.fire_time <= self.now:
                yield timer.fire_time, 0, timer.timer_id, partial(self.timer_fired, timer.timer_id)
        ended = self.state.code.ended_activities() if self.state.code else ()
        for activity in self.state.activities.values():
            if activity.scheduled_event_id in ended:
                continue
            if is_to_be_recorded(activity, self.now):
                self.record_start(activity)
            for deadline, kind in activity.deadlines():
                attempt = activity.scheduled_event_id, activity.attempt
                unread = kind is TimeoutType.HEARTBEAT and attempt not in checked and not activity.by_worker
                if deadline <= self.now and not unread:
                    key = f"{activity.scheduled_event_id}/{kind}"
                    yield deadline, 1, key, partial(self.activity_timed_out, activity, kind)

    def takes_others(self) -> bool:
        """Whether what leaves events, and need not be acknowledged, is taken now: not while a worker decides."""
        return self.state.code is None or not self.state.code.deciding

    def record_start(self, activity: PendingActivity) -> None:
        self.state = self.state.with_activity(msgspec.structs.replace(activity, start_recorded=True))
        self.durable = True

    def run_timed_out(self) -> None:
        """Close the run. Another attempt may follow the end of a run, none the end of the whole chain's time."""
        timeout = Failure(kind=FailureKind.TIMEOUT, timeout_type=TimeoutType.START_TO_CLOSE)
        expired = self.state.expiration is not None and self.state.expiration <= self.now
        follows = {} if expired else next_run(self.state, timeout, self.now)
        self.close(ev.WorkflowExecutionTimedOut(**follows, **self.here))

    def timer_fired(self, timer_id: str) -> None:
        timer = self.state.timers.get(timer_id)
        if timer is not None and timer.fire_time <= self.now:
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

    def has_to_ask(self) -> bool:
        """Whether there is something to decide, and nothing but a failed attempt to decide stands against it."""
        first = self.state.first_decision_time
        waits = self.state.paused is not None or (first is not None and first > self.now)
        return self.open() and not waits and bool(self.state.unfinished or self.queue)

    def decide(self) -> None:
        """Ask the decider about everything it has not been asked about, as far as that may be now."""
        self.keep_within_limits()
        if self.tasks is not None:
            self.tasks.settle()
            return
        while not self.enough and self.has_to_ask():
            task = self.state.task
            if task is not None and task.next_attempt_time > self.now and not self.news:
                break
            self.ask()
            self.keep_within_limits()

    def ask(self) -> None:
        """Ask the decider about the next event, and do what it says; all of it or, where it cannot decide, nothing."""
        event = None if self.state.unfinished else self.queue[0]
        suggested = event is not None and self.state.suggests_continuing(event)
        before = self.state
        lengths = [(grown, len(grown)) for grown in (self.events, self.retired, self.queue)]
        try:
            decision = self.decider.decide(before.memory, event, continue_as_new_suggested=suggested)
            self.change(memory=decision.memory, unfinished=decision.more, task=None)
            for command in decision.commands:
                self.obey(command, behind=0 if event is None else 1)
        except UndecidableError as error:
            self.state = before
            for grown, length in lengths:
                while len(grown) > length:
                    grown.pop()
            self.fail_task(str(error), error.reason)
        else:
            if event is not None:
                self.queue.popleft()
            self.rounds += 1
            self.work += decision.work
            self.enough = decision.more or self.work > MAX_WORK_PER_PASS or self.rounds >= MAX_ROUNDS
        self.durable = True

    def fail_task(self, message: str, reason: str = "") -> None:
        """Note that nobody could decide; once more in a while, or when something else happens."""
        attempt = self.state.task.attempt + 1 if self.state.task else 1
        backoff = min(timedelta(seconds=2 ** min(attempt, 10)), _LONGEST_TASK_BACKOFF)
        self.change(
            task=TaskFailure(
                attempt=attempt,
                message=message[:_MAX_FAILURE_MESSAGE],
                reason=reason,
                next_attempt_time=self.now + backoff,
            )
        )
        self.enough = True

    def obey(self, command: cmd.Command, *, behind: int) -> None:
        """Record a command. `behind`: at which place the queue begins that is behind the event being decided."""
        if not self.open():
            raise UndecidableError("invalid command sequence: a command follows the one that closes the run")
        waiting = self.tasks.buffered() if self.tasks else islice(self.queue, behind, None)
        event = event_of(command, self.state, self.now, waiting, self.policies)
        if event is None:
            return
        if self.tasks is not None:
            event = self.tasks.credited(event)
        if isinstance(event, ev.CLOSING):
            self.close(event)
            return
        self.emit(event, decide=False)
        if isinstance(event, ev.ActivityTaskCancelRequested):
            activity = self.state.activities[str(event.scheduled_event_id)]
            if activity.started_time is None:
                self.ended(activity, ev.ActivityTaskCanceled)  # nobody works on it who would have to be asked

    def keep_within_limits(self) -> None:
        """Terminate a run whose history has grown too long, as Temporal's server does."""
        if self.open() and (self.state.next_event_id > MAX_EVENTS + 1 or self.state.history_size > MAX_BYTES):
            reason = (
                f"the history has {self.state.next_event_id - 1:,} events and {self.state.history_size:,} bytes, more than "
                f"the {MAX_EVENTS:,} events or {MAX_BYTES // 2**20} MiB that a run may have: let the workflow use "
                "`continueAsNew` in time"
            )
            self.close(ev.WorkflowExecutionTerminated(reason=reason, **self.here))


def is_to_be_recorded(activity: PendingActivity, now: datetime) -> bool:
    """Whether a worker has the attempt for so long that a commit is to say so."""
    return (
        activity.by_worker
        and activity.started_time is not None
        and not activity.start_recorded
        and activity.started_time + RECORD_START_AFTER <= now
    )


def _without(entries: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: entry for name, entry in entries.items() if name != key}
