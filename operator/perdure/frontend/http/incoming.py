"""HTTP requests as incoming calls of RPCs."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Final

from aiohttp import hdrs, web

from perdure import __version__
from perdure.frontend.errors import RpcError, denied, invalid
from perdure.frontend.transport.connections import Peer, peer_of
from perdure.frontend.transport.door import MAX_MESSAGE

_FORWARDED = ("authorization", "client-name", "client-version", "supported-features")
AFTERWARDS: Final = web.RequestKey("afterwards", ExitStack)
"""The key of a request for what happens once its response is written."""
_PREFIX = "grpc-metadata-"
"""The prefix of headers that become metadata of the call, without the prefix."""


class IncomingRequest:
    """The sender of a request, and its body."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self.metadata = tuple(_metadata(request))
        host, port = request.transport.get_extra_info("peername")[:2] if request.transport else ("", 0)
        self.peer: Peer = peer_of(f"tcp:[{host}]:{port}")

    async def read(self) -> bytes:
        """Read the body."""
        request = self._request
        if (request.content_length or 0) > MAX_MESSAGE:
            raise _too_large()
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_MESSAGE:
                raise _too_large()
        return bytes(body)

    def on_sent(self, release: Callable[[], None]) -> None:
        """Call a function once the response is written, or the client has gone."""
        self._request[AFTERWARDS].callback(release)

    async def head(self, raw: bytes) -> Any:
        """Return the message as a whole: this takes little more memory than the body."""
        return await self.decode(raw)

    async def decode(self, raw: bytes) -> Any:
        """Build the message."""
        raise NotImplementedError


def refuse_web_pages(request: web.BaseRequest) -> None:
    """Reject a request from a web page.

    Raises:
        RpcError: A web page sent the request.
    """
    if hdrs.ORIGIN in request.headers:
        raise denied("web pages cannot call the HTTP API: the request has the header `Origin`")


def _too_large() -> RpcError:
    return invalid(f"http: request body too large: it can have at most {MAX_MESSAGE} bytes")


def _metadata(request: web.BaseRequest) -> Iterable[tuple[str, str]]:
    found = {"client-name": "temporal-server-http", "client-version": __version__}
    for name, value in request.headers.items():
        lower = name.lower()
        if lower in _FORWARDED or lower.startswith(_PREFIX):
            found[lower.removeprefix(_PREFIX)] = value
    return found.items()
