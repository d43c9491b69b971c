"""The gRPC server: find the handlers of RPCs, and return errors in the format of SDKs."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from perdure import __version__
from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.core import Frontend
from perdure.frontend.errors import RpcError, invalid
from perdure.frontend.nexus.direct_calls import DispatchNexusTaskRequest
from perdure.frontend.nexus.dispatch import NexusDispatch
from perdure.frontend.peers.peer_server import PeerSettings, peered
from perdure.frontend.settings import Settings
from perdure.frontend.transport.connections import Connections, peer_of
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ, Door
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.open_calls import OpenCalls
from perdure.frontend.transport.rpc import Handler, Rpc
from perdure.frontend.transport.services import SERVICES, head_of
from perdure.frontend.transport.tls import Served, encryption
from perdure.frontend.transport.unserved import UNSERVED, refusing
from perdure.kube import client as kube

_STREAMS = 500
"""Maximum number of concurrent RPCs per connection, which is enough for a worker with many pollers."""
_REVIEW_CONNECTIONS = 8
_STATUS_DETAILS = "grpc-status-details-bin"
_GRACE_SECONDS = 0.5
"""How long open calls may continue when the operator stops."""


@asynccontextmanager
async def serve(frontend: Frontend, address: str) -> AsyncIterator[int]:
    """Serve gRPC at an address such as ``127.0.0.1:7233``, and the HTTP API at its configured address; yield the gRPC port.

    Raises:
        RuntimeError: An address or the TLS certificate is not available.
        ValueError: A reachable address would be served without authentication, or without encryption of tokens.
    """
    chosen = frontend.settings
    _check(chosen, address)
    for other in filter(None, (chosen.http_address, chosen.peer_address)):
        _check(chosen, other)
    manager = frontend.manager
    async with AsyncExitStack() as stack:
        shown = await stack.enter_async_context(encryption(chosen, manager.client, manager.served))
        server = grpc.aio.server(options=options(chosen))
        port = server.add_secure_port(address, shown.credentials()) if shown else server.add_insecure_port(address)
        listening = [stack.enter_context(_listening(chosen.http_address))] if chosen.http_address else []
        ports = [port, *(each.getsockname()[1] for each in listening)]
        handlers = frontend.handlers()
        if chosen.peer_address:
            ports.append(int(chosen.peer_address.rpartition(":")[2]))
        door, members = await _doors(stack, frontend, *ports)
        if chosen.peer_address:
            handlers = await stack.enter_async_context(
                peered(frontend, handlers, _peers(chosen), shown.for_members() if shown else None, members)
            )
        offered = rpcs(handlers, manager.served, manager.first_lists.wait, door)
        calls = OpenCalls()
        server.add_generic_rpc_handlers(generic_handlers(offered, calls))
        server.add_generic_rpc_handlers((_health(),))
        for each in listening:
            await stack.enter_async_context(_http_api(frontend, offered, door, each, shown))
        await server.start()
        try:
            yield port
        finally:
            await stop(server, calls)


async def stop(server: grpc.aio.Server, calls: OpenCalls) -> None:
    """Accept no more connections and calls, and end open calls soon, so that their callers try another operator."""
    # Its inner tasks may have been cancelled together with the operator's, which is not a failure.
    stopping = asyncio.ensure_future(server.stop(grace=2 * _GRACE_SECONDS))
    await asyncio.wait({stopping}, timeout=_GRACE_SECONDS)
    calls.end()
    await asyncio.wait({stopping})


def _check(chosen: Settings, address: str) -> None:
    if _is_loopback(address):
        return
    if not chosen.authentication:
        raise ValueError(
            f"without authentication, the frontend can listen only on a loopback address, not on {address}"
        )
    if not (chosen.secret or chosen.certificate or chosen.in_the_clear):
        raise ValueError(
            f"no TLS certificate for {address}: set PERDURE_TEMPORAL_TLS_SECRET, or PERDURE_TEMPORAL_TLS_CERT and "
            "PERDURE_TEMPORAL_TLS_KEY, or PERDURE_TEMPORAL_TLS=None to send tokens in the clear"
        )


def _listening(address: str) -> socket.socket:
    """A socket for the HTTP API.

    Raises:
        RuntimeError: The address is not available.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family, dualstack_ipv6=host == "::")
    except OSError as error:
        raise RuntimeError(f"the HTTP API cannot be served at {address}: {error}") from error


