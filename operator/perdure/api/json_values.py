"""JSON of any origin: values of an unexpected type count as missing, and values that nest too deeply are found.

Only the standard library is imported, so commands can use it before their first request.
"""

import json
import re
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


_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9]", re.ASCII)


def exact_integer(digits: str) -> int | str:
    """Return an integer, or its digits if it has more than 64 bits: CEL and the API server would change them.

    Args:
        digits: An integer as JSON writes it.
    """
    value = int(digits) if len(digits) <= len(str(-(2**63))) else None
    return value if value is not None and -(2**63) <= value < 2**63 else digits


def exact_number(text: str) -> int | float | None:
    """Return the number that a text is, if writing the number again gives the same text; otherwise None.

    So a version (`1.10`), a commit (`1e3`), a key (`007`, `-0`), and a large identifier remain texts: converting them to
    numbers would change them (argo-workflows#3990). Numbers with exponents count as texts, because JSON, Go, and CEL write
    them in different ways.

    Args:
        text: The text, without the newline at its end.
    """
    if _INTEGER.fullmatch(text):
        value = exact_integer(text)
        return value if isinstance(value, int) else None
    if _DECIMAL.fullmatch(text) and json.dumps(float(text)) == text:
        return float(text)
    return None


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
