"""The objects of the in-memory API server: how they are stored, created, changed, and deleted, with observers of each change.

`Storage` has the objects by key, with indexes by kind, UID, and owner. `ObjectStore` is what the API server permits to do with
them. `GarbageCollector` deletes the objects whose owners no longer exist.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.patches import copy
from perdure.simulation.cluster.resources import ResourceType, kinds

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


_GRACE_SECONDS = 30


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a stored object."""

    time: float
    actor: str
    type: str
    """``ADDED``, ``MODIFIED`` or ``DELETED``, as in a watch event."""
    key: ObjectKey
    before: Object | None
    after: Object
    """The object after the change, or its last state if it was removed."""
    delete_requested: bool = False
    """Whether the actor sent a DELETE, even if the object still exists."""


class Refusal(Exception):  # noqa: N818 - it becomes a response
    """A request that the API server rejects."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


Observe = Callable[[Write], None]
"""Receives a change."""


class Observers:
    """The functions that receive each change, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: list[tuple[str, Observe]] = []
        self._by_kind: dict[str, tuple[Observe, ...]] = {}
        """The observers of a kind, by plural, since the last one was added or removed."""

    def append(self, observe: Observe, plural: str = "") -> None:
        """Report all changes from now on, or those of one kind."""
        self._all.append((plural, observe))
        self._by_kind.clear()

    def remove(self, observe: Observe) -> None:
        """Report no more changes."""
        self._all = [each for each in self._all if each[1] != observe]
        self._by_kind.clear()

    def of(self, plural: str) -> tuple[Observe, ...]:
        """The observers of a kind."""
        found = self._by_kind.get(plural)
        if found is None:
            found = self._by_kind[plural] = tuple(each for kind, each in self._all if kind in {"", plural})
        return found


