"""What a run cannot create for now, because of a quota, a policy, or a newer version. Each is retried with growing delays."""

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
"""Length to which a message of the API server is truncated, in characters."""


@dataclass(slots=True)
class _Refusal:
    tries: int
    until: datetime
    message: str


class Refusals(Generic[Key]):
    """The objects that one run cannot create for now. They do not delay the rest of the run."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        """Create it without objects.

        Args:
            notify: Called once for each object with the reason why it cannot be created.
        """
        self._notify = notify
        self._refused: dict[Key, _Refusal] = {}

    def note(self, key: Key, message: str, now: datetime) -> None:
        """Record that an object cannot be created.

        Args:
            key: The key of the object.
            message: The reason.
            now: The time.
        """
        tries = self._refused[key].tries if key in self._refused else 0
        self._refused[key] = _Refusal(tries + 1, now + pause(tries), message)
        if not tries:
            self._notify(message)

    def __bool__(self) -> bool:
        """Whether any object is rejected."""
        return bool(self._refused)

    def clear(self, key: Key) -> None:
        """Remove an object that exists now."""
        self._refused.pop(key, None)

    def waits(self, key: Key, now: datetime) -> bool:
        """Whether it is too early to retry."""
        refusal = self._refused.get(key)
        return refusal is not None and now < refusal.until

    def next_try(self, wanted: AbstractSet[Key]) -> datetime | None:
        """When to retry the next of the objects; None if none of them is rejected."""
        return min((refusal.until for key, refusal in self._refused.items() if key in wanted), default=None)

    def message(self, wanted: AbstractSet[Key]) -> str:
        """Why the first rejected object cannot be created; empty if none is rejected."""
        return next((refusal.message for key, refusal in self._refused.items() if key in wanted), "")


def pause(tries: int) -> timedelta:
    """The delay before the next try, by the number of earlier tries."""
    return min(_FIRST_PAUSE * (1 << min(tries, 10)), _LONGEST_PAUSE)


def is_temporary(error: kube.ApiError) -> bool:
    """Whether the object may be accepted later, with a larger quota, another policy or a new permission."""
    return error.status == 403  # noqa: PLR2004 (Forbidden)
