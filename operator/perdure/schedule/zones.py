"""Time zones: the offset from UTC at an instant, and when it changes.

An instant is a number of seconds since 1970-01-01T00:00:00Z. A wall time is the time on clocks in the zone, as the number of
seconds that the same time would have in UTC. The rules come from the tz database through `zoneinfo`; a zone without a name is
given as TZif data (RFC 9636).
"""

import base64
import binascii
import difflib
import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from perdure.api.reasons import ConditionReason
from perdure.schedule.calendar import DAY
from perdure.schedule.errors import InvalidTimesError

NEAR = 2 * DAY
"""In seconds. No zone is further than 26 hours from UTC, so wall times this far apart have the same order as their instants."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
        shown = (_EPOCH + timedelta(seconds=at)).astimezone(self.rules).utcoffset()
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
    return (_EPOCH + timedelta(seconds=at)).year


def _new_year(year: int) -> int:
    return (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).days * DAY
