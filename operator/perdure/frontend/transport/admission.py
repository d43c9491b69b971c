"""Limits on what callers of the frontend may use: rates, concurrent RPCs, and memory for messages."""

import asyncio
from collections import Counter, OrderedDict, deque
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


class Shares:
    """Divides an amount among tenants.

    Without a limit for each, a tenant may hold as much as is left. One alone can hold half, two can hold a third each, and
    so on: there is always something left for others.
    """

    def __init__(self, total: int, each: int | None = None) -> None:
        self._held: Counter[Hashable] = Counter()
        self._left = total
        self._each = each

    def held(self, key: Hashable) -> int:
        """Return the size that a tenant holds."""
        return self._held[key]

    def fits(self, key: Hashable, size: int) -> bool:
        """Whether a tenant may have `size` more."""
        if self._each is None:
            return self._held[key] + size <= self._left - size
        return size <= self._left and self._held[key] + size <= self._each

    def add(self, key: Hashable, size: int) -> None:
        """Increase the size that a tenant holds, or reduce it by a negative size."""
        self._left -= size
        self._held[key] += size
        if not self._held[key]:
            del self._held[key]


class Places:
    """Limits how many calls are in progress at the same time."""

    def __init__(self, noun: str, *, total: int, each: int | None = None) -> None:
        """Create free places.

        Args:
            noun: The noun for the calls in messages.
            total: The number of places.
            each: How many places a caller may hold; None: a share of them.
        """
        self._noun = noun
        self._total = total
        self._each = each
        self._shares = Shares(total, each)

    def free(self, key: Hashable) -> bool:
        """Whether there is a place for a caller."""
        return self._shares.fits(key, 1)

    @contextmanager
    def take(self, key: Hashable) -> Iterator[None]:
        """Hold a place within the block.

        Raises:
            RpcError: No place is free.
        """
        if not self.free(key):
            each = f"{self._each:,} for each caller" if self._each is not None else "a share for each namespace"
            raise exhausted(f"too many {self._noun}: {each} and {self._total:,} in all; retry later")
        self._shares.add(key, 1)
        try:
            yield
        finally:
            self._shares.add(key, -1)


class MessageMemory:
    """The memory for messages in progress, in bytes, in shares for tenants."""

    def __init__(self, total: int, *, each: int | None = None) -> None:
        """`each` is the limit for a tenant; None: a share."""
        self._shares = Shares(total, each)
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def hold(
        self, key: Hashable, size: int, seconds: float | None = None
    ) -> AsyncIterator[Callable[[int], None]]:
        """Reserve memory for a message of at most `size` bytes within the block, waiting for it if necessary.

        The block gets a function that releases the rest once the actual size of the message is known.

        Raises:
            RpcError: There is no memory within `seconds`.
        """
        await self._reserve(key, size, seconds)
        held = size

        def resize(to: int) -> None:
            nonlocal held
            self._shares.add(key, to - held)
            held = to
            self._grant()

        try:
            yield resize
        finally:
            resize(0)

    async def keep(self, key: Hashable, size: int, seconds: float | None) -> Callable[[], None]:
        """Reserve memory, and return a function that releases it.

        Args:
            key: The tenant.
            size: The bytes.
            seconds: How long to wait for them; None: they are taken even if there are too few.

        Raises:
            RpcError: There is no memory within `seconds`.
        """
        if seconds is None:
            self._shares.add(key, size)
        else:
            await self._reserve(key, size, seconds)

        def release() -> None:
            self._shares.add(key, -size)
            self._grant()

        return release

    async def _reserve(self, key: Hashable, size: int, seconds: float | None) -> None:
        if key not in self._waiting and self._shares.fits(key, size):
            self._shares.add(key, size)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = size, granted
        self._waiting.setdefault(key, deque()).append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await granted
        except (asyncio.CancelledError, TimeoutError) as error:
            if granted.done() and not granted.cancelled():
                self._shares.add(key, -size)
                self._grant()
            else:
                self._remove(key, waiter)
            if isinstance(error, TimeoutError):
                raise exhausted("the messages of this namespace take too much memory; retry later") from None
            raise

    def _grant(self) -> None:
        """Grant memory to those who wait: first to the tenants that hold least, and to the calls of each in order."""
        for key in sorted(self._waiting, key=self._shares.held):
            while (waiting := self._waiting.get(key)) and self._shares.fits(key, waiting[0][0]):
                size, granted = waiting[0]
                self._remove(key, waiting[0])
                if not granted.done():
                    self._shares.add(key, size)
                    granted.set_result(None)

    def _remove(self, key: Hashable, waiter: tuple[int, asyncio.Future[None]]) -> None:
        waiting = self._waiting.get(key)
        if waiting is None or waiter not in waiting:
            return
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[key]
