"""Call other members of the fleet: their connections, and the messages other than forwarded RPCs."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import msgspec
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import GrpcStatus

from perdure.api.stored import MessageStruct
from perdure.controller.state_versions import state_versions
from perdure.frontend.errors import STATUS_DETAILS, RpcError, unavailable
from perdure.frontend.matching.queues import Kind, Offer, Poller
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ
from perdure.frontend.transport.tls import ServerCertificate

SERVICE: Final = "perdure.fleet.Peer"
OFFER, TAKE, RETURN, RELOAD, RECHECK, END_POLLS = (
    f"/{SERVICE}/{name}" for name in ("Offer", "Take", "Return", "Reload", "Recheck", "EndPolls")
)
"""Paths of calls: offer tasks for a member's task queues, take an offered task, return it, announce changed settings, check
again whether the client of a forwarded poll may still make it, and end the polls that the caller has forwarded."""
MEMBER: Final = "perdure-member"
"""Header with the calling member."""
PRINCIPAL: Final = "perdure-principal-bin"
"""Header with the user that called the member, which has authenticated and authorized the user."""
CALL: Final = "perdure-call"
"""Header with the ID of a forwarded call, for `RECHECK`."""
VERSION: Final = "perdure-state-version"
"""Header with the state version of the message."""
PINGS: Final = [
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Options of both sides: each detects within six seconds that the other is unreachable, before the other's Lease expires. So no
task goes to a poll through a member without network."""
SIZES: Final = [("grpc.max_metadata_size", 64 * 1024), ("grpc.absolute_max_metadata_size", 64 * 1024)]
"""Options of both sides: room for the headers of a client next to those of members, and for the details of an error."""
ANSWER: Final = "perdure-answer"
"""Trailer of errors that come from the member itself, and not from a failed connection."""
HANDLED, NOT_OWNER = "handled", "not-owner"
"""Values: the error is the response to the RPC, or the member does not own the shard of the RPC and has done nothing."""

_RESERVED: Final = frozenset({"authorization", "user-agent", "te", "content-type", CALL, MEMBER, PRINCIPAL, VERSION})
"""Headers of a caller that are not passed on."""
_OPTIONS: Final = [
    ("grpc.max_send_message_length", MAX_READ),
    ("grpc.max_receive_message_length", MAX_ANSWER),
    ("grpc.use_local_subchannel_pool", 1),
    *PINGS,
    *SIZES,
    ("grpc.initial_reconnect_backoff_ms", 100),
    # gRPC gives up an attempt to connect, with the handshakes, after this time: a busy member needs more than a moment.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_OF_CALLS: Final = frozenset({grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""Codes with which gRPC itself ends a call that takes too long or is too large. Another member would not do better."""

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


class PeerLostError(Exception):
    """A member could not be reached, or stopped before it responded."""


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


@dataclass(slots=True)
class _Connection:
    """A connection to a member."""

    channel: Any
    calls: int = 0
    """The number of calls in progress."""


def open_channel(address: str, served: ServerCertificate | None) -> Any:
    """Open a connection to an address: encrypted with a certificate, or not encrypted without one."""
    if served is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    name = ("grpc.ssl_target_name_override", served.name)
    credentials = grpc.ssl_channel_credentials(served.trusted)
    return grpc.aio.secure_channel(address, credentials, options=[*_OPTIONS, name])


class PeerClient:
    """The connections to other members."""

    def __init__(
        self,
        identity: PeerIdentity,
        addresses: Callable[[], Mapping[str, str]],
        channel: Callable[[str, ServerCertificate | None], Any] = open_channel,
    ) -> None:
        """Create a client without connections.

        Args:
            identity: The credentials of this member.
            addresses: Returns the addresses of the other members by name.
            channel: Opens a connection to an address, with a certificate for encryption.
        """
        self._identity = identity
        self.addresses = addresses
        self._open = channel
        self._connections: dict[tuple[str, bytes], _Connection] = {}
        """By address and certificate."""
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
        metadata: tuple[tuple[str, str | bytes], ...] = (),
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
            PeerLostError: The member could not be reached or has stopped, or this member has no token.
            NotOwnerError: The member has rejected the RPC, and has done nothing.
            RpcError: The error that the member returned.
        """
        address = self.addresses().get(member, "")
        if not address:
            raise PeerLostError(f"{member} has left the fleet")
        try:
            headers = self._headers(metadata, principal, call_id)
        except OSError as error:
            raise PeerLostError(f"the token for other operators cannot be read: {error}") from error
        connection = self._connection(address)
        rpc = connection.channel.unary_unary(path, request_serializer=encode, response_deserializer=decode)
        connection.calls += 1
        try:
            return await rpc(request, timeout=seconds, metadata=headers)
        except grpc.aio.AioRpcError as error:
            raise _failure(member, error) from None
        finally:
            connection.calls -= 1
            self.close_unused()

    def _headers(
        self, metadata: tuple[tuple[str, str | bytes], ...], principal: str, call_id: str
    ) -> list[tuple[str, str | bytes]]:
        passed = [(key, value) for key, value in metadata if key not in _RESERVED and not key.startswith("grpc-")]
        headers = [*passed, (MEMBER, self._identity.name), (PRINCIPAL, principal.encode()), (CALL, call_id)]
        headers.append((VERSION, str(state_versions().writes)))
        if self._identity.token is not None:
            headers.append(("authorization", f"Bearer {self._identity.token.read_text(encoding='ascii').strip()}"))
        return headers

    def _connection(self, address: str) -> _Connection:
        key = address, self._certificate
        connection = self._connections.get(key)
        if connection is None:
            self._connections[key] = connection = _Connection(self._open(address, self._identity.served))
        return connection

    @property
    def _certificate(self) -> bytes:
        served = self._identity.served
        return served.material.certificate if served is not None else b""

    def close_unused(self) -> None:
        """Close the connections to members that are gone, and those with an earlier certificate, once their calls have ended."""
        used = {(address, self._certificate) for address in self.addresses().values()}
        for key in [key for key, each in self._connections.items() if key not in used and not each.calls]:
            closing = asyncio.ensure_future(self._connections.pop(key).channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(each.channel.close() for each in connections.values()), *self._closing)


def _failure(member: str, error: grpc.aio.AioRpcError) -> Exception:
    trailers = dict(error.trailing_metadata() or ())
    answer = trailers.get(ANSWER)
    if answer == NOT_OWNER:
        return NotOwnerError(member)
    if answer != HANDLED and error.code() not in _OF_CALLS:
        return PeerLostError(f"{member}: {error.code().name}: {error.details()}")
    status, raw = None, trailers.get(STATUS_DETAILS)
    if isinstance(raw, bytes):
        try:
            status = GrpcStatus.FromString(raw)
        except DecodeError:
            status = None
    return ForwardedError(error.code(), error.details() or "", status)
