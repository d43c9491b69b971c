"""The directory of all runs by name, workflow ID, parent, and Schedule. It is filled by the first list and the watch."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from perdure.api.phases import RunKind
from perdure.controller.current_runs import CurrentRuns
from perdure.controller.finished_tallies import FinishedTallies
from perdure.controller.run_entries import Entry, Standing, entry_of, is_settled, packed, unpacked
from perdure.controller.uid_index import UidIndex
from perdure.controller.workflow_id_claims import WorkflowIdClaims
from perdure.kube import client as kube


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
        self.claims = WorkflowIdClaims()
        self.current = CurrentRuns(self, self.claims)
        self.finished = FinishedTallies()

    def put(self, obj: kube.Object) -> tuple[Entry | None, Entry]:
        """Update the entry of a run; returns the old and the new entry."""
        before = self.get(obj["metadata"]["uid"])
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
        self.finished.count(before, entry)
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
            self.finished.count(entry, None)
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

    def finished_runs(self, namespace: str) -> list[Entry]:
        """The finished runs of a namespace, in no particular order."""
        found = self._entries(self._by_name.get(namespace, {}).values())
        return [entry for entry in found if entry.standing is Standing.CLOSED]

    def named(self, namespace: str, name: str) -> Entry | None:
        """The run with a name."""
        return self.get(self._by_name.get(namespace, {}).get(name, ""))

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
