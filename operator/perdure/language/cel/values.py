"""The values of CEL: their Python types, names, ranges of numbers, equality and order, keys of maps, and text forms.

A CEL value is plain Python: None, bool, int (64 bits), float, str, bytes, list, dict, an aware datetime, a timedelta, and
two classes of this module for values that JSON lacks (`Optional`, `TypeName`). Inputs are not converted.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from perdure.language.cel.limits import MAX_DEPTH, EvaluationError, LimitError, Meter

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


# Equality, order, and membership


def equal(meter: Meter, left: Any, right: Any, depth: int = 0) -> bool:
    """CEL equality: numbers of any type by value, other types only with the same type, lists and maps deeply."""
    first, second = kind(left), kind(right)
    if first != second:
        return {first, second} == {"int", "double"} and bool(left == right)
    if first in {"list", "map", "optional"}:
        return _equal_inside(meter, first, left, right, depth)
    if first in {"string", "bytes"}:
        meter.charge((min(len(left), len(right)) >> 8) + 1)
    return bool(left == right)


def _equal_inside(meter: Meter, what: str, left: Any, right: Any, depth: int) -> bool:
    """Whether two lists, two maps, or two optionals are equal."""
    if depth >= MAX_DEPTH:
        raise LimitError(f"it compares values nested more than {MAX_DEPTH} deep")
    if what == "optional":
        return left.present == right.present and equal(meter, left.value, right.value, depth + 1)
    meter.charge(14)
    if len(left) != len(right):
        return False
    meter.charge(len(left) * 4)
    if what == "list":
        return all(equal(meter, a, b, depth + 1) for a, b in zip(left, right, strict=True))
    return all(key in right and equal(meter, item, right[key], depth + 1) for key, item in left.items())


_ORDERED: Final = {"bool", "int", "double", "string", "bytes", "timestamp", "duration"}


def comparable(meter: Meter, left: Any, right: Any) -> None:
    """Reject two values that cannot be ordered."""
    first, second = kind(left), kind(right)
    if first != second and {first, second} != {"int", "double"}:
        raise EvaluationError(f"{article(first)} cannot be compared with {article(second)}")
    if first not in _ORDERED:
        raise EvaluationError(f"{article(first)} has no order: only == and != work on it")
    if first in {"string", "bytes"}:
        meter.charge((min(len(left), len(right)) >> 8) + 1)


def contains(meter: Meter, item: Any, where: Any) -> bool:
    """`item in where`: an item of a list, or a key of a map."""
    holder = kind(where)
    if holder == "map":
        return has_key(where, item)
    if holder != "list":
        raise EvaluationError(f"`in` looks into a list or a map, not into {article(holder)}")
    if type(item) is str:
        meter.charge((len(where) >> 3) + (len(where) * len(item) >> 11) + 1)
        return item in where
    meter.charge(len(where) * 4)
    return any(equal(meter, item, other) for other in where)


# Keys of maps


def map_key(key: Any) -> Any:
    """Convert a key to its form in a map: a string or an integer; a whole double becomes an integer."""
    if type(key) is str or type(key) is int:
        return key
    if type(key) is float and key.is_integer():
        return int(key)
    type_name = kind(key)
    if type_name in {"string", "int"}:
        return key
    raise EvaluationError(f"{article(type_name)} cannot be the key of a map; use a string")


def has_key(where: dict[Any, Any], key: Any) -> bool:
    """Whether a map has the key; a value that cannot be a key is not in the map."""
    try:
        return map_key(key) in where
    except EvaluationError:
        return False


def sorted_keys(meter: Meter, value: dict[Any, Any]) -> list[Any]:
    """Return the keys of a map in an order that does not depend on the machine or on how the map was built or stored."""
    meter.charge(len(value) * 4)
    return sorted(value, key=lambda key: (not isinstance(key, str), key))


_MICROSECOND: Final = timedelta(microseconds=1)


def _fraction(micros: int) -> str:
    """The part below a second, as CEL writes it: nothing, three digits or six."""
    if not micros:
        return ""
    return f".{micros:06d}" if micros % 1_000 else f".{micros // 1_000:03d}"


def format_timestamp(value: datetime) -> str:
    """RFC 3339 in UTC, with as many digits of the fraction as needed."""
    if value.tzinfo is None:
        raise EvaluationError("a time without a zone is not a timestamp")
    wall = value.astimezone(UTC).replace(tzinfo=None)
    return f"{wall.replace(microsecond=0).isoformat()}{_fraction(wall.microsecond)}Z"


def format_duration(value: timedelta) -> str:
    """Seconds, as CEL writes them: ``90s``, ``-1.500s``."""
    micros = value // _MICROSECOND
    seconds, fraction = divmod(abs(micros), 1_000_000)
    return f"{'-' if micros < 0 else ''}{seconds}{_fraction(fraction)}s"


def format_double(value: float) -> str:
    """A double as `string()` writes it: without a trailing ``.0``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+infinity" if value > 0 else "-infinity"
    text = repr(value)
    return text.removesuffix(".0")


_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_DURATION = re.compile(r"([+-]?)((?:\d{1,20}(?:\.\d{0,20})?(?:d|h|ms|m|s|us|µs|ns))+|0)", re.ASCII)
_DURATION_PART = re.compile(r"(\d{1,20})(?:\.(\d{0,20}))?(d|h|ms|m|s|us|µs|ns)", re.ASCII)
_NANOS: Final = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "ns": 1,
}
SHORT: Final = 64
"""Maximum characters of a quote in a message, and of the text of a time, a zone, or a number."""


def short(text: str) -> str:
    """Quote at most 64 characters of a text for a message."""
    return f"'{text}'" if len(text) <= SHORT else f"'{text[:SHORT]}…'"


def parse_timestamp(text: str) -> datetime:
    """An RFC 3339 time; digits below a microsecond are dropped."""
    match = _TIMESTAMP.fullmatch(text) if len(text) <= SHORT else None
    if match is None:
        raise EvaluationError(f"{short(text)} is not a time; write it as RFC 3339: 2026-01-31T09:00:00Z")
    year, month, day, hour, minute, second, fraction, sign, off_h, off_m = match.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    try:
        zone = UTC
        if sign:
            offset = timedelta(hours=int(off_h), minutes=int(off_m))
            zone = timezone(-offset if sign == "-" else offset)
        wall = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, tzinfo=zone)
        return wall.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"{short(text)} is not a time: {error}") from None


def parse_duration(text: str) -> timedelta:
    """A duration such as ``1h30m``, ``90s``, ``1.5s`` or ``30d``; digits below a microsecond are dropped."""
    match = _DURATION.fullmatch(text) if len(text) <= SHORT else None
    if match is None:
        raise EvaluationError(f"{short(text)} is not a duration; write it like 90s, 1h30m or 30d")
    nanos = 0
    for integer, fraction, unit in _DURATION_PART.findall(match[2]):
        nanos += int(integer) * _NANOS[unit]
        nanos += int(fraction or "0") * _NANOS[unit] // 10 ** len(fraction)
    if nanos > DURATION_MAX // _MICROSECOND * 1_000:
        raise EvaluationError("the duration is longer than 10,000 years")
    length = timedelta(microseconds=nanos // 1_000)
    return -length if match[1] == "-" else length
