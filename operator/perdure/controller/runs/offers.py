"""What a run offers to workers: its first workflow task, and its activities. Both wait for the WorkflowLimits that select them.

A workflow as code has begun when it waits: clients see it, and can signal or end it. Its limits are those of the run, and each
activity has its own. They are claimed before each offer, because the status of a limit has its holders, and are released when the
run or the activity has ended (`controller.limit_releases`).
"""

from datetime import datetime

from perdure.controller.errors import NotReadyError
from perdure.controller.pods.attempt_pods import PodKey
from perdure.controller.reconcile.record import Record
from perdure.controller.runs.attempts.admission import Admission, Blocked
from perdure.controller.runs.attempts.attempts import RunAttempts
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.runs.limits import RunLimits
from perdure.controller.services import Services
from perdure.controller.workflows.definitions import read_spec
from perdure.engine.inputs import AttemptWaiting
from perdure.engine.state import RunState


class WorkerOffers:
    """What one run may offer to workers."""

    def __init__(self, services: Services, context: EffectContext, record: Record, attempts: RunAttempts) -> None:
        """Create it without anything that may be offered.

        Args:
            services: The shared services.
            context: The run, and the other runs.
            record: The stored record of the run.
            attempts: The attempts of the run in pods, whose definitions limits can name.
        """
        run = context.run
        self._limits = RunLimits(services, context, record)
        self._record = record
        self._blocked = Blocked(run, lambda _note, _pod: None)
        self._admission = Admission(services, run, record, attempts.held, self._blocked, attempts.definitions)
        self._copied = 0 if context.reset is None else context.reset.base.event_id
        """The last event of the history that a reset has copied from another run."""
        self._until: datetime | None = None
        self.admitted: frozenset[int] = frozenset()
        """What has its limits, by the ID of the event that scheduled it. Nothing else may be offered."""
        self.turn: str = ""
        """Why the first workflow task waits; empty if it does not."""

    async def admit(self, state: RunState, now: datetime) -> None:
        """Claim the limits of everything that could be offered now.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        admitted = [
            activity.scheduled_event_id
            for activity in list(state.offered_activities(now))
            if await self._admission.acquire_limits(activity, now)
        ]
        task, self.turn, self._until = state.offered_task(), "", None
        if task is not None:
            try:
                if state.code is not None and state.code.previous_started_event_id <= self._copied:
                    await self._limits.acquire(None, None, read_spec(self._record.object["spec"]), now)
                admitted.append(task.scheduled_event_id)
            except NotReadyError as error:
                self.turn, self._until = error.message, error.until
        self.admitted = frozenset(admitted)

    def waiting(self, state: RunState) -> list[AttemptWaiting]:
        """Why activities wait, unless the state shows it."""
        found = []
        for activity in state.open_activities():
            reason = self._blocked.reason(PodKey.of(activity))
            if activity.scheduled_event_id in self.admitted or reason in {None, activity.waiting_reason}:
                continue
            waiting = AttemptWaiting(
                scheduled_event_id=activity.scheduled_event_id,
                attempt=activity.attempt,
                reason=reason or "",
                queued=True,
                commit_now=True,
            )
            found.append(waiting)
        return found

    def next_try(self, state: RunState, now: datetime) -> datetime | None:
        """When to claim limits again without an event."""
        if self.waiting(state):
            return now
        times = (*self._blocked.next_tries(state), self._until)
        return min((time for time in times if time is not None and time > now), default=None)
