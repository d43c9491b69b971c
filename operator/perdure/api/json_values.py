"""JSON of any origin: values of an unexpected type count as missing, and values that nest too deeply are found.

Only the standard library is imported, so commands can use it before their first request.
"""

from typing import Any, Final

Json = dict[str, Any]

MAX_DEPTH: Final = 200
"""Maximum number of levels of a value of a run. In the status and in events, it nests deeper: the API server accepts 10,000
levels, but the JSON encoder of the operator only 254."""


def nests_deeper(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a value nests deeper than `levels`. The search is iterative, so that deep values do not overflow the stack."""
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


def mapping(value: Any) -> Json:
    """Return an object; an empty one if the value is not an object."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Json]:
    """Return the objects of a list; an empty list if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def integer(value: Any) -> int | None:
    """Return a whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: Any) -> str:
    """Return a string; an empty one if the value is not a string."""
    return value if isinstance(value, str) else ""
