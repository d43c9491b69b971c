"""JSON values that Kubernetes stores without changing them."""

from __future__ import annotations

import json
from typing import Any

_LONGEST_INTEGER = 2**63
_DEEPEST = 200


def encode(value: Any) -> str:
    """Write a value as compact JSON.

    Args:
        value: Any JSON value.

    Returns:
        The text.

    Raises:
        TypeError: The value is not a JSON value.
        ValueError: Kubernetes cannot store the value unchanged: NaN, an integer beyond 64 bits, or lists nested too deeply.
    """
    _check(value, 0)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode()  # fails for half a surrogate pair
    return text


def decode(text: str) -> Any:
    """Decode JSON. Return any other text unchanged.

    Args:
        text: The text.

    Returns:
        The value.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _check(value: Any, depth: int) -> None:
    if isinstance(value, int):
        if not -_LONGEST_INTEGER <= value < _LONGEST_INTEGER:
            raise ValueError(f"the integer {value} is beyond 64 bits and would lose digits; pass it as a string")
    elif isinstance(value, dict | list | tuple):
        if depth >= _DEEPEST:
            raise ValueError(f"a payload must not be nested more than {_DEEPEST} levels deep")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)
