"""Task queues, across a fleet: offers of runs wait in them, and workers poll them. In memory: open runs make their offers again.

Each task queue has one owner in the fleet, like each run. The owner of a run offers its tasks to the owners of their queues, and
all polls of a queue are forwarded to its owner. A worker gets a task from the owner of the run through the owner of the queue:

    run A ── offers ──▶ owner of the task queue ◀── polls ── the member that a worker is connected to
          ◀── takes ───

Without a fleet, all of these are the same process. The sticky queues of a task queue have the same owner as the queue itself, so
that owner knows, when it places a task, whether the worker that has cached the workflow still polls.
"""

import asyncio
import math
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from perdure.api.state_versions import QUEUE_LOADS
from perdure.api.stored import MessageStruct
from perdure.controller.fleet.shards import shard_of
from perdure.controller.state_versions import state_versions
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
from perdure.frontend.matching.polls import DEAD_AFTER, Pollers
from perdure.kube.clock import monotonic, now
from perdure.observe import metrics
from perdure.runtime.workers.plan import Load

_UNUSED_AFTER = timedelta(hours=1)
"""How long it is known when a worker last got a task of a version."""
_RATE_OVER = timedelta(seconds=30)
_FORGET_AT = 1_000
"""Maximum number of queues before unused ones are dropped."""
MAX_POLLED = 4_000
"""Maximum number of polled queues per namespace; each worker has its own sticky queue."""


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


class Destination(MessageStruct, frozen=True):
    """The queue of an offer."""

    queue: QueueName
    sticky: str = ""
    """The sticky queue of the worker that has cached the workflow, which is preferred while the worker polls it."""


Offers = Mapping[Offer, Destination]
TaskId = tuple[int, int]
"""The ID of the event that scheduled a task of a run, and the attempt."""


class Poller(MessageStruct, frozen=True):
    """A worker that gets an offer."""

    identity: str
    sticky: bool = False
    """Whether the offer was in its sticky queue."""
    through: str = ""
    """The member that the worker is connected to; empty for this one."""
    request_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    """Identifies this delivery to the worker."""


def key_of(offer: Offer) -> str:
    """The key of an offer in the queues of this process."""
    key = f"{offer.run_id}/{offer.query}" if offer.query else offer.run_id
    return f"{offer.member}/{key}" if offer.member else key


def queue_shard(namespace: str, name: str) -> int:
    """The shard of a task queue. Its owner owns the queue for workflows, activities, and Nexus calls."""
    return shard_of(namespace, f"task-queue/{name}")


# The queues of this process


