"""HistorySegments: built, and verified. Pure.

The status of a run holds the newest events, its tail. A long tail is sealed: it is copied into a HistorySegment, which is
immutable, and the next commit removes it from the status. Each segment has the hash of its events and of the previous segment;
the status of the run has the hash of the last one. So a missing or replaced segment is detected.

    segment 0 ◀── previousHash ── segment 1 ◀── previousHash ── segment 2 ◀── lastSegmentHash ── status: tail
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from perdure.api.kinds.historysegment import HistorySegmentSpec
from perdure.api.labels import API_VERSION
from perdure.api.models import json_fields
from perdure.api.names import segment_name
from perdure.api.reasons import ConditionReason
from perdure.api.state_versions import unknown_in, unreadable, version_of
from perdure.engine import payloads
from perdure.runtime.attempts import KubeObject, RunRef
from perdure.runtime.commits import canonical

MAX_TAIL_EVENTS: Final = 200
"""Maximum events of a tail; a longer one is sealed."""
MAX_TAIL_BYTES: Final = 48 * 1024
"""Maximum bytes of a tail; a larger one is sealed."""

_SPEC_FIELDS: Final = json_fields(HistorySegmentSpec)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Damage:
    """A missing or replaced segment of a history."""

    reason: ConditionReason
    message: str
    """A sentence that names the segment and its problem."""


@dataclass(frozen=True, slots=True)
class AssembledHistory:
    """A history assembled from its segments and its tail."""

    events: list[Json]
    """The events in order, with gaps if segments are missing."""
    damage: tuple[Damage, ...]


def is_due(tail: Sequence[Json]) -> bool:
    """Whether a tail must be sealed."""
    return len(tail) > MAX_TAIL_EVENTS or size_of(tail) > MAX_TAIL_BYTES


def size_of(events: Iterable[Json]) -> int:
    """The size of events, in bytes of JSON."""
    return sum(len(orjson.dumps(event)) for event in events)


def build(run: RunRef, index: int, events: Sequence[Json], previous: str | None) -> KubeObject:
    """Build the HistorySegment of some events.

    Args:
        run: The run that they belong to; it owns the segment.
        index: Number of the segment, from 0.
        events: The events, at least one, in order.
        previous: Hash of the segment before; None for the first.
    """
    spec: Json = {
        "workflowRun": {"name": run.name, "workflowId": run.workflow_id, "runId": run.uid},
        "index": index,
        "firstEventId": events[0]["eventId"],
        "lastEventId": events[-1]["eventId"],
        "events": list(events),
        "sizeBytes": size_of(events),
        "hash": digest(previous, events),
    }
    if previous is not None:
        spec["previousHash"] = previous
    owner = {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "name": run.name,
        "uid": run.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "HistorySegment",
        "metadata": {
            "name": segment_name(run.name, run.uid, index),
            "namespace": run.namespace,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def digest(previous: str | None, events: Sequence[Json]) -> str:
    """Compute the hash of events and of the previous segment.

    Raises:
        ValueError: The events are nested too deeply.
    """
    try:
        content = canonical(list(events))
    except ValueError as error:
        raise ValueError("the events cannot be written as JSON") from error
    return f"sha256:{hashlib.sha256((previous or '').encode() + content).hexdigest()}"


def fault(segment: KubeObject, uid: str, index: int, previous: str | None) -> str | None:
    """Return the problem with a segment; None if it is the sealed one.

    Args:
        segment: A HistorySegment as the API server returned it.
        uid: UID of the run.
        index: Number of the segment.
        previous: Hash of the segment before; None for the first.
    """
    spec = segment.get("spec") or {}
    owners = (segment.get("metadata") or {}).get("ownerReferences") or ()
    if not any(owner.get("uid") == uid for owner in owners) or (spec.get("workflowRun") or {}).get("runId") != uid:
        return "does not belong to this run"
    if spec.get("index") != index:
        return f"has number {spec.get('index')} instead of {index}"
    if spec.get("previousHash") != previous:
        return f"follows {spec.get('previousHash')} instead of {previous}"
    try:
        found = digest(previous, spec.get("events") or [])
    except ValueError as error:
        return str(error)
    return None if found == spec.get("hash") else f"has events with hash {found} instead of {spec.get('hash')}"


def newer_part(segment: KubeObject, reads: int) -> str:
    """Name the part of a segment that only a newer version can read; empty if there is none.

    Args:
        segment: A HistorySegment as the API server returned it.
        reads: The newest state version that this operator reads.
    """
    spec = segment.get("spec") or {}
    why = unreadable(version_of(spec), reads) or unknown_in(spec, _SPEC_FIELDS)
    return why or payloads.newer_reference(spec.get("events") or [])


def continues(segment: KubeObject, tail: Sequence[Json]) -> bool:
    """Whether an intact segment has exactly the first events of a tail."""
    spec = segment["spec"]
    count = len(spec["events"])
    return count <= len(tail) and digest(spec.get("previousHash"), tail[:count]) == spec["hash"]


def gather(run: KubeObject, found: Iterable[KubeObject]) -> AssembledHistory:
    """Assemble a history and verify it.

    Args:
        run: The WorkflowRun.
        found: Its HistorySegments, in any order. A segment that is not in the status is about to be committed: its events are
            also in the tail.
    """
    meta, history = run["metadata"], (run.get("status") or {}).get("history") or {}
    by_name = {segment["metadata"]["name"]: segment for segment in found}
    events: list[Json] = []
    damage: list[Damage] = []
    previous: str | None = None
    after_a_gap = False
    for index in range(history.get("segments", 0)):
        name = segment_name(meta["name"], meta["uid"], index)
        segment = by_name.get(name)
        if segment is None:
            damage.append(missing(name))
            after_a_gap = True
            continue
        if after_a_gap:
            previous = segment["spec"].get("previousHash")
        wrong = fault(segment, meta["uid"], index, previous)
        if wrong is not None:
            damage.append(changed(name, wrong))
        events += segment["spec"]["events"]
        previous, after_a_gap = segment["spec"].get("hash"), False
    last = history.get("lastSegmentHash")
    if not after_a_gap and previous != last:
        name = segment_name(meta["name"], meta["uid"], history.get("segments", 0) - 1)
        damage.append(changed(name, f"has hash {previous}, but the run's status has {last}"))
    events += history.get("events") or []
    return AssembledHistory(events, tuple(damage))


def missing(name: str) -> Damage:
    """Report a missing segment."""
    return Damage(ConditionReason.SEGMENT_MISSING, f"HistorySegment `{name}` is missing: it was deleted")


def changed(name: str, wrong: str) -> Damage:
    """Report a segment that differs from the sealed one."""
    return Damage(ConditionReason.SEGMENT_CHANGED, f"HistorySegment `{name}` {wrong}")


def chain(run: RunRef, events: Sequence[Json]) -> tuple[list[KubeObject], Mapping[str, Any]]:
    """Split a whole history into segments and a tail, for a new run that begins with this history.

    Returns:
        The segments, always the same for the same events, and the matching `status.history`.
    """
    sealed: list[KubeObject] = []
    tail: list[Json] = []
    size = total = 0
    previous: str | None = None
    for event in events:
        more = size_of([event])
        if tail and (len(tail) >= MAX_TAIL_EVENTS or size + more > MAX_TAIL_BYTES):
            sealed.append(build(run, len(sealed), tail, previous))
            previous, tail, size = sealed[-1]["spec"]["hash"], [], 0
        tail.append(event)
        size, total = size + more, total + payloads.size_of(orjson.dumps(event))
    history: Json = {"events": tail, "segments": len(sealed), "sizeBytes": total}
    if previous is not None:
        history["lastSegmentHash"] = previous
    return sealed, history
