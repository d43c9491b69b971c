"""What an object was asked to take, until it is answered: each request gets an answer, whatever it does to the object."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from perdure.api.reasons import ConditionReason
from perdure.controller.errors import may_pass
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.runtime.requests import payload_of


class Identified(Protocol):
    """A request; it is known by its ID to whoever has asked."""

    @property
    def request_id(self) -> str:
        """Its ID."""
        ...


Request = TypeVar("Request", bound=Identified)


@dataclass(frozen=True, slots=True)
class Asked(Generic[Request]):
    """A request, and who wants to know what becomes of it."""

    request: Request
    then: Callable[[Answer], None]


class Inbox(Generic[Request]):
    """The requests to one object that are not answered yet, in order."""

    def __init__(self, whose: str) -> None:
        """`whose`: the object in messages, such as ``the run``."""
        self._whose = whose
        self._asked: list[Asked[Request]] = []
        self.one_by_one = False
        """Whether requests are taken one at a time: a pass has failed with several, and it is to be found which it was."""

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[Asked[Request]]:
        return iter(self._asked)

    def put(self, request: Request, then: Callable[[Answer], None]) -> None:
        """Add a request; `then` is called with its answer."""
        self._asked.append(Asked(request, then))

    def withdraw(self, request_id: str) -> list[Asked[Request]]:
        """Drop a request, and return it: whoever has asked does not want it any more."""
        withdrawn = [each for each in self._asked if each.request.request_id == request_id]
        self._asked = [each for each in self._asked if each not in withdrawn]
        return withdrawn

    def has(self, *kinds: type[Any]) -> bool:
        """Whether there is a request of one of those kinds."""
        return any(isinstance(each.request, kinds) for each in self._asked)

    def next(self) -> list[Asked[Request]]:
        """Those that the next pass takes."""
        return self._asked[: 1 if self.one_by_one else None]

    def taken(self, asked: Sequence[Asked[Request]]) -> None:
        """A pass has recorded what it took."""
        self.one_by_one &= bool(self._asked[len(asked) :])

    def answer(
        self,
        asked: Sequence[Asked[Request]],
        answers: Mapping[str, Answer],
        told: Callable[[Request, Answer], Answer] = lambda _, answer: answer,
    ) -> None:
        """Give answers.

        Args:
            asked: The requests that were taken.
            answers: By request ID; a request without one waits on.
            told: How an answer is told to who has asked.
        """
        for each in asked:
            answer = answers.get(each.request.request_id)
            if answer is not None:
                self._give(each, told(each.request, answer))

    def blamed(self, asked: Sequence[Asked[Request]], error: Exception) -> bool:
        """Whether a pass failed for a request that cannot be taken: nothing that is asked keeps the object from continuing.

        Of several that were asked at once, each is taken by itself then; one that fails by itself is refused.
        """
        if not asked or may_pass(error):
            return False
        self.one_by_one = len(asked) > 1
        if not self.one_by_one and asked[0] in self._asked:
            log = structlog.get_logger("perdure.inbox")
            log.warning("A request cannot be taken", request=type(asked[0].request).__name__, exc_info=error)
            self.refuse(asked[0], ConditionReason.INVALID_INPUT, f"{self._whose} cannot take this: {error}")
        return True

    def refuse_all(self, reason: ConditionReason, message: str) -> None:
        """Nobody gets what was asked for."""
        for each in list(self._asked):
            self.refuse(each, reason, message)

    def refuse(self, asked: Asked[Request], reason: ConditionReason, message: str) -> None:
        """Answer that a request is not done."""
        self._give(asked, Answer(ok=False, reason=reason.value, message=message))

    def _give(self, asked: Asked[Request], answer: Answer) -> None:
        if asked in self._asked:
            self._asked.remove(asked)
            asked.then(answer)


def carriers(asked: Sequence[Asked[inputs.Request]]) -> list[Asked[inputs.Request]]:
    """The requests to a run that carry a payload."""
    return [each for each in asked if payload_of(each.request) is not None]
