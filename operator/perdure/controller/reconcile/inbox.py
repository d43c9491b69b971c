"""The pending requests of an object. Each request gets an answer, even if it makes the reconciliation fail."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from perdure.api.reasons import ConditionReason
from perdure.controller.errors import may_pass
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.runtime.operation_requests import payload_of


class Identified(Protocol):
    """A request with an ID."""

    @property
    def request_id(self) -> str:
        """The ID of the request."""
        ...


Request = TypeVar("Request", bound=Identified)


@dataclass(frozen=True, slots=True)
class Asked(Generic[Request]):
    """A request, and the callback for its answer."""

    request: Request
    then: Callable[[Answer], None]


class Inbox(Generic[Request]):
    """The pending requests of one object, in order."""

    def __init__(self, owner: str) -> None:
        """`owner` names the object in messages, such as ``the run``."""
        self._owner = owner
        self._asked: list[Asked[Request]] = []
        self.one_by_one = False
        """Whether to process requests one at a time, because one of several made a reconciliation fail."""

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[Asked[Request]]:
        return iter(self._asked)

    def put(self, request: Request, then: Callable[[Answer], None]) -> None:
        """Add a request; `then` is called with its answer."""
        self._asked.append(Asked(request, then))

    def withdraw(self, request_id: str) -> list[Asked[Request]]:
        """Remove a request that its caller has withdrawn, and return it."""
        withdrawn = [each for each in self._asked if each.request.request_id == request_id]
        self._asked = [each for each in self._asked if each not in withdrawn]
        return withdrawn

    def drop(self, asked: Asked[Request]) -> None:
        """Remove a request whose caller does not wait for an answer."""
        if asked in self._asked:
            self._asked.remove(asked)

    def has(self, *kinds: type[Any]) -> bool:
        """Whether a request of one of these types is pending."""
        return any(isinstance(each.request, kinds) for each in self._asked)

    def next(self) -> list[Asked[Request]]:
        """The requests that the next reconciliation processes."""
        return self._asked[: 1 if self.one_by_one else None]

    def taken(self, asked: Sequence[Asked[Request]]) -> None:
        """Remove requests that were recorded."""
        self.one_by_one &= bool(self._asked[len(asked) :])

    def answer(
        self,
        asked: Sequence[Asked[Request]],
        answers: Mapping[str, Answer],
        convert: Callable[[Request, Answer], Answer] = lambda _, answer: answer,
    ) -> None:
        """Answer requests.

        Args:
            asked: The requests that were processed.
            answers: The answers by request ID. A request without an answer stays pending.
            convert: Converts an answer for the caller.
        """
        for each in asked:
            answer = answers.get(each.request.request_id)
            if answer is not None:
                self._give(each, convert(each.request, answer))

    def refuse_failing(self, asked: Sequence[Asked[Request]], error: Exception) -> bool:
        """Return whether a request made a reconciliation fail. No request may block the object.

        If there were several, the next reconciliations process them one at a time, and a request that fails alone is refused.
        """
        if not asked or may_pass(error):
            return False
        self.one_by_one = len(asked) > 1
        if not self.one_by_one and asked[0] in self._asked:
            log = structlog.get_logger("perdure.inbox")
            log.warning("Could not process a request", request=type(asked[0].request).__name__, exc_info=error)
            self.refuse(asked[0], ConditionReason.INVALID_INPUT, f"{self._owner} cannot process the request: {error}")
        return True

    def refuse_all(self, reason: ConditionReason, message: str) -> None:
        """Refuse all pending requests."""
        for each in list(self._asked):
            self.refuse(each, reason, message)

    def refuse(self, asked: Asked[Request], reason: ConditionReason, message: str) -> None:
        """Refuse a request."""
        self._give(asked, Answer(ok=False, reason=reason.value, message=message))

    def _give(self, asked: Asked[Request], answer: Answer) -> None:
        if asked in self._asked:
            self._asked.remove(asked)
            asked.then(answer)


def carriers(asked: Sequence[Asked[inputs.Request]]) -> list[Asked[inputs.Request]]:
    """The requests with a payload."""
    return [each for each in asked if payload_of(each.request) is not None]
