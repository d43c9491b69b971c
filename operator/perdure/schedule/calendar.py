"""Calendars in wall time: their fields, their days, and the next time that matches and is not excluded, or that does not match.

Wall times are seconds since 1970-01-01T00:00:00 on the clock. A set of numbers is an integer: bit n stands for the value n, so
one shift finds the next value.

Fields are lists of values, ranges and steps. The syntax is that of Temporal's CalendarSpec
(temporal/api/schedule/v1/message.proto): ``*``, ``5``, ``Mon-Fri``, ``0/15`` (from 0 to the end), ``9-17/2``, and
comma-separated lists of these. A range whose end comes before its start wraps around, as in croniter: ``Fri-Mon``, ``22-2``.
croniter itself cannot read this syntax: it rejects years after 2099 and names without exactly three letters, reads ``5-5`` as
every value, and applies a step wrongly in a range that wraps around (it reads ``22-2/3`` as 22 and 2, not 22 and 1).

Some days depend on the month, such as its last day, the working day nearest to a date, or the n-th Monday. The syntax is that of
Quartz's CronExpression, which croniter and AWS share: in `dayOfMonth` ``L`` (the last day), ``L-2`` (two days before it), ``LW``
(the last working day) and ``15W`` (the working day nearest to the 15th, within the month); in `dayOfWeek` ``MON#1`` (the first
Monday) and ``FRIL`` (the last Friday). A working day is Monday to Friday. Such a day depends only on the weekday on which the
month begins and on the length of the month. croniter finds the days of most items. It does not support ``L-2`` and ``LW``, reads
``31W`` as the last working day in shorter months, and does not allow most of these items in lists. So `read_days` reads each item
separately, and derives those three.

``InvalidTimesError`` reports an error in the times of a Schedule that the API server does not detect. It has the reason for the
condition `Ready`, and a sentence that names the field and says what to write instead.
"""

import re
from calendar import isleap, monthrange
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cache

from croniter import croniter_range

from perdure.api.kinds.schedule import Calendar
from perdure.api.reasons import ConditionReason


