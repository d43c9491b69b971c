"""Reaches the HTTP API of the Temporal frontend, at an address or through a port-forward.

The port-forward is one of kubectl, which supports the authentication of any kubeconfig. The token is that of the kubeconfig, or
one of a ServiceAccount that is renewed before it expires.
"""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from perdure import __version__
from perdure.api.names import FRONTEND_AUDIENCE, FRONTEND_SERVICE, SYSTEM_NAMESPACE
from perdure.client.errors import ClientError
from perdure.client.frontend import FrontendApi
from perdure.kube import clock, paths
from perdure.kube.access import Access
from perdure.kube.light import LOOPBACK, LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from perdure.client.cluster import Cluster


_EARLY = timedelta(minutes=5)
"""The time before expiry at which a token is renewed."""


class KubeconfigToken:
    """The token of the kubeconfig."""

    def __init__(self, cluster: Cluster) -> None:
        """Read the token.

        Raises:
            ClientError: The kubeconfig has no token.
        """
        self._cluster = cluster
        if not cluster.bearer():
            raise ClientError(
                "the kubeconfig logs in with a certificate, but the frontend identifies its callers by tokens; choose a "
                "ServiceAccount whose permissions you want to use with --service-account"
            )

    async def current(self) -> str:
        """Return the token."""
        return self._cluster.bearer() or ""


class AccountToken:
    """Tokens of a ServiceAccount for one audience."""

    def __init__(self, cluster: Cluster, account: str, audience: str) -> None:
        """`account` is a ServiceAccount in the namespace of the cluster."""
        self._cluster = cluster
        self._account = account
        self._audience = audience
        self._token = ""
        self._renew = clock.now()
        self._renewing = asyncio.Lock()

    async def current(self) -> str:
        """Return a valid token.

        Raises:
            ClientError: The API server does not issue a token.
        """
        async with self._renewing:
            if clock.now() >= self._renew:
                self._token, expires = await self._cluster.issue_token(self._account, self._audience)
                self._renew = expires - _EARLY
            return self._token


_READY = re.compile(rb"Forwarding from (127\.0\.0\.1:\d+)")
_SECONDS = 30


class PortForward:
    """A forward to one port of a Service. It starts when its address is needed, and restarts after it has ended."""

    def __init__(self, namespace: str, service: str, port: int, options: Sequence[str] = ()) -> None:
        """`options`: the options of kubectl for the cluster and the user."""
        target = [f"--namespace={namespace}", "--address=127.0.0.1", f"service/{service}", f":{port}"]
        self._command = ["port-forward", *options, *target]
        self._what = f"Service `{service}` in namespace `{namespace}`"
        self.process: Process | None = None
        """The process of kubectl, once it has started."""
        self._address = ""
        self._drain: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def address(self) -> str:
        """Return the local URL of the Service.

        Raises:
            ClientError: The Service cannot be reached.
        """
        async with self._starting:
            if self.process is None or self.process.returncode is not None:
                await self._start()
            return self._address

    async def close(self) -> None:
        """End the forward."""
        if self._drain is not None:
            self._drain.cancel()
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.terminate()
            await self.process.wait()

    async def _start(self) -> None:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise ClientError("kubectl is needed for the port-forward, and is not found; put it on the PATH")
        await self.close()
        process = await asyncio.create_subprocess_exec(kubectl, *self._command, stdout=PIPE, stderr=PIPE)
        self.process = process
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _SECONDS)
        except TimeoutError:
            line = b""
        ready = _READY.search(line)
        if ready is None:
            raise ClientError(f"cannot reach the {self._what}: {await self._complaint(process)}")
        self._address = f"http://{ready[1].decode()}"
        # kubectl prints a line for each connection: unread, they would fill the pipe and block it.
        self._drain = asyncio.create_task(_read_all(process), name="output of kubectl")

    async def _complaint(self, process: Process) -> str:
        """Return the error message of kubectl."""
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
        _, errors = await process.communicate()
        return errors.decode(errors="replace").strip() or f"`kubectl port-forward` was not ready within {_SECONDS} s"


