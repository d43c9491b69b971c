"""Fairness between namespaces that compete for the same workers.

The tenant with the fewest items in progress goes first; among equals, the one that has waited longest. So each tenant gets the
same share of the workers, regardless of its number of waiting items and their duration, and a new tenant waits at most for one
item to end. Each tenant also has a limit, which leaves workers free for the next tenant.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def share(slots: int) -> int:
    """The number of slots that one tenant may use: half of them, so that the next tenant never waits for it."""
    return max(1, slots // 2)


class FairQueue(Generic[Item]):
    """The waiting items of several tenants, and how many of each are in progress. Pure: it calls and awaits nothing."""

    def __init__(self, *, slots: int, each: int) -> None:
        """Create an empty queue.

        Args:
            slots: The most items in progress.
            each: The most items in progress per tenant.
        """
        self._slots = slots
        self._waiting: dict[str, deque[Item]] = {}
        self._busy: dict[str, int] = {}
        self._levels: list[OrderedDict[str, None]] = [OrderedDict() for _ in range(each)]
        """The waiting tenants below their limit, in order, by the number of their items in progress."""
        self._depth = 0
        self._in_progress = 0

    def __len__(self) -> int:
        """The number of waiting items."""
        return self._depth

    @property
    def in_progress(self) -> int:
        """The number of items in progress."""
        return self._in_progress

    def put(self, tenant: str, item: Item) -> None:
        """Add an item behind the items of its tenant."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._depth += 1
        self._enter(tenant)

    def take(self) -> tuple[str, Item] | None:
        """Start the next item, and return it with its tenant; None if none may start."""
        if self._in_progress >= self._slots:
            return None
        level = next(filter(None, self._levels), None)
        if level is None:
            return None
        tenant, _ = level.popitem(last=False)
        items = self._waiting[tenant]
        item = items.popleft()
        if not items:
            del self._waiting[tenant]
        self._depth -= 1
        self._in_progress += 1
        self._busy[tenant] = self._busy.get(tenant, 0) + 1
        self._enter(tenant)
        return tenant, item

    def done(self, tenant: str) -> None:
        """Record that an item of a tenant is no longer in progress."""
        busy = self._busy.pop(tenant)
        if busy < len(self._levels):
            self._levels[busy].pop(tenant, None)
        if busy > 1:
            self._busy[tenant] = busy - 1
        self._in_progress -= 1
        self._enter(tenant)

    def _enter(self, tenant: str) -> None:
        busy = self._busy.get(tenant, 0)
        if tenant in self._waiting and busy < len(self._levels):
            self._levels[busy].setdefault(tenant)


class FairPool:
    """Runs jobs of several tenants in the background, fairly and with limits."""

    def __init__(self, *, slots: int, each: int) -> None:
        """Run up to `slots` jobs concurrently, and up to `each` per tenant."""
        self._jobs: FairQueue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]]] = FairQueue(
            slots=slots, each=each
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """The number of waiting jobs."""
        return len(self._jobs)

    def submit(self, tenant: str, job: Callable[[], Awaitable[Result]]) -> asyncio.Future[Result]:
        """Schedule a job; the future has its result or exception.

        Cancelling the future while the job waits withdraws the job.
        """
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs.put(tenant, (job, future))
        self._dispatch()
        return future

    def _dispatch(self) -> None:
        while started := self._jobs.take():
            tenant, (job, future) = started
            task = asyncio.get_running_loop().create_task(self._do(tenant, job, future))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _do(self, tenant: str, job: Callable[[], Awaitable[Any]], future: asyncio.Future[Any]) -> None:
        try:
            if not future.done():
                result = await job()
                with suppress(asyncio.InvalidStateError):
                    future.set_result(result)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            with suppress(asyncio.InvalidStateError):
                future.set_exception(error)
        except asyncio.CancelledError:
            future.cancel()
            raise
        finally:
            self._jobs.done(tenant)
            self._dispatch()
