"""Match the offers of runs with polling workers, across a fleet.

Each task queue has one owner in the fleet, like each run. The owner of a run offers its tasks to the owners of their queues, and
all polls of a queue are forwarded to its owner. A worker gets a task from the owner of the run through the owner of the queue:

    run A ── offers ──▶ owner of the task queue ◀── polls ── the member that a worker is connected to
          ◀── takes ───

Without a fleet, all of these are the same process. The sticky queues of a task queue have the same owner as the queue itself, so
that owner knows, when it places a task, whether the worker that has cached the workflow still polls.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from perdure.api.stored import MessageStruct
from perdure.controller.fleet.shards import shard_of
from perdure.frontend.matching.queues import Kind, Offer, QueueName, TaskQueues
from perdure.kube.clock import monotonic


class Poller(MessageStruct, frozen=True):
    """A worker that gets an offer."""

    identity: str
    sticky: bool = False
    """Whether the offer was in its sticky queue."""
    through: str = ""
    """The member that the worker is connected to; empty for this one."""
    request_id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    """Identifies this delivery to the worker."""


Taker = Callable[[Offer, Poller], Awaitable[Any]]
"""Dispatches an offer to a worker; returns None if it is withdrawn."""
Returner = Callable[[Offer, Poller], None]
"""Takes back a task that a worker did not receive."""


class Destination(MessageStruct, frozen=True):
    """The queue of an offer."""

    queue: QueueName
    sticky: str = ""
    """The sticky queue of the worker that has cached the workflow, which is preferred while the worker polls it."""


Offers = Mapping[Offer, Destination]


class OfferBatch(MessageStruct, frozen=True, kw_only=True):
    """The offers of one member to another since its last batch."""

    session: str
    """Identifies the process: a restarted one sends all its offers first."""
    whole: bool
    """Whether these are all its offers, so that all others are withdrawn."""
    offers: dict[str, list[tuple[Offer, Destination]]]
    """The offers by key; an empty list withdraws all offers of a key."""


class PolledQueues(MessageStruct, frozen=True, kw_only=True):
    """The response to a batch: the task queues of the member that workers poll."""

    known: bool
    """Whether the member knows the session; otherwise it needs all offers."""
    alive: list[QueueName]
    polled: list[QueueName]


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
        del queue
        return ""

    def offer(self, member: str, key: str) -> None:
        """Do nothing, because there is no other member."""

    async def take(self, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Return None, because there is no other member."""
        del kind, offer, poller


class Matching:
    """The offers of this process's runs, and the offers of other members for its task queues."""

    def __init__(self) -> None:
        """Start without offers and without other members."""
        self.members: Members = SingleMember()
        self.lost: Callable[[str], None] = lambda _: None
        """Called with each member that has left."""
        self.queues = TaskQueues(self._place_again)
        self._takers: dict[Kind, Taker] = {}
        self._returners: dict[Kind, Returner] = {}
        self._local: dict[str, dict[Offer, Destination]] = {}
        """The offers of the runs that this process owns, by key."""
        self._placed: dict[str, dict[Offer, Destination]] = {}
        """The offers in the queues of this process, including offers of other members, by key."""
        self._sessions: dict[str, str] = {}
        """The session of each member."""
        self._polled: dict[str, PolledQueues] = {}
        """The polled task queues of each member."""
        self._others: frozenset[str] = frozenset()

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
        for member in {self.members.owner(each.queue) for each in (*before.values(), *offers.values())} - {""}:
            self.members.offer(member, key)

    def reassign(self, others: Mapping[str, object]) -> None:
        """Place all offers again after the members have changed, and drop those of members that have left."""
        before, self._others = self._others, frozenset(others)
        for member in before - self._others:
            self._withdraw_all_of(member, ())
            self._sessions.pop(member, None)
            self._polled.pop(member, None)
            self.lost(member)
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
        return {offer: to for offer, to in offers.items() if self.members.owner(to.queue) == member}

    # Offers of other members

    def receive(self, member: str, batch: OfferBatch) -> PolledQueues:
        """Accept the offers of another member; the response names the task queues that are polled here."""
        known = batch.whole or self._sessions.get(member) == batch.session
        if batch.whole:
            self._sessions[member] = batch.session
            self._withdraw_all_of(member, batch.offers)
        if known:
            for key, offers in batch.offers.items():
                self._place(f"{member}/{key}", {replace(offer, member=member): to for offer, to in offers})
        alive, polled = self.queues.polled()
        return PolledQueues(known=known, alive=alive, polled=polled)

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
            recheck: May reject the worker once there is an offer, as in `TaskQueues.poll`.
            sticky: Whether the queue is the worker's sticky queue.
            through: The member that the worker is connected to; empty for this one.
            per_second: The limit of the whole queue that the worker sets; see there.
        """
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            offer = await self.queues.poll(queue, identity, left, recheck, per_second=per_second)
            if offer is None:
                return None
            task = await self.take(queue.kind, offer, Poller(identity, sticky, through))
            if task is not None:
                return task
        return None

    async def take(self, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Get the task of an offer for a worker; None if the offer is withdrawn."""
        if not offer.member:
            return await self._takers[kind](offer, poller)
        try:
            return await self.members.take(kind, offer, poller)
        except UnreachableError:
            self.queues.requeue(key_of(offer), offer)
            return None
        except BaseException:
            self.queues.requeue(key_of(offer), offer)
            raise

    def polled_by(self, member: str, polled: PolledQueues) -> None:
        """Record the task queues that workers poll at another member."""
        self._polled[member] = polled

    def namespaces(self) -> set[str]:
        """The namespaces whose task queues workers poll at other members."""
        return {name.namespace for polled in self._polled.values() for name in polled.polled}

    def alive(self, name: QueueName) -> bool:
        """Whether a worker polls a queue, or has just polled it, at any member."""
        return self.queues.alive(name) or any(name in polled.alive for polled in self._polled.values())

    def has_pollers(self, name: QueueName) -> bool:
        """Whether a worker has polled a queue lately, at any member."""
        return bool(self.queues.pollers(name)) or any(name in polled.polled for polled in self._polled.values())


def key_of(offer: Offer) -> str:
    """The key of an offer in the queues of this process."""
    key = f"{offer.run_id}/{offer.query}" if offer.query else offer.run_id
    return f"{offer.member}/{key}" if offer.member else key


def queue_shard(namespace: str, name: str) -> int:
    """The shard of a task queue. Its owner owns the queue for workflows, activities, and Nexus calls."""
    return shard_of(namespace, f"task-queue/{name}")
