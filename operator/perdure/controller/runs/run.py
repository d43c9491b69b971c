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
from datetime import datetime

from perdure.api.reasons import ConditionReason, EventReason
from perdure.controller.errors import NotYetError
from perdure.controller.payloads.inlining import inlined
from perdure.controller.payloads.payload_store import give_all
from perdure.controller.peers import Peers
from perdure.controller.reconcile.inbox import Asked, Inbox
from perdure.controller.reconcile.reconciler import Reconciler
from perdure.controller.runs import run_status
from perdure.controller.runs.answers import answered
from perdure.controller.runs.attempts.run_attempts import Attempts
from perdure.controller.runs.child_outcomes import ChildOutcomes
from perdure.controller.runs.effects.pending_inputs import PendingInputs
from perdure.controller.runs.effects.run_effects import Effects
from perdure.controller.runs.run_commits import RunCommits
from perdure.controller.runs.run_conditions import RunConditions
from perdure.controller.runs.run_events import Teller
from perdure.controller.runs.run_facts import CurrentFacts
from perdure.controller.runs.run_record import NoRoomError, OutOfStepError, RunRecord
from perdure.controller.runs.run_status import DamagedStateError
from perdure.controller.runs.starter import Deciding, Starter
from perdure.controller.tools import Tools
from perdure.controller.workers import look_again_at
from perdure.controller.workflows.definitions import NotReadyError
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.recording import POLICY_NOT_FOUND
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition, next_wake, step
from perdure.engine.tasks.task_deadlines import reclaim
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import reset_of


