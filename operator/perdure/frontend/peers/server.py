"""Serve other members of the fleet at a separate port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from msgspec.structs import replace

from perdure.api.state_versions import unreadable, version_in
from perdure.controller.state_versions import state_versions
from perdure.frontend.core import Frontend
from perdure.frontend.errors import RpcError, denied, invalid, unavailable
from perdure.frontend.matching.queues import OfferBatch
from perdure.frontend.peers.client import (
    ANSWER,
    CALL,
    END_POLLS,
    HANDLED,
    MEMBER,
    NOT_OWNER,
    OFFER,
    PINGS,
    PRINCIPAL,
    RECHECK,
    RELOAD,
    RETURN,
    SERVICE,
    SIZES,
    TAKE,
    VERSION,
    NotOwnerError,
    OfferTaken,
    PeerClient,
    PeerIdentity,
    pack,
    unpack,
)
from perdure.frontend.peers.offers import FleetMembers
from perdure.frontend.peers.router import Router
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ, Door, peer_of
from perdure.frontend.transport.guard import claims_of
from perdure.frontend.transport.rpc import CallContext, Handler, request_of, service_of, status_of
from perdure.frontend.transport.tls import ServerCertificate
from perdure.kube.clock import monotonic, now

_Answer = Callable[[bytes, Any], Awaitable[bytes]]
_STREAM_LIMIT = 100_000
_STOP_SECONDS = 0.5


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


class PeerServer:
    """Handles the calls of other members."""

    def __init__(
        self, frontend: Frontend, router: Router, handlers: Mapping[str, Handler], door: Door, user: str
    ) -> None:
        """Create a server without starting it.

        Args:
            frontend: The frontend.
            router: Handles forwarded RPCs.
            handlers: The handlers by RPC.
            door: Authenticates members.
            user: The user of all members; empty without authentication.
        """
        self._frontend = frontend
        self._router = router
        self._handlers = handlers
        self._door = door
        self._user = user

    def generic_handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The handlers for gRPC."""
        found: dict[str, dict[str, _Answer]] = {SERVICE: {}}
        for path, answer in self._member_handlers():
            found[SERVICE][path.rpartition("/")[2]] = answer
        for rpc, handler in self._handlers.items():
            found.setdefault(service_of(rpc), {})[rpc] = self._forwarded(rpc, handler)
        return tuple(
            grpc.method_handlers_generic_handler(
                service,
                {
                    name: grpc.stream_unary_rpc_method_handler(self._served(name, each))
                    for name, each in methods.items()
                },
            )
            for service, methods in found.items()
        )

    def _member_handlers(self) -> tuple[tuple[str, _Answer], ...]:
        """The handlers of calls between members, by path."""
        return (
            (OFFER, self._offer),
            (TAKE, self._take),
            (RETURN, self._reclaim),
            (RELOAD, self._reload),
            (RECHECK, self._recheck),
            (END_POLLS, self._end_polls),
        )

    def _served(self, name: str, answer: _Answer) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def serve_one(_: Any, context: Any) -> bytes:
            try:
                await self._authenticate(context)
                _check_version(_header(tuple(context.invocation_metadata() or ()), VERSION))
            except RpcError as error:
                # This rejects the member, not the user: without the trailer, it is not a response to the RPC.
                await context.abort(error.code, error.message)
            try:
                raw = await context.read()  # only now, so that nothing is read from unauthenticated callers
                if not isinstance(raw, bytes):
                    raise invalid("the call has no message")  # noqa: TRY301 (answered like the others)
                return await answer(raw, context)
            except NotOwnerError as error:
                context.set_trailing_metadata(((ANSWER, NOT_OWNER),))
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            except Exception as error:  # noqa: BLE001 (each becomes a status)
                failure = status_of(name, error)
                context.set_trailing_metadata(((ANSWER, HANDLED), *failure.trailers()))
                await context.abort(failure.code, failure.message)
            raise AssertionError  # `abort` raises

        return serve_one

    async def _authenticate(self, context: Any) -> None:
        """Check that the caller is a member.

        Raises:
            RpcError: The caller is not a member.
        """
        user = await self._door.authenticate(tuple(context.invocation_metadata() or ()), peer_of(context.peer()))
        if user is not None and user.name != self._user:
            raise denied(f"{user.name} is not an operator of this release")

    def _forwarded(self, rpc: str, handler: Handler) -> _Answer:
        request_type = request_of(rpc)

        async def answer(raw: bytes, context: Any) -> bytes:
            metadata = tuple(context.invocation_metadata() or ())
            principal, member = _header(metadata, PRINCIPAL), _header(metadata, MEMBER)
            recheck = partial(self._router.recheck_at, member, _header(metadata, CALL), monotonic())
            call = CallContext(context.time_remaining(), metadata, principal, recheck, member)
            await self._frontend.ready()
            response = await self._router.handle(rpc, handler, request_type.FromString(raw), call)
            made: bytes = response.SerializeToString()
            return made

        return answer

    async def _offer(self, raw: bytes, context: Any) -> bytes:
        """Accept the offers of another member."""
        member = _header(tuple(context.invocation_metadata() or ()), MEMBER)
        return pack(self._frontend.matching.receive(member, unpack(raw, OfferBatch)))

    async def _take(self, raw: bytes, context: Any) -> bytes:
        """Dispatch an offered task to a worker that polls at another member."""
        message = unpack(raw, OfferTaken)
        if message.offer.run_id:  # otherwise it is the call of a client of this member
            entry = self._frontend.directory.get(message.offer.run_id)
            if entry is None:
                return b""
            if not self._frontend.shards.owns(entry.namespace, entry.workflow_id):
                raise NotOwnerError(f"this operator does not own workflow `{entry.workflow_id}`")
        offer, caller = replace(message.offer, member=""), _header(tuple(context.invocation_metadata() or ()), MEMBER)
        poller = replace(message.poller, through=message.poller.through or caller)
        task = await self._frontend.matching.take(message.kind, offer, poller)
        return b"" if task is None else bytes(task.SerializeToString())

    async def _reclaim(self, raw: bytes, context: Any) -> bytes:
        """Take back a task that a worker at another member did not receive."""
        returned = unpack(raw, OfferTaken)
        self._frontend.matching.reclaim(returned.kind, replace(returned.offer, member=""), returned.poller)
        return b""

    async def _recheck(self, raw: bytes, context: Any) -> bytes:
        """Check again whether the worker whose poll this member has forwarded may poll."""
        await self._router.recheck(raw.decode())
        return b""

    async def _end_polls(self, raw: bytes, context: Any) -> bytes:
        """End the polls that a leaving member has forwarded. Those that have got a task respond with it."""
        self._frontend.queues.end_polls(_header(tuple(context.invocation_metadata() or ()), MEMBER))
        return b""

    async def _reload(self, raw: bytes, context: Any) -> bytes:
        """Reload settings that another member has changed: those of a namespace, or of all namespaces."""
        await self._frontend.reload(raw.decode())
        return b""


