"""Translates functions of Sprig, whose arguments have another order than those of expr-lang, to CEL."""

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


def called(name: str, arguments: Sequence[str]) -> str | None:
    """Return the expression for a call; None if the function has no counterpart.

    Args:
        name: The function.
        arguments: The expressions of its arguments.
    """
    if name in _SUMMARIES and arguments:
        return _SUMMARIES[name]([f"int({each})" for each in arguments])
    kinds, made = _FIXED.get(name, ((), ""))
    if not made or len(kinds) != len(arguments):
        return None
    values = [f"{kind}({each})" for kind, each in zip(kinds, arguments, strict=True)]
    return made.format(*values)
