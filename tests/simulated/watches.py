"""Watches that lag: in order within a kind, and not across kinds; and that have gaps."""

from random import Random
from typing import Any

from perdure.simulation.cluster.process import Watch


class LaggingWatch(Watch):
    """The watch of a process on a kind. After a gap, it lists existing objects, but never reports deletions within the gap."""

    def __init__(self, random: Random, lag: float, *args: Any, **options: Any) -> None:
        """`lag` is the mean of its delays, in seconds; the rest is as for a Watch."""
        super().__init__(*args, **options)
        self._random = random
        self._lag = lag
        self._last = 0.0
        self._deaf = False

    def is_connected(self) -> bool:
        """Whether the connection holds."""
        return not self._deaf

    def schedule(self, type_: str | None, obj: dict[str, Any]) -> None:
        """Schedule the delivery of an event after all earlier ones."""
        self._last = max(self._last, self.loop.time() + self._random.expovariate(1 / self._lag)) + 2e-6
        self.loop.call_at(self._last, self.deliver, type_, obj)

    def interrupt(self, seconds: float) -> None:
        """Receive no events for a while, and then list, as a client with a broken connection does."""
        if not self._deaf:
            self._deaf = True
            self.loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._deaf = False
        if self.open:
            self.list()
