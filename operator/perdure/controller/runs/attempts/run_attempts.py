"""The attempts of one run, assembled from their parts."""

from collections.abc import Callable
from datetime import datetime

from perdure.controller.pods import attempt_pods as api_pods
from perdure.controller.pods.pod_key import PodKey
from perdure.controller.pods.workspace_volumes import WorkspaceVolumes
from perdure.controller.runs.attempts.activity_definitions import ActivityDefinitions
from perdure.controller.runs.attempts.attempt_admission import AttemptAdmission
from perdure.controller.runs.attempts.attempt_context import AttemptContext
from perdure.controller.runs.attempts.attempt_effects import AttemptEffects
from perdure.controller.runs.attempts.blocked import Blocked
from perdure.controller.runs.attempts.cached_attempts import CachedAttempts
from perdure.controller.runs.attempts.held_pods import HeldPods
from perdure.controller.runs.attempts.limit_grants import LimitGrants
from perdure.controller.runs.attempts.pod_inputs import Reading
from perdure.controller.runs.run_record import RunRecord
from perdure.controller.tools import Tools
from perdure.controller.workflows.definitions import Definition
from perdure.engine import inputs
from perdure.engine.ledger import AttemptOutcome
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin


class RunAttempts:
    """The pods of one run's attempts, in this process. The ``observe…`` methods may be called at any time.

    States in arguments come from `done_by_pods`.
    """

    def __init__(  # noqa: PLR0917 (what the run has)
        self,
        tools: Tools,
        run: RunRef,
        stored: RunRecord,
        reset: ResetOrigin | None,
        refused: Callable[[str, str], None],
        hindered: Callable[[str, str], None],
        uncached: Callable[[str], None],
        *,
        wake: Callable[[], None],
    ) -> None:
        """Create it without attempts.

        Args:
            tools: The shared services for pods, definitions, limits, and circuit breakers.
            run: The run.
            stored: The stored state of the run, which is confirmed before its effects are applied.
            reset: The origin of the run, if a reset created it.
            refused: Called once for each attempt with the reason why its pod cannot be created for now, and the pod's name.
            hindered: Called with the reason why a pod is blocked, and its name, once until that pod has started.
            uncached: Called with the reason why a result was not stored for later attempts.
            wake: Requests another reconciliation of the run.
        """
        self._run = run
        self._api = tools.pods
        self._blocked = Blocked(run, refused)
        self._held = HeldPods(run, self._forget)
        self._definitions = ActivityDefinitions(tools.definitions, run.namespace, self._blocked.refuse)
        self._workspaces = WorkspaceVolumes(tools.client, run, reset)
        self._cached = CachedAttempts(tools.client, run, self._definitions, stored.artifacts, uncached)
        self._granted = LimitGrants()
        context = AttemptContext(
            api=tools.pods,
            run=run,
            held=self._held,
            blocked=self._blocked,
            definitions=self._definitions,
            workspaces=self._workspaces,
            artifacts=stored.artifacts,
            cached=self._cached,
            granted=self._granted,
        )
        self._reading = Reading(context, hindered, wake)
        self._effects = AttemptEffects(context, AttemptAdmission(tools, context, stored.record), stored.record)

    @property
    def settled(self) -> bool:
        """Whether no pod must be read or released, and no result must be stored."""
        return self._held.settled and self._cached.settled

    def define(self, definition: Definition | None) -> None:
        """Set the definition of the run; None if it has none of its own."""
        self._definitions.define(definition)
        self._workspaces.define(definition.program.spec.workspaces if definition is not None else ())

    async def done_by_pods(self, state: RunState) -> RunState:
        """The state with only the activities that run in pods; see `ActivityDefinitions`."""
        return await self._definitions.done_by_pods(state)

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
        for found in await self._api.list_of(self._run):
            self._held.observe(found)
        for activity in state.open_activities():
            key = PodKey.of(activity)
            pod = self._held.pods.get(key)
            if pod is None and activity.started_time is not None:
                self._held.miss(key)
            elif pod and (api_pods.has_ended(pod) or not self._definitions.attempt(activity).needs_lease):
                self._effects.found_started(key)

    # Reconciliation

    async def gather(self, state: RunState, now: datetime) -> list[inputs.AttemptInput]:
        """The inputs for the current attempts, after checking due deadlines."""
        observed = await self._reading.gather(state, now)
        self._cached.observe(state, observed)
        return [*self._blocked.refused(), *self._cached.found(), *self._granted.new(), *observed]

    def retire(self, transition: RunTransition) -> None:
        """Release the pods of attempts whose end was recorded, and store the results of those that completed."""
        for attempt in transition.retired:
            key = PodKey(attempt.scheduled_event_id, attempt.attempt)
            self._held.retire(key, attempt.outcome)
            if attempt.outcome is AttemptOutcome.COMPLETED:
                self._cached.recorded(key)

    async def apply(self, state: RunState, now: datetime) -> None:
        """Apply the effects of the committed state on pods.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        await self._effects.apply(state, now)

    async def finalize(self) -> None:
        """Release all pods of a deleted run.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        self._held.release_all()
        self._cached.forget()
        await self._effects.release()

    def unreported(self, state: RunState) -> bool:
        """Whether a circuit breaker or a WorkflowLimit blocks an attempt, and the run does not show this yet."""
        return self._blocked.unreported(state, self._held.pods)

    def next_wake(self, state: RunState, now: datetime) -> datetime | None:
        """When to read or retry something without an event."""
        new = self._blocked.any_refused or self._cached.any_found or self._granted.any_new
        # A closed run has no more inputs: another operator has closed it after these were found.
        if (new and not state.closed) or self._reading.is_due(now):
            return now
        times = (
            *self._blocked.next_tries(state),
            *self._cached.next_tries(),
            *self._reading.next_reads(state, now),
        )
        return min((time for time in times if time > now), default=None)

    def _forget(self, key: PodKey, pod: kube.Object | None) -> None:
        self._reading.forget(key, pod)
        self._effects.forget(key)
