"""Call other members of the fleet: their connections, and the messages other than forwarded RPCs."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import msgspec
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import GrpcStatus

from perdure.api.stored import MessageStruct
from perdure.controller.state_versions import state_versions
from perdure.frontend.errors import STATUS_DETAILS, RpcError, unavailable
from perdure.frontend.matching.queues import Kind, Offer, Poller
from perdure.frontend.peers.calls import (
    AUTHORIZATION,
    CALL,
    FRONTEND,
    HANDLED,
    LOST,
    MEMBER,
    NOT_OWNER,
    PRINCIPAL,
    VERSION,
    Ask,
    CallFailedError,
    Connection,
    Failure,
    Headers,
    PeerLostError,
)
from perdure.frontend.peers.frames import FrameConnection
from perdure.frontend.peers.over_grpc import GrpcConnection
from perdure.frontend.transport.tls import ServerCertificate

_RESERVED: Final = frozenset(
    {AUTHORIZATION, "user-agent", "te", "content-type", CALL, FRONTEND, MEMBER, PRINCIPAL, VERSION}
)
"""Headers of a caller that are not passed on."""
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_OF_CALLS: Final = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""Codes with which a connection itself ends a call that takes too long or is too large. Another member would not do better."""

Message = TypeVar("Message")


class OfferTaken(MessageStruct, frozen=True, kw_only=True):
    """An offered task that a worker takes, or that it did not receive."""

    kind: Kind
    offer: Offer
    poller: Poller


def pack(message: object) -> bytes:
    """Encode a message."""
    return msgspec.msgpack.encode(message)


def unpack(raw: bytes, kind: type[Message]) -> Message:
    """Decode a message.

    Raises:
        RpcError: An operator of another version has sent it, and this version cannot read all of it.
    """
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.MsgspecError as error:
        raise unavailable(
            f"an operator of another version has sent a message that this one cannot read: {error}"
        ) from error


class NotOwnerError(Exception):
    """A member rejected an RPC because it does not own the shard; nothing was done."""


class ForwardedError(RpcError):
    """The error that another member returned for an RPC."""

    def __init__(self, code: grpc.StatusCode, message: str, status: GrpcStatus | None) -> None:
        """`status` has the details; None if there are none."""
        super().__init__(code, message, status)
        self._status = status

    def status(self) -> GrpcStatus:
        """The status from the other member."""
        return self._status if self._status is not None else super().status()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """The credentials with which this process calls other members, and the certificate for encryption."""

    name: str
    """The name of this member."""
    token: Path | None = None
    """File with a token of the ServiceAccount for the audience of members; None without authentication."""
    served: ServerCertificate | None = None
    """The certificate, which all members share; None without encryption."""
    is_frontend: bool = False
    """Whether this process is a frontend, and not a member."""


