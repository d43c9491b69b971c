"""The values of CEL, the functions over them, and the meter that bounds their work.

A CEL value is plain Python: None, bool, int (64 bits), float, str, bytes, list, dict, an aware datetime, a timedelta, and
two classes of this module for what JSON has no word for (`Optional`, `TypeName`). Nothing is converted on the way in.

Every function is registered once, with its signature: `perdure.language.cel` declares it to the type checker from the
same entry it is called by. A function charges the meter for what it is about to do *before* it does it, so that the
price of an expression depends on its inputs alone, and never on the machine.

Errors:

    EvaluationError     the expression has no value here (a missing field, a division by zero); `||` and `&&` may absorb it
    LimitError          the expression asks for more than it may have; nothing absorbs it
"""

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final, NoReturn

BUDGET: Final = 600_000
"""Units of work of one template; a unit is about a tenth of a microsecond, and at most a fifth."""
MAX_TEXT: Final = 262_144
"""Characters of a string that an expression makes."""
MAX_ITEMS: Final = 131_072
"""Items of a list that an expression makes: what 256 KiB of JSON can hold."""
MAX_DEPTH: Final = 100
"""How deep lists and maps may be nested in a value that is walked."""
MAX_PATTERN: Final = 256
"""Characters of a regular expression."""

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
_DURATION_MAX: Final = timedelta(seconds=315_576_000_000)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class EvaluationError(Exception):
    """The expression has no value for this input; the message is made only if someone reads it."""

    def __init__(self, describe: str | Callable[[], str]) -> None:
        super().__init__()
        self._describe = describe

    def __str__(self) -> str:
        return self._describe if isinstance(self._describe, str) else self._describe()


class LimitError(Exception):
    """The expression asks for more work, text, items or depth than an expression may have."""


class Meter:
    """What is left of the budget. Charging is the only way to spend it, and nothing gives it back."""

    __slots__ = ("left",)

    def __init__(self, budget: int = BUDGET) -> None:
        self.left = budget

    def charge(self, units: int) -> None:
        """Take `units` off; refuse when they are not there."""
        self.left -= units
        if self.left < 0:
            raise LimitError(
                "it needs more work than an expression may do; make the lists or texts it goes through smaller, "
                "or do this in an activity"
            )

    def text(self, length: int) -> None:
        """Charge for making or copying a string of `length` characters, and refuse one that is too long."""
        if length > MAX_TEXT:
            raise LimitError(f"it makes a text of more than {MAX_TEXT} characters; keep large data out of expressions")
        self.charge((length >> 5) + 1)

    def items(self, length: int) -> None:
        """Charge for making a list of `length` items, and refuse one that is too long."""
        if length > MAX_ITEMS:
            raise LimitError(f"it makes a list of more than {MAX_ITEMS} items; keep large data out of expressions")
        self.charge((length >> 4) + 1)


@dataclass(frozen=True, slots=True)
class Optional:
    """A CEL optional: `optional.of(x)` or `optional.none()`."""

    present: bool
    value: Any = None


NONE: Final = Optional(present=False)


@dataclass(frozen=True, slots=True)
class TypeName:
    """What `type(x)` gives: comparable, and nothing else."""

    name: str


# --- kinds -----------------------------------------------------------------------------------------------------------

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
_TYPE_NAMES: Final = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "optional": "optional_type",
}
TYPES: Final = {
    name: TypeName(name)
    for name in (
        *("bool", "int", "double", "string", "bytes", "list", "map", "type", "null_type", "optional_type"),
        *("google.protobuf.Timestamp", "google.protobuf.Duration"),
    )
}
"""The types that an expression can name."""


def kind(value: Any) -> str:
    """The CEL type of a value, in the words of this module's signatures."""
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
    """An int that fits 64 bits, or a float; refuse what has overflowed."""
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("the result does not fit a 64-bit integer; use double() for larger numbers")
    return value


def span(value: timedelta) -> timedelta:
    """A duration within CEL's range."""
    if abs(value) > _DURATION_MAX:
        raise EvaluationError("the duration is longer than 10,000 years")
    return value


# --- text forms ------------------------------------------------------------------------------------------------------


def _fraction(micros: int) -> str:
    """The part below a second, as CEL writes it: nothing, three digits or six."""
    if not micros:
        return ""
    return f".{micros:06d}" if micros % 1_000 else f".{micros // 1_000:03d}"


