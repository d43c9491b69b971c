"""Formats durations, times, and values as short texts."""

import json
import math
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.cells import cell_len, set_cell_size

from perdure.engine.payloads import readable

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_MAX_SCANNED = 16_384
"""Maximum characters of a value to process for showing its beginning."""


def duration(length: timedelta) -> str:
    """Format a duration with at most two units.

    Args:
        length: The duration; a negative one (clocks differ) counts as zero.

    Returns:
        For instance `0s`, `450ms`, `4.2s`, `2m5s`, `3d4h`.
    """
    seconds = max(length.total_seconds(), 0.0)
    if round(seconds * 1000) < 1000:  # noqa: PLR2004
        return f"{round(seconds * 1000)}ms" if round(seconds * 1000) else "0s"
    if round(seconds * 10) < 600:  # noqa: PLR2004
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    return _two_units(round(seconds))


def countdown(length: timedelta) -> str:
    """Format a remaining time in whole seconds, rounded up, so that it is never `0s`.

    Args:
        length: The remaining time.

    Returns:
        For instance `1s`, `20s`, `3d4h`; `0s` if it is over.
    """
    return _two_units(math.ceil(max(length.total_seconds(), 0.0)))


def age(length: timedelta) -> str:
    """Format the time since an event in whole seconds.

    Args:
        length: The time since.

    Returns:
        For instance `0s`, `20s`, `2m5s`, `3d4h`.
    """
    return _two_units(math.floor(max(length.total_seconds(), 0.0)))


def _two_units(seconds: int) -> str:
    parts: list[str] = []
    for unit, size in _UNITS:
        number, seconds = divmod(seconds, size)
        if number or parts:
            parts.append(f"{number}{unit}" if number else "")
        if len(parts) == 2:  # noqa: PLR2004
            break
    return "".join(parts) or "0s"


def iso(time: datetime) -> str:
    """Write a time as RFC 3339 in UTC, to the millisecond.

    Args:
        time: A time with a time zone.

    Returns:
        For instance `2026-12-24T18:00:00.250Z`.
    """
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")


def one_line(text: str) -> str:
    """Make text safe to print on one line.

    Text from a cluster must not control the terminal: escape sequences, line breaks, and marks that change the
    direction of text are removed.

    Args:
        text: Any text.

    Returns:
        The text with runs of white space as one space and other control characters as `?`.
    """
    joined = " ".join(text[:_MAX_SCANNED].split())
    if joined.isascii() and joined.isprintable():
        return joined
    return "".join("?" if unicodedata.category(c) in {"Cc", "Cf", "Cs"} else c for c in joined)


def paragraphs(text: str) -> list[str]:
    """Split text at its line breaks, each line safe to print.

    Args:
        text: Any text.

    Returns:
        Its lines; indentation is kept, other control characters are `?`.
    """
    lines = text.expandtabs(4).splitlines()
    return [line[: len(line) - len(line.lstrip(" "))] + one_line(line) for line in lines]


def value(data: Any) -> str:
    """Format any JSON value on one line: a string unquoted, everything else as JSON, payloads of SDKs as their values.

    Args:
        data: A JSON value.

    Returns:
        The line.
    """
    data = readable(data)
    return one_line(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def shorten(text: str, width: int, ellipsis: str) -> str:
    """Truncate text to a width.

    Args:
        text: One line.
        width: Maximum columns of the terminal.
        ellipsis: The end of truncated text.

    Returns:
        Text of at most that width.
    """
    if cell_len(text) <= width:
        return text
    kept = max(width - cell_len(ellipsis), 0)
    return set_cell_size(text, kept).rstrip() + ellipsis[: width - kept]


def pad(text: str, width: int) -> str:
    """Fill text with spaces up to a width.

    Args:
        text: One line.
        width: Columns of the terminal.

    Returns:
        The text, at least that wide.
    """
    return text + " " * (width - cell_len(text))


def wrap(text: str, width: int) -> list[str]:
    """Wrap text at its spaces; a word that is too long is on a separate line, so that it can be copied.

    Args:
        text: One line.
        width: Columns of the terminal.

    Returns:
        At least one line.
    """
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def join(parts: Iterable[str | None], separator: str = "; ") -> str:
    """Join nonempty texts.

    Args:
        parts: Texts; None and empty texts are omitted.
        separator: The text between two parts.

    Returns:
        The joined text.
    """
    return separator.join(part for part in parts if part)
