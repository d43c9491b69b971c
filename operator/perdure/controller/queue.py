"""The queue of keys: one task processes a key at a time, immediately or at a given time, and namespaces share the tasks fairly.

The queue makes runs single-flight, and has their timer heap.

There is one key for each piece of work. Each has its namespace, for fairness, and `sharded_by`: together with the namespace, this
name selects the shard, and so the member of a fleet that does the work. The runs of a workflow ID are in one shard, together with
everything that belongs to them.

Fairness between namespaces that compete for the same workers. The tenant with the fewest items in progress goes first; among
equals, the one that has waited longest. So each tenant gets the same share of the workers, regardless of its number of waiting
items and their duration, and a new tenant waits at most for one item to end. Each tenant also has a limit, which leaves workers
free for the next tenant.
"""

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import structlog

from perdure.controller.errors import NotYetError
from perdure.kube import client as kube
from perdure.kube.clock import polling
from perdure.observe import metrics


@dataclass(frozen=True, slots=True)
class RunKey:
    """Reconcile a WorkflowRun."""

    namespace: str
    uid: str
    sharded_by: str = field(compare=False)
    """Its workflow ID."""


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """Reconcile a Schedule."""

    namespace: str
    uid: str
    sharded_by: str = field(compare=False)
    """Its name."""


@dataclass(frozen=True, slots=True)
class OrphanKey:
    """Release a pod of a run that this process does not know."""

    namespace: str
    name: str
    uid: str
    sharded_by: str = field(compare=False)
    """The workflow ID of its run, or the UID of an unknown run."""


@dataclass(frozen=True, slots=True)
class ExpiryKey:
    """Remove an expired finished run or answered Operation."""

    namespace: str
    name: str
    uid: str
    sharded_by: str = field(compare=False)
    """The workflow ID of the run; the name of the Operation."""

    @classmethod
    def of(cls, obj: kube.Object) -> "ExpiryKey":
        """The key of an object."""
        meta = obj["metadata"]
        return cls(meta["namespace"], meta["name"], meta["uid"], sharding_name(obj))


@dataclass(frozen=True, slots=True)
class RetentionKey:
    """Remove the oldest finished runs of a namespace that has too many."""

    namespace: str

    @property
    def sharded_by(self) -> str:
        """Empty, because one member does it for the whole namespace."""
        return ""


@dataclass(frozen=True, slots=True)
class _NamedKey:
    """Work on an object that is sharded by its name."""

    namespace: str
    name: str

    @property
    def sharded_by(self) -> str:
        """Its name."""
        return self.name


@dataclass(frozen=True, slots=True)
class WorkflowKey(_NamedKey):
    """Check a Workflow."""


@dataclass(frozen=True, slots=True)
class PolicyKey(_NamedKey):
    """Check a RetryPolicy, and record the state of its circuit."""


@dataclass(frozen=True, slots=True)
class LimitKey(_NamedKey):
    """Check a WorkflowLimit, and release it from runs that have ended."""


@dataclass(frozen=True, slots=True)
class DefaultsKey(_NamedKey):
    """Check WorkflowDefaults."""


@dataclass(frozen=True, slots=True)
class WebhookKey(_NamedKey):
    """Check a Webhook."""


@dataclass(frozen=True, slots=True)
class WorkersKey(_NamedKey):
    """Run the workers of a WorkerDeployment."""


@dataclass(frozen=True, slots=True)
class DeadLetterKey(_NamedKey):
    """Record the outcome of a DeadLetter's re-drive."""


Key = (
    RunKey
    | ScheduleKey
    | OrphanKey
    | ExpiryKey
    | RetentionKey
    | WorkflowKey
    | PolicyKey
    | LimitKey
    | DefaultsKey
    | WebhookKey
    | WorkersKey
    | DeadLetterKey
)


def sharding_name(obj: kube.Object) -> str:
    """The name that selects the shard of an object: the workflow ID of a run, the name of any other object."""
    return str(obj["spec"].get("workflowId") or obj["metadata"]["name"])


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
        """Record that an item of a tenant has ended."""
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


_K = TypeVar("_K")

_LONGEST_SLEEP = timedelta(seconds=30)
"""Longest interval between checks of the heap, which bounds the delay after a step of the wall clock."""
_MAX_OUTDATED = 1_000
"""The number of outdated entries in the heap at which they are removed."""
_FIRST_BACKOFF = timedelta(milliseconds=200)
_LONGEST_BACKOFF = timedelta(seconds=30)


class KeyedQueue(Generic[_K]):
    """Calls ``work(key)`` for woken keys.

    A key woken while it is processed is processed once more afterwards. If ``work`` raises, the key is retried with growing
    delays; other keys are not delayed. If it raises NotYetError, the key occupies no worker until the awaited result exists.
    """

    def __init__(
        self,
        work: Callable[[_K], Awaitable[None]],
        *,
        clock: Callable[[], datetime],
        workers: int = 32,
        tenant: Callable[[_K], str] = lambda _: "",
        each: int | None = None,
        name: str = "",
        admits: Callable[[_K], bool] = lambda _: True,
        remembers: Callable[[_K], bool] = lambda _: True,
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
        self._ready: FairQueue[tuple[_K, float]] = FairQueue(slots=workers, each=each or workers)
        self._idle: deque[asyncio.Future[None]] = deque()
        self._parked: dict[_K, asyncio.Future[Any]] = {}
        """The results that keys wait for, kept until the keys are processed."""
        self._queued: set[_K] = set()
        self._running: set[_K] = set()
        self._again: set[_K] = set()
        self._heap: list[tuple[datetime, int, _K]] = []
        self._armed: dict[_K, datetime] = {}
        self._pushed = 0
        self._earlier = asyncio.Event()
        self._failures: dict[_K, int] = {}
        self._admits = admits
        self._remembers = remembers
        self._refused: set[_K] = set()
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

    def wake(self, key: _K) -> None:
        """Process a key as soon as possible."""
        if key in self._running:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._metrics.depth.set(self.depth)
            self._ready.put(self._tenant(key), (key, asyncio.get_running_loop().time()))
            self._call_worker()

    def wake_at(self, key: _K, when: datetime | None) -> None:
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

    def forget(self, key: _K) -> None:
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

    async def _next(self) -> tuple[str, tuple[_K, float]]:
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

    def _park(self, key: _K, error: NotYetError) -> None:
        before = self._parked.get(key)
        self._parked[key] = error.awaited
        if before is not error.awaited:
            error.awaited.add_done_callback(lambda future: self._unpark(key, future))
        if error.until is not None:
            self.wake_at(key, min(error.until, self._armed.get(key, error.until)))

    def _unpark(self, key: _K, result: asyncio.Future[Any]) -> None:
        if not result.cancelled():
            result.exception()  # the next caller gets the exception
        if self._parked.get(key) is result:
            self.wake(key)

    def _retry(self, key: _K, error: Exception) -> None:
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
