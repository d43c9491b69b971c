"""Search attributes: what may be said by them. They become labels and annotations of the run."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import NAME_LIMIT

LARGEST: Final = 65_536
"""Bytes that all of one run may have, names and values: a quarter of what Kubernetes lets annotations have."""

_MISNAMED: Final = (
    f"must be named with 1 to {NAME_LIMIT} letters, digits, `-`, `_` or `.`, a letter or digit first and last: the name becomes "
    "that of a label"
)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def written(value: Any) -> str:
    """A value as a label or annotation has it: text as it is, of all else its JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def mistakes_in(attributes: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """What is wrong with search attributes: the name, None where it is all of them together, and a sentence."""
    for name in attributes:
        if len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
            yield name, _MISNAMED
    size = sum(
        len(f"{SEARCH_PREFIX}{name}{written(value)}".encode(errors="replace")) for name, value in attributes.items()
    )
    if size > LARGEST:
        yield None, f"have {size:,} bytes, names and values; they may have {LARGEST:,}: keep large data elsewhere"
