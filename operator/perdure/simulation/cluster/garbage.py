"""The garbage collector of the in-memory API server: it deletes objects whose owners no longer exist."""

from collections.abc import Callable
from random import Random

from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.storage import Object, ObjectKey, Storage, owners_of

_LATEST_SECONDS = 2.0
"""The longest delay after an owner was removed, in seconds."""


class GarbageCollector:
    """Deletes the dependents of an owner some time after the owner was removed."""

    def __init__(
        self, loop: ClusterLoop, random: Random, storage: Storage, delete: Callable[[ObjectKey], object]
    ) -> None:
        """`random` determines the delays; `delete` deletes an object as a client does."""
        self.pending: set[str] = set()
        """UIDs of owners whose dependents are not collected yet."""
        self._loop = loop
        self._random = random
        self._storage = storage
        self._delete = delete

    def created(self, obj: Object) -> None:
        """Record a new object; its owner may not exist anymore."""
        for owner in owners_of(obj):
            if not self._storage.has(owner):
                self.removed(owner)

    def removed(self, uid: str) -> None:
        """Collect the dependents of an owner later."""
        latest = self._random.choice([0.02, 0.02, _LATEST_SECONDS])
        self.pending.add(uid)
        self._loop.call_later(self._random.uniform(0.001, latest), self._collect, uid)

    def _collect(self, uid: str) -> None:
        self.pending.discard(uid)
        if self._storage.has(uid):
            return
        for key in [each for each in self._storage.owned_by(uid) if self._is_orphan(each)]:
            self._delete(key)

    def _is_orphan(self, key: ObjectKey) -> bool:
        return not any(map(self._storage.has, owners_of(self._storage[key])))