def format_timestamp(value: datetime) -> str:
    """RFC 3339 in UTC, with as much of a fraction as there is."""
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
_SHORT: Final = 64


def short(text: str) -> str:
    """At most 64 characters of a text, quoted, for a message."""
    return f"'{text}'" if len(text) <= _SHORT else f"'{text[:_SHORT]}…'"


def parse_timestamp(text: str) -> datetime:
    """An RFC 3339 time; digits below a microsecond are dropped."""
    match = _TIMESTAMP.fullmatch(text) if len(text) <= _SHORT else None
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
    match = _DURATION.fullmatch(text) if len(text) <= _SHORT else None
    if match is None:
        raise EvaluationError(f"{short(text)} is not a duration; write it like 90s, 1h30m or 30d")
    nanos = 0
    for whole, fraction, unit in _DURATION_PART.findall(match[2]):
        nanos += int(whole) * _NANOS[unit]
        nanos += int(fraction or "0") * _NANOS[unit] // 10 ** len(fraction)
    if nanos > _DURATION_MAX // _MICROSECOND * 1_000:
        raise EvaluationError("the duration is longer than 10,000 years")
    length = timedelta(microseconds=nanos // 1_000)
    return -length if match[1] == "-" else length


# --- equality and order ----------------------------------------------------------------------------------------------


def equal(meter: Meter, left: Any, right: Any, depth: int = 0) -> bool:
    """CEL equality: numbers by value whatever their type, other types only with their own, lists and maps deeply."""
    first, second = kind(left), kind(right)
    if first != second:
        return {first, second} == {"int", "double"} and bool(left == right)
    if first in {"list", "map", "optional"}:
        return _equal_inside(meter, first, left, right, depth)
    if first in {"string", "bytes"}:
        meter.charge((min(len(left), len(right)) >> 8) + 1)
    return bool(left == right)


def _equal_inside(meter: Meter, what: str, left: Any, right: Any, depth: int) -> bool:
    """Equality of two lists, two maps or two optionals."""
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
    """Refuse two values that have no order between them."""
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


# --- maps ------------------------------------------------------------------------------------------------------------


def map_key(key: Any) -> Any:
    """The form in which a map holds a key: strings and integers; a whole double is its integer."""
    if type(key) is str or type(key) is int:
        return key
    if type(key) is float and key.is_integer():
        return int(key)
    found = kind(key)
    if found in {"string", "int"}:
        return key
    raise EvaluationError(f"{article(found)} cannot be the key of a map; use a string")


def has_key(where: dict[Any, Any], key: Any) -> bool:
    """Whether a map has the key; a key that cannot be one is simply not there."""
    try:
        return map_key(key) in where
    except EvaluationError:
        return False


def sorted_keys(meter: Meter, value: dict[Any, Any]) -> list[Any]:
    """The keys of a map in one order on every machine, however the map was built or stored."""
    meter.charge(len(value) * 4)
    return sorted(value, key=lambda key: (not isinstance(key, str), key))


# --- the table of functions ------------------------------------------------------------------------------------------

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """One overload, as the type checker is told of it."""

    name: str
    takes: tuple[str, ...]
    gives: str
    member: bool


SIGNATURES: Final[list[Signature]] = []
"""What the type checker must be told, because the library does not know it."""
FUNCTIONS: Final[dict[str, dict[tuple[str, ...], Implementation]]] = {}
"""By name, then by the kinds of the arguments. The kind ``dyn`` stands for any."""


def _known(name: str, *overloads: str) -> Callable[[Implementation], Implementation]:
    """Register the implementation of a function that the library declares."""

    def register(implementation: Implementation) -> Implementation:
        for overload in overloads:
            FUNCTIONS.setdefault(name, {})[tuple(overload.split())] = implementation
        return implementation

    return register


def _member(name: str, takes: str, gives: str) -> Callable[[Implementation], Implementation]:
    """Declare and register `receiver.name(…)`."""

    def register(implementation: Implementation) -> Implementation:
        SIGNATURES.append(Signature(name, tuple(takes.split()), gives, member=True))
        return _known(name, takes)(implementation)

    return register


def _global(name: str, takes: str, gives: str) -> Callable[[Implementation], Implementation]:
    """Declare and register `name(…)`."""

    def register(implementation: Implementation) -> Implementation:
        SIGNATURES.append(Signature(name, tuple(takes.split()), gives, member=False))
        return _known(name, takes)(implementation)

    return register


def call(meter: Meter, name: str, arguments: Sequence[Any]) -> Any:
    """Call a function by the kinds of its arguments."""
    overloads = FUNCTIONS[name]
    kinds = tuple(map(kind, arguments))
    found = overloads.get(kinds)
    if found is None:
        for takes, implementation in overloads.items():
            if len(takes) == len(kinds) and all(a in ("dyn", b) for a, b in zip(takes, kinds, strict=True)):
                found = implementation
                break
        else:
            refuse(name, kinds)
    return found(meter, *arguments)


def plain_name(name: str) -> str:
    """How a user writes an operator or function that CEL calls `_+_` or `math.@max`."""
    special = {"-_": "-", "_[_]": "[…]", "_?_:_": "? :", "math.@max": "math.greatest", "math.@min": "math.least"}
    return special.get(name) or name.replace("@", "").strip("_") or name


def refuse(name: str, kinds: Iterable[str]) -> NoReturn:
    """No overload of the function takes these kinds."""
    shown = [article(each) for each in kinds]
    what = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)
    raise EvaluationError(f"`{plain_name(name)}` does not work on {what}")


