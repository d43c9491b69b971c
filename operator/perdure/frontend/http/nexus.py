"""Serve calls of Nexus handlers (github.com/nexus-rpc/api) at the paths of Temporal's server."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

import grpc
import orjson
from aiohttp import web
from multidict import CIMultiDict
from temporalio.api.nexus.v1 import Link, Request, StartOperationResponse
from temporalio.api.workflowservice.v1 import RespondNexusTaskFailedRequest

from perdure.api.stored import MessageStruct
from perdure.frontend.errors import RpcError, invalid, not_found, unimplemented
from perdure.frontend.http.server import IncomingRequest, check_utf_8, refuse_web_pages
from perdure.frontend.messages.nexus import CALLBACK_PREFIX, passed_headers
from perdure.frontend.nexus import protocol
from perdure.frontend.nexus.endpoints import EndpointRegistry
from perdure.frontend.nexus.protocol import UNSPECIFIED, Behavior, Json
from perdure.frontend.nexus.tasks import Answer, DispatchNexusTaskRequest
from perdure.frontend.transport.rpc import Rpc

_PATHS: Final = ("/nexus/", "/namespaces/")
"""The prefixes of Temporal's server for calls of handlers and for completion callbacks."""
_PATH: Final = re.compile(
    r"/(?:nexus/endpoints/(?P<endpoint>[^/]+)/services|namespaces/(?P<namespace>[^/]+)/task-queues/(?P<queue>[^/]+)/nexus-services)"
    r"/(?P<service>[^/]+)/(?P<operation>[^/]+)(?P<cancel>/cancel)?"
)
_CALLBACK: Final = re.compile(r"/(?:namespaces/[^/]+/)?nexus/callback")
_TIMEOUT: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m)")
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0}
_LINK: Final = re.compile(r'\s*<([^>]+)>\s*;\s*type\s*=\s*"([\w./]+)"\s*')
_CONTENT: Final = "content-"
_UNSUCCESSFUL: Final = HTTPStatus.FAILED_DEPENDENCY
_OF_WORKER: Final = {"Temporal-Nexus-Failure-Source": "worker"}
_STATUSES: Final = {
    "BAD_REQUEST": 400,
    "UNAUTHENTICATED": 401,
    "UNAUTHORIZED": 403,
    "NOT_FOUND": 404,
    "REQUEST_TIMEOUT": 408,
    "CONFLICT": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "NOT_IMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "UPSTREAM_TIMEOUT": 520,
}
"""The HTTP status by the type of a handler error; all other types are 500."""
_KINDS: Final = {
    grpc.StatusCode.ABORTED: "UNAVAILABLE",
    grpc.StatusCode.ALREADY_EXISTS: "BAD_REQUEST",
    grpc.StatusCode.DEADLINE_EXCEEDED: "UPSTREAM_TIMEOUT",
    grpc.StatusCode.FAILED_PRECONDITION: "BAD_REQUEST",
    grpc.StatusCode.INVALID_ARGUMENT: "BAD_REQUEST",
    grpc.StatusCode.NOT_FOUND: "NOT_FOUND",
    grpc.StatusCode.OUT_OF_RANGE: "BAD_REQUEST",
    grpc.StatusCode.PERMISSION_DENIED: "UNAUTHORIZED",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "RESOURCE_EXHAUSTED",
    grpc.StatusCode.UNAUTHENTICATED: "UNAUTHENTICATED",
    grpc.StatusCode.UNAVAILABLE: "UNAVAILABLE",
    grpc.StatusCode.UNIMPLEMENTED: "NOT_IMPLEMENTED",
}
"""The types of handler errors for RPC codes; all other codes are INTERNAL."""


class FoundEndpoint(MessageStruct, frozen=True, kw_only=True):
    """An endpoint, and where the workers poll that handle its operations."""

    name: str
    namespace: str
    task_queue: str


FindEndpoint = Callable[[str], Awaitable[FoundEndpoint | None]]
"""Finds an endpoint by its ID."""


def finder(endpoints: EndpointRegistry) -> FindEndpoint:
    """Find endpoints in the registry of an operator."""

    async def find(endpoint_id: str) -> FoundEndpoint | None:
        found = await endpoints.find(endpoint_id)
        if found is None:
            return None
        name, endpoint = found
        return FoundEndpoint(name=name, namespace=endpoint.namespace, task_queue=endpoint.task_queue)

    return find


