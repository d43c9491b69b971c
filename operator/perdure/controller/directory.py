"""The directory of all runs by name, workflow ID, parent, and Schedule, and the claims of runs to their workflow IDs.

The first list and the watch fill it, and every write of this process. It has an entry for each run, in little memory: that of a
finished run is packed. A run in deletion has none, even while a finalizer keeps its object: it has ended for its Schedule and its
parent, and holds neither its workflow ID nor its limits.

Claims decide which run of a workflow ID may start: at most one is open at a time. No lock in the API server is needed for this. A
run that was once admitted stays first until the directory knows that it has started or was deleted: its start is in progress,
and no run may overtake it, even one that turns out to be older. That holds within one operator in any order of events. In a
fleet, only the owner of the shard decides, after it has read what the previous owner has done (`CatchUp` in `dispatch/fleet.py`).
Operators that do not share the work usually agree, because a watch reports objects in the order in which they were created, and
of several runs that wait, the one that was created first goes first; the start itself is a compare-and-swap of the run's own
object. So an operator that knows less than another either starts the run that the other would start, or loses the swap, unless
it has created a run itself that its watch has not shown.

`creationTimestamp` alone cannot tell which run was created first, because it has whole seconds: within a second, the
resourceVersion decides that a run had when it was first seen.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from perdure.api.json_values import mapping, text
from perdure.api.phases import RunKind, kind_of, workflow_of
from perdure.api.policies import ParentClosePolicy, WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.archive.records import was_refused
from perdure.archive.rows import RunRef
from perdure.kube import client as kube
from perdure.runtime.chains import continuation_of, first_run_id, is_open, parent_of
from perdure.runtime.retention import Tally, stored_size, ttl_of
from perdure.schedule.run_manifests import owner_of

_FAILED: Final = frozenset({"Failed", "Cancelled", "Terminated", "TimedOut"})


class Standing(Enum):
    """The progress of a run."""

    WAITING = "waiting"
    OPEN = "open"
    CLOSED = "closed"


class Entry(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The directory's entry for a run."""

    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    workflow_id: str
    created: str
    """Creation time of the object, RFC 3339."""
    first_seen: str
    """Its resourceVersion when it was first seen."""
    standing: Standing
    phase: str = ""
    closed: str = ""
    """Close time, RFC 3339; empty while the run is open."""
    refused: bool = False
    """Whether it never ran because its workflow ID was in use. Then it failed, or points to the run with the ID."""
    successor: str = ""
    """Name of the run that continues or retries it. Until that run exists, this run keeps the workflow ID."""
    first_uid: str = ""
    """UID of the first run of its chain."""
    parent_uid: str = ""
    initiated_event_id: int = 0
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    continues: str = ""
    """Name of the run that it continues or retries."""
    schedule_uid: str = ""
    """UID of its Schedule."""
    size: int = 0
    """Its size including HistorySegments, in bytes; 0 while it is open."""
    kind: RunKind = RunKind.WORKFLOW
    """The kind of the run, and of the ID in `workflow_id`."""
    workflow: str = ""
    """Its Workflow or workflow type, once it has closed."""
    ttl: int | None = None
    """How long it is kept after its end, in seconds, if it says so itself."""

    @property
    def ref(self) -> RunRef:
        """What the archive needs to know to find it."""
        return RunRef(self.namespace, self.name, self.workflow_id, self.uid, self.closed)


