"""The shards that this process owns: all of them, or the ones that a fleet assigns to it by rendezvous hashing.

Each shard ranks all members by a hash of both, and belongs to the first live one. So members with the same view of the fleet
agree without communication, and a member that joins or leaves moves only its own shards.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Protocol

SHARDS: Final = 64
"""The number of shards. It is not configurable, because members with different numbers would leave work undone."""


def shard_of(namespace: str, name: str) -> int:
    """The shard of a workflow ID, or of the name of an object that is not a run."""
    return _hash(f"{namespace}/{name}") % SHARDS


def owners(members: Collection[str]) -> tuple[str, ...]:
    """The owner of each shard; empty if the fleet has no members."""
    return tuple(max(members, key=lambda member: _weight(member, shard)) for shard in range(SHARDS)) if members else ()


def ranked(shard: int, members: Collection[str]) -> list[str]:
    """The members, with the owner of a shard first, then the one that takes over if the owner is lost, and so on."""
    return sorted(members, key=lambda member: _weight(member, shard), reverse=True)


def shards_of(member: str, members: Collection[str]) -> frozenset[int]:
    """The shards that a member owns."""
    return frozenset(shard for shard, owner in enumerate(owners(members)) if owner == member)


@lru_cache(maxsize=SHARDS * 64)
def _weight(member: str, shard: int) -> tuple[int, str]:
    return _hash(f"{shard}/{member}"), member


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


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

    @property
    def others_read(self) -> Mapping[str, int]:
        """The newest state version that each of the other members reads, by name."""
        ...

    @property
    def others_over_grpc(self) -> Collection[str]:
        """The other members that take calls over gRPC only: those of earlier versions."""
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
    others_read: Final[Mapping[str, int]] = {}
    others_over_grpc: Final[Collection[str]] = ()

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
