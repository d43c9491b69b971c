"""Search attributes: how a run carries what it can be found by. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import NAME_LIMIT, label_value

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

MAX_ALL = 40 * 1024
"""Bytes of all values together, as Temporal's servers have it (`limit.searchAttributesTotalSize`)."""
MAX_VALUE = 2_048
"""Bytes of one value, as Temporal's servers have it (`limit.searchAttributesSizeOfValue`); a run has 100 at the most."""


def unfit(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Those that a run cannot carry, by name, and why."""
    found: dict[str, str] = {}
    size = 0
    for name, value in attributes.items():
        text = _text(value)
        length = len((text or "").encode("utf-8", "surrogatepass"))
        if len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
            found[name] = "must be 1 to 63 letters, digits, `-`, `_` or `.`: it becomes a label"
        elif text is None:
            found[name] = "is nested too deep: make it a text"
        elif length > MAX_VALUE:
            found[name] = f"has more than {MAX_VALUE:,} bytes: what is so large belongs into the input"
        elif size + length > MAX_ALL:
            found[name] = f"is too much: all values together may have {MAX_ALL:,} bytes"
        else:
            size += length
    return found


def search_marks(attributes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels where the value fits into one, annotations where not; of what is no text, its JSON.

    What a run cannot carry is left out: one that is refused for it is to be found by the others.
    """
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    wrong = unfit(attributes)
    for name, value in attributes.items():
        text = _text(value)
        if name not in wrong and text is not None:
            (labels if label_value(text) == text else annotations)[f"{SEARCH_PREFIX}{name}"] = text
    return labels, annotations


def _text(value: Any) -> str | None:
    """A value as text, if it can be written."""
    try:
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        return None
