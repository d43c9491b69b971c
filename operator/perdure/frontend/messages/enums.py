"""Convert enum values: ``EVENT_TYPE_TIMER_FIRED`` in Temporal's API is ``TimerFired`` in Perdure."""

from functools import cache
from typing import Any


@cache
def _names(kind: Any) -> tuple[dict[str, int], dict[int, str]]:
    descriptor = kind.DESCRIPTOR
    prefix = "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(descriptor.name)).upper() + "_"
    numbers: dict[str, int] = {}
    back: dict[int, str] = {}
    for value in descriptor.values:
        name = "".join(word.capitalize() for word in value.name.removeprefix(prefix).split("_"))
        numbers[name] = value.number
        back.setdefault(value.number, name)
    return numbers, back


_ALIASES = {"Cancelled": "Canceled"}


def to_enum(kind: Any, name: str) -> Any:
    """The number of a CamelCase name; 0 if the enum does not have the name."""
    numbers, _ = _names(kind)
    return numbers.get(name, numbers.get(_ALIASES.get(name, ""), 0))


def from_enum(kind: Any, number: int) -> str:
    """The CamelCase name of a number; empty if the enum does not have the number."""
    return _names(kind)[1].get(number, "")
