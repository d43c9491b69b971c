"""Days that depend on the month, such as its last day, the working day nearest to a date, or the n-th Monday.

The syntax is that of Quartz's CronExpression, which croniter and AWS share: in `dayOfMonth` ``L`` (the last day), ``L-2``
(two days before it), ``LW`` (the last working day) and ``15W`` (the working day nearest to the 15th, within the month); in
`dayOfWeek` ``MON#1`` (the first Monday) and ``FRIL`` (the last Friday). A working day is Monday to Friday.

croniter finds the days of most items. It does not support ``L-2`` and ``LW``, reads ``31W`` as the last working day in shorter
months, and does not allow most of these items in lists. So this module reads each item separately, and derives those three.

Such a day depends only on the weekday on which the month begins and on the length of the month.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache

from croniter import croniter_range

from perdure.schedule import calendar_fields
from perdure.schedule.calendar_fields import read_field
from perdure.schedule.errors import InvalidTimesError

WEEK = 7
SHORTEST = 28
"""Days of the shortest month."""

_LENGTHS = range(SHORTEST, 32)

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
    of_month = _field(calendar_fields.DAY_OF_MONTH, day_of_month, _of_month)
    of_week = _field(calendar_fields.DAY_OF_WEEK, day_of_week, _of_week)
    dates = read_plain(calendar_fields.DAY_OF_MONTH, day_of_month)
    plain = read_plain(calendar_fields.DAY_OF_WEEK, day_of_week)
    weekdays = [sum(1 << day for day in range(1, 32) if plain >> (first + day - 1) % WEEK & 1) for first in range(WEEK)]
    return tuple(
        tuple(
            (dates | _union(of_month, first, length)) & (weekdays[first] | _union(of_week, first, length))
            for length in _LENGTHS
        )
        for first in range(WEEK)
    )


def read_plain(kind: calendar_fields.Field, text: str) -> int:
    """The days that a field names in every month, as a set; empty if there are none."""
    plain = [item for item in text.split(",") if not depends_on_month(item)]
    return read_field(kind, ",".join(plain)) if plain else 0


def depends_on_month(item: str) -> bool:
    """Whether an item of a field names different days in different months."""
    item = item.strip().upper()
    return any(form.fullmatch(item) for form in (_BEFORE_LAST, _NEAREST, _NTH, _LAST_WEEKDAY)) or item == "LW"


def _field(kind: calendar_fields.Field, text: str, read: Callable[[str, str], _Days]) -> list[_Days]:
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
        if not 1 <= day <= max(_LENGTHS):
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
    return read_field(calendar_fields.DAY_OF_WEEK, text).bit_length() - 1


@cache
def _by_croniter(line: str) -> _Days:
    """The days that a cron line matches, by first weekday and length of the month; fewer than 80 such lines exist."""
    return {
        month: sum(1 << at.day for at in croniter_range(first, first + timedelta(days=month[1] - 1), line))
        for month, first in _SAMPLES.items()
    }
