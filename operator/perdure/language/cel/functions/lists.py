"""Functions on lists and on optionals. `orValue` and `or`, which may not evaluate their argument, are in `closures`."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from perdure.language.cel.functions.registry import declare_function, declare_member, implement
from perdure.language.cel.limits import MAX_DEPTH, EvaluationError, Meter
from perdure.language.cel.values import NONE, Optional, comparable, count, equal, kind


@declare_function("lists.range", "int", "list")
def _range(meter: Meter, length: int) -> list[int]:
    meter.items(count(length))
    meter.charge(length >> 2)
    return list(range(length))


@declare_member("slice", "list int int", "list")
def _slice(meter: Meter, items: Sequence[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"the list has {len(items)} items, so slice({start}, {end}) does not exist")
    meter.items(end - start)
    return list(items[start:end])


@declare_member("reverse", "list", "list")
def _reverse_list(meter: Meter, items: Sequence[Any]) -> list[Any]:
    meter.items(len(items))
    return list(items[::-1])


@declare_member("flatten", "list", "list")
@declare_member("flatten", "list int", "list")
def _flatten(meter: Meter, items: Sequence[Any], depth: int = 1) -> list[Any]:
    if not 0 <= depth <= MAX_DEPTH:
        raise EvaluationError(f"`flatten` supports depths from 0 to {MAX_DEPTH}, not {depth}")
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


@declare_member("sort", "list", "list")
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


@declare_member("distinct", "list", "list")
def _distinct(meter: Meter, items: Sequence[Any]) -> list[Any]:
    meter.items(len(items))
    marks: set[tuple[bool, Any]] = set()
    deep: list[Any] = []
    kept: list[Any] = []
    for item in items:
        meter.charge(4 + (len(item) >> 6 if isinstance(item, str | bytes) else 0))
        if kind(item) in {"list", "map", "optional"}:
            if not any(equal(meter, item, other) for other in deep):
                deep.append(item)
                kept.append(item)
        elif (mark := (isinstance(item, bool), item)) not in marks:
            marks.add(mark)
            kept.append(item)
    return kept


@implement("first", "list")
def _first(_meter: Meter, items: Sequence[Any]) -> Optional:
    return Optional(present=True, value=items[0]) if items else NONE


@implement("last", "list")
def _last(_meter: Meter, items: Sequence[Any]) -> Optional:
    return Optional(present=True, value=items[-1]) if items else NONE


# Optionals


@implement("optional.of", "dyn")
def _optional_of(_meter: Meter, value: Any) -> Optional:
    return Optional(present=True, value=value)


@implement("optional.none", "")
def _optional_none(_meter: Meter) -> Optional:
    return NONE


@implement("optional.ofNonZeroValue", "dyn")
def _optional_of_non_zero(_meter: Meter, value: Any) -> Optional:
    empty = value is None or value in (False, 0, "", b"", timedelta(0)) or value in ([], {})
    return NONE if empty else Optional(present=True, value=value)


@implement("hasValue", "optional")
def _has_value(_meter: Meter, value: Optional) -> bool:
    return value.present


@implement("value", "optional")
def _value(_meter: Meter, value: Optional) -> Any:
    if not value.present:
        raise EvaluationError("the optional is empty; give a value for that case with orValue()")
    return value.value