def entry_of(obj: kube.Object) -> Entry:
    """Build the entry of a run."""
    meta, status = obj["metadata"], obj.get("status") or {}
    state = mapping(status.get("state"))
    parent, before = parent_of(obj), continuation_of(obj)
    # The run is open unless both are set: a commit never writes `completionTime` alone.
    closed = "" if is_open(status) else status.get("completionTime") or ""
    return Entry(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        version=meta.get("resourceVersion", ""),
        workflow_id=_same(obj["spec"].get("workflowId") or meta["name"], meta["name"]),
        created=meta.get("creationTimestamp", ""),
        first_seen=meta.get("resourceVersion", ""),
        standing=Standing.CLOSED if closed else Standing.OPEN if state else Standing.WAITING,
        phase=status.get("phase", ""),
        closed=closed,
        refused=was_refused(status),
        successor=text(state.get("successor")) if closed and state.get("startSuccessor") else "",
        first_uid=first_run_id(obj),
        parent_uid=parent.run_id if parent else "",
        initiated_event_id=parent.initiated_event_id if parent else 0,
        parent_close_policy=parent.parent_close_policy if parent else ParentClosePolicy.TERMINATE,
        continues=before.name if before else "",
        schedule_uid=owner_of(obj),
        size=stored_size(obj) if closed else 0,
        kind=kind_of(obj["spec"]),
        workflow=workflow_of(obj["spec"]) if closed else "",
        ttl=ttl_of(obj["spec"], status.get("phase", "")) if closed else None,
    )


def _same(one: str, other: str) -> str:
    """Deduplicate equal strings."""
    return other if one == other else one


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)


def is_settled(entry: Entry) -> bool:
    """Whether the entry of a run will not change anymore."""
    return entry.standing is Standing.CLOSED and not entry.successor


def packed(entry: Entry) -> bytes:
    """Pack the entry of a finished run, without redundant fields."""
    first = "" if entry.first_uid == entry.uid else entry.first_uid
    workflow_id = "" if entry.workflow_id == entry.name else entry.workflow_id
    return _ENCODER.encode(replace(entry, uid="", first_uid=first, workflow_id=workflow_id))


def unpacked(uid: str, data: bytes) -> Entry:
    """Unpack an entry."""
    entry = _DECODER.decode(data)
    return replace(entry, uid=uid, first_uid=entry.first_uid or uid, workflow_id=entry.workflow_id or entry.name)


class UidIndex:
    """UIDs of runs by namespace and key. Most keys have one run, for which a set would cost more memory than everything else."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, str | set[str]]] = {}

    def add(self, namespace: str, key: str, uid: str) -> None:
        """Add a run to a key."""
        keys = self._found.setdefault(namespace, {})
        known = keys.get(key)
        if known is None:
            keys[key] = uid
        elif isinstance(known, set):
            known.add(uid)
        elif known != uid:
            keys[key] = {known, uid}

    def discard(self, namespace: str, key: str, uid: str) -> None:
        """Remove a run from a key, if the key has it."""
        keys = self._found.get(namespace, {})
        known = keys.get(key)
        if isinstance(known, set):
            known.discard(uid)
        if known == uid or not known:
            keys.pop(key, None)
            if not keys:
                self._found.pop(namespace, None)

    def get(self, namespace: str, key: str) -> Collection[str]:
        """The UIDs of the runs of a key."""
        known = self._found.get(namespace, {}).get(key, ())
        return (known,) if isinstance(known, str) else known


@dataclass(frozen=True, slots=True)
class Start:
    """The run may start."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The run must wait until another one has started or closed."""

    other: Entry
    terminate: bool = False
    """Whether the other run must be terminated first."""


@dataclass(frozen=True, slots=True)
class IdInUse:
    """The run does not start, because the workflow ID is in use."""

    other: Entry
    message: str
    use_existing: bool = False


Verdict = Start | Wait | IdInUse


