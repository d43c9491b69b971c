"""Serve the frontend: over gRPC and HTTP, with TLS and authenticated callers, and to the other members of a fleet."""

import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc
import grpc.aio

from perdure import __version__
from perdure.frontend.core import Frontend
from perdure.frontend.http.archive import ArchiveGateway
from perdure.frontend.http.connections import Budgets, HttpConnections
from perdure.frontend.http.nexus import NexusGateway, finder
from perdure.frontend.http.server import Gateway, serve_http
from perdure.frontend.http.webhooks import WebhookGateway, WebhookReceiver
from perdure.frontend.nexus.tasks import DispatchNexusTaskRequest, NexusDispatch
from perdure.frontend.peers import http_calls
from perdure.frontend.peers.server import PeerSettings, serve_peers
from perdure.frontend.settings import Settings
from perdure.frontend.transport.door import Connections, Door, strangers_of
from perdure.frontend.transport.grpc_server import OpenCalls, generic_handlers, health_handler, options, stop
from perdure.frontend.transport.guard import Guard, Provider
from perdure.frontend.transport.rpc import Rpc, rpcs
from perdure.frontend.transport.sockets import listening
from perdure.frontend.transport.tls import ServerCertificate, encryption
from perdure.frontend.visibility.archived import ArchivedRuns, GetArchivedRunRequest, ListArchivedRunsRequest
from perdure.kube import client as kube
from perdure.kube.access import Access

_REVIEW_CONNECTIONS = 8


@asynccontextmanager
async def serve(frontend: Frontend, address: str) -> AsyncIterator[int]:
    """Serve gRPC at an address such as ``127.0.0.1:7233``, and the HTTP API at its configured address; yield the gRPC port.

    If frontends are processes of their own, serve only these and the other members of the fleet; yield 0.

    Raises:
        RuntimeError: An address or the TLS certificate is not available.
        ValueError: A reachable address would be served without authentication, or without encryption of tokens.
    """
    chosen = frontend.settings
    check_addresses(chosen, *(() if chosen.apart else (address, chosen.http_address)), chosen.peer_address)
    async with AsyncExitStack() as stack:
        shown = await stack.enter_async_context(encryption(chosen, frontend.client, frontend.served))
        ports = None if chosen.apart else Ports.open(stack, chosen, address, shown)
        numbers = [] if ports is None else ports.numbers
        if chosen.peer_address:
            numbers.append(int(chosen.peer_address.rpartition(":")[2]))
        handlers = frontend.handlers()
        door, members = await doors(stack, chosen, frontend.client.access, lambda: frontend.shards.active, numbers)
        drains: list[Callable[[], Awaitable[None]]] = []
        if chosen.peer_address:
            served = shown.for_members() if shown else None
            calls = http_calls.answers(frontend) if chosen.apart else {}
            router = await stack.enter_async_context(
                serve_peers(frontend, handlers, _peers(chosen), served, members, calls)
            )
            handlers = router.routed(handlers)
            drains.append(router.drain)
        if ports is None:
            yield 0
            return
        offered = rpcs(handlers, frontend.served, frontend.ready, door)
        gateways = _gateways(frontend, door)
        if chosen.http_address and chosen.webhooks:
            frontend.webhooks.serve()
        async with serving(ports, chosen, offered, door, gateways, shown, *drains):
            yield ports.grpc_port


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports for callers."""

    grpc_server: grpc.aio.Server
    grpc_port: int
    http: socket.socket | None
    """The listening socket of the HTTP API; None if it is not served."""

    @classmethod
    def open(cls, stack: AsyncExitStack, settings: Settings, address: str, shown: ServerCertificate | None) -> "Ports":
        """Open the ports, and close the listening sockets with `stack`.

        Raises:
            RuntimeError: An address is not available.
        """
        server = grpc.aio.server(options=options(settings))
        port = server.add_secure_port(address, shown.credentials()) if shown else server.add_insecure_port(address)
        http = stack.enter_context(_listening(settings.http_address)) if settings.http_address else None
        return cls(server, port, http)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the ports."""
        return [self.grpc_port, *([self.http.getsockname()[1]] if self.http is not None else ())]


