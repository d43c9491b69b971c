"""The reconcile loop of one object: conflicts, objects that are full, unexpected errors, and the inbox of pending requests.

Each request gets an answer, even if it makes the reconciliation fail.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from perdure.api.reasons import ConditionReason
from perdure.controller.errors import is_transient
from perdure.controller.reconcile.record import Record
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics

_FIRST_CONFLICT_PAUSE: Final = timedelta(milliseconds=5)


class Reconciled(Protocol):
    """An object that the reconciler processes."""

    async def reconcile(self, time: datetime) -> datetime | None:
        """Observe, decide, commit, and apply the effects. Return when to call again, or None to wait for an event.

        Raises:
            Exception: The reconciliation failed.
        """
        ...

    async def finalize(self) -> None:
        """Release the objects of a deleted object, and answer its pending requests.

        Kinds without a reconcile loop release them in the callback of their informer.
        """
        ...

    async def read_again(self) -> None:
        """Read the object, because another client has written it."""
        ...

    def full(self, error: kube.TooLargeError) -> None:
        """Report that the spec leaves no room for the status, so that a retry would fail too."""
        ...

    async def broken(self, error: Exception) -> None:
        """Report that the operator cannot process the object, and answer its pending requests."""
        ...


class Reconciler:
    """Reconciles one object. `advance` is called by one task at a time."""

    def __init__(self, one: Reconciled, record: Record) -> None:
        """`record` has the last known state of the object."""
        self._one = one
        self._record = record
        self._conflicts = 0

    async def advance(self) -> datetime | None:
        """Reconcile the object once. Return when to call again, or None to wait for an event.

        Raises:
            NotYetError: A definition that it needs is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if self._is_deleted():
            await self._one.finalize()
            return None
        try:
            # An earlier commit may be outdated, because this process may have been suspended.
            self._record.unconfirm()
            if self._record.outdated:
                await self._one.read_again()
            wake = None if self._is_deleted() else await self._one.reconcile(now())
        except kube.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            self._conflicts += 1
            await self._one.read_again()
            # Immediately the first time; with growing delays if another client keeps writing.
            return now() + _FIRST_CONFLICT_PAUSE * ((1 << min(self._conflicts, 10)) - 2)
        except kube.TooLargeError as error:
            self._one.full(error)
            return None
        except Exception as error:
            if not is_transient(error):
                await self._one.broken(error)
            raise
        self._conflicts = 0
        return now() if self._is_deleted() else wake

    def _is_deleted(self) -> bool:
        return self._record.deleted


class Identified(Protocol):
    """A request with an ID."""

    @property
    def request_id(self) -> str:
        """The ID of the request."""
        ...


Request = TypeVar("Request", bound=Identified)


@dataclass(frozen=True, slots=True)
class PendingRequest(Generic[Request]):
    """A request, and the callback for its answer."""

    request: Request
    then: Callable[[Answer], None]


class Inbox(Generic[Request]):
    """The pending requests of one object, in order."""

    def __init__(self, owner: str) -> None:
        """`owner` names the object in messages, such as ``the run``."""
        self._owner = owner
        self._pending: list[PendingRequest[Request]] = []
        self.one_by_one = False
        """Whether to process requests one at a time, because one of several made a reconciliation fail."""

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[PendingRequest[Request]]:
        return iter(self._pending)

    def put(self, request: Request, then: Callable[[Answer], None]) -> None:
        """Add a request; `then` is called with its answer."""
        self._pending.append(PendingRequest(request, then))

    def withdraw(self, request_id: str) -> list[PendingRequest[Request]]:
        """Remove a request that its caller has withdrawn, and return it."""
        withdrawn = [each for each in self._pending if each.request.request_id == request_id]
        self._pending = [each for each in self._pending if each not in withdrawn]
        return withdrawn

    def drop(self, pending: PendingRequest[Request]) -> None:
        """Remove a request whose caller does not wait for an answer."""
        if pending in self._pending:
            self._pending.remove(pending)

    def has(self, *kinds: type[Any]) -> bool:
        """Whether a request of one of these types is pending."""
        return any(isinstance(each.request, kinds) for each in self._pending)

    def next(self) -> list[PendingRequest[Request]]:
        """The requests that the next reconciliation processes."""
        return self._pending[: 1 if self.one_by_one else None]

    def mark_recorded(self, recorded: Sequence[PendingRequest[Request]]) -> None:
        """Process all requests together again, if no more are pending than these, which were recorded. `answer` removes them."""
        self.one_by_one &= bool(self._pending[len(recorded) :])

    def answer(
        self,
        processed: Sequence[PendingRequest[Request]],
        answers: Mapping[str, Answer],
        convert: Callable[[Request, Answer], Answer] = lambda _, answer: answer,
    ) -> None:
        """Answer requests.

        Args:
            processed: The requests that were processed.
            answers: The answers by request ID. A request without an answer stays pending.
            convert: Converts an answer for the caller.
        """
        for each in processed:
            answer = answers.get(each.request.request_id)
            if answer is not None:
                self._give(each, convert(each.request, answer))

    def refuse_failing(self, processed: Sequence[PendingRequest[Request]], error: Exception) -> bool:
        """Return whether a request made a reconciliation fail. No request may block the object.

        If there were several, the next reconciliations process them one at a time, and a request that fails alone is refused.
        """
        if not processed or is_transient(error):
            return False
        self.one_by_one = len(processed) > 1
        if not self.one_by_one and processed[0] in self._pending:
            log = structlog.get_logger("perdure.inbox")
            log.warning("Could not process a request", request=type(processed[0].request).__name__, exc_info=error)
            self.refuse(
                processed[0], ConditionReason.INVALID_INPUT, f"{self._owner} cannot process the request: {error}"
            )
        return True

    def refuse_all(self, reason: ConditionReason, message: str) -> None:
        """Refuse all pending requests."""
        for each in list(self._pending):
            self.refuse(each, reason, message)

    def refuse(self, pending: PendingRequest[Request], reason: ConditionReason, message: str) -> None:
        """Refuse a request."""
        self._give(pending, Answer(ok=False, reason=reason.value, message=message))

    def _give(self, pending: PendingRequest[Request], answer: Answer) -> None:
        if pending in self._pending:
            self._pending.remove(pending)
            pending.then(answer)
