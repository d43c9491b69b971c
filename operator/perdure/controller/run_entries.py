"""The in-memory entry that the operator keeps for each run."""

from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from perdure.api.lenient import mapping, text
from perdure.api.phases import RunKind, kind_of
from perdure.api.policies import ParentClosePolicy
from perdure.api.reasons import ConditionReason
from perdure.kube import client as kube
from perdure.runtime.chains import continuation_of, first_run_id, is_open, parent_of
from perdure.runtime.retention import stored_size
from perdure.schedule.run_manifests import owner_of

_ALREADY_STARTED: Final = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED.value


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
        refused=any(mapping(c).get("reason") == _ALREADY_STARTED for c in status.get("conditions") or ()),
        successor=text(state.get("successor")) if closed and state.get("startSuccessor") else "",
        first_uid=first_run_id(obj),
        parent_uid=parent.run_id if parent else "",
        initiated_event_id=parent.initiated_event_id if parent else 0,
        parent_close_policy=parent.parent_close_policy if parent else ParentClosePolicy.TERMINATE,
        continues=before.name if before else "",
        schedule_uid=owner_of(obj),
        size=stored_size(obj) if closed else 0,
        kind=kind_of(obj["spec"]),
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
