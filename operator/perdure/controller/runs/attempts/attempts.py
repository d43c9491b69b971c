"""The attempts of a run whose activities run in pods: inputs from the pods, and effects on them.

The watch reports pods. When a deadline is due, pods are read from the API server, because a watch may lag. Effects follow the
commit, and can be repeated after a crash, because the names of pods are locks.
"""

from collections.abc import Callable
from datetime import datetime
from typing import assert_never

from perdure.controller.pods import attempt_pods as api_pods
from perdure.controller.pods.attempt_pods import AttemptBlockedError, AttemptImpossibleError, PodKey
from perdure.controller.pods.workspaces import WorkspaceVolumes
from perdure.controller.runs.attempts.admission import Admission, Blocked
from perdure.controller.runs.attempts.cached_results import CachedAttempts
from perdure.controller.runs.attempts.definitions import ActivityDefinitions
from perdure.controller.runs.attempts.held_pods import HeldPods
from perdure.controller.runs.attempts.pod_inputs import PodInputs
from perdure.controller.runs.events import RunEventRecorder
from perdure.controller.runs.store import RunStore
from perdure.controller.services import Services
from perdure.controller.workflows.definitions import Definition
from perdure.engine.effects import AttemptEffect, StartAttempt, StopAttempt, attempt_effects
from perdure.engine.inputs import AttemptCompleted, AttemptInput
from perdure.engine.ledger import AttemptOutcome
from perdure.engine.state import PendingActivity, RunState
from perdure.engine.step import RunTransition
from perdure.kube import client as kube
from perdure.language.step_failures import StepError
from perdure.runtime.attempts import AttemptRefusedError, RunRef
from perdure.runtime.chains import ResetOrigin


