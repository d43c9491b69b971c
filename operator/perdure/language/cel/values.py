"""The values of CEL: their Python types, their names, and the ranges of their numbers.

A CEL value is plain Python: None, bool, int (64 bits), float, str, bytes, list, dict, an aware datetime, a timedelta, and
two classes of this module for values that JSON lacks (`Optional`, `TypeName`). Inputs are not converted.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.language.cel.errors import EvaluationError

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
DURATION_MAX: Final = timedelta(seconds=315_576_000_000)


@dataclass(frozen=True, slots=True)
class Optional:
    """A CEL optional: `optional.of(x)` or `optional.none()`."""

    present: bool
    value: Any = None


NONE: Final = Optional(present=False)


@dataclass(frozen=True, slots=True)
class TypeName:
    """The value of `type(x)`, which only supports comparisons."""

    name: str


_KINDS: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    datetime: "timestamp",
    timedelta: "duration",
    Optional: "optional",
    TypeName: "type",
}
TYPES: Final = {
    name: TypeName(name)
    for name in (
        *("bool", "int", "double", "string", "bytes", "list", "map", "type", "null_type", "optional_type"),
        *("google.protobuf.Timestamp", "google.protobuf.Duration"),
    )
}
"""The names of types in expressions."""


def kind(value: Any) -> str:
    """The CEL type of a value, as in the signatures of functions."""
    found = _KINDS.get(type(value))
    if found is not None:
        return found
    for cls, name in _KINDS.items():
        if isinstance(value, cls):
            return name
    raise EvaluationError(f"a Python {type(value).__name__} is not a JSON value")


def article(name: str) -> str:
    """A kind with its article, for sentences."""
    if name == "null":
        return name
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def number(value: float) -> float:
    """Return an int of 64 bits or a float; reject one that has overflowed."""
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("the result does not fit a 64-bit integer; use double() for larger numbers")
    return value


def span(value: timedelta) -> timedelta:
    """A duration within CEL's range."""
    if abs(value) > DURATION_MAX:
        raise EvaluationError("the duration is longer than 10,000 years")
    return value


def count(value: int) -> int:
    """Return a nonnegative number of things."""
    if value < 0:
        raise EvaluationError(f"{value} is negative")
    return value
