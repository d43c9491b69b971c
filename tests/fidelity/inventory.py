"""Which fields requests can set, and which of them scenarios set.

A field is named by its message, wherever in a request that is: ``StartWorkflowExecutionRequest.workflow_id``,
``ScheduleSpec.jitter``. An enum counts value by value: ``ResetOptions.reset_reapply_type=RESET_REAPPLY_TYPE_NONE``.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def settable(requests: Iterable[Descriptor]) -> set[str]:
    """The fields of requests, and of the messages that can be in them."""
    found: set[str] = set()
    visited: set[str] = set()
    rest = list(requests)
    while rest:
        message = rest.pop()
        if message.full_name in visited or _is_plain(message):
            continue
        visited.add(message.full_name)
        for field in message.fields:
            found.update(_choices(field))
            if field.message_type is not None:
                rest.append(field.message_type)
    return found


def _choices(field: FieldDescriptor) -> Iterator[str]:
    if field.GetOptions().deprecated:
        return
    if field.enum_type is None:
        yield _name(field)
        return
    for value in field.enum_type.values:
        if value.number and not value.GetOptions().deprecated:
            yield f"{_name(field)}={value.name}"


def used(message: Message) -> Iterator[str]:
    """The fields that a message sets, and those of the messages in it."""
    if isinstance(message, AnyMessage):
        packed = GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(message.TypeName()))()
        message.Unpack(packed)
        yield from used(packed)
        return
    if _is_plain(message.DESCRIPTOR):
        return
    for field, value in message.ListFields():
        for each in _each(field, value):
            if field.enum_type is not None:
                known = field.enum_type.values_by_number.get(each)
                yield f"{_name(field)}={known.name if known else each}"
                continue
            yield _name(field)
            if isinstance(each, Message):
                yield from used(each)


def _each(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [GetMessageClass(field.message_type)(key=key, value=value[key]) for key in value]
    return value if field.is_repeated else [value]


_HANDED_ON = {
    "temporal.api.common.v1.Link",
    "temporal.api.failure.v1.Failure",
    "temporal.api.worker.v1.WorkerHeartbeat",
}
"""Messages that servers hand on as they are."""


def _is_plain(message: Descriptor) -> bool:
    """Whether the fields of a message do not count: it is handed on, or not Temporal's."""
    return message.full_name in _HANDED_ON or not message.full_name.startswith("temporal.")


def _name(field: FieldDescriptor) -> str:
    message = field.containing_type.full_name.removeprefix("temporal.api.").replace(".v1.", ".")
    return f"{message.removeprefix('workflowservice.').removeprefix('operatorservice.')}.{field.name}"
