"""The paths of Temporal's HTTP API, read from the options of its services. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from google.api import annotations_pb2
from google.protobuf.descriptor import MethodDescriptor
from temporalio.api.operatorservice.v1 import service_pb2 as operatorservice
from temporalio.api.workflowservice.v1 import service_pb2 as workflowservice

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
