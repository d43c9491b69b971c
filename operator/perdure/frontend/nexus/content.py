"""The content of Nexus HTTP requests and responses: payloads, and failures as JSON. Pure.

The format is Temporal's (common/nexus/payload_serializer.go, common/nexus/failure.go, nexusrpc/failure_converter.go).
"""

import base64
import re
from collections.abc import Mapping
from email.message import Message
from typing import Any, TypeAlias

import orjson
from google.protobuf.json_format import MessageToDict, MessageToJson
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import NexusHandlerErrorRetryBehavior
from temporalio.api.failure.v1 import Failure
from temporalio.api.nexus.v1 import Failure as NexusFailure

from perdure.frontend.errors import invalid

Json = dict[str, Any]
Behavior: TypeAlias = "NexusHandlerErrorRetryBehavior.ValueType"
UNSPECIFIED: Behavior = NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_UNSPECIFIED
_RETRYABLE = {
    NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_RETRYABLE: True,
    NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_NON_RETRYABLE: False,
}

_SERIALIZED = "application/x-temporal-payload"
_UNKNOWN = "unknown/nexus-content"
_OF_TRANSPORT = frozenset({"encoding", "length"})
"""The transport decodes content and counts it: these headers never describe a payload."""
_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def to_payload(headers: Mapping[str, str], content: bytes) -> Payload:
    """Convert content to a payload.

    Args:
        headers: Headers that describe the content, in lower case and without `content-`, such as `type`.
        content: The body.

    Raises:
        RpcError: The content is declared as a payload, but is not one.
    """
    described = {name: value for name, value in headers.items() if name not in _OF_TRANSPORT}
    if not described and not content:
        return Payload(metadata={"encoding": b"binary/null"})
    known = _known(described["type"]) if described.keys() == {"type"} else None
    if known == {"encoding": _SERIALIZED.encode()}:
        try:
            return Payload.FromString(content)
        except DecodeError:
            raise invalid("invalid input") from None
    metadata = known or {**{name: value.encode() for name, value in described.items()}, "encoding": _UNKNOWN.encode()}
    return Payload(metadata=metadata, data=content)


def _known(content_type: str) -> dict[str, bytes] | None:
    """The payload metadata for a content type; None if metadata cannot express the type."""
    parsed = Message()
    parsed["Content-Type"] = content_type
    parameters = dict(parsed.get_params(failobj=[])[1:])
    message_type = parameters.get("message-type", "")
    match parsed.get_content_type(), parameters:
        case "application/x-temporal-payload", _:
            return {"encoding": _SERIALIZED.encode()}
        case "application/json", _ if parameters == {"format": "protobuf", "message-type": message_type}:
            return {"encoding": b"json/protobuf", "messageType": message_type.encode()}
        case "application/x-protobuf", _ if parameters == {"message-type": message_type}:
            return {"encoding": b"binary/protobuf", "messageType": message_type.encode()}
        case "application/json", _ if not parameters:
            return {"encoding": b"json/plain"}
        case "application/octet-stream", _ if not parameters:
            return {"encoding": b"binary/plain"}
    return None


def from_payload(payload: Payload) -> tuple[dict[str, str], bytes]:
    """Convert a payload to headers, named without `Content-`, and content.

    A payload whose metadata cannot be headers is sent whole.
    """
    metadata = {name: value.decode(errors="replace") for name, value in payload.metadata.items()}
    encoding, message_type = metadata.pop("encoding", ""), metadata.get("messageType", "")
    if any(map(has_control_characters, metadata.values())):
        encoding = ""
    if encoding == _UNKNOWN and all(_NAME.fullmatch(name) and name.lower() not in _OF_TRANSPORT for name in metadata):
        return metadata, payload.data
    match encoding, [*metadata]:
        case "json/protobuf", ["messageType"] if message_type:
            return {"Type": f'application/json; format=protobuf; message-type="{message_type}"'}, payload.data
        case "binary/protobuf", ["messageType"] if message_type:
            return {"Type": f'application/x-protobuf; message-type="{message_type}"'}, payload.data
        case "json/plain", []:
            return {"Type": "application/json"}, payload.data
        case "binary/plain", []:
            return {"Type": "application/octet-stream"}, payload.data
        case "binary/null", []:
            return {}, payload.data
    return {"Type": _SERIALIZED}, payload.SerializeToString()


def has_control_characters(text: str) -> bool:
    """Whether a text contains control characters, which a header cannot."""
    return bool(_CONTROL.search(text))


def of_nexus(failure: NexusFailure) -> Json:
    """Convert a failure of Nexus to JSON. Details that are not JSON are left out."""
    cause = of_nexus(failure.cause) if failure.HasField("cause") else None
    return _failure(failure.message, failure.stack_trace, dict(failure.metadata), _parsed(failure.details), cause)


def of_temporal(failure: Failure) -> Json:
    """Convert a failure of Temporal to JSON."""
    cause = of_temporal(failure.cause) if failure.HasField("cause") else None
    if failure.HasField("nexus_handler_failure_info"):
        info = failure.nexus_handler_failure_info
        details = _handler_details(info.type, info.retry_behavior)
        if failure.HasField("encoded_attributes"):
            attributes = MessageToJson(failure.encoded_attributes, indent=None).encode()
            details["encodedAttributes"] = base64.urlsafe_b64encode(attributes).rstrip(b"=").decode()
        return _failure(failure.message, failure.stack_trace, {"type": "nexus.HandlerError"}, details, cause)
    details = MessageToDict(failure)
    for field in ("message", "stackTrace"):
        details.pop(field, None)
    return _failure(failure.message, failure.stack_trace, {"type": Failure.DESCRIPTOR.full_name}, details, cause)


def handler_error(kind: str, message: str, behavior: Behavior = UNSPECIFIED, cause: Json | None = None) -> Json:
    """Build the error of a handler, or of the server on its behalf."""
    return _failure(message, "", {"type": "nexus.HandlerError"}, _handler_details(kind, behavior), cause)


def _handler_details(kind: str, behavior: Behavior) -> Json:
    retryable = is_retryable(behavior)
    return {"type": kind} if retryable is None else {"type": kind, "retryableOverride": retryable}


def is_retryable(behavior: Behavior) -> bool | None:
    """Whether the failed call should be retried; None if the handler does not say."""
    return _RETRYABLE.get(behavior)


def operation_error(state: str, cause: Json) -> Json:
    """Build the failure of an operation with its cause."""
    metadata = {"type": "nexus.OperationError", "unwrap-error": "true"}
    return _failure("operation error", "", metadata, {"state": state}, cause)


def _failure(message: str, stack_trace: str, metadata: dict[str, str], details: Any, cause: Json | None) -> Json:
    fields = {
        "message": message,
        "stackTrace": stack_trace,
        "metadata": metadata,
        "details": details,
        "cause": cause,
    }
    return {name: value for name, value in fields.items() if value or (name == "cause" and value is not None)}


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None
