"""Blobs: payloads too large for the status of a run, in Payload objects of their own. Pure.

The status of a run is one object, of which etcd takes 1.5 MiB, and which each commit writes. So what an SDK gives or returns
stays in it only up to 16 KiB. What is larger is a blob: the bytes of Temporal's `Payloads`, in Payload objects. The history only
refers to it. Many smaller payloads can be too large together, such as the inputs of a hundred activities: those that a `Room` has
no space for are blobs, too::

    {"payloads": {"hash": "<SHA-256>", "name": "payload-<32 hex digits>", "sizeBytes": 2000000}}

A reference is a value like any other to the engine. A blob of 2 MiB has three objects, since base64 makes a third more of it: the
first one bears the name, and belongs to the runs whose history refers to it; the others belong to the first. The garbage
collector removes them with the last of these runs. Nobody changes them.

    frontend: Reference with its bytes ─▶ engine ─▶ commit: Payloads are made, then the status that refers to them is written

What is made for a commit that fails is removed, unless the next commit refers to it. Names are random and belong to one request
in one process, so it is certain who else may use them; a request that is sent again to the API server finds its own.
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
from perdure.engine.opaque import referred_to
from perdure.runtime.attempts import KubeObject

INLINE: Final = 16 * 1024
"""Bytes up to which payloads stand in the status: the tail of a history, 48 KiB, still has room for several."""
ALWAYS_INLINE: Final = 512
"""Bytes up to which payloads always stay in the status: a reference has a third of that."""
ROOM: Final = 256 * 1024
"""Size up to which the payloads in a response of a worker can make the status grow. It has room for four times as much: the input
of an open activity is in it twice, in the history and in the state, and base64 takes a third more."""
PART: Final = 768 * 1024
"""Bytes in one object: 1 MiB as base64, where etcd takes 1.5 MiB with everything around it."""

_NAME = re.compile(r"payload-[0-9a-f]{32}")
_FIELDS = {"hash", "name", "sizeBytes"}

Json = dict[str, Any]


class Reference(Json):
    """Refers to a blob. One that was just made has its bytes too, until they are stored; JSON has only the fields."""

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

    def takes(self, size: int) -> bool:
        """Whether a payload of this size stays in the status; if it does, it uses up its space."""
        fits = size <= ALWAYS_INLINE or size <= min(INLINE, self._left)
        self._left -= size if fits else 0
        return fits


def refer(content: bytes) -> Json:
    """The value that stands for a blob in a history.

    Args:
        content: Temporal's message `Payloads`, in bytes.
    """
    made = Reference(
        hash=hashlib.sha256(content).hexdigest(), name=f"payload-{uuid.uuid4().hex}", sizeBytes=len(content)
    )
    made.content = content
    return {"payloads": made}


def reference_in(value: Any) -> Mapping[str, Any] | None:
    """The reference that a value is; None if it is another value."""
    if not isinstance(value, Mapping) or set(value) != {"payloads"}:
        return None
    found = value["payloads"]
    if not isinstance(found, Mapping) or set(found) != _FIELDS:
        return None
    good = isinstance(found["name"], str) and _NAME.fullmatch(found["name"]) and isinstance(found["sizeBytes"], int)
    return found if good else None


def given_to(run: KubeObject) -> dict[str, int]:
    """Names and sizes of the blobs that a run begins with: in its spec, and in its annotations, which are JSON."""
    annotations = (run["metadata"].get("annotations") or {}).values()
    found = referred_to(msgspec.json.encode(run.get("spec")))
    for text in annotations:
        found |= referred_to(text.encode(errors="replace"))
    return found


def with_content(value: Any) -> Iterator[Reference]:
    """The references in events, inputs or JSON that still have their bytes."""
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
    """The owner reference that makes a blob stay as long as a run."""
    meta = run["metadata"]
    return owner(meta["name"], meta["uid"])


def owner(name: str, uid: str, kind: str = "WorkflowRun") -> Json:
    """An owner reference."""
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid}


def first_part(reference: Reference, namespace: str, owned_by: Json | None) -> KubeObject:
    """The Payload that bears the name of a blob.

    Args:
        reference: With its bytes.
        namespace: Of the run.
        owned_by: The run; None for one that is about to be made.
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


def joined(parts: Sequence[KubeObject], wanted: str) -> bytes | None:
    """The bytes of a blob; None if they are not those with the hash that is wanted."""
    try:
        content = b"".join(
            base64.b64decode((part.get("spec") or {}).get("data") or "", validate=True) for part in parts
        )
    except (ValueError, TypeError):
        return None
    return content if hashlib.sha256(content).hexdigest() == wanted else None
