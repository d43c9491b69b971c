"""Formats and parses times, durations, and doubles, and quotes text for messages."""

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.values import DURATION_MAX

_MICROSECOND: Final = timedelta(microseconds=1)


def _fraction(micros: int) -> str:
    """The part below a second, as CEL writes it: nothing, three digits or six."""
    if not micros:
        return ""
    return f".{micros:06d}" if micros % 1_000 else f".{micros // 1_000:03d}"


def format_timestamp(value: datetime) -> str:
    """RFC 3339 in UTC, with as many digits of the fraction as needed."""
    if value.tzinfo is None:
        raise EvaluationError("a time without a zone is not a timestamp")
    wall = value.astimezone(UTC).replace(tzinfo=None)
    return f"{wall.replace(microsecond=0).isoformat()}{_fraction(wall.microsecond)}Z"


def format_duration(value: timedelta) -> str:
    """Seconds, as CEL writes them: ``90s``, ``-1.500s``."""
    micros = value // _MICROSECOND
    seconds, fraction = divmod(abs(micros), 1_000_000)
    return f"{'-' if micros < 0 else ''}{seconds}{_fraction(fraction)}s"


def format_double(value: float) -> str:
    """A double as `string()` writes it: without a trailing ``.0``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+infinity" if value > 0 else "-infinity"
    text = repr(value)
    return text.removesuffix(".0")


_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_DURATION = re.compile(r"([+-]?)((?:\d{1,20}(?:\.\d{0,20})?(?:d|h|ms|m|s|us|µs|ns))+|0)", re.ASCII)
_DURATION_PART = re.compile(r"(\d{1,20})(?:\.(\d{0,20}))?(d|h|ms|m|s|us|µs|ns)", re.ASCII)
_NANOS: Final = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "ns": 1,
}
SHORT: Final = 64
"""Maximum characters of a quote in a message, and of the text of a time, a zone, or a number."""


def short(text: str) -> str:
    """Quote at most 64 characters of a text for a message."""
    return f"'{text}'" if len(text) <= SHORT else f"'{text[:SHORT]}…'"


def parse_timestamp(text: str) -> datetime:
    """An RFC 3339 time; digits below a microsecond are dropped."""
    match = _TIMESTAMP.fullmatch(text) if len(text) <= SHORT else None
    if match is None:
        raise EvaluationError(f"{short(text)} is not a time; write it as RFC 3339: 2026-01-31T09:00:00Z")
    year, month, day, hour, minute, second, fraction, sign, off_h, off_m = match.groups()
    micros = int((fraction or "0").ljust(6, "0")[:6])
    try:
        zone = UTC
        if sign:
            offset = timedelta(hours=int(off_h), minutes=int(off_m))
            zone = timezone(-offset if sign == "-" else offset)
        wall = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, tzinfo=zone)
        return wall.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"{short(text)} is not a time: {error}") from None


def parse_duration(text: str) -> timedelta:
    """A duration such as ``1h30m``, ``90s``, ``1.5s`` or ``30d``; digits below a microsecond are dropped."""
    match = _DURATION.fullmatch(text) if len(text) <= SHORT else None
    if match is None:
        raise EvaluationError(f"{short(text)} is not a duration; write it like 90s, 1h30m or 30d")
    nanos = 0
    for whole, fraction, unit in _DURATION_PART.findall(match[2]):
        nanos += int(whole) * _NANOS[unit]
        nanos += int(fraction or "0") * _NANOS[unit] // 10 ** len(fraction)
    if nanos > DURATION_MAX // _MICROSECOND * 1_000:
        raise EvaluationError("the duration is longer than 10,000 years")
    length = timedelta(microseconds=nanos // 1_000)
    return -length if match[1] == "-" else length
