"""The times of a Schedule: cron lines, intervals and calendars together, without the excluded times.

Cron lines are read into calendars or intervals. The dialect is that of Temporal's schedules
(temporal/api/schedule/v1/message.proto): 5 fields with the minute first, 6 with the year last, 7 with the second first and the
year last; `@daily` and similar names; `@every 1h30m/5m` with a phase; a time zone in front and a comment at the end. As in
Quartz, days can depend on the month: `L`, `LW`, `15W`, `MON#1`, `FRIL` (the same as croniter's `L5`); see `calendar`. Jenkins'
`H` is rejected: use `jitter`.

Time zones. An instant is a number of seconds since 1970-01-01T00:00:00Z. A wall time is the time on clocks in the zone, as the
number of seconds that the same time would have in UTC. The rules come from the tz database through `zoneinfo`; a zone without a
name is given as TZif data (RFC 9636).

Daylight saving. Calendars use wall time, intervals use absolute time. On the two days of a year on which clocks change, wall
time jumps:

    forward, 02:00 to 03:00      01:59 | 03:00      02:30 does not exist: it counts as 03:00 (RunAfter), or not at all (Skip)
    back, 03:00 to 02:00         02:59 | 02:00      02:30 occurs twice: the first one counts (First), or both (Both)

A calendar for every hour, or for each second, third, or fourth hour around the clock, means an interval, not hours of the day. It
follows elapsed hours: its times never move, and both occurrences of a repeated time count. The set of hours decides, not how it
is written (`*`, `0-23`, `*/1`).

Bounds. A search looks 40 years ahead, because 29 February on a given weekday may be that far away. Calendars and intervals
skip excluded times by day. A search skips up to `MAX_EXCLUDED` days of intervals, or moved times, in a row.
"""

import base64
import binascii
import difflib
import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property, lru_cache, reduce
from itertools import islice, takewhile
from operator import or_
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from pydantic import ValidationError

from perdure.api.kinds.schedule import Calendar, CanonicalSpec, Interval, RepeatedPolicy, ScheduleSpec, SkippedPolicy
from perdure.api.models import mistakes_by_path
from perdure.api.reasons import ConditionReason
from perdure.api.times import format_duration, parse_duration
from perdure.schedule.calendar import (
    DAY,
    InvalidTimesError,
    Matcher,
    WallTimes,
    Work,
    by_days,
    depends_on_month,
    lowest,
)

