"""One run: the pass that takes it further.

    observed  (watch: the run, its pods)  ─┐
    looked up (a deadline is due)         ─┼─▶ step ─▶ commit ─▶ effects (pods made, pods let go) ─▶ next wake
    the clock                             ─┘             │
                                          conflict ──────┘ someone else moved: read again, decide again

What is observed of pods, and done with them, is in `attempts`; the write and its conflicts are in `commit`.

Crash windows. Before the commit nothing has happened. Between commit and effects, the committed state says what is to be
there: a restart makes the missing pods (their names are locks) and lets go of those nobody waits for. A commit whose answer was
lost looks like a conflict at the next one, and is found done.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.controller import status as run_status
from perdure.controller.answers import answered
from perdure.controller.attempts import Attempts, definition_key
from perdure.controller.beginning import Idle, Pointer, first_event, scope_of
from perdure.controller.child_outcomes import ChildOutcomes
from perdure.controller.claiming import claim
from perdure.controller.commit import Record
from perdure.controller.deadletters import DeadLetters
from perdure.controller.definitions import (
    Definition,
    Definitions,
    NotReadyError,
    as_far_as_fit,
    check_options,
    read_spec,
)
from perdure.controller.directory import Standing, entry_of
from perdure.controller.effects import children
from perdure.controller.effects.applying import Effects
from perdure.controller.effects.pending import PendingInputs
from perdure.controller.errors import NotYetError, RefusedError
from perdure.controller.inbox import Asked, Inbox
from perdure.controller.peers import Peers
from perdure.controller.pods import Pods
from perdure.controller.policies import Policies
from perdure.controller.resetting import fork_of, since_fork, still_open
from perdure.controller.segments import ForeignSegmentError, Sealed, Segments
from perdure.controller.status import DamagedStateError
from perdure.controller.telling import Teller
from perdure.controller.workers import NoWorkers, Workers, look_again_at, unserved
from perdure.engine import inputs
from perdure.engine.decider import Decider
from perdure.engine.failures import Failure
from perdure.engine.inputs import Answer
from perdure.engine.recording import POLICY_NOT_FOUND, resolved
from perdure.engine.resetting import begin
from perdure.engine.retry import PolicyReference, RetryPolicy
from perdure.engine.state import PODS_QUEUE, State, apply
from perdure.engine.step import Transition, next_wake, start, step, terminate
from perdure.engine.tasks.machine import reclaim
from perdure.kube import client as api
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.awaiting import Awaited, awaited
from perdure.language.interpreter import Interpreter, Refuser, load_memory, progress
from perdure.language.program import InvalidWorkflowError, retry_policy, with_defaults
from perdure.observe import metrics
from perdure.runtime import segments
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Reset, continuation_of, created_by, extras_of, first_run_id, parent_of, reset_of
from perdure.runtime.commits import OF_RUNS, Witness
from perdure.runtime.requests import start_signal_of
from perdure.runtime.searching import search_marks
from perdure.schedule.runs import scheduled_by

INVALID_INPUT = ConditionReason.INVALID_INPUT.value
"""Failure type of a run whose input does not fit the schema of its Workflow."""
_ENDS = (inputs.TerminateRequested, inputs.CancelRequested)
_PAUSES = (inputs.PauseRequested, inputs.UnpauseRequested)
_FIRST_CONFLICT_PAUSE = timedelta(milliseconds=5)
_COMPILING_QUIETLY = timedelta(seconds=2)
"""A run whose definition takes no longer to be compiled does not say that it waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What every run works with."""

    client: api.Client
    pods: Pods
    definitions: Definitions
    policies: Policies
    letters: DeadLetters
    recorder: Recorder
    workers: Workers = field(default_factory=NoWorkers)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a run stands before its first commit, if it begins with another one's history."""

    status: run_status.Status
    state: State


_NOTHING_ASKED = WorkflowRunSpec.model_construct()
"""The spec of a run whose own spec cannot be read: it begins only to fail."""


class _NoRoomError(Exception):
    """The status of the run has no room for what a request carries."""


