"""Commit the transitions of a run: one write of the status, then Events, conditions and metrics that report it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import structlog

from perdure.api.reasons import ConditionReason, EventReason
from perdure.controller.peers import Peers
from perdure.controller.reconcile.inbox import Inbox, PendingRequest, carriers
from perdure.controller.runs.kubernetes_events import RunEventRecorder
from perdure.controller.runs.run_conditions import RunConditions
from perdure.controller.runs.run_facts import CurrentFacts
from perdure.controller.runs.run_record import NoRoomError, Origin, RunRecord
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition
from perdure.runtime.attempts import RunRef


class RunCommits:
    """Commits the transitions of one run."""

    def __init__(
        self,
        run: RunRef,
        stored: RunRecord,
        facts: CurrentFacts,
        inbox: Inbox[inputs.Request],
        *,
        peers: Peers,
        conditions: RunConditions,
        event_recorder: RunEventRecorder,
    ) -> None:
        """Create it.

        Args:
            run: The run.
            stored: The record to write.
            facts: The facts for the status, in addition to the state.
            inbox: Rejects requests that do not fit into the status.
            peers: The other runs, which are notified of each write.
            conditions: Reports missing workers.
            event_recorder: Records Events and metrics.
        """
        self._stored = stored
        self._facts = facts
        self._inbox = inbox
        self._peers = peers
        self._conditions = conditions
        self._event_recorder = event_recorder
        self._log = structlog.get_logger("perdure.run").bind(namespace=run.namespace, run=run.name)

    async def commit(
        self,
        state: RunState | None,
        transition: RunTransition,
        now: datetime,
        *,
        origin: Origin | None = None,
        requests: Sequence[PendingRequest[inputs.Request]] = (),
    ) -> RunTransition:
        """Record a transition.

        Args:
            state: The state before it; None for a run that starts.
            transition: The result of the engine's step.
            now: The time.
            origin: The history that the run starts with, if it continues that of another run.
            requests: The requests in the transition.

        Returns:
            The recorded transition, or the termination of the run if the status would become too large.

        Raises:
            ConflictError: Another client has written.
            NoRoomError: The requests do not fit, and nothing was recorded. Several requests are processed one at a time from now
                on, because the history of each commit is sealed before the next one; a single request was refused.
        """
        record = self._stored.record
        before = origin.status if origin else record.status
        facts, heavy = partial(self._facts.collect, now), carriers(requests)
        try:
            committed = await self._stored.commit(
                state, transition, now, self._facts.decider, facts, origin, may_end=len(requests) <= 1 and not heavy
            )
        except NoRoomError:
            if len(requests) > 1:
                self._inbox.one_by_one = True
                raise
            message = (
                "The status of the run has no room for this payload. Store it elsewhere and pass a reference to it"
            )
            self._inbox.refuse(heavy[-1], ConditionReason.PAYLOAD_TOO_LARGE, message)
            raise
        transition = committed.transition
        if committed.too_large:
            answers = {each.request.request_id: _terminated(each.request, committed.too_large) for each in requests}
            transition = replace(transition, answers=answers)
        self._peers.noted(record.latest())
        try:
            if committed.truncated:
                self._event_recorder.warn(EventReason.HISTORY_TRUNCATED, committed.truncated, "Seal")
            self._conditions.report_missing_workers(before)
            self._event_recorder.committed(
                state, transition, record.status["progress"], self._facts.deciding.definition
            )
        except Exception:  # noqa: BLE001 - recorded events stand, even if they cannot be announced
            self._log.exception("Could not record Events for a commit")
        return transition


def _terminated(request: inputs.Request, reason: str) -> Answer:
    """The answer to a request that made the run too large, so that the run was terminated."""
    if isinstance(request, inputs.TerminateRequested):
        return Answer(ok=True)
    return Answer(ok=False, reason=ConditionReason.PAYLOAD_TOO_LARGE.value, message=reason)
