"""Canonical JSON: a value has the same hash before it is written to the API server and after it is read back. Pure."""

import re
from typing import Any, Final

import orjson

_LARGEST_INTEGER: Final = 2**63
"""The API server keeps integers below this bound; it turns larger ones into floating-point numbers."""

_RESPELLED: Final = re.compile(rb"[:\[,]-?(?:\d+\.\d+|\d+(?:\.\d+)?[eE][-+]?\d+|\d{19,})[,\]}]")
"""A number that the API server may write differently. A match inside a string only costs time."""


def canonical(value: dict[str, Any] | list[Any]) -> bytes:
    """Return JSON without spaces, with sorted keys, and with numbers as the API server returns them: 1.0 becomes 1.

    Raises:
        ValueError: The value cannot be written as JSON, or is nested too deeply.
    """
    try:
        return _written(value)
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise ValueError("the value cannot be written as JSON") from error


def _written(value: dict[str, Any] | list[Any]) -> bytes:
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, perhaps
        written = b""
    if written and not _RESPELLED.search(written):
        return written
    return orjson.dumps(_respelled(value), option=orjson.OPT_SORT_KEYS)


def _respelled(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: _respelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_INTEGER:
        return int(value)
    return value
