"""Search attributes: how a run carries what it can be found by. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Any

from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import NAME_LIMIT, label_value

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def misnamed(attributes: Mapping[str, Any]) -> list[str]:
    """The names that cannot be those of a label or annotation."""
    return [name for name in attributes if len(name) > NAME_LIMIT or not _NAME.fullmatch(name)]


def search_marks(attributes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Labels where the value fits into one, annotations where not; of what is no text, its JSON."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for name, value in attributes.items():
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        (labels if label_value(text) == text else annotations)[f"{SEARCH_PREFIX}{name}"] = text
    return labels, annotations
