"""The functions of `math`."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.expression_limits import Meter
from perdure.language.cel.functions.registry import implement, plain_name, refuse
from perdure.language.cel.values import INT_MAX, count, kind, number


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
    whole = math.floor(abs(value))
    return math.copysign(float(whole + (abs(value) - whole >= 0.5)), value)  # noqa: PLR2004 -- half is rounded away from zero


@implement("math.ceil", "int")
@implement("math.floor", "int")
@implement("math.trunc", "int")
@implement("math.round", "int")
def _whole(_meter: Meter, value: int) -> float:
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
