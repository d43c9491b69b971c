"""Parts of times and durations. A zone is UTC or an offset, because tables of named zones differ between machines."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.formats import SHORT, short
from perdure.language.cel.functions.registry import implement

_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def _in_zone(value: datetime, zone: str) -> datetime:
    if zone in {"UTC", "Z"}:
        return value.astimezone(UTC)
    match = _OFFSET.fullmatch(zone) if len(zone) <= SHORT else None
    if match is None:
        raise EvaluationError(f"{short(zone)} is not a zone here; use 'UTC' or an offset such as '+02:00'")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    try:
        return value.astimezone(timezone(-offset if match[1] == "-" else offset))
    except (ValueError, OverflowError):
        raise EvaluationError(f"{short(zone)} is not an offset of less than a day") from None


_TIME_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda t: t.year,
    "getMonth": lambda t: t.month - 1,
    "getDate": lambda t: t.day,
    "getDayOfMonth": lambda t: t.day - 1,
    "getDayOfWeek": lambda t: t.isoweekday() % 7,
    "getDayOfYear": lambda t: t.timetuple().tm_yday - 1,
    "getHours": lambda t: t.hour,
    "getMinutes": lambda t: t.minute,
    "getSeconds": lambda t: t.second,
    "getMilliseconds": lambda t: t.microsecond // 1_000,
}


def _toward_zero(value: timedelta, unit: timedelta) -> int:
    whole = abs(value) // unit
    return -whole if value < timedelta(0) else whole


_DURATION_PARTS: Final[dict[str, Callable[[timedelta], int]]] = {
    "getHours": lambda d: _toward_zero(d, timedelta(hours=1)),
    "getMinutes": lambda d: _toward_zero(d, timedelta(minutes=1)),
    "getSeconds": lambda d: _toward_zero(d, timedelta(seconds=1)),
    "getMilliseconds": lambda d: int(math.fmod(_toward_zero(d, timedelta(milliseconds=1)), 1_000)),
}


def _register_parts() -> None:
    """Register the getters of timestamps and durations, which differ only in the part that they return."""
    for name, part in _TIME_PARTS.items():
        implement(name, "timestamp")(lambda _meter, value, part=part: part(value.astimezone(UTC)))
        implement(name, "timestamp string")(lambda _meter, value, zone, part=part: part(_in_zone(value, zone)))
    for name, take in _DURATION_PARTS.items():
        implement(name, "duration")(lambda _meter, value, take=take: take(value))


_register_parts()
