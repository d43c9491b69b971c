"""Translates functions of Sprig, whose arguments have another order than those of expr-lang, to CEL."""

import re
from collections.abc import Callable, Sequence
from typing import Final

_TEXT: Final = "string"
_WHOLE: Final = "int"
_ANY: Final = ""
_FIXED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "upper": ((_TEXT,), "{0}.upperAscii()"),
    "lower": ((_TEXT,), "{0}.lowerAscii()"),
    "trim": ((_TEXT,), "{0}.trim()"),
    "replace": ((_TEXT, _TEXT, _TEXT), "{2}.replace({0}, {1})"),
    "splitList": ((_TEXT, _TEXT), "{1}.split({0})"),
    "join": ((_TEXT, _ANY), "{1}.join({0})"),
    "contains": ((_TEXT, _TEXT), "{1}.contains({0})"),
    "hasPrefix": ((_TEXT, _TEXT), "{1}.startsWith({0})"),
    "hasSuffix": ((_TEXT, _TEXT), "{1}.endsWith({0})"),
    "b64enc": ((_TEXT,), "base64.encode(bytes({0}))"),
    "sub": ((_WHOLE, _WHOLE), "({0} - {1})"),
    "div": ((_WHOLE, _WHOLE), "({0} / {1})"),
    "mod": ((_WHOLE, _WHOLE), "({0} % {1})"),
    "int": ((_WHOLE,), "{0}"),
    "int64": ((_WHOLE,), "{0}"),
    "atoi": ((_WHOLE,), "{0}"),
    "float64": ((_ANY,), "double({0})"),
    "toString": ((_TEXT,), "{0}"),
    "first": ((_ANY,), "{0}[0]"),
    "last": ((_ANY,), "{0}[size({0}) - 1]"),
    "toJson": ((_ANY,), "{0}"),
    "fromJson": ((_ANY,), "{0}"),
}
"""The types of the arguments, and the expression."""
_SUMMARIES: Final[dict[str, Callable[[Sequence[str]], str]]] = {
    "add": lambda values: f"({' + '.join(values)})",
    "mul": lambda values: f"({' * '.join(values)})",
    "max": lambda values: f"math.greatest({', '.join(values)})",
    "min": lambda values: f"math.least({', '.join(values)})",
}
"""Functions of any number of whole numbers."""


_PARTS: Final = {"2006": (0, 4), "01": (5, 7), "02": (8, 10), "15": (11, 13), "04": (14, 16), "05": (17, 19)}
"""The parts of a layout of Go, and where they are in a time in RFC 3339."""
_LAYOUT: Final = re.compile(r"(2006|01|02|15|04|05)|([-/:. TZ]+)")


def called(name: str, arguments: Sequence[str]) -> str | None:
    """Return the expression for a call; None if the function has no counterpart.

    Args:
        name: The function.
        arguments: The expressions of its arguments.
    """
    if name in _SUMMARIES and arguments:
        return _SUMMARIES[name]([f"int({each})" for each in arguments])
    if name == "date" and len(arguments) == 2:  # noqa: PLR2004 (the layout and the time)
        return _date(*arguments)
    kinds, made = _FIXED.get(name, ((), ""))
    if not made or len(kinds) != len(arguments):
        return None
    values = [f"{kind}({each})" for kind, each in zip(kinds, arguments, strict=True)]
    return made.format(*values)


def _date(layout: str, time: str) -> str | None:
    """Return the expression that formats a time in UTC; None if the layout has other parts than numbers with all digits."""
    text, made, end = layout.strip("'"), [], 0
    for found in _LAYOUT.finditer(text):
        if found.start() != end:
            break
        start, stop = _PARTS.get(found[1], (0, 0))
        made.append(f"string({time}).substring({start}, {stop})" if found[1] else f"'{found[2]}'")
        end = found.end()
    return f"({' + '.join(made)})" if made and end == len(text) else None
