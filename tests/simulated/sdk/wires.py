"""Calls to operators over a network that delays, loses and breaks them."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from support.faulty.faults import Faults
from support.faulty.operators import FaultyOperator

_PING_SECONDS: Final = 3.0
"""How often each side of a connection pings the other one, and how long it waits for the response."""
_LONGEST_SECONDS: Final = 90.0


class BrokenError(Exception):
    """The connection broke, so the caller does not know the outcome of its call."""


class LateError(BrokenError):
    """The timeout of the caller has expired."""


class Wires:
    """The network between operators, and from workers and clients to operators."""

    def __init__(self, random: Random, faults: Faults) -> None:
        """`faults` says how many calls fail."""
        self._random = random
        self._faults = faults
        self._cut: dict[frozenset[str], float] = {}
        """Until when no call gets from one operator to another one, by their names."""

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Cut two operators off from each other for a while."""
        self._cut[frozenset({one, other})] = asyncio.get_running_loop().time() + seconds

    async def carry(
        self,
        target: FaultyOperator,
        handle: Callable[[], Coroutine[Any, Any, Any]],
        *,
        source: FaultyOperator | None = None,
        seconds: float | None = None,
    ) -> Any:
        """Have an operator handle a call, and return its response.

        Args:
            target: The operator.
            handle: Handles the call in its process.
            source: The operator that makes the call; None for a worker or a client.
            seconds: The timeout of the caller; None: none.

        Raises:
            BrokenError: There is no response.
        """
        random, usual, rate = self._random, (0.001, self._faults.delay), self._faults.rate
        draw, until = random.random(), asyncio.get_running_loop().time() + (seconds or math.inf)
        breaks = random.uniform(0, _LONGEST_SECONDS) if random.random() < 2 * rate else math.inf
        await asyncio.sleep(random.uniform(*usual))
        await self._pass(source, target)
        if draw < rate / 3:
            await asyncio.sleep(random.uniform(0.1, 5))
            raise BrokenError("the call was lost")
        work = target.do(handle())
        work.add_done_callback(_retrieved)
        try:
            await self._wait(source, target, work, until, asyncio.get_running_loop().time() + breaks)
        except BaseException:  # the handler notices soon that its caller has disconnected
            asyncio.get_running_loop().call_later(random.uniform(*usual), work.cancel)
            raise
        if work.cancelled():
            raise BrokenError("the operator was killed")
        await asyncio.sleep(random.uniform(*usual))
        await self._pass(source, target)
        if draw > 1 - rate / 3:
            raise BrokenError("the response was lost")
        return work.result()

    async def _wait(
        self,
        source: FaultyOperator | None,
        target: FaultyOperator,
        work: "asyncio.Task[Any]",
        until: float,
        breaks: float,
    ) -> None:
        """Wait for the end of a call as long as the connection holds."""
        loop = asyncio.get_running_loop()
        while not work.done():
            if loop.time() >= until:
                raise LateError("the call takes too long")
            if loop.time() >= breaks:
                raise BrokenError("the connection breaks")
            await asyncio.wait({work}, timeout=min(until - loop.time(), breaks - loop.time(), _PING_SECONDS))
            if not work.done():
                await self._pass(source, target)

    async def _pass(self, source: FaultyOperator | None, target: FaultyOperator) -> None:
        """Wait until messages get from one end to the other, as long as the connection holds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PING_SECONDS
        while self._is_blocked(source, target):
            if loop.time() >= until:
                raise BrokenError(f"{target.name} does not respond")
            await asyncio.sleep(0.25)
        if target.is_dead or (source is not None and source.is_dead):
            raise BrokenError(f"{target.name} is gone")

    def _is_blocked(self, source: FaultyOperator | None, target: FaultyOperator) -> bool:
        if target.is_frozen or (source is not None and source.is_frozen):
            return True
        if source is None:
            return False
        return asyncio.get_running_loop().time() < self._cut.get(frozenset({source.name, target.name}), 0.0)


def _retrieved(work: "asyncio.Task[Any]") -> None:
    """Mark the error of a call as seen: its caller may have disconnected."""
    if not work.cancelled():
        work.exception()