async def _read_all(process: Process) -> None:
    assert process.stdout is not None
    assert process.stderr is not None

    async def drain(stream: asyncio.StreamReader) -> None:
        while await stream.read(4096):
            pass

    await asyncio.gather(drain(process.stdout), drain(process.stderr))


_PORT = "http-api"
"""Name of the port in the Service."""
_CREDENTIALS: Final = Path("/var/run/perdure")
LOCAL_TOKEN: Final = _CREDENTIALS / "token"
"""Where a pod has a token for the frontend, as `perdure deploy` mounts it for workers."""
_LOCAL_AUTHORITY: Final = _CREDENTIALS / "ca.crt"
_HTTP_PORT: Final = 7243


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendRoute:
    """The location of the frontend, and the identity for calls."""

    address: str | None = None
    """The address of the HTTP API; None: a port-forward to the Service."""
    account: str | None = None
    """The ServiceAccount for calls; None: the token of the kubeconfig."""
    audience: str = FRONTEND_AUDIENCE
    system: str = SYSTEM_NAMESPACE
    """Namespace of the Service."""
    service: str = FRONTEND_SERVICE
    kubectl: Sequence[str] = ()
    """The options of kubectl for the cluster and the user, for the port-forward."""
    token_file: Path | None = None
    """A file with the token for calls, which the kubelet renews; replaces `account`."""
    authority_file: Path | None = None
    """A file with the authority of the frontend's certificate; None: the operator's ConfigMap in the namespace."""

    @staticmethod
    def of_pod() -> FrontendRoute:
        """Return the route from a pod that has a token for the frontend."""
        return FrontendRoute(
            address=f"https://{FRONTEND_SERVICE}.{SYSTEM_NAMESPACE}:{_HTTP_PORT}",
            token_file=LOCAL_TOKEN,
            authority_file=_LOCAL_AUTHORITY if _LOCAL_AUTHORITY.exists() else None,
        )


@asynccontextmanager
async def reach(cluster: Cluster, route: FrontendRoute, seconds: float) -> AsyncIterator[FrontendApi]:
    """Connect to the frontend.

    Args:
        cluster: The source of tokens and certificates, with the namespace of the calls.
        route: The location and the identity.
        seconds: Maximum wait for a response, in seconds.

    Raises:
        ClientError: The frontend cannot be reached, or no token for it was found.
    """
    if route.address is not None:
        server = _url(route.address)
        has_token = route.account or route.token_file or cluster.bearer()
        token = await _token(cluster, route) if has_token else None
        if token and server.startswith("http:") and urlsplit(server).hostname not in LOOPBACK:
            raise ClientError("a token must not be sent without encryption; use https:// in --address")
        async with _opened(cluster, route, server, token, seconds) as api:
            yield api
        return
    port, tls = await _service(cluster, route)
    token = await _token(cluster, route)
    forward = PortForward(route.system, route.service, port, route.kubectl)
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
    if route.token_file is not None:
        return route.token_file.read_text().strip()
    if route.account is None:
        return await KubeconfigToken(cluster).current()
    return await AccountToken(cluster, route.account, route.audience).current()


async def _service(cluster: Cluster, route: FrontendRoute) -> tuple[int, bool]:
    """Return the port of the HTTP API, and whether it uses TLS."""
    what = f"Service `{route.service}` in namespace `{route.system}`"
    found = await cluster.diagnosis.read(paths.path(paths.CORE, route.system, "services", route.service))
    if found is None:
        raise ClientError(
            f"there is no {what}: set `temporal.enabled` in the chart, or name the operator's namespace with "
            "--system-namespace"
        )
    ports = {each.get("name"): each for each in found["spec"]["ports"]}
    if _PORT not in ports:
        raise ClientError(f"the {what} has no port `{_PORT}`: set `temporal.httpApi.enabled` in the chart")
    return int(ports[_PORT]["port"]), ports[_PORT].get("appProtocol") == "https"


async def _authority(cluster: Cluster, route: FrontendRoute) -> str | None:
    """Return the CA certificates that the operator publishes in the namespace; None for the certificates of this machine."""
    if route.authority_file is not None:
        return route.authority_file.read_text()
    found = await cluster.config_maps.read(f"{route.service}-ca")
    return None if found is None else str((found.get("data") or {}).get("ca.crt", "")) or None
