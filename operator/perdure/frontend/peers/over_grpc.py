"""Calls between members over gRPC: members of versions before 0.2.0 know no frames.

A member listens at one port. It passes the connections of such members on to a gRPC server within the process, unchanged.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import grpc
import grpc.aio

from perdure.frontend.errors import STATUS_DETAILS
from perdure.frontend.peers.calls import (
    AUTHORIZATION,
    HANDLED,
    CallFailedError,
    Failure,
    Headers,
    PeerCall,
)
from perdure.frontend.peers.frames import Admit, Answer
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ, Peer, peer_of
from perdure.frontend.transport.tls import ServerCertificate
from perdure.kube.clock import monotonic

_ANSWER: Final = "perdure-answer"
"""Trailer of errors that come from the member itself, and not from a failed connection."""
_PINGS: Final = [
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Options of both sides: each detects within six seconds that the other is unreachable, as over frames."""
_SIZES: Final = [("grpc.max_metadata_size", 64 * 1024), ("grpc.absolute_max_metadata_size", 64 * 1024)]
"""Options of both sides: room for the headers of a client next to those of members, and for the details of an error."""
_CLIENT: Final = [
    ("grpc.max_send_message_length", MAX_READ),
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.use_local_subchannel_pool", 1),
    *_PINGS,
    *_SIZES,
    ("grpc.initial_reconnect_backoff_ms", 100),
    # gRPC gives up an attempt to connect, with the handshakes, after this time: a busy member needs more than a moment.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_SERVER: Final = [
    ("grpc.max_receive_message_length", MAX_READ),
    ("grpc.max_send_message_length", MAX_ANSWER),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 100_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    *_PINGS,
    *_SIZES,
    ("grpc.http2.lookahead_bytes", 16 * 1024),
    ("grpc.http2.bdp_probe", 0),
]
_STOP_SECONDS: Final = 0.5
_CHUNK: Final = 64 * 1024


class GrpcConnection:
    """A connection to a member that knows no frames."""

    def __init__(self, address: str, served: ServerCertificate | None) -> None:
        """Create it without connecting.

        Args:
            address: IP address and port.
            served: The certificate that all members share; None without encryption.
        """
        if served is None:
            self._channel = grpc.aio.insecure_channel(address, options=_CLIENT)
        else:
            name = ("grpc.ssl_target_name_override", served.name)
            credentials = grpc.ssl_channel_credentials(served.trusted)
            self._channel = grpc.aio.secure_channel(address, credentials, options=[*_CLIENT, name])

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        """Call the member, as `Connection` describes."""
        rpc = self._channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        token = [(AUTHORIZATION, authorization)] if authorization else []
        try:
            response: bytes = await rpc(body, timeout=seconds, metadata=[*headers, *token])
        except grpc.aio.AioRpcError as error:
            raise CallFailedError(_failure(error)) from None
        return response

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _failure(error: grpc.aio.AioRpcError) -> Failure:
    trailers = dict(error.trailing_metadata() or ())
    answer, details = trailers.get(_ANSWER, ""), trailers.get(STATUS_DETAILS, b"")
    return Failure(
        error.code().value[0],
        error.details() or "",
        answer if isinstance(answer, str) else "",
        details if isinstance(details, bytes) else b"",
    )


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC has no types
    """Answers the calls of all paths."""

    def __init__(self, admit: Admit, answer: Answer, peers: dict[str, Peer]) -> None:
        self._admit = admit
        self._answer = answer
        self._peers = peers
        """The peers whose connections are passed on, by gRPC's name of the connection within the process."""

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method

        async def serve(_: Any, context: Any) -> bytes:
            return await self._serve(path, context)

        return grpc.stream_unary_rpc_method_handler(serve)

    async def _serve(self, path: str, context: Any) -> bytes:
        headers = tuple(context.invocation_metadata() or ())
        peer = self._peers.get(context.peer()) or peer_of(context.peer())
        admitted = await self._admit(headers, peer)
        found: bytes | Failure
        if isinstance(admitted, Failure):
            found = admitted
        else:
            raw = await context.read()  # only now, so that nothing is read from unauthenticated callers
            left = context.time_remaining()
            until = None if left is None else monotonic() + left
            passed = tuple((key, value) for key, value in headers if key != AUTHORIZATION)
            if isinstance(raw, bytes):
                found = await self._answer(PeerCall(path, passed, raw, until, admitted))
            else:
                found = Failure(grpc.StatusCode.INVALID_ARGUMENT.value[0], "the call has no message", HANDLED)
        if isinstance(found, bytes):
            return found
        details = ((STATUS_DETAILS, found.details),) if found.details else ()
        context.set_trailing_metadata((*(((_ANSWER, found.answer),) if found.answer else ()), *details))
        await context.abort(_CODES[found.code], found.message)
        raise AssertionError  # `abort` raises


_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

Carry = Callable[[bytes, socket.socket, Peer], Coroutine[Any, Any, None]]
"""Passes a connection on, whose first bytes were read, until it ends."""


@asynccontextmanager
async def serving_grpc(admit: Admit, answer: Answer, served: ServerCertificate | None) -> AsyncIterator[Carry]:
    """Serve members that know no frames within the block; yield what passes their connections on.

    Args:
        admit: Authenticates a caller.
        answer: Answers a call.
        served: The certificate that all members share; None without encryption.
    """
    peers: dict[str, Peer] = {}
    server = grpc.aio.server(options=_SERVER)
    address = "127.0.0.1:0"
    port = (
        server.add_insecure_port(address) if served is None else server.add_secure_port(address, served.credentials())
    )
    server.add_generic_rpc_handlers((_Handlers(admit, answer, peers),))
    await server.start()

    async def carry(first: bytes, connection: socket.socket, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        with connection, socket.socket() as inner, suppress(OSError):
            inner.setblocking(False)
            await loop.sock_connect(inner, ("127.0.0.1", port))
            name = f"ipv4:127.0.0.1:{inner.getsockname()[1]}"
            peers[name] = peer
            try:
                await loop.sock_sendall(inner, first)
                ways = [asyncio.ensure_future(_copy(*each)) for each in ((connection, inner), (inner, connection))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.wait(ways)
            finally:
                del peers[name]

    try:
        yield carry
    finally:
        await asyncio.wait({asyncio.ensure_future(server.stop(grace=_STOP_SECONDS))})


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while content := await loop.sock_recv(source, _CHUNK):
            await loop.sock_sendall(target, content)
