"""Calls between members as frames over one connection, which need a small part of the CPU time that gRPC needs in Python.

A connection begins with `PREAMBLE`, in the clear, which tells it from one of gRPC. All else is encrypted, if the fleet is. Each
frame is a length in four bytes and one message in MessagePack. The caller first says who it is; then it sends requests, which the
other side answers in any order. A frontend has no port for members, so that side asks it over the same connection whether the
client of a call still waits. Both sides send pings, and close a connection on which nothing has arrived for some seconds.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from perdure.frontend.peers.calls import (
    AUTHORIZATION,
    Ask,
    Caller,
    CallFailedError,
    Failure,
    Headers,
    PeerCall,
    PeerLostError,
    is_too_large,
    stopping,
    too_late,
)
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ, Peer
from perdure.frontend.transport.tls import ServerCertificate
from perdure.kube.clock import monotonic

PREAMBLE: Final = b"perdure1"
"""The first bytes of a connection. Neither TLS nor HTTP/2 begins with them."""
_LENGTH: Final = 4
_HEAD: Final = 128 * 1024
"""The most bytes of a frame besides a message: headers, or the details of an error."""
_LONGEST_HELLO: Final = 16 * 1024
"""The most bytes of a frame of a caller that is not admitted: one with a token."""
_TICK_SECONDS: Final = 1.5
_SILENT_TICKS: Final = 4
"""At this tick without anything from the other side, a connection is lost: each side detects within six seconds that the other is
unreachable, before the other's Lease expires. So no task goes to a poll through a member without network. Ticks are counted, not
seconds: a process that was busy for a while reads what has arrived before the next tick."""
_CONNECT_SECONDS: Final = 5.0
"""How long an attempt to connect may take, with the handshakes: a busy member needs more than a moment."""
_AGAIN_SECONDS: Final = 0.1
"""How long after an attempt has failed calls fail without another one."""


class _Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of messages."""


class _Hello(_Frame, frozen=True, tag=1):
    """The token of the caller from now on."""

    authorization: str


class _Request(_Frame, frozen=True, tag=2):
    number: int
    """Identifies the call on this connection; not zero."""
    path: str
    seconds: float | None
    headers: list[tuple[str, Any]]
    """Each value is text or bytes."""
    body: bytes


class _Cancel(_Frame, frozen=True, tag=3):
    """The caller no longer waits for a response."""

    number: int


class _Ping(_Frame, frozen=True, tag=4):
    """The sender is still there."""


class _Response(_Frame, frozen=True, tag=5):
    number: int
    body: bytes


class _Failed(_Frame, frozen=True, tag=6):
    number: int
    """Zero: the connection was refused, with all its calls."""
    failure: Failure


class _Asked(_Frame, frozen=True, tag=7):
    """The member asks whether the client of a call still waits and may still make it. Only frontends are asked."""

    number: int
    """Identifies the question on this connection."""
    call_id: str


class _Told(_Frame, frozen=True, tag=8):
    """The answer to a question."""

    number: int
    refused: Failure | None
    """Why not; None if it does and may."""


_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(_Hello | _Request | _Cancel | _Ping | _Told)
_responses: Final = msgspec.msgpack.Decoder(_Response | _Failed | _Ping | _Asked)
_Received = TypeVar("_Received")


