"""The messages between members of a fleet, other than forwarded RPCs."""

from typing import Final, TypeVar

import msgspec

from perdure.frontend.matching import Poller
from perdure.frontend.queues import Kind, Offer

SERVICE: Final = "perdure.fleet.Peer"
OFFER, TAKE, RETURN, RELOAD, RECHECK = (
    f"/{SERVICE}/{name}" for name in ("Offer", "Take", "Return", "Reload", "Recheck")
)
"""Paths: offer tasks to the owner of their queues, hand out a task, take back a task that the worker did not receive, read
settings again, and check again whether the client of a forwarded call may still make it."""
MEMBER: Final = "perdure-member"
"""Header: the member that calls."""
PRINCIPAL: Final = "perdure-principal-bin"
"""Header: the user that has called the member, which has authenticated and authorized it."""
CALL: Final = "perdure-call"
"""Header: the ID of a forwarded call, for `RECHECK`."""
PINGS: Final = [
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
"""Options of both sides: each notices within six seconds that the other has vanished, before the Lease of that one expires. So no
task goes to a poll that came through a member that has lost its network."""
SIZES: Final = [("grpc.max_metadata_size", 64 * 1024), ("grpc.absolute_max_metadata_size", 64 * 1024)]
"""Options of both sides: room for the headers of a client next to those of members, and for the details of an error."""
ANSWER: Final = "perdure-answer"
"""Trailer of errors: what the member says, in contrast to one that was not reached."""
HANDLED, NOT_OWNER = "handled", "not-owner"
"""The error is the answer; or the member does not own what the RPC is about, and has done nothing."""

Message = TypeVar("Message")


class OfferTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A worker gets what was offered."""

    kind: Kind
    offer: Offer
    poller: Poller


def pack(message: object) -> bytes:
    """A message as bytes."""
    return msgspec.msgpack.encode(message)


def unpack(raw: bytes, kind: type[Message]) -> Message:
    """A message of a kind.

    Raises:
        ValueError: it is another one.
    """
    return msgspec.msgpack.decode(raw, type=kind)
