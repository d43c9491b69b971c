"""The clock of the operator: the only module of it that reads the time of day. A simulation sets another one."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime

from perdure.lazy import lazily

with lazily():
    from email import utils


def _wall_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the exception that makes the rule possible


polling: ContextVar[bool] = ContextVar("polling", default=True)
"""Whether the operator polls periodically, in case a watch missed an event, a clock jumped, or the workers of a task queue came
or went. A simulation in which nothing of this can happen disables it, so that idle years cost nothing."""
source: ContextVar[Callable[[], datetime]] = ContextVar("clock", default=_wall_clock)
"""The function that reads the clock in the current context and its tasks. A simulation sets its own."""


def now() -> datetime:
    """The wall-clock time, UTC, to the microsecond, for deadlines and events."""
    return source.get()()


def read_http_time(header: str) -> datetime | None:
    """The time in a `Date` header of an API server, UTC, to the second; None if it has none."""
    try:
        return utils.parsedate_to_datetime(header).replace(tzinfo=UTC)  # always GMT (RFC 9110)
    except (ValueError, OverflowError):
        return None


def monotonic() -> float:
    """The time of the running event loop, in seconds, for timeouts. In a simulation, it is virtual."""
    return asyncio.get_running_loop().time()


async def until_next_poll(seconds: float) -> None:
    """Wait before the next periodic read; without `polling`, wait forever."""
    if polling.get():
        await asyncio.sleep(seconds)
    else:
        await asyncio.get_running_loop().create_future()
