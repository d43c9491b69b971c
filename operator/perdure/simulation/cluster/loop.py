"""Event loops that know the time of day: with real time, and with virtual time, which passes only while everything waits."""

import asyncio
import math
import selectors
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

_RESOLUTION = 1e-9
"""Seconds, while time has no larger steps itself."""
_MOST_TURNS = 200_000
"""Turns of the loop without any time passing after which something is taken to spin."""


class SpinningError(Exception):
    """Callbacks follow each other without end while no time passes."""


class DeadlockError(Exception):
    """Everything waits, and nothing is scheduled that could end that."""


class TooLateError(Exception):
    """Time has come to its end, and something is still scheduled."""


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: adds the time that it is asked to wait to the clock."""

    def __init__(self, end: float) -> None:
        super().__init__()
        self.time = 0.0
        self.resolution = _RESOLUTION
        self._end = end
        self._turns = 0

    def forgive(self) -> None:
        """Begin to count turns from zero."""
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("nothing is scheduled")
        if self.time + timeout > self._end:
            raise TooLateError(f"time ends after {self._end:.0f} s")
        if timeout > 0:
            self.time += timeout
            self.resolution = max(_RESOLUTION, 2 * math.ulp(self.time))
            self._turns = 0
        self._turns += 1
        if self._turns > _MOST_TURNS:
            raise SpinningError(f"the loop spins at {self.time:.3f} s")
        return []


class ClusterLoop(asyncio.SelectorEventLoop):
    """Runs asyncio code in real time."""

    def now(self) -> datetime:
        """The time of day, UTC."""
        return datetime.now(UTC)  # noqa: TID251 - what perdure.kube.clock shows comes from here


class VirtualLoop(ClusterLoop):
    """Runs asyncio code in virtual time. Timers that are due at the same time run in the order in which they were made."""

    def __init__(self, start: datetime, *, lasts: timedelta | None = None) -> None:
        """`start` is what the clock shows in the beginning; `lasts` is how much time there is, None: any amount."""
        self._clock = _Selector(math.inf if lasts is None else lasts.total_seconds())
        self._start = start
        self._last: dict[float, float] = {}
        """By a time that timers were asked for, when the last of them is due."""
        super().__init__(self._clock)

    @property
    def _clock_resolution(self) -> float:
        """Timers due within that number of seconds are due: after months, time has larger steps than asyncio reckons with."""
        return self._clock.resolution

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """What asyncio takes it for is not asked for."""

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._clock.time

    def now(self) -> datetime:
        """The time of day, UTC."""
        return self._start + timedelta(seconds=self._clock.time)

    def abandon(self) -> None:
        """End what a simulation that has failed has left running."""
        self._clock.forgive()
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def call_at(  # type: ignore[override] # its type has more variables than mypy takes for compatible
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a call: of several at one time, each is due the least bit after the one before."""
        if len(self._last) > _MANY_TIMES:
            self._last = {asked: due for asked, due in self._last.items() if asked >= self._clock.time}
        due = self._last[when] = math.nextafter(self._last[when], math.inf) if when in self._last else when
        return super().call_at(due, callback, *args, context=context)

    def run_in_executor(  # type: ignore[override] # as above
        self, _executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function here and now: a thread would take real time."""
        future = self.create_future()
        try:
            result = copy_context().run(function, *args)
        except Exception as error:  # noqa: BLE001 - as an executor does
            self.call_later(self.executor_seconds(), _settle, future.set_exception, future, error)
        else:
            self.call_later(self.executor_seconds(), _settle, future.set_result, future, result)
        return future

    def executor_seconds(self) -> float:
        """How long the next call in an executor takes."""
        return 0.0


_MANY_TIMES = 10_000


def _settle(settle: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        settle(value)
