"""Converts the values of expressions to durations, times, and texts for steps."""

import json
import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from perdure.api.times import DURATION_MESSAGE, LONGEST, TIME_MESSAGE, parse_duration, parse_time

_COMPUTED_DURATION = re.compile("(-?)([0-9]{1,12})(?:[.]([0-9]{1,6}))?s")
"""The text of a computed duration: always in seconds, even for days."""
_SHOWN = 120


def as_duration(value: Any) -> timedelta:
    """Convert a value to a duration; a negative duration has already passed.

    Raises:
        ValueError: The value cannot be converted.
    """
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        if computed := _COMPUTED_DURATION.fullmatch(value):
            sign, whole, fraction = computed.groups("")
            length = timedelta(seconds=int(whole), microseconds=int(fraction.ljust(6, "0")))
            return timedelta(0) if sign else min(length, LONGEST)
        with suppress(ValueError):
            return parse_duration(value)
    raise ValueError(f"{format_value(value)} {DURATION_MESSAGE}")


def as_time(value: Any) -> datetime:
    """Convert a value to a time.

    Raises:
        ValueError: The value cannot be converted.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return parse_time(value)
    raise ValueError(f"{format_value(value)} {TIME_MESSAGE}")


def as_text(value: Any) -> str:
    """Convert a value to text: text unchanged, null to an empty one, everything else to JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else _json(value)


def format_value(value: Any) -> str:
    """Format a value for a message."""
    text = _json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
