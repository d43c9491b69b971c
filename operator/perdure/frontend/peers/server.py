"""Serve other members of the fleet at a separate port."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from perdure.api.state_versions import unreadable, version_in
from perdure.controller.state_versions import state_versions
from perdure.frontend.core import Frontend
from perdure.frontend.errors import RpcError, denied, unavailable, unimplemented
from perdure.frontend.matching.queues import OfferBatch
from perdure.frontend.peers.calls import (
    CALL,
    END_POLLS,
    FRONTEND,
    HANDLED,
    LOST,
    MEMBER,
    NOT_OWNER,
    OFFER,
    PLACE,
    PRINCIPAL,
    RECHECK,
    RELOAD,
    RETURN,
    TAKE,
    VERSION,
    Caller,
    Failure,
    Headers,
    PeerCall,
    PeerLostError,
)
from perdure.frontend.peers.client import (
    NotOwnerError,
    OfferTaken,
    PeerClient,
    PeerIdentity,
    error_of,
    failure_of,
    pack,
    unpack,
)
from perdure.frontend.peers.listener import listening_to_members
from perdure.frontend.peers.offers import FleetMembers
from perdure.frontend.peers.router import CHECKED_SECONDS, RECHECK_SECONDS, Router, shard_of_rpc
from perdure.frontend.transport.door import Door, Peer
from perdure.frontend.transport.guard import claims_of
from perdure.frontend.transport.rpc import (
    CallContext,
    Handler,
    check_inside,
    check_served,
    namespace_of,
    request_of,
    service_of,
    status_of,
)
from perdure.frontend.transport.tls import ServerCertificate
from perdure.kube.clock import monotonic, now

PeerAnswer = Callable[[PeerCall], Awaitable[bytes]]
"""Answers a call of a member or a frontend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """The address and credentials of a member for others."""

    member: str
    """The name of the member."""
    address: str
    """The address it listens on, such as ``0.0.0.0:7234``."""
    audience: str
    """The audience of the tokens of members."""
    token: str
    """Path of this member's token."""
    frontend_user: str = ""
    """The user of frontends that are processes of their own; empty if there are none, or without authentication."""


