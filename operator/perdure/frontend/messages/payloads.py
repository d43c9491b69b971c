"""Convert payloads: opaque bytes with metadata in Temporal's API, JSON in Perdure.

A payload of plain JSON that the API server returns byte by byte is stored as that JSON, so that users can read it, and code and
YAML can call each other. All others (binary, encrypted, compressed, numbers that are not integers) are stored in base64::

    {"orderId": 7}                                                     one payload, json/plain
    {"payloads": [{"json": 1}, {"json": null}]}                        any number of them
    {"payloads": [{"metadata": {"encoding": "binary/plain"}, "data": "AAE="}]}

Payloads of more than 16 KiB, and payloads without room in the status, are stored in a blob, as bytes (``runtime/blobs.py``), and
the JSON is a reference to it. `resolved` converts data to messages again after it has read the blobs that were missing.
"""

import base64
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict
from temporalio.api.common.v1 import Header, Memo, Payload, Payloads, SearchAttributes
from temporalio.api.sdk.v1 import UserMetadata

from perdure.api.search_attributes import (
    PREDEFINED,
    SYSTEM,
    AttributeType,
    attribute_time,
    attribute_type,
    attribute_value,
    unfit,
)
from perdure.engine.payloads import MARK
from perdure.frontend.messages import values
from perdure.frontend.messages.values import UnfitError
from perdure.runtime.blobs import Reference, Room, refer, reference_in

_LARGEST = 2**53
"""Programs that read all numbers as floating point may change larger integers."""
_DEEPEST = 64
_Made = TypeVar("_Made")
MAX_ATTRIBUTES = 100
"""Maximum number of search attributes of one run."""


def canonical(value: Any) -> bytes:
    """Encode JSON like Temporal's Python SDK."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether the API server returns a JSON value unchanged."""
    match value:
        case None | bool():
            return True
        case str():
            return _is_text(value)
        case int():
            return -_LARGEST < value < _LARGEST
        case list():
            return depth < _DEEPEST and all(_is_plain(each, depth + 1) for each in value)
        case dict():
            return depth < _DEEPEST and all(
                _is_text(name) and _is_plain(each, depth + 1) for name, each in value.items()
            )
        case _:
            return False


def _is_text(value: str) -> bool:
    """Whether a string can be encoded: JSON can contain unpaired surrogates, which cannot."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _readable(payload: Payload) -> tuple[bool, Any]:
    """Whether a payload is JSON that is restored byte by byte, and its value."""
    if dict(payload.metadata) != {"encoding": b"json/plain"} or MARK in payload.data or payload.external_payloads:
        return False, None
    try:
        value = json.loads(payload.data)
    except (ValueError, RecursionError):
        return False, None
    return _is_plain(value) and canonical(value) == payload.data, value


def _one_to_json(payload: Payload) -> Any:
    readable, value = _readable(payload)
    if readable:
        return {"json": value}
    metadata: dict[str, str] = {}
    binary: dict[str, str] = {}
    for name, content in payload.metadata.items():
        try:
            metadata[name] = content.decode()
        except UnicodeDecodeError:
            binary[name] = base64.b64encode(content).decode()
    wrapped: dict[str, Any] = {"metadata": metadata}
    if binary:
        wrapped["binaryMetadata"] = binary
    if payload.data:
        wrapped["data"] = base64.b64encode(payload.data).decode()
    if payload.external_payloads:
        wrapped["externalPayloads"] = [{"sizeBytes": each.size_bytes} for each in payload.external_payloads]
    return wrapped


class _External(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A reference to data that an SDK stores externally."""

    size_bytes: int


