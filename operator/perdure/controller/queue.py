"""A queue of keys: each key is worked on by one task at a time, at once or at a given time.

This is what makes a run single-flight, and it holds the one timer heap of the operator.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import structlog

Key = TypeVar("Key")

_LONGEST_SLEEP = timedelta(seconds=30)
"""The heap is looked at this often even if nothing is due, so that a step of the wall clock delays nothing for longer."""
_SLACK = 1_000
"""How many entries the heap may hold beyond the armed ones before those that were re-armed since are thrown out."""
_FIRST_BACKOFF = timedelta(milliseconds=200)
_LONGEST_BACKOFF = timedelta(seconds=30)


class KeyedQueue(Generic[Key]):
    """Calls ``work(key)`` for keys that were woken.

    A key woken while it is worked on is worked on once more afterwards. When ``work`` raises, the key is tried again, later each
    time; other keys are not delayed by it.
    """

    def __init__(
        self, work: Callable[[Key], Awaitable[None]], *, clock: Callable[[], datetime], workers: int = 32
    ) -> None:
        self._work = work
        self._clock = clock
        self._workers = workers
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._running: set[Key] = set()
        self._again: set[Key] = set()
        self._heap: list[tuple[datetime, int, Key]] = []
        self._armed: dict[Key, datetime] = {}
        self._pushed = 0
        self._earlier = asyncio.Event()
        self._failures: dict[Key, int] = {}
        self._log = structlog.get_logger("perdure.queue")

    @property
    def depth(self) -> int:
        """How many keys wait to be worked on now."""
        return len(self._queued) + len(self._again)

    @property
    def armed(self) -> int:
        """How many keys have a timer."""
        return len(self._armed)

    def wake(self, key: Key) -> None:
        """Have the key worked on as soon as possible."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def wake_at(self, key: Key, when: datetime | None) -> None:
        """Have the key worked on at `when`, instead of at the time it was armed for before; None disarms it."""
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
        if len(self._heap) > 2 * len(self._armed) + _SLACK:
            # Made of what is armed, not sifted: a key armed for the same time again and again is in the heap as often.
            self._heap = [(due, order, each) for order, (each, due) in enumerate(self._armed.items())]
            heapq.heapify(self._heap)

    def forget(self, key: Key) -> None:
        """Drop the key's timer and its record of failures."""
        self._armed.pop(key, None)
        self._failures.pop(key, None)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start working, as tasks of `group`; they run until they are cancelled."""
        group.create_task(self._tick())
        for _ in range(self._workers):
            group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._running.add(key)
            try:
                await self._work(key)
                self._failures.pop(key, None)
            except Exception as error:  # noqa: BLE001 - one key's trouble must not end the others' work
                self._retry(key, error)
            finally:
                self._running.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.wake(key)

    def _retry(self, key: Key, error: Exception) -> None:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = min(_FIRST_BACKOFF * 2 ** min(failures, 20), _LONGEST_BACKOFF)
        self._log.warning(
            "Could not finish a pass, trying again", key=str(key), error=repr(error), backoff=backoff.total_seconds()
        )
        self._log.debug("Where it failed", key=str(key), exc_info=error)
        due = self._clock() + backoff
        self.wake_at(key, min(due, self._armed.get(key, due)))

    async def _tick(self) -> None:
        """Wake keys whose time has come."""
        while True:
            self._earlier.clear()
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                when, _, key = heapq.heappop(self._heap)
                if self._armed.get(key) == when:
                    del self._armed[key]
                    self.wake(key)
            pause = min(self._heap[0][0] - now, _LONGEST_SLEEP) if self._heap else _LONGEST_SLEEP
            try:
                async with asyncio.timeout(pause.total_seconds()):
                    await self._earlier.wait()
            except TimeoutError:
                continue
