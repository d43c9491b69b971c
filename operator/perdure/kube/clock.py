"""The one place that reads the clock."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the exception that makes the rule possible


source: ContextVar[Callable[[], datetime]] = ContextVar("clock", default=_wall_clock)
"""Reads the clock of the current context, and of every task that it starts. A simulation sets its own."""


def now() -> datetime:
    """The wall-clock time, UTC, to the microsecond: what deadlines and events are measured by."""
    return source.get()()
