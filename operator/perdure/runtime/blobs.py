"""Blobs: payloads too large for the status of a run, in Payload objects of their own. Pure.

The status of a run is one object. Each commit writes it, and etcd accepts at most 1.5 MiB. So payloads of SDKs stay in it only up
to 16 KiB. Larger ones become blobs: the bytes of Temporal's `Payloads`, in Payload objects. The total of many smaller payloads
can also be too large, such as the inputs of a hundred activities: payloads that exceed a `Room` become blobs, too. The history
only refers to blobs::

    {"payloads": {"hash": "<SHA-256>", "name": "payload-<32 hex digits>", "sizeBytes": 2000000}}

To the engine, a reference is a value like any other. A blob of 2 MiB has three objects, because base64 adds a third. The first
one has the name of the blob and is owned by the runs whose history refers to it; the first one owns the others. The garbage
collector removes them with the last of these runs. They never change.

    frontend: Reference with its bytes ─▶ engine ─▶ commit: creates Payloads, then writes the status that refers to them

If a commit fails, its Payloads are removed unless the next commit refers to them. Names are random and belong to one request in
one process, so no other client can use them; a request that is sent to the API server again finds its own Payload.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import msgspec

from perdure.api.labels import API_VERSION, UNCLAIMED_LABEL
from perdure.engine.payloads import referred_to
from perdure.runtime.attempts import KubeObject

INLINE: Final = 16 * 1024
"""Maximum bytes of payloads in the status: the tail of a history, 48 KiB, has room for several."""
ALWAYS_INLINE: Final = 512
"""Payloads of up to this many bytes always stay in the status: a reference is only a third as large."""
ROOM: Final = 256 * 1024
"""Size up to which the payloads in the response of a worker can make the status grow. The limit of the status is four times as
high: it contains the input of an open activity twice, in the history and in the state, and base64 makes it a third larger."""
PART: Final = 768 * 1024
"""Bytes in one object: 1 MiB as base64. etcd accepts 1.5 MiB, metadata included."""

_NAME = re.compile(r"payload-[0-9a-f]{32}")
_FIELDS = {"hash", "name", "sizeBytes"}

Json = dict[str, Any]


class Reference(Json):
    """Refers to a blob. A new reference also has the bytes until they are stored; its JSON never has them."""

    content: bytes | None = None
    version: object = None
    """The stored version, if the client that stored it may remove it."""

    @property
    def name(self) -> str:
        """Name of the first Payload."""
        return str(self["name"])


class Room:
    """The space that the status of a run has for the payloads of a response."""

    def __init__(self, used: int = 0) -> None:
        """`used`: the size of the status, in bytes."""
        self._left = ROOM - used

    def reserve(self, size: int) -> bool:
        """Whether a payload of this size stays in the status; if it does, it uses up its space."""
        fits = size <= ALWAYS_INLINE or size <= min(INLINE, self._left)
        self._left -= size if fits else 0
        return fits


def refer(content: bytes) -> Json:
    """Return the value that represents a blob in a history.

    Args:
        content: Temporal's message `Payloads`, in bytes.
    """
    reference = Reference(
        hash=hashlib.sha256(content).hexdigest(), name=f"payload-{uuid.uuid4().hex}", sizeBytes=len(content)
    )
    reference.content = content
    return {"payloads": reference}


def reference_in(value: Any) -> Mapping[str, Any] | None:
    """The reference in a value; None if the value is not a reference."""
    if not isinstance(value, Mapping) or set(value) != {"payloads"}:
        return None
    found = value["payloads"]
    if not isinstance(found, Mapping) or set(found) != _FIELDS:
        return None
    good = isinstance(found["name"], str) and _NAME.fullmatch(found["name"]) and isinstance(found["sizeBytes"], int)
    return found if good else None


def in_manifest(run: KubeObject) -> dict[str, int]:
    """Return the names and sizes of the blobs in the spec and the annotations (JSON) of a run."""
    annotations = (run["metadata"].get("annotations") or {}).values()
    found = referred_to(msgspec.json.encode(run.get("spec")))
    for text in annotations:
        found |= referred_to(text.encode(errors="replace"))
    return found


def with_content(value: Any) -> Iterator[Reference]:
    """Yield the references in events, inputs, or JSON that still have their bytes."""
    if isinstance(value, Reference):
        if value.content is not None:
            yield value
        return
    for each in _within(value):
        yield from with_content(each)


def _within(value: Any) -> Iterable[Any]:
    match value:
        case Mapping():
            return value.values()
        case list() | tuple():
            return value
        case msgspec.Struct():
            return (getattr(value, name) for name in value.__struct_fields__)
        case _ if is_dataclass(value):
            return (getattr(value, field.name) for field in fields(value))
        case _:
            return ()


def owner_of(run: KubeObject) -> Json:
    """The owner reference that keeps a blob as long as a run exists."""
    meta = run["metadata"]
    return owner(meta["name"], meta["uid"])


def owner(name: str, uid: str, kind: str = "WorkflowRun") -> Json:
    """An owner reference."""
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid}


def first_part(reference: Reference, namespace: str, owned_by: Json | None) -> KubeObject:
    """The Payload with the name of a blob.

    Args:
        reference: The reference, with its bytes.
        namespace: The namespace of the run.
        owned_by: The run; None if it does not exist yet.
    """
    return _part(reference, namespace, 0, owned_by)


def further_parts(reference: Reference, namespace: str, first_uid: str) -> list[KubeObject]:
    """The other Payloads of a blob, which belong to the first one."""
    owned_by = owner(reference.name, first_uid, "Payload")
    return [_part(reference, namespace, number, owned_by) for number in range(1, parts_of(reference["sizeBytes"]))]


def parts_of(size: int) -> int:
    """Number of objects of a blob of this size, in bytes."""
    return max(1, -(-size // PART))


def part_name(name: str, number: int) -> str:
    """Name of one of the Payloads of a blob."""
    return f"{name}-{number}" if number else name


def _part(reference: Reference, namespace: str, number: int, owned_by: Json | None) -> KubeObject:
    assert reference.content is not None
    data = base64.b64encode(reference.content[number * PART : (number + 1) * PART]).decode()
    meta: Json = {"name": part_name(reference.name, number), "namespace": namespace}
    if owned_by is None:
        meta["labels"] = {UNCLAIMED_LABEL: "true"}
    else:
        meta["ownerReferences"] = [owned_by]
    spec = {"hash": reference["hash"], "sizeBytes": reference["sizeBytes"], "part": number, "data": data}
    return {"apiVersion": API_VERSION, "kind": "Payload", "metadata": meta, "spec": spec}


def joined(parts: Sequence[KubeObject], expected: str) -> bytes | None:
    """The bytes of a blob; None if they do not have the expected hash."""
    try:
        content = b"".join(
            base64.b64decode((part.get("spec") or {}).get("data") or "", validate=True) for part in parts
        )
    except (ValueError, TypeError):
        return None
    return content if hashlib.sha256(content).hexdigest() == expected else None
