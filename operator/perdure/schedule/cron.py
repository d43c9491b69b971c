"""Cron lines: what each says as a calendar or an interval.

The dialect is that of Temporal's schedules (temporal/api/schedule/v1/message.proto): 5 fields with the minute first, 6 with the
year last, 7 with the second first and the year last; `@daily` and the like; `@every 1h30m/5m` with a phase; a zone before, a
comment after. croniter reads the five fields that all of cron agrees on. What cron has beyond a calendar (`L`, `W`, `#`, `H`) is
refused: it could not be told in one.
"""

import re
from dataclasses import dataclass
from datetime import timedelta

from croniter import CroniterError, croniter
from pydantic import ValidationError

from perdure.api.calendars import Calendar, Interval
from perdure.api.common import mistakes
from perdure.api.durations import parse_duration
from perdure.schedule.errors import InvalidTimesError

_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S+)\s+")
_WORD = re.compile(r"[A-Za-z]+")
_NAMES = re.compile("jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat")
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_BEYOND = "for the first Monday of a month write `1-7` as the day of month and `MON` as the day of week"
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CronTimes:
    """What a cron line says."""

    times: Calendar | Interval
    time_zone: str | None = None
    """The zone that stands before it."""


def read_cron(line: str) -> CronTimes:
    """Read a cron line.

    Raises:
        InvalidTimesError: It is none, or one that no calendar can express.
    """
    body, mark, comment = line.strip().partition("#")
    if mark and body and not body[-1].isspace():
        raise InvalidTimesError(f"`cron`: `{line}`: `#` begins a comment, with a space before it; {_BEYOND}")
    prefix = _PREFIX.match(body)
    zone = prefix[1] if prefix else None
    body = body[prefix.end() :].strip() if prefix else body.strip()
    if body.startswith("@every"):
        return CronTimes(_every(body, line), zone)
    words = _MACROS.get(body, body).split()
    if len(words) == 5:  # noqa: PLR2004 (minute to day of week)
        words = ["0", *words, "*"]
    elif len(words) == 6:  # noqa: PLR2004 (and the year)
        words = ["0", *words]
    if len(words) != 7:  # noqa: PLR2004 (and the second)
        raise InvalidTimesError(
            f"`cron`: `{line}` has {len(words)} fields: there must be 5 (minute first), 6 (year last) or 7 (second first, "
            "year last), or `@daily` and the like"
        )
    second, minute, hour, day_of_month, month, day_of_week, year = (_plain(word, line) for word in words)
    try:
        croniter.expand(f"{minute} {hour} {day_of_month} {month} {day_of_week}")
        times = Calendar(
            second=second,
            minute=minute,
            hour=hour,
            day_of_month=day_of_month,
            month=month,
            day_of_week=day_of_week,
            year=year,
            comment=comment.strip(),
        )
    except (CroniterError, ValidationError) as error:
        told = "; ".join(mistakes(error)) if isinstance(error, ValidationError) else str(error)
        raise InvalidTimesError(f"`cron`: `{line}`: {told}") from error
    return CronTimes(times, zone)


def _plain(word: str, line: str) -> str:
    """A field in the words that croniter and calendars share."""
    if word == "?":
        return "*"
    for name in _WORD.findall(word):
        if not _NAMES.fullmatch(name[:3].lower()):
            raise InvalidTimesError(f"`cron`: `{line}`: `{word}` is no value, range, step or name; {_BEYOND}")
    if not re.fullmatch(r"[A-Za-z0-9*,/-]+", word):
        raise InvalidTimesError(f"`cron`: `{line}`: `{word}` is no field of values, ranges and steps")
    return _WORD.sub(lambda name: name[0][:3].upper(), word)


def _every(body: str, line: str) -> Interval:
    distance, slash, phase = body.removeprefix("@every").strip().partition("/")
    try:
        every = parse_duration(distance.strip())
        offset = parse_duration(phase.strip()) if slash else timedelta(0)
    except ValueError as error:
        raise InvalidTimesError(f"`cron`: `{line}`: {error}") from error
    if every < _SHORTEST or offset >= every:
        raise InvalidTimesError(
            f"`cron`: `{line}`: the distance must be at least 1s, and longer than the phase after `/`"
        )
    return Interval(every=every, offset=offset)
