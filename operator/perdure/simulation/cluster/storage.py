"""The storage of the in-memory API server: objects by key, with indexes by kind, UID and owner."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Object = dict[str, Any]


class ObjectKey(NamedTuple):
    """The key of a stored object."""

    plural: str
    namespace: str
    name: str


class Storage(Mapping[ObjectKey, Object]):
    """All objects, in the order of their creation. A stored object never changes; a new version replaces it."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, Object] = {}
        self._kinds: defaultdict[str, dict[ObjectKey, Object]] = defaultdict(dict)
        self._uids: set[str] = set()
        self._owned: defaultdict[str, set[ObjectKey]] = defaultdict(set)

    def __getitem__(self, key: ObjectKey) -> Object:
        return self._objects[key]

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[ObjectKey]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, key: ObjectKey, obj: Object) -> None:
        """Store a new object or a new version of one."""
        self._forget_owners(key)
        self._objects[key] = self._kinds[key.plural][key] = obj
        self._uids.add(obj["metadata"]["uid"])
        for owner in owners_of(obj):
            self._owned[owner].add(key)

    def pop(self, key: ObjectKey) -> Object:
        """Remove an object."""
        self._forget_owners(key)
        del self._kinds[key.plural][key]
        obj = self._objects.pop(key)
        self._uids.discard(obj["metadata"]["uid"])
        return obj

    def _forget_owners(self, key: ObjectKey) -> None:
        before = self._objects.get(key)
        for owner in owners_of(before) if before is not None else ():
            self._owned[owner].discard(key)
            if not self._owned[owner]:
                del self._owned[owner]

    def of(self, plural: str) -> list[tuple[ObjectKey, Object]]:
        """All objects of a kind, in the order of their creation."""
        return list(self._kinds[plural].items())

    def has(self, uid: str) -> bool:
        """Whether an object with this UID exists."""
        return uid in self._uids

    def owned_by(self, uid: str) -> list[ObjectKey]:
        """The objects with an owner, in the order of their creation."""
        owned = self._owned.get(uid)
        return [key for key in self._objects if key in owned] if owned else []


def owners_of(obj: Object) -> set[str]:
    """UIDs of the owners of an object."""
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()}
