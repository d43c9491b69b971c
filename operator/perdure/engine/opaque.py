"""Payloads of Temporal SDKs, for readers that are not SDKs: YAML, pods, people.

``frontend/payload_messages.py`` describes how they are stored; plain JSON is a value like any other.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

import orjson

from perdure.api.depth import nests_deeper

MARK = b'{"payloads":{"hash":"'
"""How a reference to a blob begins in JSON, as the API server and msgspec write it (``runtime/blobs.py``)."""
_REFERENCE = re.compile(MARK + rb'([0-9a-f]{64})","name":"(payload-[0-9a-f]{32})","sizeBytes":(\d{1,9})\}\}')


def plain(value: Any) -> Any:
    """The value as JSON if possible: one payload is itself, several are a list. A payload that is not JSON stays wrapped.

    So does what could not be written again, as it nests too deep. Of whole numbers beyond 64 bits, digits are lost.
    """
    if not isinstance(value, Mapping) or set(value) != {"payloads"} or not isinstance(value["payloads"], list):
        return value
    found = [_one(wrapped) for wrapped in value["payloads"]]
    return found[0] if len(found) == 1 else found


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
        return wrapped if nests_deeper(value) else value  # what stays wrapped fits into a status however deep it nests
    return wrapped


def referred_to(text: bytes) -> dict[str, int]:
    """Names and sizes of the blobs that a JSON text refers to. Within a string of the text nothing counts."""
    if MARK not in text:
        return {}
    return {found[2].decode(): int(found[3]) for found in _REFERENCE.finditer(text)}


def size_of(text: bytes) -> int:
    """Bytes of a JSON text, with the blobs that it refers to."""
    return len(text) + sum(referred_to(text).values())
