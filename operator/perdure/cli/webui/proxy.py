"""A proxy on the loopback interface that adds the user's token to each request.

A client that can send requests to it acts with the user's permissions. So it serves only a browser that has opened the
address that the command printed, and no page of another origin: other users of the machine do not know the key in that
address, and a web page that makes the browser send requests here is refused.
"""

import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from perdure.cli.errors import CliError

HOST = "127.0.0.1"

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
_KEY = "key"


class Proxy:
    """Passes requests of one browser on to the Web UI, with a token."""

    def __init__(self, upstream: Callable[[], Awaitable[str]], token: Callable[[], Awaitable[str]]) -> None:
        """`upstream` returns the address of the Web UI, `token` a token that is valid now; both may raise CliError."""
        self._upstream = upstream
        self._token = token
        self._key = secrets.token_urlsafe(32)
        self._port = 0

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Serve on a port until the end of the block; 0: a free one.

        Raises:
            CliError: the port is in use.
        """
        async with aiohttp.ClientSession(
            auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
        ) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                return self._refusal(request) or await self._passed_on(request, session)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
            await runner.setup()
            try:
                try:
                    await web.TCPSite(runner, HOST, port).start()
                except OSError as error:
                    raise CliError(f"port {port} cannot be opened ({error}); choose another one with --port") from error
                self._port = runner.addresses[0][1]
                yield
            finally:
                await runner.cleanup()

    def url(self, path: str = "/") -> str:
        """The address to open first: with the key, which the browser then keeps."""
        return f"http://{HOST}:{self._port}{path}?{urlencode({_KEY: self._key})}"

    def _refusal(self, request: web.Request) -> web.Response | None:
        """The response to a request that is not passed on; None for others."""
        origins = {f"http://{host}:{self._port}" for host in (HOST, "localhost")}
        foreign = request.headers.get("Origin", "null") not in origins and "Origin" in request.headers
        if foreign or f"http://{request.headers.get('Host', '')}" not in origins:
            return web.Response(status=403, text="This address does not serve other pages.\n")
        given, cookie = request.query.get(_KEY, ""), f"perdure-ui-{self._port}"
        if hmac.compare_digest(given.encode(), self._key.encode()):
            rest = [(name, value) for name, value in request.query.items() if name != _KEY]
            response = web.Response(status=303, headers={"Location": str(request.rel_url.with_query(rest))})
            response.set_cookie(cookie, self._key, httponly=True, samesite="Strict")
            return response
        if not hmac.compare_digest(request.cookies.get(cookie, "").encode(), self._key.encode()):
            return web.Response(status=403, text="Open the address that `perdure ui` printed.\n")
        return None

    async def _passed_on(self, request: web.Request, session: aiohttp.ClientSession) -> web.StreamResponse:
        try:
            upstream, token = await self._upstream(), await self._token()
        except CliError as error:
            return web.Response(status=502, text=f"{error}\n")
        headers = _kept(request.headers, _OF_ONE_HOP | _CREDENTIALS)
        headers["Authorization"] = f"Bearer {token}"
        url = URL(f"{upstream}{request.raw_path}", encoded=True)
        body = request.content.iter_chunked(_CHUNK) if request.can_read_body else None
        try:
            async with session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers, _OF_ONE_HOP))
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OSError) as error:
            return web.Response(status=502, text=f"The Web UI does not respond ({error}); reload the page.\n")


def _kept(headers: CIMultiDictProxy[str], left_out: frozenset[str]) -> CIMultiDict[str]:
    """The headers that are passed on."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in left_out)