class _Token:
    """A token in a file, which Kubernetes renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._header = ""

    def header(self) -> str:
        """The header with the token.

        Raises:
            OSError: The file cannot be read.
        """
        found = self._path.stat()
        seen = found.st_mtime_ns, found.st_ino, found.st_size
        if seen != self._seen:
            self._header, self._seen = f"Bearer {self._path.read_text(encoding='ascii').strip()}", seen
        return self._header


@dataclass(slots=True)
class _Open:
    """A connection to a member."""

    connection: Connection
    calls: int = 0
    """The number of calls in progress."""


_Key = tuple[str, bytes, bool]
"""The address of a member, the certificate, and whether it takes calls over gRPC only."""


def open_connection(
    address: str, served: ServerCertificate | None, *, over_grpc: bool, asked: Ask | None = None
) -> Connection:
    """Open a connection to an address: encrypted with a certificate, or not encrypted without one."""
    return GrpcConnection(address, served) if over_grpc else FrameConnection(address, served, asked)


class PeerClient:
    """The connections to other members."""

    def __init__(
        self,
        identity: PeerIdentity,
        addresses: Callable[[], Mapping[str, str]],
        *,
        over_grpc: Callable[[], Collection[str]] = frozenset,
        connect: Callable[..., Connection] = open_connection,
    ) -> None:
        """Create a client without connections.

        Args:
            identity: The credentials of this member.
            addresses: Returns the addresses of the other members by name.
            over_grpc: Returns the members that take calls over gRPC only.
            connect: Opens a connection, as `open_connection` does.
        """
        self._identity = identity
        self._token = None if identity.token is None else _Token(identity.token)
        self.addresses = addresses
        self._over_grpc = over_grpc
        self._connect = connect
        self._connections: dict[_Key, _Open] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def call(
        self,
        member: str,
        path: str,
        request: Any,
        *,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        seconds: float | None,
        metadata: Headers = (),
        principal: str = "",
        call_id: str = "",
    ) -> Any:
        """Call a member.

        Args:
            member: The name of the member.
            path: The path of the RPC.
            request: The message.
            encode: Encodes the message.
            decode: Decodes the response.
            seconds: The timeout; None: no timeout.
            metadata: The headers of the client whose RPC is forwarded.
            principal: The user that made the call.
            call_id: The ID of a forwarded poll; empty for other calls.

        Raises:
            PeerLostError: The member could not be reached, has stopped or lost the shard, or this member has no token.
            NotOwnerError: The member has rejected the RPC, and has done nothing.
            RpcError: The error that the member returned.
        """
        address = self.addresses().get(member, "")
        if not address:
            raise PeerLostError(f"{member} has left the fleet")
        try:
            authorization = self._token.header() if self._token is not None else ""
        except OSError as error:
            raise PeerLostError(f"the token for other operators cannot be read: {error}") from error
        headers = self._headers(metadata, principal, call_id)
        opened = self._connection(member, address)
        opened.calls += 1
        try:
            return decode(await opened.connection.call(path, encode(request), headers, authorization, seconds))
        except CallFailedError as error:
            raise _error(member, error.failure) from None
        finally:
            opened.calls -= 1
            self.close_unused()

    def _headers(self, metadata: Headers, principal: str, call_id: str) -> Headers:
        passed = [(key, value) for key, value in metadata if key not in _RESERVED and not key.startswith("grpc-")]
        return [
            *passed,
            (MEMBER, self._identity.name),
            (PRINCIPAL, principal.encode()),
            (CALL, call_id),
            (VERSION, str(state_versions().writes)),
            *([(FRONTEND, "true")] if self._identity.is_frontend else ()),
        ]

    def _connection(self, member: str, address: str) -> _Open:
        key = self._key(member, address)
        opened = self._connections.get(key)
        if opened is None:
            connection = self._connect(address, self._identity.served, over_grpc=key[2])
            self._connections[key] = opened = _Open(connection)
        return opened

    def _key(self, member: str, address: str) -> _Key:
        served = self._identity.served
        return address, served.material.certificate if served is not None else b"", member in self._over_grpc()

    def close_unused(self) -> None:
        """Close the connections to members that are gone, and those with an earlier certificate, once their calls have ended."""
        used = {self._key(*each) for each in self.addresses().items()}
        for key in [key for key, each in self._connections.items() if key not in used and not each.calls]:
            closing = asyncio.ensure_future(self._connections.pop(key).connection.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(each.connection.close() for each in connections.values()), *self._closing)


def _error(member: str, failure: Failure) -> Exception:
    """What a caller gets for a failure."""
    if failure.answer == NOT_OWNER:
        return NotOwnerError(member)
    error = error_of(failure)
    if failure.answer != HANDLED and error.code not in _OF_CALLS:
        message = f"{member}: {error.code.name}: {failure.message}"
        return PeerLostError(message, may_have_acted=failure.answer == LOST)
    return error


def error_of(failure: Failure) -> RpcError:
    """The error that a process has sent as a failure."""
    status = None
    if failure.details:
        try:
            status = GrpcStatus.FromString(failure.details)
        except DecodeError:
            status = None
    return ForwardedError(_CODES.get(failure.code, grpc.StatusCode.UNKNOWN), failure.message, status)


def failure_of(error: RpcError, answer: str = "") -> Failure:
    """An error as a failure."""
    details = dict(error.trailers()).get(STATUS_DETAILS, b"")
    return Failure(int(error.code.value[0]), error.message, answer, details)
