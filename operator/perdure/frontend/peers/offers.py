"""Send the offers of this member's runs to the members that own the task queues."""

import asyncio
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import structlog

from perdure.controller.fleet.shards import Shards
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.queues import (
    Kind,
    Matching,
    Offer,
    OfferBatch,
    PolledQueues,
    Poller,
    QueueName,
    UnreachableError,
    queue_shard,
)
from perdure.frontend.peers.calls import OFFER, PLACE, RETURN, TAKE, PeerLostError
from perdure.frontend.peers.client import NotOwnerError, OfferTaken, PeerClient, pack, unpack
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.transport.rpc import response_of
from perdure.kube.clock import monotonic

_POLL_RESPONSES: Final = {
    Kind.WORKFLOW: response_of("PollWorkflowTaskQueue"),
    Kind.ACTIVITY: response_of("PollActivityTaskQueue"),
    Kind.NEXUS: response_of("PollNexusTaskQueue"),
}
_SECONDS: Final = 5.0
"""Timeout of a batch, in seconds."""
_LEAST_OFTEN_SECONDS: Final = 2.0
"""The longest interval between updates about the polled task queues of other members, in seconds."""
_RETRY_SECONDS: Final = 0.2
_log = structlog.get_logger("perdure.frontend.peers")
_MANY: Final = 2_000
"""Maximum number of keys in one batch."""


class _Link:
    """The offers that are not sent to another member yet."""

    def __init__(self) -> None:
        self.keys: dict[str, None] = {}
        """The keys of changed offers, in order."""
        self.needs_all = True
        """Whether the member needs all offers."""
        self.changed = asyncio.Event()
        self.asks_at = 0.0
        """When to ask again which task queues of the member are polled: the answer names all of them."""
        self.refused = ""
        """Why the member has not processed the last batch."""
        self.task: asyncio.Task[None] | None = None

    def next_keys(self) -> list[str]:
        """The keys of the next batch."""
        keys = list(self.keys)[:_MANY]
        for key in keys:
            del self.keys[key]
        return keys


class FleetMembers:
    """The other members of the fleet, for `Matching`."""

    def __init__(
        self,
        shards: Shards,
        matching: Matching,
        deployments: NamespaceRegistry[WorkerDeployment],
        client: PeerClient,
    ) -> None:
        """Create it without connections.

        Args:
            shards: The owners of the shards.
            matching: The offers of this member, and those of others for its task queues.
            deployments: The worker deployments, which determine the workers that get the tasks.
            client: Calls the other members.
        """
        self._shards = shards
        self._matching = matching
        self._deployments = deployments
        self._client = client
        self._session = uuid.uuid4().hex
        self._links: dict[str, _Link] = {}
        self._returning: set[asyncio.Task[None]] = set()

    def owner(self, queue: QueueName) -> str:
        """The member that owns a task queue; empty for this one."""
        return self._shards.owner(queue_shard(queue.namespace, queue.name))

    def offer(self, member: str, key: str) -> None:
        """Schedule sending the offers of a key to a member."""
        link = self._links.get(member)
        if link is not None:
            link.keys[key] = None
            link.changed.set()

    async def take(self, kind: Kind, offer: Offer, poller: Poller) -> Any:
        """Get the task of an offer from another member; None if it is withdrawn.

        Raises:
            UnreachableError: The member cannot be reached, or has lost the run.
            RpcError: The member could not hand out the task.
        """
        message = OfferTaken(kind=kind, offer=offer, poller=poller)
        try:
            raw = await self._client.call(offer.member, TAKE, message, encode=pack, decode=bytes, seconds=None)
        except (
            asyncio.CancelledError
        ):  # the worker has disconnected, or the queue has another owner; the response may be on its way
            self._return(offer.member, message)
            raise
        except (PeerLostError, NotOwnerError) as error:
            await asyncio.sleep(_RETRY_SECONDS)
            raise UnreachableError(str(error)) from error
        return _POLL_RESPONSES[kind].FromString(raw) if raw else None

    def _return(self, member: str, message: OfferTaken) -> None:
        """Return a task that a member may have handed out in vain."""

        async def return_offer() -> None:
            with suppress(PeerLostError, NotOwnerError, RpcError):  # a lost member has lost the task, too
                await self._client.call(member, RETURN, message, encode=pack, decode=bytes, seconds=_SECONDS)

        returning = asyncio.get_running_loop().create_task(return_offer(), name="returned")
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    # Links

    def reassign(self) -> None:
        """Send all offers again, to the current members, after the fleet has changed."""
        others = self._shards.others
        for member in self._links.keys() - others.keys():
            self._close(self._links.pop(member))
        for member in others:
            link = self._links.get(member)
            if link is None:
                link = self._links[member] = _Link()
                link.task = asyncio.get_running_loop().create_task(self._offer_to(member, link), name="offers")
            link.needs_all = True
            link.changed.set()
        self._matching.reassign(others)

    def close(self) -> None:
        """Stop sending offers."""
        for link in self._links.values():
            self._close(link)
        self._links.clear()

    @staticmethod
    def _close(link: _Link) -> None:
        if link.task is not None:
            link.task.cancel()

    async def _offer_to(self, member: str, link: _Link) -> None:
        while True:
            link.changed.clear()
            try:
                await self._send(member, link)
            except (PeerLostError, NotOwnerError):
                link.needs_all = True
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except RpcError as error:
                if link.refused != error.message:
                    _log.warning(
                        "Another operator cannot process the offers of tasks", member=member, error=error.message
                    )
                link.needs_all, link.refused = True, error.message
                await asyncio.sleep(_LEAST_OFTEN_SECONDS)
                continue
            link.refused = ""
            if link.needs_all or link.keys:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAST_OFTEN_SECONDS):
                    await link.changed.wait()

    async def _send(self, member: str, link: _Link) -> None:
        """Send the next batch to a member; now and then, learn which of its task queues are polled."""
        matching, complete = self._matching, link.needs_all
        if complete:
            link.needs_all = False
            link.keys = dict.fromkeys(matching.offered_to(member, None))
        offers = matching.offered_to(member, link.next_keys())
        await self._read_routing({to.queue.namespace for each in offers.values() for _, to in each})
        batch = OfferBatch(session=self._session, complete=complete, offers=offers)
        if not complete and monotonic() < link.asks_at and member not in self._shards.others_over_grpc:
            raw = await self._client.call(member, PLACE, batch, encode=pack, decode=bytes, seconds=_SECONDS)
            link.needs_all |= not unpack(raw, bool)
            return
        link.asks_at = monotonic() + _LEAST_OFTEN_SECONDS
        raw = await self._client.call(member, OFFER, batch, encode=pack, decode=bytes, seconds=_SECONDS)
        polled = unpack(raw, PolledQueues)
        link.needs_all |= not polled.known
        matching.polled_by(member, polled)
        await self._read_routing(matching.namespaces())

    async def _read_routing(self, namespaces: Iterable[str]) -> None:
        """Read the worker deployments, which determine the workers that get the tasks."""
        for namespace in namespaces:
            with suppress(RpcError):
                await self._deployments.load(namespace)
