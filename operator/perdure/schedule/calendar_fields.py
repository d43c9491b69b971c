"""The fields of a calendar: lists of values, ranges and steps, read into sets of numbers.

A set is an integer: bit n stands for the value n, so one shift finds the next value. The syntax is that of Temporal's
CalendarSpec (temporal/api/schedule/v1/message.proto): ``*``, ``5``, ``Mon-Fri``, ``0/15`` (from 0 to the end), ``9-17/2``,
and comma-separated lists of these. A range whose end comes before its start wraps around, as in croniter: ``Fri-Mon``,
``22-2``.

croniter itself cannot read this syntax: it rejects years after 2099 and names without exactly three letters, reads ``5-5`` as
every value, and applies a step wrongly in a range that wraps around (it reads ``22-2/3`` as 22 and 2, not 22 and 1).
"""

from dataclasses import dataclass, field

from perdure.schedule.errors import InvalidTimesError

FIRST_YEAR = 2000
LAST_YEAR = 2100
"""Years before `FIRST_YEAR` or after `LAST_YEAR` never match (as in temporal: service/worker/scheduler/calendar.go)."""

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november")
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")


@dataclass(frozen=True, slots=True)
class Field:
    """The kind of a calendar field, with its valid values."""

    name: str
    """The name that users write, for messages."""
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of the values, starting at `low`, in lower case; users may shorten them."""
    shortest: int = 3
    """The number of letters that make a name unique."""
    rounds: bool = True
    """Whether a range may wrap around from the highest to the lowest value."""
    alias: dict[int, int] = field(default_factory=dict)
    """Alternative numbers for some values."""

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
        kind: The kind of the field.
        text: Its text, such as `0/15`, `Mon-Fri`, `1,15` or `*`.

    Returns:
        The set of its values, as bits; for years, only those that can match.

    Raises:
        InvalidTimesError: The text is not a valid field of this kind.
    """
    bits = 0
    for item in text.split(","):
        bits |= _item(kind, item.strip())
    return bits & kind.full


def follows_the_clock(hour: str) -> bool:
    """Whether the hours of a calendar are `*` or have a step: such a calendar follows elapsed hours when clocks change."""
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
    """The values as a set; values above the highest wrap around."""
    span = kind.high - kind.low + 1
    bits = 0
    for value in values:
        if value <= kind.high or not kind.rounds:
            bits |= 1 << value
        else:
            bits |= 1 << (kind.low + (value - kind.low) % span)
    return bits
