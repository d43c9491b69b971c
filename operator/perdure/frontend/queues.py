"""Task queues, in memory: who has something to be done, and who asks for work. All of it can be rebuilt from open runs."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from perdure.kube.clock import now

DEAD_AFTER = timedelta(seconds=10)
"""A sticky queue that nobody has polled for so long is that of a worker that has gone."""
FORGOTTEN_AFTER = timedelta(minutes=5)
"""A poller that was not seen for so long is not listed any more."""


class Kind(StrEnum):
    """What is in a queue."""

    WORKFLOW = "workflow"
    ACTIVITY = "activity"


@dataclass(frozen=True, slots=True)
class QueueName:
    """Names a task queue."""

    namespace: str
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Offer:
    """Something to be done: a workflow task, an attempt of an activity, or a query to be answered."""

    run_id: str
    scheduled_event_id: int = 0
    attempt: int = 0
    query: str = ""


@dataclass(slots=True)
class _Queue:
    offers: OrderedDict[Offer, datetime] = field(default_factory=OrderedDict)
    waiting: deque[asyncio.Future[Offer]] = field(default_factory=deque)
    pollers: dict[str, datetime] = field(default_factory=dict)
    last_poll: datetime | None = None


class TaskQueues:
    """All of them."""

    def __init__(self) -> None:
        self._queues: dict[QueueName, _Queue] = {}
        self._of_run: dict[str, dict[Offer, QueueName]] = {}

    def _queue(self, name: QueueName) -> _Queue:
        return self._queues.setdefault(name, _Queue())

    # What is to be done

    def settle(self, run_id: str, offers: Mapping[Offer, QueueName]) -> None:
        """Say what a run has to be done now, all of it; what it had before and has no more is withdrawn."""
        before = self._of_run.get(run_id, {})
        for offer, name in before.items():
            if offers.get(offer) != name:
                self._withdraw(offer, name)
        for offer, name in offers.items():
            if before.get(offer) != name or offer not in self._queue(name).offers:
                self._give(offer, name)
        if offers:
            self._of_run[run_id] = dict(offers)
        else:
            self._of_run.pop(run_id, None)

    def offer(self, offer: Offer, name: QueueName) -> None:
        """Add something that belongs to no state of a run: a query."""
        self._give(offer, name)

    def withdraw(self, offer: Offer, name: QueueName) -> None:
        """It is no longer wanted."""
        self._withdraw(offer, name)

    def _give(self, offer: Offer, name: QueueName) -> None:
        queue = self._queue(name)
        while queue.waiting:
            poller = queue.waiting.popleft()
            if not poller.done():
                poller.set_result(offer)
                return
        queue.offers.setdefault(offer, now())

    def _withdraw(self, offer: Offer, name: QueueName) -> None:
        queue = self._queues.get(name)
        if queue is not None:
            queue.offers.pop(offer, None)

    # Who asks

    async def poll(self, name: QueueName, identity: str, seconds: float) -> Offer | None:
        """Wait for something to do; None if nothing comes up in time. Whoever gets it has to see whether it is still so."""
        queue = self._queue(name)
        queue.last_poll = now()
        queue.pollers[identity] = queue.last_poll
        if queue.offers:
            return queue.offers.popitem(last=False)[0]
        poller: asyncio.Future[Offer] = asyncio.get_running_loop().create_future()
        queue.waiting.append(poller)
        try:
            async with asyncio.timeout(seconds):
                return await poller
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if poller.done() and not poller.cancelled():
                self._give(poller.result(), name)
            raise
        finally:
            queue.last_poll = now()
            if poller in queue.waiting:
                queue.waiting.remove(poller)
            poller.cancel()

    def alive(self, name: QueueName) -> bool:
        """Whether somebody polls a queue."""
        queue = self._queues.get(name)
        if queue is None or queue.last_poll is None:
            return False
        return bool(queue.waiting) or queue.last_poll + DEAD_AFTER > now()

    def close(self, name: QueueName) -> None:
        """The worker of a sticky queue goes away."""
        queue = self._queues.get(name)
        if queue is not None:
            queue.last_poll = None

    def pollers(self, name: QueueName) -> dict[str, datetime]:
        """Who has polled a queue lately, and when last."""
        queue = self._queues.get(name)
        if queue is None:
            return {}
        since = now() - FORGOTTEN_AFTER
        queue.pollers = {identity: time for identity, time in queue.pollers.items() if time > since}
        return dict(queue.pollers)

    def backlog(self, name: QueueName) -> tuple[int, timedelta]:
        """How much waits in a queue, and how long the oldest has."""
        queue = self._queues.get(name)
        if queue is None or not queue.offers:
            return 0, timedelta(0)
        return len(queue.offers), now() - next(iter(queue.offers.values()))

    def workers(self, namespace: str) -> dict[str, tuple[set[str], datetime]]:
        """Who works in a namespace: which queues each has polled lately, and when last."""
        found: dict[str, tuple[set[str], datetime]] = {}
        for name in list(self._queues):
            if name.namespace != namespace:
                continue
            for identity, time in self.pollers(name).items():
                queues, last = found.get(identity, (set(), time))
                found[identity] = queues | {name.name}, max(last, time)
        return found
