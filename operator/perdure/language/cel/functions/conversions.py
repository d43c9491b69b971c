"""Conversions between types, sizes, and the parts of times and durations.

A zone is UTC or an offset, because tables of named zones differ between machines.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from perdure.language.cel.functions.registry import declare_member, implement
from perdure.language.cel.limits import EvaluationError, Meter
from perdure.language.cel.values import (
    SHORT,
    TYPES,
    TypeName,
    format_double,
    format_duration,
    format_timestamp,
    kind,
    number,
    parse_duration,
    parse_timestamp,
    short,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TYPE_NAMES: Final = {
    "null": "null_type",
    "timestamp": "google.protobuf.Timestamp",
    "duration": "google.protobuf.Duration",
    "optional": "optional_type",
}


@implement("size", "string", "bytes", "list", "map")
def _size(_meter: Meter, value: Any) -> int:
    return len(value)


@implement("type", "dyn")
def _type(_meter: Meter, value: Any) -> TypeName:
    name = kind(value)
    return TYPES[_TYPE_NAMES.get(name, name)]


@implement("dyn", "dyn")
@implement("string", "string")
@implement("int", "int")
@implement("double", "double")
@implement("bool", "bool")
@implement("bytes", "bytes")
@implement("timestamp", "timestamp")
@implement("duration", "duration")
def _same(_meter: Meter, value: Any) -> Any:
    return value


@implement("string", "int", "double", "bool", "timestamp", "duration")
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


@implement("string", "bytes")
def _decode(meter: Meter, value: bytes) -> str:
    meter.text(len(value))
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("these bytes are not UTF-8 text") from None


@implement("bytes", "string")
def _encode(meter: Meter, value: str) -> bytes:
    meter.text(len(value))
    encoded = value.encode("utf-8", "surrogatepass")
    meter.text(len(encoded))
    return encoded


_INT = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)


@implement("int", "string")
def _parse_int(meter: Meter, text: str) -> float:
    meter.charge(8)
    if len(text) > SHORT or not _INT.fullmatch(text):
        raise EvaluationError(f"{short(text)} is not a whole number")
    return number(int(text))


@implement("int", "double")
def _truncate(_meter: Meter, value: float) -> float:
    if not math.isfinite(value):
        raise EvaluationError("the number is not finite, so it has no integer")
    return number(int(value))


@implement("int", "timestamp")
def _seconds_of(_meter: Meter, value: datetime) -> int:
    return (value - _EPOCH) // timedelta(seconds=1)


@implement("double", "int")
def _double(_meter: Meter, value: int) -> float:
    return float(number(value))


@implement("double", "string")
def _parse_double(meter: Meter, text: str) -> float:
    meter.charge(8)
    if len(text) > SHORT or not _DOUBLE.fullmatch(text):
        raise EvaluationError(f"{short(text)} is not a number")
    return float(text)


@implement("bool", "string")
def _parse_bool(_meter: Meter, text: str) -> bool:
    if text in {"true", "True", "TRUE", "t", "1"}:
        return True
    if text in {"false", "False", "FALSE", "f", "0"}:
        return False
    raise EvaluationError(f"{short(text)} is not true or false")


@implement("timestamp", "string")
def _timestamp(meter: Meter, text: str) -> datetime:
    meter.charge(30)
    return parse_timestamp(text)


@implement("timestamp", "int")
def _timestamp_of_seconds(meter: Meter, seconds: int) -> datetime:
    meter.charge(8)
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise EvaluationError("the time is outside the years 1 to 9999") from None


@implement("duration", "string")
def _duration(meter: Meter, text: str) -> timedelta:
    meter.charge(20)
    return parse_duration(text)


_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def _in_zone(value: datetime, zone: str) -> datetime:
    if zone in {"UTC", "Z"}:
        return value.astimezone(UTC)
    match = _OFFSET.fullmatch(zone) if len(zone) <= SHORT else None
    if match is None:
        raise EvaluationError(f"{short(zone)} is not a zone here; use 'UTC' or an offset such as '+02:00'")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    try:
        return value.astimezone(timezone(-offset if match[1] == "-" else offset))
    except (ValueError, OverflowError):
        raise EvaluationError(f"{short(zone)} is not an offset of less than a day") from None


TIME_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
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
"""The getters of timestamps. Each also takes a zone."""


def _toward_zero(value: timedelta, unit: timedelta) -> int:
    count = abs(value) // unit
    return -count if value < timedelta(0) else count


_DURATION_PARTS: Final[dict[str, Callable[[timedelta], int]]] = {
    "getHours": lambda d: _toward_zero(d, timedelta(hours=1)),
    "getMinutes": lambda d: _toward_zero(d, timedelta(minutes=1)),
    "getSeconds": lambda d: _toward_zero(d, timedelta(seconds=1)),
    "getMilliseconds": lambda d: int(math.fmod(_toward_zero(d, timedelta(milliseconds=1)), 1_000)),
}


def _register_parts() -> None:
    """Register the getters of timestamps and durations, which differ only in the part that they return."""
    for name, part in TIME_PARTS.items():
        implement(name, "timestamp")(lambda _meter, value, part=part: part(value.astimezone(UTC)))
        implement(name, "timestamp string")(lambda _meter, value, zone, part=part: part(_in_zone(value, zone)))
    for name, take in _DURATION_PARTS.items():
        implement(name, "duration")(lambda _meter, value, take=take: take(value))


_register_parts()


_CLAUSES: Final[dict[str, Callable[[datetime], str]]] = {
    "Y": lambda t: f"{t.year:04}",
    "m": lambda t: f"{t.month:02}",
    "d": lambda t: f"{t.day:02}",
    "H": lambda t: f"{t.hour:02}",
    "M": lambda t: f"{t.minute:02}",
    "S": lambda t: f"{t.second:02}",
    "f": lambda t: f"{t.microsecond:06}",
    "y": lambda t: f"{t.year % 100:02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "F": lambda t: f"{t.year:04}-{t.month:02}-{t.day:02}",
    "T": lambda t: f"{t.hour:02}:{t.minute:02}:{t.second:02}",
    "G": lambda t: f"{t.isocalendar().year:04}",
    "V": lambda t: f"{t.isocalendar().week:02}",
    "u": lambda t: str(t.isoweekday()),
    "s": lambda t: str((t - _EPOCH) // timedelta(seconds=1)),
    "z": lambda t: t.isoformat()[-6:].replace(":", ""),
    "%": lambda _: "%",
}
"""The clauses of `strftime` (POSIX) that write the same text in every locale and on every machine."""
_CLAUSE: Final = re.compile("%(.?)", re.DOTALL)
_MAX_FORM: Final = 256


def _strftime(meter: Meter, value: datetime, form: str, zone: str = "UTC") -> str:
    meter.charge(20 + 4 * len(form))
    if len(form) > _MAX_FORM:
        raise EvaluationError(f"the format of `strftime` has more than {_MAX_FORM} characters")
    local = _in_zone(value, zone)

    def write(clause: re.Match[str]) -> str:
        written = _CLAUSES.get(clause[1])
        if written is None:
            raise EvaluationError(
                f"`strftime` has no clause {short(clause[0])}; use {' '.join(f'%{c}' for c in _CLAUSES)}"
            )
        return written(local)

    return _CLAUSE.sub(write, form)


declare_member("strftime", "timestamp string", "string")(_strftime)
declare_member("strftime", "timestamp string string", "string")(_strftime)
