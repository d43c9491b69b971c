"""Calls the HTTP API of the Temporal frontend, at an address or through a port-forward.

The port-forward is one of kubectl, which supports the authentication of any kubeconfig. The token is that of the kubeconfig, or
one of a ServiceAccount that is renewed before it expires.
"""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import time
import uuid
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from perdure import __version__
from perdure.cli.flags import kubectl_arguments
from perdure.client.errors import CliError, ExitCode, ForbiddenError, NotFoundError, UnreachableError
from perdure.kube import clock, errors, paths
from perdure.kube.access import Access
from perdure.kube.light import LOOPBACK, LightClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from perdure.client.cluster import Cluster


_COMPLETED = "UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED"


class RequestRefusedError(CliError):
    """The workflow or the frontend rejected the request."""

    status = ExitCode.NO


class LateError(CliError):
    """The request timed out."""

    status = ExitCode.TIMEOUT


class ExecutionRef(NamedTuple):
    """The identity of a run on Temporal."""

    workflow_id: str
    run_id: str = ""
    """The run ID. Empty: the open run with the workflow ID, or the run that closed last."""


class FrontendApi:
    """The frontend, for one namespace."""

    def __init__(self, client: LightClient, namespace: str, timeout: float) -> None:
        """`timeout`: maximum wait for a response, in seconds."""
        self._client = client
        self._namespace = namespace
        self._timeout = timeout

    async def query(self, run: ExecutionRef, name: str, arguments: Sequence[Any] = ()) -> Any:
        """Query a run.

        Returns:
            The result, as JSON.

        Raises:
            CliError: The call was rejected, or timed out.
        """
        body = {"execution": {"runId": run.run_id}, "query": {"queryArgs": list(arguments)}}
        answer = await self._post(f"{self._path(run)}/query/{quote(name, safe='')}", body)
        return _single(answer.get("queryResult"))

    async def update(self, run: ExecutionRef, name: str, arguments: Sequence[Any], update_id: str | None) -> Any:
        """Update a run, and wait for the result.

        Args:
            run: The run.
            name: Name of the update.
            arguments: The arguments of the update.
            update_id: The ID for deduplication of updates; None for a new ID.

        Returns:
            The result, as JSON.

        Raises:
            CliError: The call was rejected, or timed out.
        """
        meta = {"updateId": update_id or uuid.uuid4().hex, "identity": "perdure"}
        body = {
            "workflowExecution": {"runId": run.run_id},
            "request": {"meta": meta, "input": {"args": list(arguments)}},
            "waitPolicy": {"lifecycleStage": _COMPLETED},
        }
        deadline = time.monotonic() + self._timeout
        try:
            while time.monotonic() < deadline:
                answer = await self._post(f"{self._path(run)}/update/{quote(name, safe='')}", body)
                outcome = answer.get("outcome") or {}
                if "failure" in outcome:
                    raise RequestRefusedError(f"the update failed: {outcome['failure'].get('message') or 'no message'}")
                if outcome or answer.get("stage") == _COMPLETED:
                    return _single(outcome.get("success"))
        except LateError:
            pass
        raise LateError(
            f"the update has no result after {self._timeout:g}s; check that a worker is running, and run this again with "
            f"--update-id {meta['updateId']}, which sends it at most once"
        )

    def _path(self, run: ExecutionRef) -> str:
        return self.path("workflows", run.workflow_id)

    def path(self, *segments: str) -> str:
        """The path of a resource in the namespace."""
        return "/".join(
            ("/api/v1/namespaces", quote(self._namespace, safe=""), *(quote(each, safe="") for each in segments))
        )

    async def get(self, *segments: str, **query: str) -> dict[str, Any]:
        """Read a resource in the namespace.

        Raises:
            CliError: The call was rejected, or timed out.
        """
        return await self._answered(self._client.get(self.path(*segments), **query))

    async def each(self, items: str, *segments: str, **query: str) -> list[dict[str, Any]]:
        """Read all pages of a list in the namespace.

        Args:
            items: The field of the response that has the items.
            segments: The path of the list.
            query: The parameters.

        Raises:
            CliError: The call was rejected, or timed out.
        """
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            page = await self.get(*segments, **query, **token)
            found += page.get(items) or ()
            if not page.get("nextPageToken"):
                return found
            token = {"nextPageToken": page["nextPageToken"]}

    async def post(self, *segments: str, body: Any) -> dict[str, Any]:
        """Send a request about a resource in the namespace.

        Raises:
            CliError: The call was rejected, or timed out.
        """
        return await self._post(self.path(*segments), body)

    async def delete(self, *segments: str, **query: str) -> dict[str, Any]:
        """Delete a resource in the namespace.

        Raises:
            CliError: The call was rejected, or timed out.
        """
        return await self._answered(self._client.remove(self.path(*segments), **query))

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        return await self._answered(self._client.create(path, body))

    async def _answered(self, call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        begin = time.monotonic()
        try:
            return await call
        except errors.ApiError as error:
            raise _explained(error) from error
        except errors.NoResponseError as error:
            if time.monotonic() - begin >= self._timeout:
                raise LateError(f"the frontend did not answer within {self._timeout:g}s") from error
            raise UnreachableError(
                f"the frontend at {self._client.access.server} does not respond ({error}); check "
                "that it serves the HTTP API (`temporal.httpApi.enabled` in the chart), or set --address"
            ) from error


def _explained(error: errors.ApiError) -> CliError:
    match error.status:
        case 401:
            return CliError(f"the frontend does not accept your token ({error.message}); use --service-account NAME")
        case 403:
            return ForbiddenError(f"{error.message}; ask your administrator for the role `edit` in the namespace")
        case 404:
            return NotFoundError(f"{error.message}; `perdure list` shows the runs, and -n chooses the namespace")
        case 504:
            return LateError(f"{error.message}; check that a worker is running, or use a longer --timeout")
        case 429 | 500 | 502 | 503:
            return UnreachableError(f"the frontend is not available ({error.message}); try again later")
        case _:
            return RequestRefusedError(error.message)


def _single(values: Any) -> Any:
    """Return the value of a list with one value, as from most handlers; None for an empty list."""
    if not isinstance(values, list):
        return values
    return values[0] if len(values) == 1 else values or None


_EARLY = timedelta(minutes=5)
"""The time before expiry at which a token is renewed."""


class KubeconfigToken:
    """The token of the kubeconfig."""

    def __init__(self, cluster: Cluster) -> None:
        """Read the token.

        Raises:
            CliError: The kubeconfig has no token.
        """
        self._cluster = cluster
        if not cluster.bearer():
            raise CliError(
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
            CliError: The API server does not issue a token.
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
            CliError: The Service cannot be reached.
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
            raise CliError("kubectl is needed for the port-forward, and is not found; put it on the PATH")
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
            raise CliError(f"cannot reach the {self._what}: {await self._complaint(process)}")
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
        CliError: The frontend cannot be reached, or no token for it was found.
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
