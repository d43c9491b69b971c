"""Temporal's HTTP API: conversion of requests, and permissions."""

import asyncio
import base64
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
from multidict import MultiDict
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.nexus.v1 import CancelOperationResponse
from temporalio.api.nexus.v1 import Response as NexusResponse
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsResponse,
    GetWorkflowExecutionHistoryRequest,
    ListScheduleMatchingTimesRequest,
    RespondNexusTaskCompletedRequest,
    StartWorkflowExecutionRequest,
)

from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.http import messages
from perdure.frontend.http.connections import Budgets, HttpConnections
from perdure.frontend.http.messages import from_query
from perdure.frontend.http.nexus import NexusGateway
from perdure.frontend.http.routes import Routes
from perdure.frontend.http.server import serve_http
from perdure.frontend.nexus.endpoints import EndpointRegistry
from perdure.frontend.nexus.tasks import DispatchNexusTaskRequest
from perdure.frontend.transport.certificates import bundle, renewed
from perdure.frontend.transport.door import Connections, Door
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.rpc import Rpc, rpcs
from perdure.frontend.transport.tls import Material, ServerCertificate
from perdure.kube.clock import now
from support.callers import AUDIENCE, ApiServer, token
from support.managers import client_without_server, frontend_over

COUNT = "/api/v1/namespaces/orders/workflow-count"


def payload(data: bytes, **metadata: bytes) -> Payload:
    return Payload(metadata=metadata, data=data)


PLAIN = payload(b'{"a":[1,2.5,null]}', encoding=b"json/plain")
PROTOBUF = payload(b'{"id":"7"}', encoding=b"json/protobuf", messageType=b"shop.Order")
NULL = payload(b"", encoding=b"binary/null")
BINARY = payload(b"\x00\xff", encoding=b"binary/plain")
TYPED = payload(b'"x"', encoding=b"json/plain", type=b"Keyword")


def written(*payloads: Payload) -> Any:
    request = StartWorkflowExecutionRequest(input=Payloads(payloads=payloads))
    return json.loads(messages.write(request, shorthand=True, pretty=False))["input"]


def read(text: str, *, short: bool = True) -> list[Payload]:
    request = StartWorkflowExecutionRequest()
    messages.read(text.encode(), request, shorthand=short)
    return list(request.input.payloads)


def test_payloads_are_written_in_shorthand() -> None:
    null = {"metadata": {"encoding": "YmluYXJ5L251bGw="}}
    assert written(PLAIN, PROTOBUF, NULL) == [
        {"a": [1, 2.5, None]},
        {"id": "7", "_protoMessageType": "shop.Order"},
        null,
    ]
    assert written() == []


@pytest.mark.parametrize(
    "other", [BINARY, TYPED, payload(b"{", encoding=b"json/plain")], ids=["bytes", "type", "no JSON"]
)
def test_a_payload_without_shorthand_is_written_completely(other: Payload) -> None:
    complete = {
        "metadata": {key: base64.b64encode(each).decode() for key, each in other.metadata.items()},
        "data": base64.b64encode(other.data).decode(),
    }
    assert written(PLAIN, other) == {"payloads": [{"a": [1, 2.5, None]}, complete]}


@pytest.mark.parametrize("one", [PLAIN, PROTOBUF, NULL, BINARY, TYPED])
def test_written_payloads_can_be_read(one: Payload) -> None:
    assert read(json.dumps({"input": written(one)})) == [one]


def test_values_are_read_as_shorthand_unless_they_are_complete_payloads() -> None:
    nearly = '{"metadata":{"encoding":"?"},"data":"x"}'
    assert read(f'{{"input": [null, 12345678901234567890, {nearly}]}}') == [
        NULL,
        payload(b"12345678901234567890", encoding=b"json/plain"),
        payload(nearly.encode(), encoding=b"json/plain"),
    ]
    assert read('{"input": null}') == []


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize(
    "text", ['{"input": [%s]}', '{"input": {"payloads": [%s]}}', '{"links": [%s]}', '{"memo": {"fields": {%s}}}']
)
def test_a_request_has_a_bounded_number_of_parts(text: str, short: bool) -> None:
    each = '"%d": {}' if "fields" in text else "{}"
    with pytest.raises(messages.MalformedError, match="lists and maps have more than 50,000 items"):
        read(text % ",".join(each.replace("%d", str(n)) for n in range(50_001)), short=short)


def test_values_are_rejected_without_shorthand() -> None:
    with pytest.raises(messages.MalformedError):
        read('{"input": ["x"]}', short=False)


