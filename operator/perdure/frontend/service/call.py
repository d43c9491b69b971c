"""One RPC as its handler sees it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

LONGEST_POLL = 60.0
"""Seconds that a worker waits for something to do; SDKs give up after 70."""
LONGEST_WAIT = 20.0
"""Seconds that a client waits for something to happen; then it asks again."""
_MARGIN = 1.0


async def _unguarded() -> None:
    """Nothing to check without authentication."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What is known of the caller."""

    seconds_left: float | None
    """Until the caller gives up; None: never."""
    metadata: Sequence[tuple[str, str | bytes]] = ()
    principal: str = ""
    """The user, as the API server has authenticated it; empty without authentication."""
    recheck: Callable[[], Awaitable[None]] = _unguarded
    """Refuses a caller who has lost its token or its rights since the call began; asks the API server at most every 30 s."""
    member: str = ""
    """The member of the fleet that has forwarded the call; empty if the caller is connected to this one."""

    def header(self, name: str) -> str:
        """A header of the call; empty if the caller has sent none."""
        return next((value for key, value in self.metadata if key == name and isinstance(value, str)), "")

    def within(self, longest: float) -> float:
        """How long to wait at most, so that the answer comes before the caller gives up."""
        if self.seconds_left is None:
            return longest
        return min(longest, max(self.seconds_left - _MARGIN, self.seconds_left * 0.5))
