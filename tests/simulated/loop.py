"""Event loops that know the time of day: with real time, and with virtual time, which passes only while everything waits."""

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

START = datetime(2026, 11, 22, tzinfo=UTC)
"""What the clock shows when a simulation begins."""

_MOST_TURNS = 200_000
"""Turns of the loop without any time passing after which something is taken to spin."""


class SpinningError(Exception):
    """Callbacks follow each other without end while no time passes."""


class DeadlockError(Exception):
    """Everything waits, and nothing is scheduled that could end that."""


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: adds the time that it is asked to wait to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self._turns = 0

    def forgive(self) -> None:
        """Begin to count turns from zero."""
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("nothing is scheduled")
        if timeout > 0:
            self.time += timeout
            self._turns = 0
        self._turns += 1
        if self._turns > _MOST_TURNS:
            raise SpinningError(f"the loop spins at {self.time:.3f} s")
        return []


class Loop(asyncio.SelectorEventLoop):
    """Runs asyncio code in real time."""

    def now(self) -> datetime:
        """The time of day, UTC."""
        return datetime.now(UTC)  # noqa: TID251 - what perdure.kube.clock shows comes from here


class VirtualLoop(Loop):
    """Runs asyncio code in virtual time. Timers that are due at the same time run in an order that the seed decides."""

    def __init__(self, random: Random) -> None:
        self._clock = _Selector()
        self._random = random
        super().__init__(self._clock)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._clock.time

    def now(self) -> datetime:
        """The time of day, UTC."""
        return START + timedelta(seconds=self._clock.time)

    def abandon(self) -> None:
        """End what a simulation that has failed has left running."""
        self._clock.forgive()
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a call, up to a microsecond later than asked for."""
        return super().call_at(when + self._random.random() * 1e-6, callback, *args, context=context)

    def run_in_executor(self, _executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Call a function here and now, and return its result a while later: a thread would take real time."""
        future = self.create_future()
        after = self._random.choice([0.0, self._random.uniform(0, 0.1), self._random.uniform(0, 3)])
        try:
            self.call_later(after, _settle, future.set_result, future, copy_context().run(function, *args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            self.call_later(after, _settle, future.set_exception, future, error)
        return future


def _settle(settle: Callable[[Any], None], future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        settle(value)
