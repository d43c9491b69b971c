"""Serve Temporal's HTTP API: each request becomes a call of the RPC in its path."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import grpc
from aiohttp import hdrs, web
from google.protobuf.message import Message

from perdure.frontend.errors import RpcError, invalid, unimplemented
from perdure.frontend.http import openapi, shorthand
from perdure.frontend.http.incoming import AFTERWARDS, IncomingRequest, refuse_web_pages
from perdure.frontend.http.nexus import NexusGateway
from perdure.frontend.http.results import HISTORY, Results
from perdure.frontend.http.routes import Match, Routes, from_query
from perdure.frontend.http.webhooks import WebhookGateway
from perdure.frontend.transport.rpc import LONG, Rpc

_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_CODES = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
}
"""The HTTP status of gRPC codes, as in grpc-gateway; all other codes are 500."""


@dataclass(frozen=True, slots=True)
class Form:
    """The format of JSON, according to a media type such as ``application/json+pretty+no-payload-shorthand``."""

    shorthand: bool = True
    pretty: bool = False

    @property
    def media_type(self) -> str:
        """The media type."""
        return f"application/json{'+pretty' * self.pretty}{'+no-payload-shorthand' * (not self.shorthand)}"


_FORMS = {form.media_type: form for form in (Form(s, p) for s in (True, False) for p in (True, False))}


def _forms(request: web.BaseRequest) -> tuple[Form, Form]:
    """Return the formats of the request and the response."""
    given = _FORMS.get(request.content_type, Form())
    form = Form("noPayloadShorthand" not in request.query, "pretty" in request.query)
    return given, form if form != Form() else _FORMS.get(request.headers.get(hdrs.ACCEPT, ""), given)


class _HttpCall(IncomingRequest):
    """An RPC that arrived as an HTTP request."""

    def __init__(self, request: web.BaseRequest, rpc: Rpc, match: Match, converter: "_Converter") -> None:
        super().__init__(request)
        self._rpc = rpc
        self._match = match
        self._converter = converter

    @property
    def seconds_left(self) -> float | None:
        """The time until the caller gives up, from its header ``Grpc-Timeout``."""
        given = _TIMEOUT.fullmatch(self._request.headers.get("grpc-timeout", ""))
        return int(given[1]) * _UNITS[given[2]] if given else None

    async def head(self, raw: bytes) -> Any:
        """Return a message with the fields of the path only: all requests that have a namespace have it there."""
        del raw
        return self._with_path(self._rpc.request())

    async def decode(self, raw: bytes) -> Any:
        """Build the message from body, query, and path; the path takes precedence."""
        return await self._converter.run(self._match.values.get("namespace", ""), len(raw), self._decode, raw)

    def _decode(self, raw: bytes) -> Message:
        message: Message = self._rpc.request()
        try:
            if self._match.route.body:
                shorthand.read(raw, message, shorthand=_forms(self._request)[0].shorthand)
            else:
                shorthand.fill(message, from_query(self._request.query, message.DESCRIPTOR))
        except shorthand.MalformedError as error:
            raise invalid(f"the request is not a {self._rpc.name}Request: {error}") from None
        return self._with_path(message)

    def _with_path(self, message: Message) -> Message:
        for name, value in self._match.values.items():
            *outer, last = name.split(".")
            target: Any = message
            for each in outer:
                target = getattr(target, each)
            setattr(target, last, value)
        return message


class _Converter:
    """Converts between JSON and messages. Large messages use one thread, so that the event loop gets its share of the CPU.

    The thread gets one message of each namespace at a time, so that many messages of one do not delay those of others.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, namespace: str, size: int, convert: Any, *arguments: Any) -> Any:
        """Call a function on a message of `size` bytes."""
        if size < LONG:
            return convert(*arguments)
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with turn:
            return await asyncio.get_running_loop().run_in_executor(self._thread, convert, *arguments)