class _Link(asyncio.Protocol, Generic[_Received]):
    """One end of a connection."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[_Received]", longest: int) -> None:
        """`longest` is the most bytes of a frame that arrives."""
        self._decoder = decoder
        self._longest = longest
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waits = False
        """Whether frames stay in `_received` for now."""
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._silent = 0
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are no subclasses
        self._tick()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._may_write.set()
        if self._ticking is not None:
            self._ticking.cancel()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        self._silent = 0
        self._received += data
        self._read()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    async def send(self, frame: _Frame) -> None:
        """Send a frame, when the other side takes more. Over a lost connection, do nothing."""
        await self._may_write.wait()
        self.send_now(frame)

    def send_now(self, frame: _Frame) -> None:
        """Send a frame even if others wait to be sent."""
        if self._transport is not None and self.is_open:
            content = _encoder.encode(frame)
            self._transport.write(len(content).to_bytes(_LENGTH) + content)

    def _read(self) -> None:
        received = self._received
        while not self._waits and self._transport is not None and len(received) >= _LENGTH:
            end = int.from_bytes(received[:_LENGTH]) + _LENGTH
            if end > self._longest:
                self.abort()
                return
            if len(received) < end:
                return
            try:
                with memoryview(received) as whole, whole[_LENGTH:end] as content:
                    frame = self._decoder.decode(content)
            except msgspec.MsgspecError:
                self.abort()
                return
            del received[:end]
            self._handle(frame)

    def _handle(self, frame: _Received) -> None:
        raise NotImplementedError

    def _tick(self) -> None:
        self._silent += 1
        if self._silent >= _SILENT_TICKS:
            self.abort()
            return
        self.send_now(_Ping())
        self._ticking = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)


# The caller


class _CallingLink(_Link[Any]):
    def __init__(self, asked: Ask | None) -> None:
        super().__init__(_responses, MAX_ANSWER + _HEAD)
        self._asked = asked
        self._telling: set[asyncio.Task[None]] = set()
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0
        self._shown: str | None = None
        """The token that the other side knows."""

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        await self._may_write.wait()
        if not self.is_open:
            raise PeerLostError("the connection is closed")
        if authorization != self._shown:
            self.send_now(_Hello(authorization))
            self._shown = authorization
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        self.send_now(_Request(number, path, seconds, list(headers), body))
        try:
            return await answer
        finally:
            if self._calls.pop(number, None) is not None:
                self.send_now(_Cancel(number))

    async def _tell(self, asked: _Asked) -> None:
        assert self._asked is not None, "only a frontend is asked"
        await self.send(_Told(asked.number, await self._asked(asked.call_id)))

    def _handle(self, frame: Any) -> None:
        if isinstance(frame, _Ping):
            return
        if isinstance(frame, _Asked):
            task = asyncio.get_running_loop().create_task(self._tell(frame), name="question of an operator")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
            return
        if isinstance(frame, _Failed) and not frame.number:
            self._fail(CallFailedError(frame.failure))
            self.close()
            return
        answer = self._calls.pop(frame.number, None)
        if answer is None or answer.done():
            return  # the caller has given up
        if isinstance(frame, _Response):
            answer.set_result(frame.body)
        else:
            answer.set_exception(CallFailedError(frame.failure))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        why = f"the connection broke: {exc!r}" if exc else "the connection was closed"
        self._fail(PeerLostError(why, may_have_acted=True))
        for task in self._telling:
            task.cancel()

    def _fail(self, error: Exception) -> None:
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(error)


class FrameConnection:
    """A connection to another member, which is opened again when a call needs it."""

    def __init__(self, address: str, served: ServerCertificate | None, asked: Ask | None = None) -> None:
        """Create it without connecting.

        Args:
            address: IP address and port.
            served: The certificate that all members share; None without encryption.
            asked: Answers the questions of the member about the calls of a frontend; None if this process is none.
        """
        self._asked = asked
        self._address = address
        self._name = "" if served is None else served.name
        self._secured = None if served is None else _trusting(served)
        self._link: _CallingLink | None = None
        self._connecting: asyncio.Task[_CallingLink] | None = None
        self._is_closed = False

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        """Call the member, as `Connection` describes."""
        if (failure := is_too_large(body)) is not None:
            raise CallFailedError(failure)
        try:
            async with asyncio.timeout(seconds):
                link = self._link
                if link is None or not link.is_open:
                    link = await self._connected()
                return await link.call(path, body, headers, authorization, seconds)
        except TimeoutError:
            raise CallFailedError(too_late()) from None

    async def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._link is not None:
            self._link.close()

    async def _connected(self) -> _CallingLink:
        if self._is_closed:
            raise PeerLostError("the connection is closed")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name="connection to an operator")
            self._connecting.add_done_callback(self._on_connected)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            if self._is_closed:
                raise PeerLostError("the connection is closed") from None
            raise

    def _on_connected(self, done: "asyncio.Task[_CallingLink]") -> None:
        if done.cancelled() or done.exception() is None:
            self._forget_attempt()
        else:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._forget_attempt)

    def _forget_attempt(self) -> None:
        self._connecting = None

    async def _connect(self) -> _CallingLink:
        """Connect.

        Raises:
            PeerLostError: The member could not be reached.
        """
        loop = asyncio.get_running_loop()
        host, _, port = self._address.rpartition(":")
        try:
            ip = ipaddress.ip_address(host.strip("[]"))
            opened = socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6)  # noqa: PLR2004
        except (ValueError, OSError) as error:
            raise PeerLostError(f"{self._address}: {error}") from error
        try:
            opened.setblocking(False)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await loop.sock_connect(opened, (str(ip), int(port)))
                await loop.sock_sendall(opened, PREAMBLE)
                name = None if self._secured is None else self._name
                _, link = await loop.create_connection(
                    partial(_CallingLink, self._asked), sock=opened, ssl=self._secured, server_hostname=name
                )
        except BaseException as error:
            opened.close()
            if isinstance(error, OSError | ValueError):  # also if it takes too long, or the certificate is not trusted
                raise PeerLostError(f"{self._address}: {error!r}") from error
            raise
        self._link = link
        return link


def _trusting(served: ServerCertificate) -> ssl.SSLContext:
    """What members trust: the certificate that they share, and its authorities."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the authority of the certificate may be unknown
    made.load_verify_locations(cadata=served.trusted.decode("ascii"))
    return made