def _check_version(sent: str) -> None:
    """Check that this member can read a message with a state version.

    Raises:
        RpcError: Only a newer member can read it.
    """
    if why := unreadable(version_in(sent), state_versions().reads):
        raise unavailable(f"an operator of a newer version has sent a message that this one cannot read ({why})")


def _header(metadata: tuple[tuple[str, str | bytes], ...], name: str) -> str:
    value = next((value for key, value in metadata if key == name), "")
    return value.decode() if isinstance(value, bytes) else value


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
) -> AsyncIterator[Router]:
    """Serve other members within the block; yield what forwards RPCs to them.

    Args:
        frontend: The frontend.
        handlers: The handlers by RPC, for the shards of this member.
        settings: The address and credentials of this member.
        served: The certificate that all members share; None without encryption.
        door: Authenticates members.
    """
    shards, token = frontend.shards, Path(settings.token) if settings.token else None
    identity = PeerIdentity(name=settings.member, token=token, served=served)
    client = PeerClient(identity, lambda: shards.others)
    user = claims_of(token.read_text(encoding="ascii").strip(), now()).subject if token else ""
    router, members = connect(frontend, client)
    server = grpc.aio.server(options=_options())
    if served is None:
        server.add_insecure_port(settings.address)
    else:
        server.add_secure_port(settings.address, served.credentials())
    server.add_generic_rpc_handlers(PeerServer(frontend, router, handlers, door, user).generic_handlers())
    await server.start()
    try:
        yield router
    finally:
        members.close()
        await asyncio.wait({asyncio.ensure_future(server.stop(grace=_STOP_SECONDS))})
        await client.close()


def _options() -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MAX_READ),
        ("grpc.max_send_message_length", MAX_ANSWER),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _STREAM_LIMIT),
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        *PINGS,
        *SIZES,
        ("grpc.http2.lookahead_bytes", 16 * 1024),
        ("grpc.http2.bdp_probe", 0),
    ]
