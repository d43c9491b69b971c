"""Translates the JSON paths of Argo's `jsonpath` to CEL."""

import re
from collections.abc import Callable
from typing import Final

from perdure.importing.field_reader import member

ITEM: Final = "each"
"""The variable for an item of a list."""
_PART: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][-A-Za-z0-9_]*)
    |\[(?P<index>[0-9]+)\]
    |\['(?P<quoted>[^']*)'\]
    |(?P<all>\[\*\]|\.\*)
    |\[(?P<start>[0-9]*):(?P<end>[0-9]*)\]
    |\[\?\((?P<test>(?:[^()]|\([^()]*\))*)\)\]""",
    re.VERBOSE,
)


def selected(value: str, path: str, condition: Callable[[str], str]) -> str | None:
    """Return the expression for a part of a value; None if the path has no counterpart.

    Args:
        value: The expression for the value.
        path: The path, such as `$.items[0].name`.
        condition: Translates a test on an item, such as `@.age > 42`.
    """
    rest, many = path.removeprefix("$"), False
    while rest:
        found = _PART.match(rest)
        if found is None or (many and found.lastgroup not in {"name", "index", "quoted"}):
            return None
        rest = rest[found.end() :]
        match found.lastgroup:
            case "all":
                many = True
            case "test":
                value, many = f"{value}.filter({ITEM}, {condition(found['test'])})", True
            case "end":
                value, many = f"{value}.slice({found['start'] or 0}, {found['end'] or f'size({value})'})", True
            case _:
                base = ITEM if many else value
                part = f"{base}[{found['index']}]" if found["index"] else member(base, found["name"] or found["quoted"])
                value = f"{value}.map({ITEM}, {part})" if many else part
    return value
