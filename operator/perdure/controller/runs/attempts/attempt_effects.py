"""Applies the effects of a committed state on the pods of its attempts: starts, cancels, and releases them."""

from datetime import datetime
from typing import assert_never

from perdure.controller.pods import attempt_pods as api_pods
from perdure.controller.pods.attempt_pods import AttemptBlockedError, AttemptImpossibleError, PodKey
from perdure.controller.reconcile.record import Record
from perdure.controller.runs.attempts.attempt_admission import AttemptAdmission
from perdure.controller.runs.attempts.attempt_context import AttemptContext
from perdure.engine.effects import AttemptEffect, StartAttempt, StopAttempt, attempt_effects
from perdure.engine.state import PendingActivity, RunState
from perdure.language.step_failures import StepError
from perdure.runtime.attempts import AttemptRefusedError


class AttemptEffects:
    """The effects of one run on its pods, and which of them were applied."""

    def __init__(self, context: AttemptContext, admission: AttemptAdmission, record: Record) -> None:
        """Create it without applied effects.

        Args:
            context: The run, and the known state of its attempts.
            admission: Decides which attempts may start.
            record: The run's object, which is confirmed before effects of its state are applied.
        """
        self._context = context
        self._held = context.held
        self._admission = admission
        self._record = record
        self._applied: set[AttemptEffect] = set()

    def found_started(self, key: PodKey) -> None:
        """Record that an attempt has its pod and, if it needs one, its Lease."""
        self._applied.add(StartAttempt(key.scheduled_event_id, key.attempt))
        self._context.blocked.clear(key)

    def forget(self, key: PodKey) -> None:
        """Drop an attempt whose end is recorded."""
        number, attempt = key.scheduled_event_id, key.attempt
        self._applied -= {StartAttempt(number, attempt), StopAttempt(number, attempt)}

    def left(self, state: RunState, now: datetime) -> list[AttemptEffect]:
        """The effects of the state that were not applied yet."""
        return [effect for effect in attempt_effects(state, now) if effect not in self._applied]

    async def apply(self, state: RunState, now: datetime) -> None:
        """Apply the effects of the committed state, and release the pods that no attempt needs.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        superfluous, left = self._held.superfluous(state), self.left(state, now)
        if superfluous or any(isinstance(effect, StopAttempt) for effect in left):
            await self._record.confirm(afresh=True)
        self._held.give_up(state, superfluous)
        await self.release()
        await self._context.cached.store(now)  # before the next attempts look for results
        for effect in left:
            activity = state.activities[str(effect.scheduled_event_id)]
            match effect:
                case StopAttempt():
                    await self._stop(activity)
                    self._applied.add(effect)
                case StartAttempt():
                    await self._start(activity, now)
                case _:
                    assert_never(effect)

    async def release(self) -> None:
        """Release the pods that no attempt needs."""
        for uid, (pod, keep) in list(self._held.leaving.items()):
            if keep is None:
                await self._context.api.release_by_name(pod, keep=True)
            else:
                await self._context.api.release(pod, keep=keep)
            self._held.released(uid)

    async def _stop(self, activity: PendingActivity) -> None:
        """Request the cancellation of an attempt: through its Lease if it heartbeats, otherwise by SIGTERM."""
        run, key = self._context.run, PodKey.of(activity)
        if activity.heartbeat_timeout is not None:
            await self._context.api.leases.request_cancel(run, key, "the workflow asks the activity to stop")
        else:
            await self._context.api.stop(run, key)

    async def _start(self, activity: PendingActivity, now: datetime) -> None:
        """Create the pod of an attempt and, if needed, its Lease, unless it has an earlier result, or something blocks it.

        An attempt that waits for its turn looks for a result before it begins to wait, and again when its turn has come.
        """
        blocked, key = self._context.blocked, PodKey.of(activity)
        if blocked.waits(key, now):
            return
        waits = blocked.is_shared(key)
        try:
            if activity.takes_limits:
                if await self._admission.admits(activity, now):
                    self._context.granted.add(activity)
                return
            if not waits and await self._has_result(activity, now):
                return
            if not await self._admission.admits(activity, now):
                return
            if waits and await self._has_result(activity, now):
                return
            await self._record.confirm()
            await self._ensure(activity)
        except AttemptBlockedError as error:
            blocked.by_api(activity, error, now)
        except (AttemptRefusedError, AttemptImpossibleError, StepError) as error:
            blocked.refuse(activity, error.failure)
        else:
            self.found_started(key)

    async def _has_result(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether an attempt without a pod can use an earlier result."""
        return PodKey.of(activity) not in self._held.pods and await self._context.cached.find(activity, now)

    async def _ensure(self, activity: PendingActivity) -> None:
        """Create a missing pod or Lease. An earlier process or another operator may have created the pod without its Lease.

        Raises:
            AttemptRefusedError, AttemptImpossibleError: The pod can never be created.
            AttemptBlockedError: A temporary obstacle blocks the pod.
        """
        pods, run, key = self._context.api, self._context.run, PodKey.of(activity)
        attempt, pod = self._context.definitions.attempt(activity), self._held.pods.get(key)
        if pod is None:
            definition = self._context.definitions.of(activity)
            await self._context.artifacts.expect(definition, pods.settings.sidecar_image)
            volumes = await self._context.workspaces.of(definition)
            pod = await pods.ensure(run, attempt, definition, volumes, self._record.confirm)
        elif attempt.needs_lease and not api_pods.has_ended(pod):
            await pods.leases.ensure(run, attempt, pod)
        self._held.adopt(key, pod)