# Arithmetic. Beyond CEL, an int with a double gives a double: JSON does not tell 3 from 3.0 reliably.

_NUMBERS: Final = ("int int", "int double", "double int", "double double")


def _declare_arithmetic() -> None:
    """Tell the checker the overloads of + - * / %, which replace the library's own."""
    for name in ("_+_", "_-_", "_*_", "_/_"):
        for takes in _NUMBERS:
            gives = "int" if takes == "int int" else "double"
            SIGNATURES.append(Signature(name, tuple(takes.split()), gives, member=False))
    for name, takes, gives in (
        ("_+_", "string string", "string"),
        ("_+_", "bytes bytes", "bytes"),
        ("_+_", "list list", "list"),
        ("_+_", "timestamp duration", "timestamp"),
        ("_+_", "duration timestamp", "timestamp"),
        ("_+_", "duration duration", "duration"),
        ("_-_", "timestamp duration", "timestamp"),
        ("_-_", "timestamp timestamp", "duration"),
        ("_-_", "duration duration", "duration"),
    ):
        SIGNATURES.append(Signature(name, tuple(takes.split()), gives, member=False))


_declare_arithmetic()


@_known("_+_", *_NUMBERS)
def _add(_meter: Meter, left: float, right: float) -> float:
    return number(left + right)


@_known("_+_", "string string", "bytes bytes")
def _concatenate(meter: Meter, left: Any, right: Any) -> Any:
    meter.text(len(left) + len(right))
    return left + right


