"""Serve the frontend: over gRPC and HTTP, with TLS and authenticated callers, and to the other members of a fleet."""

import ipaddress
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import grpc
import grpc.aio

from perdure import __version__
from perdure.frontend.core import Frontend
from perdure.frontend.http.archive import ArchiveGateway
from perdure.frontend.http.connections import Budgets, HttpConnections
from perdure.frontend.http.nexus import NexusGateway
from perdure.frontend.http.server import Gateway, serve_http
from perdure.frontend.http.webhooks import WebhookGateway
from perdure.frontend.nexus.tasks import DispatchNexusTaskRequest, NexusDispatch
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

_REVIEW_CONNECTIONS = 8


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
    async with AsyncExitStack() as stack:
        shown = await stack.enter_async_context(encryption(chosen, frontend.client, frontend.served))
        server = grpc.aio.server(options=options(chosen))
        port = server.add_secure_port(address, shown.credentials()) if shown else server.add_insecure_port(address)
        sockets = [stack.enter_context(_listening(chosen.http_address))] if chosen.http_address else []
        ports = [port, *(each.getsockname()[1] for each in sockets)]
        handlers = frontend.handlers()
        if chosen.peer_address:
            ports.append(int(chosen.peer_address.rpartition(":")[2]))
        door, members = await _doors(stack, frontend, *ports)
        drains: list[Callable[[], Awaitable[None]]] = []
        if chosen.peer_address:
            router = await stack.enter_async_context(
                serve_peers(frontend, handlers, _peers(chosen), shown.for_members() if shown else None, members)
            )
            handlers = router.routed(handlers)
            drains.append(router.drain)
        offered = rpcs(handlers, frontend.served, frontend.ready, door)
        calls = OpenCalls()
        server.add_generic_rpc_handlers(generic_handlers(offered, calls))
        server.add_generic_rpc_handlers((health_handler(),))
        for each in sockets:
            await stack.enter_async_context(_http_api(frontend, offered, door, each, shown))
        await server.start()
        try:
            yield port
        finally:
            await stop(server, calls, *drains)


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


def _http_api(
    frontend: Frontend, rpcs: Sequence[Rpc], door: Door, listener: socket.socket, certificate: ServerCertificate | None
) -> AbstractAsyncContextManager[None]:
    settings = frontend.settings
    gateways: list[Gateway] = [
        NexusGateway(dispatch_rpc(frontend, door), frontend.endpoints, settings.nexus_headers),
        ArchiveGateway(*archive_rpcs(frontend, door)),
    ]
    connections = HttpConnections(Budgets.of(settings.max_connections), door)
    if settings.webhooks:
        gateways.append(WebhookGateway(frontend.webhooks, frontend.ready, connections))
        frontend.webhooks.serve()
    secured = certificate.context() if certificate else None
    return serve_http(rpcs, gateways, listener, connections, secured=secured)


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
    )


async def _doors(stack: AsyncExitStack, frontend: Frontend, *ports: int) -> tuple[Door, Door]:
    """Build the admission of callers: for users, and for other members of the fleet.

    Token reviews use separate connections, so that strangers cannot exhaust those of the operator.
    """
    if not frontend.settings.authentication:
        return Door(None), Door(None)
    access = frontend.client.access
    client = await stack.enter_async_context(
        kube.Client.open(access, user_agent=f"perdure-frontend/{__version__}", connections=_REVIEW_CONNECTIONS)
    )
    strangers = strangers_of(frontend.settings.max_connections)
    connections = Connections(*ports, strangers=strangers, serves=lambda: frontend.shards.active)
    await stack.enter_async_context(connections.guarded())
    guard = guard_of(client, frontend.settings)
    return Door(guard, connections), Door(Guard(client, frontend.settings.peer_audience), connections)


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
