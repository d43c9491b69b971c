"""The console as a server: of `perdure console` on a laptop, or of `perdure-console` in the cluster.

On a laptop it listens on the loopback interface, for one browser, and uses the kubeconfig. In the cluster, it has no permissions:
each request brings the token of its user.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from perdure.client.errors import ClientError
from perdure.console.app import console
from perdure.console.guard import HOST, KEY, Admission, RefusedRequest, RequestGuard
from perdure.console.site import ConsoleSettings, TokenAccess
from perdure.kube.access import Access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from perdure.console.site import ClusterAccess


# On a laptop


@asynccontextmanager
async def serve_console(access: ClusterAccess, settings: ConsoleSettings, port: int) -> AsyncIterator[RequestGuard]:
    """Serve on a port until the end of the block; 0 selects a free port.

    Yields:
        The server, with its address.

    Raises:
        ClientError: The port is in use.
    """
    guard = RequestGuard("perdure console")
    app = console(access, settings, [Middleware(_Guarded, guard=guard)])
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()  # from now on, browsers can connect; they are answered once the server has started
        except OSError as error:
            raise ClientError(f"port {port} cannot be opened ({error}); choose another one with --port") from error
        guard.port = listener.getsockname()[1]
        async with serve_app(app, listener):
            yield guard


@asynccontextmanager
async def serve_app(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an application on a socket until the end of the block."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
    )
    server = _ConsoleServer(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await running


class _ConsoleServer(uvicorn.Server):
    """A server that leaves the handling of signals to the command."""

    def capture_signals(self) -> object:  # type: ignore[override]
        """Capture no signals."""
        return nullcontext()


class _Guarded:
    """Admits only the browser of the user."""

    def __init__(self, app: ASGIApp, guard: RequestGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        response = None if scope["type"] != "http" else self._answer(Request(scope))
        await (response or self._app)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        match self._guard.check(request.headers, request.query_params, request.cookies):
            case RefusedRequest(text):
                return PlainTextResponse(text, status_code=403)
            case Admission(cookie, key):
                rest = URL(request.url.path).include_query_params(
                    **{name: value for name, value in request.query_params.items() if name != KEY}
                )
                response = RedirectResponse(str(rest), status_code=303)
                response.set_cookie(cookie, key, httponly=True, samesite="strict")
                return response
        return None


# In the cluster

CA = Path("/var/run/secrets/kubernetes.io/ca/ca.crt")
"""The CA certificate of the API server; the ConfigMap `kube-root-ca.crt` has it in every namespace."""


def application(environment: os._Environ[str] | dict[str, str], ca: Path = CA) -> Starlette:
    """Build the server.

    Args:
        environment: The environment variables of the pod.
        ca: The file with the CA certificate.

    Raises:
        SystemExit: A variable is missing or invalid.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SystemExit(
            "KUBERNETES_SERVICE_HOST is not set: perdure-console runs in a pod; elsewhere, use `perdure console`"
        )
    web_ui = environment.get("PERDURE_WEB_UI_URL", "")
    if web_ui and urlsplit(web_ui).scheme not in {"http", "https"}:
        raise SystemExit(f"PERDURE_WEB_UI_URL: `{web_ui}` must begin with http:// or https://")
    frontend = environment.get("PERDURE_FRONTEND_URL", "")
    if frontend and urlsplit(frontend).scheme not in {"http", "https"}:
        raise SystemExit(f"PERDURE_FRONTEND_URL: `{frontend}` must begin with http:// or https://")
    access = Access(server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", ca_file=str(ca))
    settings = ConsoleSettings(
        namespace=environment.get("PERDURE_CONSOLE_NAMESPACE") or "default",
        system_namespace=environment.get("PERDURE_NAMESPACE") or "perdure-system",
        web_ui=web_ui,
        read_only=environment.get("PERDURE_CONSOLE_READ_ONLY", "") == "true",
    )

    async def healthy(_: object) -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    return Starlette(routes=[Route("/healthz", healthy), Mount("/", console(TokenAccess(access, frontend), settings))])


def listener(port: int) -> socket.socket:
    """Listen on all addresses of a pod, of IPv4 and of IPv6. Given a host, uvicorn would listen on those of one family only."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def main() -> None:
    """Serve until the pod is stopped."""
    config = uvicorn.Config(application(os.environ), access_log=False, server_header=False, timeout_graceful_shutdown=5)
    with listener(8080) as sock:
        uvicorn.Server(config).run(sockets=[sock])
