"""Updates that wait for a worker, and their callers. Until a worker accepts an update, it exists only in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from google.protobuf.any_pb2 import Any as AnyMessage
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Outcome, Request

MAX_IN_FLIGHT = 10
MAX_TOTAL = 2_000


class AbortedError(Exception):
    """The workflow closed before a worker accepted the update."""


@dataclass(slots=True)
class Update:
    """One update."""

    update_id: str
    request: Request
    principal: str = ""
    """The user that requested it, authenticated by the API server."""
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | None = None
    aborted: bool = False
    rejected: bool = False
    sent: bool = False
    """Whether it was sent to a worker, which may have lost it."""
    callers: int = 0
    """The number of calls that wait for it."""

    def accept(self) -> None:
        """Record that a worker has accepted it."""
        self.accepted.set()

    def end(self, outcome: Outcome) -> None:
        """Set its outcome, even if the task that reports it closes the workflow."""
        self.outcome, self.aborted = outcome, False
        self.accepted.set()
        self.ended.set()

    def reject(self, outcome: Outcome) -> None:
        """Process its rejection by a worker, which is not recorded."""
        self.rejected = True
        self.end(outcome)

    def abort(self) -> None:
        """Abort it because the workflow has closed."""
        self.aborted = True
        self.accepted.set()
        self.ended.set()

    def message(self, sequencing_event_id: int) -> Message:
        """The message for a worker."""
        body = AnyMessage()
        body.Pack(self.request)
        return Message(
            id=f"{self.update_id}/request",
            protocol_instance_id=self.update_id,
            event_id=sequencing_event_id,
            body=body,
        )


class Updates:
    """The updates of all runs, by run ID and update ID."""

    def __init__(self) -> None:
        self._of_run: dict[str, dict[str, Update]] = {}

    def get(self, run_id: str, update_id: str) -> Update | None:
        """An update that callers wait for."""
        return self._of_run.get(run_id, {}).get(update_id)

    def admit(self, run_id: str, update_id: str, request: Request, principal: str = "") -> Update:
        """Add an update, or return the existing one."""
        return self._of_run.setdefault(run_id, {}).setdefault(update_id, Update(update_id, request, principal))

    @contextmanager
    def awaited(self, run_id: str, update: Update) -> Iterator[None]:
        """Keep an update within the block. Unless a worker accepts it, the last waiting call removes it.

        Otherwise clients could fill the memory with updates for workflows without a worker.
        """
        update.callers += 1
        try:
            yield
        finally:
            update.callers -= 1
            if not update.callers and not update.accepted.is_set():
                self.forget(run_id, update.update_id)

    def in_flight(self, run_id: str) -> int:
        """The number of updates of a run without an outcome."""
        return sum(not update.ended.is_set() for update in self._of_run.get(run_id, {}).values())

    def undecided(self, run_id: str) -> list[Update]:
        """The updates that no worker has accepted or rejected yet."""
        return [update for update in self._of_run.get(run_id, {}).values() if not update.accepted.is_set()]

    def open(self, run_id: str) -> list[Update]:
        """The updates of a run without an outcome."""
        return [update for update in self._of_run.get(run_id, {}).values() if not update.ended.is_set()]

    def abort(self, run_id: str) -> None:
        """Abort the updates of a deleted run."""
        for update in self._of_run.pop(run_id, {}).values():
            if not update.ended.is_set():
                update.abort()

    def leave(self, run_id: str) -> None:
        """End the waiting calls of a run that another operator owns now; they are sent there."""
        self._of_run.pop(run_id, None)

    def forget(self, run_id: str, update_id: str) -> None:
        """Drop an update whose outcome is recorded, or that no call waits for."""
        known = self._of_run.get(run_id, {})
        known.pop(update_id, None)
        if not known:
            self._of_run.pop(run_id, None)