class ObjectStore:
    """Creates, changes and deletes stored objects, and reports each change to observers."""

    def __init__(self, loop: ClusterLoop, random: Random) -> None:
        self.objects = Storage()
        self.observers = Observers()
        self.admit: Callable[[ObjectKey, Object], None] = lambda _key, _obj: None
        """Called with each object before it is created; may change the object."""
        self.garbage = GarbageCollector(
            loop, random, self.objects, lambda key: self.delete(key, actor="garbage collector")
        )
        self.version = 1_000
        """The resourceVersion of the last write."""
        self._without_status: set[str] = set()
        """UIDs of objects whose default status is shown but not stored, so that even an empty change writes it."""
        self.loop = loop
        """The loop of the cluster, in which other threads must use it."""
        self._random = random

    def get(self, key: ObjectKey) -> Object:
        """Return an object, which the caller must not change.

        Raises:
            Refusal: The object does not exist.
        """
        try:
            return self.objects[key]
        except KeyError:
            raise Refusal(404, "NotFound", f"{key.plural} {key.name!r} not found") from None

    def of(self, plural: str) -> list[Object]:
        """All objects of a kind, in the order of their creation."""
        return [obj for _, obj in self.objects.of(plural)]

    def create(self, plural: str, body: Object, *, namespace: str = "default", actor: str = "user") -> Object:
        """Store a new object.

        Raises:
            Refusal: An object with this name exists.
        """
        key = ObjectKey(plural, namespace, body["metadata"]["name"])
        obj = self.prepare(key, body)
        obj["metadata"]["resourceVersion"] = self._next_version()
        self.objects.put(key, obj)
        if kinds()[plural].defaults is not None and "status" in obj:
            self._without_status.add(obj["metadata"]["uid"])
        self._report("ADDED", key, None, obj, actor)
        self.garbage.created(obj)
        return obj

    def prepare(self, key: ObjectKey, body: Object) -> Object:
        """Build a new object with all fields that the API server adds except its version, without storing it.

        Raises:
            Refusal: An object with this name exists.
        """
        if key in self.objects:
            raise Refusal(409, "AlreadyExists", f"{key.plural} {key.name!r} already exists")
        resource = kinds()[key.plural]
        obj: Object = copy(body)
        self.admit(key, obj)
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        if resource.has_status:
            obj.pop("status", None)
        if resource.defaults is not None:
            obj = resource.defaults(obj)
        if key.plural == "pods":
            obj["status"] = {"phase": "Pending"}
        obj["metadata"] |= {
            "namespace": key.namespace,
            "uid": self.new_uid(key),
            "creationTimestamp": self._stamp(),
        }
        if resource.has_generation:
            obj["metadata"]["generation"] = 1
        return obj

    def new_uid(self, key: ObjectKey) -> str:  # noqa: ARG002 - subclasses may derive it from the key
        """Return a UID for a new object."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def update(self, key: ObjectKey, change: Callable[[Object], None], *, actor: str = "user") -> Object | None:
        """Store a copy of an object after `change` has edited it; None if the object does not exist."""
        if key not in self.objects:
            return None
        new = copy(self.objects[key])
        change(new)
        return self._store(key, new, actor)

    def replace(
        self,
        resource: ResourceType,
        key: ObjectKey,
        subresource: str | None,
        change: Callable[[Object], Object],
        actor: str,
    ) -> Object:
        """Store the object that `change` returns, except for the fields that clients cannot write this way.

        Raises:
            Refusal: The object does not exist, the resourceVersion differs, or a finalizer is added during the deletion.
        """
        old = self.get(key)
        new = change(old)
        version = (new.get("metadata") or {}).get("resourceVersion")
        if version is not None and version != old["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", f"Operation cannot be fulfilled on {key.plural} {key.name!r}")
        if subresource == "status":
            if not resource.has_status:
                raise Refusal(404, "NotFound", f"{key.plural} have no status of their own")
            new = _with_status(old, new)
        elif resource.has_status:
            new = _with_status(new, old)
        new = {**new, "metadata": _kept(old["metadata"], new["metadata"])}
        if key.plural == "pods":
            new.setdefault("status", {})
        if resource.defaults is not None:
            new = resource.defaults(new, old)
        return self._store(key, new, actor)

    def delete(
        self,
        key: ObjectKey,
        *,
        actor: str = "user",
        conditions: Mapping[str, str] = MappingProxyType({}),
        grace: int | None = None,
    ) -> Object:
        """Delete an object immediately, or mark it if finalizers or running containers keep it.

        Raises:
            Refusal: The object does not exist, or `conditions` name another UID or resourceVersion.
        """
        obj = self.get(key)
        for part, wanted in conditions.items():
            if obj["metadata"][part] != wanted:
                raise Refusal(409, "Conflict", f"the {part} in the precondition ({wanted}) does not match")
        if key.plural == "pods":
            return self._delete_pod(key, obj, actor, grace)
        if not obj["metadata"].get("finalizers"):
            return self._remove(key, actor, requested=True)
        if "deletionTimestamp" in obj["metadata"]:
            return obj
        return self._store(key, _with_deletion(obj, self._stamp(), 0), actor, requested=True)

    def remove(self, key: ObjectKey, *, actor: str) -> None:
        """Remove an object regardless of its finalizers, as a forced deletion does."""
        self._remove(key, actor, requested=True)

    def _delete_pod(self, key: ObjectKey, obj: Object, actor: str, grace: int | None) -> Object:
        """Give a pod time for its containers to stop, unless none of them runs."""
        meta = obj["metadata"]
        if "deletionTimestamp" in meta:  # the grace period can only become shorter, even if the containers have stopped
            left = meta["deletionGracePeriodSeconds"]
            seconds = left if grace is None else min(grace, left)
        elif not obj["spec"].get("nodeName") or obj["status"].get("phase") in {"Succeeded", "Failed"}:
            seconds = 0
        else:
            seconds = obj["spec"].get("terminationGracePeriodSeconds", _GRACE_SECONDS) if grace is None else grace
        when = meta.get("deletionTimestamp") or self._stamp(seconds)
        return self._store(key, _with_deletion(obj, when, seconds), actor, requested=True)

    def _store(self, key: ObjectKey, new: Object, actor: str, *, requested: bool = False) -> Object:
        old = self.objects[key]
        if new == old and new["metadata"]["uid"] not in self._without_status:
            return old
        self._without_status.discard(new["metadata"]["uid"])
        meta = new["metadata"]
        if "generation" in meta and new.get("spec") != old.get("spec"):
            meta["generation"] += 1
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            self.objects.put(key, new)
            last = self._remove(key, actor, requested=requested)
            return last if requested else new  # it was never stored, so it has the previous version
        meta["resourceVersion"] = self._next_version()
        self.objects.put(key, new)
        self._report("MODIFIED", key, old, new, actor, requested=requested)
        return new

    def _remove(self, key: ObjectKey, actor: str, *, requested: bool) -> Object:
        old = self.objects.pop(key)
        self._without_status.discard(old["metadata"]["uid"])
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": self._next_version()}}
        self._report("DELETED", key, old, last, actor, requested=requested)
        self.garbage.removed(old["metadata"]["uid"])
        return last

    def _report(
        self, type_: str, key: ObjectKey, before: Object | None, after: Object, actor: str, *, requested: bool = False
    ) -> None:
        write = Write(
            time=self.loop.time(),
            actor=actor,
            type=type_,
            key=key,
            before=before,
            after=after,
            delete_requested=requested,
        )
        for observe in self.observers.of(key.plural):
            observe(write)

    def _next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def _stamp(self, after: float = 0) -> str:
        return (self.loop.now() + timedelta(seconds=after)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_status(obj: Object, other: Object) -> Object:
    """Return an object with the status of another object, or without a status if that has none."""
    if "status" in other:
        return {**obj, "status": other["status"]}
    return {part: value for part, value in obj.items() if part != "status"}


def _with_deletion(obj: Object, when: str, seconds: int) -> Object:
    """Return an object with a deletion timestamp."""
    meta = {**obj["metadata"], "deletionTimestamp": when, "deletionGracePeriodSeconds": seconds}
    if "generation" in meta and "deletionTimestamp" not in obj["metadata"]:
        meta["generation"] += 1
    return {**obj, "metadata": meta}


def _kept(old: Object, new: Object) -> Object:
    """Return new metadata that keeps the fields that only the API server writes.

    Raises:
        Refusal: The metadata has a new finalizer, and the object is being deleted.
    """
    identity = ("uid", "creationTimestamp", "namespace", "name", "resourceVersion", "generation")
    deletion = ("deletionTimestamp", "deletionGracePeriodSeconds")
    written = {part: value for part, value in new.items() if part not in (*identity, *deletion)}
    for part in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not written.get(part):
            written.pop(part, None)
    more = set(written.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if "deletionTimestamp" in old and more:
        raise Refusal(422, "Invalid", "no new finalizers can be added if the object is being deleted")
    return {**written, **{part: old[part] for part in (*identity, *deletion) if part in old}}