def test_query_parameters_set_nested_fields_in_either_spelling() -> None:
    query = MultiDict([("execution.runId", "r"), ("maximum_page_size", "10"), ("waitNewEvent", "true"), ("pretty", "")])
    request = GetWorkflowExecutionHistoryRequest()
    messages.fill(request, from_query(query, request.DESCRIPTOR))
    assert (request.execution.run_id, request.maximum_page_size, request.wait_new_event) == ("r", 10, True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("executon.runId", "x", 'has no field "executon". Did you mean "execution"?'),
        ("execution", "x", '"execution" is a message: name one of its fields'),
        ("namespace.name", "x", '"namespace" is not a message'),
        ("waitNewEvent", "maybe", '"maybe" is neither true nor false'),
    ],
)
def test_an_unknown_parameter_is_rejected(name: str, text: str, message: str) -> None:
    with pytest.raises(messages.MalformedError) as refused:
        from_query(MultiDict([(name, text)]), GetWorkflowExecutionHistoryRequest.DESCRIPTOR)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "names", [("startTime", "startTime.seconds"), ("startTime.seconds", "startTime"), ("startTime", "start_time")]
)
def test_a_repeated_parameter_of_a_singular_field_is_rejected(names: tuple[str, str]) -> None:
    query = MultiDict((name, "1") for name in names)
    with pytest.raises(messages.MalformedError, match="a value already"):
        from_query(query, ListScheduleMatchingTimesRequest.DESCRIPTOR)


async def test_every_rpc_with_a_path_is_served_over_grpc_or_listed_as_unsupported() -> None:
    routes = list(Routes())
    assert len(routes) > 200
    async with client_without_server() as client:
        offered = frontend_over(client).handlers()
    assert {route.rpc for route in routes} & set(offered) > {"StartWorkflowExecution", "ListNexusEndpoints"}
    assert not {route.rpc for route in routes} & {"PollWorkflowTaskQueue", "ExecuteMultiOperation"}


def test_a_path_finds_its_route_and_fields() -> None:
    path = "/api/v1/namespaces/default/workflows/a%2Fb/query/q"
    found = Routes().match(path)["POST"]
    assert (found.route.rpc, dict(found.values)) == (
        "QueryWorkflow",
        {"namespace": "default", "execution.workflow_id": "a/b", "query.query_type": "q"},
    )
    assert Routes().match("/api/v1/namespaces//workflows") == {}


class Api:
    """Two RPCs over HTTP, for callers with tokens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.handled = 0
        self.connected = 0
        """The connections of clients of the test's sessions."""

    async def count(self, *_: Any) -> CountWorkflowExecutionsResponse:
        self.handled += 1
        return CountWorkflowExecutionsResponse(count=1)

    async def dispatch(self, *_: Any) -> RespondNexusTaskCompletedRequest:
        self.handled += 1
        return RespondNexusTaskCompletedRequest(response=NexusResponse(cancel_operation=CancelOperationResponse()))

    async def ready(self) -> None:
        pass


@asynccontextmanager
async def serving(
    *,
    shown: ServerCertificate | None = None,
    budgets: Budgets = Budgets.of(100),  # noqa: B008 (immutable)
    allowed: bool = True,
    only: tuple[str, str] = ("", ""),
) -> AsyncIterator[tuple[Api, aiohttp.ClientSession]]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    reviews = ApiServer()
    reviews.allowed, reviews.only = allowed, frozenset({only})
    door = Door(Guard(reviews, AUDIENCE), Connections(port), refusal_seconds=0.0)  # type: ignore[arg-type]
    api = Api(f"{'https' if shown else 'http'}://127.0.0.1:{port}")
    handlers = {"CountWorkflowExecutions": api.count, "StartWorkflowExecution": api.count}
    served = ServedNamespaces(("orders",))
    offered = rpcs(handlers, served, api.ready, door)
    dispatch = Rpc("", "DispatchNexusTask", api.dispatch, DispatchNexusTaskRequest, served, api.ready, door)
    nexus = NexusGateway(dispatch, EndpointRegistry(reviews, "operator"))  # type: ignore[arg-type]
    context = shown.context() if shown else None
    served_here = serve_http(offered, [nexus], listening, HttpConnections(budgets, door), secured=context)
    traced = aiohttp.TraceConfig()

    async def connected(*_: Any) -> None:
        api.connected += 1

    traced.on_connection_create_end.append(connected)
    async with served_here, aiohttp.ClientSession(trace_configs=[traced]) as session:
        yield api, session


async def count(api: Api, session: aiohttp.ClientSession, text: str, **more: Any) -> int:
    headers = {"Authorization": f"Bearer {text}"}
    async with session.get(f"{api.address}{COUNT}", headers=headers, **more) as response:
        return response.status


async def test_a_caller_requires_a_valid_token_and_the_same_permissions_as_over_grpc() -> None:
    async with serving() as (api, session):
        assert await count(api, session, token()) == 200
        assert await count(api, session, "s3cret") == 401
        assert api.handled == 1
    async with serving(allowed=False) as (api, session):
        assert await count(api, session, token()) == 403
        assert not api.handled


