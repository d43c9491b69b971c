"""In-memory task queues: waiting offers and polling workers. They can be rebuilt from open runs."""

import asyncio
import math
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from sys import getsizeof

from perdure.api.stored import MessageStruct
from perdure.frontend.errors import exhausted
from perdure.frontend.matching.dispatch import (
    NO_SETTINGS,
    ORDINARY,
    Backlog,
    QueueSettings,
    Rank,
    RateLimits,
    TaskQueueSettings,
)
from perdure.kube.clock import now

DEAD_AFTER = timedelta(seconds=10)
"""After this time without a poll, a queue counts as having no worker."""
FORGOTTEN_AFTER = timedelta(minutes=5)
"""After this time without a poll, a poller is no longer listed."""
_RATE_OVER = timedelta(seconds=30)
_FORGET_AT = 1_000
"""Maximum number of queues before unused ones are dropped."""
MAX_POLLED = 4_000
"""Maximum number of polled queues per namespace; each worker has its own sticky queue."""
MAX_POLLERS = 1_000
"""Maximum number of listed pollers per queue; the newest are listed."""


MAX_POLLER_BYTES = 8 * 2**20
"""Memory for the pollers of a namespace that are listed, the newest."""
_ENTRY = 400
"""Memory of a poller besides its identity, in bytes."""


class Kind(StrEnum):
    """The kind of offers in a queue."""

    WORKFLOW = "workflow"
    ACTIVITY = "activity"
    NEXUS = "nexus"


class QueueName(MessageStruct, frozen=True):
    """The name of a task queue."""

    namespace: str
    kind: Kind
    name: str
    version: str = ""
    """The version of a worker deployment whose workers poll this part of the queue; empty: unversioned workers."""


class Offer(MessageStruct, frozen=True):
    """Work for a worker: a workflow task, an attempt of an activity, a query, or a Nexus call."""

    run_id: str
    scheduled_event_id: int = 0
    attempt: int = 0
    query: str = ""
    """ID of the query or of the call."""
    rank: Rank = ORDINARY
    member: str = ""
    """The member of the fleet that owns the run; empty for this one."""