FURTHEST = timedelta(days=40 * 366)
"""How far a search looks ahead."""
MAX_EXCLUDED = 10_000
"""How many consecutive excluded times, or blocks of them, a search skips."""
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""The earliest possible time; intervals are counted from it."""
LATEST = datetime(9990, 1, 1, tzinfo=UTC)
"""All times are before it, so that a zone can shift them."""
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


NEAR = 2 * DAY
"""In seconds. No zone is further than 26 hours from UTC, so wall times this far apart have the same order as their instants."""


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """A stretch of time with a constant offset from UTC."""

    start: int
    """The first instant. If `before` differs from `offset`, clocks change at it."""
    end: int
    """The instant after the last one."""
    offset: int
    """How far wall time is ahead of UTC, in seconds."""
    before: int
    """The offset before `start`."""


class Zone:
    """One time zone."""

    def __init__(self, name: str, rules: tzinfo) -> None:
        self.name = name
        self.rules = rules
        """The zone as a `tzinfo` for `datetime`."""
        self._changes: dict[int, tuple[tuple[int, int], ...]] = {}

    def offset(self, at: int) -> int:
        """How far wall time is ahead of UTC at an instant, in seconds."""
        shown = (EARLIEST + timedelta(seconds=at)).astimezone(self.rules).utcoffset()
        assert shown is not None
        return shown.days * DAY + shown.seconds

    def wall(self, at: int) -> int:
        """The wall time at an instant."""
        return at + self.offset(at)

    def span(self, at: int) -> OffsetSpan:
        """The span around an instant, limited to two days before and after it."""
        start, end = at - NEAR, at + NEAR
        before = offset = self.offset(at)
        for year in range(_year(start), _year(end) + 1):
            for change, old in self._changes_in(year):
                if start <= change <= at:
                    start, before = change, old
                elif at < change < end:
                    end = change
        return OffsetSpan(start, end, offset, before)

    def _changes_in(self, year: int) -> tuple[tuple[int, int], ...]:
        """The changes of a year (UTC), in order: the instant, and the previous offset."""
        found = self._changes.get(year)
        if found is None:
            found = self._changes[year] = tuple(self._find_changes(year))
        return found

    def _find_changes(self, year: int) -> list[tuple[int, int]]:
        first, last = _new_year(year), _new_year(year + 1)
        found = []
        at, old = first - 1, self.offset(first - 1)
        while at < last - 1:
            # No zone changes twice within a day and returns to its old offset.
            ahead = min(at + DAY, last - 1)
            if self.offset(ahead) == old:
                at = ahead
                continue
            low, high = at, ahead
            while high - low > 1:
                middle = (low + high) // 2
                if self.offset(middle) == old:
                    low = middle
                else:
                    high = middle
            found.append((high, old))
            at, old = high, self.offset(high)
        return found


def named_zone(name: str) -> Zone:
    """A zone by its IANA name.

    Raises:
        InvalidTimesError: No zone has that name.
    """
    known = _names()
    if name not in known:
        close = difflib.get_close_matches(name, known, 1) or [n for n in known if n.lower() == name.lower()]
        hint = f"; did you mean `{close[0]}`?" if close else ": use an IANA name such as `Europe/Berlin`"
        raise InvalidTimesError(f"time zone `{name}` does not exist{hint}", ConditionReason.UNKNOWN_TIME_ZONE)
    return _named(name)


@lru_cache(maxsize=1024)
def _named(name: str) -> Zone:
    return Zone(name, ZoneInfo(name))


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(maxsize=64)
def embedded_zone(data: str) -> Zone:
    """Read a zone from TZif data in base64.

    Raises:
        InvalidTimesError: The data is not valid TZif.
    """
    try:
        rules = ZoneInfo.from_file(io.BytesIO(base64.b64decode(data, validate=True)))
        zone = Zone("", rules)
        for year in (1999, 2026, 2100):
            zone.offset(_new_year(year))
    except (
        binascii.Error,
        ValueError,
        OSError,
        EOFError,
        ArithmeticError,
        IndexError,
        LookupError,
        RuntimeError,
    ) as error:
        message = (
            f"is not TZif data in base64: {error}; `base64 -w0 /usr/share/zoneinfo/Europe/Berlin` prints such data"
        )
        raise InvalidTimesError(message, ConditionReason.UNKNOWN_TIME_ZONE) from error
    return zone


def _year(at: int) -> int:
    return (EARLIEST + timedelta(seconds=at)).year


def _new_year(year: int) -> int:
    return (datetime(year, 1, 1, tzinfo=UTC) - EARLIEST).days * DAY


_SECOND = timedelta(seconds=1)
_SUMMARY = 256


@dataclass(frozen=True, slots=True)
class Due:
    """A time at which a run must start."""

    nominal: datetime
    """The time according to the spec, UTC, in whole seconds."""
    actual: datetime
    """The nominal time plus jitter."""


class _Exclusions:
    """Wall times at which no run starts."""

    def __init__(self, matchers: tuple[Matcher, ...]) -> None:
        self.matchers = matchers
        self.by_days = by_days(matchers)
        self._on: dict[int, int] = {}
        """The seconds of a day that are excluded, by the set of `by_days` (their numbers, as bits) that match the day."""

    def free_from(self, wall: int) -> int | None:
        """The first later wall time that the matcher excluding `wall` does not exclude; `wall` itself if it is not excluded."""
        for matcher in self.matchers:
            if matcher.matches(wall):
                return matcher.next_miss(wall)
        return wall

    def excludes(self, wall: int) -> bool:
        """Whether a wall time is excluded."""
        return any(matcher.matches(wall) for matcher in self.matchers)

    def on(self, day: int) -> int:
        """The excluded seconds of a day, as a set."""
        key = sum(1 << number for number, each in enumerate(self.by_days) if each.has_day(day))
        found = self._on.get(key)
        if found is None:
            times = (times for number, times in enumerate(self.by_days.values()) if key >> number & 1)
            found = self._on[key] = reduce(or_, times, 0)
        return found


@dataclass(frozen=True)
class _IntervalTimes:
    """The times of an interval, without most of the excluded ones."""

    every: int
    offset: int
    zone: Zone
    excluded: _Exclusions

    def next(self, at: int, last: int) -> int | None:
        """The first of these instants between `at` and `last`; it may be excluded if it is the first of its day."""
        found = self._from(at)
        if found > last or not self.excluded.matchers:
            return found if found <= last else None
        span = self.zone.span(found)
        if self.excluded.excludes(found + span.offset):
            found = self._after_excluded(found, span)
        return found if found <= last else None

    def has(self, at: int) -> bool:
        """Whether the interval has an instant as one of its times."""
        return (at - self.offset) % self.every == 0

    def skipped_before(self, at: int) -> int | None:  # noqa: ARG002 (as a calendar's)
        """Return None: changes of clocks do not affect intervals."""
        return None

    def _from(self, at: int) -> int:
        return at + (self.offset - at) % self.every

    def _after_excluded(self, at: int, span: OffsetSpan) -> int:
        """The first time of the same day that is not excluded; the first of the next one if there is none."""
        day, second = divmod(at + span.offset, DAY)
        left = self._of_a_day & ~(self.excluded.on(day) >> second)
        found = at + lowest(left) if left else _NEVER
        end = min(span.end, at + DAY - second)
        return found if found < end else self._from(end)

    @cached_property
    def _of_a_day(self) -> int:
        """The seconds after a time that are times, for a day, as a set."""
        found, length = 1, self.every
        while length < DAY:
            found |= found << length
            length *= 2
        return found


@dataclass(frozen=True, slots=True)
class _ByCalendar:
    """A calendar in a time zone, without the excluded wall times."""

    times: WallTimes
    zone: Zone
    moves: bool
    """Whether a time that does not exist counts as the first instant after it."""
    once: bool
    """Whether only the first of two equal wall times counts."""

    def next(self, at: int, last: int) -> int | None:
        """The first of these instants between `at` and `last`.

        Clocks do not change within a span. So the first matching wall time is the result if it is in the span of `at`. If it is
        beyond that span, nothing matches until shortly before it, whatever clocks do in between.
        """
        while at <= last:
            span = self.zone.span(at)
            if self._skipped(at, span) is not None:
                return at
            low = at
            if self.once:  # a wall time that repeats because clocks went back does not count
                low = max(at, span.start + span.before - span.offset)
            wall = self.times.next(low + span.offset)
            changes = span.end < at + NEAR
            if wall is not None and wall - span.offset < span.end:
                found = wall - span.offset
                return found if found <= last else None
            if changes:
                at = span.end
            elif wall is None:
                return None
            else:
                at = max(span.end, wall - span.offset - NEAR)
        return None

    def has(self, at: int) -> bool:
        """Whether the wall time of an instant is one of these times."""
        wall = self.zone.wall(at)
        return self.times.next(wall) == wall

    def skipped_before(self, at: int) -> int | None:
        """The first of these wall times that does not exist, and for which the run starts at the instant `at`."""
        return self._skipped(at, self.zone.span(at))

    def _skipped(self, at: int, span: OffsetSpan) -> int | None:
        if at != span.start or not self.moves or span.offset <= span.before:
            return None
        wall = self.times.next(at + span.before)
        return wall if wall is not None and wall < at + span.offset else None


class Times:
    """The times of a Schedule."""

    def __init__(self, spec: ScheduleSpec, work: Work | None = None) -> None:
        """Read the times of a spec; `work` is the budget of all searches.

        Raises:
            InvalidTimesError: The times are not valid.
        """
        parts, faults = _read(spec)
        if faults:
            raise faults[0]
        self.zone = parts.zone
        self.calendars = [*spec.calendars, *(line.times for line in parts.lines if isinstance(line.times, Calendar))]
        self.intervals = [*spec.intervals, *(line.times for line in parts.lines if isinstance(line.times, Interval))]
        self._spec = spec
        self._excluded = _Exclusions(tuple(parts.exclude))
        self._work = work or Work()
        matchers = [*parts.calendars, *map(Matcher.of, self.calendars[len(spec.calendars) :])]
        self._rules: list[_ByCalendar | _IntervalTimes] = [
            *map(self._by_calendar, matchers),
            *map(self._by_interval, self.intervals),
        ]
        self._first = -(-(spec.start_time - EARLIEST) // _SECOND) if spec.start_time else None
        self._last = (min(spec.end_time or LATEST, LATEST) - EARLIEST) // _SECOND

    def nominal(self, after: datetime) -> Iterator[datetime]:
        """The times after an instant, in order, without jitter; whole seconds, UTC.

        Raises:
            InvalidTimesError: Too much is excluded for the search to end.
        """
        self._work.renew()
        for at in self._search((after - EARLIEST) // _SECOND + 1):
            yield EARLIEST + timedelta(seconds=at)

    def count(self, after: datetime, until: datetime, most: int) -> int:
        """Count the times after an instant and up to another; `most + 1` if there are more than `most`.

        Raises:
            InvalidTimesError: Too much is excluded for the search to end.
        """
        return sum(1 for _ in islice(takewhile(lambda time: time <= until, self.nominal(after)), most + 1))

    def latest(self, until: datetime, within: timedelta) -> datetime | None:
        """The newest time up to an instant that is not older than `within`; None if there is none.

        Raises:
            InvalidTimesError: Too much is excluded for the search to end.
        """
        self._work.renew()
        return self._latest(until, within)

    def _latest(self, until: datetime, within: timedelta) -> datetime | None:
        """The same, with the budget that is left."""
        high = min((until - EARLIEST) // _SECOND, _NEVER - 1)
        found = next(self._search((until - within - EARLIEST) // _SECOND), _NEVER)
        if found > high:
            return None
        while found < high:
            middle = (found + high + 1) // 2
            later = next(self._search(middle), _NEVER)
            if later <= high:
                found = later
            else:
                high = middle - 1
        return EARLIEST + timedelta(seconds=found)

    def previous(self, before: datetime) -> datetime | None:
        """The newest time before an instant; None if there is none.

        Raises:
            InvalidTimesError: Too much is excluded for the search to end.
        """
        self._work.renew()
        within = timedelta(days=1)
        while within < FURTHEST * 8:
            found = self._latest(before - _SHORTEST, min(within, FURTHEST))
            if found is not None:
                return found
            within *= 8
        return None

    def dues(self, after: datetime, seed: str) -> Iterator[Due]:
        """The times after an instant, each with its jitter. Jitter is a hash of `seed` and the time, so it is always the same.

        Raises:
            InvalidTimesError: Too much is excluded for the search to end.
        """
        times = self.nominal(after)
        if not self._spec.jitter:
            yield from (Due(nominal, nominal) for nominal in times)
            return
        nominal = next(times, None)
        while nominal is not None:
            following = next(times, None)
            limit = self._spec.jitter if following is None else min(self._spec.jitter, following - nominal)
            yield Due(nominal, nominal + _jitter(seed, nominal, limit))
            nominal = following

    def replaces(self, at: datetime) -> datetime | None:
        """The wall time that does not exist because clocks go forward, and for which the run starts at an instant.

        Args:
            at: One of the times, UTC.

        Returns:
            A naive datetime; None if the instant is a regular time of the Schedule.
        """
        second = (at - EARLIEST) // _SECOND
        if any(rule.has(second) for rule in self._rules):
            return None
        walls = (rule.skipped_before(second) for rule in self._rules)
        wall = min((wall for wall in walls if wall is not None), default=None)
        return None if wall is None else (EARLIEST + timedelta(seconds=wall)).replace(tzinfo=None)

    def occurrence(self, at: datetime) -> int:
        """Which occurrence an instant is if its wall time occurs twice because clocks go back: 1 or 2; otherwise 0."""
        second = (at - EARLIEST) // _SECOND
        span = self.zone.span(second)
        if second < span.start + span.before - span.offset:
            return 2
        return 1 if second >= span.end - span.offset + self.zone.span(span.end).offset else 0

    def canonical(self) -> CanonicalSpec:
        """The canonical form of the spec's times."""
        return CanonicalSpec(
            summary=summary_of(self._spec),
            calendars=self.calendars,
            intervals=self.intervals,
            exclude=self._spec.exclude,
            time_zone=self.zone.name or "embedded",
        )

    @cached_property
    def canonical_json(self) -> dict[str, Any]:
        """The canonical form as JSON for the status, cached because each commit needs it."""
        return self.canonical().dump()

    def _search(self, at: int) -> Iterator[int]:
        """The times from an instant on; each but the first has a budget of its own."""
        at = max(at, 0)
        if self._first is not None:
            at = max(at, self._first)
        upcoming = [at - 1] * len(self._rules)
        while True:
            last = min(self._last, at + FURTHEST // _SECOND)
            for index, rule in enumerate(self._rules):
                if upcoming[index] < at:
                    upcoming[index] = _NEVER if (found := rule.next(at, last)) is None else found
            found = min(upcoming, default=_NEVER)
            if found == _NEVER:
                return
            at = self._after_exclusion(found)
            self._work.count(len(self._rules) + len(self._excluded.matchers))
            if at == found:
                yield found
                self._work.renew()
                at = found + 1
                continue
            self._work.skipped += 1
            if self._work.skipped > MAX_EXCLUDED:
                raise _too_much_excluded()

    def _after_exclusion(self, at: int) -> int:
        """The next instant that may not be excluded; `at` itself if it is not excluded."""
        span = self.zone.span(at)
        wall = at + span.offset
        free = self._excluded.free_from(wall)
        if free == wall:
            return at
        if free is not None and free - span.offset < span.end:
            return free - span.offset
        if span.end < at + NEAR:
            return span.end
        return _NEVER if free is None else max(span.end, free - span.offset - NEAR)

    def _by_interval(self, interval: Interval) -> _IntervalTimes:
        every, offset = interval.every // _SECOND, interval.offset // _SECOND
        return _IntervalTimes(every, offset, self.zone, self._excluded)

    def _by_calendar(self, matcher: Matcher) -> _ByCalendar:
        saving = self._spec.daylight_saving
        return _ByCalendar(
            WallTimes(matcher, self._excluded.by_days, self._work),
            self.zone,
            moves=saving.skipped is SkippedPolicy.RUN_AFTER and not matcher.follows_elapsed_hours,
            once=saving.repeated is RepeatedPolicy.FIRST and not matcher.follows_elapsed_hours,
        )


_NEVER = (LATEST - EARLIEST) // _SECOND


def summary_of(spec: ScheduleSpec) -> str:
    """Summarize the times of a spec, as the user wrote them. The spec need not be valid."""
    parts = [without_comment(line)[0] for line in spec.cron]
    parts += [_interval_in_words(each) for each in spec.intervals]
    parts += [_calendar_in_words(each) for each in spec.calendars]
    text = "; ".join(parts) or "when triggered"
    return text if len(text) <= _SUMMARY else text[: _SUMMARY - 1] + "…"


def faults_of(spec: ScheduleSpec) -> list[InvalidTimesError]:
    """All errors in the times of a Schedule; `Times` raises the first of them."""
    return _read(spec)[1]


@dataclass(slots=True)
class _Parts:
    """The parsed fields of a Schedule."""

    lines: list[CronTimes] = field(default_factory=list)
    zone: Zone = field(default_factory=lambda: named_zone("UTC"))
    exclude: list[Matcher] = field(default_factory=list)
    calendars: list[Matcher] = field(default_factory=list)


def _read(spec: ScheduleSpec) -> tuple[_Parts, list[InvalidTimesError]]:
    """Read all fields, and collect their errors."""
    parts, faults = _Parts(), list[InvalidTimesError]()

    @contextmanager
    def at(path: str) -> Iterator[None]:
        try:
            yield
        except InvalidTimesError as error:
            faults.append(error.below(path))

    zones: dict[str, str] = {"spec.timeZone": spec.time_zone} if spec.time_zone else {}
    for index, line in enumerate(spec.cron):
        with at(f"spec.cron[{index}]"):
            parts.lines.append(found := read_cron(line))
            zones |= {f"spec.cron[{index}]": found.time_zone} if found.time_zone else {}
    try:
        parts.zone = _zone(zones, spec.time_zone_data)
    except InvalidTimesError as error:
        faults.append(error)
    for name, calendars, matchers in (
        ("exclude", spec.exclude, parts.exclude),
        ("calendars", spec.calendars, parts.calendars),
    ):
        for index, calendar in enumerate(calendars):
            with at(f"spec.{name}[{index}]"):
                matchers.append(Matcher.of(calendar))
    for index, interval in enumerate(spec.intervals):
        if interval.every % _SECOND or interval.offset % _SECOND:
            faults.append(
                InvalidTimesError("`every` and `offset` must be whole seconds", path=f"spec.intervals[{index}]")
            )
    return parts, faults


def _zone(named: Mapping[str, str], data: str | None) -> Zone:
    """The one zone of a Schedule.

    Args:
        named: The names of zones in the spec, by field path.
        data: The zone as TZif data, if the spec contains it.
    """
    names = sorted(set(named.values()))
    if len(names) > 1 or (names and data):
        zones = ", ".join(f"`{name}`" for name in names) + (" and `timeZoneData`" if data else "")
        surplus = [path for path, name in named.items() if data or name != next(iter(named.values()))]
        raise InvalidTimesError(
            f"a Schedule has one time zone, but there are {zones}; create a Schedule for each", path=surplus[0]
        )
    try:
        return embedded_zone(data) if data else named_zone((names or ["UTC"])[0])
    except InvalidTimesError as error:
        raise error.below("spec.timeZoneData" if data else next(iter(named))) from error


def _jitter(seed: str, nominal: datetime, limit: timedelta) -> timedelta:
    number = int.from_bytes(hashlib.sha256(f"{seed}/{int(nominal.timestamp())}".encode()).digest()[:8], "big")
    return timedelta(milliseconds=number * (limit // timedelta(milliseconds=1)) >> 64)


def _too_much_excluded() -> InvalidTimesError:
    return InvalidTimesError(
        f"more than {MAX_EXCLUDED} times in a row are excluded; exclude whole hours or days", path="spec.exclude"
    )


def _interval_in_words(interval: Interval) -> str:
    offset = f" + {format_duration(interval.offset)}" if interval.offset else ""
    return f"every {format_duration(interval.every)}{offset}"


def _calendar_in_words(calendar: Calendar) -> str:
    """Write a calendar as a cron line."""
    words = [calendar.minute, calendar.hour, calendar.day_of_month, calendar.month, calendar.day_of_week]
    if calendar.second != "0":
        words = [calendar.second, *words, calendar.year]
    elif calendar.year != "*":
        words.append(calendar.year)
    return " ".join(word.replace(" ", "") for word in words)


_TIMES_FIELDS = {
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "start_time",
    "end_time",
    "jitter",
    "time_zone",
    "time_zone_data",
    "daylight_saving",
}


def times_hash(spec: ScheduleSpec) -> str:
    """A hash of the fields of a spec that determine the times: if it changes, the schedule starts over from now."""
    when = spec.model_dump(mode="json", include=_TIMES_FIELDS)
    return hashlib.sha256(json.dumps(when, sort_keys=True).encode()).hexdigest()[:16]