class Gateway:
    """Serves HTTP requests by calling RPCs."""

    def __init__(
        self, rpcs: Iterable[Rpc], nexus: NexusGateway, webhooks: WebhookGateway | None, converter: _Converter
    ) -> None:
        self._nexus = nexus
        self._webhooks = webhooks
        self._rpcs = {(rpc.service, rpc.name): rpc for rpc in rpcs}
        self._routes = Routes()
        self._converter = converter
        self._results = Results(self._rpcs[HISTORY]) if HISTORY in self._rpcs else None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, and write the response, of which memory is held so long."""
        with ExitStack() as afterwards:
            request[AFTERWARDS] = afterwards
            response = await self._response(request)
            await response.prepare(request)
            await response.write_eof()
            return response

    async def _response(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._nexus.serves(request):
            return await self._nexus.handle(request)
        if self._webhooks is not None and self._webhooks.serves(request):
            return await self._webhooks.handle(request)
        if request.method == "GET" and request.rel_url.raw_path == openapi.PATH:
            return web.Response(body=self._document, headers={hdrs.CONTENT_TYPE: "application/json"})
        form = _forms(request)[1]
        try:
            if self._results is not None and self._results.serves(request):
                status, result = await self._results.answer(request)
                return web.json_response(result, status=status)
            response, namespace = await self._answer(request)
        except RpcError as error:
            return self._encoded(error.status(), _CODES.get(error.code, 500), form)
        body = await self._converter.run(namespace, response.ByteSize(), self._json, response, form)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: form.media_type})

    @cached_property
    def _document(self) -> bytes:
        """The description of the API. It contains no user data, and needs no token."""
        return json.dumps(openapi.document(self._routes, self._rpcs.keys()), separators=(",", ":")).encode()

    async def _answer(self, request: web.BaseRequest) -> tuple[Message, str]:
        """The response to a request, and the namespace in its path."""
        refuse_web_pages(request)
        matches = self._routes.match(request.rel_url.raw_path)
        if not matches:
            raise RpcError(grpc.StatusCode.NOT_FOUND, "Not Found")
        match = matches.get(request.method)
        if match is None:
            raise unimplemented(f"Method Not Allowed: this path accepts {', '.join(sorted(matches))}")
        rpc = self._rpcs.get((match.route.service, match.route.rpc))
        if rpc is None:
            raise unimplemented(f"{match.route.rpc} is not supported")
        answered: Message = await rpc.answer(_HttpCall(request, rpc, match, self._converter))
        return answered, match.values.get("namespace", "")

    def _encoded(self, message: Message, status: int, form: Form) -> web.Response:
        return web.Response(body=self._json(message, form), status=status, headers={hdrs.CONTENT_TYPE: form.media_type})

    @staticmethod
    def _json(message: Message, form: Form) -> bytes:
        return shorthand.write(message, shorthand=form.shorthand, pretty=form.pretty)


class _LimitedServer(web.Server):
    """Closes new connections beyond a limit."""

    def __init__(self, handler: Any, limit: int) -> None:
        super().__init__(handler, handler_cancellation=True, auto_decompress=False, access_log=None)
        self._limit = limit

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        """Handle an accepted connection."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._limit:
            transport.abort()


@asynccontextmanager
async def serve_http(
    rpcs: Iterable[Rpc],
    nexus: NexusGateway,
    webhooks: WebhookGateway | None,
    listener: socket.socket,
    *,
    secured: ssl.SSLContext | None,
    connections: int,
) -> AsyncIterator[None]:
    """Serve the HTTP API within the block.

    Args:
        rpcs: The served RPCs.
        nexus: Serves the paths of Nexus.
        webhooks: Serves the paths of Webhooks; None: they are not served.
        listener: The listening socket, which is closed at the end.
        secured: The TLS context; None: no TLS.
        connections: The maximum number of connections.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="json") as thread:
        protocol = _LimitedServer(Gateway(rpcs, nexus, webhooks, _Converter(thread)).handle, connections)
        server = await asyncio.get_running_loop().create_server(
            protocol, sock=listener, ssl=secured, ssl_handshake_timeout=10.0 if secured else None
        )
        try:
            yield
        finally:
            server.close()
            await protocol.shutdown(1.0)
