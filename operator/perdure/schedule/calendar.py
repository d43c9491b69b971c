"""Calendars in wall time: the next time that matches and is not excluded, and the next that does not match.

Wall times are seconds since 1970-01-01T00:00:00 on the clock.
"""

from calendar import isleap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from perdure.api.calendars import Calendar
from perdure.schedule import calendar_fields
from perdure.schedule.calendar_fields import read_field
from perdure.schedule.days import SHORTEST, WEEK, Months, read_days, read_plain
from perdure.schedule.errors import InvalidTimesError

DAY = 86_400
MOST_WORK = 50_000
"""The budget of a search for one time, in the unit of `Work`: about a tenth of a second."""
_EPOCH = date(1970, 1, 1).toordinal()
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class Matcher:
    """A calendar whose fields are read into sets (see `calendar_fields`)."""

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
    follows_the_clock: bool
    """Whether it follows elapsed hours, not hours of the day, when clocks change."""

    @classmethod
    def of(cls, calendar: Calendar) -> "Matcher":
        """Read a calendar.

        Raises:
            InvalidTimesError: A field is not valid.
        """
        return cls(
            second=read_field(calendar_fields.SECOND, calendar.second),
            minute=read_field(calendar_fields.MINUTE, calendar.minute),
            hour=read_field(calendar_fields.HOUR, calendar.hour),
            day_of_month=read_plain(calendar_fields.DAY_OF_MONTH, calendar.day_of_month),
            month=read_field(calendar_fields.MONTH, calendar.month),
            day_of_week=read_plain(calendar_fields.DAY_OF_WEEK, calendar.day_of_week),
            year=read_field(calendar_fields.YEAR, calendar.year),
            months=read_days(calendar.day_of_month, calendar.day_of_week),
            follows_the_clock=calendar_fields.follows_the_clock(calendar.hour),
        )

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
        fields_of_days = (
            calendar_fields.DAY_OF_MONTH,
            calendar_fields.MONTH,
            calendar_fields.DAY_OF_WEEK,
            calendar_fields.YEAR,
        )
        values = (self.day_of_month, self.month, self.day_of_week, self.year)
        return all(value == kind.full for value, kind in zip(values, fields_of_days, strict=True))

    def times(self) -> int:
        """The seconds of a day that match, as a set."""
        hour = sum(self.second << 60 * minute for minute in range(60) if self.minute >> minute & 1)
        return sum(hour << 3600 * number for number in range(24) if self.hour >> number & 1)

    def next_miss(self, wall: int) -> int | None:
        """The first wall time at or after `wall` that does not match; None if all of them match until the end of 2100."""
        while self.matches(wall):
            if self.second != calendar_fields.SECOND.full:
                wall += 1
            elif self.minute != calendar_fields.MINUTE.full:
                wall += 60 - wall % 60
            elif self.hour != calendar_fields.HOUR.full:
                wall += 3600 - wall % 3600
            else:
                wall = self._next_stretch(date.fromordinal(wall // DAY + _EPOCH)) * DAY
            if wall > _END:
                return None
        return wall

    def _next_stretch(self, day: date) -> int:
        """The first day after the stretch around a day that matches as a whole: the day, its month, or its year."""
        if (self.day_of_month, self.day_of_week) != (
            calendar_fields.DAY_OF_MONTH.full,
            calendar_fields.DAY_OF_WEEK.full,
        ):
            following = day.toordinal() + 1
        elif self.month == calendar_fields.MONTH.full:
            following = date(day.year + 1, 1, 1).toordinal()
        else:
            following = date(day.year, day.month, 1).toordinal() + _length(day.year, day.month)
        return following - _EPOCH


class Work:
    """The budget of a search: the number of months that it examines, times the exclusions compared with each of them."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: the budget of all searches together, such as those for one request; None: none."""
        self.left = MOST_WORK
        self.total = 0
        self._most = most

    def renew(self) -> None:
        """Reset the budget, since a time was found and the next search begins."""
        self.left = MOST_WORK

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
        if self._most is not None and self.total > self._most:
            raise InvalidTimesError(
                f"the search for these times takes more than {self._most:,} steps; ask for a shorter period, "
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
        self._whole = tuple(each for each, excluded_times in others.items() if not times & ~excluded_times)
        """Exclusions that cover all matching times of the days they match."""
        self._never = any(each.every_day for each in self._whole)
        self._parts = tuple(each for each in others if each not in self._whole and times & others[each])
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
        self._work.spend(1 + len(self._whole) + len(self._parts))
        days = self._matcher.days(year, month, first)
        for each in self._whole:
            days &= ~each.days(year, month, first)
        if not days or not self._parts:
            return days
        taken = tuple(each.days(year, month, first) for each in self._parts)
        free = self._free.get((days, taken))
        if free is None:
            self._work.spend(len(self._parts) * 31)
            free = sum(1 << day for day in range(1, 32) if days >> day & 1 and self._left_on(day, taken))
            self._free[days, taken] = free
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

    def _left_on(self, day: int, taken: tuple[int, ...]) -> int:
        """The seconds of a matching day that no part excludes; `taken` has the days of the month that each part matches."""
        key = sum(1 << number for number, days in enumerate(taken) if days >> day & 1)
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


_END = (date(calendar_fields.LAST_YEAR + 1, 1, 1).toordinal() - _EPOCH) * DAY


def lowest(values: int) -> int:
    """The lowest value of a set."""
    return (values & -values).bit_length() - 1


def _from(values: int, low: int) -> int | None:
    """The lowest value of a set that is at least `low`."""
    values >>= low
    return low + lowest(values) if values else None


def _length(year: int, month: int) -> int:
    return 29 if month == 2 and isleap(year) else _LENGTHS[month]  # noqa: PLR2004 (February)
