"""The operators + - * / %, also on text, lists, times, and durations, and the functions of `math`.

Beyond CEL, an int with a double gives a double: JSON does not reliably distinguish 3 from 3.0.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from perdure.language.cel.functions.registry import SIGNATURES, Signature, implement, plain_name, refuse
from perdure.language.cel.limits import EvaluationError, Meter
from perdure.language.cel.values import INT_MAX, count, kind, number, span

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


# The functions of `math`


def _extreme(name: str, pick: Callable[[Iterable[float]], float]) -> None:
    """Register `math.greatest` or `math.least`, which the library's macro has renamed."""

    def of(meter: Meter, *values: Any) -> float:
        numbers = values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values
        meter.charge(len(numbers))
        if not numbers:
            raise EvaluationError(f"`{plain_name(name)}` of an empty list does not exist")
        for value in numbers:
            if kind(value) not in {"int", "double"}:
                refuse(name, [kind(value)])
        return pick(numbers)

    for takes in ("dyn", "dyn dyn"):
        implement(name, takes)(of)


_extreme("math.@max", max)
_extreme("math.@min", min)


@implement("math.ceil", "double")
def _ceil(_meter: Meter, value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


@implement("math.floor", "double")
def _floor(_meter: Meter, value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


@implement("math.trunc", "double")
def _trunc(_meter: Meter, value: float) -> float:
    return float(math.trunc(value)) if math.isfinite(value) else value


@implement("math.round", "double")
def _round(_meter: Meter, value: float) -> float:
    if not math.isfinite(value):
        return value
    floor = math.floor(abs(value))
    return math.copysign(float(floor + (abs(value) - floor >= 0.5)), value)  # noqa: PLR2004 -- half is rounded away from zero


@implement("math.ceil", "int")
@implement("math.floor", "int")
@implement("math.trunc", "int")
@implement("math.round", "int")
def _as_double(_meter: Meter, value: int) -> float:
    return float(value)


@implement("math.abs", "int", "double")
def _abs(_meter: Meter, value: float) -> float:
    return number(abs(value))


@implement("math.sign", "int", "double")
def _sign(_meter: Meter, value: float) -> float:
    return value if value != value or value == 0 else type(value)(math.copysign(1, value))  # noqa: PLR0124 -- NaN


@implement("math.sqrt", "int", "double")
def _sqrt(_meter: Meter, value: float) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


@implement("math.isNaN", "int", "double")
def _is_nan(_meter: Meter, value: float) -> bool:
    return math.isnan(value)


@implement("math.isInf", "int", "double")
def _is_inf(_meter: Meter, value: float) -> bool:
    return math.isinf(value)


@implement("math.isFinite", "int", "double")
def _is_finite(_meter: Meter, value: float) -> bool:
    return math.isfinite(value)


@implement("math.bitAnd", "int int")
def _bit_and(_meter: Meter, left: int, right: int) -> int:
    return left & right


@implement("math.bitOr", "int int")
def _bit_or(_meter: Meter, left: int, right: int) -> int:
    return left | right


@implement("math.bitXor", "int int")
def _bit_xor(_meter: Meter, left: int, right: int) -> int:
    return left ^ right


@implement("math.bitNot", "int")
def _bit_not(_meter: Meter, value: int) -> int:
    return ~value


_BITS: Final = 64
_WORD: Final = 1 << _BITS


@implement("math.bitShiftLeft", "int int")
def _shift_left(_meter: Meter, value: int, places: int) -> int:
    if count(places) >= _BITS:
        return 0
    shifted = (value << places) & (_WORD - 1)
    return shifted - _WORD if shifted > INT_MAX else shifted


@implement("math.bitShiftRight", "int int")
def _shift_right(_meter: Meter, value: int, places: int) -> int:
    return 0 if count(places) >= _BITS else (value & (_WORD - 1)) >> places
