"""The operators + - * / %. Beyond CEL, an int with a double gives a double: JSON does not reliably distinguish 3 from 3.0."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.expression_limits import Meter
from perdure.language.cel.functions.registry import SIGNATURES, Signature, implement
from perdure.language.cel.values import number, span

_NUMBERS: Final = ("int int", "int double", "double int", "double double")


def _declare_arithmetic() -> None:
    """Declare the overloads of + - * / %, which replace the library's own."""
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


@implement("_+_", *_NUMBERS)
def _add(_meter: Meter, left: float, right: float) -> float:
    return number(left + right)


@implement("_+_", "string string", "bytes bytes")
def _concatenate(meter: Meter, left: Any, right: Any) -> Any:
    meter.text(len(left) + len(right))
    return left + right


@implement("_+_", "list list")
def _chain(meter: Meter, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    meter.items(len(left) + len(right))
    return [*left, *right]


@implement("_+_", "timestamp duration", "duration timestamp")
def _later(meter: Meter, left: Any, right: Any) -> datetime:
    meter.charge(8)
    try:
        moved: datetime = left + right
        return moved.astimezone(UTC)
    except OverflowError:
        raise EvaluationError("the time is outside the years 1 to 9999") from None


@implement("_+_", "duration duration")
def _add_durations(meter: Meter, left: timedelta, right: timedelta) -> timedelta:
    meter.charge(4)
    return span(left + right)


@implement("_-_", *_NUMBERS)
def _subtract(_meter: Meter, left: float, right: float) -> float:
    return number(left - right)


@implement("_-_", "timestamp duration")
def _earlier(meter: Meter, left: datetime, right: timedelta) -> datetime:
    return _later(meter, left, -right)  # type: ignore[no-any-return]


@implement("_-_", "timestamp timestamp", "duration duration")
def _difference(meter: Meter, left: Any, right: Any) -> timedelta:
    meter.charge(4)
    return span(left - right)


@implement("_*_", *_NUMBERS)
def _multiply(_meter: Meter, left: float, right: float) -> float:
    return number(left * right)


@implement("_/_", "int int")
def _divide_ints(_meter: Meter, left: int, right: int) -> float:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return number(quotient if (left < 0) == (right < 0) else -quotient)


@implement("_/_", "int double", "double int", "double double")
def _divide(_meter: Meter, left: float, right: float) -> float:
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    return left / right


@implement("_%_", "int int")
def _remainder(_meter: Meter, left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


@implement("-_", "int", "double")
def _negate(_meter: Meter, value: float) -> float:
    return number(-value)
