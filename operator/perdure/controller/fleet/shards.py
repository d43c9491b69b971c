"""The shards that this process owns: all, or those that a fleet assigns to it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol


class Shards(Protocol):
    """The shards of this process. The name of an object is the workflow ID for a run."""

    @property
    def active(self) -> bool:
        """Whether this process may decide anything now."""
        ...

    def holds(self, namespace: str, name: str) -> bool:
        """Whether this process keeps the pending work of an object in memory: it owns the object, or is about to."""
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

    async def assigned(self) -> None:
        """Wait until it is known what this process holds: it owns nothing yet."""
        ...

    def prepared(self) -> None:
        """Note that this process has read what it holds: from now on it can own that."""
        ...

    async def run(self) -> None:
        """Keep the answers up to date, until cancelled."""
        ...

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """Stop deciding, wait for what is in progress (`drains`), and leave everything to others."""
        ...


class AllShards:
    """The shards of a process without a fleet: all of them."""

    active = True
    others: Final[Mapping[str, str]] = {}

    def holds(self, namespace: str, name: str) -> bool:
        """Return True: this process holds everything."""
        del namespace, name
        return True

    def owns(self, namespace: str, name: str) -> bool:
        """It owns everything."""
        del namespace, name
        return True

    def owner(self, shard: int) -> str:
        """Return the empty name: this process owns everything."""
        del shard
        return ""

    def owns_shard(self, shard: int) -> bool:
        """It owns everything."""
        del shard
        return True

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Do nothing: the answers never change."""

    async def assigned(self) -> None:
        """Do nothing: this process holds everything."""

    def prepared(self) -> None:
        """Do nothing: nobody else could own anything in the meantime."""

    async def run(self) -> None:
        """Do nothing until cancelled: the answers never change."""

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """Do nothing: the next process repeats work in progress."""
