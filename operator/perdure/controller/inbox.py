"""What one run was asked to take, until it is answered: each request gets an answer, whatever it does to the run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import structlog

from perdure.api.reasons import ConditionReason
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.step import Transition
from perdure.kube import client as api
from perdure.runtime.requests import payload_of


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and who wants to know what becomes of it."""

    request: inputs.Request
    then: Callable[[Answer], None]


class Inbox:
    """The requests to one run that are not answered yet, in order."""

    def __init__(self) -> None:
        self._asked: list[Asked] = []
        self.one_by_one = False
        """Whether requests are taken one at a time: a pass has failed with several, and it is to be found which it was."""

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[Asked]:
        return iter(self._asked)

    def put(self, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Add a request; `then` is called with its answer."""
        self._asked.append(Asked(request, then))

    def withdraw(self, request_id: str) -> None:
        """Drop a request without an answer: whoever has asked does not want it any more."""
        self._asked = [each for each in self._asked if each.request.request_id != request_id]

    def has(self, *kinds: type[inputs.Request]) -> bool:
        """Whether there is a request of one of those kinds."""
        return any(isinstance(each.request, kinds) for each in self._asked)

    def next(self) -> list[Asked]:
        """Those that the next pass takes."""
        return self._asked[: 1 if self.one_by_one else None]

    def taken(self, asked: Sequence[Asked]) -> None:
        """A pass has recorded what it took."""
        self.one_by_one &= bool(self._asked[len(asked) :])

    def answer(
        self, asked: Sequence[Asked], transition: Transition, told: Callable[[inputs.Request, Answer], Answer]
    ) -> None:
        """Give the answers that a transition has; `told` is how they are told to who has asked."""
        for each in asked:
            answer = transition.answers.get(each.request.request_id)
            if answer is not None:
                self._give(each, told(each.request, answer))

    def blamed(self, asked: Sequence[Asked], error: Exception) -> bool:
        """Whether a pass failed for a request that the run cannot take: nothing that is asked keeps the run from continuing.

        Of several that were asked at once, each is taken by itself then; one that fails by itself is refused.
        """
        if isinstance(error, (api.ApiError, *api.TRANSIENT)) and not isinstance(error, api.InvalidError):
            return False
        if not asked:
            return False
        self.one_by_one = len(asked) > 1
        if not self.one_by_one and asked[0] in self._asked:
            log = structlog.get_logger("perdure.run")
            log.warning("A request cannot be taken", request=type(asked[0].request).__name__, exc_info=error)
            self._refuse(asked[0], ConditionReason.INVALID_INPUT, f"the run cannot take this: {error}")
        return True

    def refuse_last(self, asked: Sequence[Asked]) -> None:
        """Refuse the last request that carries a payload: the status of the run has no room for it."""
        message = "the status of the run has no room for it: keep it elsewhere, and hand on where it is"
        self._refuse(carriers(asked)[-1], ConditionReason.PAYLOAD_TOO_LARGE, message)

    def refuse_all(self, reason: ConditionReason, message: str) -> None:
        """Nobody gets what was asked for."""
        for each in list(self._asked):
            self._refuse(each, reason, message)

    def _refuse(self, asked: Asked, reason: ConditionReason, message: str) -> None:
        self._give(asked, Answer(ok=False, reason=reason.value, message=message))

    def _give(self, asked: Asked, answer: Answer) -> None:
        if asked in self._asked:
            self._asked.remove(asked)
            asked.then(answer)


def carriers(asked: Sequence[Asked]) -> list[Asked]:
    """The requests that carry a payload."""
    return [each for each in asked if payload_of(each.request) is not None]
