"""Requests in the query of a URL: ``?execution.runId=…&maximumPageSize=10``. Pure."""

import difflib
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from multidict import MultiMapping

from perdure.frontend.http.shorthand import MalformedError

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
            field = _field(inner, each, name)
            if field.message_type is None or field.is_repeated:
                raise MalformedError(f'query parameter "{name}": "{each}" is not a message')
            target, inner = target.setdefault(field.name, {}), field.message_type
            if not isinstance(target, dict):
                raise MalformedError(f'query parameter "{name}": "{each}" has a value already')
        field = _field(inner, last, name)
        values = [_value(each, field, name) for each in query.getall(name)]
        if len(values) > 1 and not field.is_repeated:
            raise MalformedError(f'query parameter "{name}" is set {len(values)} times: it takes one value')
        if field.name in target:
            raise MalformedError(f'query parameter "{name}": its fields, or its other spelling, have a value already')
        target[field.name] = values if field.is_repeated else values[0]
    return made


def _field(kind: Descriptor, part: str, name: str) -> FieldDescriptor:
    field = kind.fields_by_camelcase_name.get(part) or kind.fields_by_name.get(part)
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
