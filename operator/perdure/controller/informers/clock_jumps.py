"""Detect jumps of the wall clock: someone has set it, or the machine was suspended."""

import asyncio
from typing import Final

import structlog

from perdure.kube.clock import now

_JUMP_SECONDS: Final = 1.0


class ClockJumps:
    """Compares the wall clock with the clock of the event loop, which is never set."""

    def __init__(self) -> None:
        self._ahead = 0.0
        """How far the wall clock was ahead at the last comparison, in seconds."""
        self._log = structlog.get_logger("perdure.manager")

    def begin(self) -> None:
        """Compare the clocks for the first time."""
        self._ahead = _ahead()

    def jumped(self) -> bool:
        """Whether the wall clock has jumped since the clocks were last compared."""
        ahead, before = _ahead(), self._ahead
        self._ahead = ahead
        jumped = abs(ahead - before) > _JUMP_SECONDS
        if jumped:
            self._log.warning("The clock has jumped", seconds=round(ahead - before, 3))
        return jumped


def _ahead() -> float:
    """How far the wall clock is ahead of the clock of the event loop, in seconds."""
    return now().timestamp() - asyncio.get_running_loop().time()
