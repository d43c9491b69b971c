"""When a timeout ends."""

from datetime import datetime, timedelta


def deadline_after(start: datetime | None, timeout: timedelta | None) -> datetime | None:
    """The end of a timeout; None if it has not begun, or if there is none."""
    return None if start is None or timeout is None else start + timeout
