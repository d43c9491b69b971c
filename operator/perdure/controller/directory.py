"""The directory of all runs by name, workflow ID, parent, and Schedule. It is filled by the first list and the watch."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from perdure.controller.run_entries import Entry, Standing, entry_of, is_settled, packed, unpacked
from perdure.controller.workflow_id_claims import WorkflowIdClaims
from perdure.kube import client as kube
from perdure.runtime.kinds import RunKind
from perdure.runtime.retention import Tally


class _Index:
    """UIDs of runs by namespace and key. Most keys have one run, for which a set would cost more memory than everything else."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, str | set[str]]] = {}

    def add(self, namespace: str, key: str, uid: str) -> None:
        keys = self._found.setdefault(namespace, {})
        known = keys.get(key)
        if known is None:
            keys[key] = uid
        elif isinstance(known, set):
            known.add(uid)
        elif known != uid:
            keys[key] = {known, uid}

    def discard(self, namespace: str, key: str, uid: str) -> None:
        keys = self._found.get(namespace, {})
        known = keys.get(key)
        if isinstance(known, set):
            known.discard(uid)
        if known == uid or not known:
            keys.pop(key, None)
            if not keys:
                self._found.pop(namespace, None)

    def get(self, namespace: str, key: str) -> Collection[str]:
        known = self._found.get(namespace, {}).get(key, ())
        return (known,) if isinstance(known, str) else known


class Directory:
    """The runs that this operator knows."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Entry | bytes] = {}
        """The entries by UID; finished runs are packed."""
        self._by_id = {kind: _Index() for kind in RunKind}
        self._by_parent = _Index()
        """Runs by the namespace and UID of their parent or Schedule: objects of other namespaces cannot claim a run."""
        self._by_schedule = _Index()
        self._by_name: dict[str, dict[str, str]] = {}
        self.claims = WorkflowIdClaims()
        self._finished: dict[str, Tally] = {}
        """Counts of finished runs by namespace."""

    def put(self, obj: kube.Object) -> tuple[Entry | None, Entry]:
        """Update the entry of a run; returns the old and the new entry."""
        before = self.get(obj["metadata"]["uid"])
        if before is not None and kube.not_newer(obj["metadata"].get("resourceVersion", ""), before.version):
            return before, before  # a watch may lag behind reads and writes
        entry = entry_of(obj)
        if before is not None:
            entry = replace(entry, came=before.came)
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

    def closed_version(self, uid: str) -> str | None:
        """The resourceVersion of a closed run; None for other runs."""
        entry = self.get(uid)
        return entry.version if entry is not None and entry.standing is Standing.CLOSED else None

    def uids(self) -> Collection[str]:
        """The UIDs of all runs."""
        return self._by_uid.keys()

    def finished(self, namespace: str) -> Tally:
        """The number and the total size of the finished runs of a namespace."""
        return self._finished.get(namespace) or Tally()

    def finished_runs(self, namespace: str) -> list[Entry]:
        """The finished runs of a namespace, in no particular order."""
        found = self._entries(self._by_name.get(namespace, {}).values())
        return [entry for entry in found if entry.standing is Standing.CLOSED]

    def _count(self, before: Entry | None, after: Entry | None) -> None:
        """Update the counts for a changed entry."""
        if before is not None and before.standing is Standing.CLOSED:
            tally = self._finished[before.namespace]
            tally.remove(before.size)
            if not tally.runs:
                del self._finished[before.namespace]
        if after is not None and after.standing is Standing.CLOSED:
            self._finished.setdefault(after.namespace, Tally()).add(after.size)

    def named(self, namespace: str, name: str) -> Entry | None:
        """The run with a name."""
        return self.get(self._by_name.get(namespace, {}).get(name, ""))

    def newest(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> Entry | None:
        """The open run of a workflow ID or, if there is none, the one that was open last.

        Args:
            namespace: The namespace.
            workflow_id: The workflow ID, the activity ID, or the operation ID.
            kind: The kind of the ID; also for the methods below.
        """
        found = self.open_run(namespace, workflow_id, kind=kind)
        if found is not None:
            return found
        return max(
            (e for e in self.runs_of(namespace, workflow_id, kind=kind) if not e.refused),
            key=lambda e: (e.closed, e.created, e.uid),
            default=None,
        )

    def sharing(self, entry: Entry) -> Iterator[Entry]:
        """The other runs of the same workflow ID."""
        found = self.runs_of(entry.namespace, entry.workflow_id, kind=entry.kind)
        return (other for other in found if other.uid != entry.uid)

    def children_of(self, namespace: str, uid: str) -> list[Entry]:
        """The children of a run in its namespace."""
        return self._entries(self._by_parent.get(namespace, uid))

    def of_schedule(self, namespace: str, uid: str) -> list[Entry]:
        """The runs of a namespace that belong to a Schedule."""
        return self._entries(self._by_schedule.get(namespace, uid))

    def runs_of(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> list[Entry]:
        """The runs of a workflow ID, in no particular order."""
        return self._entries(self._by_id[kind].get(namespace, workflow_id))

    def _entries(self, uids: Collection[str]) -> list[Entry]:
        return [entry for entry in map(self.get, uids) if entry is not None]

    def open_run(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> Entry | None:
        """The open run of a workflow ID, or the next one to open."""
        found = self.runs_of(namespace, workflow_id, kind=kind)
        open_ = [entry for entry in found if entry.standing is Standing.OPEN]
        waiting = sorted((entry for entry in found if entry.standing is Standing.WAITING), key=self.claims.order)
        return next(iter((*open_, *waiting)), None)

    def gap(self, namespace: str, workflow_id: str) -> Entry | None:
        """The closed run of a workflow whose next run does not exist yet: the workflow is open, but no run is."""
        closed = (entry for entry in self.runs_of(namespace, workflow_id) if entry.successor)
        return next((entry for entry in closed if self.named(namespace, entry.successor) is None), None)

    def continues(self, entry: Entry) -> bool:
        """Whether another run of the workflow ID exists or will exist."""
        following = self.open_run(entry.namespace, entry.workflow_id, kind=entry.kind)
        known = self.runs_of(entry.namespace, entry.workflow_id, kind=entry.kind)
        return any(each.successor for each in known) or (following is not None and following.uid != entry.uid)
