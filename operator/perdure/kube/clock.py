"""The one place that reads the clock."""

from datetime import UTC, datetime


def now() -> datetime:
    """The wall-clock time, UTC, to the microsecond: what deadlines and events are measured by."""
    return datetime.now(UTC)  # noqa: TID251 - the exception that makes the rule possible
