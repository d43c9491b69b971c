"""One pass over a run: inputs and due deadlines become events, events become decisions, decisions become events again.

``step`` is the whole engine: pure, with the time as an argument. What it returns is committed in one write; what the
committed state asks for (pods, timers) is done afterwards and may be done again.

Events wait in a queue, in the order of the history, until the decider is asked about them: nobody is asked while the run is
paused, before its first decision is due, while a decider that could not decide backs off, and once a pass has done enough.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.attempts import Attempts, is_to_be_recorded, no_activity
from perdure.engine.decider import Decider, UndecidableError
from perdure.engine.failures import MAX_MESSAGE, Failure, FailureKind, TimeoutType
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK
from perdure.engine.opaque import plain
from perdure.engine.operations import Operations
from perdure.engine.operations import moments as moments_of_operations
from perdure.engine.others import Others
from perdure.engine.recording import activity_named, event_of, next_run
from perdure.engine.retired import Retired
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import (
    RECORD_START_AFTER,
    Pause,
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

_LOGS_KEPT = 32
"""Open activities up to which each keeps the end of the log of its last failed attempt: they are 4 KiB each."""
_LONGEST_TASK_BACKOFF = timedelta(minutes=10)


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
    heeded: Sequence[str] = (),
    requests: Sequence[inp.SignalRequested] = (),
    paused: bool = False,
    policies: Mapping[str, RetryPolicy] | None = None,
) -> Transition:
    """The first pass of a run.

    Args:
        attributes: its first event.
        decider: decides what follows.
        signals: what the run before in the chain has not consumed.
        heeded: ids of requests that the run before has heeded: asked again, they change nothing.
        requests: the signals that the run is started for; it has them before its first decision.
        paused: whether the run waits to be unpaused before its first decision.
        policies: the RetryPolicies that deciders may mean by name.
    """
    first = _Pass(apply(None, attributes), attributes.event_time, decider, policies)
    first.events.append(attributes)
    if first.tasks is None:
        first.queue.append(attributes)
    first.news = True
    first.change(requests=tuple(heeded))
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
    last.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **last.here))
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
    yield from moments_of_operations(state)


def _moments_of_activities(state: State) -> Iterator[datetime]:
    for activity in state.activities.values():
        if activity.by_worker and activity.started_time is not None and not activity.start_recorded:
            yield activity.started_time + RECORD_START_AFTER
        if activity.started_time is None and not state.holds_back(activity):
            yield activity.scheduled_time
        for deadline, _ in activity.deadlines():
            yield deadline


class _Pass(Attempts, Others, Operations):
    """The work of one `step`; lives no longer than it."""

    def __init__(
        self, state: State, now: datetime, decider: Decider, policies: Mapping[str, RetryPolicy] | None = None
    ) -> None:
        super().__init__(state, now)
        self.tasks = machine.Tasks(self) if state.code is not None else None
        self.policies = policies
        self.decider = decider
        self.answers: dict[str, Answer] = {}
        self.enough = False
        self.rounds = 0
        self.work = 0

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

    # Inputs

    def take(self, item: inp.RunInput) -> None:  # noqa: C901 (one case for each input)
        match item:
            case inp.RequestForgotten():
                self.change(requests=tuple(r for r in self.state.requests if r != item.request_id))
            case inp.EffectDone():
                self.effect_done(item.effect, item.refused)
            case inp.DecideAgain():
                self.news = True
            case inp.ChildStarted() | inp.ChildStartFailed() | inp.ChildClosed():
                self.take_child(item)
            case inp.ExternalDone():
                self.external_done(item)
            case inp.UpdateAdmitted():
                self.admit_update(item)
            case (
                inp.SignalRequested()
                | inp.CancelRequested()
                | inp.TerminateRequested()
                | inp.PauseRequested()
                | inp.UnpauseRequested()
                | inp.ActivityAnswered()
                | inp.ActivityReset()
                | inp.OptionsChanged()
                | inp.CallbacksAttached()
            ):
                self.take_request(item)
            case inp.ActivityTaken() | inp.ActivityReturned() | inp.ActivityReported() | inp.ActivityBeat():
                self.answers[item.request_id] = self.take_report(item)
            case inp.OperationReported() | inp.OperationCancelReported() | inp.OperationEnded():
                self.answers[item.request_id] = self.take_operation(item)
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

    def admit_update(self, item: inp.UpdateAdmitted) -> None:
        """Record an update that a reset has brought, unless it is known. The worker that decides next is asked about it."""
        code = self.state.code
        if code is not None and item.update_id not in code.updates and item.update_id not in code.admitted:
            self.emit(ev.WorkflowExecutionUpdateAdmitted(**asdict(item), **self.here), decide=True)

    # Requests

    def take_request(self, request: inp.Request) -> None:
        """Answer a request. One that was heeded is remembered, so that asking again changes nothing."""
        if request.request_id in self.state.requests:
            self.answers[request.request_id] = OK
            return
        if self.open():
            answer = self.heed(request)
            if answer.ok:
                self.change(requests=(*self.state.requests, request.request_id)[-MAX_REQUESTS:])
        else:
            message = f"the run has closed: {self.state.status}"
            wanted = isinstance(request, inp.CancelRequested)  # that it ends
            answer = Answer(ok=wanted, reason=inp.CLOSED, message=message)
        self.answers[request.request_id] = answer

    def heed(self, request: inp.Request) -> Answer:  # noqa: C901, PLR0911 (one case for each request)
        if self.tasks is not None and isinstance(request, inp.SignalRequested) and self.tasks.refuses():
            return Answer(ok=False, reason=inp.CLOSING, message="workflow is closing")
        match request:
            case inp.SignalRequested():
                if self.state.signals >= MAX_SIGNALS:
                    message = (
                        f"the run has received {MAX_SIGNALS:,} signals, and takes no more; it should continue as new"
                    )
                    return Answer(ok=False, reason=ConditionReason.SIGNAL_LIMIT_EXCEEDED, message=message)
                self.emit(
                    ev.WorkflowExecutionSignaled(
                        signal_name=request.signal_name,
                        input=request.input if self.state.code is not None else plain(request.input),
                        identity=request.identity,
                        principal=request.principal,
                        header=request.header,
                        external=request.external,
                        **self.here,
                    ),
                    decide=True,
                )
            case inp.CancelRequested():
                if not self.state.cancel_requested and not (self.tasks and self.tasks.cancel_is_buffered()):
                    event = ev.WorkflowExecutionCancelRequested
                    asked = event(
                        cause=request.reason,
                        identity=request.identity,
                        principal=request.principal,
                        external=request.external,
                        **self.here,
                    )
                    self.emit(asked, decide=True)
            case inp.TerminateRequested():
                self.close(
                    ev.WorkflowExecutionTerminated(
                        reason=request.reason,
                        details=request.details,
                        identity=request.identity,
                        principal=request.principal,
                        reset_run=request.reset_run,
                        reset_event_id=request.reset_event_id,
                        **self.here,
                    )
                )
            case inp.PauseRequested() | inp.UnpauseRequested():
                return self.pause(request)
            case inp.CallbacksAttached():
                return self.attach_callbacks(request)
            case inp.ActivityAnswered():
                return self.activity_answered(request)
            case inp.ActivityReset() | inp.OptionsChanged():
                return self.activity_changed(request)
            case _:
                raise TypeError(f"not a request: {request}")
        return OK

    def pause(self, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause the run, which its history tells, or an activity, which it does not."""
        pause = isinstance(request, inp.PauseRequested)
        if request.activity_id is None:
            if pause is (self.state.paused is None):
                event = ev.WorkflowExecutionPaused if pause else ev.WorkflowExecutionUnpaused
                asked = event(
                    reason=request.reason, identity=request.identity, principal=request.principal, **self.here
                )
                self.emit(asked, decide=False)
            return OK
        activity = activity_named(self.state, request.activity_id)
        if activity is None:
            return no_activity(request.activity_id)
        if activity.paused is not pause:
            asked_by = Pause(reason=request.reason, identity=request.identity, time=self.now) if pause else None
            self.state = self.state.with_activity(msgspec.structs.replace(activity, paused=pause, pause=asked_by))
            self.durable = True
        return OK

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
            for place, (deadline, kind) in enumerate(activity.deadlines()):
                attempt = activity.scheduled_event_id, activity.attempt
                unread = kind is TimeoutType.HEARTBEAT and attempt not in checked and not activity.by_worker
                if deadline <= self.now and not unread:
                    key = f"{activity.scheduled_event_id}/{place}"
                    yield deadline, 1, key, partial(self.activity_timed_out, activity, kind)
        yield from self.operations_due()

    def takes_others(self) -> bool:
        """Whether what leaves events, and need not be acknowledged, is taken now: not while a worker decides."""
        return self.state.code is None or not self.state.code.deciding

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
                message=message[:MAX_MESSAGE],
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
                self.canceled_unstarted(activity)

    def keep_within_limits(self) -> None:
        """Terminate a run whose history has grown too long, as Temporal's server does."""
        if self.open() and (self.state.next_event_id > MAX_EVENTS + 1 or self.state.history_size > MAX_BYTES):
            reason = (
                f"the history has {self.state.next_event_id - 1:,} events and {self.state.history_size:,} bytes, more than "
                f"the {MAX_EVENTS:,} events or {MAX_BYTES // 2**20} MiB that a run may have: let the workflow use "
                "`continueAsNew` in time"
            )
            self.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **self.here))
