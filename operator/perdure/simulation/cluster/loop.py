"""Event loops with a time of day: real time, or virtual time, which passes only while every task waits."""

import asyncio
import math
import selectors
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

_RESOLUTION = 1e-9
"""Resolution of the clock in seconds, unless floating-point steps are larger."""
_MAX_TURNS = 200_000
"""Turns of the loop without any passing of time after which the loop counts as spinning."""


class SpinningError(Exception):
    """Callbacks run endlessly while no time passes."""


class DeadlockError(Exception):
    """Every task waits, and no timer is scheduled that could wake one."""


class TimeLimitError(Exception):
    """The virtual time is over, and timers are still scheduled."""


class _Selector(selectors.DefaultSelector):
    """Adds each timeout to the clock instead of waiting."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self.time = 0.0
        self.resolution = _RESOLUTION
        self._end = end
        self._turns = 0

    def forgive(self) -> None:
        """Reset the count of turns."""
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("nothing is scheduled")
        if self.time + timeout > self._end:
            raise TimeLimitError(f"time ends after {self._end:.0f} s")
        if timeout > 0:
            self.time += timeout
            self.resolution = max(_RESOLUTION, 2 * math.ulp(self.time))
            self._turns = 0
        self._turns += 1
        if self._turns > _MAX_TURNS:
            raise SpinningError(f"the loop spins at {self.time:.3f} s")
        return []


class ClusterLoop(asyncio.SelectorEventLoop):
    """Runs asyncio code in real time."""

    def now(self) -> datetime:
        """The time of day, UTC."""
        return datetime.now(UTC)  # noqa: TID251 - perdure.kube.clock uses this clock


class VirtualLoop(ClusterLoop):
    """Runs asyncio code in virtual time. Timers that are due at the same time run in the order of their creation."""

    def __init__(self, start: datetime, *, lasts: timedelta | None = None) -> None:
        """Start the clock at `start`. `lasts` is how long the virtual time lasts; None: no limit."""
        self._clock = _Selector(math.inf if lasts is None else lasts.total_seconds())
        self._start = start
        self._last: dict[float, float] = {}
        """When the last timer that was requested for a time is due, by the requested time."""
        self._capacity = _MANY_TIMES
        """Number of them that are kept before those in the past are dropped."""
        super().__init__(self._clock)

    @property
    def _clock_resolution(self) -> float:
        """Timers within this number of seconds count as due: after months, floats have larger steps than asyncio expects."""
        return self._clock.resolution

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """Ignore the value that asyncio sets."""

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._clock.time

    def now(self) -> datetime:
        """The time of day, UTC."""
        return self._start + timedelta(seconds=self._clock.time)

    def abandon(self) -> None:
        """Cancel the tasks of a failed simulation."""
        self._clock.forgive()
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def call_at(  # type: ignore[override] # mypy does not accept its signature, which has more type variables
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a call. Calls at the same time are due in order, each a minimal step after the previous one."""
        if len(self._last) > self._capacity:
            self._last = {requested: due for requested, due in self._last.items() if requested >= self._clock.time}
            self._capacity = max(_MANY_TIMES, 2 * len(self._last))
        due = self._last[when] = math.nextafter(self._last[when], math.inf) if when in self._last else when
        return super().call_at(due, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override] # as above
        self, _executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function immediately in this thread, because another thread would take real time."""
        future = self.create_future()
        try:
            result = copy_context().run(function, *args)
        except Exception as error:  # noqa: BLE001 - as an executor does
            self.call_later(self.executor_seconds(), _settle, future.set_exception, future, error)
        else:
            self.call_later(self.executor_seconds(), _settle, future.set_result, future, result)
        return future

    def executor_seconds(self) -> float:
        """The duration of the next call in an executor, in virtual seconds."""
        return 0.0


_MANY_TIMES = 10_000


def _settle(settle: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        settle(value)
