"""The maximum depth of values: the API server accepts 10,000 levels, but the JSON encoder of the operator only 254.

This module needs no models, so commands can import it before their first request.
"""

from typing import Any, Final

MAX_DEPTH: Final = 200
"""Maximum number of levels of a value of a run. In the status and in events, it nests deeper."""


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
