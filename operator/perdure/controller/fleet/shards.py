"""The shards that this process owns: all of them, or the ones that a fleet assigns to it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol


class Shards(Protocol):
    """The shards of this process. For a run, `name` is the workflow ID."""

    @property
    def active(self) -> bool:
        """Whether this process may decide anything now."""
        ...

    def holds(self, namespace: str, name: str) -> bool:
        """Whether this process keeps the pending work of an object in memory because it owns the object or is about to."""
        ...

    def owns(self, namespace: str, name: str) -> bool:
        """Whether this process may decide for an object now."""
        ...

    def owner(self, shard: int) -> str:
        """The member that decides for a shard according to this process; empty for this process."""
        ...

    def owns_shard(self, shard: int) -> bool:
        """Whether this process may decide for the objects of a shard now."""
        ...

    @property
    def others(self) -> Mapping[str, str]:
        """The addresses of the other members, by name."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function whenever the ownership changes."""
        ...

    async def assigned(self) -> None:
        """Wait until it is known which shards this process will own. It owns none yet."""
        ...

    def prepared(self) -> None:
        """Record that this process has read the objects of its shards, so that it can own the shards."""
        ...

    async def run(self) -> None:
        """Keep the ownership up to date, until cancelled."""
        ...

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """Stop deciding, wait for work in progress (`drains`), and leave everything to others."""
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
        """Return True: this process owns everything."""
        del namespace, name
        return True

    def owner(self, shard: int) -> str:
        """Return the empty name: this process owns everything."""
        del shard
        return ""

    def owns_shard(self, shard: int) -> bool:
        """Return True: this process owns everything."""
        del shard
        return True

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Do nothing: the ownership never changes."""

    async def assigned(self) -> None:
        """Do nothing: this process holds everything."""

    def prepared(self) -> None:
        """Do nothing: no other process can own anything."""

    async def run(self) -> None:
        """Do nothing until cancelled: the ownership never changes."""

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """Do nothing: the next process repeats work in progress."""