class _Wrapped(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One payload as it is stored; its bytes are base64."""

    metadata: dict[str, str] = {}
    binary_metadata: dict[str, bytes] = {}
    data: bytes = b""
    external_payloads: list[_External] = []


def _one_from_json(wrapped: Any) -> Payload:
    """Convert one wrapped payload.

    Raises:
        msgspec.ValidationError: The value is not a wrapped payload.
    """
    if isinstance(wrapped, Mapping) and "json" in wrapped:
        return _plain(wrapped["json"])
    found = msgspec.convert(wrapped, _Wrapped)
    metadata = {name: content.encode() for name, content in found.metadata.items()}
    outside = [Payload.ExternalPayloadDetails(size_bytes=each.size_bytes) for each in found.external_payloads]
    return Payload(metadata=metadata | found.binary_metadata, data=found.data, external_payloads=outside)


def _plain(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=canonical(value))


def to_json(
    payloads: Sequence[Payload], *, allow_blob: bool = False, room: Room | None = None, limit: int = values.MAX_INLINE
) -> Any:
    """Convert payloads to JSON: None for no payloads, the value itself for one payload of plain JSON.

    Args:
        payloads: The payloads.
        allow_blob: Whether large payloads may become a blob: only in data that becomes part of a history and that only SDKs read.
        room: The space in the status, shared with other payloads; None: only for these payloads.
        limit: The size limit in bytes without a blob. The limit of a blob is that of Temporal's server.

    Raises:
        UnfitError: There are too many values, or they are too large.
    """
    values.check_count(payloads)
    values.check_total_size(payloads, values.MAX_BLOB if allow_blob else limit)
    if allow_blob and not (room or Room()).reserve(sum(each.ByteSize() for each in payloads)):
        return refer(Payloads(payloads=payloads).SerializeToString())
    found = [_one_to_json(payload) for payload in payloads]
    if not found:
        return None
    if len(found) == 1 and "json" in found[0]:
        value = found[0]["json"]
        if value is not None and not _is_wrapped(value):
            return value
    return {"payloads": found}


def from_json(value: Any) -> list[Payload]:
    """Convert JSON to payloads. A value that no SDK has written becomes one payload of plain JSON."""
    if value is None:
        return []
    reference = reference_in(value)
    if reference is not None:
        return list(Payloads.FromString(_content_of(reference)).payloads)
    if _is_wrapped(value):
        with suppress(msgspec.ValidationError):
            return [_one_from_json(wrapped) for wrapped in value["payloads"]]
    return [_plain(value)]


@dataclass(slots=True)
class KnownBlobs:
    """The blobs that were read, and the references to missing blobs."""

    contents: dict[str, bytes] = field(default_factory=dict)
    missing: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: int = values.UNLIMITED
    """Size limit of all blobs in bytes; blobs beyond it stay empty."""

    @property
    def missing_bytes(self) -> int:
        """The total size of the missing blobs, in bytes."""
        return sum(each["sizeBytes"] for each in self.missing.values())


_known: ContextVar[KnownBlobs] = ContextVar("blobs")


async def resolved(known: KnownBlobs, make: Callable[[], _Made], read: Callable[[], Awaitable[None]]) -> _Made:
    """Build something with the contents of blobs.

    Args:
        known: The blobs that were read, to which `read` adds others.
        make: Builds it. References to missing blobs are recorded, and it is called again once they were read.
        read: Reads the missing blobs.
    """
    while True:
        known.missing.clear()
        before = _known.set(known)
        try:
            made = make()
        finally:
            _known.reset(before)
        if not known.missing:
            return made
        await read()


def missing_bytes() -> int:
    """The bytes missing so far by what `resolved` calls; 0 outside of it."""
    known = _known.get(None)
    return known.missing_bytes if known is not None else 0


def _content_of(reference: Mapping[str, Any]) -> bytes:
    """The content of a blob.

    Raises:
        LookupError: The blob was not read.
    """
    if isinstance(reference, Reference) and reference.content is not None:
        return reference.content
    known = _known.get()
    content = known.contents.get(reference["name"])
    if content is not None:
        return content
    if known.missing_bytes + sum(map(len, known.contents.values())) + reference["sizeBytes"] <= known.limit:
        known.missing[reference["name"]] = reference
    return b""


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"payloads"} and isinstance(value["payloads"], list)


def payloads(value: Any) -> Payloads | None:
    """Convert JSON to a message of payloads; None if there are none."""
    return None if value is None else Payloads(payloads=from_json(value))


def one_payload(value: Any) -> Payload:
    """Convert a value to its one payload."""
    found = from_json(value)
    return found[0] if found else _plain(None)


def null_payload() -> Payload:
    """Return the payload for a Nexus operation without a payload, which must have one."""
    return Payload(metadata={"encoding": b"binary/null"})


def one_to_json(payload: Payload) -> Any:
    """Convert one payload to JSON, which is never None."""
    return to_json([payload])


def fields_to_json(fields: Mapping[str, Payload], limit: int = values.MAX_BLOB) -> dict[str, Any] | None:
    """Convert the fields of a header or memo to JSON; None if there are none.

    Raises:
        UnfitError: There are too many values, or they are too large.
    """
    values.check_count(fields)
    values.check_total_size(fields.values(), limit)
    return {name: one_to_json(payload) for name, payload in fields.items()} or None


def header_to_json(message: Any) -> dict[str, Any] | None:
    """Convert the header of a message to JSON; None if it is not set, which differs from an empty header.

    Raises:
        UnfitError: There are too many fields, or they are too large.
    """
    return (fields_to_json(message.header.fields) or {}) if message.HasField("header") else None


def header(value: Any) -> Header | None:
    """Convert JSON to a header."""
    return None if value is None else Header(fields={name: one_payload(each) for name, each in value.items()})


def memo(value: Any) -> Memo | None:
    """Convert JSON to a memo."""
    return Memo(fields={name: one_payload(each) for name, each in value.items()}) if value else None


def is_removal(payload: Payload) -> bool:
    """Whether a payload requests the removal of an entry."""
    encoding = payload.metadata.get("encoding", b"")
    return encoding == b"binary/null" or payload.data in {b"null", b"[]"} or (not encoding and not payload.data)


def memo_to_json(memo: Memo) -> dict[str, Any] | None:
    """Convert a memo to JSON; None if there is none.

    Raises:
        UnfitError: The memo is too large.
    """
    return fields_to_json(memo.fields, values.MAX_MEMO)


def upserted(fields: Mapping[str, Payload]) -> dict[str, Any]:
    """Convert changes of a memo; None removes an entry.

    Raises:
        UnfitError: The values are too large.
    """
    values.check_count(fields)
    values.check_total_size(fields.values(), values.MAX_MEMO)
    return {name: None if is_removal(payload) else one_to_json(payload) for name, payload in fields.items()}


# Search attributes: {"Name": value}, or {"Name": {"type": "Text", "value": value}} if the value does not imply the type

_SET_BY_SERVERS = frozenset(
    {"TemporalWorkerDeployment", "TemporalWorkerDeploymentVersion", "TemporalWorkflowVersioningBehavior"}
)
"""Predefined search attributes that clients and workers cannot set."""


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _is_string(value: Any) -> bool:
    return isinstance(value, str) and _is_text(value)


def _is_time(value: Any) -> bool:
    found = attribute_time(value) if isinstance(value, str) else None
    return found is not None and found.tzinfo is not None


_FITS: dict[str, Callable[[Any], bool]] = {
    AttributeType.KEYWORD: _is_string,
    AttributeType.TEXT: _is_string,
    AttributeType.INT: _is_integer,
    AttributeType.DOUBLE: _is_number,
    AttributeType.BOOL: lambda value: isinstance(value, bool),
    AttributeType.DATETIME: _is_time,
    AttributeType.KEYWORD_LIST: lambda value: isinstance(value, list) and all(map(_is_string, value)),
}
"""The Python types that each type of search attribute accepts."""
ATTRIBUTE_TYPES = tuple(_FITS)
"""The types of search attributes."""


def attribute_to_json(payload: Payload, kind: str) -> Any:
    """Convert a search attribute to JSON; None if it removes the attribute.

    Args:
        payload: The value.
        kind: The type, which overrides the type in the payload.

    Raises:
        UnfitError: The value does not have this type.
    """
    if is_removal(payload):
        return None
    try:
        value = json.loads(payload.data)
    except (ValueError, RecursionError):
        raise UnfitError(payload.data[:100].decode(errors="replace")) from None
    if isinstance(value, list) and kind != "KeywordList" and len(value) == 1:
        value = value[0]
    if not _FITS[kind](value):
        raise UnfitError(str(value)[:100].encode(errors="replace").decode())
    named = payload.metadata.get("type", b"").decode(errors="replace")
    sent = {"sent": named} if named in _FITS and named != kind else {}
    if sent or isinstance(value, float) or attribute_type(value) != kind:
        return {"type": kind, "value": str(value) if isinstance(value, float) else value, **sent}
    return value


def attribute(value: Any, name: str = "", *, registered: bool = False) -> Payload:
    """Convert a search attribute to a payload with its type.

    Args:
        value: The stored value.
        name: The name of the attribute.
        registered: Whether to use the registered type, as in lists, even if the sent payload had another type.
    """
    kind, content = attribute_type(value, name), attribute_value(value)
    if kind == "Double" and isinstance(content, str):
        with suppress(ValueError):
            content = float(content)
    if not registered and isinstance(value, Mapping):
        kind = value.get("sent", kind)
    return Payload(metadata={"encoding": b"json/plain", "type": kind.encode()}, data=canonical(content))


def attributes_to_json(
    fields: Mapping[str, Payload], types: Mapping[str, str], namespace: str, *, keep_removed: bool = False
) -> dict[str, Any]:
    """Convert search attributes to JSON.

    Args:
        fields: The values by name.
        types: The types of registered search attributes.
        namespace: The namespace in which they are registered.
        keep_removed: Whether to keep attributes without a value, as None.

    Raises:
        UnfitError: There are too many, one is not registered, or a value has the wrong type. The message names it.
    """
    if len(fields) > MAX_ATTRIBUTES:
        raise UnfitError(f"number of search attributes {len(fields)} exceeds limit {MAX_ATTRIBUTES}")
    found = {}
    for name, payload in fields.items():
        if name in SYSTEM or name in _SET_BY_SERVERS:
            raise UnfitError(f"{name} attribute can't be set in SearchAttributes")
        kind = PREDEFINED.get(name) or types.get(name)
        if kind is None:
            raise UnfitError(f"Namespace {namespace} has no mapping defined for search attribute {name[:100]}")
        try:
            found[name] = attribute_to_json(payload, kind)
        except UnfitError as error:
            raise UnfitError(f"invalid value for search attribute {name} of type {kind}: {error}") from None
    kept = {name: value for name, value in found.items() if value is not None}
    for name, why in unfit(kept).items():
        raise UnfitError(f"search attribute {name!r}: {why}")
    return found if keep_removed else kept


def attributes(value: Mapping[str, Any] | None, *, registered: bool = False) -> SearchAttributes | None:
    """Convert JSON to search attributes, with the sent or the registered types."""
    if not value:
        return None
    removed = Payload(metadata={"encoding": b"json/plain"}, data=b"[]")
    return SearchAttributes(
        indexed_fields={
            name: removed if each is None else attribute(each, name, registered=registered)
            for name, each in value.items()
        }
    )


# User metadata, and messages that only pass through


def user_metadata_to_json(metadata: UserMetadata) -> dict[str, Any] | None:
    """Convert summary and details to JSON; None if there are none.

    Raises:
        UnfitError: The metadata is too large.
    """
    found = {name: one_to_json(getattr(metadata, name)) for name in ("summary", "details") if metadata.HasField(name)}
    return found or None


def user_metadata(value: Any) -> UserMetadata | None:
    """Convert JSON to summary and details."""
    return UserMetadata(**{name: one_payload(each) for name, each in value.items()}) if value else None


def message_to_json(message: Any) -> Any:
    """Convert an opaque message to JSON; None if it is empty."""
    return MessageToDict(message) or None


def message_from_json(value: Any, kind: Any) -> Any:
    """Convert JSON to an opaque message."""
    return ParseDict(value, kind(), ignore_unknown_fields=True)
