"""The forms that payloads, failures, and links have in the Nexus protocol. Pure.

They are Temporal's: payloads as content of HTTP requests and responses (common/nexus/payload_serializer.go), failures as JSON
(common/nexus/failure.go, nexusrpc/failure_converter.go), and links as URLs (temporalnexus/link_converter.go).
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from email.message import Message
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlencode, urlsplit

import orjson
from google.protobuf.json_format import MessageToDict, MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Link, Payload, Payloads
from temporalio.api.enums.v1 import EventType, NexusHandlerErrorRetryBehavior
from temporalio.api.failure.v1 import Failure
from temporalio.api.nexus.v1 import Failure as NexusFailure
from temporalio.api.nexus.v1 import Link as NexusLink

from perdure.frontend.errors import invalid
from perdure.frontend.messages.failures import MAX_DEPTH
from perdure.frontend.messages.values import from_enum, to_enum

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


# Payloads


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


# Failures


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


def to_temporal(failure: NexusFailure, depth: int = 0) -> Failure:
    """Convert a Nexus failure to Temporal's (common/nexus/failure.go: NexusFailureToTemporalFailure).

    Raises:
        RpcError: The failure claims to be one of Temporal's, but is not.
    """
    made = Failure()
    if failure.metadata.get("type") == Failure.DESCRIPTOR.full_name:
        try:
            ParseDict(orjson.loads(failure.details), made, ignore_unknown_fields=True)
        except (orjson.JSONDecodeError, ParseError) as error:
            raise invalid(f"Malformed failure: {error}") from None
    elif failure.metadata or failure.details:
        cause = of_nexus(failure.cause) if failure.HasField("cause") else None
        kept = {"metadata": dict(failure.metadata), "details": _parsed(failure.details), "cause": cause}
        payload = Payload(metadata={"encoding": b"json/plain"}, data=orjson.dumps({k: v for k, v in kept.items() if v}))
        made.application_failure_info.type = "NexusFailure"
        made.application_failure_info.details.CopyFrom(Payloads(payloads=[payload]))
    made.message, made.stack_trace = failure.message, failure.stack_trace
    if failure.HasField("cause") and depth < MAX_DEPTH:
        made.cause.CopyFrom(to_temporal(failure.cause, depth + 1))
    return made


def is_json(text: bytes) -> bool:
    """Whether a text is JSON; an empty text counts as null."""
    try:
        orjson.loads(text or b"null")
    except orjson.JSONDecodeError:
        return False
    return True


def _parsed(text: bytes) -> Any:
    try:
        return orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None


# Links

_EVENT_TYPE: str = Link.WorkflowEvent.DESCRIPTOR.full_name
_OPERATION_TYPE: str = Link.NexusOperation.DESCRIPTOR.full_name
_ID = "([^/]+)"
_BY_EVENT, _BY_REQUEST = "EventReference", "RequestIdReference"


def event_link(event: Link.WorkflowEvent) -> NexusLink:
    """A link to an event of a workflow."""
    query = {"eventType": from_enum(EventType, event.event_ref.event_type), "referenceType": _BY_EVENT}
    if event.event_ref.event_id:
        query = {"eventID": str(event.event_ref.event_id), **query}
    url = _url(event.namespace, "workflows", event.workflow_id, event.run_id, "history")
    return NexusLink(url=f"{url}?{urlencode(query)}", type=_EVENT_TYPE)


def operation_link(operation: Link.NexusOperation) -> NexusLink:
    """A link to a standalone Nexus operation."""
    url = _url(operation.namespace, "nexus-operations", operation.operation_id, operation.run_id, "details")
    return NexusLink(url=url, type=_OPERATION_TYPE)


def _url(namespace: str, kind: str, named: str, run_id: str, end: str) -> str:
    namespace, named, run_id = (quote(part, safe="") for part in (namespace, named, run_id))
    return f"temporal:///namespaces/{namespace}/{kind}/{named}/{run_id}/{end}"


def links_of_handler(links: Iterable[NexusLink]) -> Any:
    """Convert the links of a handler to JSON, without links of unknown kinds. None if there are none."""
    read = [link for link in map(_read, links) if link is not None]
    return [MessageToDict(link) for link in read] or None


def _read(link: NexusLink) -> Link | None:
    made = Link()
    with suppress(ValueError):
        url, kind = urlsplit(link.url), _KINDS.get(link.type)
        if kind is None or url.scheme != "temporal":
            return None
        path, read = kind
        parts = re.fullmatch(path, url.path)
        if parts is None:
            return None
        read(made, url, *map(unquote, parts.groups()))
        return made if made.WhichOneof("variant") else None
    return None


def _read_event(link: Link, url: SplitResult, *named: str) -> None:
    query = parse_qs(url.query)
    kind = to_enum(EventType, query.get("eventType", [""])[0])
    event = Link.WorkflowEvent()
    event.namespace, event.workflow_id, event.run_id = named
    if query.get("referenceType") == [_BY_EVENT]:
        event.event_ref.event_id, event.event_ref.event_type = int(query.get("eventID", ["0"])[0]), kind
    elif query.get("referenceType") == [_BY_REQUEST]:
        event.request_id_ref.request_id = query.get("requestID", [""])[0]
        event.request_id_ref.event_type = kind
    else:
        return
    link.workflow_event.CopyFrom(event)


def _read_workflow(link: Link, url: SplitResult, *named: str) -> None:
    link.workflow.namespace, link.workflow.workflow_id, link.workflow.run_id = named
    link.workflow.reason = parse_qs(url.query).get("reason", [""])[0]


def _read_activity(link: Link, _: SplitResult, *named: str) -> None:
    link.activity.namespace, link.activity.activity_id, link.activity.run_id = named


def _read_operation(link: Link, _: SplitResult, *named: str) -> None:
    link.nexus_operation.namespace, link.nexus_operation.operation_id, link.nexus_operation.run_id = named


_KINDS: Mapping[str, tuple[str, Callable[..., None]]] = {
    _EVENT_TYPE: (f"/namespaces/{_ID}/workflows/{_ID}/{_ID}/history", _read_event),
    Link.Workflow.DESCRIPTOR.full_name: (f"/namespaces/{_ID}/workflows/{_ID}/{_ID}", _read_workflow),
    Link.Activity.DESCRIPTOR.full_name: (f"/namespaces/{_ID}/activities/{_ID}/{_ID}/details", _read_activity),
    _OPERATION_TYPE: (f"/namespaces/{_ID}/nexus-operations/{_ID}/{_ID}/details", _read_operation),
}
"""The path of the URL and its reader, by type."""
