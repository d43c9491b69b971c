"""Serve a frontend that is a process of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from perdure.controller.fleet.observer import ObservedFleet
from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.apart.forwarder import Forwarder
from perdure.frontend.apart.http_calls import WEBHOOK_SECONDS, RemoteCalls, RemoteEndpoints, RemoteReceiver
from perdure.frontend.http.archive import ArchiveGateway
from perdure.frontend.http.connections import HttpConnections
from perdure.frontend.http.nexus import NexusGateway
from perdure.frontend.http.server import Gateway
from perdure.frontend.http.webhooks import WebhookGateway
from perdure.frontend.nexus.tasks import DispatchNexusTaskRequest
from perdure.frontend.peers.calls import Failure
from perdure.frontend.peers.client import PeerClient, PeerIdentity, open_connection
from perdure.frontend.server import Ports, check_addresses, doors, serving
from perdure.frontend.settings import Settings
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.rpc import Handler, Rpc, rpcs
from perdure.frontend.transport.tls import encryption
from perdure.frontend.visibility.archived import GetArchivedRunRequest, ListArchivedRunsRequest
from perdure.kube import client as kube


@asynccontextmanager
async def serve(
    client: kube.Client, fleet: ObservedFleet, served: ServedNamespaces, settings: Settings, address: str
) -> AsyncIterator[int]:
    """Serve gRPC and the HTTP API as `perdure.frontend.server.serve` does, by way of the operators; yield the gRPC port.

    Args:
        client: The client of the API server.
        fleet: The operators, which are observed already.
        served: The namespaces that the operators serve.
        settings: The settings.
        address: The address of gRPC, such as ``0.0.0.0:7233``.

    Raises:
        RuntimeError: An address is not available.
        ValueError: A reachable address would be served without authentication or encryption, or a setting is missing.
    """
    check_addresses(settings, address, settings.http_address)
    if not settings.member:
        raise ValueError("a frontend requires POD_NAME: operators tell frontends apart by their names")
    if settings.authentication and not settings.peer_token:
        raise ValueError("a frontend requires PERDURE_PEER_TOKEN: the path of a token for operators")
    async with AsyncExitStack() as stack:
        shown = await stack.enter_async_context(encryption(settings, client, served))
        ports = Ports.open(stack, settings, address, shown)
        door, _ = await doors(stack, settings, client.access, lambda: fleet.is_known, ports.numbers)
        identity = PeerIdentity(
            name=settings.member,
            token=Path(settings.peer_token) if settings.authentication else None,
            served=shown.for_members() if shown else None,
            is_frontend=True,
        )

        async def asked(call_id: str) -> Failure | None:
            return await forwarder.asked(call_id)

        peers = PeerClient(identity, lambda: fleet.others, connect=partial(open_connection, asked=asked))
        stack.push_async_callback(peers.close)
        forwarder = Forwarder(fleet, peers)
        fleet.subscribe(peers.close_unused)
        offered = rpcs(forwarder.handlers(), served, fleet.known, door)
        gateways = partial(_gateways, forwarder, settings, served, fleet, door)
        async with serving(ports, settings, offered, door, gateways, shown, forwarder.drain):
            yield ports.grpc_port


def _gateways(
    forwarder: Forwarder,
    settings: Settings,
    served: ServedNamespaces,
    fleet: ObservedFleet,
    door: Door,
    connections: HttpConnections,
) -> Sequence[Gateway]:
    """What serves the paths of the HTTP API that are not RPCs."""
    calls = RemoteCalls(forwarder)

    def rpc(name: str, handler: Handler, request: type) -> Rpc:
        return Rpc("", name, handler, request, served, fleet.known, door)

    dispatch = rpc("DispatchNexusTask", calls.dispatch_nexus_task, DispatchNexusTaskRequest)
    gateways: list[Gateway] = [
        NexusGateway(dispatch, RemoteEndpoints(forwarder).find, settings.nexus_headers),
        ArchiveGateway(
            rpc("GetArchivedRun", calls.get_archived_run, GetArchivedRunRequest),
            rpc("ListArchivedRuns", calls.list_archived_runs, ListArchivedRunsRequest),
        ),
    ]
    if settings.webhooks:
        gateways.append(WebhookGateway(RemoteReceiver(forwarder), connections, WEBHOOK_SECONDS))
    return gateways
