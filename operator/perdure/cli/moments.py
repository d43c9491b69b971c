"""Reads times from users."""

from datetime import UTC, datetime, tzinfo

from perdure.client.errors import CliError

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


def has_zone(text: str) -> bool:
    """Return whether a time has an offset from UTC.

    Raises:
        CliError: The text is not a time.
    """
    return _parsed(text).tzinfo is not None


def moment(text: str, zone: tzinfo) -> datetime:
    """Read a time.

    Args:
        text: RFC 3339, or a date or a time without an offset.
        zone: The time zone of a time without an offset.

    Returns:
        The time, in UTC.

    Raises:
        CliError: The text is not a time, or the time is before 1970.
    """
    time = _parsed(text)
    try:
        time = (time.replace(tzinfo=zone) if time.tzinfo is None else time).astimezone(UTC)
    except OverflowError:
        raise _not_a_time(text) from None
    if time < _EARLIEST:
        raise CliError(f"`{text}` is before 1970; use a later time")
    return time


def rfc3339(time: datetime) -> str:
    """Format a time for the API."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _parsed(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _not_a_time(text) from None


def _not_a_time(text: str) -> CliError:
    return CliError(
        f"`{text}` is not a time: write 2026-03-29T00:00:00Z, or 2026-03-29 for midnight in the schedule's time zone"
    )