def _http_api(
    frontend: Frontend, offered: Sequence[Rpc], door: Door, listening: socket.socket, shown: Served | None
) -> AbstractAsyncContextManager[None]:
    from perdure.frontend.http.http_server import serve_http  # noqa: PLC0415 (the same)
    from perdure.frontend.http.nexus import NexusGateway  # noqa: PLC0415 (what others do without)
    from perdure.frontend.http.webhooks import WebhookGateway  # noqa: PLC0415 (the same)

    nexus, webhooks, manager = (
        NexusGateway(dispatch_rpc(frontend, door), frontend.endpoints, frontend.settings.nexus_headers),
        None,
        frontend.manager,
    )
    if frontend.settings.webhooks:
        webhooks = WebhookGateway(manager.webhooks, manager.first_lists.wait)
        manager.webhooks.serve()
    secured, connections = shown.context() if shown else None, frontend.settings.max_connections
    return serve_http(offered, nexus, webhooks, listening, secured=secured, connections=connections)


def dispatch_rpc(frontend: Frontend, door: Door) -> Rpc:
    """Build the RPC for calls of Nexus handlers by clients. It is not part of Temporal's API, but has the same checks."""
    manager = frontend.manager
    handler = NexusDispatch(manager.shards, frontend.direct_calls).dispatch_nexus_task
    served, ready = manager.served, manager.first_lists.wait
    return Rpc("", "DispatchNexusTask", handler, DispatchNexusTaskRequest, served, ready, door)


def _peers(chosen: Settings) -> PeerSettings:
    if not chosen.member:
        raise ValueError("PERDURE_PEER_ADDRESS requires POD_NAME: each operator of a fleet needs a name")
    if chosen.authentication and not chosen.peer_token:
        raise ValueError("PERDURE_PEER_ADDRESS requires PERDURE_PEER_TOKEN: the path of a token for other operators")
    return PeerSettings(
        member=chosen.member,
        address=chosen.peer_address,
        audience=chosen.peer_audience,
        token=chosen.peer_token if chosen.authentication else "",
    )


async def _doors(stack: AsyncExitStack, frontend: Frontend, *ports: int) -> tuple[Door, Door]:
    """Build the admission of callers: for users, and for other members of the fleet.

    Token reviews use separate connections, so that strangers cannot exhaust those of the operator.
    """
    if not frontend.settings.authentication:
        return Door(None), Door(None)
    manager = frontend.manager
    access = manager.client.access
    client = await stack.enter_async_context(
        kube.Client.open(access, user_agent=f"perdure-frontend/{__version__}", connections=_REVIEW_CONNECTIONS)
    )
    connections = Connections(*ports, serves=lambda: manager.shards.active)
    await stack.enter_async_context(connections.guarded())
    guard = Guard(client, frontend.settings.audience, cluster_tokens=frontend.settings.cluster_tokens)
    return Door(guard, connections), Door(Guard(client, frontend.settings.peer_audience), connections)


