"""Assign the shards to the members of a fleet by rendezvous hashing. Pure.

Each shard ranks all members by a hash of both, and belongs to the first live one. So members with the same view of the fleet
agree without communication, and a member that joins or leaves moves only its own shards.
"""

from collections.abc import Collection
from functools import lru_cache
from hashlib import blake2b
from typing import Final

SHARDS: Final = 64
"""The number of shards. It is not configurable, because members with different numbers would leave work undone."""


def shard_of(namespace: str, name: str) -> int:
    """The shard of a workflow ID, or of the name of an object that is not a run."""
    return _hash(f"{namespace}/{name}") % SHARDS


def owners(members: Collection[str]) -> tuple[str, ...]:
    """The owner of each shard; empty if there is no member."""
    return tuple(max(members, key=lambda member: _weight(member, shard)) for shard in range(SHARDS)) if members else ()


def shards_of(member: str, members: Collection[str]) -> frozenset[int]:
    """The shards that a member owns."""
    return frozenset(shard for shard, owner in enumerate(owners(members)) if owner == member)


@lru_cache(maxsize=SHARDS * 64)
def _weight(member: str, shard: int) -> tuple[int, str]:
    return _hash(f"{shard}/{member}"), member


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
