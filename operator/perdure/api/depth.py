"""How deep a value may nest. The API server takes values that nest 10,000 deep; what writes JSON here takes 254 levels in all."""

from typing import Any, Final

MAX_DEPTH: Final = 200
"""Levels of a value that a run carries along: inside of its status and its events, it nests some more."""


def nests_deeper(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a value nests more than that many levels; found level by level, so that the deepest one costs no stack."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
