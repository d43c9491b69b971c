"""One step of a run: pure functions that take it from one state to the next, with the time as an argument.

In a step, inputs and deadlines become events, events become decisions, and decisions become events again. Each result is
committed in one write. The effects of the committed state (`effects`) follow, and can be repeated.

The parts of a step write to one ledger (`ledger`): `activities`, `tasks` (workflow tasks of workers), `nexus` (operations),
`relations` (children and other runs), and, in this module, the requests of clients and the decisions.

Events wait in a queue, in the order of the history, until the decider decides about them. It does not decide while the run is
paused, before the first decision is due, during the backoff after it could not decide, and once a step has reached its limit.
A request that waits for the decider says so in its answer. A cancellation ends a run that has not begun immediately.
A run whose history has grown too large is terminated before the next decision.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, assert_never

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine import activities, nexus, tasks
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities import Activities
from perdure.engine.commands import Decider, UndecidableError
from perdure.engine.failures import MAX_MESSAGE, Failure, FailureKind, TimeoutType
from perdure.engine.fold import apply
from perdure.engine.inputs import ActivityDispatched, ActivityHeartbeat, Answer, TaskDispatched, TaskRequested
from perdure.engine.ledger import OK, Due, Ledger, Retired, event_of, next_run
from perdure.engine.nexus import NexusOperations
from perdure.engine.payloads import plain
from perdure.engine.relations import RelatedRuns
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import RunState, TaskFailure
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
    transition = RunStep(state, now, decider, policies).run(inputs, together=together)
    while transition.state.kept:
        known, completions = _completions(transition.state)
        transition = replace(transition, state=known)
        if not completions:
            break
        following = RunStep(known, now, decider, policies).run(completions)
        transition = replace(
            following,
            events=(*transition.events, *following.events),
            retired=(*transition.retired, *following.retired),
            durable=transition.durable or following.durable,
            answers={**transition.answers, **following.answers},
        )
    return transition


def _completions(state: RunState) -> tuple[RunState, list[inp.RunInput]]:
    """The completions of activities and children of a retry whose results are kept, and the state without these results."""
    left, completions = dict(state.kept), list[inp.RunInput]()
    for activity in state.activities.values():
        kept = left.pop(activity.activity_id, None)
        if kept is not None and kept.fits(activity.activity_type, activity.input):
            number, attempt = activity.scheduled_event_id, activity.attempt
            completions.append(
                inp.AttemptCompleted(
                    scheduled_event_id=number, attempt=attempt, result=kept.result, artifacts=kept.artifacts
                )
            )
    for child in state.children.values():
        kept = left.pop(child.child_id, None)
        if kept is not None and child.start is not None and kept.fits(child.workflow_type, child.start.input):
            number, completed = child.initiated_event_id, inp.ChildOutcome.COMPLETED
            completions += (
                inp.ChildStarted(initiated_event_id=number, run_id=kept.run_id),
                inp.ChildClosed(initiated_event_id=number, run_id=kept.run_id, outcome=completed, result=kept.result),
            )
    return (state if len(left) == len(state.kept) else msgspec.structs.replace(state, kept=left)), completions


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


def only_waits(state: RunState, now: datetime) -> bool:
    """Whether an open run has only timers, the end of its timeouts, and messages ahead: until one is there, nobody works for it.

    Args:
        state: Its state after a step.
        now: The time of that step.
    """
    if state.closed or state.unfinished or state.task is not None or (state.undecided and not state.is_held(now)):
        return False
    code = state.code
    if code is not None and (code.task is not None or code.buffered or code.admitted):
        return False
    if any(state.is_due(callback) for callback in state.callbacks.values()):
        return False
    at_work = (state.activities, state.children, state.externals, state.operations, state.markers, state.reports)
    return not any(at_work)


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

    def _handle(self, item: inp.RunInput) -> None:
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
        """Perform all due actions.

        Raises:
            RuntimeError: They change nothing, because the state contradicts itself.
        """
        performed: tuple[RunState, list[Any]] | None = None
        while self.ledger.open() and (due := sorted(self._due(), key=lambda d: d[:3])):
            found = [each[:3] for each in due]
            if performed is not None and performed[0] is self.ledger.state and performed[1] == found:
                raise RuntimeError(f"what was due at {found[0][0]} is still due: the state contradicts itself")
            performed = self.ledger.state, found
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


MAX_SIGNALS = 10_000
"""Number of signals that one run can receive."""
MAX_REQUESTS = 10_000
"""Number of request IDs that the state keeps; the oldest are dropped first."""


class RunRequests:
    """Processes requests. The state keeps the IDs of applied requests, so that sending one again changes nothing."""

    def __init__(
        self,
        ledger: Ledger,
        tasks: WorkflowTaskMachine | None,
        activities: Activities,
        operations: NexusOperations,
    ) -> None:
        """Take the parts of the step.

        Args:
            ledger: Collects the output of the step.
            tasks: The workflow task; None if the decider runs in this process.
            activities: Processes requests about activities.
            operations: Attaches the callbacks of Nexus operations.
        """
        self._ledger = ledger
        self._tasks = tasks
        self._activities = activities
        self._operations = operations

    def handle(self, request: inp.ClientRequest) -> Answer:
        """Process a request."""
        state = self._ledger.state
        if request.request_id in state.requests:
            return OK
        if not self._ledger.open():
            done = isinstance(request, inp.CancelRequested)  # its goal, the end of the run, is reached
            return Answer(ok=done, reason=inp.CLOSED, message=f"the run has closed: {state.status}")
        answer = self._apply(request)
        if not answer.ok:
            return answer
        self._ledger.change(requests=(*self._ledger.state.requests, request.request_id)[-MAX_REQUESTS:])
        when = self._deferred_until(request)
        if not when or answer.reason:
            return answer
        return replace(
            answer, reason=ConditionReason.DEFERRED.value, message=f"the request is recorded, and takes effect {when}"
        )

    def _deferred_until(self, request: inp.ClientRequest) -> str:
        """When an applied request takes effect, as the end of a sentence; empty if it has, or if that is up to workers."""
        state, now = self._ledger.state, self._ledger.now
        match request:
            case inp.SignalRequested() | inp.CancelRequested():
                return state.defers_until(now)
            case inp.UnpauseRequested(activity_id=None, activity_type=None):
                return state.defers_until(now)
            case inp.UnpauseRequested(activity_id=str(step)) | inp.ActivityReset(activity_id=str(step)):
                found = next((each for each in state.open_activities() if each.activity_id == step), None)
                if found is None or state.closed:
                    return ""
                if isinstance(request, inp.ActivityReset) and found.started_time is not None:
                    return f"when the running attempt {found.attempt} has ended"
                if found.paused:
                    return "once the activity is unpaused"
                return "once the run is unpaused" if state.paused is not None else ""
            case _:
                return ""

    def _has_begun(self) -> bool:
        """Whether the run has made its first decision, or will make it in this step."""
        queue = self._ledger.queue
        never = self._tasks is None and bool(queue) and isinstance(queue[0], ev.WorkflowExecutionStarted)
        return not (never and self._ledger.state.is_held(self._ledger.now))

    def _apply(self, request: inp.ClientRequest) -> Answer:
        match request:
            case inp.SignalRequested():
                return self._signal(request)
            case inp.CancelRequested():
                return self._cancel(request)
            case inp.TerminateRequested():
                return self._terminate(request)
            case inp.PauseRequested() | inp.UnpauseRequested():
                return self._pause(request)
            case inp.CallbacksAttached():
                return self._operations.attach_callbacks(request)
            case inp.OverrideChanged():
                return self._change_override(request)
            case inp.ActivityAnswered():
                return self._activities.complete(request)
            case inp.ActivityReset() | inp.OptionsChanged():
                return self._activities.change(request)
            case _:
                assert_never(request)

    def _signal(self, request: inp.SignalRequested) -> Answer:
        state = self._ledger.state
        if self._tasks is not None and self._tasks.refuses_signals():
            return Answer(ok=False, reason=inp.CLOSING, message="workflow is closing")
        if state.standalone:
            message = "a standalone activity or Nexus operation does not accept signals"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if state.signals >= MAX_SIGNALS:
            message = (
                f"the run has received {MAX_SIGNALS:,} signals and accepts no more; the workflow must continue as new"
            )
            return Answer(ok=False, reason=ConditionReason.SIGNAL_LIMIT_EXCEEDED, message=message)
        event = ev.WorkflowExecutionSignaled(
            signal_name=request.signal_name,
            input=request.input if state.code is not None else plain(request.input),
            identity=request.identity,
            principal=request.principal,
            header=request.header,
            external=request.external,
            request_id=request.client_request_id,
            links=request.links,
            **self._ledger.position,
        )
        self._ledger.emit(event, decide=True)
        return OK

    def _cancel(self, request: inp.CancelRequested) -> Answer:
        if request.stop and self._tasks is not None:
            message = "SDK workers run the workflow, so it has no `finally`; cancel or terminate it instead"
            return Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message)
        if self._ledger.state.cancel_requested or (self._tasks is not None and self._tasks.cancel_is_buffered()):
            return OK
        event = ev.WorkflowExecutionCancelRequested(
            cause=request.reason,
            identity=request.identity,
            principal=request.principal,
            external=request.external,
            stop=request.stop,
            links=request.links,
            **self._ledger.position,
        )
        begun = self._has_begun()
        self._ledger.emit(event, decide=True)
        if not begun:  # it has no work to stop and no handlers to run, and must not wait for its start
            self._ledger.close(ev.WorkflowExecutionCanceled(**self._ledger.position))
        return OK

    def _terminate(self, request: inp.TerminateRequested) -> Answer:
        self._ledger.close(
            ev.WorkflowExecutionTerminated(
                reason=request.reason,
                details=request.details,
                identity=request.identity,
                principal=request.principal,
                reset_run=request.reset_run,
                reset_event_id=request.reset_event_id,
                links=request.links,
                **self._ledger.position,
            )
        )
        return OK

    def _pause(self, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause the run or an activity. The history records only pauses of the run.

        Pausing the run of a standalone activity pauses the activity. A running attempt can still complete it.
        """
        state = self._ledger.state
        activity_id = request.activity_id
        if state.standalone and activity_id is None:  # no activity is scheduled yet if the run starts paused
            activity_id = next((each.activity_id for each in state.open_activities()), None)
        if activity_id is not None or request.activity_type is not None:
            return self._activities.pause(activity_id, request)
        pause = isinstance(request, inp.PauseRequested)
        if pause is (state.paused is None):
            event = ev.WorkflowExecutionPaused if pause else ev.WorkflowExecutionUnpaused
            recorded = event(
                reason=request.reason, identity=request.identity, principal=request.principal, **self._ledger.position
            )
            self._ledger.emit(recorded, decide=False)
        return OK

    def _change_override(self, request: inp.OverrideChanged) -> Answer:
        """Set or remove the versioning override."""
        code = self._ledger.state.code
        if code is None:
            message = "only workflows of Temporal SDK workers have a versioning override"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if code.versioning.override != request.override:
            event = ev.WorkflowExecutionOptionsUpdated(
                versioning_override=request.override,
                unset_versioning_override=request.override is None,
                identity=request.identity,
                principal=request.principal,
                **self._ledger.position,
            )
            self._ledger.emit(event, decide=False)
            if self._tasks is not None:
                self._tasks.release()
        return OK


