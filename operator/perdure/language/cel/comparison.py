"""Equality, order and membership of values, and the keys of maps."""

from typing import Any, Final

from perdure.language.cel.errors import EvaluationError, LimitError
from perdure.language.cel.expression_limits import MAX_DEPTH, Meter
from perdure.language.cel.values import article, kind


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