class Run:
    """A WorkflowRun in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(self, tools: Tools, peers: Peers, obj: kube.Object, wake: Callable[[], None]) -> None:
        """`wake` has `advance` called soon."""
        meta = obj["metadata"]
        self.ref = RunRef(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            workflow_id=obj["spec"].get("workflowId") or meta["name"],
        )
        self._tools = tools
        self._stored = RunRecord(tools.client, obj, self.ref, tools.blobs)
        self._record = self._stored.record
        self._teller = Teller(tools.recorder, self.ref)
        self._attempts = Attempts(
            tools, self.ref, self._record, self._teller.pod_refused, self._teller.pod_waits, wake=wake
        )
        pending = PendingInputs(wake)
        self._effects = Effects(
            tools.client, self.ref, reset_of(obj), peers, tools.policies, pending, wake, self._teller.create_refused
        )
        self._facts = CurrentFacts(self.ref, self._stored, self._effects, tools.workers)
        self._conditions = RunConditions(self.ref, self._stored, peers, self._teller, self._facts.collect)
        self._outcomes = ChildOutcomes(self._effects, pending)
        self._inbox: Inbox[inputs.Request] = Inbox("the run")
        self._commits = RunCommits(
            self.ref,
            self._stored,
            self._facts,
            self._inbox,
            peers=peers,
            conditions=self._conditions,
            teller=self._teller,
        )
        self._starter = Starter(tools, self._effects.context, self._stored, self._inbox)
        self._state: RunState | None = None
        self._forgotten: list[inputs.RequestForgotten] = []
        self._decide_again = False
        self._wound_up = False
        """Whether what the run held was released after it was deleted."""
        self.advance = Reconciler(self, self._record).advance
        """Takes the run further; see there."""

    @property
    def state(self) -> RunState | None:
        """Where the run stands, recorded as far as it must be; None before it has begun, or is read."""
        return self._state

    @property
    def object(self) -> kube.Object:
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

    def observe(self, obj: kube.Object) -> bool:
        """A watch shows the run; whether that is news."""
        return self._record.observe(obj)

    def observe_gone(self) -> None:
        """The run was deleted. What it has started is removed by the garbage collector, and let go here."""
        self._record.gone = True

    def observe_pod(self, pod: kube.Object) -> None:
        """A watch shows one of the run's pods."""
        self._attempts.observe(pod)

    def observe_pod_gone(self, pod: kube.Object) -> None:
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

    async def wind_up(self) -> None:
        """The run was deleted: release its pods."""
        self._inbox.refuse_all(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{self.ref.name}` was deleted")
        await self._attempts.wind_up()
        self._tools.workers.follow(self)
        self._wound_up = True

    async def take_further(self, time: datetime) -> datetime | None:
        """One pass."""
        wake = await self._pass(time)
        if self._state is not None:
            await self._conditions.recovered(self._state, wall_clock())
        if not self._inbox:  # what is asked may refer to blobs that were stored for it
            await self._stored.blobs.tidy(self._record.status)
        return wake

    def look_again(self) -> None:
        """A pass has failed: what was begun for attempts is looked at anew."""
        self._attempts.look_again()

    def full(self, error: kube.TooLargeError) -> None:
        """Say that the spec leaves no room for the status."""
        message = run_status.refused_as_too_large(error.message)
        self._teller.warn(EventReason.PAYLOAD_TOO_LARGE, message, "Commit")
        self._inbox.refuse_all(ConditionReason.PAYLOAD_TOO_LARGE, message)

    async def broken(self, error: Exception) -> None:
        """Say that the operator cannot process the run, and begin again from what is recorded."""
        self._state = None
        message = f"the operator cannot process the run: {type(error).__name__}: {error}; it retries with backoff"
        self._inbox.refuse_all(ConditionReason.INTERNAL_ERROR, message)
        if not self._record.status.get("completionTime"):
            with suppress(kube.ApiError, *kube.TRANSIENT):
                await self._conditions.wait(ConditionReason.INTERNAL_ERROR, message, wall_clock())

    async def _pass(self, now: datetime) -> datetime | None:
        if self._state is None and not await self._load(now):
            return None
        state = self._state
        assert state is not None
        state, more = await self._decide(state, now)
        if more:
            return now
        self._tools.workers.follow(self)
        pods = await self._attempts.done_by_pods(state)
        await self._attempts.apply(pods, now)
        if self._attempts.untold(pods):
            return now
        if self._effects.are_due(state, now):
            await self._record.confirm()
            await self._effects.apply(state, self._record.latest(), now)
        looks = look_again_at(state, now)
        await self._conditions.hindered(state, now, offers=looks is not None)
        wakes = (
            next_wake(state, now),
            self._attempts.next_wake(pods, now),
            self._effects.next_try(state),
            looks,
        )
        return min(filter(None, wakes), default=None)

    async def _decide(self, state: RunState, now: datetime) -> tuple[RunState, bool]:
        """Let the engine take what has happened, and record what comes of it; the state after it, and whether it wants more."""
        asked, forgotten = self._inbox.next(), list(self._forgotten)
        deciding = state.code is not None and state.code.deciding
        told = [] if deciding else await self._outcomes.gather(state)
        observed = [*forgotten, *told, *await self._observed(state, now), *(each.request for each in asked)]
        if state.closed and not observed:
            return state, False
        recorded = self._record.status
        code = state.code is not None
        given = await inlined(observed, self.ref.namespace, self._tools.blobs, self._tools.workers, code=code)
        if given.refused is not None:
            refused = next(each for each in asked if each.request is given.refused)
            self._inbox.refuse(refused, ConditionReason.PAYLOAD_TOO_LARGE, given.reason)
            return state, True
        observed = given.told
        try:
            transition = step(state, observed, now, self._facts.decider, self._tools.policies.of(self.ref.namespace))
            if transition.durable:
                transition = await self._commits.commit(state, transition, now, asked=asked)
        except NoRoomError:
            return state, True
        except OutOfStepError:
            self._state = None
            raise
        except Exception as error:
            if self._record.status is not recorded:
                self._state = None  # it is recorded already: deciding by what was before would record it twice
                raise
            if self._inbox.blamed(asked, error):
                return state, True
            if not isinstance(error, (kube.ApiError, *kube.TRANSIENT)):
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
        takes_more = not (after is not None and after.deciding) and not self._outcomes.settled
        return transition.state, transition.more or takes_more or self._inbox.one_by_one

    async def _observed(self, state: RunState, now: datetime) -> list[inputs.RunInput]:
        """What this process has seen itself: pods, and that it is to be decided again."""
        observed: list[inputs.RunInput] = [inputs.DecideAgain()] if self._decide_again else []
        if not state.closed:
            observed += await self._attempts.gather(await self._attempts.done_by_pods(state), now)
        return observed

    def _answer(self, asked: Sequence[Asked[inputs.Request]], transition: RunTransition) -> None:
        definition = self._facts.deciding.definition
        self._inbox.answer(
            asked, transition.answers, lambda request, answer: answered(request, answer, self.ref, definition)
        )

    async def read_again(self) -> None:
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
            state = self._stored.state()
            if state is None:
                return await self._begin(now)
            if state.activities or state.children or state.externals:
                # What a watch shows may be old; pods are made only for what is so now.
                await self.read_again()
                if self._record.gone:
                    return False
                state = self._stored.state()
                if state is None:
                    return await self._begin(now)
            if not state.closed and state.code is None:
                self._decide_by(self._starter.resume(state))
        except DamagedStateError as error:
            await self._conditions.wait(ConditionReason.STATE_DAMAGED, str(error), now)
            self._inbox.refuse_all(ConditionReason.STATE_DAMAGED, str(error))
            return False
        state = reclaim(state, self._tools.workers.epoch)
        if any(not activity.by_worker for activity in state.activities.values()):
            await self._attempts.recover(await self._attempts.done_by_pods(state))
        self._look_at_others_again()
        self._state = state
        return True

    async def _begin(self, now: datetime) -> bool:
        """Start the run, if it may and can be started; whether it was.

        Raises:
            NotYetError: its definition is being compiled.
        """
        await give_all(self._tools.client, self._record.object)
        try:
            begun = await self._starter.begin(now)
        except NotReadyError as error:
            await self._conditions.wait(error.reason, error.message, now)
            return False
        except NotYetError as error:
            await self._conditions.wait_for_definition(error, now)
        self._decide_by(begun)
        transition = await self._commits.commit(None, begun.transition, now, origin=begun.origin)
        self._state = transition.state
        self._answer(begun.asked, transition)
        if begun.origin is not None:
            self._look_at_others_again()
        return True

    def _decide_by(self, deciding: Deciding) -> None:
        self._facts.deciding = Deciding(decider=deciding.decider, definition=deciding.definition)
        self._attempts.define(deciding.definition)