@dataclass(slots=True)
class _Rate:
    """A rate per second, as an exponentially decaying average."""

    weight: float = 0.0
    since: datetime = field(default_factory=now)

    def count(self) -> None:
        self.weight, self.since = self._decayed() + 1.0, now()

    def per_second(self) -> float:
        return self._decayed() / _RATE_OVER.total_seconds()

    @property
    def last(self) -> datetime | None:
        """When something was last counted; None: never."""
        return self.since if self.weight else None

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
    name: QueueName
    limits: RateLimits
    sticky: bool = False
    """Whether it is the sticky queue of one worker."""
    offers: Backlog[Offer] = field(default_factory=Backlog)
    timer: asyncio.TimerHandle | None = None
    """Set while something waits for a rate limit."""
    waiting: deque[asyncio.Future[Offer | None]] = field(default_factory=deque)
    """The polls that wait. An ended one has no offer."""
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
            if not self.sticky:
                waited = now() - self.offers.since(self.offers.first)
                metrics.observe_task_wait(self.name.namespace, self.name.name, self.name.kind, waited.total_seconds())
            self.waiting.popleft().set_result(self.offers.pop())

    def _dispatch_in(self, seconds: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if seconds == math.inf else asyncio.get_running_loop().call_later(seconds, self.dispatch)


class TaskQueues:
    """All task queues."""

    def __init__(
        self,
        moved: Callable[[Offer], None] = lambda _: None,
        *,
        max_polled: int = MAX_POLLED,
        pollers: Callable[[], Pollers[QueueName]] = Pollers,
        starved: Callable[[QueueName], None] = lambda _: None,
    ) -> None:
        """Create the queues.

        Args:
            moved: Called with each offer in a queue when its last poller leaves.
            max_polled: Maximum number of polled queues per namespace.
            pollers: Creates the list of the pollers of a namespace.
            starved: Called when an offer waits in the part of a task queue for a version, and no worker polls it.
        """
        self._starved = starved
        self._moved = moved
        self._max_polled = max_polled
        self._queues: dict[QueueName, _Queue] = {}
        self._of_key: dict[str, dict[Offer, QueueName]] = {}
        self._of_namespace: Counter[str] = Counter()
        self._pollers: defaultdict[str, Pollers[QueueName]] = defaultdict(pollers)
        """By namespace."""
        self._forwarded: defaultdict[str, dict[asyncio.Future[Offer | None], _Queue]] = defaultdict(dict)
        """The waiting polls of other members' workers, by member."""
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
        queue = _Queue(name, self.limits(name))
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
        if name in self._queues or self._of_namespace[name.namespace] < self._max_polled:
            return
        self._forget()
        if self._of_namespace[name.namespace] >= self._max_polled:
            raise exhausted(f"too many task queues: {self._max_polled:,} in a namespace; retry later")

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
        since = {offer: self._withdraw(offer, name) for offer, name in before.items() if offers.get(offer) != name}
        for offer, name in offers.items():
            if before.get(offer) != name or offer not in self._queue(name).offers:
                self._enqueue(offer, name, since.get(offer))  # one that moves has waited since it came
        if offers:
            self._of_key[key] = dict(offers)
        else:
            self._of_key.pop(key, None)

    def forget(self, key: str, offer: Offer) -> bool:
        """Forget an offer that was dispatched, unless it waits again. Return whether it is forgotten."""
        offers = self._of_key.get(key, {})
        name = offers.get(offer)
        if name is None or offer in self._queue(name).offers:
            return False
        del offers[offer]
        if not offers:
            del self._of_key[key]
        return True

    def requeue(self, key: str, offer: Offer) -> None:
        """Return an offer that did not reach its poller, unless it was withdrawn."""
        name = self._of_key.get(key, {}).get(offer)
        if name is not None and offer not in self._queue(name).offers:
            self._enqueue(offer, name)

    def _enqueue(self, offer: Offer, name: QueueName, since: datetime | None = None) -> None:
        queue = self._queue(name)
        queue.added.count()
        queue.offers.put(offer, since or now())
        queue.dispatch()
        if name.version and queue.offers and not queue.waiting:
            self._starved(name)

    def _withdraw(self, offer: Offer, name: QueueName) -> datetime | None:
        """Remove an offer, and return since when it has waited; None if it did not wait."""
        queue = self._queues.get(name)
        return None if queue is None else queue.offers.remove(offer)

    # Polls

    async def poll(
        self,
        name: QueueName,
        identity: str,
        seconds: float,
        recheck: Callable[[], Awaitable[None]],
        *,
        per_second: float | None = None,
        sticky: bool = False,
        through: str = "",
    ) -> Offer | None:
        """Wait for an offer; None if there is none in time, or if the member that has forwarded the poll leaves.

        The caller checks whether the offer is still due.

        Args:
            name: The queue.
            identity: The identity of the poller.
            seconds: How long to wait.
            recheck: May reject the poller at the end of the wait. Its offer, if it got one, then goes to another poller.
            per_second: How many offers the whole queue may dispatch per second, until the next poll changes this; zero:
                none; None: no limit (Temporal: ``max_tasks_per_second``).
            sticky: Whether it is the sticky queue of the poller.
            through: The member that has forwarded the poll; empty for this one.
        """
        self._check_room(name)
        queue = self._queue(name)
        queue.sticky = sticky
        queue.limits.request_rate(per_second)
        offer = await self._next(name, identity, seconds, through)
        try:
            await recheck()
        except BaseException:
            if offer is not None:
                self._enqueue(offer, name)
            raise
        return offer

    async def _next(self, name: QueueName, identity: str, seconds: float, through: str) -> Offer | None:
        queue = self._queue(name)
        queue.last_poll = now()
        self._pollers[name.namespace].add(name, identity, queue.last_poll)
        poller: asyncio.Future[Offer | None] = asyncio.get_running_loop().create_future()
        queue.waiting.append(poller)
        if through:
            self._forwarded[through][poller] = queue
        queue.dispatch()
        try:
            await asyncio.wait({poller}, timeout=seconds)
        except asyncio.CancelledError:
            self._leave(queue, poller, through)
            if poller.done() and (offer := poller.result()) is not None:
                self._enqueue(offer, name)
            if not queue.waiting:
                self._on_last_poller_lost(queue)
            raise
        self._leave(queue, poller, through)
        # Offers in the meantime were not sent here, because no poller was waiting.
        offer = poller.result() if poller.done() else None
        if offer is not None or not poller.done():
            queue.last_poll = now()  # the worker is still there
        return offer

    def _leave(self, queue: _Queue, poller: "asyncio.Future[Offer | None]", through: str) -> None:
        if poller in queue.waiting:
            queue.waiting.remove(poller)
        if through:
            forwarded = self._forwarded.get(through, {})
            forwarded.pop(poller, None)
            if not forwarded:
                self._forwarded.pop(through, None)

    def end_polls(self, member: str) -> None:
        """End the polls that a member has forwarded, because it leaves: a task that one of them got would be lost with it."""
        for poller, queue in self._forwarded.pop(member, {}).items():
            if not poller.done():
                queue.waiting.remove(poller)
                poller.set_result(None)
                if not queue.waiting:
                    self._on_last_poller_lost(queue)

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
        queue = self._queues.get(name) or _Queue(name, RateLimits())
        oldest = queue.offers.oldest
        age = timedelta(0) if oldest is None else now() - oldest
        return Statistics(len(queue.offers), age, queue.added.per_second(), queue.dispatched.per_second())

    def totals(self) -> list[metrics.TaskQueueLoad]:
        """The load of each task queue, over all worker versions, without the sticky queues of workers."""
        found: dict[tuple[str, str, Kind], metrics.TaskQueueLoad] = {}
        workers: defaultdict[tuple[str, str, Kind], set[str]] = defaultdict(set)
        for name, queue in self._queues.items():
            if queue.sticky:
                continue
            key = name.namespace, name.name, name.kind
            load = found.setdefault(
                key, metrics.TaskQueueLoad(namespace=name.namespace, name=name.name, kind=name.kind)
            )
            statistics = self.statistics(name)
            load.backlog += statistics.waiting
            load.age = max(load.age, statistics.age.total_seconds())
            workers[key].update(self._polled(name))
            load.pollers = len(workers[key])
        return list(found.values())

    def loads(self) -> dict[QueueName, Load]:
        """The offers in the parts of task queues for versions."""
        return {name: self.load(name) for name in self._queues if name.version}

    def load(self, name: QueueName) -> Load:
        """The offers in a queue, and when a worker last got one."""
        queue = self._queues.get(name)
        if queue is None:
            return Load()
        return Load(
            waiting=len(queue.offers),
            since=queue.offers.oldest,
            limited=bool(queue.offers and queue.waiting),
            last_used=queue.dispatched.last,
        )

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


# Matching: the offers of this process's runs, and those of other members for its queues


class OfferBatch(MessageStruct, frozen=True, kw_only=True):
    """The offers of one member to another since its last batch."""

    session: str
    """Identifies the process: a restarted one sends all its offers first."""
    complete: bool = msgspec.field(name="whole")
    """Whether these are all its offers, so that all others are withdrawn."""
    offers: dict[str, list[tuple[Offer, Destination]]]
    """The offers by key; an empty list withdraws all offers of a key."""


class QueueLoad(MessageStruct, frozen=True, kw_only=True):
    """The tasks of a version in a task queue, as far as a member knows them."""

    name: QueueName
    waiting: int
    since: datetime | None
    limited: bool
    in_progress: int
    last_used: datetime | None

    @property
    def load(self) -> Load:
        """The same for the plan of a WorkerDeployment."""
        return Load(
            waiting=self.waiting,
            since=self.since,
            limited=self.limited,
            in_progress=self.in_progress,
            last_used=self.last_used,
        )


class PolledQueues(MessageStruct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to a batch: the task queues of the member that workers poll, and the tasks of versions."""

    known: bool
    """Whether the member knows the session; otherwise it needs all offers."""
    alive: list[QueueName]
    polled: list[QueueName]
    loads: list[QueueLoad] = []
    """Empty as long as a member does not know the field."""


class UnreachableError(Exception):
    """The member with the offer cannot be reached, or no longer owns the run."""


class Members(Protocol):
    """The interface of `Matching` to the other members of the fleet."""

    def owner(self, queue: QueueName) -> str:
        """The member that owns a task queue; empty for this one."""
        ...

    def offer(self, member: str, key: str) -> None:
        """Schedule sending the offers of a key to a member."""
        ...

    async def take(self, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Get the task of an offer from another member; None if it is withdrawn.

        Raises:
            UnreachableError: The member cannot be reached, or has lost the run.
            RpcError: The member could not hand out the task.
        """
        ...


class SingleMember:
    """The members of a fleet of one."""

    def owner(self, queue: QueueName) -> str:
        """Return the owner: always this process."""
        return ""

    def offer(self, member: str, key: str) -> None:
        """Do nothing: a single operator has no other members."""

    async def take(self, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Return None: a single operator has no other members."""


Taker = Callable[[Offer, Poller], Awaitable[Any]]
"""Dispatches an offer to a worker; returns None if it is withdrawn."""
Returner = Callable[[Offer, Poller], None]
"""Takes back a task that a worker did not receive."""


class Matching:
    """The offers of this process's runs, and the offers of other members for its task queues."""

    def __init__(self) -> None:
        """Start without offers and without other members."""
        self._members: Members = SingleMember()
        self._on_lost: list[Callable[[str], None]] = []
        self.queues = TaskQueues(self._place_again, starved=self._report_starved)
        self.starved: Callable[[QueueName], None] = lambda _: None
        """Called when a task of a version waits in a task queue that no worker polls, at any member."""
        self._takers: dict[Kind, Taker] = {}
        self._returners: dict[Kind, Returner] = {}
        self._local: dict[str, dict[Offer, Destination]] = {}
        """The offers of the runs that this process owns, by key."""
        self._placed: dict[str, dict[Offer, Destination]] = {}
        """The offers in the queues of this process, including offers of other members, by key."""
        self._held: dict[str, dict[TaskId, QueueName]] = {}
        """The task queues of the tasks that workers of versions have, by run."""
        self._held_in: Counter[QueueName] = Counter()
        self._used: dict[QueueName, datetime] = {}
        """When a worker of a version last got a task of a run of this process."""
        self._sessions: dict[str, str] = {}
        """The session of each member."""
        self._polled: dict[str, PolledQueues] = {}
        """The polled task queues of each member."""
        self._taking: dict[Offer, str] = {}
        """The offers of this process that other members take at the moment, with the member."""
        self._refused: set[str] = set()
        """The keys with an offer that a member could not take just now, and has forgotten: it gets the offer again."""
        self._others: frozenset[str] = frozenset()

    def _report_starved(self, name: QueueName) -> None:
        self.starved(name)

    def join(self, members: Members) -> None:
        """Share the task queues with the other members of a fleet."""
        self._members = members

    def on_lost(self, report: Callable[[str], None]) -> None:
        """Call a function with each member that leaves."""
        self._on_lost.append(report)

    # Offers of this process

    def settle(self, key: str, offers: Offers) -> None:
        """Set all offers of a key, which is a run, a query, or a Nexus call. Other offers of the key are withdrawn."""
        before = self._local.get(key, {})
        if offers:
            self._local[key] = dict(offers)
        elif before:
            del self._local[key]
        else:
            return
        self._place(key, self._offered_to("", key))
        for member in self._members_to_tell(key, before, offers) - {""}:
            self._members.offer(member, key)

    def _members_to_tell(self, key: str, before: Offers, offers: Offers) -> set[str]:
        """The members that must get the offers of a key: those whose offers have changed, except by what they take themselves."""
        owner = self._members.owner
        if key in self._refused:
            self._refused.discard(key)
            return {owner(to.queue) for to in (*before.values(), *offers.values())}
        gone = {(owner(to.queue), offer) for offer, to in before.items() if offers.get(offer) != to}
        new = {owner(to.queue) for offer, to in offers.items() if before.get(offer) != to}
        return new | {member for member, offer in gone if self._taking.get(offer, "") != member}

    def hold(self, run_id: str, started: Mapping[TaskId, QueueName]) -> None:
        """Record which tasks of a run workers have. Called before the offers of the run are settled, which do not contain them.

        Args:
            run_id: The run.
            started: The tasks, with the queues in which they would be offered now. A task stays in the queue in which it was
                offered: the routing may have changed since.
        """
        before = self._held.get(run_id, {})
        if not started and not before:
            return
        offered = {
            (offer.scheduled_event_id, offer.attempt): to.queue for offer, to in self._local.get(run_id, {}).items()
        }
        held = {task: before.get(task) or offered.get(task) or queue for task, queue in started.items()}
        held = {task: queue for task, queue in held.items() if queue.version}
        for queue in before.values():
            self._held_in[queue] -= 1
            if not self._held_in[queue]:
                del self._held_in[queue]
        self._held_in.update(held.values())
        time = now()
        self._used.update(dict.fromkeys({queue for task, queue in held.items() if task not in before}, time))
        if len(self._used) > _FORGET_AT:
            self._used = {queue: used for queue, used in self._used.items() if used > time - _UNUSED_AFTER}
        if held:
            self._held[run_id] = held
        else:
            self._held.pop(run_id, None)

    def load(self, name: QueueName) -> Load:
        """The tasks of a version in a task queue, at all members."""
        found = self._local_load(name, self.queues.load(name))
        for polled in self._polled.values():
            for each in polled.loads:
                if each.name == name:
                    found += each.load
        return found

    def _local_load(self, name: QueueName, waiting: Load) -> Load:
        return waiting + Load(in_progress=self._held_in[name], last_used=self._used.get(name))

    def _loads(self) -> list[QueueLoad]:
        """The tasks of versions that this process knows, for other members."""
        waiting = self.queues.loads()
        found = []
        for name in {*waiting, *self._held_in, *self._used}:
            load = self._local_load(name, waiting.get(name, Load()))
            found.append(
                QueueLoad(
                    name=name,
                    waiting=load.waiting,
                    since=load.since,
                    limited=load.limited,
                    in_progress=load.in_progress,
                    last_used=load.last_used,
                )
            )
        return found

    def reassign(self, others: Mapping[str, object]) -> None:
        """Place all offers again after the members have changed, and drop those of members that have left."""
        before, self._others = self._others, frozenset(others)
        for member in before - self._others:
            self.queues.end_polls(member)
            self._withdraw_all_of(member, ())
            self._sessions.pop(member, None)
            self._polled.pop(member, None)
            for report in self._on_lost:
                report(member)
        for key in self._local:
            self._place(key, self._offered_to("", key))

    def offered_to(self, member: str, keys: list[str] | None) -> dict[str, list[tuple[Offer, Destination]]]:
        """The offers to a member for some keys; None for all keys."""
        if keys is not None:
            return {key: list(self._offered_to(member, key).items()) for key in keys}
        found = {key: list(self._offered_to(member, key).items()) for key in self._local}
        return {key: offers for key, offers in found.items() if offers}

    def _offered_to(self, member: str, key: str) -> dict[Offer, Destination]:
        offers = self._local.get(key, {})
        return {offer: to for offer, to in offers.items() if self._members.owner(to.queue) == member}

    # Offers of other members

    def place(self, member: str, batch: OfferBatch) -> bool:
        """Accept the offers of another member; return False if it must send all its offers first."""
        known = batch.complete or self._sessions.get(member) == batch.session
        if batch.complete:
            self._sessions[member] = batch.session
            self._withdraw_all_of(member, batch.offers)
        if known:
            for key, offers in batch.offers.items():
                self._place(f"{member}/{key}", {replace(offer, member=member): to for offer, to in offers})
        return known

    def receive(self, member: str, batch: OfferBatch) -> PolledQueues:
        """Accept the offers of another member; the response names the task queues that are polled here."""
        known = self.place(member, batch)
        alive, polled = self.queues.polled()
        loads = self._loads() if state_versions().writes >= QUEUE_LOADS else []
        return PolledQueues(known=known, alive=alive, polled=polled, loads=loads)

    def _withdraw_all_of(self, member: str, but: Any) -> None:
        start = f"{member}/"
        for key in [key for key in self._placed if key.startswith(start) and key.removeprefix(start) not in but]:
            self._place(key, {})

    # Queues

    def _place(self, key: str, offers: Offers) -> None:
        """Put offers into the queues of this process."""
        if offers:
            self._placed[key] = dict(offers)
        else:
            self._placed.pop(key, None)
        self.queues.settle(key, {offer: self._queue_of(to) for offer, to in offers.items()})

    def _queue_of(self, to: Destination) -> QueueName:
        sticky = QueueName(to.queue.namespace, to.queue.kind, to.sticky)
        return sticky if to.sticky and self.queues.alive(sticky) else to.queue

    def _place_again(self, offer: Offer) -> None:
        """Move an offer whose worker has left to a queue that another worker polls."""
        key = key_of(offer)
        self._place(key, self._placed.get(key, {}))

    # Workers

    def register(self, kind: Kind, taker: Taker, returner: Returner = lambda *_: None) -> None:
        """Set the functions that hand out the offers of this process's runs, and take them back."""
        self._takers[kind] = taker
        self._returners[kind] = returner

    def reclaim(self, kind: Kind, offer: Offer, poller: Poller) -> None:
        """Take back a task that a worker at another member did not receive."""
        self._returners[kind](offer, poller)

    async def poll(
        self,
        queue: QueueName,
        identity: str,
        seconds: float,
        recheck: Callable[[], Awaitable[None]],
        *,
        sticky: bool = False,
        through: str = "",
        per_second: float | None = None,
    ) -> Any:
        """Wait for an offer and take its task; None if no task is available in time.

        Args:
            queue: The task queue.
            identity: Identity of the worker.
            seconds: The longest wait.
            recheck: May reject the worker at the end of a wait, as in `TaskQueues.poll`.
            sticky: Whether the queue is the worker's sticky queue.
            through: The member that the worker is connected to; empty for this one.
            per_second: The limit of the whole queue that the worker sets; see there.
        """
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            offer = await self.queues.poll(
                queue, identity, left, recheck, per_second=per_second, sticky=sticky, through=through
            )
            if offer is None:
                return None
            task = await self.take(queue.kind, offer, Poller(identity, sticky, through))
            if task is not None:
                return task
        return None

    async def hand_out(self, member: str, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Get the task of an offer of this process for the member that owns its queue; None if the offer is withdrawn.

        Args:
            member: The member, if it forgets the offer itself; otherwise empty, and the offer is withdrawn from it.
            kind: The kind of the offer.
            offer: The offer.
            poller: The worker.
        """
        self._taking[offer] = member
        try:
            task = await self.take(kind, offer, poller)
        finally:
            self._taking.pop(offer, None)
        key = key_of(offer)
        if task is None and offer in self._local.get(key, {}):
            self._refused.add(key)
        return task

    async def take(self, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Get the task of an offer for a worker; None if the offer is withdrawn."""
        if not offer.member:
            return await self._takers[kind](offer, poller)
        try:
            task = await self._members.take(kind, offer, poller)
        except UnreachableError:
            self.queues.requeue(key_of(offer), offer)
            return None
        except BaseException:
            self.queues.requeue(key_of(offer), offer)
            raise
        self._forget(offer)
        return task

    def _forget(self, offer: Offer) -> None:
        """Forget an offer of another member that was taken, or was withdrawn before: its owner does not withdraw it."""
        key = key_of(offer)
        if not self.queues.forget(key, offer):
            return
        placed = self._placed.get(key, {})
        placed.pop(offer, None)
        if not placed:
            self._placed.pop(key, None)

    def polled_by(self, member: str, polled: PolledQueues) -> None:
        """Record the task queues that workers poll at another member."""
        self._polled[member] = polled
        alive = set(polled.alive)
        for each in polled.loads:
            if each.waiting and each.name not in alive:
                self.starved(each.name)

    def namespaces(self) -> set[str]:
        """The namespaces whose task queues workers poll at other members."""
        return {name.namespace for polled in self._polled.values() for name in polled.polled}

    def alive(self, name: QueueName) -> bool:
        """Whether a worker polls a queue, or has just polled it, at any member."""
        return self.queues.alive(name) or any(name in polled.alive for polled in self._polled.values())

    def has_pollers(self, name: QueueName) -> bool:
        """Whether a worker has polled a queue lately, at any member."""
        return bool(self.queues.pollers(name)) or any(name in polled.polled for polled in self._polled.values())