# The member that is called

Admit = Callable[[Headers, Peer], Awaitable[Caller | Failure]]
"""Returns who a caller is, or why it is not admitted."""
Answer = Callable[[PeerCall], Awaitable[bytes | Failure]]
"""Answers a call."""


class _ServingLink(_Link[Any]):
    def __init__(self, server: "FrameServer", peer: Peer) -> None:
        super().__init__(_requests, _LONGEST_HELLO)
        self._server = server
        self._peer = peer
        self._token: Headers | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._admitting: asyncio.Task[None] | None = None
        self._questions: dict[int, asyncio.Future[Failure | None]] = {}
        self._number = 0

    @property
    def tasks(self) -> set["asyncio.Task[None]"]:
        """The calls in progress, and the admission."""
        return {*self._calls.values(), *([self._admitting] if self._admitting is not None else ())}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._server.links.discard(self)
        for task in self.tasks:
            task.cancel()
        for told in self._questions.values():
            told.cancel()

    def _handle(self, frame: Any) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(frame, _Hello):
            is_first, self._token = self._token is None, ((AUTHORIZATION, frame.authorization),)
            if is_first:
                self._hold(True)  # nothing more is read from a stranger
                self._admitting = loop.create_task(self._admit(self._token), name="operator")
        elif isinstance(frame, _Cancel):
            task = self._calls.get(frame.number)
            if task is not None:
                task.cancel()
        elif isinstance(frame, _Told):
            told = self._questions.pop(frame.number, None)
            if told is not None and not told.done():
                told.set_result(frame.refused)
        elif isinstance(frame, _Request):
            if self._token is None:
                self.abort()
            elif self._server.stopping:
                self.send_now(_Failed(frame.number, stopping()))
            else:
                task = loop.create_task(self._answer(frame, self._token), name="call of an operator")
                self._calls[frame.number] = task
                task.add_done_callback(partial(self._on_answered, frame.number))

    def _hold(self, hold: bool) -> None:
        self._waits = hold
        if self._transport is not None:
            if hold:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    async def _ask(self, call_id: str) -> Failure | None:
        self._number += 1
        number = self._number
        told: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        self._questions[number] = told
        try:
            self.send_now(_Asked(number, call_id))
            return await told
        finally:
            self._questions.pop(number, None)

    async def _admit(self, token: Headers) -> None:
        admitted = await self._server.admit(token, self._peer)
        self._admitting = None
        if isinstance(admitted, Failure):
            await self.send(_Failed(0, admitted))
            self.close()
            return
        self._longest = MAX_READ + _HEAD
        self._hold(False)
        self._read()

    async def _answer(self, request: _Request, token: Headers) -> None:
        # Again for each call: its token may have been revoked. What is known of it is cached.
        admitted = await self._server.admit(token, self._peer)
        found: bytes | Failure
        if isinstance(admitted, Failure):
            found = admitted
        else:
            until = None if request.seconds is None else monotonic() + request.seconds
            call = PeerCall(request.path, request.headers, request.body, until, admitted, self._ask)
            found = await self._server.answer(call)
        if isinstance(found, bytes):
            found = is_too_large(found, response=True) or found
        answer = _Response(request.number, found) if isinstance(found, bytes) else _Failed(request.number, found)
        await self.send(answer)

    def _on_answered(self, number: int, _: object) -> None:
        self._calls.pop(number, None)


class FrameServer:
    """The connections of other members to this one."""

    def __init__(self, admit: Admit, answer: Answer, served: ServerCertificate | None) -> None:
        """Create a server without connections.

        Args:
            admit: Authenticates a caller.
            answer: Answers a call.
            served: The certificate that all members share; None without encryption.
        """
        self._secured = None if served is None else served.context()
        self.admit = admit
        self.answer = answer
        self.links: set[_ServingLink] = set()
        self.stopping = False

    async def serve(self, connection: socket.socket, peer: Peer) -> None:
        """Serve a connection whose preamble was read; return after the handshake.

        Raises:
            OSError: The peer speaks no TLS, took too long, or has gone.
        """
        seconds = None if self._secured is None else _CONNECT_SECONDS
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: _ServingLink(self, peer), connection, ssl=self._secured, ssl_handshake_timeout=seconds
        )

    async def stop(self, grace: float) -> None:
        """Close all connections. Calls in progress may end within `grace` seconds; new ones fail."""
        self.stopping = True
        calls = {task for link in self.links for task in link.tasks}
        if calls:
            await asyncio.wait(calls, timeout=grace)
        closing = set(self.links)
        for link in closing:
            for task in link.tasks:
                task.cancel()
            link.close()
        for link in closing:
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*link.tasks, return_exceptions=True)