class InvalidTimesError(Exception):
    """The times of a Schedule are not valid; `reason` is a reason of the condition `Ready`."""

    def __init__(
        self, sentence: str, reason: ConditionReason = ConditionReason.INVALID_SPEC, *, path: str = ""
    ) -> None:
        self.sentence = sentence
        self.reason = reason
        self.path = path
        """The field path, such as `spec.cron[0]`; empty if only the caller knows it."""
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The message, with the field path in front."""
        return f"{self.path}: {self.sentence}" if self.path else self.sentence

    def below(self, path: str) -> "InvalidTimesError":
        """Return the same error with `path` in front of its field path."""
        return InvalidTimesError(self.sentence, self.reason, path=f"{path}.{self.path}" if self.path else path)


DAY = 86_400
"""In seconds."""
WEEK = 7
SHORTEST = 28
"""Days of the shortest month."""
MAX_WORK = 50_000
"""The budget of a search for one time, in the unit of `Work`: about a tenth of a second."""
FIRST_YEAR = 2000
LAST_YEAR = 2100
"""Years before `FIRST_YEAR` or after `LAST_YEAR` never match (as in temporal: service/worker/scheduler/calendar.go)."""

_EPOCH = date(1970, 1, 1).toordinal()
_END = (date(LAST_YEAR + 1, 1, 1).toordinal() - _EPOCH) * DAY
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
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


_INTERVALS = frozenset(
    sum(1 << hour for hour in range(first, 24, step)) for step in (1, 2, 3, 4) for first in range(step)
)
"""The sets of hours that mean an interval: every hour, or each second, third, or fourth hour around the clock."""


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
    lower = text.lower()
    if len(lower) >= kind.shortest:
        for number, name in enumerate(kind.names, kind.low):
            if name.startswith(lower):
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


_DAYS_OF_MONTHS = range(SHORTEST, 32)

Months = tuple[tuple[int, ...], ...]
"""The days as bits, by the weekday on which the month begins (Sunday is 0) and the length of the month minus `SHORTEST`."""

_Days = Mapping[tuple[int, int], int]
"""The days as bits, by weekday and length."""

_BEFORE_LAST = re.compile(r"L(?:-([0-9]{1,2}))?")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_NTH = re.compile(r"([0-9]|[A-Z]+)#([1-5])")
_LAST_WEEKDAY = re.compile(r"([0-9]|[A-Z]+)L")

_SAMPLES = {
    ((monthrange(year, month)[0] + 1) % WEEK, monthrange(year, month)[1]): datetime(year, month, 1)  # noqa: DTZ001 (no zone)
    for year in range(2000, 2000 + SHORTEST)
    for month in range(1, 13)
}
"""An example month for each first weekday and length; the calendar repeats after 28 years."""


def read_days(day_of_month: str, day_of_week: str) -> Months:
    """Read the two fields that name days; a day matches if it matches both fields.

    Args:
        day_of_month: The field, such as `1,15`, `L`, `LW`, `15W` or `*`.
        day_of_week: The field, such as `Mon-Fri`, `MON#1`, `FRIL` or `*`.

    Raises:
        InvalidTimesError: A field is not valid.
    """
    of_month = _read_items(DAY_OF_MONTH, day_of_month, _of_month)
    of_week = _read_items(DAY_OF_WEEK, day_of_week, _of_week)
    dates = read_plain(DAY_OF_MONTH, day_of_month)
    plain = read_plain(DAY_OF_WEEK, day_of_week)
    weekdays = [sum(1 << day for day in range(1, 32) if plain >> (first + day - 1) % WEEK & 1) for first in range(WEEK)]
    return tuple(
        tuple(
            (dates | _union(of_month, first, length)) & (weekdays[first] | _union(of_week, first, length))
            for length in _DAYS_OF_MONTHS
        )
        for first in range(WEEK)
    )


def read_plain(kind: Field, text: str) -> int:
    """The days that a field names in every month, as a set; empty if there are none."""
    plain = [item for item in text.split(",") if not depends_on_month(item)]
    return read_field(kind, ",".join(plain)) if plain else 0


def depends_on_month(item: str) -> bool:
    """Whether an item of a field names different days in different months."""
    item = item.strip().upper()
    return any(form.fullmatch(item) for form in (_BEFORE_LAST, _NEAREST, _NTH, _LAST_WEEKDAY)) or item == "LW"


def _read_items(kind: Field, text: str, read: Callable[[str, str], _Days]) -> list[_Days]:
    try:
        return [read(item.strip().upper(), item.strip()) for item in text.split(",") if depends_on_month(item)]
    except InvalidTimesError as error:
        raise InvalidTimesError(error.sentence, path=kind.name) from error


def _union(items: list[_Days], first: int, length: int) -> int:
    bits = 0
    for item in items:
        bits |= item[first, length]
    return bits


def _of_month(item: str, written: str) -> _Days:
    if item == "LW":
        return _by_croniter("0 0 31W * *")
    if found := _BEFORE_LAST.fullmatch(item):
        before = int(found[1] or 0)
        if before >= SHORTEST:
            raise InvalidTimesError(f"`{written}` is more than {SHORTEST - 1} days before the last day of a month")
        return {month: days >> before for month, days in _by_croniter("0 0 L * *").items()}
    if found := _NEAREST.fullmatch(item):
        day = int(found[1])
        if not 1 <= day <= max(_DAYS_OF_MONTHS):
            raise InvalidTimesError(f"`{day}` in `{written}` is not in 1 to 31")
        return {month: days if day <= month[1] else 0 for month, days in _by_croniter(f"0 0 {day}W * *").items()}
    raise InvalidTimesError(f"`{written}` is a day of the week; write it in `dayOfWeek`")


def _of_week(item: str, written: str) -> _Days:
    if found := _NTH.fullmatch(item):
        return _by_croniter(f"0 0 * * {_weekday(found[1])}#{found[2]}")
    if found := _LAST_WEEKDAY.fullmatch(item):
        return _by_croniter(f"0 0 * * L{_weekday(found[1])}")
    raise InvalidTimesError(f"`{written}` is a day of the month; write it in `dayOfMonth`")


def _weekday(text: str) -> int:
    return read_field(DAY_OF_WEEK, text).bit_length() - 1


@cache
def _by_croniter(line: str) -> _Days:
    """The days that a cron line matches, by first weekday and length of the month; fewer than 80 such lines exist."""
    return {
        month: sum(1 << at.day for at in croniter_range(first, first + timedelta(days=month[1] - 1), line))
        for month, first in _SAMPLES.items()
    }


@dataclass(frozen=True, slots=True)
class Matcher:
    """A calendar whose fields are read into sets."""

    second: int
    minute: int
    hour: int
    day_of_month: int
    """Only the values that are the same in every month; `months` also has the others. The same holds for `day_of_week`."""
    month: int
    day_of_week: int
    year: int
    months: Months
    """The days that match, by the weekday on which the month begins and by its length."""

    @classmethod
    def of(cls, calendar: Calendar) -> "Matcher":
        """Read a calendar.

        Raises:
            InvalidTimesError: A field is not valid.
        """
        return cls(
            second=read_field(SECOND, calendar.second),
            minute=read_field(MINUTE, calendar.minute),
            hour=read_field(HOUR, calendar.hour),
            day_of_month=read_plain(DAY_OF_MONTH, calendar.day_of_month),
            month=read_field(MONTH, calendar.month),
            day_of_week=read_plain(DAY_OF_WEEK, calendar.day_of_week),
            year=read_field(YEAR, calendar.year),
            months=read_days(calendar.day_of_month, calendar.day_of_week),
        )

    @property
    def follows_elapsed_hours(self) -> bool:
        """Whether it follows elapsed hours, not hours of the day, when clocks change.

        The set of hours decides, not its spelling: `*`, `0-23`, and `*/1` are the same (systemd#8647).
        """
        return self.hour in _INTERVALS

    def matches(self, wall: int) -> bool:
        """Whether a wall time matches."""
        day, second = divmod(wall, DAY)
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        if not (self.hour >> hour & 1 and self.minute >> minute & 1 and self.second >> second & 1):
            return False
        return self.has_day(day)

    def has_day(self, day: int) -> bool:
        """Whether a day matches, a number of days since 1970."""
        today = date.fromordinal(day + _EPOCH)
        first = today.toordinal() - today.day + 1
        return bool(self.days(today.year, today.month, first) >> today.day & 1)

    def days(self, year: int, month: int, first: int) -> int:
        """The matching days of a month, as a set that may extend beyond its end; `first` is the ordinal of its first day."""
        if not (self.year >> year & 1 and self.month >> month & 1):
            return 0
        return self.months[first % WEEK][_length(year, month) - SHORTEST]

    @property
    def every_day(self) -> bool:
        """Whether every day matches."""
        values = (self.day_of_month, self.month, self.day_of_week, self.year)
        kinds = (DAY_OF_MONTH, MONTH, DAY_OF_WEEK, YEAR)
        return all(value == kind.full for value, kind in zip(values, kinds, strict=True))

    def times(self) -> int:
        """The seconds of a day that match, as a set."""
        hour = sum(self.second << 60 * minute for minute in range(60) if self.minute >> minute & 1)
        return sum(hour << 3600 * number for number in range(24) if self.hour >> number & 1)

    def next_miss(self, wall: int) -> int | None:
        """The first wall time at or after `wall` that does not match; None if all of them match until the end of 2100."""
        while self.matches(wall):
            if self.second != SECOND.full:
                wall += 1
            elif self.minute != MINUTE.full:
                wall += 60 - wall % 60
            elif self.hour != HOUR.full:
                wall += 3600 - wall % 3600
            else:
                wall = self._next_stretch(date.fromordinal(wall // DAY + _EPOCH)) * DAY
            if wall > _END:
                return None
        return wall

    def _next_stretch(self, day: date) -> int:
        """The first day after the stretch around a day that matches as a whole: the day, its month, or its year."""
        if (self.day_of_month, self.day_of_week) != (
            DAY_OF_MONTH.full,
            DAY_OF_WEEK.full,
        ):
            following = day.toordinal() + 1
        elif self.month == MONTH.full:
            following = date(day.year + 1, 1, 1).toordinal()
        else:
            following = date(day.year, day.month, 1).toordinal() + _length(day.year, day.month)
        return following - _EPOCH


class Work:
    """The budget of a search: the number of months that it examines, times the exclusions compared with each of them."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit`: the budget of all searches together, such as those for one request; None: none."""
        self.left = MAX_WORK
        self.skipped = 0
        """How many excluded times, or blocks of them, the search has skipped."""
        self.total = 0
        self._limit = limit

    def renew(self) -> None:
        """Reset the budget, since a time was found and the next search begins."""
        self.left = MAX_WORK
        self.skipped = 0

    def spend(self, amount: int) -> None:
        """Spend an amount of the budget.

        Raises:
            InvalidTimesError: The budget is used up.
        """
        self.left -= amount
        if self.left < 0:
            raise InvalidTimesError(
                "`exclude`: the search for the next time takes too long, because dozens of exclusions together cover "
                "almost all times; write fewer, such as `0-59` instead of every minute"
            )
        self.count(amount)

    def count(self, amount: int) -> None:
        """Spend an amount of the budget of all searches together only.

        Raises:
            InvalidTimesError: It is used up.
        """
        self.total += amount
        if self._limit is not None and self.total > self._limit:
            raise InvalidTimesError(
                f"the search for these times takes more than {self._limit:,} steps; ask for a shorter period, "
                "or exclude fewer times"
            )


def by_days(excluded: Iterable[Matcher]) -> dict[Matcher, int]:
    """The seconds that exclusions remove from the days they match; exclusions that match the same days are combined."""
    found: dict[tuple[Months, int, int], tuple[Matcher, int]] = {}
    for each in excluded:
        days = (each.months, each.month, each.year)
        first, times = found.get(days, (each, 0))
        found[days] = (first, times | each.times())
    return dict(found.values())


class WallTimes:
    """The wall times that match a calendar and are not excluded."""

    def __init__(self, matcher: Matcher, others: dict[Matcher, int] | None = None, work: Work | None = None) -> None:
        """Take the exclusions from `by_days`, and the budget that all searches for the same time share."""
        self._matcher = matcher
        self._work = work or Work()
        others = others or {}
        times = matcher.times() if others else 0
        self._day_exclusions = tuple(each for each, excluded_times in others.items() if not times & ~excluded_times)
        """Exclusions that cover all matching times of the days they match."""
        self._never = any(each.every_day for each in self._day_exclusions)
        self._parts = tuple(each for each in others if each not in self._day_exclusions and times & others[each])
        self._left: dict[int, int] = {0: times}
        """The times that remain on a day, by the set of parts (their numbers, as bits) that match it."""
        self._free: dict[tuple[int, tuple[int, ...]], int] = {}
        """The days of a month with times left, by the days that match and the days that each part matches."""
        self._times = others

    def next(self, wall: int) -> int | None:
        """The first such time at or after `wall`; None if there is none until the end of 2100.

        Raises:
            InvalidTimesError: The search takes too long.
        """
        if self._never:
            return None
        day, second = divmod(wall, DAY)
        while True:
            found = self._day(day)
            if found is None:
                return None
            time = self._time(found, second if found == day else 0)
            if time is not None:
                return found * DAY + time
            day, second = found + 1, 0

    def _day(self, day: int) -> int | None:
        """The first matching day at or after `day`."""
        matcher = self._matcher
        today = date.fromordinal(day + _EPOCH)
        year, month, low = _from(matcher.year, today.year), today.month, today.day
        if year != today.year:
            month, low = 1, 1
        while year is not None:
            at = _from(matcher.month, month)
            while at is not None:
                if at != month:
                    low = 1
                first = date(year, at, 1).toordinal()
                found = _from(self._days(year, at, first), low)
                if found is not None and found <= _length(year, at):
                    return first - _EPOCH + found - 1
                month, low = at + 1, 1
                at = _from(matcher.month, month)
            year, month, low = _from(matcher.year, year + 1), 1, 1
        return None

    def _days(self, year: int, month: int, first: int) -> int:
        """The days of a month with times that are not excluded, as a set."""
        self._work.spend(1 + len(self._day_exclusions) + len(self._parts))
        days = self._matcher.days(year, month, first)
        for each in self._day_exclusions:
            days &= ~each.days(year, month, first)
        if not days or not self._parts:
            return days
        matched = tuple(each.days(year, month, first) for each in self._parts)
        free = self._free.get((days, matched))
        if free is None:
            self._work.spend(len(self._parts) * 31)
            free = sum(1 << day for day in range(1, 32) if days >> day & 1 and self._left_on(day, matched))
            self._free[days, matched] = free
        return free

    def _time(self, day: int, second: int) -> int | None:
        """The first time of a matching day at or after `second`."""
        if not self._parts:
            return self._matcher_time(second)
        today = date.fromordinal(day + _EPOCH)
        first = today.toordinal() - today.day + 1
        return _from(
            self._left_on(today.day, tuple(each.days(today.year, today.month, first) for each in self._parts)), second
        )

    def _left_on(self, day: int, matched: tuple[int, ...]) -> int:
        """The seconds of a matching day that no part excludes; `matched` has the days of the month that each part matches."""
        key = sum(1 << number for number, days in enumerate(matched) if days >> day & 1)
        left = self._left.get(key)
        if left is None:
            left = self._left[0]
            for number, each in enumerate(self._parts):
                if key >> number & 1:
                    left &= ~self._times[each]
            self._left[key] = left
        return left

    def _matcher_time(self, second: int) -> int | None:
        hours, minutes, seconds = self._matcher.hour, self._matcher.minute, self._matcher.second
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        if hours >> hour & 1:
            found = _from(seconds, second) if minutes >> minute & 1 else None
            if found is not None:
                return hour * 3600 + minute * 60 + found
            found = _from(minutes, minute + 1)
            if found is not None:
                return hour * 3600 + found * 60 + lowest(seconds)
        found = _from(hours, hour + 1)
        return None if found is None else found * 3600 + lowest(minutes) * 60 + lowest(seconds)


def lowest(values: int) -> int:
    """The lowest value of a set."""
    return (values & -values).bit_length() - 1


def _from(values: int, low: int) -> int | None:
    """The lowest value of a set that is at least `low`."""
    values >>= low
    return low + lowest(values) if values else None


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and isleap(year) else _LENGTHS[month]  # noqa: PLR2004 (February)
