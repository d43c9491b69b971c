"""A proxy on the loopback interface that adds the user's token to each request."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from perdure.client.errors import ClientError, CliError
from perdure.console.guard import HOST, KEY, Admission, RefusedRequest, RequestGuard

_OF_ONE_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "host",
        "content-length",
    }
)
_CREDENTIALS = frozenset({"authorization", "authorization-extras", "cookie"})
_CHUNK = 64 * 1024


class Proxy:
    """Forwards requests of one browser to the Web UI, with a token."""

    def __init__(self, upstream: Callable[[], Awaitable[str]], token: Callable[[], Awaitable[str]]) -> None:
        """`upstream` returns the address of the Web UI, `token` returns a currently valid token; both may raise CliError."""
        self._upstream = upstream
        self._token = token
        self.guard = RequestGuard("perdure ui")
        """Has the address to open first."""

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncIterator[None]:
        """Serve on a port until the end of the block; 0 selects a free port.

        Raises:
            CliError: The port is in use.
        """
        async with aiohttp.ClientSession(
            auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
        ) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return self._refusal(request) or await self._forward(request, session)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
            await runner.setup()
            try:
                try:
                    await web.TCPSite(runner, HOST, port).start()
                except OSError as error:
                    raise CliError(f"port {port} cannot be opened ({error}); choose another one with --port") from error
                self.guard.port = runner.addresses[0][1]
                yield
            finally:
                await runner.cleanup()

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the response to a request that is not forwarded; None for other requests."""
        match self.guard.check(request.headers, request.query, request.cookies):
            case RefusedRequest(text):
                return web.Response(status=403, text=text)
            case Admission(cookie, key):
                rest = [(name, value) for name, value in request.query.items() if name != KEY]
                response = web.Response(status=303, headers={"Location": str(request.rel_url.with_query(rest))})
                response.set_cookie(cookie, key, httponly=True, samesite="Strict")
                return response
        return None

    async def _forward(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        try:
            upstream, token = await self._upstream(), await self._token()
        except ClientError as error:
            return web.Response(status=502, text=f"{error}\n")
        headers = _forwarded_headers(request.headers, _OF_ONE_HOP | _CREDENTIALS)
        headers["Authorization"] = f"Bearer {token}"
        url = URL(f"{upstream}{request.raw_path}", encoded=True)
        body = request.content.iter_chunked(_CHUNK) if request.can_read_body else None
        try:
            async with session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer:
                response = web.StreamResponse(
                    status=answer.status, headers=_forwarded_headers(answer.headers, _OF_ONE_HOP)
                )
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OSError) as error:
            return web.Response(status=502, text=f"The Web UI does not respond ({error}); reload the page.\n")


def _forwarded_headers(headers: CIMultiDictProxy[str], excluded: frozenset[str]) -> CIMultiDict[str]:
    """Return the headers to forward."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in excluded)
