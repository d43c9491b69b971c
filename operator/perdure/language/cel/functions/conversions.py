"""Conversions between types, and sizes."""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.formats import (
    SHORT,
    format_double,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
    short,
)
from perdure.language.cel.functions.registry import implement
from perdure.language.cel.limits import Meter
from perdure.language.cel.values import TYPES, TypeName, kind, number

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
