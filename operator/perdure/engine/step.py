"""One step of a run: pure functions that take it from one state to the next, with the time as an argument.

In a step, inputs and deadlines become events, events become decisions, and decisions become events again. Each result is
committed in one write. The effects of the committed state (`effects`) follow, and can be repeated.

The parts of a step write to one `ledger`: `activities`, `tasks` (workflow tasks of workers), `nexus` (operations), `relations`
(children and other runs), `requests` (of clients), and `decisions`, which records the commands of the decider.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial

import msgspec

from perdure.engine import activities, nexus, tasks
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities import Activities
from perdure.engine.decider import Decider
from perdure.engine.decisions import Decisions
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.fold import apply
from perdure.engine.inputs import ActivityDispatched, ActivityHeartbeat, Answer, TaskDispatched, TaskRequested
from perdure.engine.ledger import Due, Ledger, Retired
from perdure.engine.nexus import NexusOperations
from perdure.engine.recording import next_run
from perdure.engine.relations import RelatedRuns
from perdure.engine.requests import RunRequests
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import RunState
from perdure.engine.tasks import WorkflowTaskMachine


@dataclass(frozen=True, slots=True)
class RunTransition:
    """The result of a step."""

    state: RunState
    events: tuple[ev.AnyEvent, ...]
    """New events, to append to the history."""
    retired: tuple[Retired, ...]
    durable: bool
    """Whether this must be committed now. Informative changes (an attempt runs, a heartbeat arrived) wait for the next commit."""
    more: bool
    """Whether the step stopped because it reached its limit, so that the next one must follow immediately."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """The answers by request ID."""


def start(
    attributes: ev.WorkflowExecutionStarted,
    decider: Decider,
    signals: Sequence[CarriedSignal] = (),
    *,
    applied: Sequence[str] = (),
    requests: Sequence[inp.SignalRequested] = (),
    paused: bool = False,
    policies: Mapping[str, RetryPolicy] | None = None,
) -> RunTransition:
    """The first step of a run.

    Args:
        attributes: The attributes of its first event.
        decider: The decider of the run.
        signals: Signals that the previous run of the chain has not consumed.
        applied: IDs of requests that the previous run has applied. They change nothing if they are sent again.
        requests: The signals that start the run. It gets them before its first decision.
        paused: Whether the run must be unpaused before its first decision.
        policies: The RetryPolicies that deciders can name.
    """
    first = RunStep(apply(None, attributes), attributes.event_time, decider, policies)
    ledger = first.ledger
    ledger.events.append(attributes)
    if ledger.tasks is None:
        ledger.queue.append(attributes)
    ledger.has_new_events = True
    ledger.change(requests=tuple(applied))
    for signal in signals:
        carried = msgspec.structs.asdict(signal)
        ledger.emit(ev.WorkflowExecutionSignaled(**carried, **ledger.position), decide=True)
    for request in requests:
        first.request(request)
    if paused:
        ledger.emit(ev.WorkflowExecutionPaused(**ledger.position), decide=False)
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
    """The next step of a run, open or closed.

    Args:
        state: The state of the run.
        inputs: Observations and requests since the last step, in order. Stale inputs (another attempt, a closed activity)
            change nothing.
        now: The time, UTC. Passed deadlines fire in order after the inputs, so a result counts even if it is late.
        decider: The decider of the run.
        policies: The RetryPolicies that deciders can name.
        together: Whether to record all inputs before the first decision.
    """
    return RunStep(state, now, decider, policies).run(inputs, together=together)


def terminate(state: RunState, reason: str, now: datetime, decider: Decider) -> RunTransition:
    """Terminate a run immediately, without further decisions.

    Args:
        state: The state of an open run.
        reason: Why it is terminated, as a sentence.
        now: The time, UTC.
        decider: Not used.
    """
    last = RunStep(state, now, decider)
    last.ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **last.ledger.position))
    return last.transition()


def next_wake(state: RunState, after: datetime) -> datetime | None:
    """When a run needs its next step if nothing happens before.

    Args:
        state: Its state after a step.
        after: The time of that step, which has processed everything that was due by then.

    Returns:
        A time after `after`; None if the run is closed, or waits only for inputs.
    """
    if state.closed:
        return None
    return min((time for time in _wake_times(state) if time > after), default=None)


def _wake_times(state: RunState) -> Iterator[datetime]:
    if state.run_deadline:
        yield state.run_deadline
    if state.code is not None:
        yield from tasks.wake_times(state)
    if not state.paused and (state.undecided or state.unfinished):
        if state.task:
            yield state.task.next_attempt_time
        if state.first_decision_time:
            yield state.first_decision_time
    for timer in state.timers.values():
        yield timer.fire_time
    yield from activities.wake_times(state)
    yield from nexus.wake_times(state)


class RunStep:
    """The work of one step."""

    def __init__(
        self, state: RunState, now: datetime, decider: Decider, policies: Mapping[str, RetryPolicy] | None = None
    ) -> None:
        """Start from a state. See `step` for the arguments."""
        self.ledger = Ledger(state, now)
        self._activities = Activities(self.ledger)
        self._relations = RelatedRuns(self.ledger)
        self._operations = NexusOperations(self.ledger)
        self._decisions = Decisions(self.ledger, self._activities, decider, policies)
        self._tasks = self._decisions.tasks
        self._requests = RunRequests(self.ledger, self._tasks, self._activities, self._operations)
        self._answers: dict[str, Answer] = {}
        self._checked: Collection[tuple[int, int]] = ()
        """The attempts whose heartbeats were just read, by scheduled event ID and number."""

    def run(self, inputs: Sequence[inp.RunInput], *, together: bool = False) -> RunTransition:
        """Process the inputs, then all due actions."""
        self._checked = {(i.scheduled_event_id, i.attempt) for i in inputs if isinstance(i, inp.HeartbeatRead)}
        if self._tasks is None:
            self._activities.cancel_all_unstarted()
        if not together:
            self._decisions.decide()
        for item in inputs:
            self._handle(item)
            if not together:
                self._decisions.decide()
        if together:
            self._decisions.decide()
        self._take_due()
        return self.transition()

    def transition(self) -> RunTransition:
        """The result so far."""
        if self.ledger.open():
            self.ledger.change(undecided=tuple(self.ledger.queue))
        return RunTransition(
            self.ledger.state,
            tuple(self.ledger.events),
            tuple(self.ledger.retired),
            durable=self.ledger.durable or bool(self.ledger.events),
            more=self._decisions.stopped_early,
            answers=self._answers,
        )

    def request(self, item: inp.ClientRequest) -> None:
        """Process a request."""
        self._answers[item.request_id] = self._requests.handle(item)

    def _handle(self, item: inp.RunInput) -> None:  # noqa: C901 (one case for each input)
        match item:
            case inp.RequestForgotten():
                self.ledger.change(requests=tuple(r for r in self.ledger.state.requests if r != item.request_id))
            case inp.EffectDone():
                self._relations.effect_done(item.effect, item.refused)
            case inp.DecideAgain():
                self.ledger.has_new_events = True
            case inp.ChildStarted() | inp.ChildStartFailed() | inp.ChildClosed():
                self._relations.handle_child(item)
            case inp.ExternalDone():
                self._relations.external_done(item)
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
                self.request(item)
            case ActivityDispatched() | inp.ActivityReturned() | inp.ActivityReported() | ActivityHeartbeat():
                self._answers[item.request_id] = self._activities.report(item)
            case inp.OperationReported() | inp.OperationCancelReported() | inp.OperationEnded():
                self._answers[item.request_id] = self._operations.handle(item)
            case inp.TaskCompleted() if self._tasks is not None:
                self._complete(item, self._tasks)
            case (
                TaskRequested()
                | TaskDispatched()
                | inp.TaskReturned()
                | inp.TaskCompleted()
                | inp.TaskFailed()
                | inp.StickinessReset()
            ):
                no = Answer(ok=False, reason="TaskNotFound", message="no SDK worker runs this workflow")
                self._answers[item.request_id] = self._tasks.handle(item) if self._tasks is not None else no
            case _:
                self._activities.observe(item)

    def _admit_update(self, item: inp.UpdateAdmitted) -> None:
        """Record an update that a reset has passed on, unless it is known. The worker that decides next gets it."""
        code = self.ledger.state.code
        if code is not None and item.update_id not in code.updates and item.update_id not in code.admitted:
            self.ledger.emit(ev.WorkflowExecutionUpdateAdmitted(**asdict(item), **self.ledger.position), decide=True)

    def _complete(self, item: inp.TaskCompleted, tasks: WorkflowTaskMachine) -> None:
        """Process a decision. Inputs that wait for its end are processed before its worker begins the next decision."""
        self._answers[item.request_id] = tasks.handle(item)
        if tasks.next_is_requested:
            self._take_due()
            tasks.start_next()

    def _take_due(self) -> None:
        """Perform all due actions."""
        while self.ledger.open() and (due := sorted(self._due(), key=lambda d: d[:3])):
            for _, _, _, fire in due:
                if self.ledger.open():
                    fire()
                    self._decisions.decide()

    def _due(self) -> Iterator[Due]:
        """Yield the due actions."""
        state, now = self.ledger.state, self.ledger.now
        if state.run_deadline and state.run_deadline <= now:
            yield state.run_deadline, 2, "", self._time_out
        if self._tasks is not None:
            yield from self._tasks.due()
        for timer in self.ledger.state.timers.values() if self.ledger.processes_deferrable() else ():
            if timer.fire_time <= now:
                yield timer.fire_time, 0, timer.timer_id, partial(self._fire_timer, timer.timer_id)
        yield from self._activities.due(self._checked)
        yield from self._operations.due()

    def _time_out(self) -> None:
        """Close a run whose timeout has passed. A run timeout can be followed by a retry, an execution timeout cannot."""
        state, now = self.ledger.state, self.ledger.now
        timeout = Failure(kind=FailureKind.TIMEOUT, timeout_type=TimeoutType.START_TO_CLOSE)
        expired = state.expiration is not None and state.expiration <= now
        follows = {} if expired else next_run(state, timeout, now)
        self.ledger.close(ev.WorkflowExecutionTimedOut(**follows, **self.ledger.position))

    def _fire_timer(self, timer_id: str) -> None:
        timer = self.ledger.state.timers.get(timer_id)
        if timer is not None and timer.fire_time <= self.ledger.now:
            self.ledger.emit(
                ev.TimerFired(timer_id=timer_id, started_event_id=timer.started_event_id, **self.ledger.position),
                decide=True,
            )
