"""Payloads in the content of Nexus HTTP requests and responses (common/nexus/payload_serializer.go). Pure."""

import re
from collections.abc import Mapping
from email.message import Message

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload

from perdure.frontend.errors import invalid

_WHOLE = "application/x-temporal-payload"
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
    if known == {"encoding": _WHOLE.encode()}:
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
            return {"encoding": _WHOLE.encode()}
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
    return {"Type": _WHOLE}, payload.SerializeToString()


def has_control_characters(text: str) -> bool:
    """Whether a text contains control characters, which a header cannot."""
    return bool(_CONTROL.search(text))
