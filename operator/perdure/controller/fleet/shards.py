"""What this process owns: everything, or the shards that a fleet has given it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol


class Shards(Protocol):
    """The shards of this process. The name of an object is the workflow ID for a run."""

    @property
    def active(self) -> bool:
        """Whether this process may decide anything now."""
        ...

    def holds(self, namespace: str, name: str) -> bool:
        """Whether this process keeps in memory what is left to do for an object: it decides for it, or is about to."""
        ...

    def owns(self, namespace: str, name: str) -> bool:
        """Whether this process may decide for an object now."""
        ...

    def owner(self, shard: int) -> str:
        """The member that decides for a shard, as far as this process knows; empty for this process."""
        ...

    def owns_shard(self, shard: int) -> bool:
        """Whether this process may decide for the objects of a shard now."""
        ...

    @property
    def others(self) -> Mapping[str, str]:
        """The addresses of the other members, by name."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Have a function called whenever the answers have changed."""
        ...

    async def joined(self) -> None:
        """Wait until the answers are known."""
        ...

    async def run(self) -> None:
        """Keep the answers up to date, until cancelled."""
        ...

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """Stop deciding, wait for what is in progress (`drains`), and leave everything to others."""
        ...


class AllShards:
    """A process that shares with nobody."""

    active = True
    others: Final[Mapping[str, str]] = {}

    def holds(self, namespace: str, name: str) -> bool:
        """It holds everything."""
        del namespace, name
        return True

    def owns(self, namespace: str, name: str) -> bool:
        """It owns everything."""
        del namespace, name
        return True

    def owner(self, shard: int) -> str:
        """It is this process."""
        del shard
        return ""

    def owns_shard(self, shard: int) -> bool:
        """It owns everything."""
        del shard
        return True

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Nothing ever changes."""

    async def joined(self) -> None:
        """Everything is known."""

    async def run(self) -> None:
        """There is nothing to keep up to date."""

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """The next process repeats what is in progress."""
