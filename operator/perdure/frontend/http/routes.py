"""The paths of Temporal's HTTP API, and its OpenAPI document, from the descriptors of Temporal's messages. Pure."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from google.api import annotations_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor
from temporalio.api.operatorservice.v1 import service_pb2 as operatorservice
from temporalio.api.workflowservice.v1 import service_pb2 as workflowservice

from perdure import __version__
from perdure.frontend.transport.rpc import request_of, response_of

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
        for segment, part in zip(self.segments, path, strict=True):
            if segment.startswith("{"):
                if not part:
                    return None
                found[segment.strip("{}")] = part
            elif segment != part:
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


# The OpenAPI document

Json = dict[str, Any]
OPENAPI_PATH: Final = "/api/v1/openapi.json"
RESULT_PATH: Final = "/perdure/v1/namespaces/{namespace}/workflows/{workflow_id}/result"
WEBHOOK_PATH: Final = "/webhooks/{namespace}/{name}"
_DOCUMENTED: Final = "api/v1/"
"""The prefix of documented paths. Paths without it, for gRPC gateways, serve the same."""
_DEEPEST: Final = 3
"""The depth of nested messages whose fields are query parameters."""

_INT32: Final = (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32)
_UINT32: Final = (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32)
_INT64: Final = (
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_SINT64,
    FieldDescriptor.TYPE_SFIXED64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_FIXED64,
)
_SCALARS: Final[Mapping[int, Json]] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": ["number", "string"], "format": "double"},
    FieldDescriptor.TYPE_FLOAT: {"type": ["number", "string"], "format": "float"},
    **{kind: {"type": "integer", "format": "int32"} for kind in _INT32},
    **{kind: {"type": "integer", "minimum": 0} for kind in _UINT32},
    **{kind: {"type": ["string", "integer"], "format": "int64"} for kind in _INT64},
}
_KNOWN: Final[Mapping[str, Json]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Empty": {"type": "object"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.Any": {"type": "object", "properties": {"@type": {"type": "string"}}},
    "google.protobuf.BoolValue": {"type": ["boolean", "null"]},
    "google.protobuf.Int32Value": {"type": ["integer", "null"]},
    "google.protobuf.StringValue": {"type": ["string", "null"]},
    "temporal.api.common.v1.Payload": {
        "description": "Any value; or, for other encodings, an object with Base64: "
        '{"metadata": {"encoding": "…"}, "data": "…"}'
    },
    "temporal.api.common.v1.Payloads": {
        "description": 'A list of values, such as the arguments of a workflow; or {"payloads": […]} in full form',
        "type": ["array", "object"],
    },
}
"""The schemas of messages whose JSON is not an object with their fields."""

_STRING: Final = {"type": "string"}


def openapi_document(routes: Iterable[HttpRoute], served: Container[tuple[str, str]]) -> Json:
    """Describe the HTTP API.

    Args:
        routes: All paths.
        served: The served RPCs, by service and name.

    Returns:
        An OpenAPI 3.1 document.
    """
    schemas = _Schemas()
    paths: dict[str, Json] = {}
    used: dict[str, int] = {}
    for route in sorted(routes, key=lambda each: (each.segments, each.method)):
        path = "/".join(route.segments)
        if (route.service, route.rpc) not in served or not path.startswith(_DOCUMENTED):
            continue
        request, response = request_of(route.rpc).DESCRIPTOR, response_of(route.rpc).DESCRIPTOR
        used[route.rpc] = used.get(route.rpc, 0) + 1
        number = used[route.rpc]
        paths.setdefault(f"/{path}", {})[route.method.lower()] = {
            "operationId": route.rpc if number == 1 else f"{route.rpc}{number}",
            "tags": [route.service.rpartition(".")[2]],
            "parameters": [*_in_path(route), *([] if route.body else _in_query(request, route))],
            **({"requestBody": _content(schemas.of(request), required=True)} if route.body else {}),
            "responses": _responses({"description": "Success", **_content(schemas.of(response))}),
        }
    paths[RESULT_PATH] = {"get": _RESULT}
    paths[WEBHOOK_PATH] = {"post": _WEBHOOK}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Perdure HTTP API",
            "version": __version__,
            "description": "Temporal's workflow service over HTTP, with the same paths and JSON as Temporal's server.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**dict(sorted(schemas.by_name.items())), "Status": _STATUS},
        },
    }


def _in_path(route: HttpRoute) -> Iterator[Json]:
    for segment in route.segments:
        if segment.startswith("{"):
            yield {"name": segment.strip("{}"), "in": "path", "required": True, "schema": _STRING}


def _in_query(kind: Descriptor, route: HttpRoute) -> Iterator[Json]:
    path_fields = {segment.strip("{}") for segment in route.segments if segment.startswith("{")}
    for path, name, schema in _parameters(kind, _DEEPEST):
        if path not in path_fields:
            yield {"name": name, "in": "query", "schema": schema}


def _parameters(kind: Descriptor, levels: int) -> Iterator[tuple[str, str, Json]]:
    """Yield the fields of a message: path in the options of the service, name in a query, and schema."""
    for field in kind.fields:
        inner = field.message_type
        if inner is not None and (field.is_repeated or inner.full_name in _KNOWN):
            if inner.full_name.startswith("google.protobuf.") and not field.is_repeated:
                yield field.name, field.camelcase_name, _KNOWN[inner.full_name]
            continue
        if inner is not None:
            deeper = _parameters(inner, levels - 1) if levels else ()
            yield from ((f"{field.name}.{p}", f"{field.camelcase_name}.{n}", schema) for p, n, schema in deeper)
            continue
        one = _STRING if field.enum_type is not None else _SCALARS[field.type]
        yield field.name, field.camelcase_name, {"type": "array", "items": one} if field.is_repeated else one


def _content(schema: Json, *, required: bool = False) -> Json:
    return {"content": {"application/json": {"schema": schema}}, **({"required": True} if required else {})}


def _responses(success: Json) -> Json:
    status = _content({"$ref": "#/components/schemas/Status"})
    return {"200": success, "default": {"description": "An error, with the code of gRPC", **status}}


class _Schemas:
    """The schemas of messages, by their names."""

    def __init__(self) -> None:
        self.by_name: dict[str, Json] = {}

    def of(self, kind: Descriptor) -> Json:
        """Return a reference to the schema of a message."""
        name = kind.full_name
        if name not in self.by_name:
            self.by_name[name] = {}  # messages can be recursive
            self.by_name[name] = _KNOWN.get(name) or {
                "type": "object",
                "properties": {field.camelcase_name: self._field(field) for field in kind.fields},
            }
        return {"$ref": f"#/components/schemas/{name}"}

    def _field(self, field: FieldDescriptor) -> Json:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": self._one(kind.fields_by_name["value"])}
        one = self._one(field)
        return {"type": "array", "items": one} if field.is_repeated else one

    def _one(self, field: FieldDescriptor) -> Json:
        if field.message_type is not None:
            return self.of(field.message_type)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        return dict(_SCALARS[field.type])

    def _enum(self, kind: EnumDescriptor) -> Json:
        self.by_name[kind.full_name] = {"type": "string", "enum": [value.name for value in kind.values]}
        return {"$ref": f"#/components/schemas/{kind.full_name}"}


_STATUS: Final[Json] = {
    "type": "object",
    "properties": {
        "code": {"type": "integer", "description": "The code of gRPC"},
        "message": {"type": "string"},
        "details": {"type": "array", "items": {"type": "object"}},
    },
}

_RESULT: Final[Json] = {
    "operationId": "GetWorkflowResult",
    "tags": ["Perdure"],
    "description": "Waits until a run closes, and follows the runs that continue it: a retry, a cron schedule, continue-as-new.",
    "parameters": [
        {"name": "namespace", "in": "path", "required": True, "schema": _STRING},
        {"name": "workflow_id", "in": "path", "required": True, "schema": _STRING},
        {"name": "runId", "in": "query", "schema": _STRING},
        {"name": "wait", "in": "query", "schema": {"type": "string", "default": "60s"}},
    ],
    "responses": {
        **_responses(
            {
                "description": "The run has closed",
                **_content(
                    {
                        "type": "object",
                        "required": ["status"],
                        "properties": {
                            "status": {"type": "string", "example": "WORKFLOW_EXECUTION_STATUS_COMPLETED"},
                            "result": {"description": "What the workflow returned, if it completed"},
                            "failure": {"$ref": "#/components/schemas/temporal.api.failure.v1.Failure"},
                        },
                    }
                ),
            }
        ),
        "202": {"description": "The run has not closed yet; ask again"},
    },
}

_OUTCOME: Final[Json] = _content(
    {
        "type": "object",
        "required": ["outcome"],
        "properties": {
            "outcome": {"type": "string", "enum": ["Created", "Duplicate", "Ignored"]},
            "kind": {"type": "string", "enum": ["WorkflowRun", "Operation"]},
            "name": _STRING,
        },
    }
)
_REFUSED: Final[Json] = _content({"type": "object", "properties": {"message": _STRING}})

_WEBHOOK: Final[Json] = {
    "operationId": "SendWebhookRequest",
    "tags": ["Perdure"],
    "description": "Starts or signals a run, as the named Webhook defines. The request is signed and needs no token.",
    "security": [],
    "parameters": [
        {"name": "namespace", "in": "path", "required": True, "schema": _STRING},
        {"name": "name", "in": "path", "required": True, "schema": _STRING},
        {"name": "X-Hub-Signature-256", "in": "header", "schema": _STRING},
    ],
    "requestBody": _content({}),
    "responses": {
        "200": {"description": "An earlier request had this ID, or the Webhook ignores the request", **_OUTCOME},
        "202": {"description": "The run or the Operation was created", **_OUTCOME},
        "401": {"description": "No such Webhook, or no valid signature", **_REFUSED},
        "413": {"description": "The body is too large", **_REFUSED},
        "422": {"description": "An expression has no value for this request, or the run is rejected", **_REFUSED},
        "429": {"description": "Too many requests; retry after the seconds in `Retry-After`", **_REFUSED},
        "503": {"description": "The Kubernetes API request failed; retry", **_REFUSED},
    },
}
