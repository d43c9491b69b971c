"""How filters compare the values of fields, and how many values one filter may compare."""

import asyncio
import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

Lookup = Callable[[str], Any]
"""Returns the value of a run's field; None if the run has none. Raises KeyError if no run can have the field."""

MAX_COMPARED = 50_000_000
"""Values that a filter may compare."""
MAX_COMPARED_AT_ONCE = 100_000
"""Values of one run that a filter may compare."""
_TURN = 20_000
"""Values to compare before others have their turn: some milliseconds."""
_CHARACTERS = 64
"""Characters of a text that count as one value."""


class InvalidQueryError(Exception):
    """A filter is invalid; the message says what is wrong, and where."""


class Effort:
    """The number of values that a filter has compared, which is limited."""

    def __init__(self) -> None:
        self.total = 0
        self.at_once = 0
        """Since others had their turn."""

    def spend(self, values: int) -> None:
        """Count values.

        Raises:
            InvalidQueryError: There are too many.
        """
        self.total += values
        self.at_once += values
        if self.total > MAX_COMPARED:
            raise InvalidQueryError(f"the filter compares more than {MAX_COMPARED:,} values; use fewer conditions")
        if self.at_once > MAX_COMPARED_AT_ONCE:
            raise InvalidQueryError(
                f"the filter compares more than {MAX_COMPARED_AT_ONCE:,} values of one run; use fewer conditions"
            )

    async def rest(self) -> None:
        """Give others their turn if it is time; call it after each run."""
        if self.at_once >= _TURN:
            self.at_once = 0
            await asyncio.sleep(0)


class RunFields:
    """The fields of one run. Each is looked up once, and counts each time that a filter compares it."""

    def __init__(self, lookup: Lookup, effort: Effort) -> None:
        self._lookup = lookup
        self._effort = effort
        self._known: dict[str, tuple[Any, int]] = {}

    def __getitem__(self, name: str) -> Any:
        known = self._known.get(name)
        if known is None:
            value = self._lookup(name)
            known = self._known[name] = value, _weight(value)
        self._effort.spend(known[1])
        return known[0]


def _weight(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_weight, value))
    return 1 + len(value) // _CHARACTERS if isinstance(value, str) else 1


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

    def takes(self, value: Any) -> bool:
        """Whether a value is equal to one of them; a list, whether one of its values is."""
        match value:
            case list():
                return any(map(self.takes, value))
            case None | dict():
                return False
            case datetime():
                return value in self._moments
            case str():
                return value in self._texts or bool(self._like_text and value.lower() in self._like_text)
            case bool():
                return value in self._truths or str(value).lower() in self._like_truth
            case _:
                return value in self._others or str(value).lower() in self._like_other

    @cached_property
    def _moments(self) -> frozenset[datetime]:
        return frozenset(map(moment_of, self._wanted))


def _written(values: frozenset[Any]) -> frozenset[str]:
    return frozenset(str(each).lower() for each in values)


ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def ordered(sign: str, value: Any, wanted: Any) -> bool:
    """Whether a value is less or greater than another one, as the sign says. Lists and objects have no order."""
    if value is None or isinstance(value, (list, dict)):
        return False
    if isinstance(value, datetime):
        wanted = moment_of(wanted)
    elif isinstance(value, bool) != isinstance(wanted, bool) or isinstance(value, str) != isinstance(wanted, str):
        value, wanted = str(value).lower(), str(wanted).lower()
    try:
        return bool(ORDERS[sign](value, wanted))
    except TypeError:  # one has no order, such as a time and a number
        return False


def starts(value: Any, prefix: str) -> bool:
    """Whether a text starts with another one; a list, whether one of its texts does."""
    values = value if isinstance(value, list) else [value]
    return any(isinstance(each, str) and each.startswith(prefix) for each in values)


def moment_of(wanted: Any) -> datetime:
    """A time in a filter: RFC 3339, or nanoseconds since 1970.

    Raises:
        InvalidQueryError: The value is not a time.
    """
    if isinstance(wanted, datetime):
        return wanted
    try:
        if isinstance(wanted, int):  # nanoseconds since 1970, as in Temporal
            return datetime.fromtimestamp(wanted / 1e9, UTC)
        found = datetime.fromisoformat(str(wanted))
    except (ValueError, OverflowError):
        raise InvalidQueryError(f"{wanted!r} is not an RFC 3339 time") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