class WorkflowIdClaims:
    """The claims of waiting runs to their workflow IDs."""

    def __init__(self) -> None:
        self._admitted: dict[tuple[str, str, RunKind], str] = {}
        """The admitted runs that are not known to have started, by workflow, activity, or operation ID."""

    def claim(
        self,
        entry: Entry,
        others: Iterable[Entry],
        *,
        reuse: WorkflowIdReusePolicy,
        conflict: WorkflowIdConflictPolicy,
    ) -> Verdict:
        """Decide whether a waiting run may start now. If so, it has precedence until it has started or was deleted.

        Args:
            entry: The run.
            others: The other runs of its workflow ID.
            reuse: Whether the ID of a closed run may be used again.
            conflict: What to do about an open run.
        """
        verdict = self._verdict(entry, list(others), reuse, conflict)
        if isinstance(verdict, Start):
            self._admitted[_claimed(entry)] = entry.uid
        return verdict

    def _verdict(
        self, entry: Entry, others: list[Entry], reuse: WorkflowIdReusePolicy, conflict: WorkflowIdConflictPolicy
    ) -> Verdict:
        for other in others:
            if other.standing is Standing.OPEN:
                # The run that `entry` continues has closed, but no watch has shown this yet.
                return Wait(other) if other.name == entry.continues else _conflict(other, conflict)
            if other.standing is Standing.CLOSED and other.successor and other.successor != entry.name:
                return Wait(other)
        waiting = (other for other in others if other.standing is Standing.WAITING)
        first = min(waiting, key=self.order, default=entry)
        if self.order(first) < self.order(entry):
            return Wait(first)
        if entry.continues:
            return Start()
        newest = max(
            (o for o in others if o.standing is Standing.CLOSED and not o.refused),
            key=lambda e: (e.closed, e.uid),
            default=None,
        )
        if newest is None or reuse is WorkflowIdReusePolicy.ALLOW_DUPLICATE:
            return Start()
        if reuse is WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY and newest.phase in _FAILED:
            return Start()
        message = (
            f"{entry.kind.id_name} `{entry.workflow_id}` was used by `{newest.name}`, which is {newest.phase}, and "
            f"`workflowIdReusePolicy` is {reuse}"
        )
        return IdInUse(newest, message)

    def order(self, entry: Entry) -> tuple[bool, bool, str, int, str, str]:
        """The sort key of runs that wait for the same ID: a run that continues another one precedes new runs."""
        admitted = self._admitted.get(_claimed(entry)) == entry.uid
        return not entry.continues, not admitted, entry.created, len(entry.first_seen), entry.first_seen, entry.uid

    def release(self, entry: Entry) -> None:
        """Record that a run has started or was deleted."""
        if self._admitted.get(_claimed(entry)) == entry.uid:
            del self._admitted[_claimed(entry)]


def _claimed(entry: Entry) -> tuple[str, str, RunKind]:
    """The ID that only one open run may have."""
    return entry.namespace, entry.workflow_id, entry.kind


def _conflict(other: Entry, policy: WorkflowIdConflictPolicy) -> Verdict:
    match policy:
        case WorkflowIdConflictPolicy.TERMINATE_EXISTING:
            return Wait(other, terminate=True)
        case WorkflowIdConflictPolicy.USE_EXISTING:
            return IdInUse(
                other, f"`{other.name}` is open with {other.kind.id_name} `{other.workflow_id}`", use_existing=True
            )
        case WorkflowIdConflictPolicy.FAIL:
            return IdInUse(other, f"`{other.name}` is open with {other.kind.id_name} `{other.workflow_id}`")