class RunAttempts:
    """The pods of one run's attempts, in this process. The ``observe…`` methods may be called at any time.

    States in arguments come from `in_pods`.
    """

    def __init__(
        self,
        services: Services,
        run: RunRef,
        store: RunStore,
        reset: ResetOrigin | None,
        events: RunEventRecorder,
        *,
        wake: Callable[[], None],
    ) -> None:
        """Create it without attempts.

        Args:
            services: The shared services for pods, definitions, limits, and circuit breakers.
            run: The run.
            store: The stored state of the run, which is confirmed before its effects are applied.
            reset: The origin of the run, if a reset created it.
            events: Records why a pod cannot be created, what blocks it, and that a result is not stored for later attempts.
            wake: Requests another reconciliation of the run.
        """
        self._run = run
        self._pods = services.pods
        self._record = store.record
        self._artifacts = store.artifacts
        self._blocked = Blocked(run, events.pod_refused)
        self._held = HeldPods(run, self._forget)
        self._definitions = ActivityDefinitions(services.definitions, run.namespace, self._blocked.refuse)
        self._workspaces = WorkspaceVolumes(services.client, run, reset)
        self._cached = CachedAttempts(
            services.client, run, self._definitions, store.artifacts, events.result_not_cached
        )
        self._inputs = PodInputs(
            services.pods, run, self._held, self._blocked, self._definitions, events.pod_waits, wake
        )
        self._admission = Admission(services, run, store.record, self._held, self._blocked, self._definitions)
        self._granted: list[AttemptCompleted] = []
        """The activities that hold the limits of their steps, and complete with that. Each is reported once to the engine."""
        self._applied: set[AttemptEffect] = set()

    @property
    def settled(self) -> bool:
        """Whether no pod must be read or released, and no result must be stored."""
        return self._held.settled and self._cached.settled

    def define(self, definition: Definition | None) -> None:
        """Set the definition of the run; None if it has none of its own."""
        self._definitions.define(definition)
        self._workspaces.define(definition.program.spec.workspaces if definition is not None else ())

    async def in_pods(self, state: RunState) -> RunState:
        """The state with only the activities that run in pods; see `ActivityDefinitions`."""
        return await self._definitions.in_pods(state)

    # Observing

    def observe(self, pod: kube.Object) -> None:
        """Process a watch event of one of the run's pods."""
        self._held.observe(pod)

    def observe_deletion(self, pod: kube.Object) -> None:
        """Process the deletion of one of the run's pods."""
        self._held.observe_deletion(pod)

    def recheck_circuits(self) -> bool:
        """Check the circuit breakers again, and return whether one blocks an attempt."""
        return self._blocked.recheck_circuits()

    def recheck(self) -> None:
        """Read everything again, because earlier results may have been discarded."""
        self._held.recheck()

    async def recover(self, state: RunState) -> None:
        """Read the pods of an earlier process, and create Leases that it has not created.

        A started attempt without a pod has lost its pod. Any other attempt without a pod may never have had one, and gets one.
        """
        for found in await self._pods.list_of(self._run):
            self._held.observe(found)
        for activity in state.open_activities():
            key = PodKey.of(activity)
            pod = self._held.pods.get(key)
            if pod is None and activity.started_time is not None:
                self._held.miss(key)
            elif pod and (api_pods.has_ended(pod) or not self._definitions.attempt(activity).needs_lease):
                self._note_started(key)

    async def gather(self, state: RunState, now: datetime) -> list[AttemptInput]:
        """The inputs for the current attempts, after checking due deadlines."""
        observed = await self._inputs.gather(state, now)
        self._cached.observe(state, observed)
        granted, self._granted = self._granted, []
        return [*self._blocked.refused(), *self._cached.found(), *granted, *observed]

    def retire(self, transition: RunTransition) -> None:
        """Release the pods of attempts whose end was recorded, and store the results of those that completed."""
        for attempt in transition.retired:
            key = PodKey(attempt.scheduled_event_id, attempt.attempt)
            self._held.retire(key, attempt.outcome)
            if attempt.outcome is AttemptOutcome.COMPLETED:
                self._cached.recorded(key)

    # Effects

    async def apply(self, state: RunState, now: datetime) -> None:
        """Apply the effects of the committed state, and release the pods that no attempt needs.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        superfluous = self._held.superfluous(state)
        left = [effect for effect in attempt_effects(state, now) if effect not in self._applied]
        if superfluous or any(isinstance(effect, StopAttempt) for effect in left):
            await self._record.confirm(afresh=True)
        self._held.release_unneeded(state, superfluous)
        await self._release()
        await self._cached.store(now)  # before the next attempts look for results
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

    async def finalize(self) -> None:
        """Release all pods of a deleted run.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        self._held.release_all()
        self._cached.forget()
        await self._release()

    async def _release(self) -> None:
        """Release the pods that no attempt needs."""
        for uid, (pod, keep) in list(self._held.to_release.items()):
            if keep is None:
                await self._pods.release_by_name(pod, keep=True)
            else:
                await self._pods.release(pod, keep=keep)
            self._held.released(uid)

    async def _stop(self, activity: PendingActivity) -> None:
        """Request the cancellation of an attempt: through its Lease if it heartbeats, otherwise by SIGTERM."""
        key = PodKey.of(activity)
        if activity.heartbeat_timeout is not None:
            await self._pods.leases.request_cancel(self._run, key, "the workflow asks the activity to stop")
        else:
            await self._pods.stop(self._run, key)

    async def _start(self, activity: PendingActivity, now: datetime) -> None:
        """Create the pod of an attempt and, if needed, its Lease, unless it has an earlier result, or something blocks it.

        An attempt that waits for its turn looks for a result before it begins to wait, and again when its turn has come.
        """
        key = PodKey.of(activity)
        if self._blocked.waits(key, now):
            return
        waits = self._blocked.is_shared(key)
        try:
            if activity.takes_limits:
                if await self._admission.admits(activity, now):
                    number, attempt = key.scheduled_event_id, key.attempt
                    self._granted.append(AttemptCompleted(scheduled_event_id=number, attempt=attempt))
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
            self._blocked.by_api(activity, error, now)
        except (AttemptRefusedError, AttemptImpossibleError, StepError) as error:
            self._blocked.refuse(activity, error.failure)
        else:
            self._note_started(key)

    async def _has_result(self, activity: PendingActivity, now: datetime) -> bool:
        """Whether an attempt without a pod can use an earlier result."""
        return PodKey.of(activity) not in self._held.pods and await self._cached.find(activity, now)

    async def _ensure(self, activity: PendingActivity) -> None:
        """Create a missing pod or Lease. An earlier process or another operator may have created the pod without its Lease.

        Raises:
            AttemptRefusedError, AttemptImpossibleError: The pod can never be created.
            AttemptBlockedError: A temporary obstacle blocks the pod.
        """
        key = PodKey.of(activity)
        attempt, pod = self._definitions.attempt(activity), self._held.pods.get(key)
        if pod is None:
            definition = self._definitions.of(activity)
            await self._artifacts.expect(definition, self._pods.settings.sidecar_image)
            volumes = await self._workspaces.of(definition)
            pod = await self._pods.ensure(self._run, attempt, definition, volumes, self._record.confirm)
        elif attempt.needs_lease and not api_pods.has_ended(pod):
            await self._pods.leases.ensure(self._run, attempt, pod)
        self._held.adopt(key, pod)

    def _note_started(self, key: PodKey) -> None:
        """Record that an attempt has its pod and, if it needs one, its Lease."""
        self._applied.add(StartAttempt(key.scheduled_event_id, key.attempt))
        self._blocked.clear(key)

    def _forget(self, key: PodKey, pod: kube.Object | None) -> None:
        """Drop an attempt whose end is recorded, or that the run no longer waits for."""
        self._inputs.forget(key, pod)
        number, attempt = key.scheduled_event_id, key.attempt
        self._applied -= {StartAttempt(number, attempt), StopAttempt(number, attempt)}

    # What is left

    def unreported(self, state: RunState) -> bool:
        """Whether a circuit breaker or a WorkflowLimit blocks an attempt, and the run does not show this yet."""
        return self._blocked.unreported(state, self._held.pods)

    def next_wake(self, state: RunState, now: datetime) -> datetime | None:
        """When to read or retry something without an event."""
        new = self._blocked.any_refused or self._cached.any_found or bool(self._granted)
        # A closed run has no more inputs: another operator has closed it after these were found.
        if (new and not state.closed) or self._inputs.is_due(now):
            return now
        times = (
            *self._blocked.next_tries(state),
            *self._cached.next_tries(),
            *self._inputs.next_reads(state, now),
        )
        return min((time for time in times if time > now), default=None)
