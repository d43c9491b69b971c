"""The messages between members of a fleet, other than forwarded RPCs."""

from typing import Final, TypeVar

import msgspec

from perdure.api.stored import MessageStruct
from perdure.frontend.errors import unavailable
from perdure.frontend.matching.offers import Poller
from perdure.frontend.matching.queues import Kind, Offer

SERVICE: Final = "perdure.fleet.Peer"
OFFER, TAKE, RETURN, RELOAD, RECHECK = (
    f"/{SERVICE}/{name}" for name in ("Offer", "Take", "Return", "Reload", "Recheck")
)
"""Paths of calls: offer tasks for a member's task queues, take an offered task, return it, announce changed settings, and check
again whether the client of a forwarded poll may still make it."""
MEMBER: Final = "perdure-member"
"""Header with the calling member."""
PRINCIPAL: Final = "perdure-principal-bin"
"""Header with the user that called the member, which has authenticated and authorized the user."""
CALL: Final = "perdure-call"
"""Header with the ID of a forwarded call, for `RECHECK`."""
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
