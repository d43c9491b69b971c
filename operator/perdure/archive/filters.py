"""The conditions of list filters: values that are evaluated on a run in memory, and that the archive translates to SQL. Pure.

As in SQL, a comparison with a missing field is neither true nor false, and neither is its negation. A missing field that is a
list or a text counts as an empty list (`optional`).
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, Protocol

ORDERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class InvalidQueryError(Exception):
    """A filter is invalid; the message says what is wrong, and where."""


class Fields(Protocol):
    """The fields of one run."""

    def __getitem__(self, name: str) -> Any:
        """The value of a field; None if the run does not have it."""
        ...


class Condition(Protocol):
    """A condition on the fields of a run."""

    def holds(self, run: Fields) -> bool | None:
        """Whether it is true for a run; None: neither true nor false."""
        ...


@dataclass(frozen=True, slots=True)
class Or:
    """At least one of several conditions."""

    conditions: tuple[Condition, ...]

    def holds(self, run: Fields) -> bool | None:
        """Whether one is true."""
        return _joined((each.holds(run) for each in self.conditions), decisive=True)


@dataclass(frozen=True, slots=True)
class And:
    """All of several conditions. Without conditions, it is true for every run."""

    conditions: tuple[Condition, ...]

    def holds(self, run: Fields) -> bool | None:
        """Whether all are true."""
        return _joined((each.holds(run) for each in self.conditions), decisive=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    condition: Condition

    def holds(self, run: Fields) -> bool | None:
        """Whether the condition is false."""
        return _negated(self.condition.holds(run))


class Missing:
    """Whether a run has no value of a field; negated, whether it has one."""

    def __init__(self, name: str, *, negated: bool) -> None:
        self.name = name
        self.negated = negated

    def holds(self, run: Fields) -> bool:
        """Whether the value is missing."""
        return (run[self.name] is None) is not self.negated


class Among:
    """Whether the value of a field is, or is not, one of several values."""

    def __init__(self, name: str, wanted: Sequence[Any], *, optional: bool, negated: bool) -> None:
        self.name = name
        self.wanted = wanted
        self.optional = optional
        self.negated = negated
        self._values = AnyOf(wanted)

    def holds(self, run: Fields) -> bool | None:
        """Whether the value is one of them."""
        return _compared(self, run, self._values.matches)


class Ordered:
    """Whether the value of a field is, or is not, within bounds."""

    def __init__(self, name: str, bounds: Sequence[tuple[str, Any]], *, optional: bool, negated: bool) -> None:
        """`bounds`: each has a sign of `ORDERS` and a value."""
        self.name = name
        self.bounds = bounds
        self.optional = optional
        self.negated = negated

    def holds(self, run: Fields) -> bool | None:
        """Whether the value is within all bounds."""
        return _compared(self, run, lambda found: all(ordered(sign, found, value) for sign, value in self.bounds))


class StartsWith:
    """Whether the value of a field starts, or does not start, with a text."""

    def __init__(self, name: str, prefix: str, *, optional: bool, negated: bool) -> None:
        self.name = name
        self.prefix = prefix
        self.optional = optional
        self.negated = negated

    def holds(self, run: Fields) -> bool | None:
        """Whether the value starts with it."""
        return _compared(self, run, lambda found: starts(found, self.prefix))


def _compared(condition: Among | Ordered | StartsWith, run: Fields, matches: Callable[[Any], bool]) -> bool | None:
    """Compare the value of a field, unless it is missing."""
    value = run[condition.name]
    value = [] if value is None and condition.optional else value
    return None if value is None else matches(value) is not condition.negated


def _negated(found: bool | None) -> bool | None:
    return None if found is None else not found


def _joined(found: Iterable[bool | None], *, decisive: bool) -> bool | None:
    """Combine the results of several conditions: with OR if True is decisive, with AND if False is."""
    result: bool | None = not decisive
    for each in found:
        if each is decisive:
            return decisive
        result = result if each is not None else None
    return result


class AnyOf:
    """Values of which one must equal that of a field. They are kept in sets: their number costs nothing."""

    def __init__(self, wanted: Sequence[Any]) -> None:
        self._wanted = wanted
        self._texts = frozenset(each for each in wanted if isinstance(each, str))
        self._truths = frozenset(each for each in wanted if isinstance(each, bool))
        self._others = frozenset(each for each in wanted if not isinstance(each, (str, bool)))
        # Values of different types are equal if they are written alike.
        self._like_text = _written(self._truths | self._others)
        self._like_truth = _written(self._texts | self._others)
        self._like_other = _written(self._texts | self._truths)

    def matches(self, value: Any) -> bool:
        """Whether a value is equal to one of them; a list, whether one of its values is."""
        match value:
            case list():
                return any(map(self.matches, value))
            case None | dict():
                return False
            case datetime():
                return value in self._times
            case str():
                return value in self._texts or bool(self._like_text and value.lower() in self._like_text)
            case bool():
                return value in self._truths or str(value).lower() in self._like_truth
            case _:
                return value in self._others or str(value).lower() in self._like_other

    @cached_property
    def _times(self) -> frozenset[datetime]:
        return frozenset(map(time_of, self._wanted))


def _written(values: frozenset[Any]) -> frozenset[str]:
    return frozenset(str(each).lower() for each in values)


def ordered(sign: str, value: Any, other: Any) -> bool:
    """Whether a value is less or greater than another one, as the sign says. Lists and objects have no order."""
    if value is None or isinstance(value, (list, dict)):
        return False
    if isinstance(value, datetime):
        other = time_of(other)
    elif isinstance(value, bool) != isinstance(other, bool) or isinstance(value, str) != isinstance(other, str):
        value, other = str(value).lower(), str(other).lower()
    try:
        return bool(ORDERS[sign](value, other))
    except TypeError:  # one has no order, such as a time and a number
        return False


def starts(value: Any, prefix: str) -> bool:
    """Whether a text starts with another one; a list, whether one of its texts does."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(each, str) and each.startswith(prefix) for each in values)


def time_of(value: Any) -> datetime:
    """A time in a filter: RFC 3339, or nanoseconds since 1970.

    Raises:
        InvalidQueryError: The value is not a time.
    """
    if isinstance(value, datetime):
        return value
    try:
        if isinstance(value, int):  # nanoseconds since 1970, as in Temporal
            return datetime.fromtimestamp(value / 1e9, UTC)
        found = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError):
        raise InvalidQueryError(f"{value!r} is not an RFC 3339 time") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
