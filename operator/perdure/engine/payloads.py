"""Payloads in JSON: their plain values for readers that are not SDKs (YAML, pods, users), and the blobs that a text refers to.

``frontend/messages/payloads.py`` describes how payloads of SDKs are stored; plain JSON is a value like any other.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from perdure.api.json_values import nests_deeper

MARK = b'{"payloads":{"hash":"'
"""The beginning of a reference to a blob in JSON, as the API server and msgspec write it (``runtime/blobs.py``)."""
_REFERENCE = re.compile(MARK + rb'([0-9a-f]{64})","name":"(payload-[0-9a-f]{32})","sizeBytes":(\d{1,9})\}\}')

_NAME = re.compile("payload-[0-9a-f]{32}")
_NAMED = b'"name":"payload-'
_FIELDS = frozenset({"hash", "name", "sizeBytes"})


def plain(value: Any) -> Any:
    """Return payloads as JSON: one payload as its value, several as a list. A payload that is not JSON stays wrapped.

    A payload that nests too deeply to be encoded again stays wrapped, too. Integers beyond 64 bits lose digits.
    """
    if not isinstance(value, Mapping) or set(value) != {"payloads"} or not isinstance(value["payloads"], list):
        return value
    found = [_one(wrapped) for wrapped in value["payloads"]]
    return found[0] if len(found) == 1 else found


def readable(value: Any) -> Any:
    """Return a value for users, with all payloads in it as JSON (see `plain`), also those of a memo or a header."""
    if nests_deeper(value):
        return value
    if isinstance(value, Mapping):
        wrapped = value.get("payloads")
        if len(value) == 1 and isinstance(wrapped, list) and all(map(_is_wrapped, wrapped)):
            return plain(value)
        return {name: readable(each) for name, each in value.items()}
    return [readable(each) for each in value] if isinstance(value, list) else value


def _is_wrapped(value: Any) -> bool:
    return isinstance(value, Mapping) and ("json" in value or "metadata" in value)


def _one(wrapped: Any) -> Any:
    if not isinstance(wrapped, Mapping) or "json" in wrapped:
        return wrapped["json"] if isinstance(wrapped, Mapping) else wrapped
    encoding = (wrapped.get("metadata") or {}).get("encoding")
    if encoding == "binary/null":
        return None
    if encoding in {"json/plain", "json/protobuf"}:
        try:
            value = orjson.loads(base64.b64decode(wrapped.get("data") or ""))
        except ValueError:
            return wrapped
        return wrapped if nests_deeper(value) else value  # a wrapped value fits into a status regardless of its depth
    return wrapped


def referred_to(text: bytes) -> dict[str, int]:
    """Return the names and sizes of the blobs that a JSON text refers to, ignoring the strings in it."""
    if MARK not in text:
        return {}
    return {found[2].decode(): int(found[3]) for found in _REFERENCE.finditer(text)}


def newer_reference(value: Any) -> str:
    """Say what only a newer version can read in the references to blobs in a JSON value; empty if there is nothing.

    Args:
        value: The value, from a status or a spec.
    """
    try:
        text = orjson.dumps(value)
    except TypeError:
        return ""  # it nests too deeply, and no operator has written it
    named = text.count(_NAMED)
    if not named or named == len(_REFERENCE.findall(text)):
        return ""  # also if the names are in a value of a user, who cannot write a reference
    unknown = next((key for found in references(value) for key in sorted(found.keys() - _FIELDS)), "")
    return f"unknown field `{unknown}` in a reference to a payload" if unknown else ""


def references(value: Any) -> Iterator[Mapping[str, Any]]:
    """The references in a JSON value, whatever other fields they have."""
    if isinstance(value, Mapping):
        found = value.get("payloads")
        if isinstance(found, Mapping) and found.keys() >= _FIELDS and _NAME.fullmatch(str(found["name"])):
            yield found
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from references(each)


def size_of(text: bytes) -> int:
    """The size of a JSON text in bytes, including the blobs that it refers to."""
    return len(text) + sum(referred_to(text).values())