@_known("_+_", "list list")
def _chain(meter: Meter, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    meter.items(len(left) + len(right))
    return [*left, *right]


@_known("_+_", "timestamp duration", "duration timestamp")
def _later(meter: Meter, left: Any, right: Any) -> datetime:
    meter.charge(8)
    try:
        moved: datetime = left + right
        return moved.astimezone(UTC)
    except OverflowError:
        raise EvaluationError("the time is outside the years 1 to 9999") from None


@_known("_+_", "duration duration")
def _add_durations(meter: Meter, left: timedelta, right: timedelta) -> timedelta:
    meter.charge(4)
    return span(left + right)


@_known("_-_", *_NUMBERS)
def _subtract(_meter: Meter, left: float, right: float) -> float:
    return number(left - right)


@_known("_-_", "timestamp duration")
def _earlier(meter: Meter, left: datetime, right: timedelta) -> datetime:
    return _later(meter, left, -right)  # type: ignore[no-any-return]


@_known("_-_", "timestamp timestamp", "duration duration")
def _difference(meter: Meter, left: Any, right: Any) -> timedelta:
    meter.charge(4)
    return span(left - right)


@_known("_*_", *_NUMBERS)
def _multiply(_meter: Meter, left: float, right: float) -> float:
    return number(left * right)


@_known("_/_", "int int")
def _divide_ints(_meter: Meter, left: int, right: int) -> float:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return number(quotient if (left < 0) == (right < 0) else -quotient)


@_known("_/_", "int double", "double int", "double double")
def _divide(_meter: Meter, left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


@_known("_%_", "int int")
def _remainder(_meter: Meter, left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


@_known("-_", "int", "double")
def _negate(_meter: Meter, value: float) -> float:
    return number(-value)


# Conversions and sizes.


@_known("size", "string", "bytes", "list", "map")
def _size(_meter: Meter, value: Any) -> int:
    return len(value)


@_known("type", "dyn")
def _type(_meter: Meter, value: Any) -> TypeName:
    name = kind(value)
    return TYPES[_TYPE_NAMES.get(name, name)]


@_known("dyn", "dyn")
@_known("string", "string")
@_known("int", "int")
@_known("double", "double")
@_known("bool", "bool")
@_known("bytes", "bytes")
@_known("timestamp", "timestamp")
@_known("duration", "duration")
def _same(_meter: Meter, value: Any) -> Any:
    return value


@_known("string", "int", "double", "bool", "timestamp", "duration")
def _string(meter: Meter, value: Any) -> str:
    meter.charge(10)
    match kind(value):
        case "int":
            return str(number(value))
        case "double":
            return format_double(value)
        case "bool":
            return "true" if value else "false"
        case "timestamp":
            return format_timestamp(value)
        case _:
            return format_duration(value)


@_known("string", "bytes")
def _decode(meter: Meter, value: bytes) -> str:
    meter.text(len(value))
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("these bytes are not UTF-8 text") from None


@_known("bytes", "string")
def _encode(meter: Meter, value: str) -> bytes:
    meter.text(len(value))
    encoded = value.encode("utf-8", "surrogatepass")
    meter.text(len(encoded))
    return encoded


_INT = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


@_known("int", "string")
def _parse_int(meter: Meter, text: str) -> float:
    meter.charge(8)
    if len(text) > _SHORT or not _INT.fullmatch(text):
        raise EvaluationError(f"{short(text)} is not a whole number")
    return number(int(text))


@_known("int", "double")
def _truncate(_meter: Meter, value: float) -> float:
    if not math.isfinite(value):
        raise EvaluationError("the number is not finite, so it has no integer")
    return number(int(value))


@_known("int", "timestamp")
def _seconds_of(_meter: Meter, value: datetime) -> int:
    return (value - _EPOCH) // timedelta(seconds=1)


@_known("double", "int")
def _double(_meter: Meter, value: int) -> float:
    return float(number(value))


@_known("double", "string")
def _parse_double(meter: Meter, text: str) -> float:
    meter.charge(8)
    if len(text) > _SHORT or not _DOUBLE.fullmatch(text):
        raise EvaluationError(f"{short(text)} is not a number")
    return float(text)


@_known("bool", "string")
def _parse_bool(_meter: Meter, text: str) -> bool:
    if text in {"true", "True", "TRUE", "t", "1"}:
        return True
    if text in {"false", "False", "FALSE", "f", "0"}:
        return False
    raise EvaluationError(f"{short(text)} is not true or false")


@_known("timestamp", "string")
def _timestamp(meter: Meter, text: str) -> datetime:
    meter.charge(30)
    return parse_timestamp(text)


@_known("timestamp", "int")
def _timestamp_of_seconds(meter: Meter, seconds: int) -> datetime:
    meter.charge(8)
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise EvaluationError("the time is outside the years 1 to 9999") from None


@_known("duration", "string")
def _duration(meter: Meter, text: str) -> timedelta:
    meter.charge(20)
    return parse_duration(text)


# Parts of times. A zone is UTC or an offset: the tables of named zones differ from machine to machine.

_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def _in_zone(value: datetime, zone: str) -> datetime:
    if zone in {"UTC", "Z"}:
        return value.astimezone(UTC)
    match = _OFFSET.fullmatch(zone) if len(zone) <= _SHORT else None
    if match is None:
        raise EvaluationError(f"{short(zone)} is not a zone here; use 'UTC' or an offset such as '+02:00'")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    try:
        return value.astimezone(timezone(-offset if match[1] == "-" else offset))
    except (ValueError, OverflowError):
        raise EvaluationError(f"{short(zone)} is not an offset of less than a day") from None


_TIME_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda t: t.year,
    "getMonth": lambda t: t.month - 1,
    "getDate": lambda t: t.day,
    "getDayOfMonth": lambda t: t.day - 1,
    "getDayOfWeek": lambda t: t.isoweekday() % 7,
    "getDayOfYear": lambda t: t.timetuple().tm_yday - 1,
    "getHours": lambda t: t.hour,
    "getMinutes": lambda t: t.minute,
    "getSeconds": lambda t: t.second,
    "getMilliseconds": lambda t: t.microsecond // 1_000,
}


def _toward_zero(value: timedelta, unit: timedelta) -> int:
    whole = abs(value) // unit
    return -whole if value < timedelta(0) else whole


_DURATION_PARTS: Final[dict[str, Callable[[timedelta], int]]] = {
    "getHours": lambda d: _toward_zero(d, timedelta(hours=1)),
    "getMinutes": lambda d: _toward_zero(d, timedelta(minutes=1)),
    "getSeconds": lambda d: _toward_zero(d, timedelta(seconds=1)),
    "getMilliseconds": lambda d: int(math.fmod(_toward_zero(d, timedelta(milliseconds=1)), 1_000)),
}


def _register_parts() -> None:
    """Register the getters of timestamps and durations, which differ only in the part they take."""
    for name, part in _TIME_PARTS.items():
        _known(name, "timestamp")(lambda _meter, value, part=part: part(value.astimezone(UTC)))
        _known(name, "timestamp string")(lambda _meter, value, zone, part=part: part(_in_zone(value, zone)))
    for name, take in _DURATION_PARTS.items():
        _known(name, "duration")(lambda _meter, value, take=take: take(value))


_register_parts()


# Text.


def _scan(meter: Meter, text: str, part: str) -> None:
    """Charge for looking for a part in a text, at the worst such a search can do."""
    meter.charge((len(text) >> 5) + (len(text) * min(len(part), len(text) - len(part) + 1 if part else 0) >> 6) + 1)


@_known("contains", "string string")
def _has_text(meter: Meter, text: str, part: str) -> bool:
    _scan(meter, text, part)
    return part in text


@_known("startsWith", "string string")
def _starts(meter: Meter, text: str, part: str) -> bool:
    meter.charge((len(part) >> 8) + 1)
    return text.startswith(part)


@_known("endsWith", "string string")
def _ends(meter: Meter, text: str, part: str) -> bool:
    meter.charge((len(part) >> 8) + 1)
    return text.endswith(part)


def _position(index: int, length: int) -> int:
    if not 0 <= index <= length:
        raise EvaluationError(f"the text has {length} characters, so position {index} does not exist")
    return index


@_member("charAt", "string int", "string")
def _char_at(_meter: Meter, text: str, index: int) -> str:
    return text[_position(index, len(text)) : index + 1]


@_member("indexOf", "string string", "int")
@_member("indexOf", "string string int", "int")
def _index_of(meter: Meter, text: str, part: str, start: int = 0) -> int:
    _scan(meter, text, part)
    return text.find(part, _position(start, len(text)))


@_member("lastIndexOf", "string string", "int")
@_member("lastIndexOf", "string string int", "int")
def _last_index_of(meter: Meter, text: str, part: str, start: int | None = None) -> int:
    _scan(meter, text, part)
    if start is None:
        return text.rfind(part)
    return text.rfind(part, 0, _position(start, len(text)) + len(part))


def _texts(items: Sequence[Any]) -> int:
    """How many characters the strings of a list have together; refuse anything but strings."""
    total = 0
    for item in items:
        if not isinstance(item, str):
            raise EvaluationError(
                f"`join` needs a list of strings, and there is {article(kind(item))} in it; map it with string()"
            )
        total += len(item)
    return total


@_member("join", "list", "string")
@_member("join", "list string", "string")
def _join(meter: Meter, items: Sequence[Any], between: str = "") -> str:
    meter.charge(len(items) + 1)
    meter.text(_texts(items) + len(between) * max(len(items) - 1, 0))
    return between.join(items)


@_member("lowerAscii", "string", "string")
def _lower(meter: Meter, text: str) -> str:
    meter.text(len(text))
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


@_member("upperAscii", "string", "string")
def _upper(meter: Meter, text: str) -> str:
    meter.text(len(text))
    return text.encode("utf-8", "surrogatepass").upper().decode("utf-8", "surrogatepass")


@_member("replace", "string string string", "string")
@_member("replace", "string string string int", "string")
def _replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    _scan(meter, text, old)
    count = text.count(old) if limit < 0 else min(text.count(old), limit)
    meter.charge(count >> 3)
    meter.text(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, limit)


@_member("split", "string string", "list")
@_member("split", "string string int", "list")
def _split(meter: Meter, text: str, between: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    _scan(meter, text, between)
    meter.charge(len(text) >> 6)
    count = text.count(between) + 1 if limit < 0 else min(text.count(between) + 1, limit)
    meter.items(count)
    meter.charge(count >> 1)
    if between:
        return text.split(between, limit - 1 if limit > 0 else -1)
    return list(text) if limit < 0 or limit >= len(text) else [*text[: limit - 1], text[limit - 1 :]]


@_member("substring", "string int", "string")
@_member("substring", "string int int", "string")
def _substring(meter: Meter, text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else _position(end, len(text))
    if _position(start, len(text)) > stop:
        raise EvaluationError(f"the end {stop} of the substring lies before its start {start}")
    meter.text(stop - start)
    return text[start:stop]


@_member("trim", "string", "string")
def _trim(meter: Meter, text: str) -> str:
    meter.text(len(text))
    return text.strip()


@_member("reverse", "string", "string")
def _reverse(meter: Meter, text: str) -> str:
    meter.text(len(text))
    return text[::-1]


_QUOTED: Final = str.maketrans(
    {
        "\\": "\\\\",
        '"': '\\"',
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
    }
)


@_global("strings.quote", "string", "string")
def _quote(meter: Meter, text: str) -> str:
    meter.text(2 * len(text) + 2)
    meter.charge(len(text) >> 1)
    return f'"{text.translate(_QUOTED)}"'


@_global("base64.encode", "bytes", "string")
def _base64(meter: Meter, value: bytes) -> str:
    meter.text(len(value) * 4 // 3 + 4)
    return base64.b64encode(value).decode()


@_global("base64.decode", "string", "bytes")
def _unbase64(meter: Meter, text: str) -> bytes:
    meter.text(len(text))
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError(f"{short(text)} is not base64") from None


_CLAUSE = re.compile(r"%(?:\.(\d{1,3}))?([sdfeoxXb%])|%", re.ASCII)
_MAX_PRECISION: Final = 100


def spoken(meter: Meter, value: Any, depth: int = 0) -> str:
    """A value as `%s` writes it."""
    meter.charge(8)
    match kind(value):
        case "string":
            meter.text(len(value))
            return str(value)
        case "null":
            return "null"
        case "list" | "map" if depth >= MAX_DEPTH:
            raise LimitError(f"it formats values nested more than {MAX_DEPTH} deep")
        case "list":
            parts = [spoken(meter, item, depth + 1) for item in value]
            return f"[{_joined(meter, parts)}]"
        case "map":
            parts = [
                f"{spoken(meter, key)}: {spoken(meter, value[key], depth + 1)}" for key in sorted_keys(meter, value)
            ]
            return f"{{{_joined(meter, parts)}}}"
        case "type":
            return f"{value.name}"
        case "optional":
            raise EvaluationError("an optional has no text; take its value with orValue()")
        case _:
            return str(call(meter, "string", [value]))


def _joined(meter: Meter, parts: Sequence[str]) -> str:
    meter.text(sum(map(len, parts)) + 2 * len(parts))
    return ", ".join(parts)


def _clause(meter: Meter, letter: str, precision: str | None, value: Any) -> str:
    """One `%` clause of `format`."""
    meter.charge(20)
    found = kind(value)
    if letter == "s":
        return spoken(meter, value)
    if letter in "fe" and found in {"int", "double"}:
        digits = 6 if precision is None else int(precision)
        if digits > _MAX_PRECISION:
            raise EvaluationError(f"a precision of {digits} is more than {_MAX_PRECISION}")
        return f"{float(value):.{digits}{letter}}" if math.isfinite(value) else format_double(value)
    if letter in "doxXb" and found == "int":
        return f"{value:{letter}}"
    if letter == "d" and found == "double":
        return format_double(value)
    if letter == "b" and found == "bool":
        return "1" if value else "0"
    if letter in "xX" and found in {"string", "bytes"}:
        meter.text(len(value) * 8)
        text: str = (value.encode("utf-8", "surrogatepass") if found == "string" else value).hex()
        return text.upper() if letter == "X" else text
    raise EvaluationError(f"`format` cannot write {article(found)} as %{letter}; use %s")


@_member("format", "string list", "string")
def _format(meter: Meter, text: str, values: Sequence[Any]) -> str:
    meter.text(len(text))
    meter.charge(len(text) >> 2)
    pieces: list[str] = []
    rest = iter(values)
    length = end = 0
    for match in _CLAUSE.finditer(text):
        piece = text[end : match.start()]
        end = match.end()
        if match[2] is None:
            raise EvaluationError(
                f"{short(text[match.start() :][:8])} in `format` is not one of %s %d %f %e %x %o %b %%"
            )
        if match[2] == "%":
            piece += "%"
        else:
            try:
                value = next(rest)
            except StopIteration:
                raise EvaluationError(f"`format` has more clauses than the {len(values)} values given") from None
            piece += _clause(meter, match[2], match[1], value)
        pieces.append(piece)
        length += len(piece)
        meter.text(length)
    pieces.append(text[end:])
    meter.text(length + len(text) - end)
    return "".join(pieces)


# Lists.


def _count(value: int) -> int:
    if value < 0:
        raise EvaluationError(f"{value} is negative")
    return value


@_global("lists.range", "int", "list")
def _range(meter: Meter, length: int) -> list[int]:
    meter.items(_count(length))
    meter.charge(length >> 2)
    return list(range(length))


@_member("slice", "list int int", "list")
def _slice(meter: Meter, items: Sequence[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"the list has {len(items)} items, so slice({start}, {end}) does not exist")
    meter.items(end - start)
    return list(items[start:end])


@_member("reverse", "list", "list")
def _reverse_list(meter: Meter, items: Sequence[Any]) -> list[Any]:
    meter.items(len(items))
    return list(items[::-1])


@_member("flatten", "list", "list")
@_member("flatten", "list int", "list")
def _flatten(meter: Meter, items: Sequence[Any], depth: int = 1) -> list[Any]:
    if not 0 <= depth <= MAX_DEPTH:
        raise EvaluationError(f"`flatten` goes 0 to {MAX_DEPTH} levels deep, not {depth}")
    flat: list[Any] = []

    def add(part: Sequence[Any], left: int) -> None:
        meter.charge(len(part) + 1)
        for item in part:
            if left and isinstance(item, list | tuple):
                add(item, left - 1)
            else:
                flat.append(item)

    add(items, depth)
    meter.items(len(flat))
    return flat


@_member("sort", "list", "list")
def _sort(meter: Meter, items: Sequence[Any]) -> list[Any]:
    longest = 0
    for item in items:
        comparable(meter, items[0], item)
        if isinstance(item, float) and math.isnan(item):
            raise EvaluationError("a list with NaN in it has no order")
        longest = max(longest, len(item) if isinstance(item, str | bytes) else 0)
    meter.items(len(items))
    meter.charge(len(items) + len(items) * len(items).bit_length() * (4 + (longest >> 6)) // 8)
    return sorted(items)


@_member("distinct", "list", "list")
def _distinct(meter: Meter, items: Sequence[Any]) -> list[Any]:
    meter.items(len(items))
    seen: set[tuple[bool, Any]] = set()
    deep: list[Any] = []
    kept: list[Any] = []
    for item in items:
        meter.charge(4 + (len(item) >> 6 if isinstance(item, str | bytes) else 0))
        if kind(item) in {"list", "map", "optional"}:
            if not any(equal(meter, item, other) for other in deep):
                deep.append(item)
                kept.append(item)
        elif (mark := (isinstance(item, bool), item)) not in seen:
            seen.add(mark)
            kept.append(item)
    return kept


@_known("first", "list")
def _first(_meter: Meter, items: Sequence[Any]) -> Optional:
    return Optional(present=True, value=items[0]) if items else NONE


@_known("last", "list")
def _last(_meter: Meter, items: Sequence[Any]) -> Optional:
    return Optional(present=True, value=items[-1]) if items else NONE


# Mathematics.


def _extreme(name: str, pick: Callable[[Iterable[float]], float]) -> None:
    """Register `math.greatest` or `math.least`, which the library's macro has renamed."""

    def of(meter: Meter, *values: Any) -> float:
        given = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        meter.charge(len(given))
        if not given:
            raise EvaluationError(f"`{plain_name(name)}` of an empty list does not exist")
        for value in given:
            if kind(value) not in {"int", "double"}:
                refuse(name, [kind(value)])
        return pick(given)

    for takes in ("dyn", "dyn dyn"):
        _known(name, takes)(of)


_extreme("math.@max", max)
_extreme("math.@min", min)


@_known("math.ceil", "double")
def _ceil(_meter: Meter, value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


@_known("math.floor", "double")
def _floor(_meter: Meter, value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


@_known("math.trunc", "double")
def _trunc(_meter: Meter, value: float) -> float:
    return float(math.trunc(value)) if math.isfinite(value) else value


@_known("math.round", "double")
def _round(_meter: Meter, value: float) -> float:
    if not math.isfinite(value):
        return value
    whole = math.floor(abs(value))
    return math.copysign(float(whole + (abs(value) - whole >= 0.5)), value)  # noqa: PLR2004 -- half is rounded away from zero


@_known("math.ceil", "int")
@_known("math.floor", "int")
@_known("math.trunc", "int")
@_known("math.round", "int")
def _whole(_meter: Meter, value: int) -> float:
    return float(value)


@_known("math.abs", "int", "double")
def _abs(_meter: Meter, value: float) -> float:
    return number(abs(value))


@_known("math.sign", "int", "double")
def _sign(_meter: Meter, value: float) -> float:
    return value if value != value or value == 0 else type(value)(math.copysign(1, value))  # noqa: PLR0124 -- NaN


@_known("math.sqrt", "int", "double")
def _sqrt(_meter: Meter, value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


@_known("math.isNaN", "int", "double")
def _is_nan(_meter: Meter, value: float) -> bool:
    return math.isnan(value)


@_known("math.isInf", "int", "double")
def _is_inf(_meter: Meter, value: float) -> bool:
    return math.isinf(value)


@_known("math.isFinite", "int", "double")
def _is_finite(_meter: Meter, value: float) -> bool:
    return math.isfinite(value)


@_known("math.bitAnd", "int int")
def _bit_and(_meter: Meter, left: int, right: int) -> int:
    return left & right


@_known("math.bitOr", "int int")
def _bit_or(_meter: Meter, left: int, right: int) -> int:
    return left | right


@_known("math.bitXor", "int int")
def _bit_xor(_meter: Meter, left: int, right: int) -> int:
    return left ^ right


@_known("math.bitNot", "int")
def _bit_not(_meter: Meter, value: int) -> int:
    return ~value


_BITS: Final = 64
_WORD: Final = 1 << _BITS


@_known("math.bitShiftLeft", "int int")
def _shift_left(_meter: Meter, value: int, places: int) -> int:
    if _count(places) >= _BITS:
        return 0
    shifted = (value << places) & (_WORD - 1)
    return shifted - _WORD if shifted > INT_MAX else shifted


@_known("math.bitShiftRight", "int int")
def _shift_right(_meter: Meter, value: int, places: int) -> int:
    return 0 if _count(places) >= _BITS else (value & (_WORD - 1)) >> places


# Optionals.


@_known("optional.of", "dyn")
def _optional_of(_meter: Meter, value: Any) -> Optional:
    return Optional(present=True, value=value)


@_known("optional.none", "")
def _optional_none(_meter: Meter) -> Optional:
    return NONE


@_known("optional.ofNonZeroValue", "dyn")
def _optional_of_non_zero(_meter: Meter, value: Any) -> Optional:
    empty = value is None or value in (False, 0, "", b"", timedelta(0)) or value in ([], {})
    return NONE if empty else Optional(present=True, value=value)


@_known("hasValue", "optional")
def _has_value(_meter: Meter, value: Optional) -> bool:
    return value.present


@_known("value", "optional")
def _value(_meter: Meter, value: Optional) -> Any:
    if not value.present:
        raise EvaluationError("the optional is empty; give a value for that case with orValue()")
    return value.value