class NexusGateway:
    """Serves requests to call handlers, with the same admission as for RPCs."""

    def __init__(self, rpc: Rpc, find_endpoint: FindEndpoint, more_headers: frozenset[str] = frozenset()) -> None:
        """Call handlers through `rpc`. They get `more_headers`, in lower case, in addition to the usual ones."""
        self._rpc = rpc
        self._find_endpoint = find_endpoint
        self._more_headers = more_headers

    @staticmethod
    def serves(request: web.BaseRequest) -> bool:
        """Whether a request is for Nexus."""
        return request.rel_url.raw_path.startswith(_PATHS)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer a request."""
        wrapped = _accepts_wrapped_failures(request)
        try:
            refuse_web_pages(request)
            answer: Answer = await self._rpc.answer(
                _NexusCall(request, self._target(request), self._find_endpoint, self._more_headers)
            )
            return _checked(_response(answer, wrapped=wrapped))
        except RpcError as error:
            kind = _KINDS.get(error.code, "INTERNAL")
            headers = _OF_WORKER if kind == "UPSTREAM_TIMEOUT" else {}
            return _json(_STATUSES[kind], protocol.handler_error(kind, error.message), CIMultiDict(headers))

    @staticmethod
    def _target(request: web.BaseRequest) -> "_Target":
        """The target of a request.

        Raises:
            RpcError: The target does not exist.
        """
        path = request.rel_url.raw_path
        if _CALLBACK.fullmatch(path):
            raise unimplemented(
                "completion over HTTP is not supported: an operation completes when the workflow, update, or "
                "standalone activity with its callback ends"
            )
        found = _PATH.fullmatch(path)
        if found is None:
            raise not_found("not found")
        if request.method != "POST":
            raise invalid(f'invalid request method: expected POST, got "{request.method}"')
        return _Target(**{name: unquote(value or "") for name, value in found.groupdict().items()})


@dataclass(frozen=True, slots=True)
class _Target:
    """The parts of a path."""

    endpoint: str
    """ID of the endpoint; empty if the path names a namespace and a task queue."""
    namespace: str
    queue: str
    service: str
    operation: str
    cancel: str
    """Empty to start an operation."""


class _NexusCall(IncomingRequest):
    """The call of a handler that arrived as an HTTP request."""

    def __init__(
        self, request: web.BaseRequest, target: _Target, find_endpoint: FindEndpoint, more_headers: frozenset[str]
    ) -> None:
        """Create the call without reading its body.

        Raises:
            RpcError: The timeout is not valid, or a header is not UTF-8.
        """
        super().__init__(request)
        for name, value in request.headers.items():
            check_utf_8(name, value)
        self._target = target
        self._find_endpoint = find_endpoint
        self._more_headers = more_headers
        self.seconds_left = _timeout(request.headers.get("request-timeout", ""))

    async def decode(self, raw: bytes) -> DispatchNexusTaskRequest:
        """Build the call."""
        target, request, name = self._target, self._request, ""
        namespace, queue = target.namespace, target.queue
        if target.endpoint:
            found = await self._find_endpoint(target.endpoint)
            if found is None:
                raise not_found("nexus endpoint not found")
            name, namespace, queue = found.name, found.namespace, found.task_queue
        made = Request(endpoint=name, header=dict(passed_headers(request.headers, self._more_headers)))
        made.capabilities.temporal_failure_responses = _accepts_wrapped_failures(request)
        if target.cancel:
            token = made.header.pop("nexus-operation-token", "") or request.query.get("token", "")
            if not token:
                raise invalid("missing operation token")
            cancel = made.cancel_operation
            cancel.service, cancel.operation = target.service, target.operation
            cancel.operation_token = cancel.operation_id = token
        else:
            start = made.start_operation
            start.service, start.operation = target.service, target.operation
            start.request_id = request.headers.get("nexus-request-id", "")
            start.callback = request.query.get("callback", "")
            start.callback_header.update(_stripped(request.headers, CALLBACK_PREFIX))
            start.payload.CopyFrom(protocol.to_payload(dict(_stripped(request.headers, _CONTENT)), raw))
            start.links.extend(_links(",".join(request.headers.getall("nexus-link", ()))))
        return DispatchNexusTaskRequest(namespace, queue, made)


def _timeout(text: str) -> float | None:
    if not text:
        return None
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise invalid("invalid request timeout header")
    return float(found[1]) * _UNITS[found[2]]


def _accepts_wrapped_failures(request: web.BaseRequest) -> bool:
    return request.headers.get("temporal-nexus-failure-support") == "true"


def _stripped(headers: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the headers with a prefix, in lower case and without the prefix."""
    for name, value in headers.items():
        if name.lower().startswith(prefix):
            yield name.lower().removeprefix(prefix), value