class Run:
    """A WorkflowRun in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(self, tools: Tools, peers: Peers, obj: api.Object, wake: Callable[[], None]) -> None:
        """`wake` has `advance` called soon."""
        meta = obj["metadata"]
        self.ref = RunRef(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            workflow_id=obj["spec"].get("workflowId") or meta["name"],
        )
        self._definitions = tools.definitions
        self._workers = tools.workers
        self._record = Record(tools.client, obj)
        self._witness = Witness(OF_RUNS, self.ref.uid, starts_work=True)
        self._teller = Teller(tools.recorder, self.ref)
        self._policies = tools.policies
        self._attempts = Attempts(
            tools.pods, tools.policies, self.ref, self._teller.pod_refused, self._teller.pod_waits, wake=wake
        )
        self._state: State | None = None
        self._definition: Definition | None = None
        self._decider: Decider | None = None
        self._peers = peers
        self._reset = reset_of(obj)
        pending = PendingInputs(wake)
        self._effects = Effects(
            tools.client, self.ref, self._reset, peers, tools.policies, pending, wake, self._teller.create_refused
        )
        self._outcomes = ChildOutcomes(self._effects, pending)
        self._client = tools.client
        self._segments = Segments(tools.client, self.ref)
        self._inbox = Inbox()
        self._forgotten: list[inputs.RequestForgotten] = []
        self._decide_again = False
        self._conflicts = 0
        self._compiling_since: datetime | None = None
        self._wound_up = False
        """Whether what the run held was released after it was deleted."""
        self._log = structlog.get_logger("perdure.run").bind(namespace=self.ref.namespace, run=self.ref.name)

    @property
    def state(self) -> State | None:
        """Where the run stands, recorded as far as it must be; None before it has begun, or is read."""
        return self._state

    @property
    def object(self) -> api.Object:
        """The run as it was last written or read."""
        return self._record.latest()

    @property
    def gone(self) -> bool:
        """Whether the run was deleted."""
        return self._record.gone

    # Observing

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: the run is closed or gone, and so are its pods, as far as they are ours."""
        if self._record.gone:
            return self._wound_up and self._attempts.settled and not self._inbox
        state = self._state
        if state is None or not state.closed or state.has_chores:
            return False
        return self._attempts.settled and self._outcomes.settled and not self._inbox

    @property
    def waits_for_workflow(self) -> str | None:
        """The Workflow that this run cannot start without."""
        reference = self._record.object["spec"].get("workflow") or {}
        return reference.get("name") if self._state is None else None

    def observe(self, obj: api.Object) -> bool:
        """A watch shows the run; whether that is news."""
        return self._record.observe(obj)

    def observe_gone(self) -> None:
        """The run was deleted. What it has started is removed by the garbage collector, and let go here."""
        self._record.gone = True

    def observe_pod(self, pod: api.Object) -> None:
        """A watch shows one of the run's pods."""
        self._attempts.observe(pod)

    def observe_pod_gone(self, pod: api.Object) -> None:
        """One of the run's pods has disappeared."""
        self._attempts.observe_gone(pod)

    def observe_policies(self) -> bool:
        """A RetryPolicy of the namespace is another now, or its circuit lets more through; whether the run has waited for it."""
        if self._state is None:
            return True
        task = self._state.task
        self._decide_again |= task is not None and task.reason == POLICY_NOT_FOUND
        return self._attempts.ask_circuits_again() or self._decide_again

    def observe_child(self, uid: str) -> None:
        """A run that has this one as its parent has started, closed or gone."""
        self._outcomes.observe_child(uid)

    # Requests

    def ask(self, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Have the run take a request at its next pass; `then` is called with the answer, once that is recorded."""
        self._inbox.put(request, then)

    def withdraw(self, request_id: str) -> None:
        """Whoever has asked does not want it any more: it is not done, unless it was recorded already."""
        self._inbox.withdraw(request_id)

    def forget(self, request_id: str) -> None:
        """Whoever has asked knows the answer: it need not be remembered any more."""
        self._forgotten.append(inputs.RequestForgotten(request_id=request_id))

    # The pass

    async def advance(self) -> datetime | None:
        """Take the run as far as it goes now; when it wants to be called again, None if only something outside can wake it.

        Raises:
            NotYetError: its definition is being compiled.
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        if self._record.gone:
            self._inbox.refuse_all(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{self.ref.name}` was deleted")
            self._attempts.let_all_go()
            await self._attempts.finish_leaving()
            self._workers.follow(self)
            self._wound_up = True
            return None
        try:
            wake = await self._advance(wall_clock())
            await self._say_recovered()
        except api.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            self._conflicts += 1
            await self._read_again()
            # At once the first time; were somebody to write all the time, ever later.
            return wall_clock() + _FIRST_CONFLICT_PAUSE * ((1 << min(self._conflicts, 10)) - 2)
        except api.TooLargeError as error:
            # The spec alone fills the object, so that nothing can be written beside it. No other try would do better.
            message = run_status.refused_as_too_large(error.message)
            self._teller.warn(EventReason.PAYLOAD_TOO_LARGE, message, "Commit")
            self._inbox.refuse_all(ConditionReason.PAYLOAD_TOO_LARGE, message)
            return None
        except Exception as error:
            self._attempts.look_again()
            if not isinstance(error, (NotYetError, api.ApiError, *api.TRANSIENT)) or isinstance(
                error, api.InvalidError
            ):
                await self._tell_of_error(error)
            raise
        self._conflicts = 0
        return wall_clock() if self.gone else wake

    async def _say_recovered(self) -> None:
        """The run continues: it no longer says that it cannot be processed."""
        state, status = self._state, self._record.status
        if state is not None and (self._witness.accepted or run_status.is_stuck(status)):
            now = wall_clock()
            await self._write(run_status.repaired(status, self._facts(now, state), state, now))

    async def _tell_of_error(self, error: Exception) -> None:
        """The operator cannot process the run, whatever is wrong with it: it says so, and what is asked of it gets an answer."""
        self._state = None
        message = f"the operator cannot process the run: {type(error).__name__}: {error}; it retries with backoff"
        self._inbox.refuse_all(ConditionReason.INTERNAL_ERROR, message)
        if not self._record.status.get("completionTime"):
            with suppress(api.ApiError, *api.TRANSIENT):
                await self._wait(ConditionReason.INTERNAL_ERROR, message, wall_clock())

    async def _advance(self, now: datetime) -> datetime | None:
        # What was committed in an earlier pass may be old by now: this process may have stood still meanwhile.
        self._record.doubt()
        if self._record.outdated:
            await self._read_again()
            if self._record.gone:
                return now
        if self._state is None and not await self._load(now):
            return None
        state = self._state
        assert state is not None
        state, more = await self._decide(state, now)
        if more:
            return now
        self._workers.follow(self)
        pods = await self._done_by_pods(state)
        superfluous = self._attempts.superfluous(pods)
        if superfluous or self._attempts.to_stop(pods):
            await self._record.confirm(afresh=True)
        self._attempts.give_up(pods, superfluous)
        await self._attempts.finish_leaving()
        await self._attempts.pass_on_cancellations(pods)
        for activity in self._attempts.missing(pods, now):
            if await self._attempts.admitted(activity, now):
                await self._record.confirm()
                await self._attempts.make(activity, now)
        if self._attempts.untold(pods):
            return now
        if self._effects.are_due(state, now):
            await self._record.confirm()
            await self._effects.apply(state, self._record.latest(), now)
        looks = await self._tell_what_hinders(state, now)
        wakes = (
            next_wake(state, now),
            self._attempts.next_wake(pods, now),
            self._effects.next_try(state),
            looks,
        )
        return min(filter(None, wakes), default=None)

    async def _decide(self, state: State, now: datetime) -> tuple[State, bool]:
        """Let the engine take what has happened, and record what comes of it; the state after it, and whether it wants more."""
        asked, forgotten = self._inbox.next(), list(self._forgotten)
        deciding = state.code is not None and state.code.deciding
        told = [] if deciding else await self._outcomes.gather(state)
        observed: list[inputs.RunInput] = [*forgotten, *told]
        if self._decide_again:
            observed.append(inputs.DecideAgain())
        if not state.closed:
            observed += await self._attempts.gather(await self._done_by_pods(state), now)
        observed += [each.request for each in asked]
        if state.closed and not observed:
            return state, False
        recorded = self._record.status
        try:
            transition = step(state, observed, now, self._decider_now(), self._policies.of(self.ref.namespace))
            if transition.durable:
                transition = await self._commit(transition, now, asked=asked)
        except _NoRoomError:
            return state, True
        except Exception as error:
            if self._record.status is not recorded:
                self._state = None  # it is recorded already: deciding by what was before would record it twice
                raise
            if self._inbox.blamed(asked, error):
                return state, True
            if not isinstance(error, (api.ApiError, *api.TRANSIENT)):
                self._state = None  # what is only kept in memory may be the reason: go on from what is recorded
            raise
        self._inbox.taken(asked)
        self._state = transition.state
        self._attempts.retire(transition)
        self._outcomes.committed(len(told))
        del self._forgotten[: len(forgotten)]
        self._decide_again = False
        self._answer(asked, transition)
        after = transition.state.code
        resumes = deciding and not (after is not None and after.deciding) and not self._outcomes.settled
        return transition.state, transition.more or resumes or self._inbox.one_by_one

    async def _tell_what_hinders(self, state: State, now: datetime) -> datetime | None:
        """Say what the run waits for, although nothing else is to be recorded; when to look for workers again.

        It waits for a worker that asks for what is to be done, or for an object that the API server refuses to create.
        """
        looks = look_again_at(state, now)
        before = self._record.status
        refused = self._effects.refused(state) != run_status.message_of(before, ConditionReason.CREATE_REFUSED)
        if refused or (looks is not None and self._unserved(state, now) != _lacks_worker(before)):
            status = run_status.compose(before, self._facts(now, state), state, (), now)
            if _hindrance(status) != _hindrance(before) and run_status.too_large(status) is None:
                with suppress(api.TooLargeError):  # nothing is lost if there is no room for that alone
                    await self._write(status)
                    self._peers.noted(self._record.latest())
                    self._tell_of_workers(before)
        return looks

    def _unserved(self, state: State, now: datetime) -> str:
        told = bool(_lacks_worker(self._record.status))
        return unserved(state, now, self._workers, self.ref.namespace, told=told)

    def _tell_of_workers(self, before: run_status.Status) -> None:
        """Tell that nobody asks for what waits, once it is recorded."""
        lacking = _lacks_worker(self._record.status)
        if lacking and not _lacks_worker(before):
            self._teller.warn(EventReason.NO_WORKER, lacking, "Decide")

    def _answer(self, asked: Sequence[Asked], transition: Transition) -> None:
        self._inbox.answer(
            asked, transition, lambda request, answer: answered(request, answer, self.ref, self._definition)
        )

    async def _read_again(self) -> None:
        """Someone else has written, or may have: look at everything anew."""
        if await self._record.read_again():
            self._state = None
            self._attempts.look_again()
            self._look_at_others_again()

    def _look_at_others_again(self) -> None:
        self._effects.look_again()
        self._outcomes.look_again()

    # Beginning, and going on after a restart

    async def _load(self, now: datetime) -> bool:
        """Go on where the stored status stands, or begin; whether the run can go on."""
        try:
            state = self._stored_state()
            if state is None:
                return await self._begin(now)
            if state.activities or state.children or state.externals:
                # What a watch shows may be old; pods are made only for what is so now.
                await self._read_again()
                if self._record.gone:
                    return False
                state = self._stored_state()
                if state is None:
                    return await self._begin(now)
            if not state.closed and state.code is None:
                self._resume(state)
        except DamagedStateError as error:
            await self._wait(ConditionReason.STATE_DAMAGED, str(error), now)
            self._inbox.refuse_all(ConditionReason.STATE_DAMAGED, str(error))
            return False
        state = reclaim(state, self._workers.epoch)
        if _of_pods(state).activities:
            await self._attempts.recover(await self._done_by_pods(state))
        self._look_at_others_again()
        self._state = state
        return True

    def _stored_state(self) -> State | None:
        """The state in the stored status, which has to be the one that was committed last; None for a run that has not begun.

        Raises:
            DamagedStateError: it is not.
        """
        state = run_status.stored_state(self._record.status)
        damage = self._witness.damage(self._record.latest())
        if damage:
            raise DamagedStateError(damage)
        return state

    async def _write(self, status: run_status.Status) -> None:
        """Commit a status.

        Raises:
            ConflictError, TooLargeError: as `Record.write`.
        """
        await self._record.write(self._witness.commit(status, self._record.status))
        self._witness.recorded(self._record.status)

    def _resume(self, state: State) -> None:
        """Take up a run that has begun earlier.

        Raises:
            NotYetError: its definition is being compiled.
            DamagedStateError: its definition is not what it was.
        """
        given, snapshot = self._record.object["spec"], self._record.status.get("definition")
        try:
            spec = read_spec(given)
            definition = self._definitions.pinned(
                self.ref.namespace, self.ref.name, spec, given.get("inline"), snapshot
            )
        except InvalidWorkflowError as error:
            if self._inbox.has(inputs.TerminateRequested):
                self._decider = Idle()  # to end it, nothing has to be decided
                return
            message = f"The definition that the run started with cannot be run: {error}; restore the status, or delete the run"
            raise DamagedStateError(message) from error
        unknown = {a.activity_type for a in _of_pods(state).activities.values()} - definition.program.activities.keys()
        if unknown:
            names = ", ".join(sorted(unknown))
            message = f"The definition lacks pending activities: {names}; restore the status, or delete the run"
            raise DamagedStateError(message)
        self._decide_by(definition, spec, state.start_time)

    async def _begin(self, now: datetime) -> bool:  # noqa: C901 (one case for each sort of run)
        """Start the run, if it may and can be started; whether it was."""
        workflow_type, given, policy, extras = self.ref.name, None, None, None
        spec = _NOTHING_ASKED
        try:
            spec = read_spec(self._record.object["spec"])
            if self._reset is not None:
                await self._begin_from(self._reset, spec, now)
                return True
            check_options(spec)
            self._decider = await self._claim(spec)
            if self._decider is None and spec.workflow is not None and spec.workflow.type is not None:
                workflow_type, given = spec.workflow.type, spec.input
                extras = extras_of(self._record.object)
                policy = await self._find_policies(spec, frozenset())
            elif self._decider is None:
                definition, given = await self._find_definition(spec)
                workflow_type = definition.workflow_type
                policy = await self._find_policies(spec, definition.program.retry_policies)
                self._decide_by(definition, spec, now)
        except NotReadyError as error:
            if not self._inbox.has(*_ENDS):
                await self._wait(error.reason, error.message, now)
                return False
            self._decider = Idle()
        except NotYetError as error:
            if not self._inbox.has(*_ENDS):
                await self._wait_for_definition(error, now)
            self._decider = Idle()
        except InvalidWorkflowError as error:
            self._decider, spec = Refuser(str(error), error.type), as_far_as_fit(spec)
        except RefusedError as error:
            self._decider = Refuser(error.message, error.reason.value)
        continues = continuation_of(self._record.object)
        parent = parent_of(self._record.object)
        first = first_event(
            self.ref,
            spec,
            workflow_type,
            given,
            now,
            policy=policy,
            parent=parent,
            continues=continues,
            extras=extras,
            schedule=scheduled_by(self._record.object),
            principal=created_by(self._record.object),
        )
        idle = isinstance(self._decider, Idle)
        # A run that is refused has received nothing: the sender of the signal gets an error, or tries another run.
        refused = isinstance(self._decider, Refuser | Pointer)
        # A run that only starts to end waits for nothing: neither `startDelay` nor `startPaused` keeps it open.
        ends = idle or refused
        first = msgspec.structs.replace(first, first_workflow_task_backoff=None) if ends else first
        if spec.search_attributes:
            await self._record.mark(*search_marks(spec.search_attributes))
        signals = continues.signals if continues else ()
        began_for = start_signal_of(self._record.object)
        transition = start(
            first,
            self._decider_now(),
            signals,
            heeded=continues.heeded if continues else (),
            requests=() if began_for is None or refused else (began_for.request,),
            paused=spec.start_paused and continues is None and not ends,
            policies=self._policies.of(self.ref.namespace),
        )
        asked = [each for each in self._inbox if idle and not isinstance(each.request, _PAUSES)]
        if asked:
            ended = step(transition.state, [each.request for each in asked], now, Idle())
            transition = replace(ended, events=(*transition.events, *ended.events))
        transition = await self._commit(transition, now)
        self._state = transition.state
        self._answer(asked, transition)
        return True

    async def _find_definition(self, spec: WorkflowRunSpec) -> tuple[Definition, Any]:
        """What the run is pinned to when it starts now, and its input with the defaults of that.

        Raises:
            NotYetError: it is being compiled.
            NotReadyError: the Workflow is missing or invalid.
            InvalidWorkflowError: the run asks for what cannot be.
        """
        inline = self._record.object["spec"].get("inline")
        definition = await self._definitions.find(self.ref.namespace, self.ref.name, spec, inline)
        given = with_defaults(definition.program, spec.input)
        wrong = definition.program.check_input(given)
        if wrong:
            raise InvalidWorkflowError(wrong, INVALID_INPUT)
        return definition, given

    async def _find_policies(self, spec: WorkflowRunSpec, used: frozenset[str]) -> RetryPolicy | None:
        """Make sure that every RetryPolicy that the run, or what it `used`, means by name is there; the one of the run itself.

        Raises:
            NotReadyError: one is missing, or cannot be used.
        """
        chosen = retry_policy(spec.retry_policy) if spec.retry_policy else None
        own = {chosen.name} if isinstance(chosen, PolicyReference) else set()
        namespace = self.ref.namespace
        missing = await self._policies.missing(namespace, used | own)
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"there is no RetryPolicy {names} in namespace `{namespace}` that can be used"
            raise NotReadyError(ConditionReason.RETRY_POLICY_NOT_FOUND, f"{message}; the run starts when there is one")
        return None if chosen is None else resolved(chosen, self._policies.of(namespace))

    async def _begin_from(self, reset: Reset, spec: WorkflowRunSpec, now: datetime) -> None:
        """Begin with the history of another run, up to a point of it.

        All that is made before the commit is found again by whoever begins anew after a crash: the other run is closed, its
        children are this one's, and the segments have the same names and the same events.

        Raises:
            RefusedError: it cannot be gone on from there.
            NotReadyError: the runs of the workflow id have to close first.
        """
        fork = await fork_of(
            self._client, self._definitions, self._record.object, reset
        )  # before anyone is stopped for it
        await self._claim(spec)
        if not fork.final:
            fork = await fork_of(self._client, self._definitions, self._record.object, reset)
        if not fork.final:
            raise NotReadyError(ConditionReason.WORKFLOW_ID_IN_USE, f"`{reset.base.name}` has to close first")
        told = await since_fork(self._client, fork, reset)
        if fork.definition is not None:
            self._decide_by(fork.definition, spec, fork.state.start_time)
        await children.take_over(self._effects.context, reset.base, still_open(fork.state, told))
        sealed, past = segments.chain(self.ref, fork.events)
        try:
            await self._segments.put(sealed)
        except ForeignSegmentError as error:
            raise RefusedError(ConditionReason.SEGMENT_CHANGED, str(error)) from error
        if spec.search_attributes:
            await self._record.mark(*search_marks(spec.search_attributes))
        event = fork.event(self.ref, reset, now)
        policies = self._policies.of(self.ref.namespace)
        transition = begin(fork.state, event, told, self._decider_now(), fork.requests, policies=policies)
        before = {**self._record.status, "history": {**past, "nextEventId": event.event_id}}
        self._state = (await self._commit(transition, now, _Origin(before, fork.state))).state
        self._look_at_others_again()

    async def _claim(self, spec: WorkflowRunSpec) -> Decider | None:
        """What decides if another run of the workflow id is open; None if none is.

        Raises:
            NotReadyError: it has to be waited for another one.
            ConflictError: the run does not wait any more.
        """
        entry = self._peers.directory.get(self.ref.uid) or entry_of(self._record.object)
        other = self._peers.directory.open_run(entry.namespace, entry.workflow_id)
        if other is not None and other.standing is Standing.OPEN and other.uid != self.ref.uid:
            await self._record.confirm(afresh=True)  # only a run that waits now may stop another one
        return claim(self._peers, entry, spec, self._reset)

    async def _wait_for_definition(self, error: NotYetError, now: datetime) -> None:
        """Wait until the definition is compiled; say so where that takes a while.

        Raises:
            NotYetError: always.
        """
        since = self._compiling_since = self._compiling_since or now
        if now - since < _COMPILING_QUIETLY:
            raise NotYetError(error.awaited, until=since + _COMPILING_QUIETLY) from error
        message = "the definition waits to be compiled; a namespace compiles one at a time, and large ones take seconds"
        await self._wait(ConditionReason.COMPILING, message, now)
        raise error

    async def _wait(self, reason: ConditionReason, message: str, now: datetime) -> None:
        """Say why the run does not start or go on; once, not at each try."""
        before = self._record.status
        status = run_status.waiting(before, self._facts(now), reason, message, now)
        if status != before:
            await self._record.write(status)
            self._peers.noted(self._record.latest())
        if status["conditions"] != before.get("conditions"):
            self._teller.warn(EventReason(reason.value), message, "Start")
            if reason is ConditionReason.STATE_DAMAGED:
                metrics.DAMAGED.labels(self.ref.namespace, "WorkflowRun").inc()

    def _decide_by(self, definition: Definition, spec: WorkflowRunSpec, start_time: datetime) -> None:
        self._definition = definition
        self._attempts.activities = definition.program.activities
        given = with_defaults(definition.program, spec.input)
        self._decider = Interpreter(
            definition.program, scope_of(self._record.object), input=given, start_time=start_time
        )

    def _decider_now(self) -> Decider:
        return self._decider or Idle()  # of a closed run, nothing is decided any more

    # The commit

    async def _commit(
        self, transition: Transition, now: datetime, origin: _Origin | None = None, asked: Sequence[Asked] = ()
    ) -> Transition:
        """Record the transition: one write, refused if anyone has written since.

        Args:
            transition: What the engine has come to.
            now: The time.
            origin: Where a run goes on from that begins with another one's history.
            asked: The requests in it.

        Returns:
            What was recorded: the transition or, where that would not fit into an object, the end of the run.

        Raises:
            _NoRoomError: one of the requests does not fit: it was refused, and nothing recorded.
        """
        before = origin.status if origin else self._record.status
        sealed = Sealed(before) if self._state is None or self._state.closed else await self._segments.seal(before, now)
        status = self._composed(sealed.status, transition, now)
        reason = run_status.too_large(status)
        if reason is None:
            try:
                await self._write(status)
            except api.TooLargeError as error:
                reason = run_status.refused_as_too_large(error.message)
        if reason is not None and self._inbox.refuse_last(asked):
            raise _NoRoomError
        if reason is not None:
            ended = await self._terminate(sealed.status, transition, reason, now, origin)
            transition = replace(
                ended, answers={each.request.request_id: _over(each.request, reason) for each in asked}
            )
        self._peers.noted(self._record.latest())
        try:
            if sealed.damage:
                self._teller.warn(EventReason.HISTORY_TRUNCATED, sealed.damage.message, "Seal")
            self._tell_of_workers(before)
            self._teller.committed(self._state, transition, self._record.status["progress"], self._definition)
        except Exception:  # noqa: BLE001 - what is recorded is done, whether or not it can be told
            self._log.exception("A commit cannot be reported by Events")
        return transition

    async def _done_by_pods(self, state: State) -> State:
        """The state with those activities only that pods do.

        The definitions of those that code has scheduled are found; what has none is about to fail, and is left out.
        """
        state = _of_pods(state)
        if isinstance(self._decider, Idle):  # it only ends
            return msgspec.structs.replace(state, activities={})
        if state.code is None:
            return state
        known = dict(self._attempts.activities)
        for activity in state.activities.values():
            if definition_key(activity) in known:
                continue
            workflow = activity.task_queue.removeprefix(PODS_QUEUE)
            found = await self._definitions.activity(self.ref.namespace, workflow, activity.activity_type)
            if isinstance(found, Failure):
                self._attempts.refuse(activity, found)
            else:
                known[definition_key(activity)] = found
        self._attempts.activities = known
        kept = {key: each for key, each in state.activities.items() if definition_key(each) in known}
        return msgspec.structs.replace(state, activities=kept) if len(kept) < len(state.activities) else state

    async def _terminate(
        self, before: run_status.Status, transition: Transition, reason: str, now: datetime, origin: _Origin | None
    ) -> Transition:
        """Record, instead of a transition that does not fit into the object, the end of the run: bare, if it has to be.

        Raises:
            TooLargeError: not even that fits.
        """
        state = self._state or (origin.state if origin else None)
        first = () if state else transition.events[:1]
        ended = terminate(state or apply(None, first[0]), reason, now, self._decider_now())
        ended = replace(ended, events=(*first, *ended.events))
        status = self._composed(before, ended, now)
        try:
            await self._write(status)
        except api.TooLargeError:
            await self._write(run_status.bare(status))
        return ended

    def _composed(self, before: run_status.Status, transition: Transition, now: datetime) -> run_status.Status:
        """The status with a transition.

        Raises:
            ConflictError: the transition does not continue the history in the status.
        """
        following = run_status.next_event_id(before)
        if transition.events and transition.events[0].event_id != following:
            self._state = None
            message = f"event {transition.events[0].event_id} does not follow event {following - 1}"
            raise api.ConflictError(409, "Conflict", message)
        return run_status.compose(before, self._facts(now, transition.state), transition.state, transition.events, now)

    def _facts(self, now: datetime, state: State | None = None) -> run_status.RunFacts:
        done, waits = "", list[Awaited]()
        definition = self._definition
        if state is not None and definition is not None:
            memory = load_memory(state.memory)
            done = "{}/{}".format(*progress(definition.program, memory))
            waits = awaited(definition.program, memory, state.timers)
        return run_status.RunFacts(
            name=self.ref.name,
            uid=self.ref.uid,
            first_uid=first_run_id(self._record.object),
            generation=self._record.object["metadata"].get("generation", 1),
            progress=done,
            awaited=waits,
            definition=definition.snapshot if definition else None,
            unserved=self._unserved(state, now) if state is not None else "",
            refused=self._effects.refused(state) if state is not None else "",
        )


def _over(request: inputs.Request, reason: str) -> Answer:
    """The answer to a request with which a run became too large, so that it was terminated."""
    if isinstance(request, inputs.TerminateRequested):
        return Answer(ok=True)
    return Answer(ok=False, reason=ConditionReason.PAYLOAD_TOO_LARGE.value, message=reason)


def _hindrance(status: run_status.Status) -> tuple[str, ...]:
    """What a status says of workers that are missing, and of objects that are refused."""
    return tuple(
        run_status.message_of(status, each) for each in (ConditionReason.NO_WORKER, ConditionReason.CREATE_REFUSED)
    )


def _lacks_worker(status: run_status.Status) -> str:
    """What is told of work that nobody asks for; empty where nothing is."""
    return run_status.message_of(status, ConditionReason.NO_WORKER)


def _of_pods(state: State) -> State:
    """The state with those activities only that pods do."""
    if not any(activity.by_worker for activity in state.activities.values()):
        return state
    kept = {key: activity for key, activity in state.activities.items() if not activity.by_worker}
    return msgspec.structs.replace(state, activities=kept)
