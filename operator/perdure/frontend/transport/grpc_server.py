"""RPCs over gRPC: the options of the server, the handlers, and the end of open calls when the operator stops."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import cache
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from perdure.frontend.errors import RpcError, invalid, unavailable
from perdure.frontend.settings import Settings
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ, peer_of, strangers_of
from perdure.frontend.transport.rpc import SERVICES, UNSERVED, Rpc, is_rpc, response_of, service_of

Answer = TypeVar("Answer")
_STREAMS = 500
"""Maximum number of concurrent RPCs per connection, which is enough for a worker with many pollers."""
_GRACE_SECONDS = 0.5
"""How long open calls may continue when the operator stops."""
_ROUND_SECONDS = 0.05
_QUIET_ROUNDS = 6
"""When no call has arrived in this number of rounds in a row, the server stops. The time alone would not show that none
waits: on a busy node, the event loop may not have run for longer."""
_LONGEST_DRAIN_SECONDS = 8.0
"""How long the server waits for that."""
_ABORT_SECONDS = 5.0
"""How long a caller may take to receive its answer."""


class OpenCalls:
    """Ends open calls with UNAVAILABLE, which SDKs retry. gRPC would end them with CANCELLED, which they do not."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any] | None, None] = {}
        """The tasks of the open calls, in order."""
        self._stopping: asyncio.Future[None] | None = None
        """While new calls are held, the future that they wait for; None before."""
        self._held = 0
        """How many calls have arrived that were held."""

    async def handle(self, answer: Awaitable[Answer]) -> Answer:
        """Handle a call in the current task.

        Args:
            answer: The answer of the call.

        Raises:
            RpcError: The call failed, or the operator stops.
        """
        task = asyncio.current_task()
        self._tasks[task] = None
        try:
            if self._stopping is not None:
                self._held += 1
                await asyncio.wait({self._stopping})
                raise _shutting_down()
            return await answer
        except asyncio.CancelledError:
            if task is None or task in self._tasks:
                raise  # the caller has disconnected
            task.uncancel()
            raise _shutting_down() from None
        finally:
            if isinstance(answer, Coroutine):
                answer.close()
            self._tasks.pop(task, None)

    async def drain(self) -> None:
        """Hold new calls until none arrive, and give the open ones time to end.

        When the server stops, gRPC ends the calls that it has not passed on yet with CANCELLED. It passes on one at a time, so
        under load there are many. A client whose calls are held makes no new ones, because it waits for their answers.
        """
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_future()
        began, quiet = loop.time(), 0
        while (passed := loop.time() - began) < _GRACE_SECONDS or (
            quiet < _QUIET_ROUNDS and passed < _LONGEST_DRAIN_SECONDS
        ):
            before = self._held
            await asyncio.sleep(_ROUND_SECONDS)
            quiet = quiet + 1 if self._held == before else 0

    def end(self) -> None:
        """End all open calls."""
        ended, self._tasks = self._tasks, {}
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_future()
        self._stopping.set_result(None)
        for task in ended:
            if task is not None:
                task.cancel()


def _shutting_down() -> RpcError:
    return unavailable("this operator is shutting down; retry")


async def stop(server: grpc.aio.Server, calls: OpenCalls, *drains: Callable[[], Awaitable[None]]) -> None:
    """Stop a server. Each call is answered, or ends with UNAVAILABLE, so that its caller tries another operator.

    Args:
        server: The server.
        calls: Its open calls.
        drains: Called when no new calls are handled, before the open ones end.
    """
    await calls.drain()
    for drain in drains:
        await drain()
    # It sends GOAWAY, so that callers connect elsewhere. Its inner tasks may have been cancelled together with the operator's,
    # which is not a failure.
    stopping = asyncio.ensure_future(server.stop(grace=_ABORT_SECONDS))
    await asyncio.wait({stopping}, timeout=_ROUND_SECONDS)
    calls.end()
    await asyncio.wait({stopping})


def options(settings: Settings) -> list[tuple[str, int]]:
    """Options of gRPC's core: limits of memory, streams, and lifetime for connections."""
    return [
        ("grpc.max_receive_message_length", MAX_READ),
        ("grpc.max_send_message_length", MAX_ANSWER),
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", settings.max_connections + strangers_of(settings.max_connections)),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.http2.settings_timeout", 10_000),
        # This limits the buffered part of an unread message. When a message is read, gRPC opens the window; without
        # bandwidth probing, it does so for no other message.
        ("grpc.http2.lookahead_bytes", 16 * 1024),
        ("grpc.http2.bdp_probe", 0),
        # A lost peer is detected within 40 s. SDKs ping every 30 s; pings more often than every 5 s are rejected.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 3),
        ("grpc.max_connection_idle_ms", 15 * 60_000),
        # Longer than a poll, so that open calls end on an old connection while new calls use a new connection.
        ("grpc.max_connection_age_ms", 60 * 60_000),
        ("grpc.max_connection_age_grace_ms", 120_000),
    ]


