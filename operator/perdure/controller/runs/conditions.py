"""The conditions of a run other than its progress: why it does not start, why it waits, and why it cannot be processed."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NoReturn

from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.controller.errors import NotYetError
from perdure.controller.peers import Peers
from perdure.controller.reconcile.newer_states import NewerStateReports
from perdure.controller.reconcile.record import Status
from perdure.controller.runs.events import RunEventRecorder
from perdure.controller.runs.status import RunFacts, compose, is_stuck, message_of, repaired, too_large, waiting
from perdure.controller.runs.store import RunStore
from perdure.engine.state import RunState
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime import status_texts
from perdure.runtime.attempts import RunRef

_COMPILING_QUIETLY: Final = timedelta(seconds=2)
"""How long a definition may compile before the run reports that it waits."""


class RunConditions:
    """Writes the conditions of one run that are not part of a commit."""

    def __init__(
        self,
        run: RunRef,
        store: RunStore,
        peers: Peers,
        event_recorder: RunEventRecorder,
        facts: Callable[[datetime, RunState | None], RunFacts],
    ) -> None:
        """Create it.

        Args:
            run: The run.
            store: The stored record of the run.
            peers: The other runs, which are notified of each write.
            event_recorder: Records Events.
            facts: Collects the other facts of the status at a time; the state is None before the run has started.
        """
        self._run = run
        self._store = store
        self._peers = peers
        self._event_recorder = event_recorder
        self._facts = facts
        self._compiling_since: datetime | None = None
        self._newer = NewerStateReports("WorkflowRun", run.namespace)

    async def wait(self, reason: ConditionReason, message: str, now: datetime) -> None:
        """Record once why the run does not start or continue.

        Raises:
            ConflictError, TooLargeError: As for `Record.write`.
        """
        record = self._store.record
        before = record.status
        status = waiting(before, self._facts(now, None), reason, message, now)
        if status != before:
            await record.write(status)
            self._peers.publish(record.latest())
        if status["conditions"] != before.get("conditions"):
            self._event_recorder.warn(EventReason(reason.value), message, "Start")
            if reason is ConditionReason.STATE_DAMAGED:
                metrics.DAMAGED.labels(self._run.namespace, "WorkflowRun").inc()

    async def report_newer(self, why: str, now: datetime) -> datetime | None:
        """Report that a newer version has written the run. Everything else about it stays as it is, and its requests pending.

        Args:
            why: What this version cannot read.
            now: The time.

        Returns:
            When to call again, because the newer operator has removed the report; None to wait for an event.

        Raises:
            ConflictError: As for `Record.write`.
        """
        verdicts: dict[ConditionType, bool | None] = {ConditionType.NEWER_STATE: True}
        if self._store.record.status.get("completionTime"):  # its outcome stays visible, and nothing is left to do
            if self._newer.has_reported:
                return None
        else:
            verdicts[ConditionType.SUCCEEDED] = None
        return await self._newer.report(self._store.record, why, verdicts, self._event_recorder.warn, now)

    async def wait_for_definition(self, error: NotYetError, now: datetime) -> NoReturn:
        """Wait until the definition is compiled, and report this if it takes a while.

        Raises:
            NotYetError: Always.
        """
        since = self._compiling_since = self._compiling_since or now
        if now - since < _COMPILING_QUIETLY:
            raise NotYetError(error.awaited, until=since + _COMPILING_QUIETLY) from error
        message = "the definition waits to be compiled; a namespace compiles one at a time, and large ones take seconds"
        await self.wait(ConditionReason.COMPILING, message, now)
        raise error

    async def recovered(self, state: RunState, now: datetime) -> None:
        """Remove the condition that the run cannot be processed, because it continues."""
        status = self._store.record.status
        if self._store.restored or is_stuck(status):
            await self._store.write(repaired(status, self._facts(now, state), state, now))

    async def report_blocked(self, state: RunState, now: datetime, *, offers: bool) -> None:
        """Report why the run waits, although there is nothing else to record.

        It waits for a polling worker, or for an object that the API server rejects.

        Args:
            state: The committed state.
            now: The time.
            offers: Whether something waits for a worker. The next commit records that a worker polls.
        """
        before, facts = self._store.record.status, self._facts(now, state)
        reported = _hindrances(before)
        if facts.refused == reported[1] and (facts.unserved == reported[0] or not offers):
            return
        status = compose(before, facts, state, (), now)
        if _hindrances(status) == reported or too_large(status_texts.size_of(status)) is not None:
            return
        with suppress(kube.TooLargeError):  # it is not necessary to report this if there is no room
            await self._store.write(status)
            self._peers.publish(self._store.record.latest())
            self.report_missing_workers(before)

    def report_missing_workers(self, before: Status) -> None:
        """Record an Event that no worker polls for waiting work, once the condition reports it.

        Args:
            before: The status before the condition was recorded.
        """
        lacking = lacks_worker(self._store.record.status)
        if lacking and not lacks_worker(before):
            self._event_recorder.warn(EventReason.NO_WORKER, lacking, "Decide")


def lacks_worker(status: Status) -> str:
    """The part of a status about work that no worker polls for; empty if there is none."""
    return message_of(status, ConditionReason.NO_WORKER)


def _hindrances(status: Status) -> tuple[str, str]:
    """The parts of a status about missing workers and rejected objects."""
    return lacks_worker(status), message_of(status, ConditionReason.CREATE_REFUSED)
