"""A call from one member of the fleet to another, whatever carries it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

import grpc

from perdure.api.stored import MessageStruct
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ
from perdure.kube.clock import monotonic

Headers = Sequence[tuple[str, str | bytes]]
"""The headers of a call, with lowercase names."""

SERVICE: Final = "perdure.fleet.Peer"
OFFER, PLACE, TAKE, RETURN, RELOAD, RECHECK, END_POLLS = (
    f"/{SERVICE}/{name}" for name in ("Offer", "Place", "Take", "Return", "Reload", "Recheck", "EndPolls")
)
"""Paths of calls: offer tasks for a member's task queues and ask which of them workers poll, offer tasks without that question
(which members that are called over gRPC do not know), take an offered task, return it, announce changed settings, check again
whether the client of a forwarded poll may still make it, and end the polls that the caller has forwarded."""
MEMBER: Final = "perdure-member"
"""Header with the calling member."""
PRINCIPAL: Final = "perdure-principal-bin"
"""Header with the user that called the member, which has authenticated and authorized the user."""
CALL: Final = "perdure-call"
"""Header with the ID of a forwarded call, for `RECHECK`."""
VERSION: Final = "perdure-state-version"
"""Header with the state version of the message."""
FRONTEND: Final = "perdure-frontend"
"""Header of calls from a frontend that is a process of its own. It is ignored with authentication, which tells callers apart."""
AUTHORIZATION: Final = "authorization"
"""Header with the token of the calling member."""
HANDLED, NOT_OWNER, LOST = "handled", "not-owner", "lost"
"""What a failure says: the error is the response to the RPC; the member does not own the shard of the RPC and has done nothing;
or it has lost the shard while it handled the RPC, and may have done all of it or a part."""


class Failure(MessageStruct, frozen=True, array_like=True):
    """Why a call failed."""

    code: int
    """The gRPC code."""
    message: str
    answer: str = ""
    """`HANDLED`, `NOT_OWNER`, or `LOST`; empty if the failure is not an answer of the member, but one of the connection."""
    details: bytes = b""
    """The status with the details of the error; empty if there are none."""


class CallFailedError(Exception):
    """A call failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class PeerLostError(Exception):
    """A member could not be reached, or it stopped, or lost the shard of the call, before it responded."""

    def __init__(self, message: str, *, may_have_acted: bool = False) -> None:
        """`may_have_acted`: whether the member may have got the call, and done all of it or a part."""
        super().__init__(message)
        self.may_have_acted = may_have_acted


class Caller(Enum):
    """Who calls a member."""

    MEMBER = "member"
    """Another member of the fleet, or an operator of an earlier version."""
    FRONTEND = "frontend"
    """A frontend that is a process of its own. It forwards the RPCs of its callers, which it has authenticated, and no more."""


Ask = Callable[[str], Awaitable[Failure | None]]
"""Asks the caller of a forwarded call whether its client still waits, and may still make the call. Returns why not."""


@dataclass(frozen=True, slots=True)
class PeerCall:
    """A call of another member that has arrived."""

    path: str
    headers: Headers
    """Without the token."""
    body: bytes
    until: float | None
    """When the caller gives up, on the monotonic clock, in seconds; None: never."""
    caller: Caller = Caller.MEMBER
    ask: Ask | None = None
    """Asks the caller over the connection of the call; None if it knows no such questions."""

    def header(self, name: str) -> str:
        """A header; empty if the caller has not sent it."""
        return header_in(self.headers, name)

    @property
    def seconds_left(self) -> float | None:
        """The time until the caller gives up; None: never."""
        return None if self.until is None else max(self.until - monotonic(), 0.0)


class Connection(Protocol):
    """A connection to another member, which connects when it is needed."""

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        """Call the member.

        Args:
            path: The path of the call.
            body: The message.
            headers: The headers without the token.
            authorization: The header with the token; empty without authentication.
            seconds: The timeout; None: no timeout.

        Raises:
            CallFailedError: The member, or the connection, has failed the call.
            PeerLostError: The member could not be reached, or the connection broke.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


def header_in(headers: Headers, name: str) -> str:
    """The value of a header; empty if it is missing."""
    value = next((value for key, value in headers if key == name), "")
    return value.decode() if isinstance(value, bytes) else value


def too_late() -> Failure:
    """The failure of a call that took longer than its timeout."""
    return Failure(_number(grpc.StatusCode.DEADLINE_EXCEEDED), "Deadline Exceeded")


def stopping() -> Failure:
    """The failure of a call to a member that stops. It has done nothing."""
    return Failure(_number(grpc.StatusCode.UNAVAILABLE), "the operator is shutting down")


def is_too_large(body: bytes, *, response: bool = False) -> Failure | None:
    """The failure of a call whose message or response is too large; None if it is not."""
    limit = MAX_ANSWER if response else MAX_READ
    if len(body) <= limit:
        return None
    what = "response" if response else "message"
    return Failure(
        _number(grpc.StatusCode.RESOURCE_EXHAUSTED), f"the {what} is larger than max ({len(body)} vs. {limit})"
    )


def _number(code: grpc.StatusCode) -> int:
    return int(code.value[0])