@pytest.mark.parametrize(
    ("text", "right", "status"),
    [
        ("s3cret", ("create", "workflowruns"), 401),
        (token(), ("get", "workflowruns"), 403),
        (token(), ("create", "workflowruns"), 202),
        (token(), ("create", "workflowruns/temporal"), 202),
    ],
)
async def test_calling_a_handler_requires_permission_to_start_workflows(
    text: str, right: tuple[str, str], status: int
) -> None:
    async with serving(allowed=False, only=right) as (api, session):
        url = f"{api.address}/namespaces/orders/task-queues/bills/nexus-services/Billing/quote/cancel?token=t"
        async with session.post(url, headers={"Authorization": f"Bearer {text}"}) as response:
            assert (response.status, api.handled) == (status, int(status == 202))


@pytest.mark.parametrize(("allowed", "status"), [(False, 403), (True, 400)])
async def test_a_long_body_is_converted_only_for_an_authorized_caller(allowed: bool, status: int) -> None:
    body = b'{"input": [' + b"[]," * 10_000
    async with serving(allowed=allowed) as (api, session):
        url = f"{api.address}/api/v1/namespaces/orders/workflows/x"
        async with session.post(url, data=body, headers={"Authorization": f"Bearer {token()}"}) as response:
            assert (response.status, api.handled) == (status, 0)


async def test_an_unauthenticated_caller_is_rejected_before_the_body_is_read() -> None:
    async with serving() as (api, _):
        host, _, port = api.address.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # A body that never arrives: a server that waits for it would not respond.
        writer.write(b"POST /api/v1/namespaces/orders/workflows/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


async def stranger(api: Api) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that the server has accepted, and on which no complete request arrives."""
    host, _, port = api.address.rpartition("//")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    return reader, writer


@pytest.mark.parametrize("encrypted", [False, True])
async def test_slow_strangers_take_no_connection_from_callers(encrypted: bool) -> None:
    """They are disconnected in the order of their arrival, also those that never finish the TLS handshake."""
    made = renewed({}, ("127.0.0.1",), now())
    shown = ServerCertificate(Material(made["tls.key"], made["tls.crt"], None)) if encrypted else None
    secured = {"ssl": ssl.create_default_context(cadata=bundle(made))} if encrypted else {}
    async with serving(shown=shown, budgets=Budgets(callers=1, senders=1, strangers=2)) as (api, session):
        assert await count(api, session, token(), **secured) == 200
        slow = [await stranger(api) for _ in range(6)]
        for reader, writer in slow[:4]:
            with suppress(ConnectionError):
                assert not await reader.read(), "it is closed"
            writer.close()
        assert await count(api, session, token(), **secured) == 200
        assert api.connected == 1, "the first caller has kept its connection"
        async with aiohttp.ClientSession() as other:
            assert await count(api, other, token(), **secured) == 200
        for _, writer in slow[4:]:
            writer.close()


async def test_callers_beyond_their_budget_lose_their_connection_when_others_need_it() -> None:
    async with serving(budgets=Budgets(callers=1, senders=1, strangers=1)) as (api, session):
        assert await count(api, session, token()) == 200
        async with aiohttp.ClientSession() as other, aiohttp.ClientSession() as third:
            assert await count(api, other, token()) == 200
            assert await count(api, third, token()) == 200
            assert await count(api, session, token()) == 200
            assert api.connected == 1, "the first caller has kept its connection"


async def test_the_grpc_certificate_is_served_and_renewed_without_a_restart() -> None:
    names = ("127.0.0.1",)
    first, second = renewed({}, names, now()), renewed({}, names, now())
    shown = ServerCertificate(Material(first["tls.key"], first["tls.crt"], None))

    async def trusts(api: Api, made: dict[str, bytes]) -> bool:
        async with aiohttp.ClientSession() as session:
            try:
                return await count(api, session, token(), ssl=ssl.create_default_context(cadata=bundle(made))) == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

    async with serving(shown=shown) as (api, _):
        assert [await trusts(api, first), await trusts(api, second)] == [True, False]
        shown.update(Material(second["tls.key"], second["tls.crt"], None))
        assert [await trusts(api, first), await trusts(api, second)] == [False, True]


async def test_client_certificates_are_required_if_a_client_ca_is_set() -> None:
    made = renewed({}, ("127.0.0.1",), now())
    shown = ServerCertificate(Material(made["tls.key"], made["tls.crt"], made["ca.crt"]))
    async with serving(shown=shown) as (api, session):
        with pytest.raises(aiohttp.ClientError):
            await count(api, session, token(), ssl=ssl.create_default_context(cadata=bundle(made)))
        assert not api.handled
