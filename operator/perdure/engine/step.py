"""One pass over a run: inputs and due deadlines become events, events become decisions, decisions become events again.

``step`` is the whole engine: pure, with the time as an argument. What it returns is committed in one write; what the
committed state asks for (pods, timers) is done afterwards and may be done again.

Events wait in a queue, in the order of the history, until the decider is asked about them: nobody is asked while the run is
paused, before its first decision is due, while a decider that could not decide backs off, and once a pass has done enough.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities import ActivityPass, no_activity
from perdure.engine.activities import moments as moments_of_activities
from perdure.engine.decider import Decider, UndecidableError
from perdure.engine.failures import MAX_MESSAGE, Failure, FailureKind, TimeoutType
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK, Due, Ledger
from perdure.engine.nexus import NexusPass
from perdure.engine.nexus import moments as moments_of_operations
from perdure.engine.opaque import plain
from perdure.engine.recording import activity_named, event_of, next_run
from perdure.engine.relations import RelationPass
from perdure.engine.retired import Retired
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import PauseInfo, RunState, TaskFailure, apply
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
class RunTransition:
    """What a pass has come to."""

    state: RunState
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
) -> RunTransition:
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
    first = RunPass(apply(None, attributes), attributes.event_time, decider, policies)
    ledger = first.ledger
    ledger.events.append(attributes)
    if first.tasks is None:
        ledger.queue.append(attributes)
    ledger.news = True
    ledger.change(requests=tuple(heeded))
    for signal in signals:
        said = msgspec.structs.asdict(signal)
        ledger.emit(ev.WorkflowExecutionSignaled(**said, **ledger.here), decide=True)
    for request in requests:
        first.take_request(request)
    if paused:
        ledger.emit(ev.WorkflowExecutionPaused(**ledger.here), decide=False)
    return first.run(())


def step(
    state: RunState,
    inputs: Sequence[inp.RunInput],
    now: datetime,
    decider: Decider,
    policies: Mapping[str, RetryPolicy] | None = None,
    *,
    together: bool = False,
) -> RunTransition:
    """Advance a run; of a closed one, what is left to be done.

    Args:
        state: where it stands.
        inputs: what has been observed and asked since, in order. Stale ones (another attempt, a closed activity) change nothing.
        now: the time, UTC. Deadlines up to now fire, the earliest first, after the inputs: a result that is there counts,
            also a late one.
        decider: decides what follows.
        policies: the RetryPolicies that deciders may mean by name.
        together: whether all inputs are recorded before anything is decided.
    """
    return RunPass(state, now, decider, policies).run(inputs, together=together)


def terminate(state: RunState, reason: str, now: datetime, decider: Decider) -> RunTransition:
    """Stop a run at once, without asking anyone: what is open is retired, nothing is decided any more.

    Args:
        state: where it stands; open.
        reason: why, as a sentence.
        now: the time, UTC.
        decider: not asked.
    """
    last = RunPass(state, now, decider)
    last.ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **last.ledger.here))
    return last.transition()


def next_wake(state: RunState, after: datetime) -> datetime | None:
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


def _moments(state: RunState) -> Iterator[datetime]:
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
    yield from moments_of_activities(state)
    yield from moments_of_operations(state)


class RunPass:
    """The work of one `step`; lives no longer than it."""

    def __init__(
        self, state: RunState, now: datetime, decider: Decider, policies: Mapping[str, RetryPolicy] | None = None
    ) -> None:
        self.ledger = Ledger(state, now)
        self.attempts = ActivityPass(self.ledger)
        self.others = RelationPass(self.ledger)
        self.operations = NexusPass(self.ledger)
        self.tasks = machine.Tasks(self.ledger, self._record) if state.code is not None else None
        self.ledger.tasks = self.tasks
        self.policies = policies
        self.decider = decider
        self.answers: dict[str, Answer] = {}
        self.enough = False
        self.rounds = 0
        self.work = 0

    def run(self, inputs: Sequence[inp.RunInput], *, together: bool = False) -> RunTransition:
        """Take the inputs, then what is due."""
        checked = {(i.scheduled_event_id, i.attempt) for i in inputs if isinstance(i, inp.HeartbeatRead)}
        if self.tasks is None:
            self.attempts.cancel_unstarted()
        if not together:
            self._decide()
        for item in inputs:
            self._take(item)
            if not together:
                self._decide()
        if together:
            self._decide()
        while self.ledger.open() and (due := sorted(self._due(checked), key=lambda d: d[:3])):
            for _, _, _, fire in due:
                if self.ledger.open():
                    fire()
                    self._decide()
        return self.transition()

    def transition(self) -> RunTransition:
        """What has come of it."""
        if self.ledger.open():
            self.ledger.change(undecided=tuple(self.ledger.queue))
        return RunTransition(
            self.ledger.state,
            tuple(self.ledger.events),
            tuple(self.ledger.retired),
            durable=self.ledger.durable or bool(self.ledger.events),
            more=self.tasks is None and self.enough and self.ledger.state.task is None and self._has_to_ask(),
            answers=self.answers,
        )

    # Inputs

    def _take(self, item: inp.RunInput) -> None:  # noqa: C901 (one case for each input)
        match item:
            case inp.RequestForgotten():
                self.ledger.change(requests=tuple(r for r in self.ledger.state.requests if r != item.request_id))
            case inp.EffectDone():
                self.others.effect_done(item.effect, item.refused)
            case inp.DecideAgain():
                self.ledger.news = True
            case inp.ChildStarted() | inp.ChildStartFailed() | inp.ChildClosed():
                self.others.take_child(item)
            case inp.ExternalDone():
                self.others.external_done(item)
            case inp.UpdateAdmitted():
                self._admit_update(item)
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
                | inp.OverrideChanged()
            ):
                self.take_request(item)
            case inp.ActivityTaken() | inp.ActivityReturned() | inp.ActivityReported() | inp.ActivityBeat():
                self.answers[item.request_id] = self.attempts.take_report(item)
            case inp.OperationReported() | inp.OperationCancelReported() | inp.OperationEnded():
                self.answers[item.request_id] = self.operations.take(item)
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
                self.attempts.take_attempt(item)

    def _admit_update(self, item: inp.UpdateAdmitted) -> None:
        """Record an update that a reset has brought, unless it is known. The worker that decides next is asked about it."""
        code = self.ledger.state.code
        if code is not None and item.update_id not in code.updates and item.update_id not in code.admitted:
            self.ledger.emit(ev.WorkflowExecutionUpdateAdmitted(**asdict(item), **self.ledger.here), decide=True)

    # Requests

    def take_request(self, request: inp.Request) -> None:
        """Answer a request. One that was heeded is remembered, so that asking again changes nothing."""
        if request.request_id in self.ledger.state.requests:
            self.answers[request.request_id] = OK
            return
        if self.ledger.open():
            answer = self._answer(request)
            if answer.ok:
                self.ledger.change(requests=(*self.ledger.state.requests, request.request_id)[-MAX_REQUESTS:])
        else:
            message = f"the run has closed: {self.ledger.state.status}"
            wanted = isinstance(request, inp.CancelRequested)  # that it ends
            answer = Answer(ok=wanted, reason=inp.CLOSED, message=message)
        self.answers[request.request_id] = answer

    def _answer(self, request: inp.Request) -> Answer:  # noqa: C901, PLR0911, PLR0912 (one case for each request)
        if self.tasks is not None and isinstance(request, inp.SignalRequested) and self.tasks.refuses():
            return Answer(ok=False, reason=inp.CLOSING, message="workflow is closing")
        match request:
            case inp.SignalRequested() if self.ledger.state.standalone:
                message = "a standalone activity takes no signals"
                return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
            case inp.SignalRequested():
                if self.ledger.state.signals >= MAX_SIGNALS:
                    message = (
                        f"the run has received {MAX_SIGNALS:,} signals, and takes no more; it should continue as new"
                    )
                    return Answer(ok=False, reason=ConditionReason.SIGNAL_LIMIT_EXCEEDED, message=message)
                self.ledger.emit(
                    ev.WorkflowExecutionSignaled(
                        signal_name=request.signal_name,
                        input=request.input if self.ledger.state.code is not None else plain(request.input),
                        identity=request.identity,
                        principal=request.principal,
                        header=request.header,
                        external=request.external,
                        request_id=request.client_request_id,
                        **self.ledger.here,
                    ),
                    decide=True,
                )
            case inp.CancelRequested() if request.stop and self.tasks is not None:
                message = "workers decide the run, and it has no `finally`; cancel or terminate it"
                return Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message)
            case inp.CancelRequested():
                if not self.ledger.state.cancel_requested and not (self.tasks and self.tasks.cancel_is_buffered()):
                    event = ev.WorkflowExecutionCancelRequested
                    asked = event(
                        cause=request.reason,
                        identity=request.identity,
                        principal=request.principal,
                        external=request.external,
                        stop=request.stop,
                        **self.ledger.here,
                    )
                    self.ledger.emit(asked, decide=True)
            case inp.TerminateRequested():
                self.ledger.close(
                    ev.WorkflowExecutionTerminated(
                        reason=request.reason,
                        details=request.details,
                        identity=request.identity,
                        principal=request.principal,
                        reset_run=request.reset_run,
                        reset_event_id=request.reset_event_id,
                        **self.ledger.here,
                    )
                )
            case inp.PauseRequested() | inp.UnpauseRequested():
                return self._pause(request)
            case inp.CallbacksAttached():
                return self.operations.attach_callbacks(request)
            case inp.OverrideChanged():
                return self._override(request)
            case inp.ActivityAnswered():
                return self.attempts.activity_answered(request)
            case inp.ActivityReset() | inp.OptionsChanged():
                return self.attempts.activity_changed(request)
            case _:
                raise TypeError(f"not a request: {request}")
        return OK

    def _override(self, request: inp.OverrideChanged) -> Answer:
        """Set or remove the versioning override."""
        code = self.ledger.state.code
        if code is None:
            message = "only workflows of Temporal SDK workers have a versioning override"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if code.versioning.override != request.override:
            updated = ev.WorkflowExecutionOptionsUpdated(
                versioning_override=request.override,
                unset_versioning_override=request.override is None,
                identity=request.identity,
                principal=request.principal,
                **self.ledger.here,
            )
            self.ledger.emit(updated, decide=False)
        return OK

    def _pause(self, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause the run, which its history tells, or an activity, which it does not.

        To pause the run of a standalone activity is to pause the activity: an attempt that runs may still complete it.
        """
        pause = isinstance(request, inp.PauseRequested)
        activity_id = request.activity_id
        if self.ledger.state.standalone and activity_id is None:  # none is scheduled yet where the run starts paused
            activity_id = next((each.activity_id for each in self.ledger.state.activities.values()), None)
        if activity_id is None:
            if pause is (self.ledger.state.paused is None):
                event = ev.WorkflowExecutionPaused if pause else ev.WorkflowExecutionUnpaused
                asked = event(
                    reason=request.reason, identity=request.identity, principal=request.principal, **self.ledger.here
                )
                self.ledger.emit(asked, decide=False)
            return OK
        activity = activity_named(self.ledger.state, activity_id)
        if activity is None:
            return no_activity(activity_id)
        if activity.paused is not pause:
            asked_by = (
                PauseInfo(reason=request.reason, identity=request.identity, time=self.ledger.now) if pause else None
            )
            self.ledger.state = self.ledger.state.with_activity(
                msgspec.structs.replace(activity, paused=pause, pause=asked_by)
            )
            self.ledger.durable = True
        return OK

    # Deadlines

    def _due(self, checked: Collection[tuple[int, int]]) -> Iterator[Due]:
        """What is due now."""
        if self.ledger.state.run_deadline and self.ledger.state.run_deadline <= self.ledger.now:
            yield self.ledger.state.run_deadline, 2, "", self._run_timed_out
        if self.tasks is not None:
            yield from self.tasks.due()
        timers = self.ledger.state.timers.values() if self.ledger.takes_others() else ()
        for timer in timers:
            if timer.fire_time <= self.ledger.now:
                yield timer.fire_time, 0, timer.timer_id, partial(self._timer_fired, timer.timer_id)
        yield from self.attempts.due(checked)
        yield from self.operations.due()

    def _run_timed_out(self) -> None:
        """Close the run. Another attempt may follow the end of a run, none the end of the whole chain's time."""
        timeout = Failure(kind=FailureKind.TIMEOUT, timeout_type=TimeoutType.START_TO_CLOSE)
        expired = self.ledger.state.expiration is not None and self.ledger.state.expiration <= self.ledger.now
        follows = {} if expired else next_run(self.ledger.state, timeout, self.ledger.now)
        self.ledger.close(ev.WorkflowExecutionTimedOut(**follows, **self.ledger.here))

    def _timer_fired(self, timer_id: str) -> None:
        timer = self.ledger.state.timers.get(timer_id)
        if timer is not None and timer.fire_time <= self.ledger.now:
            self.ledger.emit(
                ev.TimerFired(timer_id=timer_id, started_event_id=timer.started_event_id, **self.ledger.here),
                decide=True,
            )

    # Decisions

    def _has_to_ask(self) -> bool:
        """Whether there is something to decide, and nothing but a failed attempt to decide stands against it."""
        first = self.ledger.state.first_decision_time
        waits = self.ledger.state.paused is not None or (first is not None and first > self.ledger.now)
        return self.ledger.open() and not waits and bool(self.ledger.state.unfinished or self.ledger.queue)

    def _decide(self) -> None:
        """Ask the decider about everything it has not been asked about, as far as that may be now."""
        self._keep_within_limits()
        if self.tasks is not None:
            self.tasks.settle()
            return
        while not self.enough and self._has_to_ask():
            task = self.ledger.state.task
            if task is not None and task.next_attempt_time > self.ledger.now and not self.ledger.news:
                break
            self._ask()
            self._keep_within_limits()

    def _ask(self) -> None:
        """Ask the decider about the next event, and do what it says; all of it or, where it cannot decide, nothing."""
        event = None if self.ledger.state.unfinished else self.ledger.queue[0]
        suggested = event is not None and self.ledger.state.suggests_continuing(event)
        before = self.ledger.state
        lengths = [(grown, len(grown)) for grown in (self.ledger.events, self.ledger.retired, self.ledger.queue)]
        try:
            decision = self.decider.decide(before.memory, event, continue_as_new_suggested=suggested)
            self.ledger.change(memory=decision.memory, unfinished=decision.more, task=None)
            for command in decision.commands:
                self._record(command, behind=0 if event is None else 1)
        except UndecidableError as error:
            self.ledger.state = before
            for grown, length in lengths:
                while len(grown) > length:
                    grown.pop()
            self._fail_task(str(error), error.reason)
        else:
            if event is not None:
                self.ledger.queue.popleft()
            self.rounds += 1
            self.work += decision.work
            self.enough = decision.more or self.work > MAX_WORK_PER_PASS or self.rounds >= MAX_ROUNDS
        self.ledger.durable = True

    def _fail_task(self, message: str, reason: str = "") -> None:
        """Note that nobody could decide; once more in a while, or when something else happens."""
        attempt = self.ledger.state.task.attempt + 1 if self.ledger.state.task else 1
        backoff = min(timedelta(seconds=2 ** min(attempt, 10)), _LONGEST_TASK_BACKOFF)
        self.ledger.change(
            task=TaskFailure(
                attempt=attempt,
                message=message[:MAX_MESSAGE],
                reason=reason,
                next_attempt_time=self.ledger.now + backoff,
            )
        )
        self.enough = True

    def _record(self, command: cmd.Command, *, behind: int = 0) -> None:
        """Record a command. `behind`: at which place the queue begins that is behind the event being decided."""
        if not self.ledger.open():
            raise UndecidableError("invalid command sequence: a command follows the one that closes the run")
        waiting = self.tasks.buffered() if self.tasks else islice(self.ledger.queue, behind, None)
        event = event_of(command, self.ledger.state, self.ledger.now, waiting, self.policies)
        if event is None:
            return
        if self.tasks is not None:
            event = self.tasks.credited(event)
        if isinstance(event, ev.CLOSING):
            self.ledger.close(event)
            return
        self.ledger.emit(event, decide=False)
        if isinstance(event, ev.ActivityTaskCancelRequested):
            activity = self.ledger.state.activities[str(event.scheduled_event_id)]
            if activity.started_time is None:
                self.attempts.canceled_unstarted(activity)

    def _keep_within_limits(self) -> None:
        """Terminate a run whose history has grown too long, as Temporal's server does."""
        state = self.ledger.state
        if self.ledger.open() and (state.next_event_id > MAX_EVENTS + 1 or state.history_size > MAX_BYTES):
            reason = (
                f"the history has {state.next_event_id - 1:,} events and {state.history_size:,} bytes, more than "
                f"the {MAX_EVENTS:,} events or {MAX_BYTES // 2**20} MiB that a run may have: let the workflow use "
                "`continueAsNew` in time"
            )
            self.ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **self.ledger.here))
