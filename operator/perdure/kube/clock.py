"""The one place that reads the clock."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the exception that makes the rule possible


polling: ContextVar[bool] = ContextVar("polling", default=True)
"""Whether the operator reads things periodically, in case a watch has missed something or a clock has jumped. A simulation in
which neither can happen turns it off, so that idle years cost nothing."""
source: ContextVar[Callable[[], datetime]] = ContextVar("clock", default=_wall_clock)
"""Reads the clock of the current context, and of every task that it starts. A simulation sets its own."""


def now() -> datetime:
    """The wall-clock time, UTC, to the microsecond: what deadlines and events are measured by."""
    return source.get()()


async def until_next_poll(seconds: float) -> None:
    """Wait before the next periodic read; without `polling`, for ever."""
    if polling.get():
        await asyncio.sleep(seconds)
    else:
        await asyncio.get_running_loop().create_future()
