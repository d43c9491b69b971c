"""Objects that the API server refuses to create for now, because of a quota or a policy. Each is retried with growing delays."""

from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from perdure.kube import client as kube

Key = TypeVar("Key", bound=Hashable)
_FIRST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(minutes=1)
LONGEST_MESSAGE = 512
"""Characters of what the API server says that are kept."""


@dataclass(slots=True)
class _Refusal:
    tries: int
    until: datetime
    message: str


class Refusals(Generic[Key]):
    """The refusals of one run. One of them delays nothing else of the run."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Begin without any.

        Args:
            tell: Told once for each object why it cannot be created.
        """
        self._tell = tell
        self._refused: dict[Key, _Refusal] = {}

    def note(self, key: Key, what: str, error: kube.ApiError, now: datetime) -> None:
        """Note that an object was refused.

        Args:
            key: Of the object.
            what: What it is, for people.
            error: What the API server said.
            now: The time.
        """
        tries = self._refused[key].tries if key in self._refused else 0
        message = f"the API server refuses to create {what}: {error.message[:LONGEST_MESSAGE]}"
        self._refused[key] = _Refusal(tries + 1, now + pause(tries), message)
        if not tries:
            self._tell(message)

    def __bool__(self) -> bool:
        """Whether anything is refused."""
        return bool(self._refused)

    def clear(self, key: Key) -> None:
        """Forget a refusal: the object exists."""
        self._refused.pop(key, None)

    def waits(self, key: Key, now: datetime) -> bool:
        """Whether it is too early to try again."""
        refusal = self._refused.get(key)
        return refusal is not None and now < refusal.until

    def next_try(self, wanted: AbstractSet[Key]) -> datetime | None:
        """When to retry the next of the objects; None if none of them is refused."""
        return min((refusal.until for key, refusal in self._refused.items() if key in wanted), default=None)

    def message(self, wanted: AbstractSet[Key]) -> str:
        """Why the first of the refused objects cannot be created; empty if none of them is refused."""
        return next((refusal.message for key, refusal in self._refused.items() if key in wanted), "")


def pause(tries: int) -> timedelta:
    """How long to wait before the next try, after so many earlier ones."""
    return min(_FIRST_PAUSE * (1 << min(tries, 10)), _LONGEST_PAUSE)


def is_for_now(error: kube.ApiError) -> bool:
    """Whether the same object may be accepted later: with a larger quota, another policy or a new right."""
    return error.status == 403  # noqa: PLR2004 (Forbidden)
