"""A queue of keys: one task processes a key at a time, immediately or at a given time.

The queue makes runs single-flight, and has their timer heap. `fairness` selects the next namespace.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import structlog

from perdure.controller.errors import NotYetError
from perdure.controller.queue.fairness import FairQueue
from perdure.kube.clock import polling
from perdure.observe import metrics

Key = TypeVar("Key")

_LONGEST_SLEEP = timedelta(seconds=30)
"""Longest interval between checks of the heap, which bounds the delay after a step of the wall clock."""
_MAX_OUTDATED = 1_000
"""The number of outdated entries in the heap at which they are removed."""
_FIRST_BACKOFF = timedelta(milliseconds=200)
_LONGEST_BACKOFF = timedelta(seconds=30)


class KeyedQueue(Generic[Key]):
    """Calls ``work(key)`` for woken keys.

    A key woken while it is processed is processed once more afterwards. If ``work`` raises, the key is retried with growing
    delays; other keys are not delayed. If it raises NotYetError, the key occupies no worker until the awaited result exists.
    """

    def __init__(
        self,
        work: Callable[[Key], Awaitable[None]],
        *,
        clock: Callable[[], datetime],
        workers: int = 32,
        tenant: Callable[[Key], str] = lambda _: "",
        each: int | None = None,
        name: str = "",
        admits: Callable[[Key], bool] = lambda _: True,
        remembers: Callable[[Key], bool] = lambda _: True,
    ) -> None:
        """Create a queue without starting it.

        Args:
            work: Processes a key.
            clock: Returns the time.
            workers: The number of keys that are processed concurrently.
            tenant: Returns the tenant of a key; tenants take turns.
            each: The number of keys of one tenant that are processed concurrently; None: the number of workers.
            name: The name of the queue in metrics.
            admits: Returns whether this process may process a key now.
            remembers: Returns whether to keep a key that was not admitted for `readmit`.
        """
        self._work = work
        self._clock = clock
        self._workers = workers
        self._tenant = tenant
        self._metrics = metrics.QueueMetrics(name)
        self._ready: FairQueue[tuple[Key, float]] = FairQueue(slots=workers, each=each or workers)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._parked: dict[Key, asyncio.Future[Any]] = {}
        """The results that keys wait for, kept until the keys are processed."""
        self._queued: set[Key] = set()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._heap: list[tuple[datetime, int, Key]] = []
        self._armed: dict[Key, datetime] = {}
        self._pushed = 0
        self._earlier = asyncio.Event()
        self._failures: dict[Key, int] = {}
        self._admits = admits
        self._remembers = remembers
        self._refused: set[Key] = set()
        """Keys that were due but not admitted."""
        self._idled = asyncio.Event()
        self._log = structlog.get_logger("perdure.queue")

    @property
    def depth(self) -> int:
        """The number of keys that wait for a worker."""
        return len(self._queued) + len(self._again)

    @property
    def armed(self) -> int:
        """The number of keys with a timer."""
        return len(self._armed)

    def wake(self, key: Key) -> None:
        """Process a key as soon as possible."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._metrics.depth.set(self.depth)
            self._ready.put(self._tenant(key), (key, asyncio.get_running_loop().time()))
            self._call_worker()

    def wake_at(self, key: Key, when: datetime | None) -> None:
        """Process a key at `when`, instead of at the time set before; None removes its timer."""
        if when is None:
            self._armed.pop(key, None)
            return
        if self._armed.get(key) == when:
            return
        self._armed[key] = when
        self._pushed += 1
        heapq.heappush(self._heap, (when, self._pushed, key))
        if self._heap[0][2] == key:
            self._earlier.set()
        if len(self._heap) > 2 * len(self._armed) + _MAX_OUTDATED:
            # Rebuild the heap from the armed keys, because it may contain a key several times for the same time.
            self._heap = [(due, order, each) for order, (each, due) in enumerate(self._armed.items())]
            heapq.heapify(self._heap)

    def forget(self, key: Key) -> None:
        """Drop the key's timer and its record of failures."""
        self._armed.pop(key, None)
        self._failures.pop(key, None)
        self._parked.pop(key, None)
        self._refused.discard(key)

    def readmit(self) -> None:
        """Wake the keys that were due while they were not admitted, if they are admitted now."""
        for key in [key for key in self._refused if self._admits(key)]:
            self._refused.discard(key)
            self.wake(key)

    async def drain(self) -> None:
        """Wait until no key is being processed. Keys that are still admitted are processed in the meantime."""
        while self._running:
            self._idled.clear()
            await self._idled.wait()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the workers as tasks of `group`; they run until they are cancelled."""
        group.create_task(self._tick())
        for _ in range(self._workers):
            group.create_task(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            tenant, (key, since) = await self._next()
            self._queued.discard(key)
            self._metrics.depth.set(self.depth)
            if not self._admits(key):
                self._ready.done(tenant)
                if self._remembers(key):
                    self._refused.add(key)
                continue
            self._metrics.wait.observe(loop.time() - since)
            self._running.add(key)
            try:
                await self._work(key)
                self._failures.pop(key, None)
                self._parked.pop(key, None)
            except NotYetError as error:
                self._park(key, error)
            except Exception as error:  # noqa: BLE001 - the failure of one key must not stop the others
                self._retry(key, error)
            finally:
                self._ready.done(tenant)
                self._running.discard(key)
                if not self._running:
                    self._idled.set()
                if key in self._again:
                    self._again.discard(key)
                    self.wake(key)

    async def _next(self) -> tuple[str, tuple[Key, float]]:
        while (item := self._ready.take()) is None:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(called)
            await called
        return item

    def _call_worker(self) -> None:
        """Wake an idle worker. A worker that has finished a key takes the next one on its own."""
        while self._idle:
            called = self._idle.popleft()
            if not called.done():
                called.set_result(None)
                return

    def _park(self, key: Key, error: NotYetError) -> None:
        before = self._parked.get(key)
        self._parked[key] = error.awaited
        if before is not error.awaited:
            error.awaited.add_done_callback(lambda future: self._unpark(key, future))
        if error.until is not None:
            self.wake_at(key, min(error.until, self._armed.get(key, error.until)))

    def _unpark(self, key: Key, result: asyncio.Future[Any]) -> None:
        if not result.cancelled():
            result.exception()  # the next caller gets the exception
        if self._parked.get(key) is result:
            self.wake(key)

    def _retry(self, key: Key, error: Exception) -> None:
        self._metrics.failed.inc()
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(_FIRST_BACKOFF * 2 ** min(failures, 20), _LONGEST_BACKOFF)
        self._log.warning(
            "Could not reconcile, retrying", key=str(key), error=repr(error), backoff=backoff.total_seconds()
        )
        self._log.debug("Traceback of the failed reconciliation", key=str(key), exc_info=error)
        due = self._clock() + backoff
        self.wake_at(key, min(due, self._armed.get(key, due)))

    async def _tick(self) -> None:
        """Wake keys whose timers are due."""
        while True:
            self._earlier.clear()
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                when, _, key = heapq.heappop(self._heap)
                if self._armed.get(key) == when:
                    del self._armed[key]
                    self.wake(key)
            pause = self._heap[0][0] - now if self._heap else None
            if polling.get():
                pause = min(pause, _LONGEST_SLEEP) if pause is not None else _LONGEST_SLEEP
            try:
                async with asyncio.timeout(pause.total_seconds() if pause is not None else None):
                    await self._earlier.wait()
            except TimeoutError:
                continue
