"""Connects a command to the frontend through a port-forward, or at an address."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perdure import __version__
from perdure.cli.flags import kubectl_arguments
from perdure.cli.frontend.api import FrontendApi
from perdure.cli.frontend.bearer_tokens import AccountToken, KubeconfigToken
from perdure.cli.frontend.forward import PortForward
from perdure.client.errors import CliError
from perdure.kube import paths
from perdure.kube.access import Access
from perdure.kube.light import LOOPBACK, LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.client.cluster import Cluster

_PORT = "http-api"
"""Name of the port in the Service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendRoute:
    """The location of the frontend, and the identity for calls."""

    address: str | None
    """The address of the HTTP API; None: a port-forward to the Service."""
    account: str | None
    """The ServiceAccount for calls; None: the token of the kubeconfig."""
    audience: str
    system: str
    """Namespace of the Service."""
    service: str
    context: str | None
    """The context of the kubeconfig; None for the current one."""


@asynccontextmanager
async def reach(cluster: Cluster, route: FrontendRoute, seconds: float) -> AsyncIterator[FrontendApi]:
    """Connect to the frontend.

    Args:
        cluster: The source of tokens and certificates, with the namespace of the calls.
        route: The location and the identity.
        seconds: Maximum wait for a response, in seconds.

    Raises:
        CliError: The frontend cannot be reached, or there is no token for it.
    """
    if route.address is not None:
        server = _url(route.address)
        token = await _token(cluster, route) if route.account or cluster.bearer() else None
        if token and server.startswith("http:") and urlsplit(server).hostname not in LOOPBACK:
            raise CliError("a token must not be sent without encryption; use https:// in --address")
        async with _opened(cluster, route, server, token, seconds) as api:
            yield api
        return
    port, tls = await _service(cluster, route)
    token = await _token(cluster, route)
    forward = PortForward(route.system, route.service, port, kubectl_arguments(route.context))
    try:
        server = await forward.address()
        if tls:
            server = server.replace("http:", "https:", 1)
        async with _opened(cluster, route, server, token, seconds) as api:
            yield api
    finally:
        await forward.close()


@asynccontextmanager
async def _opened(
    cluster: Cluster, route: FrontendRoute, server: str, token: str | None, seconds: float
) -> AsyncIterator[FrontendApi]:
    tls = server.startswith("https:")
    access = Access(
        server=server,
        token=token,
        ca_data=await _authority(cluster, route) if tls else None,
        server_name=None if route.address else "localhost",
        headers=(("Grpc-Timeout", f"{math.ceil(seconds)}S"),),
        timeout=seconds + 2,  # the frontend answers first, if it can
    )
    async with LightClient.open(access, user_agent=f"perdure-cli/{__version__}", connections=1) as client:
        yield FrontendApi(client, cluster.namespace, seconds)


def _url(address: str) -> str:
    return (address if "://" in address else f"https://{address}").rstrip("/")


async def _token(cluster: Cluster, route: FrontendRoute) -> str:
    if route.account is None:
        return await KubeconfigToken(cluster).current()
    return await AccountToken(cluster, route.account, route.audience).current()


async def _service(cluster: Cluster, route: FrontendRoute) -> tuple[int, bool]:
    """Return the port of the HTTP API, and whether it uses TLS."""
    what = f"Service `{route.service}` in namespace `{route.system}`"
    found = await cluster.diagnosis.read(paths.path(paths.CORE, route.system, "services", route.service))
    if found is None:
        raise CliError(
            f"there is no {what}: set `temporal.enabled` in the chart, or name the operator's namespace with "
            "--system-namespace"
        )
    ports = {each.get("name"): each for each in found["spec"]["ports"]}
    if _PORT not in ports:
        raise CliError(f"the {what} has no port `{_PORT}`: set `temporal.httpApi.enabled` in the chart")
    return int(ports[_PORT]["port"]), ports[_PORT].get("appProtocol") == "https"


async def _authority(cluster: Cluster, route: FrontendRoute) -> str | None:
    """Return the CA certificates that the operator publishes in the namespace; None for the certificates of this machine."""
    found = await cluster.config_maps.read(f"{route.service}-ca")
    return None if found is None else str((found.get("data") or {}).get("ca.crt", "")) or None
