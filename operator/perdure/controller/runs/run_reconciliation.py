"""The reconciliation of one run.

    observed  (watch: the run, its pods)  ─┐
    read      (a deadline is due)         ─┼─▶ step ─▶ commit ─▶ effects (pods created, pods released) ─▶ next wake
    the clock                             ─┘             │
                                          conflict ──────┘ another client has written: read again, decide again

`attempts` has the inputs from pods and the effects on them; `reconcile.record` has the write and its conflicts.

Crash windows. Before the commit, nothing has happened. Between the commit and its effects, the committed state determines which
pods must exist: after a restart, the operator creates missing pods (their names are locks) and releases unneeded ones. A commit
whose response was lost causes a conflict at the next write, which then finds the commit.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from perdure.api.reasons import ConditionReason, EventReason
from perdure.controller.errors import NotYetError
from perdure.controller.payloads.inlining import inlined
from perdure.controller.payloads.payload_store import give_all
from perdure.controller.reconcile.inbox import PendingRequest
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.recorded_state import DamagedStateError
from perdure.controller.runs import run_status
from perdure.controller.runs.answers import answered
from perdure.controller.runs.next_requests import next_requests
from perdure.controller.runs.run_deciders import Deciding
from perdure.controller.runs.run_parts import RunParts
from perdure.controller.runs.run_record import NoRoomError, OutOfStepError
from perdure.controller.runs.unrecorded_start import LONGEST, UnrecordedStart, may_wait
from perdure.controller.runs.workflow_ids import decides
from perdure.controller.tools import Tools
from perdure.controller.workers import next_poll_check
from perdure.controller.workflows.definitions import NotReadyError
from perdure.engine import inputs
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition, next_wake, step
from perdure.engine.tasks import reclaim
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock


class RunReconciliation:
    """The reconciliation of a WorkflowRun, for the generic reconciler."""

    def __init__(self, tools: Tools, parts: RunParts, follow: Callable[[], None]) -> None:
        """`follow` offers the tasks of the run to workers."""
        self.state: RunState | None = None
        """The state of the run, with everything recorded that must be; None before the run has started or was read."""
        self.start: UnrecordedStart | None = None
        """The start of the run, if the first decision must record it."""
        self.forgotten: list[inputs.RequestForgotten] = []
        self.decide_again = False
        """Whether the decider must run again, although no event was added."""
        self.commits_everything = False
        """Whether to also record repeatable transitions, because this process does not keep the run."""
        self._try_again: datetime | None = None
        """When to retry a run that could not start, regardless of events."""
        self.released = False
        """Whether the objects of a deleted run were released."""
        self._tools = tools
        self._ref = parts.ref
        self._stored = parts.stored
        self._record = parts.stored.record
        self._event_recorder = parts.event_recorder
        self._attempts = parts.attempts
        self._effects = parts.effects
        self._facts = parts.facts
        self._conditions = parts.conditions
        self._outcomes = parts.outcomes
        self._inbox = parts.inbox
        self._commits = parts.commits
        self._deciders = parts.deciders
        self._starter = parts.starter
        self._follow = follow

    async def finalize(self) -> None:
        """Release the pods of a deleted run."""
        self._inbox.refuse_all(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{self._ref.name}` was deleted")
        await self._attempts.finalize()
        self._follow()
        self.released = True

    async def reconcile(self, time: datetime) -> datetime | None:
        """Observe, decide, commit, and apply the effects."""
        wake = await self._pass(time)
        if self.start is not None:
            return wake
        if self.state is not None:
            await self._conditions.recovered(self.state, wall_clock())
        if not self._inbox:  # pending requests may refer to stored blobs
            await self._stored.blobs.tidy(self._record.status)
        return wake

    def recheck(self) -> None:
        """Observe the attempts again after a failed reconciliation."""
        self._attempts.recheck()

    def full(self, error: kube.TooLargeError) -> None:
        """Report that the spec leaves no room for the status."""
        message = run_status.refused_as_too_large(error.message)
        self._event_recorder.warn(EventReason.PAYLOAD_TOO_LARGE, message, "Commit")
        self._inbox.refuse_all(ConditionReason.PAYLOAD_TOO_LARGE, message)

    async def broken(self, error: Exception) -> None:
        """Report that the operator cannot process the run, and start over from the recorded state."""
        self.state = None
        message = f"the operator cannot process the run: {type(error).__name__}: {error}; it retries with backoff"
        self._inbox.refuse_all(ConditionReason.INTERNAL_ERROR, message)
        if not self._record.status.get("completionTime"):
            with suppress(kube.RequestError):
                await self._conditions.wait(ConditionReason.INTERNAL_ERROR, message, wall_clock())

    async def _pass(self, now: datetime) -> datetime | None:
        if self.state is None and not await self._load(now):
            return self._try_again
        state = self.state
        assert state is not None
        state, more = await self._decide(state, now)
        if more:
            return now
        self._follow()
        if self.start is not None:  # the run exists only in this process
            return min(filter(None, (self.start.due, next_wake(state, now))))
        pods = await self._attempts.done_by_pods(state)
        await self._attempts.apply(pods, now)
        if self._attempts.unreported(pods):
            return now
        if self._effects.are_due(state, now):
            await self._effects.apply(state, self._record.latest(), now, self._record.confirm)
        next_check = next_poll_check(state, now)
        await self._conditions.report_blocked(state, now, offers=next_check is not None)
        wakes = (
            next_wake(state, now),
            self._attempts.next_wake(pods, now),
            self._effects.next_try(state),
            next_check,
        )
        return min(filter(None, wakes), default=None)

    async def _decide(self, state: RunState, now: datetime) -> tuple[RunState, bool]:
        """Step the engine with the inputs, and commit the transition; return the new state, and whether to decide again."""
        forgotten, requests = list(self.forgotten), await next_requests(self._inbox, self._effects.context)
        deciding = state.code is not None and state.code.deciding
        outcomes = [] if deciding and not _prolongs(requests) else await self._outcomes.gather(state)
        observed = [*forgotten, *outcomes, *await self._observed(state, now), *(each.request for each in requests)]
        if state.closed and not observed:
            return state, False
        recorded = self._record.status
        code = state.code is not None
        given = await inlined(observed, self._ref.namespace, self._tools.blobs, self._tools.workers, code=code)
        if given.refused is not None:
            refused = next(each for each in requests if each.request is given.refused)
            self._inbox.refuse(refused, ConditionReason.PAYLOAD_TOO_LARGE, given.reason)
            return state, True
        observed = given.values
        try:
            transition = await self._step(state, observed, now, requests)
        except NoRoomError:
            return state, True
        except OutOfStepError:
            self.state = None
            raise
        except Exception as error:
            if self._record.status is not recorded:
                self.state = None  # it is already recorded: deciding from the previous state would record it twice
                raise
            if self._inbox.refuse_failing(requests, error):
                return state, True
            if not isinstance(error, kube.RequestError):
                self.state = None  # uncommitted changes in memory may be the cause: continue from the recorded state
            raise
        self._inbox.taken(requests)
        self.state = transition.state
        self._attempts.retire(transition)
        self._outcomes.committed(len(outcomes))
        del self.forgotten[: len(forgotten)]
        self.decide_again = False
        self._answer(requests, transition)
        after = transition.state.code
        takes_more = not (after is not None and after.deciding) and not self._outcomes.settled
        return transition.state, transition.more or takes_more or self._inbox.one_by_one

    async def _step(
        self,
        state: RunState,
        observed: Sequence[inputs.RunInput],
        now: datetime,
        requests: Sequence[PendingRequest[inputs.Request]],
    ) -> RunTransition:
        """Step the engine, and commit the transition if necessary, together with an unrecorded start of the run."""
        transition = step(state, observed, now, self._facts.decider, self._tools.policies.of(self._ref.namespace))
        if self.start is not None:
            transition = self.start.followed_by(transition, now)
        if transition.durable or (self.commits_everything and transition.state != state):
            if self.start is not None and not decides(self._tools.shards, self._ref):
                self.state = None
                raise kube.ConflictError(409, "Conflict", "another operator decides whether the run starts")
            before = None if self.start is not None else state
            transition = await self._commits.commit(before, transition, now, requests=requests)
            self.start = None
        return transition

    async def _observed(self, state: RunState, now: datetime) -> list[inputs.RunInput]:
        """The observations of this process as inputs: pods, and the need to decide again."""
        observed: list[inputs.RunInput] = [inputs.DecideAgain()] if self.decide_again else []
        if not state.closed:
            observed += await self._attempts.gather(await self._attempts.done_by_pods(state), now)
        return observed

    def _answer(self, requests: Sequence[PendingRequest[inputs.Request]], transition: RunTransition) -> None:
        definition = self._facts.deciding.definition
        self._inbox.answer(
            requests, transition.answers, lambda request, answer: answered(request, answer, self._ref, definition)
        )

    async def read_again(self) -> None:
        """Read the run, and observe everything again if another client has written."""
        if await self._record.read_again():
            self.state = None
            self._attempts.recheck()
            self._look_at_others_again()

    def _look_at_others_again(self) -> None:
        self._effects.recheck()
        self._outcomes.recheck()

    # Starting, and resuming after a restart

    async def _load(self, now: datetime) -> bool:
        """Resume from the recorded state, or start the run; return whether the run can proceed."""
        self.start = self._try_again = None
        try:
            state = self._stored.state()
            if state is None:
                return await self._begin(now)
            if state.activities or state.children or state.externals:
                # A watch may lag, but pods must be created only for the current state.
                await self.read_again()
                if self._record.gone:
                    return False
                state = self._stored.state()
                if state is None:
                    return await self._begin(now)
            if not state.closed and state.code is None:
                self._decide_by(self._deciders.resume(state))
        except NewerStateError as error:
            self._try_again = await self._conditions.report_newer(str(error), now)
            return False
        except DamagedStateError as error:
            await self._conditions.wait(ConditionReason.STATE_DAMAGED, str(error), now)
            self._inbox.refuse_all(ConditionReason.STATE_DAMAGED, str(error))
            return False
        if not self.commits_everything:  # only the owner of a guest knows which tasks it has dispatched
            state = reclaim(state, self._tools.workers.epoch)
        if any(not activity.by_worker for activity in state.activities.values()):
            await self._attempts.recover(await self._attempts.done_by_pods(state))
        self._look_at_others_again()
        self.state = state
        return True

    async def _begin(self, now: datetime) -> bool:
        """Start the run; return whether it could be started.

        Raises:
            NotYetError: The definition of the run is being compiled.
        """
        await give_all(self._tools.client, self._record.object)
        await self._stored.artifacts.hold(msgspec.json.encode(self._record.object))
        try:
            begun = await self._starter.begin(now)
        except NotReadyError as error:
            await self._conditions.wait(error.reason, error.message, now)
            self._try_again = error.until
            return False
        except NotYetError as error:
            await self._conditions.wait_for_definition(error, now)
        if not (begun.requests or decides(self._tools.shards, self._ref)):
            return False  # requests may end the run here, but only its owner opens it
        self._decide_by(begun)
        transition = begun.transition
        if not (begun.requests or self.commits_everything) and may_wait(begun, self._record, self._tools.workers):
            self.start = UnrecordedStart(transition, now + LONGEST)
        else:
            transition = await self._commits.commit(None, transition, now, origin=begun.origin)
        self.state = transition.state
        self._answer(begun.requests, transition)
        if begun.origin is not None:
            self._look_at_others_again()
        return True

    def _decide_by(self, deciding: Deciding) -> None:
        self._facts.deciding = Deciding(decider=deciding.decider, definition=deciding.definition)
        self._attempts.define(deciding.definition)


def _prolongs(requests: Sequence[PendingRequest[inputs.Request]]) -> bool:
    """Whether a worker prolongs its workflow task, so that the commit that ends this task begins another one."""
    return any(isinstance(each.request, inputs.TaskCompleted) and each.request.force_new_task for each in requests)
