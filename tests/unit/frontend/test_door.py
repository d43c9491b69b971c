"""Calls before authentication: responses and costs, with a real gRPC server in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    CountWorkflowExecutionsResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    StartWorkflowExecutionRequest,
    StartWorkflowExecutionResponse,
)

from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.settings import Settings
from perdure.frontend.transport.door import MAX_READ, Connections, Door, Peer, Places, peer_of, size_of, strangers_of
from perdure.frontend.transport.grpc_server import OpenCalls, generic_handlers, options, stop
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.rpc import rpcs
from support.callers import AUDIENCE, ApiServer, bearer, token
from support.clock import stopped_clock

SERVICE = "/temporal.api.workflowservice.v1.WorkflowService"
COUNT = CountWorkflowExecutionsRequest(namespace="orders", query="x" * 3_000_000).SerializeToString()
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_EMPTY_SETTINGS = bytes.fromhex("000000 04 00 00000000")
_PING = bytes.fromhex("000008 06 00 00000000") + b"are you?"
_PONG = bytes.fromhex("000008 06 01 00000000") + b"are you?"
READ = GetWorkflowExecutionHistoryRequest(namespace="orders").SerializeToString()
POLL = PollWorkflowTaskQueueRequest(namespace="orders").SerializeToString()


@dataclass
class Frontend:
    """A gRPC server with three RPCs: one that answers, and two that wait until the test sets `leave`."""

    api: ApiServer
    door: Door
    connections: Connections
    address: str = ""
    handled: int = 0
    waiting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    left: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    counting: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first count."""
    started: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    able: bool = True
    """Whether the process could serve callers."""
    stop: Callable[[], Awaitable[None]] = field(init=False)
    """Stops the server as the operator does."""

    async def ready(self) -> None:
        pass

    async def count(self, *_: Any) -> CountWorkflowExecutionsResponse:
        self.handled += 1
        self.counting.set()
        return CountWorkflowExecutionsResponse(count=1)

    async def start(self, *_: Any) -> StartWorkflowExecutionResponse:
        self.handled += 1
        self.started.release()
        return StartWorkflowExecutionResponse(eager_workflow_task={"task_token": b"x" * 1_200_000})

    async def poll(self, *_: Any) -> PollWorkflowTaskQueueResponse:
        self.waiting.release()
        try:
            await self.leave.wait()
        finally:
            self.left.release()
        return PollWorkflowTaskQueueResponse()

    async def read(self, *_: Any) -> GetWorkflowExecutionHistoryResponse:
        await self.poll()
        return GetWorkflowExecutionHistoryResponse()


_LATE_SECONDS = 0.03
"""By how much each turn of an event loop is late on a busy node."""


@asynccontextmanager
async def serving(
    *, refusal_seconds: float = 0.0, long_polls: Places | None = None, max_connections: int = 1_000
) -> AsyncIterator[Frontend]:
    server = grpc.aio.server(options=options(Settings(max_connections=max_connections)))
    port = server.add_insecure_port("127.0.0.1:0")
    strangers = strangers_of(max_connections)
    api, connections = ApiServer(), Connections(port, strangers=strangers, serves=lambda: frontend.able)
    api.allowed = True
    guard = Guard(api, AUDIENCE)  # type: ignore[arg-type]
    door = Door(guard, connections, refusal_seconds=refusal_seconds, long_polls=long_polls)
    frontend = Frontend(api, door, connections, f"127.0.0.1:{port}")
    handlers: dict[str, Any] = {
        "CountWorkflowExecutions": frontend.count,
        "GetWorkflowExecutionHistory": frontend.read,
        "PollWorkflowTaskQueue": frontend.poll,
        "StartWorkflowExecution": frontend.start,
    }
    offered = rpcs(handlers, ServedNamespaces(("orders",)), frontend.ready, door)
    calls = OpenCalls()
    frontend.stop = lambda: stop(server, calls)
    server.add_generic_rpc_handlers(generic_handlers(offered, calls))
    await server.start()
    try:
        yield frontend
    finally:
        frontend.leave.set()
        await server.stop(None)


@asynccontextmanager
async def calling(frontend: Frontend, *options: tuple[str, int]) -> AsyncIterator[grpc.aio.Channel]:
    """A separate connection."""
    async with grpc.aio.insecure_channel(
        frontend.address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0), *options]
    ) as channel:
        yield channel


