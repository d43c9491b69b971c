"""A queue with a virtual clock."""

import asyncio
import functools
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perdure.controller.queue import KeyedQueue
from perdure.observe.metrics import REGISTRY
from support.engine.script import T0, seconds

HOUR = 3600.0


class Jumping(selectors.DefaultSelector):
    """Waits for nothing: where the loop would sleep, time jumps."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing is left that could ever happen"
            self.now += max(timeout, 0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.jumping = Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*arguments, **options))

    return run


def metric(what: str, queue: str) -> float | None:
    """The count or the sum of the waits that a queue has reported."""
    return REGISTRY.get_sample_value(f"perdure_queue_wait_seconds_{what}", {"queue": queue})


def elapsed() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class QueueDriver:
    """Work that takes some time, may fail, and is recorded."""

    takes: float = 0.0
    clock_is_off: float = 0.0
    failing: set[str] = field(default_factory=set)
    done: list[tuple[float, str]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    peak: int = 0

    async def work(self, key: str) -> None:
        assert key not in self.running, f"{key} is worked on twice at once"
        self.done.append((round(elapsed(), 3), key))
        self.running.add(key)
        self.peak = max(self.peak, len(self.running))
        try:
            await asyncio.sleep(self.takes)
            if key in self.failing:
                raise RuntimeError(f"{key} does not work")
        finally:
            self.running.discard(key)

    def clock(self) -> datetime:
        return T0 + seconds(elapsed() + self.clock_is_off)

    def times(self, key: str) -> list[float]:
        return [when for when, what in self.done if what == key]

    @asynccontextmanager
    async def queue(self, workers: int = 8, **options: Any) -> AsyncIterator[KeyedQueue[str]]:
        queue: KeyedQueue[str] = KeyedQueue(self.work, clock=self.clock, workers=workers, **options)
        async with asyncio.TaskGroup() as group:
            before = asyncio.all_tasks()
            queue.start(group)
            yield queue
            for task in asyncio.all_tasks() - before:
                task.cancel()


def at(offset: float) -> datetime:
    return T0 + seconds(offset)
