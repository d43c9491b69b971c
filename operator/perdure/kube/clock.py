"""The one place that reads the clock."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the exception that makes the rule possible


looks: ContextVar[bool] = ContextVar("looks", default=True)
"""Whether the world has to be looked at once in a while: because watches miss something, and clocks jump. In a simulation where
neither happens, years pass without anything to do."""
source: ContextVar[Callable[[], datetime]] = ContextVar("clock", default=_wall_clock)
"""Reads the clock of the current context, and of every task that it starts. A simulation sets its own."""


def now() -> datetime:
    """The wall-clock time, UTC, to the microsecond: what deadlines and events are measured by."""
    return source.get()()


async def until_next_look(seconds: float) -> None:
    """Wait between two looks at what nobody has told of."""
    if looks.get():
        await asyncio.sleep(seconds)
    else:
        await asyncio.get_running_loop().create_future()