@dataclass(slots=True)
class _Rate:
    """A rate per second, as an exponentially decaying average."""

    weight: float = 0.0
    since: datetime = field(default_factory=now)

    def count(self) -> None:
        self.weight, self.since = self._decayed() + 1.0, now()

    def per_second(self) -> float:
        return self._decayed() / _RATE_OVER.total_seconds()

    def _decayed(self) -> float:
        return self.weight * math.exp(-((now() - self.since) / _RATE_OVER))


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a queue."""

    waiting: int
    age: timedelta
    """How long the oldest offer has waited."""
    added: float
    """Offers added per second."""
    dispatched: float
    """Offers dispatched per second."""


@dataclass(slots=True)
class _Queue:
    limits: RateLimits
    offers: Backlog[Offer] = field(default_factory=Backlog)
    timer: asyncio.TimerHandle | None = None
    """Set while something waits for a rate limit."""
    waiting: deque[asyncio.Future[Offer]] = field(default_factory=deque)
    last_poll: datetime | None = None
    added: _Rate = field(default_factory=_Rate)
    dispatched: _Rate = field(default_factory=_Rate)

    def dispatch(self) -> None:
        """Dispatch waiting offers to waiting pollers, within the rate limit."""
        while self.offers and self.waiting:
            time = asyncio.get_running_loop().time()
            rank = self.offers.first.rank
            seconds = self.limits.wait(time, rank)
            if seconds > 0:
                self._dispatch_in(seconds)
                return
            self.limits.count(time, rank)
            self.dispatched.count()
            self.waiting.popleft().set_result(self.offers.pop())

    def _dispatch_in(self, seconds: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds == math.inf else asyncio.get_running_loop().call_later(seconds, self.dispatch)


class _Pollers:
    """The recent pollers of the queues of a namespace.

    Only the newest are kept: clients choose their identities, so their number and size are limited.
    """

    def __init__(self) -> None:
        self._of_queue: dict[QueueName, dict[str, datetime]] = {}
        self._oldest_first: dict[tuple[QueueName, str], None] = {}
        self._bytes = 0

    def add(self, name: QueueName, identity: str, time: datetime) -> None:
        """Record a poll."""
        self._drop(name, identity)
        self._of_queue.setdefault(name, {})[identity] = time
        self._oldest_first[name, identity] = None
        self._bytes += _size_of(identity)
        if len(self._of_queue[name]) > MAX_POLLERS:
            self._drop(name, next(iter(self._of_queue[name])))
        while self._bytes > MAX_POLLER_BYTES:
            self._drop(*next(iter(self._oldest_first)))
        self._forget(time)

    def of(self, name: QueueName) -> Mapping[str, datetime]:
        """Return the pollers of a queue, and when each last polled."""
        self._forget(now())
        return self._of_queue.get(name, {})

    def _forget(self, time: datetime) -> None:
        while self._oldest_first:
            name, identity = next(iter(self._oldest_first))
            if self._of_queue[name][identity] > time - FORGOTTEN_AFTER:
                return
            self._drop(name, identity)

    def _drop(self, name: QueueName, identity: str) -> None:
        found = self._of_queue.get(name, {})
        if found.pop(identity, None) is not None:
            del self._oldest_first[name, identity]
            self._bytes -= _size_of(identity)
        if not found:
            self._of_queue.pop(name, None)


def _size_of(identity: str) -> int:
    return _ENTRY + getsizeof(identity)


class TaskQueues:
    """All task queues."""

    def __init__(self, moved: Callable[[Offer], None] = lambda _: None) -> None:
        """`moved` is called with each offer in a queue when its last poller leaves."""
        self._moved = moved
        self._queues: dict[QueueName, _Queue] = {}
        self._of_key: dict[str, dict[Offer, QueueName]] = {}
        self._of_namespace: Counter[str] = Counter()
        self._pollers: defaultdict[str, _Pollers] = defaultdict(_Pollers)
        """By namespace."""
        self._settings: dict[str, Mapping[str, TaskQueueSettings]] = {}
        """By namespace and task queue."""
        self._forget_at = _FORGET_AT

    def _queue(self, name: QueueName) -> _Queue:
        queue = self._queues.get(name)
        if queue is None:
            if len(self._queues) >= self._forget_at:
                self._forget()
                self._forget_at = max(_FORGET_AT, 2 * len(self._queues))
            queue = self._queues[name] = self._new_queue(name)
            self._of_namespace[name.namespace] += 1
        return queue

    def _new_queue(self, name: QueueName) -> _Queue:
        """Create a queue, which shares its limits with the parts of the task queue for other versions."""
        queue = _Queue(self.limits(name))
        queue.offers.set_weights(queue.limits.settings.weight)
        return queue

    def _settings_of(self, name: QueueName) -> QueueSettings:
        return self._settings.get(name.namespace, {}).get(name.name, {}).get(name.kind, NO_SETTINGS)

    def configure(self, namespace: str, settings: Mapping[str, TaskQueueSettings]) -> None:
        """Apply the settings of the task queues of a namespace, now and from now on."""
        if settings:
            self._settings[namespace] = settings
        else:
            self._settings.pop(namespace, None)
        for name, queue in self._queues.items():
            if name.namespace == namespace:
                found = self._settings_of(name)
                if found != queue.limits.settings:
                    queue.limits.configure(found)
                queue.offers.set_weights(found.weight)
                queue.dispatch()

    def limits(self, name: QueueName) -> RateLimits:
        """Return the limits of a task queue, which all versions share."""
        parts = self.versions(name)
        return self._queues[parts[0]].limits if parts else RateLimits(self._settings_of(name))

    def _check_room(self, name: QueueName) -> None:
        """Check that a namespace may have another polled queue.

        Raises:
            RpcError: The namespace has the maximum number of polled queues.
        """
        if name in self._queues or self._of_namespace[name.namespace] < MAX_POLLED:
            return
        self._forget()
        if self._of_namespace[name.namespace] >= MAX_POLLED:
            raise exhausted(f"too many task queues: {MAX_POLLED:,} in a namespace; retry later")

    def _forget(self) -> None:
        """Drop empty queues that were not polled for minutes, because every worker has its own sticky queue."""
        for name, queue in list(self._queues.items()):
            if not (self._polled(name) or queue.offers or queue.waiting):
                del self._queues[name]
                self._of_namespace[name.namespace] -= 1
                if not self._of_namespace[name.namespace]:
                    self._pollers.pop(name.namespace, None)

    # Offers

    def settle(self, key: str, offers: Mapping[Offer, QueueName]) -> None:
        """Set all offers of a key, such as a run. Other offers of the key are withdrawn."""
        before = self._of_key.get(key, {})
        for offer, name in before.items():
            if offers.get(offer) != name:
                self._withdraw(offer, name)
        for offer, name in offers.items():
            if before.get(offer) != name or offer not in self._queue(name).offers:
                self._enqueue(offer, name)
        if offers:
            self._of_key[key] = dict(offers)
        else:
            self._of_key.pop(key, None)

    def requeue(self, key: str, offer: Offer) -> None:
        """Return an offer that did not reach its poller, unless it was withdrawn."""
        name = self._of_key.get(key, {}).get(offer)
        if name is not None and offer not in self._queue(name).offers:
            self._enqueue(offer, name)

    def _enqueue(self, offer: Offer, name: QueueName) -> None:
        queue = self._queue(name)
        queue.added.count()
        queue.offers.put(offer, now())
        queue.dispatch()

    def _withdraw(self, offer: Offer, name: QueueName) -> None:
        queue = self._queues.get(name)
        if queue is not None:
            queue.offers.remove(offer)

    # Polls

    async def poll(
        self,
        name: QueueName,
        identity: str,
        seconds: float,
        recheck: Callable[[], Awaitable[None]],
        *,
        per_second: float | None = None,
    ) -> Offer | None:
        """Wait for an offer; None if there is none in time. The caller checks whether the offer is still due.

        Args:
            name: The queue.
            identity: The identity of the poller.
            seconds: How long to wait.
            recheck: May reject the poller once there is an offer, which then goes to another poller.
            per_second: How many offers the whole queue may dispatch per second, until the next poll changes this; zero:
                none; None: no limit (Temporal: ``max_tasks_per_second``).
        """
        self._check_room(name)
        self._queue(name).limits.request_rate(per_second)
        offer = await self._next(name, identity, seconds)
        if offer is not None:
            try:
                await recheck()
            except BaseException:
                self._enqueue(offer, name)
                raise
        return offer

    async def _next(self, name: QueueName, identity: str, seconds: float) -> Offer | None:
        queue = self._queue(name)
        queue.last_poll = now()
        self._pollers[name.namespace].add(name, identity, queue.last_poll)
        poller: asyncio.Future[Offer] = asyncio.get_running_loop().create_future()
        queue.waiting.append(poller)
        queue.dispatch()
        try:
            await asyncio.wait({poller}, timeout=seconds)
        except asyncio.CancelledError:
            self._leave(queue, poller)
            if poller.done():
                self._enqueue(poller.result(), name)
            if not queue.waiting:
                self._on_last_poller_lost(queue)
            raise
        self._leave(queue, poller)
        queue.last_poll = now()
        # Offers in the meantime were not sent here, because no poller was waiting.
        return poller.result() if poller.done() else None

    @staticmethod
    def _leave(queue: _Queue, poller: "asyncio.Future[Offer]") -> None:
        if poller in queue.waiting:
            queue.waiting.remove(poller)

    def _on_last_poller_lost(self, queue: _Queue) -> None:
        """Handle the loss of the last poller of a queue, whose connection broke or whose call ended.

        A busy worker does not end its call.
        """
        queue.last_poll = None
        for offer in list(queue.offers):
            self._moved(offer)

    def alive(self, name: QueueName) -> bool:
        """Whether a worker polls a queue, or has just polled it."""
        queue = self._queues.get(name)
        if queue is None or queue.last_poll is None:
            return False
        return bool(queue.waiting) or queue.last_poll + DEAD_AFTER > now()

    def close(self, name: QueueName) -> None:
        """Close the sticky queue of a worker that shuts down."""
        queue = self._queues.get(name)
        if queue is not None:
            self._on_last_poller_lost(queue)

    def pollers(self, name: QueueName) -> dict[str, datetime]:
        """Return the recent pollers of a queue, and when each last polled."""
        return dict(self._polled(name))

    def _polled(self, name: QueueName) -> Mapping[str, datetime]:
        found = self._pollers.get(name.namespace)
        return {} if found is None else found.of(name)

    def polled(self) -> tuple[list[QueueName], list[QueueName]]:
        """The queues that workers poll or have just polled, and the queues that workers have polled recently."""
        names = list(self._queues)
        return [name for name in names if self.alive(name)], [name for name in names if self._polled(name)]

    def versions(self, name: QueueName) -> list[QueueName]:
        """The parts of a task queue, by worker version, that are polled or have waiting offers."""
        wanted = name.namespace, name.kind, name.name
        return [each for each in self._queues if (each.namespace, each.kind, each.name) == wanted]

    def statistics(self, name: QueueName) -> Statistics:
        """The backlog and the rates of a queue."""
        queue = self._queues.get(name) or _Queue(RateLimits())
        oldest = queue.offers.oldest
        age = timedelta(0) if oldest is None else now() - oldest
        return Statistics(len(queue.offers), age, queue.added.per_second(), queue.dispatched.per_second())

    def workers(self, namespace: str) -> dict[str, tuple[set[str], datetime]]:
        """The workers of a namespace: the queues that each has polled recently, and when."""
        found: dict[str, tuple[set[str], datetime]] = {}
        for name in list(self._queues):
            if name.namespace != namespace:
                continue
            for identity, time in self._polled(name).items():
                queues, last = found.get(identity, (set(), time))
                found[identity] = queues | {name.name}, max(last, time)
        return found