@asynccontextmanager
async def serving(
    ports: Ports,
    settings: Settings,
    offered: Sequence[Rpc],
    door: Door,
    gateways: Callable[[HttpConnections], Sequence[Gateway]],
    shown: ServerCertificate | None,
    *drains: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Serve callers within the block, and answer all their calls at its end.

    Args:
        ports: The ports.
        settings: The settings.
        offered: The served RPCs.
        door: Authenticates callers.
        gateways: Builds what serves the paths of the HTTP API that are not RPCs.
        shown: The certificate; None: serve without TLS.
        drains: Called when no new calls are handled, before the open ones end.
    """
    calls, server = OpenCalls(), ports.grpc_server
    server.add_generic_rpc_handlers(generic_handlers(offered, calls))
    server.add_generic_rpc_handlers((health_handler(),))
    async with AsyncExitStack() as stack:
        if ports.http is not None:
            connections = HttpConnections(Budgets.of(settings.max_connections), door)
            secured = shown.context() if shown else None
            api = serve_http(offered, gateways(connections), ports.http, connections, secured=secured)
            await stack.enter_async_context(api)
        await server.start()
        try:
            yield
        finally:
            await stop(server, calls, *drains)


def check_addresses(settings: Settings, *addresses: str) -> None:
    """Check the addresses at which callers are served; empty ones are not.

    Raises:
        ValueError: A reachable address would be served without authentication, or without encryption of tokens.
    """
    for address in filter(None, addresses):
        _check(settings, address)


def _check(settings: Settings, address: str) -> None:
    if _is_loopback(address):
        return
    if not settings.authentication:
        raise ValueError(
            f"without authentication, the frontend can listen only on a loopback address, not on {address}"
        )
    if not (settings.secret or settings.certificate or settings.plaintext):
        raise ValueError(
            f"no TLS certificate for {address}: set PERDURE_TEMPORAL_TLS_SECRET, or PERDURE_TEMPORAL_TLS_CERT and "
            "PERDURE_TEMPORAL_TLS_KEY, or PERDURE_TEMPORAL_TLS=None to send tokens in the clear"
        )


def _listening(address: str) -> socket.socket:
    """A socket for the HTTP API.

    Raises:
        RuntimeError: The address is not available.
    """
    try:
        return listening(address)
    except OSError as error:
        raise RuntimeError(f"the HTTP API cannot be served at {address}: {error}") from error


def _gateways(frontend: Frontend, door: Door) -> Callable[[HttpConnections], Sequence[Gateway]]:
    settings = frontend.settings
    gateways: list[Gateway] = [
        NexusGateway(dispatch_rpc(frontend, door), finder(frontend.endpoints), settings.nexus_headers),
        ArchiveGateway(*archive_rpcs(frontend, door)),
    ]

    def build(connections: HttpConnections) -> Sequence[Gateway]:
        if not settings.webhooks:
            return gateways
        return [*gateways, WebhookGateway(WebhookReceiver(frontend.webhooks, frontend.ready), connections)]

    return build


def dispatch_rpc(frontend: Frontend, door: Door) -> Rpc:
    """Build the RPC for calls of Nexus handlers by clients. It is not part of Temporal's API, but has the same checks."""
    handler = NexusDispatch(frontend.shards, frontend.direct_calls).dispatch_nexus_task
    return Rpc("", "DispatchNexusTask", handler, DispatchNexusTaskRequest, frontend.served, frontend.ready, door)


def archive_rpcs(frontend: Frontend, door: Door) -> tuple[Rpc, Rpc]:
    """Build the calls that read WorkflowRuns from the archive, and list them. They are not part of Temporal's API, as above."""
    archived = ArchivedRuns(frontend.listing, frontend.runs.archive)
    served, ready = frontend.served, frontend.ready
    return (
        Rpc("", "GetArchivedRun", archived.get, GetArchivedRunRequest, served, ready, door),
        Rpc("", "ListArchivedRuns", archived.list, ListArchivedRunsRequest, served, ready, door),
    )


def _peers(settings: Settings) -> PeerSettings:
    if not settings.member:
        raise ValueError("PERDURE_PEER_ADDRESS requires POD_NAME: each operator of a fleet needs a name")
    if settings.authentication and not settings.peer_token:
        raise ValueError("PERDURE_PEER_ADDRESS requires PERDURE_PEER_TOKEN: the path of a token for other operators")
    return PeerSettings(
        member=settings.member,
        address=settings.peer_address,
        audience=settings.peer_audience,
        token=settings.peer_token if settings.authentication else "",
        frontend_user=settings.frontend_user if settings.authentication else "",
    )


async def doors(
    stack: AsyncExitStack, settings: Settings, access: Access, serves: Callable[[], bool], ports: Sequence[int]
) -> tuple[Door, Door]:
    """Build the admission of callers: for users, and for other members of the fleet.

    Token reviews use separate connections, so that strangers cannot exhaust those of the operator.

    Args:
        stack: Ends the admission.
        settings: The settings.
        access: The API server that reviews tokens.
        serves: Returns whether this process can serve callers now.
        ports: The served ports.
    """
    if not settings.authentication:
        return Door(None), Door(None)
    client = await stack.enter_async_context(
        kube.Client.open(access, user_agent=f"perdure-frontend/{__version__}", connections=_REVIEW_CONNECTIONS)
    )
    connections = Connections(*ports, strangers=strangers_of(settings.max_connections), serves=serves)
    await stack.enter_async_context(connections.guarded())
    guard = guard_of(client, settings)
    return Door(guard, connections), Door(Guard(client, settings.peer_audience), connections)


def guard_of(client: kube.Client, settings: Settings) -> Guard:
    """Build the authentication of users; `client` sends reviews on its own connections."""
    provider = Provider(settings.issuer, settings.client_ids) if settings.issuer else None
    return Guard(client, settings.audience, provider=provider, cluster_tokens=settings.cluster_tokens)


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
