"""The console on a laptop: on the loopback interface, for one browser, with the kubeconfig."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import uvicorn
from starlette.datastructures import URL
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from perdure.client.errors import CliError
from perdure.console.app import console
from perdure.console.guard import HOST, KEY, Admission, RefusedRequest, RequestGuard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from perdure.console.access import ClusterAccess
    from perdure.console.site import ConsoleSettings


@asynccontextmanager
async def serve_console(access: ClusterAccess, settings: ConsoleSettings, port: int) -> AsyncIterator[RequestGuard]:
    """Serve on a port until the end of the block; 0 selects a free port.

    Yields:
        The server, with its address.

    Raises:
        CliError: The port is in use.
    """
    guard = RequestGuard("perdure console")
    app = console(access, settings, [Middleware(_Guarded, guard=guard)])
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()  # from now on, browsers can connect; they are answered once the server has started
        except OSError as error:
            raise CliError(f"port {port} cannot be opened ({error}); choose another one with --port") from error
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