MAX_EVENTS = 51_200
"""A run with a longer history is terminated."""
MAX_BYTES = 50 * 1024 * 1024
"""A run with a larger history is terminated."""
MAX_ROUNDS = 1_000
"""Maximum number of decisions of one step. A run that needs more continues in further steps, after other runs had their turn."""
MAX_WORK = 600_000
"""The limit for the cost of the decisions of one step, in the units of `Decision.work`: about 50 ms."""
_LONGEST_TASK_BACKOFF = timedelta(minutes=10)


class Decisions:
    """Decides a run during a step: by a decider in this process, or by scheduling workflow tasks for workers."""

    def __init__(
        self, ledger: Ledger, activities: Activities, decider: Decider, policies: Mapping[str, RetryPolicy] | None
    ) -> None:
        """Prepare the decisions of a step.

        Args:
            ledger: Collects the output of the step.
            activities: Closes activities that are canceled before they start.
            decider: The decider in this process; not used if workers decide.
            policies: The RetryPolicies that commands can name.
        """
        self._ledger = ledger
        self._activities = activities
        self._decider = decider
        self._policies = policies
        self._stopped = False
        self._rounds = 0
        self._work = 0
        self.tasks = WorkflowTaskMachine(ledger, self._record) if ledger.state.code is not None else None
        """The workflow task; None if the decider runs in this process."""
        ledger.tasks = self.tasks

    def decide(self) -> None:
        """Let the decider decide about all pending events, as far as this is possible now."""
        _terminate_oversized(self._ledger)
        if self.tasks is not None:
            self.tasks.schedule_if_needed()
            return
        while not self._stopped and self._is_needed():
            task = self._ledger.state.task
            if task is not None and task.next_attempt_time > self._ledger.now and not self._ledger.has_new_events:
                break
            self._decide_next()
            _terminate_oversized(self._ledger)

    @property
    def stopped_early(self) -> bool:
        """Whether the step has reached its limit although more can be decided immediately."""
        return self.tasks is None and self._stopped and self._ledger.state.task is None and self._is_needed()

    def _is_needed(self) -> bool:
        """Whether a decision is pending, and the run is neither waiting nor paused."""
        waits = self._ledger.state.is_held(self._ledger.now)
        return self._ledger.open() and not waits and bool(self._ledger.state.unfinished or self._ledger.queue)

    def _decide_next(self) -> None:
        """Let the decider decide about the next event, and record all of its commands, or none if it cannot decide."""
        ledger = self._ledger
        event = None if ledger.state.unfinished else ledger.queue[0]
        suggested = event is not None and ledger.state.suggests_continue_as_new(event)
        before = ledger.state
        lengths = [(appended, len(appended)) for appended in (ledger.events, ledger.retired, ledger.queue)]
        try:
            decision = self._decider.decide(before.memory, event, continue_as_new_suggested=suggested)
            ledger.change(memory=decision.memory, unfinished=decision.more, task=None)
            for command in decision.commands:
                self._record(command, behind=0 if event is None else 1)
        except UndecidableError as error:
            ledger.state = before
            for appended, length in lengths:
                while len(appended) > length:
                    appended.pop()
            self._back_off(str(error), error.reason)
        else:
            if event is not None:
                ledger.queue.popleft()
            self._rounds += 1
            self._work += decision.work
            self._stopped = decision.more or self._work > MAX_WORK or self._rounds >= MAX_ROUNDS
        ledger.durable = True

    def _back_off(self, message: str, reason: str = "") -> None:
        """Record that the decider could not decide. It is retried after a backoff, or when something else happens."""
        attempt = self._ledger.state.task.attempt + 1 if self._ledger.state.task else 1
        backoff = min(timedelta(seconds=2 ** min(attempt, 10)), _LONGEST_TASK_BACKOFF)
        self._ledger.change(
            task=TaskFailure(
                attempt=attempt,
                message=message[:MAX_MESSAGE],
                reason=reason,
                next_attempt_time=self._ledger.now + backoff,
            )
        )
        self._stopped = True

    def _record(self, command: cmd.Command, *, behind: int = 0) -> None:
        """Record a command. `behind`: the number of events at the head of the queue that the decision covers."""
        ledger = self._ledger
        if not ledger.open():
            raise UndecidableError("invalid command sequence: a command follows the one that closes the run")
        waiting = self.tasks.buffered if self.tasks else islice(ledger.queue, behind, None)
        event = event_of(command, ledger.state, ledger.now, waiting, self._policies)
        if event is None:
            return
        if self.tasks is not None:
            event = self.tasks.attributed(event)
        if isinstance(event, ev.CLOSING):
            ledger.close(event)
            return
        ledger.emit(event, decide=False)
        if isinstance(event, ev.ActivityTaskCancelRequested):
            activity = ledger.state.activity(event.scheduled_event_id)
            if activity is not None and activity.started_time is None:
                self._activities.cancel_unstarted(activity)


def _terminate_oversized(ledger: Ledger) -> None:
    """Terminate a run whose history has grown too large, as Temporal's server does."""
    state = ledger.state
    if ledger.open() and (state.next_event_id > MAX_EVENTS + 1 or state.history_size > MAX_BYTES):
        reason = (
            f"the history has {state.next_event_id - 1:,} events and {state.history_size:,} bytes, more than "
            f"the {MAX_EVENTS:,} events or {MAX_BYTES // 2**20} MiB that a run can have: use `continueAsNew` "
            "before it reaches this limit"
        )
        ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **ledger.position))
