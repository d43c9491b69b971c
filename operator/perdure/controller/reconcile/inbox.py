"""The pending requests of an object. Each request gets an answer, even if it makes the reconciliation fail."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from perdure.api.reasons import ConditionReason
from perdure.controller.errors import is_transient
from perdure.engine.inputs import Answer


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
