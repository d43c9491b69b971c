"""Days that depend on the month: its last day, the working day nearest to a date, the n-th Monday.

The forms are those of Quartz's CronExpression, which croniter and AWS share: in `dayOfMonth` ``L`` (the last day), ``L-2``
(two days before it), ``LW`` (the last working day) and ``15W`` (the working day nearest to the 15th, within the month); in
`dayOfWeek` ``MON#1`` (the first Monday) and ``FRIL`` (the last Friday). A working day is Monday to Friday.

Such a day depends on two things only: the weekday on which the month begins, and its length.
"""

import re
from collections.abc import Callable

from perdure.schedule import fields
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.fields import read_field

WEEK = 7
SHORTEST = 28
"""Days of the shortest month."""

_LENGTHS = range(SHORTEST, 32)
_SUNDAY, _SATURDAY = 0, 6

Days = Callable[[int, int], int]
"""The days of a month as a set, given the weekday of its first day (Sunday is 0) and its length."""

Months = tuple[tuple[int, ...], ...]
"""For each weekday that a month may begin with, and each length from `SHORTEST` on: its days, as a set of bits."""

_BEFORE_LAST = re.compile(r"L(?:-([0-9]{1,2}))?")
_NEAREST = re.compile(r"([0-9]{1,2})W")
_NTH = re.compile(r"([0-9]|[A-Z]+)#([1-5])")
_LAST_WEEKDAY = re.compile(r"([0-9]|[A-Z]+)L")


def read_days(day_of_month: str, day_of_week: str) -> Months:
    """Read the two fields that name days; a day counts that both of them name.

    Args:
        day_of_month: Such as `1,15`, `L`, `LW`, `15W` or `*`.
        day_of_week: Such as `Mon-Fri`, `MON#1`, `FRIL` or `*`.

    Raises:
        InvalidTimesError: A field cannot be read.
    """
    of_month = _field(fields.DAY_OF_MONTH, day_of_month, _of_month)
    of_week = _field(fields.DAY_OF_WEEK, day_of_week, _of_week)
    plain = read_plain(fields.DAY_OF_WEEK, day_of_week)
    weekdays = [sum(1 << day for day in range(1, 32) if plain >> weekday_of(first, day) & 1) for first in range(WEEK)]
    dates = read_plain(fields.DAY_OF_MONTH, day_of_month)
    return tuple(
        tuple(
            (dates | _union(of_month, first, length)) & (weekdays[first] | _union(of_week, first, length))
            for length in _LENGTHS
        )
        for first in range(WEEK)
    )


def read_plain(kind: fields.Field, text: str) -> int:
    """The part of a field that names the same days in every month, as a set; empty if there is none."""
    plain = [item for item in text.split(",") if not depends_on_month(item)]
    return read_field(kind, ",".join(plain)) if plain else 0


def depends_on_month(item: str) -> bool:
    """Whether an item of a field is one of those that this module reads."""
    item = item.strip().upper()
    return any(form.fullmatch(item) for form in (_BEFORE_LAST, _NEAREST, _NTH, _LAST_WEEKDAY)) or item == "LW"


def weekday_of(first: int, day: int) -> int:
    """The weekday of a day of a month that begins on the weekday `first`; Sunday is 0."""
    return (first + day - 1) % WEEK


def _field(kind: fields.Field, text: str, read: Callable[[str, str], Days]) -> list[Days]:
    try:
        return [read(item.strip().upper(), item.strip()) for item in text.split(",") if depends_on_month(item)]
    except InvalidTimesError as error:
        raise InvalidTimesError(error.sentence, path=kind.name) from error


def _union(rules: list[Days], first: int, length: int) -> int:
    found = 0
    for rule in rules:
        found |= rule(first, length)
    return found


def _of_month(item: str, written: str) -> Days:
    if item == "LW":
        return lambda first, length: 1 << _nearest(length, first, length)
    if found := _BEFORE_LAST.fullmatch(item):
        before = int(found[1] or 0)
        if before >= SHORTEST:
            raise InvalidTimesError(f"`{written}` is more than {SHORTEST - 1} days before the last day of a month")
        return lambda _, length: 1 << (length - before)
    if found := _NEAREST.fullmatch(item):
        day = int(found[1])
        if not 1 <= day <= max(_LENGTHS):
            raise InvalidTimesError(f"`{day}` in `{written}` is not in 1 to 31")
        return lambda first, length: 1 << _nearest(day, first, length) if day <= length else 0
    raise InvalidTimesError(f"`{written}` is a day of the week; write it in `dayOfWeek`")


def _of_week(item: str, written: str) -> Days:
    if found := _NTH.fullmatch(item):
        weekday, number = _weekday(found[1]), int(found[2])
        return lambda first, length: _upto(1 << (1 + (weekday - first) % WEEK + WEEK * (number - 1)), length)
    if found := _LAST_WEEKDAY.fullmatch(item):
        last = _weekday(found[1])
        return lambda first, length: 1 << (length - (weekday_of(first, length) - last) % WEEK)
    raise InvalidTimesError(f"`{written}` is a day of the month; write it in `dayOfMonth`")


def _weekday(text: str) -> int:
    return read_field(fields.DAY_OF_WEEK, text).bit_length() - 1


def _upto(days: int, length: int) -> int:
    return days & ((1 << (length + 1)) - 1)


def _nearest(day: int, first: int, length: int) -> int:
    """The working day nearest to a day, without leaving the month."""
    weekday = weekday_of(first, day)
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day
