"""Tokens that callers send back: those of tasks, in the responses of workers, and those of the pages of lists and histories.

They are opaque to callers, and never trusted. A token may come back to an operator of another version, which ignores the fields
that it does not know.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError

from perdure.archive.rows import EPOCH, Position, microseconds
from perdure.engine.inputs import TaskToken
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.messages.histories import MAX_BYTES


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="k", tag=True):
    """The common fields of all tokens."""

    namespace: str
    run_id: str
    workflow_id: str = ""


class WorkflowTaskToken(Token, frozen=True, kw_only=True, tag="w"):
    """Identifies a dispatched workflow task."""

    scheduled: int
    started: int
    attempt: int
    epoch: str

    def engine(self) -> TaskToken:
        """The token of the engine."""
        return TaskToken(
            scheduled_event_id=self.scheduled, started_event_id=self.started, attempt=self.attempt, epoch=self.epoch
        )


class ActivityToken(Token, frozen=True, kw_only=True, tag="a"):
    """Identifies a dispatched attempt of an activity."""

    scheduled: int
    attempt: int
    fence: str
    activity_id: str = ""


class QueryToken(Token, frozen=True, kw_only=True, tag="q"):
    """Identifies a query that is not attached to a workflow task."""

    query: str


class NexusToken(Token, frozen=True, kw_only=True, tag="n"):
    """Identifies a call of a Nexus handler in the handler's namespace. `run_id` is empty, because the call has it."""

    call: str
    shard: int = 0
    """The shard of the run that waits for the call."""


class PageToken(Token, frozen=True, kw_only=True, tag="h"):
    """The position of the next page of a history."""

    from_event_id: int


AnyToken = WorkflowTaskToken | ActivityToken | QueryToken | NexusToken | PageToken
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyToken)


def pack(token: Token) -> bytes:
    """Encode a token."""
    return _encoder.encode(token)


def unpack(raw: bytes, kind: type[Any] | tuple[type[Any], ...], namespace: str) -> Any:
    """Decode a token of one of the given kinds.

    Raises:
        RpcError: The token is not valid, or belongs to another namespace or server.
    """
    try:
        token = _decoder.decode(raw)
    except msgspec.MsgspecError:
        if kind is not PageToken and _of_a_temporal_server(raw):
            raise not_found("The task of this token does not exist on this server.") from None
        raise invalid("Invalid TaskToken.") from None
    if not isinstance(token, kind) or token.namespace != namespace:
        raise invalid("Invalid TaskToken.")
    return token


def _of_a_temporal_server(raw: bytes) -> bool:
    """Whether the bytes are a protobuf message, like the tokens of Temporal's server, and unlike Perdure's."""
    if not raw:
        return False
    try:
        Empty.FromString(raw)
    except DecodeError:
        return False
    return True


# Pages of lists: the token of a page is the position of its first item

_Item = TypeVar("_Item")
_DIGITS = 18


def page_size(requested: int, limit: int) -> int:
    """The size of a page: the requested number, up to the maximum."""
    return min(requested, limit) if requested > 0 else limit


def page_of(
    items: Sequence[_Item], token: bytes, size: int, limit: int, weigh: Callable[[_Item], int] = lambda _: 0
) -> tuple[Sequence[_Item], bytes]:
    """Return one page of a list, and the token of the next page, which is empty for the last page.

    Args:
        items: The whole list.
        token: The token from the previous page; empty for the first page.
        size: The requested number of items.
        limit: The maximum number of items.
        weigh: Returns the size of an item in the response, in bytes.

    Raises:
        RpcError: The token is invalid.
    """
    if token and (not token.isdigit() or len(token) > _DIGITS):
        raise invalid("invalid next_page_token")
    start = int(token or b"0")
    end = start + page_length(items[start : start + page_size(size, limit)], weigh)
    return items[start:end], str(end).encode() if end < len(items) else b""


class _ListToken(msgspec.Struct, frozen=True, rename={"microseconds": "t", "run_id": "r"}):
    """The position of the last run of a page of a list, so that the next page begins there whatever happens to its runs."""

    microseconds: int
    run_id: str


_list_tokens = msgspec.json.Decoder(_ListToken)


def token_at(position: Position) -> bytes:
    """The token of the page after a position in a list of runs."""
    time, run_id = position
    return _encoder.encode(_ListToken(microseconds(time), run_id))


def position_in(token: bytes) -> Position | None:
    """The position in a token; None for the first page.

    Raises:
        RpcError: The token is invalid.
    """
    if not token:
        return None
    try:
        found = _list_tokens.decode(token)
        return EPOCH + timedelta(microseconds=found.microseconds), found.run_id
    except (msgspec.MsgspecError, OverflowError):
        raise invalid("invalid next_page_token") from None


def page_length(items: Sequence[_Item], weigh: Callable[[_Item], int]) -> int:
    """How many items from the start of a list fit into one response: at least one, if the list is not empty."""
    total = 0
    for count, item in enumerate(items):
        total += weigh(item)
        if total > MAX_BYTES and count:
            return count
    return len(items)
