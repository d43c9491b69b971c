"""Messages in Temporal's HTTP API: as JSON, which writes payloads as their values ("shorthand"), and as queries. Pure.

The JSON of a payload is ``{"metadata": {"encoding": …}, "data": …}`` with Base64; its shorthand is the value that a JSON
converter has encoded. This module converts between the two, before a message is parsed and after it is printed.
"""

import base64
import difflib
import json
import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from multidict import MultiMapping

from perdure.frontend.messages.values import MAX_PARTS

_PAYLOAD, _PAYLOADS = "temporal.api.common.v1.Payload", "temporal.api.common.v1.Payloads"
_MESSAGE_TYPE = "_protoMessageType"
_NULL, _PLAIN, _PROTOBUF = "binary/null", "json/plain", "json/protobuf"

Exchange = Callable[[Any], Any]


class MalformedError(ValueError):
    """The text is not valid JSON of a message; the error message says why."""


def read(text: bytes, message: Message, *, shorthand: bool) -> None:
    """Fill in a message from its JSON.

    Args:
        text: The JSON as UTF-8; if it is empty, the message does not change.
        message: The message to fill in.
        shorthand: Whether payloads may be written as their values.

    Raises:
        MalformedError: The text is not valid JSON of the message, or its lists and maps have too many items.
    """
    if not text.strip():
        return
    try:
        value = json.loads(text, parse_constant=_no_constant)
        if not isinstance(value, dict):
            raise MalformedError("it is not a JSON object")
        exchanger = _Exchanger(_expanded if shorthand else _unchanged, MAX_PARTS)
        fill(message, exchanger.message(value, _kind(message)))
    except RecursionError:
        raise MalformedError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise MalformedError(str(error)) from None


def fill(message: Message, value: dict[str, Any]) -> None:
    """Fill in fields of a message from a JSON object without shorthand.

    Raises:
        MalformedError: The message does not have a field, or a value has the wrong type.
    """
    try:
        ParseDict(value, message)
    except (ParseError, ValueError, TypeError, AttributeError) as error:
        raise MalformedError(str(error)) from None


def write(message: Message, *, shorthand: bool, pretty: bool) -> bytes:
    """The JSON of a message.

    Args:
        message: The message.
        shorthand: Whether to write payloads with JSON as their values.
        pretty: Whether to indent the JSON.
    """
    value = MessageToDict(message)
    if shorthand:
        value = _Exchanger(_abbreviated).message(value, _kind(message))
    layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
    return json.dumps(value, ensure_ascii=False, **layout).encode("utf-8", "replace")


def _kind(message: Message) -> Descriptor:  # protobuf declares two identical classes for it
    kind: Any = message.DESCRIPTOR
    found: Descriptor = kind
    return found


class _Exchanger:
    """Converts the payloads in the JSON of one message."""

    def __init__(self, payload: Exchange, parts: float = inf) -> None:
        """`payload` converts one payload. `parts` limits the items in all lists and maps of the message."""
        self._convert_payload = payload
        self._parts = parts

    def message(self, value: Any, kind: Descriptor) -> Any:
        """Convert each payload in the JSON of a message."""
        if kind.full_name == _PAYLOAD:
            return self._convert_payload(value)
        if kind.full_name == _PAYLOADS:
            return self._list(value)
        if not isinstance(value, dict) or kind.full_name.startswith("google.protobuf."):
            return value
        return {name: self._of_field(each, _field(kind, name)) for name, each in value.items()}

    def _list(self, value: Any) -> Any:
        """Convert several payloads, whose shorthand is a list of values."""
        self._count(value.get("payloads") if isinstance(value, dict) else value)
        if self._convert_payload is _unchanged:
            return value
        if self._convert_payload is _expanded:
            if value is None:
                return {}
            return {"payloads": [_expanded(each) for each in value]} if isinstance(value, list) else value
        before = value.get("payloads", [])
        after = [self._convert_payload(each) for each in before]
        all_short = all(new is not old or _is_null(old) for old, new in zip(before, after, strict=True))
        return after if all_short else {"payloads": after}

    def _of_field(self, value: Any, field: FieldDescriptor | None) -> Any:
        if field is None:
            return value
        if field.is_repeated:
            self._count(value)
        if field.enum_type is not None:
            names = field.enum_type
            return [_enum(each, names) for each in value] if isinstance(value, list) else _enum(value, names)
        kind = field.message_type
        if kind is None:
            return value
        if kind.GetOptions().map_entry:
            inner = kind.fields_by_name["value"].message_type
            if inner is None or not isinstance(value, dict):
                return value
            return {key: self.message(each, inner) for key, each in value.items()}
        if field.is_repeated and isinstance(value, list):
            return [self.message(each, kind) for each in value]
        return self.message(value, kind)

    def _count(self, value: Any) -> None:
        """Count the items of a list or a map before they are converted."""
        if isinstance(value, (list, dict)):
            self._parts -= len(value)
            if self._parts < 0:
                raise MalformedError(f"its lists and maps have more than {MAX_PARTS:,} items")


def _field(kind: Descriptor, name: str) -> FieldDescriptor | None:
    return kind.fields_by_camelcase_name.get(name) or kind.fields_by_name.get(name)


