"""Apply each effect of a run once, and retry effects that the API server rejects."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import assert_never

from perdure.api.names import child_name
from perdure.controller.peers import Peers
from perdure.controller.reconcile.refusals import Refusals, is_temporary
from perdure.controller.retry_policies import CHECK_AGAIN, Policies
from perdure.controller.runs.effects import children, dead_letters, external_runs, nexus_callbacks, successors
from perdure.controller.runs.effects.context import EffectContext, PendingInputs
from perdure.engine import effects as fx
from perdure.engine import inputs
from perdure.engine.effects import Effect, effects
from perdure.engine.state import RunState
from perdure.engine.versioning import UNVERSIONED
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin, depth_of
from perdure.runtime.retry_policies import holder

_SOON_SECONDS = 0.2
"""The delay before a retry of an effect whose target run is changing."""


class Effects:
    """The effects of one run, and the ones that were applied."""

    def __init__(  # noqa: PLR0917 (the parts of a run)
        self,
        client: kube.Client,
        run: RunRef,
        reset: ResetOrigin | None,
        peers: Peers,
        policies: Policies,
        wake: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        """Create it without applied effects.

        Args:
            client: The client of the API server.
            run: The run.
            reset: The origin of the run, if a reset created it.
            peers: The other runs.
            policies: The RetryPolicies, whose circuit breakers get reports of attempts.
            wake: Requests another reconciliation of the run.
            refused: Called once for each object that the API server rejects, with the reason.
        """
        self.context = EffectContext(
            client=client,
            run=run,
            reset=reset,
            peers=peers,
            pending=PendingInputs(wake),
            retry_soon=self._retry_soon,
        )
        self._policies = policies
        self._wake = wake
        self._applied: set[Effect] = set()
        self._refusals: Refusals[Effect] = Refusals(refused)

    # Pending effects

    def are_due(self, state: RunState, now: datetime) -> bool:
        """Whether the state has unapplied effects that may be tried now."""
        return any(not self._waits(effect, now) for effect in self._left(state))

    def refused(self, state: RunState) -> str:
        """Why the API server rejects an object of the run; empty if it rejects none."""
        return self._refusals.message(self._left(state)) if self._refusals else ""

    def next_try(self, state: RunState) -> datetime | None:
        """When to retry a rejected effect; None if none was rejected."""
        return self._refusals.next_try(self._left(state)) if self._refusals else None

    def has_applied(self, effect: Effect) -> bool:
        """Whether this process has applied an effect since it last read the run."""
        return effect in self._applied

    def recheck(self) -> None:
        """Apply all effects again, because the known state may be stale."""
        self._applied.clear()

    def _left(self, state: RunState) -> set[Effect]:
        return set(effects(state)) - self._applied

    def _waits(self, effect: Effect, now: datetime) -> bool:
        """Whether it is too early for an effect. An abandoned child must start before it is closed."""
        if isinstance(effect, fx.CloseChild) and self._refusals.waits(fx.StartChild(effect.initiated_event_id), now):
            return True
        return self._refusals.waits(effect, now)

    # Applying

    async def apply(
        self, state: RunState, run: kube.Object, now: datetime, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        """Apply the effects of the committed state. Temporarily rejected effects do not delay the others.

        Args:
            state: The committed state.
            run: The object of the run, as committed.
            now: The time.
            confirm: Called before each effect, because the one before it may have taken long: raises an error if the state is
                no longer current.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        wanted = effects(state)
        closing = {
            each.initiated_event_id for each in wanted if isinstance(each, fx.CloseChild) and each not in self._applied
        }
        if closing:
            await children.find(self.context, closing)
        for effect in wanted:
            if effect not in self._applied and not self._waits(effect, now):
                await confirm()
                await self._apply(effect, state, run, now)

    async def _apply(self, effect: Effect, state: RunState, run: kube.Object, now: datetime) -> None:
        match effect:
            case fx.ReportAttempt():
                who = holder(self.context.run, effect.key)
                reported = await self._policies.report(self.context.run.namespace, who, state.reports[effect.key])
                self._applied.add(effect)
                if reported:
                    self.context.pending.enqueue(inputs.EffectDone(effect=effect))
                else:
                    self._retry_soon(effect, CHECK_AGAIN.total_seconds())
            case fx.StartChild(number):
                child = state.children[str(number)]
                priority = state.code.priority if state.code is not None else None
                name = f"the child `{child_name(self.context.run.name, number)}`"
                versioning = state.code.versioning if state.code is not None else UNVERSIONED
                creation = children.start(self.context, child, depth_of(run) + 1, priority, versioning)
                await self._unless_refused(effect, name, now, creation)
            case fx.CloseChild(number):
                self._note(effect, children.close(self.context, state.children[str(number)]))
            case fx.RequestExternal(number):
                self._note(effect, external_runs.deliver(self.context, state.externals[str(number)], state))
            case fx.WriteDeadLetter(number):
                creation = dead_letters.write(self.context, state.markers[str(number)], run)
                await self._unless_refused(effect, "a DeadLetter", now, creation)
            case fx.CompleteOperation(key):
                creation = nexus_callbacks.complete(self.context, key, state, run)
                await self._unless_refused(effect, "the Nexus operation of another run", now, creation)
            case fx.StartSuccessor():
                creation = successors.start(self.context, state, run)
                await self._unless_refused(effect, "the run that continues this one", now, creation)
            case _:
                assert_never(effect)

    async def _unless_refused(self, effect: Effect, name: str, now: datetime, creation: Awaitable[None]) -> None:
        """Create an object, and record a temporary rejection."""
        try:
            await creation
        except kube.ApiError as error:
            if not is_temporary(error):
                raise
            self._refusals.note(effect, name, error, now)
        else:
            self._refusals.clear(effect)
            self._applied.add(effect)

    def _note(self, effect: Effect, applied: bool) -> None:
        if applied:
            self._applied.add(effect)

    def _retry_soon(self, effect: Effect, seconds: float = 0.0) -> None:
        def again() -> None:
            self._applied.discard(effect)
            self._wake()

        asyncio.get_running_loop().call_later(max(seconds, _SOON_SECONDS), again)