async def code_of(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def count(channel: grpc.aio.Channel, text: str, body: bytes = COUNT) -> Any:
    return channel.unary_unary(f"{SERVICE}/CountWorkflowExecutions")(body, metadata=bearer(text), timeout=60)


def unsent_count(channel: grpc.aio.Channel, text: str) -> Any:
    """A call whose message never arrives."""
    return channel.stream_unary(f"{SERVICE}/CountWorkflowExecutions")(metadata=bearer(text), timeout=60)


def poll(channel: grpc.aio.Channel) -> Any:
    return channel.unary_unary(f"{SERVICE}/PollWorkflowTaskQueue")(POLL, metadata=bearer(token()), timeout=60)


async def test_a_caller_with_a_valid_token_is_served() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK
        assert await code_of(count(channel, token(), b"\xff")) is grpc.StatusCode.INVALID_ARGUMENT
        assert frontend.handled == 1


async def test_a_too_large_message_is_rejected_with_the_error_that_sdks_recognize() -> None:
    body = CountWorkflowExecutionsRequest(namespace="orders", query="x" * 5_000_000).SerializeToString()
    async with serving() as frontend, calling(frontend) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await count(channel, token(), body)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.value.details() == f"grpc: received message larger than max ({len(body)} vs. 4194304)"
        assert not frontend.handled


async def test_an_unauthenticated_caller_is_rejected_before_the_message_is_read() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        # A message that never arrives: a server that waits for it would not respond.
        call = channel.stream_unary(f"{SERVICE}/CountWorkflowExecutions")(metadata=bearer("s3cret"), timeout=60)
        assert await code_of(call) is grpc.StatusCode.UNAUTHENTICATED
        assert await code_of(count(channel, "s3cret", b"\xff")) is grpc.StatusCode.UNAUTHENTICATED
        assert not frontend.api.reviewed
        assert not frontend.handled


async def test_a_long_message_is_decoded_only_for_an_authorized_caller() -> None:
    with stopped_clock() as clock:
        body = COUNT + b"\x12\x01\xff"  # a query that is not UTF-8
        async with serving() as frontend, calling(frontend) as channel:
            assert await code_of(count(channel, token(), body)) is grpc.StatusCode.INVALID_ARGUMENT
            frontend.api.allowed = False
            clock.at(31)
            assert await code_of(count(channel, token(), body)) is grpc.StatusCode.PERMISSION_DENIED
            assert not frontend.handled


async def test_calls_without_messages_of_one_namespace_do_not_block_others() -> None:
    """Its ServiceAccounts count together: 600 calls are more than their share of places, and memory for 600 is more than all."""
    async with serving() as frontend, calling(frontend) as one, calling(frontend) as two, calling(frontend) as other:
        accounts = [f"system:serviceaccount:hostile:{name}" for name in ("one", "two")]
        for frontend.api.user in accounts:
            assert await code_of(count(other, token(sub=frontend.api.user))) is grpc.StatusCode.OK
        unsent = [
            asyncio.ensure_future(code_of(unsent_count(channel, token(sub=account))))
            for account, channel in zip(accounts, (one, two), strict=True)
            for _ in range(300)
        ]
        frontend.api.user = "system:serviceaccount:orders:shop"
        refused, waiting = await asyncio.wait(unsent, return_when=asyncio.FIRST_COMPLETED)
        assert {each.result() for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        for _ in range(20):
            assert await code_of(count(other, token())) is grpc.StatusCode.OK
        for each in waiting:
            each.cancel()


async def test_a_caller_with_too_many_concurrent_calls_gets_a_retryable_error() -> None:
    async with serving(long_polls=Places("long polls", each=2, total=8)) as frontend, calling(frontend) as channel:
        polls = [asyncio.ensure_future(poll(channel)) for _ in range(2)]
        for _ in polls:
            await frontend.waiting.acquire()
        assert await code_of(poll(channel)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK
        frontend.leave.set()
        await asyncio.gather(*polls)
        assert await code_of(poll(channel)) is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("lost", "code"),
    [("valid", grpc.StatusCode.UNAUTHENTICATED), ("allowed", grpc.StatusCode.PERMISSION_DENIED)],
    ids=["its token", "its right"],
)
async def test_a_caller_whose_permission_is_revoked_during_a_call_gets_no_response(
    lost: str, code: grpc.StatusCode
) -> None:
    with stopped_clock() as clock:
        async with serving() as frontend, calling(frontend) as channel:
            method = channel.unary_unary(f"{SERVICE}/GetWorkflowExecutionHistory")
            waits = asyncio.ensure_future(method(READ, metadata=bearer(token()), timeout=60))
            await frontend.waiting.acquire()
            setattr(frontend.api, lost, False)
            clock.at(31)
            frontend.leave.set()
            assert await code_of(waits) is code


async def test_unread_responses_use_only_the_memory_of_their_namespace() -> None:
    """17 responses of 1.2 MB, in three copies, leave no room for another message in half of 128 MiB."""
    body, mine = StartWorkflowExecutionRequest(namespace="orders").SerializeToString(), token(sub="hostile")
    async with (
        serving() as frontend,
        calling(frontend, ("grpc.http2.lookahead_bytes", 65_535), ("grpc.http2.bdp_probe", 0)) as channel,
        calling(frontend) as second,
        calling(frontend) as other,
    ):
        assert await code_of(count(other, token())) is grpc.StatusCode.OK
        frontend.api.user = "system:serviceaccount:hostile:one"
        unread = []
        for _ in range(17):
            start = channel.unary_stream(f"{SERVICE}/StartWorkflowExecution")
            unread.append(start(body, metadata=bearer(mine), timeout=60))
            await frontend.started.acquire()
        waiting = asyncio.ensure_future(code_of(count(second, mine)))
        for _ in range(10):
            assert await code_of(count(other, token())) is grpc.StatusCode.OK
        assert not waiting.done()
        for each in unread:
            each.cancel()
        assert await waiting is grpc.StatusCode.OK


async def test_a_message_with_too_many_parts_is_rejected() -> None:
    request = StartWorkflowExecutionRequest(namespace="orders", input=Payloads(payloads=[Payload()] * 50_001))
    async with serving() as frontend, calling(frontend) as channel:
        start = channel.unary_unary(f"{SERVICE}/StartWorkflowExecution")
        call = start(request.SerializeToString(), metadata=bearer(token()), timeout=60)
        assert await code_of(call) is grpc.StatusCode.INVALID_ARGUMENT
        assert not frontend.handled


@pytest.mark.parametrize("count", [1, 20_000])
def test_the_memory_of_a_message_includes_its_parts(count: int) -> None:
    request = StartWorkflowExecutionRequest(namespace="orders", input=Payloads(payloads=[Payload()] * count))
    raw = request.SerializeToString()
    assert 64 * count <= size_of(request, raw) - len(raw) <= MAX_READ


async def test_calls_open_when_the_operator_stops_are_retryable() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        waiting = asyncio.ensure_future(poll(channel))
        await frontend.waiting.acquire()
        await frontend.stop()
        with pytest.raises(grpc.aio.AioRpcError, match="this operator is shutting down; retry") as error:
            await waiting
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_loaded_server_that_stops_ends_no_call_as_cancelled() -> None:
    """SDKs drop a completion that ends as CANCELLED, and its activity then waits for its timeout.

    gRPC passes calls on one by one, and ended those that still waited for that as CANCELLED: about 50 of 60 concurrent ones.
    """
    body = CountWorkflowExecutionsRequest(namespace="orders").SerializeToString()
    async with serving() as frontend, calling(frontend) as channel:
        start = channel.unary_unary(f"{SERVICE}/CountWorkflowExecutions")
        calls = [asyncio.ensure_future(code_of(start(body, metadata=bearer(token()), timeout=60))) for _ in range(200)]
        await frontend.counting.wait()
        await frontend.stop()
        codes = set(await asyncio.gather(*calls))
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        assert grpc.StatusCode.OK in codes


async def test_a_server_on_a_busy_node_that_stops_ends_no_call_as_cancelled() -> None:
    """Its event loop is late in each turn, so calls arrive with pauses although others wait for gRPC to pass them on."""
    body = CountWorkflowExecutionsRequest(namespace="orders").SerializeToString()
    codes: list[grpc.StatusCode] = []

    def call(address: str) -> None:
        with grpc.insecure_channel(address) as channel:
            start = channel.unary_unary(f"{SERVICE}/CountWorkflowExecutions")
            try:
                start(body, metadata=bearer(token()), timeout=60)
            except grpc.RpcError as error:
                codes.append(error.code())
            else:
                codes.append(grpc.StatusCode.OK)

    async def delay() -> None:
        while True:
            time.sleep(_LATE_SECONDS)  # noqa: ASYNC251 (what else takes the time of a busy node)
            await asyncio.sleep(0)

    async with serving() as frontend:
        late = asyncio.ensure_future(delay())
        calls = [asyncio.to_thread(call, frontend.address) for _ in range(30)]
        ended = asyncio.ensure_future(asyncio.gather(*calls))
        await frontend.counting.wait()
        await frontend.stop()
        await ended
        late.cancel()
        assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


async def test_a_call_that_arrives_while_the_operator_stops_is_retryable() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        waiting = asyncio.ensure_future(code_of(poll(channel)))
        await frontend.waiting.acquire()
        stopping = asyncio.ensure_future(frontend.stop())
        await asyncio.sleep(0)
        assert await code_of(count(channel, token())) is grpc.StatusCode.UNAVAILABLE
        assert frontend.handled == 0
        assert await waiting is grpc.StatusCode.UNAVAILABLE
        await stopping


async def test_a_disconnected_caller_ends_its_call() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        call = poll(channel)
        await frontend.waiting.acquire()
        call.cancel()
        await frontend.left.acquire()
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK


async def test_a_too_long_identity_is_rejected() -> None:
    body = PollWorkflowTaskQueueRequest(namespace="orders", identity="x" * 1_001).SerializeToString()
    async with serving() as frontend, calling(frontend) as channel:
        call = channel.unary_unary(f"{SERVICE}/PollWorkflowTaskQueue")(body, metadata=bearer(token()), timeout=60)
        assert await code_of(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_connection_with_many_unauthenticated_calls_is_closed() -> None:
    async with serving(refusal_seconds=3_600) as frontend, calling(frontend) as channel, calling(frontend) as other:
        assert await code_of(count(other, token())) is grpc.StatusCode.OK
        codes = await asyncio.gather(*(code_of(count(channel, "s3cret")) for _ in range(40)))
        # The first four would wait for an hour.
        assert codes.count(grpc.StatusCode.UNAVAILABLE) >= 4
        assert set(codes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED}
        assert other.get_state() is grpc.ChannelConnectivity.READY


async def test_a_connection_with_a_valid_token_stays_open() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK
        codes = await asyncio.gather(*(code_of(count(channel, "s3cret")) for _ in range(40)))
        assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
        frontend.connections.sweep(1e9)
        frontend.connections.close_now()
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK


async def test_a_connection_without_a_valid_token_in_time_is_closed() -> None:
    async with serving() as frontend:
        reader, writer = await asyncio.open_connection(*frontend.address.split(":"))
        writer.write(_PREFACE + _EMPTY_SETTINGS)
        assert await reader.read(1)  # gRPC has accepted it
        frontend.connections.sweep(100.0)
        frontend.connections.sweep(119.0)
        writer.write(_PING)
        assert await reader.readuntil(_PONG), "it is still open"
        frontend.connections.sweep(120.0)
        while await reader.read(1_000):  # until the other side closes it
            pass
        writer.close()


async def stranger(frontend: Frontend) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that gRPC has accepted, and on which no call arrives."""
    reader, writer = await asyncio.open_connection(*frontend.address.split(":"))
    writer.write(_PREFACE + _EMPTY_SETTINGS)
    assert await reader.read(1)
    return reader, writer


async def test_idle_strangers_leave_connections_to_callers() -> None:
    """Of 17 when 16 may stay, the one that is open longest is closed."""
    async with serving(max_connections=1) as frontend, calling(frontend) as channel:
        first = await stranger(frontend)
        frontend.connections.sweep(100.0)
        others = [await stranger(frontend) for _ in range(16)]
        frontend.connections.sweep(101.0)
        frontend.connections.close_now()
        while await first[0].read(1_000):  # until the other side closes it
            pass
        others[0][1].write(_PING)
        assert await others[0][0].readuntil(_PONG), "it is still open"
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK
        for _, writer in (first, *others):
            writer.close()


async def test_an_operator_that_cannot_serve_for_long_closes_its_connections() -> None:
    """Their callers reconnect to another operator through the Service, because this one is not ready."""
    async with serving() as frontend, calling(frontend) as channel:
        waiting = asyncio.create_task(code_of(poll(channel)))
        await frontend.waiting.acquire()
        frontend.connections.sweep(100.0)
        frontend.able = False
        frontend.connections.sweep(119.0)
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK
        assert not waiting.done()
        frontend.connections.sweep(120.0)
        assert await waiting is grpc.StatusCode.UNAVAILABLE


async def test_an_operator_that_has_not_served_yet_keeps_its_connections() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        frontend.able = False
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK
        frontend.connections.sweep(100.0)
        frontend.connections.sweep(1_000.0)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        assert await code_of(count(channel, token())) is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ipv4:10.0.0.1:4711", Peer("10.0.0.1", 4711)),
        ("ipv6:%5Bfd00::1%5D:4711", Peer("fd00::1", 4711)),
        ("ipv6:[::ffff:10.0.0.1]:4711", Peer("10.0.0.1", 4711)),
        ("unix:", Peer("unix:", 0)),
    ],
)
def test_peer_addresses_are_parsed_from_the_grpc_format(text: str, want: Peer) -> None:
    assert peer_of(text) == want


async def test_an_unsupported_rpc_has_a_reason() -> None:
    async with serving() as frontend, calling(frontend) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="A task queue has no partitions") as error:
            await channel.unary_unary(f"{SERVICE}/ListTaskQueuePartitions")(b"", timeout=60)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