def generic_handlers(rpcs: Iterable[Rpc], calls: OpenCalls) -> tuple[grpc.GenericRpcHandler, ...]:
    """Build the handlers for gRPC.

    gRPC sees requests as streams of bytes, so that it reads nothing before the caller is authenticated.

    Args:
        rpcs: The served RPCs.
        calls: Gets the open calls.
    """
    found: dict[str, dict[str, Any]] = {service: {} for service in SERVICES}
    for rpc in rpcs:
        response = response_of(rpc.name)
        found[rpc.service][rpc.name] = grpc.stream_unary_rpc_method_handler(
            _served(rpc, calls), response_serializer=response.SerializeToString
        )
    for name, reason in UNSERVED.items():
        if is_rpc(name):
            found[service_of(name)].setdefault(
                name, grpc.stream_unary_rpc_method_handler(unimplemented_handler(reason))
            )
    return tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in found.items())


class _GrpcCall:
    """An RPC that arrived over gRPC."""

    def __init__(self, rpc: Rpc, context: Any) -> None:
        self._rpc = rpc
        self._context = context
        self.metadata = tuple(context.invocation_metadata() or ())
        self.peer = peer_of(context.peer())

    @property
    def seconds_left(self) -> float | None:
        """Until the caller gives up; None: never."""
        left: float | None = self._context.time_remaining()
        return left

    async def read(self) -> bytes:
        """Read the message."""
        raw = await self._context.read()
        if not isinstance(raw, bytes):
            raise invalid("the call has no message")
        return raw

    def on_sent(self, release: Callable[[], None]) -> None:
        """Call a function once gRPC has passed on the response, or the client has gone."""
        self._context.add_done_callback(lambda _: release())

    async def head(self, raw: bytes) -> Any:
        """Decode the namespace only."""
        return self._decoded(head_of(self._rpc.request.DESCRIPTOR), raw)

    async def decode(self, raw: bytes) -> Any:
        """Decode the message."""
        return self._decoded(self._rpc.request, raw)

    def _decoded(self, kind: Any, raw: bytes) -> Any:
        try:
            return kind.FromString(raw)
        except DecodeError:
            raise invalid(f"the message is not a {self._rpc.name}Request") from None


@cache
def head_of(kind: Any) -> Any:
    """A class of messages that have only those fields of a request that name its namespace. All others it leaves encoded."""
    named = [kind.fields_by_name[name] for name in ("namespace", "id") if name in kind.fields_by_name]
    file = FileDescriptorProto(name=f"{kind.full_name}.head", package="perdure.head", syntax="proto3")
    head = file.message_type.add(name=kind.name)
    for field in named:
        if field.type == FieldDescriptor.TYPE_STRING:
            head.field.add(name=field.name, number=field.number, type=field.type, label=field.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"perdure.head.{kind.name}"))


def _served(rpc: Rpc, calls: OpenCalls) -> Callable[[Any, Any], Awaitable[Any]]:
    async def serve_one(_: Any, context: Any) -> Any:
        try:
            return await calls.handle(rpc.answer(_GrpcCall(rpc, context)))
        except RpcError as error:
            context.set_trailing_metadata(error.trailers())
            await context.abort(error.code, error.message)

    return serve_one


def health_handler() -> grpc.GenericRpcHandler:
    """Build the handler of grpc.health.v1. Any response means healthy; the message is one enum, 1 for SERVING."""

    async def check(unread: Any, context: Any) -> bytes:  # noqa: ARG001 (gRPC's form)
        return b"\x08\x01"

    methods = {"Check": grpc.stream_unary_rpc_method_handler(check)}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)


def unimplemented_handler(reason: str) -> Callable[[Any, Any], Any]:
    """Return a handler that responds with UNIMPLEMENTED and the reason, without reading the message."""

    async def refuse(unread: Any, context: Any) -> NoReturn:  # noqa: ARG001 (gRPC's form)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, reason)
        raise AssertionError  # `abort` raises

    return refuse