class Directory:
    """The runs that this operator knows."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Entry | bytes] = {}
        """The entries by UID; finished runs are packed."""
        self._by_id = {kind: UidIndex() for kind in RunKind}
        self._by_parent = UidIndex()
        """Runs by the namespace and UID of their parent or Schedule: objects of other namespaces cannot claim a run."""
        self._by_schedule = UidIndex()
        self._by_name: dict[str, dict[str, str]] = {}
        self._open: Counter[str] = Counter()
        """The number of open runs of each namespace."""
        self._finished: dict[str, Tally] = {}
        """The number and the total size of the finished runs of each namespace."""
        self.finished = Tally()
        """Those of all namespaces together."""
        self._leaving: set[str] = set()
        """The UIDs of runs in deletion: a late answer with an earlier version must not bring an entry back."""
        self.claims = WorkflowIdClaims()

    def put(self, obj: kube.Object) -> tuple[Entry | None, Entry | None]:
        """Update the entry of a run; returns the old and the new entry. A run in deletion has no new one."""
        meta = obj["metadata"]
        if meta.get("deletionTimestamp") or meta["uid"] in self._leaving:
            before = self.drop(meta["uid"])
            self._leaving.add(meta["uid"])
            return before, None
        before = self.get(meta["uid"])
        if before is not None and kube.not_newer(obj["metadata"].get("resourceVersion", ""), before.version):
            return before, before  # a watch may lag behind reads and writes
        entry = entry_of(obj)
        if before is not None:
            entry = replace(entry, first_seen=before.first_seen)
        if entry.standing is not Standing.WAITING:
            self.claims.release(entry)
        namespace, uid = entry.namespace, entry.uid
        if before is not None and before.parent_uid != entry.parent_uid:
            self._by_parent.discard(namespace, before.parent_uid, uid)
        if before is not None and before.schedule_uid != entry.schedule_uid:
            self._by_schedule.discard(namespace, before.schedule_uid, uid)
        self._count(before, entry)
        self._by_uid[uid] = packed(entry) if is_settled(entry) else entry
        names = self._by_name.setdefault(namespace, {})
        if names.get(entry.name) != uid:  # otherwise the same text would be stored twice
            names[entry.name] = uid
        self._by_id[entry.kind].add(namespace, entry.workflow_id, uid)
        if entry.parent_uid:
            self._by_parent.add(namespace, entry.parent_uid, uid)
        if entry.schedule_uid:
            self._by_schedule.add(namespace, entry.schedule_uid, uid)
        return before, entry

    def is_newer(self, obj: kube.Object) -> bool:
        """Whether the entry of a run is newer than an object."""
        known = self.get(obj["metadata"]["uid"])
        return known is not None and kube.older(obj["metadata"].get("resourceVersion", ""), known.version)

    def knows(self, obj: kube.Object) -> bool:
        """Whether this version of a run is known because it was watched, written or read."""
        known = self.get(obj["metadata"]["uid"])
        return known is not None and known.version == obj["metadata"]["resourceVersion"]

    def drop(self, uid: str) -> Entry | None:
        """Remove a deleted run, and return its entry."""
        self._leaving.discard(uid)
        entry = self.get(uid)
        if entry is not None:
            del self._by_uid[uid]
            self._count(entry, None)
            names = self._by_name.get(entry.namespace, {})
            if names.get(entry.name) == uid:
                del names[entry.name]
                if not names:
                    del self._by_name[entry.namespace]
            self._by_id[entry.kind].discard(entry.namespace, entry.workflow_id, uid)
            self._by_parent.discard(entry.namespace, entry.parent_uid, uid)
            self._by_schedule.discard(entry.namespace, entry.schedule_uid, uid)
            self.claims.release(entry)
        return entry

    def get(self, uid: str) -> Entry | None:
        """The run with a UID."""
        known = self._by_uid.get(uid)
        return unpacked(uid, known) if isinstance(known, bytes) else known

    def is_leaving(self, uid: str) -> bool:
        """Whether a run is in deletion."""
        return uid in self._leaving

    def pack(self, uid: str) -> None:
        """Pack the entry of an open run that will not change for a while. Its next version replaces it."""
        entry = self._by_uid.get(uid)
        if isinstance(entry, Entry):
            self._by_uid[uid] = packed(entry)

    def settled_version(self, uid: str) -> str | None:
        """The resourceVersion of a closed or a packed run; None for other runs."""
        known = self._by_uid.get(uid)
        if isinstance(known, bytes):
            return unpacked(uid, known).version
        return known.version if known is not None and known.standing is Standing.CLOSED else None

    def closed_version(self, uid: str) -> str | None:
        """The resourceVersion of a closed run; None for other runs."""
        entry = self.get(uid)
        return entry.version if entry is not None and entry.standing is Standing.CLOSED else None

    def uids(self) -> Collection[str]:
        """The UIDs of all runs, including those in deletion."""
        return self._by_uid.keys() | self._leaving

    def tally(self, namespace: str) -> Tally:
        """The number and the total size of the finished runs of a namespace, which decide whether some must be removed."""
        return self._finished.get(namespace) or Tally()

    def tallies(self) -> Mapping[str, Tally]:
        """The number and the total size of the finished runs of each namespace that has any."""
        return self._finished

    def open_runs(self, namespace: str) -> int:
        """The number of open runs of a namespace, without those that wait for their start."""
        return self._open[namespace]

    def _count(self, before: Entry | None, after: Entry | None) -> None:
        """Update the tallies for a run whose entry changes from `before` to `after`; None: the run does not exist."""
        if before is not None and before.standing is Standing.OPEN:
            self._open[before.namespace] -= 1
            if not self._open[before.namespace]:
                del self._open[before.namespace]
        if after is not None and after.standing is Standing.OPEN:
            self._open[after.namespace] += 1
        if before is not None and before.standing is Standing.CLOSED:
            tally = self._finished[before.namespace]
            tally.remove(before.size)
            self.finished.remove(before.size)
            if not tally.runs:
                del self._finished[before.namespace]
        if after is not None and after.standing is Standing.CLOSED:
            self._finished.setdefault(after.namespace, Tally()).add(after.size)
            self.finished.add(after.size)

    def finished_runs(self, namespace: str) -> list[Entry]:
        """The finished runs of a namespace, in no particular order."""
        found = self._entries(self._by_name.get(namespace, {}).values())
        return [entry for entry in found if entry.standing is Standing.CLOSED]

    def named(self, namespace: str, name: str) -> Entry | None:
        """The run with a name."""
        return self.get(self._by_name.get(namespace, {}).get(name, ""))

    def run_id_of(self, namespace: str, name: str) -> str:
        """The ID of the run with a name; empty if it is not known."""
        found = self.named(namespace, name)
        return found.uid if found is not None else ""

    def sharing(self, entry: Entry) -> Iterator[Entry]:
        """The other runs of the same workflow ID."""
        found = self.runs_of(entry.namespace, entry.workflow_id, kind=entry.kind)
        return (other for other in found if other.uid != entry.uid)

    def stopped_before(self, entry: Entry) -> Entry | None:
        """The run of the same workflow ID that closed last, if it ended early, so that its pods may still be stopping."""
        closed = [each for each in self.sharing(entry) if each.standing is Standing.CLOSED and not each.refused]
        last = max(closed, key=lambda each: each.closed, default=None)
        return last if last is not None and last.phase in _FAILED else None

    def children_of(self, namespace: str, uid: str) -> list[Entry]:
        """The children of a run in its namespace."""
        return self._entries(self._by_parent.get(namespace, uid))

    def of_schedule(self, namespace: str, uid: str) -> list[Entry]:
        """The runs of a namespace that belong to a Schedule."""
        return self._entries(self._by_schedule.get(namespace, uid))

    def runs_of(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> list[Entry]:
        """The runs of a workflow ID, in no particular order."""
        return self._entries(self._by_id[kind].get(namespace, workflow_id))

    # The current run of a workflow ID: at most one is open, and the last one may have a successor. An ID of another kind is an
    # activity ID or an operation ID.

    def open_run(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> Entry | None:
        """The open run of a workflow ID, or the next one to open."""
        found = self.runs_of(namespace, workflow_id, kind=kind)
        open_ = [entry for entry in found if entry.standing is Standing.OPEN]
        waiting = sorted((entry for entry in found if entry.standing is Standing.WAITING), key=self.claims.order)
        return next(iter((*open_, *waiting)), None)

    def newest(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> Entry | None:
        """The open run of a workflow ID or, if there is none, the one that was open last."""
        found = self.open_run(namespace, workflow_id, kind=kind)
        if found is not None:
            return found
        return max(
            (e for e in self.runs_of(namespace, workflow_id, kind=kind) if not e.refused),
            key=lambda e: (e.closed, e.created, e.uid),
            default=None,
        )

    def gap(self, namespace: str, workflow_id: str) -> Entry | None:
        """The closed run of a workflow whose next run does not exist yet: the workflow is open, but no run is."""
        closed = (entry for entry in self.runs_of(namespace, workflow_id) if entry.successor)
        return next((entry for entry in closed if self.named(namespace, entry.successor) is None), None)

    def continues(self, entry: Entry) -> bool:
        """Whether another run of the workflow ID exists or will exist."""
        following = self.open_run(entry.namespace, entry.workflow_id, kind=entry.kind)
        known = self.runs_of(entry.namespace, entry.workflow_id, kind=entry.kind)
        return any(each.successor for each in known) or (following is not None and following.uid != entry.uid)

    def _entries(self, uids: Collection[str]) -> list[Entry]:
        return [entry for entry in map(self.get, uids) if entry is not None]
