"""The paths and the queries (``?execution.runId=…&maximumPageSize=10``) of Temporal's HTTP API. Pure."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from google.api import annotations_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from multidict import MultiMapping
from temporalio.api.operatorservice.v1 import service_pb2 as operatorservice
from temporalio.api.workflowservice.v1 import service_pb2 as workflowservice

from perdure.frontend.http.shorthand import MalformedError

_FORM = frozenset({"pretty", "noPayloadShorthand"})
"""Parameters for the format of the response."""
_BOOLEANS: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False, "": True}

_METHODS = ("get", "put", "post", "delete", "patch")


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """The method and the path of an RPC."""

    service: str
    rpc: str
    method: str
    segments: tuple[str, ...]
    """The segments of the path. A segment in braces, such as ``{execution.workflow_id}``, matches any value of that field."""
    body: bool
    """Whether the request is in the body; otherwise, its fields are in the query."""

    @property
    def literals(self) -> int:
        """The number of segments without braces."""
        return sum(not each.startswith("{") for each in self.segments)

    def values(self, path: Iterable[str]) -> dict[str, str] | None:
        """Return the values of fields in a path, by field name; None if the path does not match."""
        found = {}
        for segment, given in zip(self.segments, path, strict=True):
            if segment.startswith("{"):
                if not given:
                    return None
                found[segment.strip("{}")] = given
            elif segment != given:
                return None
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """A route that matches a request."""

    route: HttpRoute
    values: Mapping[str, str]


class Routes:
    """All routes of Temporal's API."""

    def __init__(self) -> None:
        self._found: dict[int, list[HttpRoute]] = {}
        for each in sorted(_routes(), key=lambda route: -route.literals):
            self._found.setdefault(len(each.segments), []).append(each)

    def __iter__(self) -> Iterator[HttpRoute]:
        for each in self._found.values():
            yield from each

    def match(self, path: str) -> dict[str, Match]:
        """Return the routes of a path by HTTP method. A segment may contain an escaped slash.

        Args:
            path: The path from the client, such as ``/api/v1/namespaces/default/workflows``.
        """
        segments = [unquote(segment) for segment in path.removeprefix("/").split("/")]
        found: dict[str, Match] = {}
        for route in self._found.get(len(segments), ()):
            values = route.values(segments)
            if values is not None:
                found.setdefault(route.method, Match(route, values))
        return found


def _routes() -> Iterator[HttpRoute]:
    for module in (workflowservice, operatorservice):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield from _routes_of(service.full_name, method)


def _routes_of(service: str, method: MethodDescriptor) -> Iterator[HttpRoute]:
    options: Any = method.GetOptions()
    rule = options.Extensions[annotations_pb2.http]
    for each in (rule, *rule.additional_bindings):
        for name in _METHODS:
            path = getattr(each, name)
            if path:
                segments = tuple(path.removeprefix("/").split("/"))
                yield HttpRoute(service, method.name, name.upper(), segments, bool(each.body))


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