def options(chosen: Settings) -> list[tuple[str, int]]:
    """Options of gRPC's core: limits of memory, streams, and lifetime for connections."""
    return [
        ("grpc.max_receive_message_length", MAX_READ),
        ("grpc.max_send_message_length", MAX_ANSWER),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", chosen.max_connections),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.http2.settings_timeout", 10_000),
        # This limits the buffered part of an unread message. When a message is read, gRPC opens the window; without
        # bandwidth probing, it does so for no other message.
        ("grpc.http2.lookahead_bytes", 16 * 1024),
        ("grpc.http2.bdp_probe", 0),
        # A lost peer is detected within 40 s. SDKs ping every 30 s; pings more often than every 5 s are rejected.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.max_connection_idle_ms", 15 * 60_000),
        # Longer than a poll, so that open calls end on an old connection while new calls use a new connection.
        ("grpc.max_connection_age_ms", 60 * 60_000),
        ("grpc.max_connection_age_grace_ms", 120_000),
    ]


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def rpcs(
    handlers: Mapping[str, Handler], served: ServedNamespaces, ready: Callable[[], Awaitable[None]], door: Door
) -> list[Rpc]:
    """Build the served RPCs.

    Args:
        handlers: The handlers by RPC.
        served: The served namespaces.
        ready: Waits until all runs are known; before that, "not found" would be a guess.
        door: The admission of requests.
    """
    return [
        Rpc(service, name, handler, getattr(module, f"{name}Request"), served, ready, door)
        for service, module in SERVICES.items()
        for name, handler in handlers.items()
        if hasattr(module, f"{name}Request")
    ]


def generic_handlers(offered: Iterable[Rpc], calls: OpenCalls) -> tuple[grpc.GenericRpcHandler, ...]:
    """Build the handlers for gRPC.

    gRPC sees requests as streams of bytes, so that it reads nothing before the caller is authenticated.

    Args:
        offered: The served RPCs.
        calls: Gets the open calls.
    """
    found: dict[str, dict[str, Any]] = {service: {} for service in SERVICES}
    for rpc in offered:
        response = getattr(SERVICES[rpc.service], f"{rpc.name}Response")
        found[rpc.service][rpc.name] = grpc.stream_unary_rpc_method_handler(
            _served(rpc, calls), response_serializer=response.SerializeToString
        )
    for service, module in SERVICES.items():
        for name, reason in UNSERVED.items():
            if name not in found[service] and hasattr(module, f"{name}Request"):
                found[service][name] = grpc.stream_unary_rpc_method_handler(refusing(reason))
    return tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in found.items())


class _GrpcCall:
    """An RPC that arrived over gRPC."""

    def __init__(self, rpc: Rpc, context: Any) -> None:
        self._rpc = rpc
        self._context = context
        self.metadata = tuple(context.invocation_metadata() or ())
        self.peer = peer_of(context.peer())

    @property
    def seconds_left(self) -> float | None:
        """Until the caller gives up; None: never."""
        left: float | None = self._context.time_remaining()
        return left

    async def read(self) -> bytes:
        """Read the message."""
        raw = await self._context.read()
        if not isinstance(raw, bytes):
            raise invalid("the call has no message")
        return raw

    def after_sending(self, release: Callable[[], None]) -> None:
        """Call a function once gRPC has passed on the response, or the client has gone."""
        self._context.add_done_callback(lambda _: release())

    async def head(self, raw: bytes) -> Any:
        """Decode the namespace only."""
        return self._decoded(head_of(self._rpc.request.DESCRIPTOR), raw)

    async def decode(self, raw: bytes) -> Any:
        """Decode the message."""
        return self._decoded(self._rpc.request, raw)

    def _decoded(self, kind: Any, raw: bytes) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError:
            raise invalid(f"the message is not a {self._rpc.name}Request") from None


def _served(rpc: Rpc, calls: OpenCalls) -> Callable[[Any, Any], Awaitable[Any]]:
    async def serve_one(_: Any, context: Any) -> Any:
        try:
            return await calls.handle(rpc.answer(_GrpcCall(rpc, context)))
        except RpcError as error:
            if error.detail is not None:
                context.set_trailing_metadata(((_STATUS_DETAILS, error.status().SerializeToString()),))
            await context.abort(error.code, error.message)

    return serve_one


def _health() -> grpc.GenericRpcHandler:
    """Build the handler of grpc.health.v1. Any response means healthy; the message is one enum, 1 for SERVING."""

    async def check(unread: Any, context: Any) -> bytes:  # noqa: ARG001 (gRPC's form)
        return b"\x08\x01"

    methods = {"Check": grpc.stream_unary_rpc_method_handler(check)}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)