class PeerServer:
    """Handles the calls of other members."""

    def __init__(
        self,
        frontend: Frontend,
        router: Router,
        handlers: Mapping[str, Handler],
        door: Door,
        user: str,
        frontend_user: str = "",
        answers_to_frontends: Mapping[str, PeerAnswer] = MappingProxyType({}),
    ) -> None:
        """Create a server without starting it.

        Args:
            frontend: The frontend.
            router: Handles forwarded RPCs.
            handlers: The handlers by RPC.
            door: Authenticates members.
            user: The user of all members; empty without authentication.
            frontend_user: The user of frontends that are processes of their own; empty if there are none.
            answers_to_frontends: What only these may call, by path.
        """
        self._frontend = frontend
        self._router = router
        self._door = door
        self._callers = {
            name: caller for name, caller in ((frontend_user, Caller.FRONTEND), (user, Caller.MEMBER)) if name
        }
        self._routed = router.routed(handlers)
        self._answers: dict[str, PeerAnswer] = {
            END_POLLS: self._end_polls,
            **{f"/{service_of(rpc)}/{rpc}": self._forwarded(rpc, each) for rpc, each in handlers.items()},
        }
        """What members and frontends may call, by path."""
        self._answers_to_frontends = answers_to_frontends
        self._answers_to_members: dict[str, PeerAnswer] = {
            OFFER: self._offer,
            PLACE: self._place,
            TAKE: self._take,
            RETURN: self._reclaim,
            RELOAD: self._reload,
            RECHECK: self._recheck,
        }
        """What only members may call, by path."""

    async def admit(self, headers: Headers, peer: Peer) -> Caller | Failure:
        """Say who a caller is, or why it is neither a member nor a frontend of the fleet.

        This rejects the caller, not the user whose RPC it forwards: it is not a response to the RPC.
        """
        try:
            user = await self._door.authenticate(headers, peer)
            caller = Caller.MEMBER if user is None else self._callers.get(user.name)
            if caller is None:
                raise denied(f"{user.name if user else ''} is not an operator of this release")  # noqa: TRY301 (returned like the others)
        except Exception as error:  # noqa: BLE001 (each becomes a status)
            return failure_of(status_of("", error))
        return caller

    async def answer(self, call: PeerCall) -> bytes | Failure:
        """Answer the call of a member or a frontend."""
        if not self._callers and call.header(FRONTEND):
            call = dataclasses.replace(call, caller=Caller.FRONTEND)
        others = self._answers_to_members if call.caller is Caller.MEMBER else self._answers_to_frontends
        answer = self._answers.get(call.path) or others.get(call.path)
        try:
            if answer is None:
                raise unimplemented(f"this operator has no {call.path}")
            _check_version(call.header(VERSION))
        except RpcError as error:
            return failure_of(error)
        try:
            return await answer(call)
        except NotOwnerError as error:
            return failure_of(unavailable(str(error)), NOT_OWNER)
        except PeerLostError as error:
            return failure_of(unavailable(str(error)), LOST)
        except Exception as error:  # noqa: BLE001 (each becomes a status)
            return failure_of(status_of(call.path.rpartition("/")[2], error), HANDLED)

    def _forwarded(self, rpc: str, handler: Handler) -> PeerAnswer:
        request_type = request_of(rpc)

        async def answer(forwarded: PeerCall) -> bytes:
            principal, member = forwarded.header(PRINCIPAL), forwarded.header(MEMBER)
            if forwarded.caller is Caller.FRONTEND:
                recheck = partial(_ask, forwarded, monotonic())
            else:
                recheck = partial(self._router.recheck_at, member, forwarded.header(CALL), monotonic())
            call = CallContext(forwarded.seconds_left, forwarded.headers, principal, recheck, member)
            await self._frontend.ready()
            request = request_type.FromString(forwarded.body)
            if forwarded.caller is Caller.FRONTEND:
                namespace = namespace_of(rpc, request)
                check_inside(rpc, namespace, request)
                check_served(namespace, self._frontend.served)  # whatever the frontend has checked
            if forwarded.caller is Caller.FRONTEND and shard_of_rpc(rpc, request, lambda _: "") is None:
                response = await self._routed[rpc](request, call)  # the frontend does not know the member that owns it
            else:
                response = await self._router.handle(rpc, handler, request, call)
            made: bytes = response.SerializeToString()
            return made

        return answer

    async def _offer(self, call: PeerCall) -> bytes:
        """Accept the offers of another member, and report which task queues are polled here."""
        return pack(self._frontend.matching.receive(call.header(MEMBER), unpack(call.body, OfferBatch)))

    async def _place(self, call: PeerCall) -> bytes:
        """Accept the offers of another member, without a report."""
        return pack(self._frontend.matching.place(call.header(MEMBER), unpack(call.body, OfferBatch)))

    async def _take(self, call: PeerCall) -> bytes:
        """Dispatch an offered task to a worker that polls at another member."""
        message = unpack(call.body, OfferTaken)
        if message.offer.run_id:  # otherwise it is the call of a client of this member
            entry = self._frontend.directory.get(message.offer.run_id)
            if entry is None:
                return b""
            if not self._frontend.shards.owns(entry.namespace, entry.workflow_id):
                raise NotOwnerError(f"this operator does not own workflow `{entry.workflow_id}`")
        caller = call.header(MEMBER)
        offer = replace(message.offer, member="")
        poller = replace(message.poller, through=message.poller.through or caller)
        # A member of an earlier version forgets no offer that it has taken.
        forgetful = "" if caller in self._frontend.shards.others_over_grpc else caller
        task = await self._frontend.matching.hand_out(forgetful, message.kind, offer, poller)
        return b"" if task is None else bytes(task.SerializeToString())

    async def _reclaim(self, call: PeerCall) -> bytes:
        """Take back a task that a worker at another member did not receive."""
        returned = unpack(call.body, OfferTaken)
        self._frontend.matching.reclaim(returned.kind, replace(returned.offer, member=""), returned.poller)
        return b""

    async def _recheck(self, call: PeerCall) -> bytes:
        """Check again whether the worker whose poll this member has forwarded may poll."""
        await self._router.recheck(call.body.decode())
        return b""

    async def _end_polls(self, call: PeerCall) -> bytes:
        """End the polls that a leaving member has forwarded. Those that have got a task respond with it."""
        self._frontend.queues.end_polls(call.header(MEMBER))
        return b""

    async def _reload(self, call: PeerCall) -> bytes:
        """Reload settings that another member has changed: those of a namespace, or of all namespaces."""
        await self._frontend.reload(call.body.decode())
        return b""


