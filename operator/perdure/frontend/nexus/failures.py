"""Failures as JSON of Nexus (common/nexus/failure.go, nexusrpc/failure_converter.go). Pure."""

import base64
from typing import Any, TypeAlias

import orjson
from google.protobuf.json_format import MessageToDict, MessageToJson
from temporalio.api.enums.v1 import NexusHandlerErrorRetryBehavior
from temporalio.api.failure.v1 import Failure
from temporalio.api.nexus.v1 import Failure as NexusFailure

Json = dict[str, Any]
Behavior: TypeAlias = "NexusHandlerErrorRetryBehavior.ValueType"
NOT_SAID: Behavior = NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_UNSPECIFIED
_RETRYABLE = {
    NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_RETRYABLE: True,
    NexusHandlerErrorRetryBehavior.NEXUS_HANDLER_ERROR_RETRY_BEHAVIOR_NON_RETRYABLE: False,
}


def of_nexus(failure: NexusFailure) -> Json:
    """Convert a failure of Nexus to JSON. Details that are not JSON are left out."""
    cause = of_nexus(failure.cause) if failure.HasField("cause") else None
    return _made(failure.message, failure.stack_trace, dict(failure.metadata), _parsed(failure.details), cause)


def of_temporal(failure: Failure) -> Json:
    """Convert a failure of Temporal to JSON."""
    cause = of_temporal(failure.cause) if failure.HasField("cause") else None
    if failure.HasField("nexus_handler_failure_info"):
        info = failure.nexus_handler_failure_info
        details = _handler_details(info.type, info.retry_behavior)
        if failure.HasField("encoded_attributes"):
            attributes = MessageToJson(failure.encoded_attributes, indent=None).encode()
            details["encodedAttributes"] = base64.urlsafe_b64encode(attributes).rstrip(b"=").decode()
        return _made(failure.message, failure.stack_trace, {"type": "nexus.HandlerError"}, details, cause)
    details = MessageToDict(failure)
    for field in ("message", "stackTrace"):
        details.pop(field, None)
    return _made(failure.message, failure.stack_trace, {"type": Failure.DESCRIPTOR.full_name}, details, cause)


def handler_error(kind: str, message: str, behavior: Behavior = NOT_SAID, cause: Json | None = None) -> Json:
    """Build the error of a handler, or of the server on its behalf."""
    return _made(message, "", {"type": "nexus.HandlerError"}, _handler_details(kind, behavior), cause)


def _handler_details(kind: str, behavior: Behavior) -> Json:
    retryable = is_retryable(behavior)
    return {"type": kind} if retryable is None else {"type": kind, "retryableOverride": retryable}


def is_retryable(behavior: Behavior) -> bool | None:
    """Whether the failed call should be retried; None if the handler does not say."""
    return _RETRYABLE.get(behavior)


def operation_error(state: str, cause: Json) -> Json:
    """Build the failure of an operation with its cause."""
    metadata = {"type": "nexus.OperationError", "unwrap-error": "true"}
    return _made("operation error", "", metadata, {"state": state}, cause)


def _made(message: str, stack_trace: str, metadata: dict[str, str], details: Any, cause: Json | None) -> Json:
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
