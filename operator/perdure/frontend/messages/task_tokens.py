"""Task tokens, which identify the task in the response of a worker. They are opaque to workers, and never trusted."""

from typing import Any

import msgspec
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError

from perdure.engine.inputs import TaskToken
from perdure.frontend.errors import invalid, not_found


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
    close_only: bool = False


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
