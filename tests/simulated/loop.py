"""Virtual time in which the seed determines the order of calls."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from random import Random
from typing import Any

from perdure.simulation.cluster import loop

START = datetime(2026, 11, 22, tzinfo=UTC)
"""The time at which a simulation begins."""


class ShuffledLoop(loop.VirtualLoop):
    """Runs asyncio code in virtual time. Timers that are due at the same time run in an order that the seed decides."""

    def __init__(self, random: Random) -> None:
        self._random = random
        super().__init__(START)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a call, up to a microsecond later than requested."""
        return super().call_at(when + self._random.random() * 1e-6, callback, *args, context=context)

    def executor_seconds(self) -> float:
        """How long the next call in an executor takes."""
        return self._random.choice([0.0, self._random.uniform(0, 0.1), self._random.uniform(0, 3)])
