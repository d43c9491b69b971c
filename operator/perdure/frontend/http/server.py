"""Serve Temporal's HTTP API: each request becomes a call of the RPC in its path, or of one that waits for the result of a run."""

import asyncio
import json
import re
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol
from urllib.parse import unquote
from weakref import WeakValueDictionary

import grpc
from aiohttp import hdrs, web
from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import HistoryEventFilterType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest

from perdure import __version__
from perdure.api.times import parse_duration
from perdure.frontend.errors import RpcError, denied, invalid, unimplemented
from perdure.frontend.http import messages
from perdure.frontend.http.connections import HttpConnections, HttpServer
from perdure.frontend.http.routes import OPENAPI_PATH, Match, Routes, openapi_document
from perdure.frontend.transport.door import MAX_MESSAGE, Peer, peer_at
from perdure.frontend.transport.rpc import LONG, Rpc

_FORWARDED = ("authorization", "client-name", "client-version", "supported-features")
AFTERWARDS: Final = web.RequestKey("afterwards", ExitStack)
"""The key of a request for what happens once its response is written."""
_METADATA_PREFIX = "grpc-metadata-"
"""The prefix of headers that become metadata of the call, without the prefix."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""In headers, bytes that are not UTF-8."""
_TIMEOUT = re.compile(r"(\d{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
HTTP_STATUSES = {
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


class IncomingRequest(ABC):
    """The sender of a request, and its body."""

    def __init__(self, request: web.BaseRequest) -> None:
        """Create it without reading the body.

        Raises:
            RpcError: A header that becomes metadata is not UTF-8, so it cannot be passed on to another operator.
        """
        self._request = request
        self.metadata = tuple(_metadata(request))
        self.peer: Peer = sender_of(request)

    async def read(self) -> bytes:
        """Read the body."""
        body = await read_body(self._request, MAX_MESSAGE)
        if body is None:
            raise invalid(f"http: request body too large: it can have at most {MAX_MESSAGE} bytes")
        return body

    def on_sent(self, release: Callable[[], None]) -> None:
        """Call a function once the response is written, or the client has gone."""
        self._request[AFTERWARDS].callback(release)

    async def head(self, raw: bytes) -> Any:
        """Return the message as a whole: this takes little more memory than the body."""
        return await self.decode(raw)

    @abstractmethod
    async def decode(self, raw: bytes) -> Any:
        """Build the message."""


def sender_of(request: web.BaseRequest) -> Peer:
    """The other end of the connection of a request."""
    return peer_at(request.transport.get_extra_info("peername") if request.transport else ("", 0))


def refuse_web_pages(request: web.BaseRequest) -> None:
    """Reject a request from a web page.

    Raises:
        RpcError: A web page sent the request.
    """
    if hdrs.ORIGIN in request.headers:
        raise denied("web pages cannot call the HTTP API: the request has the header `Origin`")


async def read_body(request: web.BaseRequest, limit: int) -> bytes | None:
    """Read the body of a request; None if it has more bytes than the limit."""
    if (request.content_length or 0) > limit:
        return None
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def check_utf_8(name: str, value: str) -> None:
    """Check that a header is UTF-8.

    Raises:
        RpcError: It is not.
    """
    if _SURROGATE.search(name + value):
        raise invalid(f"the header {name!r} is not UTF-8")


def _metadata(request: web.BaseRequest) -> Iterable[tuple[str, str]]:
    found = {"client-name": "temporal-server-http", "client-version": __version__}
    for name, value in request.headers.items():
        lower = name.lower()
        if lower in _FORWARDED or lower.startswith(_METADATA_PREFIX):
            check_utf_8(name, value)
            found[lower.removeprefix(_METADATA_PREFIX)] = value
    return found.items()


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
    sent = _FORMS.get(request.content_type, Form())
    form = Form("noPayloadShorthand" not in request.query, "pretty" in request.query)
    return sent, form if form != Form() else _FORMS.get(request.headers.get(hdrs.ACCEPT, ""), sent)


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
        match = _TIMEOUT.fullmatch(self._request.headers.get("grpc-timeout", ""))
        return int(match[1]) * _UNITS[match[2]] if match else None

    async def head(self, raw: bytes) -> Any:
        """Return a message with the fields of the path only: all requests that have a namespace have it there."""
        return self._with_path(self._rpc.request())

    async def decode(self, raw: bytes) -> Any:
        """Build the message from body, query, and path; the path takes precedence."""
        return await self._converter.run(self._match.values.get("namespace", ""), len(raw), self._decode, raw)

    def _decode(self, raw: bytes) -> Message:
        message: Message = self._rpc.request()
        try:
            if self._match.route.body:
                messages.read(raw, message, shorthand=_forms(self._request)[0].shorthand)
            else:
                messages.fill(message, messages.from_query(self._request.query, message.DESCRIPTOR))
        except messages.MalformedError as error:
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


class Gateway(Protocol):
    """Answers the requests to some paths."""

    def serves(self, request: web.BaseRequest) -> bool:
        """Whether it answers a request."""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request."""


class RpcGateway:
    """Serves HTTP requests by calling RPCs, and passes requests to the paths of other gateways on to them."""

    def __init__(self, rpcs: Iterable[Rpc], others: Sequence[Gateway], converter: _Converter) -> None:
        self._others = others
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
        for gateway in self._others:
            if gateway.serves(request):
                return await gateway.handle(request)
        if request.method == "GET" and request.rel_url.raw_path == OPENAPI_PATH:
            return web.Response(body=self._document, headers={hdrs.CONTENT_TYPE: "application/json"})
        form = _forms(request)[1]
        try:
            if self._results is not None and self._results.serves(request):
                status, result = await self._results.answer(request)
                return web.json_response(result, status=status)
            response, namespace = await self._answer(request)
        except RpcError as error:
            return self._encoded(error.status(), HTTP_STATUSES.get(error.code, 500), form)
        body = await self._converter.run(namespace, response.ByteSize(), self._json, response, form)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: form.media_type})

    @cached_property
    def _document(self) -> bytes:
        """The description of the API. It contains no user data, and needs no token."""
        return json.dumps(openapi_document(self._routes, self._rpcs.keys()), separators=(",", ":")).encode()

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
        return messages.write(message, shorthand=form.shorthand, pretty=form.pretty)


# The result of a run in one request, which waits until the run and the runs that continue it close

HISTORY: Final = ("temporal.api.workflowservice.v1.WorkflowService", "GetWorkflowExecutionHistory")
"""The RPC whose permission callers of this request need."""
_RESULT: Final = re.compile(r"/perdure/v1/namespaces/(?P<namespace>[^/]+)/workflows/(?P<workflow_id>[^/]+)/result")
_LONGEST: Final = 600.0
"""The longest wait of one request, in seconds."""
_CLOSED: Final[Mapping[str, str]] = {
    "workflow_execution_completed_event_attributes": "COMPLETED",
    "workflow_execution_failed_event_attributes": "FAILED",
    "workflow_execution_canceled_event_attributes": "CANCELED",
    "workflow_execution_terminated_event_attributes": "TERMINATED",
    "workflow_execution_continued_as_new_event_attributes": "CONTINUED_AS_NEW",
    "workflow_execution_timed_out_event_attributes": "TIMED_OUT",
}
"""The response status by the attributes of the last event."""


class _HistoryCall(IncomingRequest):
    """A call for the history of a run, on behalf of the client that requests its result."""

    def __init__(self, request: web.BaseRequest, message: GetWorkflowExecutionHistoryRequest, seconds: float) -> None:
        super().__init__(request)
        self._message = message
        self.seconds_left: float | None = seconds

    async def decode(self, _: bytes) -> Any:
        """Return the message, which does not come from a body."""
        return self._message


class Results:
    """Answers requests for results."""

    def __init__(self, history: Rpc) -> None:
        """`history` is the RPC `HISTORY`."""
        self._history = history

    @staticmethod
    def serves(request: web.BaseRequest) -> bool:
        """Whether a request is for a result."""
        return request.method == "GET" and _RESULT.fullmatch(request.rel_url.raw_path) is not None

    async def answer(self, request: web.BaseRequest) -> tuple[int, dict[str, Any]]:
        """Wait for the result.

        Returns:
            The HTTP status, and the response.

        Raises:
            RpcError: The result cannot be read.
        """
        refuse_web_pages(request)
        found = _RESULT.fullmatch(request.rel_url.raw_path)
        assert found is not None, "it is served"
        message = GetWorkflowExecutionHistoryRequest(
            namespace=unquote(found["namespace"]),
            execution=WorkflowExecution(
                workflow_id=unquote(found["workflow_id"]), run_id=request.query.get("runId", "")
            ),
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
            wait_new_event=True,
        )
        now = asyncio.get_running_loop().time
        until = now() + _wait_seconds(request.query.get("wait", "60s"))
        while True:
            response = await self._history.answer(_HistoryCall(request, message, max(until - now(), 0.1)))
            closed = _closed(response.history.events)
            if closed is None:
                if now() >= until or not response.next_page_token:
                    return 202, {"status": "WORKFLOW_EXECUTION_STATUS_RUNNING"}
                message.next_page_token = response.next_page_token
                continue
            event, attributes = closed
            following = getattr(event, attributes).new_execution_run_id if _continues(event, attributes) else ""
            if not following:
                return 200, _result(event, attributes)
            message.execution.run_id, message.next_page_token = following, b""


def _wait_seconds(text: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as error:
        raise invalid(f"wait: {error}") from None
    if not 0 <= seconds <= _LONGEST:
        raise invalid(f"wait: {text} is not between 0s and {_LONGEST:.0f}s")
    return seconds


def _closed(events: Sequence[HistoryEvent]) -> tuple[HistoryEvent, str] | None:
    """The event that closed a run, and the name of its attributes; None if the run is open."""
    if not events:
        return None
    attributes = str(events[-1].WhichOneof("attributes"))
    return (events[-1], attributes) if attributes in _CLOSED else None


def _continues(event: HistoryEvent, attributes: str) -> bool:
    return "new_execution_run_id" in getattr(event, attributes).DESCRIPTOR.fields_by_name


def _result(event: HistoryEvent, attributes: str) -> dict[str, Any]:
    written = json.loads(messages.write(getattr(event, attributes), shorthand=True, pretty=False))
    found: dict[str, Any] = {"status": f"WORKFLOW_EXECUTION_STATUS_{_CLOSED[attributes]}"}
    if attributes == "workflow_execution_completed_event_attributes":
        values = written.get("result", [])
        values = values.get("payloads", []) if isinstance(values, dict) else values
        found["result"] = values[0] if values else None
    elif "failure" in written:
        found["failure"] = written["failure"]
    if written.get("reason"):
        found["reason"] = written["reason"]
    return found


# The server


@asynccontextmanager
async def serve_http(
    rpcs: Iterable[Rpc],
    others: Sequence[Gateway],
    listener: socket.socket,
    connections: HttpConnections,
    *,
    secured: ssl.SSLContext | None,
) -> AsyncIterator[None]:
    """Serve the HTTP API within the block.

    Args:
        rpcs: The served RPCs.
        others: Serve other paths.
        listener: The listening socket, which is closed at the end.
        connections: Limits the open connections.
        secured: The TLS context; None: no TLS.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="json") as thread:
        server = HttpServer(RpcGateway(rpcs, others, _Converter(thread)).handle, connections)
        async with server.serving(listener, secured):
            yield
