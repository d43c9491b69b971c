"""Cron schedules of workflows: when the next run of a chain is due, as Temporal's server computes it. Pure.

The dialect is that of robfig/cron's ParseStandard, which Temporal's server uses (common/backoff/cron.go): five fields with the
minute first, `@daily` and similar names, `@every 1h30m`, and the prefix `CRON_TZ=<zone>`. It differs from the dialect of
Schedules (perdure.schedule.times): if both the day of month and the day of week are restricted, either is enough; a wall time
that clocks skip is not due on that day; and `@every` counts from the start of the last run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)
_YEARS_AHEAD: Final = 5
_FIELDS: Final = 5
_LONGEST: Final = 2**63
"""Nanoseconds: longer durations overflow in Go."""
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = {
    name: number
    for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)  # noqa: SIM905 (readable)
}
_WEEKDAYS: Final = {
    name: number
    for number, name in enumerate("sun mon tue wed thu fri sat".split())  # noqa: SIM905 (readable)
}
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]{1,19}\.?[0-9]{0,19}|\.[0-9]{1,19})(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(f"({_PART.pattern})+")
_NUMBER: Final = re.compile(r"\+?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class _IntervalCron:
    """A run per interval, in whole seconds."""

    interval: timedelta

    def after(self, last: datetime, now: datetime) -> datetime:
        """The first due time after `last` that is not before `now`; they count from `last`, in whole seconds."""
        since = last.replace(microsecond=0)
        return since + max(1, -((since - now) // self.interval)) * self.interval


@dataclass(frozen=True, slots=True)
class _Calendar:
    """Wall times in a zone."""

    zone: tzinfo
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    """Whether both the day of month and the day of week must match, because one of them is a star."""

    def after(self, last: datetime, now: datetime) -> datetime | None:
        """The first due time after `last` that is not before `now`; None if there is none within five years."""
        if not self.minutes or not self.hours:
            return None
        begin = max(last, now - timedelta(microseconds=1))
        begin = begin.replace(second=0, microsecond=0) + _MINUTE
        day = begin.astimezone(self.zone).date()
        final = date(day.year + _YEARS_AHEAD, 12, 31)
        while day <= final:
            if self._has_day(day):
                midnight = datetime.combine(day, time(), self.zone).astimezone(UTC)
                found = self._within(day, max(begin, midnight))
                if found is not None:
                    return found
            day += _DAY
        return None

    def _has_day(self, day: date) -> bool:
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        matches = of_month and of_week if self.both_days else of_month or of_week
        return matches and day.month in self.months

    def _within(self, day: date, at: datetime) -> datetime | None:
        """The first due time of a day at or after `at`."""
        while (wall := at.astimezone(self.zone)).date() == day:
            if wall.hour not in self.hours:
                at += (60 - wall.minute) * _MINUTE
            elif wall.minute not in self.minutes:
                at += _MINUTE
            else:
                return at
        return None


def cron_mistake(schedule: str, now: datetime) -> str:
    """The message of Temporal's server for an invalid cron schedule; empty for a valid one, and for none."""
    if not schedule:
        return ""
    try:
        parsed = _parse(schedule)
    except ValueError:
        return "invalid CronSchedule."
    if parsed.after(now, now) is None:
        return "invalid CronSchedule, no time can be found to satisfy the schedule"
    return ""


def next_due(schedule: str, last: datetime, now: datetime) -> datetime | None:
    """When the next run is due; None if there is no schedule, it is invalid, or no time matches it.

    Args:
        schedule: The cron schedule.
        last: When the previous run was due or started.
        now: When the previous run closed.
    """
    if not schedule:
        return None
    try:
        parsed = _parse(schedule)
    except ValueError:
        return None
    return last if now < last else parsed.after(last, now)


@lru_cache(maxsize=256)
def _parse(schedule: str) -> _IntervalCron | _Calendar:
    """Read a cron schedule.

    Raises:
        ValueError: The schedule is invalid.
    """
    zone: tzinfo = UTC
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        named, _, schedule = schedule.partition(" ")
        zone, schedule = _zone(named.partition("=")[2]), schedule.strip()
    if schedule.startswith("@every "):
        return _IntervalCron(max(_SECOND, _duration(schedule.removeprefix("@every "))))
    words = _MACROS.get(schedule, schedule).split()
    if len(words) != _FIELDS:
        raise ValueError("a cron schedule must have five fields")
    minutes, _ = _field(words[0], 0, 59)
    hours, _ = _field(words[1], 0, 23)
    days, every_day = _field(words[2], 1, 31)
    months, _ = _field(words[3], 1, 12, _MONTHS)
    weekdays, every_weekday = _field(words[4], 0, 6, _WEEKDAYS)
    return _Calendar(zone, minutes, hours, days, months, weekdays, every_day or every_weekday)


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC
    except (KeyError, OSError) as error:
        raise ValueError("no such time zone") from error


def _duration(text: str) -> timedelta:
    """Read a duration in Go's format, in whole seconds."""
    sign, body = (text[:1], text[1:]) if text[:1] in {"-", "+"} else ("", text)
    if body == "0":
        return timedelta(0)
    if not _DURATION.fullmatch(body):
        raise ValueError("not a duration")
    nanoseconds = sum(int(Fraction(number) * _UNITS[unit]) for number, unit in _PART.findall(body))
    if nanoseconds >= _LONGEST:
        raise ValueError("the duration is too long")
    return timedelta(seconds=nanoseconds // 10**9) * (-1 if sign == "-" else 1)


def _field(text: str, lowest: int, highest: int, names: Mapping[str, int] | None = None) -> tuple[frozenset[int], bool]:
    """Read the values of a field; also return whether one of its items is a star."""
    values: set[int] = set()
    any_star = False
    for item in filter(None, text.split(",")):
        bounds, *steps = item.split("/")
        low, *highs = bounds.split("-")
        star = low in {"*", "?"}
        if (len(highs) > 1 and not star) or len(steps) > 1:
            raise ValueError("too many hyphens or slashes")
        step = _number(steps[0]) if steps else 1
        if star:
            start, end = lowest, highest
        else:
            start = _number(low, names)
            end = _number(highs[0], names) if highs else highest if steps else start
        if not lowest <= start <= end <= highest or step == 0:
            raise ValueError("out of range")
        values.update(range(start, end + 1, step))
        any_star |= star and step == 1
    return frozenset(values), any_star


def _number(text: str, names: Mapping[str, int] | None = None) -> int:
    if names is not None and text.lower() in names:
        return names[text.lower()]
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a number")
    return int(text)
