"""Limits on what callers of the frontend may use: rates, concurrent RPCs, and memory for messages."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime

from perdure.frontend.errors import exhausted

_MAX_BUCKETS = 4_096


class Rate:
    """Token buckets by key. The least recently used keys are forgotten."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[Hashable, tuple[float, datetime]] = OrderedDict()

    def take(self, key: Hashable, time: datetime) -> bool:
        """Take one token of a key; returns False if none is left at that time."""
        left, since = self._buckets.pop(key, (float(self._burst), time))
        left = min(self._burst, left + max(0.0, (time - since).total_seconds()) * self._per_second)
        granted = left >= 1
        self._buckets[key] = (left - granted, time)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return granted


class Places:
    """Limits how many calls are in progress at the same time, for each key and in total."""

    def __init__(self, what: str, *, each: int, total: int) -> None:
        self._what = what
        self._each = each
        self._total = total
        self._taken: Counter[Hashable] = Counter()
        self._sum = 0

    def free(self, key: Hashable) -> bool:
        """Whether there is a place for a key."""
        return self._sum < self._total and self._taken[key] < self._each

    @contextmanager
    def take(self, key: Hashable) -> Iterator[None]:
        """Hold a place within the block.

        Raises:
            RpcError: No place is free.
        """
        if not self.free(key):
            raise exhausted(
                f"too many {self._what}: {self._each:,} for each caller and {self._total:,} in all; retry later"
            )
        self._taken[key] += 1
        self._sum += 1
        try:
            yield
        finally:
            self._sum -= 1
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


class MessageMemory:
    """The memory for messages in progress, in bytes. One caller may hold half of it."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held: Counter[Hashable] = Counter()
        self._sum = 0
        self._waiting: list[tuple[Hashable, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def hold(self, key: Hashable, size: int) -> AsyncIterator[Callable[[int], None]]:
        """Reserve memory for a message of at most `size` bytes within the block, waiting for it if necessary.

        The block gets a function that releases the rest once the actual size of the message is known.
        """
        await self._reserve(key, size)
        held = size

        def shrink(to: int) -> None:
            nonlocal held
            self._add(key, to - held)
            held = to
            self._grant()

        try:
            yield shrink
        finally:
            shrink(0)

    async def _reserve(self, key: Hashable, size: int) -> None:
        if self._fits(key, size):
            self._add(key, size)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = key, size, granted
        self._waiting.append(waiter)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._add(key, -size)
                self._grant()
            else:
                self._waiting.remove(waiter)
            raise

    def _grant(self) -> None:
        """Grant memory to waiting callers in order, skipping those whose share is used up."""
        for waiter in list(self._waiting):
            key, size, granted = waiter
            if not granted.done() and self._fits(key, size):
                self._waiting.remove(waiter)
                self._add(key, size)
                granted.set_result(None)

    def _fits(self, key: Hashable, size: int) -> bool:
        return self._sum + size <= self._total and self._held[key] + size <= self._total // 2

    def _add(self, key: Hashable, size: int) -> None:
        self._sum += size
        self._held[key] += size
        if not self._held[key]:
            del self._held[key]