def _links(text: str) -> Iterator[Link]:
    """The links of a request.

    Raises:
        RpcError: The links are not valid.
    """
    for each in filter(None, text.split(",")):
        found = _LINK.fullmatch(each)
        if found is None:
            raise invalid('invalid "nexus-link" header')
        yield Link(url=found[1], type=found[2])


# Responses of handlers


def _checked(response: web.Response) -> web.Response:
    """Return the response if it can be sent.

    Raises:
        RpcError: A header has control characters, which a handler has chosen.
    """
    for name, value in response.headers.items():
        if protocol.has_control_characters(name + value):
            raise RpcError(grpc.StatusCode.INTERNAL, f"the handler's response has control characters in {name}")
    return response


def _response(answer: Answer, *, wrapped: bool) -> web.Response:
    """The response to a client.

    Args:
        answer: The worker's response.
        wrapped: Whether the client understands wrapped failures.
    """
    if isinstance(answer, RespondNexusTaskFailedRequest):
        return _handler_failed(answer, wrapped=wrapped)
    if answer.response.HasField("cancel_operation"):
        return web.Response(status=HTTPStatus.ACCEPTED)
    started = answer.response.start_operation
    match started.WhichOneof("variant"):
        case "sync_success":
            described, content = protocol.from_payload(started.sync_success.payload)
            headers = _link_headers(started.sync_success.links)
            headers.update({f"Content-{name}": value for name, value in described.items()})
            return web.Response(body=content, headers=headers)
        case "async_success":
            token = started.async_success.operation_token or started.async_success.operation_id
            body = {"token": token, "state": "running"}
            return _json(HTTPStatus.CREATED, body, _link_headers(started.async_success.links))
        case "failure" | "operation_error":
            return _operation_failed(started, wrapped=wrapped)
    return _failed("INTERNAL", UNSPECIFIED, protocol.handler_error("INTERNAL", "empty outcome"))


def _operation_failed(started: StartOperationResponse, *, wrapped: bool) -> web.Response:
    if started.HasField("failure"):
        state = "canceled" if started.failure.HasField("canceled_failure_info") else "failed"
        failure = protocol.of_temporal(started.failure)
    else:
        state = started.operation_error.operation_state
        failure = protocol.of_nexus(started.operation_error.failure)
    body = protocol.operation_error(state, failure) if wrapped else failure
    return _json(_UNSUCCESSFUL, body, CIMultiDict({"Nexus-Operation-State": state, **_OF_WORKER}))


def _handler_failed(answer: RespondNexusTaskFailedRequest, *, wrapped: bool) -> web.Response:
    if answer.HasField("failure"):
        info = answer.failure.nexus_handler_failure_info
        failure = protocol.of_temporal(answer.failure)
        return _failed(info.type, info.retry_behavior, failure if wrapped else failure.get("cause", failure))
    error = answer.error
    failure = protocol.of_nexus(error.failure)
    body = protocol.handler_error(error.error_type, "", error.retry_behavior, failure) if wrapped else failure
    return _failed(error.error_type, error.retry_behavior, body)


def _failed(kind: str, behavior: Behavior, body: Json) -> web.Response:
    headers = CIMultiDict(_OF_WORKER)
    retryable = protocol.is_retryable(behavior)
    if retryable is not None:
        headers["Nexus-Request-Retryable"] = str(retryable).lower()
    return _json(_STATUSES.get(kind, 500), body, headers)


def _link_headers(links: Any) -> "CIMultiDict[str]":
    return CIMultiDict(("Nexus-Link", f'<{link.url}>; type="{link.type}"') for link in links)


def _json(status: int, body: Json, headers: "CIMultiDict[str]") -> web.Response:
    """Build a response.

    Raises:
        RpcError: A handler has nested the body too deep.
    """
    headers["Content-Type"] = "application/json"
    try:
        return web.Response(status=status, body=orjson.dumps(body), headers=headers)
    except orjson.JSONEncodeError:
        raise RpcError(grpc.StatusCode.INTERNAL, "the handler's failure is nested too deeply for JSON") from None
