"""Cron lines, read into a calendar or an interval.

The dialect is that of Temporal's schedules (temporal/api/schedule/v1/message.proto): 5 fields with the minute first, 6 with the
year last, 7 with the second first and the year last; `@daily` and similar names; `@every 1h30m/5m` with a phase; a time zone
in front and a comment at the end. As in Quartz, days can depend on the month: `L`, `LW`, `15W`, `MON#1`, `FRIL` (the same as
croniter's `L5`); see `calendar`. Jenkins' `H` is rejected: use `jitter`.
"""

import re
from dataclasses import dataclass
from datetime import timedelta

from pydantic import ValidationError

from perdure.api.kinds.schedule import Calendar, Interval
from perdure.api.models import mistakes_by_path
from perdure.api.times import parse_duration
from perdure.schedule.calendar import Matcher, depends_on_month
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
_FIELDS = ("second", "minute", "hour", "dayOfMonth", "month", "dayOfWeek", "year")
_COMMENT = re.compile(r"(?:^|\s)#")
_HASHED = re.compile(r"[Hh]\b")
"""Jenkins' syntax to spread start times."""
_LAST_WEEKDAY = re.compile("L([0-7])")
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class CronTimes:
    """The times of a cron line, and its time zone."""

    times: Calendar | Interval
    time_zone: str | None = None
    """The time zone in front of the fields."""


def without_comment(line: str) -> tuple[str, str]:
    """Split a cron line from its comment. A `#` within a field, as in `MON#1`, does not start a comment."""
    body, *comments = _COMMENT.split(line.strip(), maxsplit=1)
    return body.strip(), comments[0].strip() if comments else ""


def read_cron(line: str) -> CronTimes:
    """Read a cron line.

    Raises:
        InvalidTimesError: The line is not a cron line, or no calendar can express it.
    """
    body, comment = without_comment(line)
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
            f"`{line}` has {len(words)} fields: there must be 5 (minute first), 6 (year last) or 7 (second first, "
            "year last), or `@daily` and the like"
        )
    if any(_HASHED.match(word) for word in words):
        raise InvalidTimesError(f"`{line}`: `H` is not supported; to spread starts, set `jitter`")
    fields = {name: _field(name, word) for name, word in zip(_FIELDS, words, strict=True)}
    try:
        times = Calendar.parse({**fields, "comment": comment})
        Matcher.of(times)
    except ValidationError as error:
        problems = [f"`{name}` is `{fields.get(name, '')}`: {what}" for name, what in mistakes_by_path(error)]
        raise InvalidTimesError(f"`{line}`: {'; '.join(problems)}") from error
    except InvalidTimesError as error:
        raise InvalidTimesError(f"`{line}`: `{error.path}`: {error.sentence}") from error
    return CronTimes(times, zone)


def _field(name: str, word: str) -> str:
    """Convert a field to calendar syntax, with names in three capital letters. The calendar rejects invalid items later."""
    if word == "?":
        return "*"
    return ",".join(_item(name, item) for item in word.split(","))


def _item(name: str, item: str) -> str:
    if name == "dayOfWeek":
        item = _LAST_WEEKDAY.sub(r"\1L", item.upper()) if _LAST_WEEKDAY.fullmatch(item.upper()) else item
    if name in {"dayOfMonth", "dayOfWeek"} and depends_on_month(item):
        return item.upper()
    if not all(_NAMES.fullmatch(word[:3].lower()) for word in _WORD.findall(item)):
        return item
    return _WORD.sub(lambda found: found[0][:3].upper(), item)


def _every(body: str, line: str) -> Interval:
    distance, slash, phase = body.removeprefix("@every").strip().partition("/")
    try:
        every = parse_duration(distance.strip())
        offset = parse_duration(phase.strip()) if slash else timedelta(0)
    except ValueError as error:
        raise InvalidTimesError(f"`{line}`: {error}") from error
    if every < _SHORTEST or offset >= every or every % _SHORTEST or offset % _SHORTEST:
        raise InvalidTimesError(
            f"`{line}`: the interval must be at least 1s, in whole seconds, and longer than the phase after `/`"
        )
    return Interval(every=every, offset=offset)