async def _ask(forwarded: PeerCall, began: float) -> None:
    """Check again whether the worker whose poll a frontend has forwarded may poll, unless it did so a moment ago.

    Raises:
        RpcError: The worker no longer waits, or may no longer poll, or the frontend has not answered.
    """
    call_id = forwarded.header(CALL)
    if not call_id or monotonic() - began < CHECKED_SECONDS:
        return
    if forwarded.ask is None:
        raise unavailable("the frontend cannot be asked whether the worker still waits")
    try:
        async with asyncio.timeout(RECHECK_SECONDS):
            refused = await forwarded.ask(call_id)
    except TimeoutError:
        raise unavailable("the frontend has not answered whether the worker still waits") from None
    if refused is not None:
        raise error_of(refused)


def _check_version(sent: str) -> None:
    """Check that this member can read a message with a state version.

    Raises:
        RpcError: Only a newer member can read it.
    """
    if why := unreadable(version_in(sent), state_versions().reads):
        raise unavailable(f"an operator of a newer version has sent a message that this one cannot read ({why})")


def connect(frontend: Frontend, client: PeerClient) -> tuple[Router, FleetMembers]:
    """Share the work of a frontend with the other members, as the ownership of the shards says from now on.

    Args:
        frontend: The frontend.
        client: Calls the other members.
    """
    shards = frontend.shards
    router = Router(shards, frontend.directory, client)
    members = FleetMembers(shards, frontend.matching, frontend.deployments, client)

    def reassign() -> None:
        members.reassign()
        router.reassign()
        client.close_unused()
        if not shards.active:
            frontend.forget_tasks()

    frontend.matching.join(members)
    frontend.managed.announce = router.announce
    shards.subscribe(reassign)
    reassign()
    return router, members


@asynccontextmanager
async def serve_peers(
    frontend: Frontend,
    handlers: Mapping[str, Handler],
    settings: PeerSettings,
    served: ServerCertificate | None,
    door: Door,
    answers_to_frontends: Mapping[str, PeerAnswer] = MappingProxyType({}),
) -> AsyncIterator[Router]:
    """Serve other members within the block; yield what forwards RPCs to them.

    Args:
        frontend: The frontend.
        handlers: The handlers by RPC, for the shards of this member.
        settings: The address and credentials of this member.
        served: The certificate that all members share; None without encryption.
        door: Authenticates members and frontends.
        answers_to_frontends: What only frontends that are processes of their own may call, by path.
    """
    shards, token = frontend.shards, Path(settings.token) if settings.token else None
    identity = PeerIdentity(name=settings.member, token=token, served=served)
    client = PeerClient(identity, lambda: shards.others, over_grpc=lambda: shards.others_over_grpc)
    user = claims_of(token.read_text(encoding="ascii").strip(), now()).subject if token else ""
    router, members = connect(frontend, client)
    server = PeerServer(frontend, router, handlers, door, user, settings.frontend_user, answers_to_frontends)
    try:
        async with listening_to_members(settings.address, server.admit, server.answer, served):
            try:
                yield router
            finally:
                members.close()
    finally:
        await client.close()
