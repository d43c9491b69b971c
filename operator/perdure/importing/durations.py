"""Converts durations of Go, in which Argo and Tekton write theirs: fractions, microseconds, signs, and zero without a unit."""

import re
from datetime import timedelta
from fractions import Fraction
from typing import Any, Final

from perdure.api.times import LONGEST, MILLISECOND, format_duration

_MICROSECONDS: Final = {
    "ns": Fraction(1, 1_000),
    **dict.fromkeys(("us", "µs", "μs"), Fraction(1)),
    "ms": Fraction(1_000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(f"[-+]?(?:0|(?:{_PART.pattern})+)")
_SECONDS: Final = re.compile("[-+]?[0-9]+")
NO_LIMIT: Final = "365d"
"""The time limit in place of one that is explicitly zero, where Perdure needs a limit."""


def go_duration(value: Any, *, seconds: bool = False) -> str | None:
    """Convert a duration, as Go's `time.ParseDuration` reads it.

    Args:
        value: The text, such as `1.5h`, `1h0m0s`, or `0`; or a number.
        seconds: Whether a number without a unit is a number of seconds, as in Argo's `ParseStringToDuration`. Otherwise only zero
            has no unit.

    Returns:
        The duration in Perdure's format, to the millisecond and at least one; None for zero.

    Raises:
        ValueError: The value is not a duration, or is below zero.
    """
    text = str(value)
    if seconds and _SECONDS.fullmatch(text):
        text += "s"
    if isinstance(value, bool) or not _DURATION.fullmatch(text):
        raise ValueError(f"`{text}` is not a duration such as `1h30m`, `1.5h`, or `90s`")
    total = sum((Fraction(number) * _MICROSECONDS[unit] for number, unit in _PART.findall(text)), Fraction(0))
    if not total:
        return None
    if text.startswith("-"):
        raise ValueError(f"`{text}` is below zero; write a duration such as `90s`, or remove it")
    if total >= LONGEST // timedelta(microseconds=1):
        return format_duration(LONGEST)
    return format_duration(max(timedelta(microseconds=round(total)), MILLISECOND))
