"""Times as Kubernetes writes them: RFC 3339, in whole seconds (Time) or with microseconds (MicroTime)."""

from datetime import UTC, datetime
from typing import Any

_FIRST_YEAR = 1971
"""Kubernetes and container runtimes write a year of 0001 or 1970 if they have no time."""


def read_time(text: Any) -> datetime | None:
    """Read a time of a Kubernetes object.

    Args:
        text: A time such as `2026-01-31T12:00:00Z` or `2026-01-31T12:00:00.000000Z`; anything else is invalid.

    Returns:
        The time in UTC; None if there is none.
    """
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return time if time.year >= _FIRST_YEAR else None


def write_micro_time(time: datetime) -> str:
    """Write a time in the format of a Lease's `renewTime`.

    Args:
        time: A time with a time zone.

    Returns:
        For instance `2026-01-31T12:00:00.000000Z`.
    """
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
