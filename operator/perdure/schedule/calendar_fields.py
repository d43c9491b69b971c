"""The fields of a calendar: lists of values, ranges and steps, read into sets of numbers.

A set is an integer whose bit n stands for the value n, since the next value from some place on is then a shift away. The
forms are those of Temporal's CalendarSpec (temporal/api/schedule/v1/message.proto): ``*``, ``5``, ``Mon-Fri``, ``0/15``
(from 0 to the end), ``9-17/2``, and lists of these with commas. A range whose end comes before its start goes round, as in
croniter: ``Fri-Mon``, ``22-2``.

croniter itself cannot read them: it refuses years after 2099 and names that are not three letters, takes ``5-5`` for every value,
and misses the step in a range that goes round (``22-2/3`` is 22 and 2 for it, not 22 and 1).
"""

from dataclasses import dataclass, field

from perdure.schedule.errors import InvalidTimesError

FIRST_YEAR = 2000
LAST_YEAR = 2100
"""Years outside of these never match (as in temporal: service/worker/scheduler/calendar.go)."""

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november")
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


@dataclass(frozen=True, slots=True)
class Field:
    """What one field of a calendar may hold."""

    name: str
    """As users write it, for messages."""
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Of the values from `low` on, in small letters; they may be cut."""
    shortest: int = 3
    """Letters of a name that tell it from the others."""
    rounds: bool = True
    """Whether a range may go round from the highest to the lowest value."""
    alias: dict[int, int] = field(default_factory=dict)
    """Other numbers for some values."""

    @property
    def full(self) -> int:
        """The set of all values."""
        return (1 << (self.high + 1)) - (1 << self.low)


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY_OF_MONTH = Field("dayOfMonth", 1, 31)
MONTH = Field("month", 1, 12, (*_MONTHS, "december"))
DAY_OF_WEEK = Field("dayOfWeek", 0, 6, _WEEKDAYS, shortest=2, alias={7: 0})
YEAR = Field("year", FIRST_YEAR, LAST_YEAR, rounds=False)


def read_field(kind: Field, text: str) -> int:
    """Read a field.

    Args:
        kind: Which field.
        text: Such as `0/15`, `Mon-Fri`, `1,15` or `*`.

    Returns:
        The set of its values, as bits; for years, only those that can match.

    Raises:
        InvalidTimesError: The text is no such field.
    """
    found = 0
    for item in text.split(","):
        found |= _item(kind, item.strip())
    return found & kind.full


def follows_the_clock(hour: str) -> bool:
    """Whether the hours of a calendar are given by `*` or a step: then it follows the real hours when clocks are set."""
    return "*" in hour or "/" in hour


def _item(kind: Field, text: str) -> int:
    values, slash, step_text = text.partition("/")
    if slash and not (step_text.isdecimal() and int(step_text)):
        raise InvalidTimesError(f"the step in `{text}` must be a number of at least 1", path=kind.name)
    step = int(step_text) if slash else 1
    if values == "*":
        return _bits(kind, range(kind.low, kind.high + 1, step))
    first_text, dash, last_text = values.partition("-")
    first = _value(kind, first_text.strip(), text)
    last = _value(kind, last_text.strip(), text) if dash else kind.high if slash else first
    if first > last:
        first = kind.alias.get(first, first)
    if first > last:
        if not kind.rounds:
            raise InvalidTimesError(f"the range `{values}` ends before it starts", path=kind.name)
        last += kind.high - kind.low + 1
    return _bits(kind, range(first, last + 1, step))


def _value(kind: Field, text: str, item: str) -> int:
    if text.isdecimal():
        value = int(text)
        if kind is YEAR or kind.low <= value <= kind.high or value in kind.alias:
            return min(value, LAST_YEAR + 1) if kind is YEAR else value
        raise InvalidTimesError(f"`{text}` is not in {kind.low} to {max((kind.high, *kind.alias))}", path=kind.name)
    small = text.lower()
    if len(small) >= kind.shortest:
        for number, name in enumerate(kind.names, kind.low):
            if name.startswith(small):
                return number
    raise InvalidTimesError(f"`{item}` is not a value, a range or a step", path=kind.name)


def _bits(kind: Field, values: range) -> int:
    """The values as a set; those beyond the highest go round."""
    span = kind.high - kind.low + 1
    found = 0
    for value in values:
        if value <= kind.high or not kind.rounds:
            found |= 1 << value
        else:
            found |= 1 << (kind.low + (value - kind.low) % span)
    return found
