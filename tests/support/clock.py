"""A clock that stands still until the test moves it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.kube import clock


@dataclass
class StoppedClock:
    """The time that the code under test reads."""

    start: datetime
    time: datetime

    def at(self, seconds: float) -> None:
        """Move it to a number of seconds after its start."""
        self.time = self.start + timedelta(seconds=seconds)

    def forward(self, duration: timedelta) -> None:
        """Let time pass."""
        self.time += duration


@contextmanager
def stopped_clock(at: datetime | None = None) -> Iterator[StoppedClock]:
    """A clock for the block and for the tasks that begin in it; `at`: the time that it shows, by default the current one."""
    start = at or clock.now()
    stopped = StoppedClock(start, start)
    token = clock.source.set(lambda: stopped.time)
    try:
        yield stopped
    finally:
        clock.source.reset(token)
