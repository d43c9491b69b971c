"""Responses as plain data in which nothing is left that differs between two servers, or two calls, by its nature.

A field is there if it is set: an empty message is `{}`, a scalar with its default value is absent, as on the wire. Times become
`<time>`, tokens `<token>`; each generated ID becomes the name of the field in which it is first seen, so that it
still shows which IDs are the same.
"""

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.errordetails import v1 as _known  # noqa: F401 (what details of errors consist of)

Json = Any
_GENERATED = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SERVER = re.compile(r"\b\d+@[\w.-]+@")
"""The identity of a process of Temporal's server."""
_PROTO = re.compile(r"\bproto:\s+")
"""How errors of Go's protobuf begin: after the colon is a space or a no-break space, which differs between builds."""
_NATURES = (
    ("token", "<token>"),
    ("namespace_id", "<namespace id>"),
    ("state_transition_count", "<number>"),
    ("history_size_bytes", "<number>"),
    ("execution_duration", "<duration>"),
)
"""Names of fields with values that only the server understands, or that depend on how it counts."""


_CRON_WAIT = "first_workflow_task_backoff"
"""With a cron schedule, how long it is depends on when the run before has ended."""
_UNSTEADY = {
    "backlog_count_hint",
    "current_retry_interval",
    "custom_search_attribute_aliases",
    "poller_group_infos",
    "poller_group_id",
    "poller_scaling_decision",
    "state_size_bytes",
    "stats",
    "stats_by_priority_key",
    "task_id",
}
"""Fields that say how busy a server is or how it keeps its data; even their presence changes from call to call."""

_UNORDERED = {
    "pending_activities": "activity_id",
    "pending_children": "initiated_id",
    "pending_nexus_operations": "scheduled_event_id",
}
"""Lists that Temporal's server fills in random order, and the fields that put them into one."""


@dataclass
class Normalizer:
    """Turns the messages of one scenario into plain data."""

    suffix: str
    """The part that makes the scenario's own names unique."""
    namespace: str
    names: dict[str, str] = field(default_factory=dict)

    def message(self, message: Message) -> Json:
        """A message as a dictionary of the fields that are set."""
        match message.DESCRIPTOR.full_name:
            case "google.protobuf.Timestamp":
                return "<time>" if message.seconds > 0 else "<zero time>"  # type: ignore[attr-defined]
            case "google.protobuf.Duration":
                return _length(message.ToTimedelta().total_seconds())  # type: ignore[attr-defined]
            case "google.protobuf.Any":
                return self._any(message)
            case "temporal.api.common.v1.Payload":
                return self._payload(message)
        made = {}
        for descriptor, value in message.ListFields():
            if descriptor.name in _UNSTEADY:
                continue
            if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
                plain = {
                    self._text("", str(key)): self._entry(descriptor.name, key, value[key]) for key in sorted(value)
                }
            elif descriptor.is_repeated:
                plain = [
                    self._value(descriptor.name, item, descriptor.enum_type) for item in _in_order(descriptor, value)
                ]
            else:
                plain = self._value(descriptor.name, value, descriptor.enum_type)
            made[descriptor.name] = plain
        if made.get("cron_schedule") and _CRON_WAIT in made:
            made[_CRON_WAIT] = "<duration>"
        return made

    def error(self, error: grpc.RpcError) -> Json:
        """A gRPC status with its details."""
        details = []
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                details = [self._any(detail) for detail in GrpcStatus.FromString(value).details]
        return {"code": error.code().name, "message": self._text("", error.details() or ""), "details": details}

    def _entry(self, name: str, key: Any, value: Any) -> Json:
        """The value of an entry of a map; headers carry tokens, too."""
        return self._value(key if isinstance(value, str) and str(key).endswith("token") else name, value, None)

    def _value(self, name: str, value: Any, enum: Any) -> Json:
        nature = next((reported for ending, reported in _NATURES if name.endswith(ending)), None)
        if nature is not None:
            return nature
        if isinstance(value, Message):
            return self.message(value)
        if enum is not None:
            known = enum.values_by_number.get(value)
            return known.name if known else value
        if isinstance(value, bytes):
            return self._bytes(value)
        return self._text(name, value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """A text without what is only there once."""
        return self._text("", text)

    def _text(self, name: str, text: str) -> str:
        def alias(found: re.Match[str]) -> str:
            if name == "request_id":  # how many there are is the server's affair
                return "<request ID>"
            if found[0] not in self.names:
                base = name or "id"
                count = sum(known.startswith(f"<{base} ") for known in self.names.values())
                self.names[found[0]] = f"<{base} {count + 1}>"
            return self.names[found[0]]

        text = text.replace(f"-{self.suffix}", "").replace(self.namespace, "<namespace>")
        text = _PROTO.sub("proto: ", text)
        return _TIMES.sub("<time>", _SERVER.sub("<server>", _GENERATED.sub(alias, text)))

    def _bytes(self, value: bytes) -> str:
        try:
            return self._text("", value.decode())
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()

    def _payload(self, message: Any) -> Json:
        return {
            "metadata": {key: self._bytes(message.metadata[key]) for key in sorted(message.metadata)},
            "data": self._bytes(message.data),
        }

    def _any(self, packed: Any) -> Json:
        assert isinstance(packed, AnyMessage)
        name = packed.TypeName()
        made = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))()
        packed.Unpack(made)
        return {"type": name, **self.message(made)}


def _in_order(descriptor: FieldDescriptor, values: Iterable[Any]) -> Iterable[Any]:
    """The values of a repeated field, in an order that does not differ between two calls."""
    key = _UNORDERED.get(descriptor.name)
    return values if key is None else sorted(values, key=attrgetter(key))


def _length(seconds: float) -> str:
    """Normalize a duration: durations that the scenario has not chosen were measured."""
    return f"{seconds:.10g}s" if seconds == round(seconds, 1) else "<duration>"


def leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Each value of plain data that has no parts, with its path."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    if not parts:
        yield path, value
    for key, part in parts:
        yield from leaves(part, f"{path}.{key}" if path else str(key))
