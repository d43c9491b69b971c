"""The context of an RPC for its handler."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

LONGEST_POLL = 60.0
"""Maximum duration of a poll, in seconds; SDKs give up after 70."""
LONGEST_WAIT = 20.0
"""Maximum duration of a client's long poll, in seconds; then the client polls again."""
_MARGIN = 1.0


async def _unguarded() -> None:
    """Do nothing, because there is no authentication."""


async def _all_of(names: Sequence[str]) -> Sequence[str]:
    """Return all namespaces, because there is no authentication."""
    return names


@dataclass(frozen=True, slots=True)
class CallContext:
    """The caller of an RPC."""

    seconds_left: float | None
    """The time until the caller gives up; None: never."""
    metadata: Sequence[tuple[str, str | bytes]] = ()
    principal: str = ""
    """The user that the API server authenticated; empty without authentication."""
    recheck: Callable[[], Awaitable[None]] = _unguarded
    """Rejects a caller whose token or rights were revoked since the call began; sends a request at most every 30 s."""
    member: str = ""
    """The member of the fleet that has forwarded the call; empty if the caller is connected to this one."""
    visible: Callable[[Sequence[str]], Awaitable[Sequence[str]]] = _all_of
    """Returns the namespaces that the caller may describe, out of the given ones."""

    def header(self, name: str) -> str:
        """A header of the call; empty if the caller has not sent it."""
        return next((value for key, value in self.metadata if key == name and isinstance(value, str)), "")

    def within(self, longest: float) -> float:
        """Limit a duration so that the response is sent before the caller's deadline."""
        if self.seconds_left is None:
            return longest
        return min(longest, max(self.seconds_left - _MARGIN, self.seconds_left * 0.5))