def _enum(value: Any, kind: EnumDescriptor) -> Any:
    """Convert an enum value to its full name; ``AllowDuplicate`` is also accepted."""
    if not isinstance(value, str) or value in kind.values_by_name:
        return value
    full = f"{_upper_snake(kind.name)}_{_upper_snake(value)}"
    return full if full in kind.values_by_name else value


def _upper_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def _unchanged(value: Any) -> Any:
    return value


def _expanded(value: Any) -> Any:
    """Convert a shorthand to a payload, unless it is already a payload."""
    if value is None:
        return _payload(_NULL)
    if isinstance(value, dict):
        if _is_payload(value):
            return value
        if _MESSAGE_TYPE in value:
            rest = {key: each for key, each in value.items() if key != _MESSAGE_TYPE}
            return _payload(_PROTOBUF, rest, messageType=value[_MESSAGE_TYPE])
    return _payload(_PLAIN, value)


def _abbreviated(value: Any) -> Any:
    """Return the shorthand of a payload, or the payload itself if it has none."""
    metadata = {key: base64.b64decode(each) for key, each in value.get("metadata", {}).items()}
    encoding = metadata.pop("encoding", b"").decode("utf-8", "replace")
    kind = metadata.pop("messageType", b"").decode("utf-8", "replace")
    if metadata or encoding not in {_PLAIN, _PROTOBUF} or bool(kind) != (encoding == _PROTOBUF):
        return value
    try:
        data = json.loads(base64.b64decode(value.get("data", "")), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return value
    if data is None or (kind and not isinstance(data, dict)):
        return value
    return {**data, _MESSAGE_TYPE: kind} if kind else data


def _is_payload(value: dict[str, Any]) -> bool:
    """Whether an object is a payload and not a value: it has metadata with an encoding, and data unless the value is null."""
    metadata, data = value.get("metadata"), value.get("data")
    if not isinstance(metadata, dict) or "encoding" not in metadata:
        return False
    if not all(map(_is_base64, metadata.values())):
        return False
    return _is_null(value) or (value.keys() == {"metadata", "data"} and _is_base64(data))


def _is_null(value: dict[str, Any]) -> bool:
    return value == _payload(_NULL)


def _is_base64(text: Any) -> bool:
    """Whether a value is Base64, in either alphabet and with or without padding."""
    if not isinstance(text, str):
        return False
    try:
        base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return False
    return True


_NO_DATA = object()


def _payload(encoding: str, value: Any = _NO_DATA, **metadata: str) -> dict[str, Any]:
    """Build a payload."""
    made: dict[str, Any] = {
        "metadata": {key: _encoded(each) for key, each in {"encoding": encoding, **metadata}.items()}
    }
    if value is not _NO_DATA:
        made["data"] = _encoded(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    return made


def _encoded(text: Any) -> str:
    if not isinstance(text, str):
        raise MalformedError(f"{_MESSAGE_TYPE} must be the name of a message")
    return base64.b64encode(text.encode()).decode("ascii")


def _no_constant(name: str) -> Any:
    raise MalformedError(f"{name} is not JSON")


# Queries: ``?execution.runId=…&maximumPageSize=10``

_FORM = frozenset({"pretty", "noPayloadShorthand"})
"""Parameters for the format of the response."""
_BOOLEANS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False, "": True}


def from_query(query: MultiMapping[str], kind: Any) -> dict[str, Any]:
    """Convert query parameters to the JSON of a request.

    Args:
        query: Field names, with dots for nested messages, in either spelling, and their values.
        kind: The message type of the request.

    Raises:
        MalformedError: A parameter is not a field, or its value has the wrong type.
    """
    made: dict[str, Any] = {}
    for name in dict.fromkeys(query):
        if name in _FORM:
            continue
        target, inner = made, kind
        *outer, last = name.split(".")
        for each in outer:
            field = _named_field(inner, each, name)
            if field.message_type is None or field.is_repeated:
                raise MalformedError(f'query parameter "{name}": "{each}" is not a message')
            target, inner = target.setdefault(field.name, {}), field.message_type
            if not isinstance(target, dict):
                raise MalformedError(f'query parameter "{name}": "{each}" has a value already')
        field = _named_field(inner, last, name)
        values = [_value(each, field, name) for each in query.getall(name)]
        if len(values) > 1 and not field.is_repeated:
            raise MalformedError(f'query parameter "{name}" is set {len(values)} times: it takes one value')
        if field.name in target:
            raise MalformedError(f'query parameter "{name}": its fields, or its other spelling, have a value already')
        target[field.name] = values if field.is_repeated else values[0]
    return made


def _named_field(kind: Descriptor, part: str, name: str) -> FieldDescriptor:
    field = _field(kind, part)
    if field is None:
        near = difflib.get_close_matches(part, kind.fields_by_camelcase_name, 1)
        hint = f'. Did you mean "{near[0]}"?' if near else ""
        raise MalformedError(f'query parameter "{name}": {kind.name} has no field "{part}"{hint}')
    return field


def _value(text: str, field: FieldDescriptor, name: str) -> Any:
    if field.type == FieldDescriptor.TYPE_BOOL:
        if text.lower() not in _BOOLEANS:
            raise MalformedError(f'query parameter "{name}": "{text}" is neither true nor false')
        return _BOOLEANS[text.lower()]
    if field.message_type is not None and not field.message_type.full_name.startswith("google.protobuf."):
        raise MalformedError(f'query parameter "{name}" is a message: name one of its fields')
    return text
