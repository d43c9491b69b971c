"""An in-memory API server. An operator cannot distinguish it from a real one within the features below.

Versions and 409, JSON patch with `test`, merge patch, the status subresource, defaults of CRDs, finalizers, graceful deletion of
pods, garbage collection by owner, paged lists with selectors, metadata-only requests, and tables. Requests and responses are
bytes, so the operator's own client runs unchanged. Admission, schemas and CEL rules are missing: tests on a real cluster cover
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import orjson

from perdure.api.crdgen import KINDS
from perdure.api.models import AGE, Column
from perdure.lazy import lazily
from perdure.simulation.cluster.patches import PatchError, json_patch, merge_patch
from perdure.simulation.cluster.resources import ResourceType, resources
from perdure.simulation.cluster.store import Object, ObjectKey, ObjectStore, Refusal

with lazily():
    import jsonpath

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from jsonpath import JSONPath

    from perdure.simulation.cluster.loop import ClusterLoop
    from perdure.simulation.cluster.store import Object


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str
    url: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes = b""
    actor: str
    """The client that sends it."""


class Response(msgspec.Struct, frozen=True):
    """The response to a request."""

    status: int
    body: bytes


class ApiServer(ObjectStore):
    """Answers HTTP requests about the stored objects."""

    log = b"the log of a container\n"
    """The log of every container."""

    def __init__(self, loop: ClusterLoop, random: Random, *, largest_page: int = 500) -> None:
        super().__init__(loop, random)
        self.posted: list[Object] = []
        """The Kubernetes Events that were posted; they are not stored as objects."""
        self._largest_page = largest_page
        self._pages: dict[str, list[Object]] = {}

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        try:
            return self._handle(request)
        except Refusal as refusal:
            return refused(refusal)
        except PatchError as error:
            return refused(Refusal(422, "Invalid", f"the server rejected our request: {error}"))

    def _handle(self, request: Request) -> Response:
        path, _, inline = request.url.partition("?")
        query = dict(part.split("=", 1) for part in inline.split("&") if part) | request.query
        resource, namespace, name, subresource = _parse(path)
        brief = "PartialObjectMetadata" in request.headers.get("Accept", "")
        body = orjson.loads(request.body) if request.body else {}
        if name is None and request.method == "GET":
            found = self._list(resource, namespace, query, brief=brief)
            if resource.is_custom and "as=Table" in request.headers.get("Accept", ""):
                found = self._table(resource, found, query)
            return Response(200, orjson.dumps(found))
        if name is None:
            made = self._post(resource, str(namespace), body, request.actor, dry="dryRun" in query)
            return Response(201, orjson.dumps(made))
        key = ObjectKey(resource.plural, str(namespace), name)
        if subresource == "log":
            self.get(key)
            return Response(200, self.log)
        if request.method == "PUT" and resource.made_by_put and key not in self.objects:
            made = self.create(key.plural, body, namespace=key.namespace, actor=request.actor)
            return Response(201, orjson.dumps(made))
        found = self._one(resource, key, subresource, request, body)
        if request.method == "DELETE" and key not in self.objects and key.plural != "pods":
            found = {"kind": "Status", "status": "Success"}
        return Response(200, orjson.dumps({"metadata": found["metadata"]} if brief else found))

    def _one(
        self, resource: ResourceType, key: ObjectKey, subresource: str | None, request: Request, body: Any
    ) -> Object:
        """Read, change or delete an object."""
        match request.method:
            case "GET":
                return self.get(key)
            case "DELETE":
                conditions, grace = body.get("preconditions") or {}, body.get("gracePeriodSeconds")
                return self.delete(key, actor=request.actor, conditions=conditions, grace=grace)
        return self.replace(resource, key, subresource, _change(request, body), request.actor)

    def _list(self, resource: ResourceType, namespace: str | None, query: dict[str, str], *, brief: bool) -> Object:
        token = query.get("continue")
        if token is not None:
            if token not in self._pages:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
            found = self._pages.pop(token)
        else:
            found = self._select(resource, namespace, query)
        requested = int(query.get("limit") or 0)  # 0: no limit
        limit = min(requested, self._largest_page) if requested else len(found)
        page, rest = found[:limit], found[limit:]
        meta: Object = {"resourceVersion": str(self.version)}
        if rest:
            meta["continue"] = token = f"{self._random.getrandbits(64):x}"
            self._pages[token] = rest
        if brief:
            page = [{"metadata": obj["metadata"]} for obj in page]
        elif not resource.is_custom:
            page = [{part: value for part, value in obj.items() if part not in {"kind", "apiVersion"}} for obj in page]
        return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": page}

    def _table(self, resource: ResourceType, found: Object, query: dict[str, str]) -> Object:
        metadata = query.get("includeObject") != "None"
        return as_table(resource.plural, found["items"], found["metadata"], self.loop.now(), metadata=metadata)

    def _select(self, resource: ResourceType, namespace: str | None, query: dict[str, str]) -> list[Object]:
        labelled = by_labels(query.get("labelSelector", ""))
        fielded, fields = by_fields(query.get("fieldSelector", ""))
        if not fields <= resource.selectable:
            raise Refusal(400, "BadRequest", f"field label not supported: {sorted(fields - resource.selectable)}")
        found = [
            (key, obj)
            for key, obj in self.objects.of(resource.plural)
            if (namespace is None or namespace == key.namespace) and labelled(obj) and fielded(obj)
        ]
        return [obj for _, obj in sorted(found, key=itemgetter(0))]

    def _generated(self, metadata: Object) -> str:
        """Return a name for an object that only has the beginning of one."""
        if not metadata.get("generateName"):
            raise Refusal(422, "Invalid", "metadata.name: Required value: name or generateName is required")
        suffix = "".join(self._random.choices(_SUFFIX_CHARACTERS, k=5))
        return f"{metadata['generateName'][:_LONGEST_PREFIX]}{suffix}"

    def _post(self, resource: ResourceType, namespace: str, body: Object, actor: str, *, dry: bool) -> Object:
        if resource.plural == "events":
            self.posted.append(body)
            return body
        if "name" not in body["metadata"]:
            body = {**body, "metadata": {**body["metadata"], "name": self._generated(body["metadata"])}}
        if dry:
            return self.prepare(ObjectKey(resource.plural, namespace, body["metadata"]["name"]), body)
        return self.create(resource.plural, body, namespace=namespace, actor=actor)


_SUFFIX_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names (k8s.io/apiserver/pkg/storage/names)."""
_LONGEST_PREFIX: Final = 58


def refused(refusal: Refusal) -> Response:
    """The response to a request that is rejected."""
    status = {"kind": "Status", "status": "Failure", "code": refusal.status, "reason": refusal.reason}
    return Response(refusal.status, orjson.dumps({**status, "message": refusal.message}))


def _change(request: Request, body: Any) -> Callable[[Object], Object]:
    """The function that applies a request to an object."""
    match request.method:
        case "PUT":
            return lambda _: body
        case "PATCH" if request.headers["Content-Type"] == "application/json-patch+json":
            return partial(json_patch, operations=body)
        case "PATCH":
            return partial(merge_patch, patch=body)
    raise Refusal(405, "MethodNotAllowed", request.method)


def _parse(path: str) -> tuple[ResourceType, str | None, str | None, str | None]:
    """Split a path into kind, namespace, name and subresource."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = None
    if rest[0] == "namespaces" and rest[2:]:
        namespace, rest = rest[1], rest[2:]
    resource = resources().get((group, rest[0]))
    if resource is None:
        raise Refusal(404, "NotFound", f"the server could not find the requested resource: {path}")
    name, subresource, *_ = (*rest[1:], None, None)
    return resource, namespace, name, subresource


# Label and field selectors of lists

Select = Callable[[dict[str, Any]], bool]


def by_labels(selector: str) -> Select:
    """Return a filter for labels: ``a``, ``!a``, ``a=b`` and ``a!=b``, separated by commas."""
    wanted = [_requirement(part.strip()) for part in selector.split(",") if part.strip()]

    def select(obj: dict[str, Any]) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(each(labels) for each in wanted)

    return select


def _requirement(part: str) -> Callable[[dict[str, str]], bool]:
    if "!=" in part:
        key, value = part.split("!=", 1)
        return lambda labels: labels.get(key) != value
    if "=" in part:
        key, value = part.split("=", 1)
        return lambda labels: labels.get(key) == value.removeprefix("=")
    if part.startswith("!"):
        return lambda labels: part[1:] not in labels
    return lambda labels: part in labels


def by_fields(selector: str) -> tuple[Select, set[str]]:
    """Return a filter for fields, and the names of these fields."""
    wanted = list(map(_term, _terms(selector)))

    def select(obj: dict[str, Any]) -> bool:
        return all((_field(obj, path) == value) is equal for path, value, equal in wanted)

    return select, {path for path, _, _ in wanted}


def _terms(selector: str) -> list[str]:
    """Split a selector at unescaped commas. The parts stay escaped."""
    parts, part, rest = [], "", iter(selector)
    for character in rest:
        if character == ",":
            parts.append(part)
            part = ""
        else:
            part += character + (next(rest, "") if character == "\\" else "")
    return [each for each in (*parts, part) if each]


def _term(term: str) -> tuple[str, str, bool]:
    path, _, value = term.partition("=")
    equal = not path.endswith("!")
    read, rest = "", iter(value.removeprefix("="))
    for character in rest:
        read += next(rest, "") if character == "\\" else character
    return path.removesuffix("!"), read, equal


def _field(obj: dict[str, Any], path: str) -> str:
    at: Any = obj
    for key in path.split("."):
        at = at.get(key) if isinstance(at, dict) else None
    return "" if at is None else str(at)


# Tables: what kubectl prints, with the columns of the CRDs

_ESCAPED: Final = re.compile(r"\.([^.]+)\\\.([^.]+)")
"""A name with a dot in a path, such as ``.perdure\\.dev/run``."""


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 365 * 86_400}
"""The seconds of each unit."""


_AGES: Final = (
    (120, "s", ""),
    (600, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86_400, "d", "h"),
    (2 * 365 * 86_400, "d", ""),
    (8 * 365 * 86_400, "y", "d"),
)
"""The units of ages below a number of seconds."""


def as_table(plural: str, objects: Iterable[Object], meta: Object, now: datetime, *, metadata: bool) -> Object:
    """Convert a list of custom objects to a table.

    Args:
        plural: The resource of the objects.
        objects: The objects.
        meta: The metadata of the list.
        now: The time.
        metadata: Whether the rows contain the metadata of the objects.
    """
    columns = _columns(plural)
    name = {"name": "Name", "type": "string", "format": "name", "description": "Name of the object", "priority": 0}
    definitions = [
        {
            "name": each.name,
            "type": each.type,
            "format": "",
            "description": each.description,
            "priority": int(each.wide),
        }
        for each, _ in columns
    ]
    rows: list[Object] = []
    for obj in objects:
        row: Object = {"cells": [obj["metadata"]["name"], *(_cell(*each, obj, now) for each in columns)]}
        if metadata:
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**partial, "metadata": obj["metadata"]}
        rows.append(row)
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta}
    return {**table, "columnDefinitions": [name, *definitions], "rows": rows}


@cache
def _columns(plural: str) -> list[tuple[Column, JSONPath]]:
    """The columns of a kind, with their compiled paths."""
    info = next(kind.info for kind in KINDS if kind.info.plural == plural)
    found = []
    for column in (*info.columns, AGE):
        path = jsonpath.compile("$" + _ESCAPED.sub(lambda name: f"['{name[1]}.{name[2]}']", column.path))
        assert isinstance(path, jsonpath.JSONPath), column.path
        found.append((column, path))
    return found


def _cell(column: Column, path: JSONPath, obj: Object, now: datetime) -> Any:
    """The first value of a path; None if there is none. A date becomes its age."""
    value: Any = next((match.value for match in path.finditer(obj)), None)
    if column.type == "date":
        return "<unknown>" if value is None else _age((now - datetime.fromisoformat(value)) // timedelta(seconds=1))
    return value if value is None or column.type != "string" else str(value)


def _age(seconds: int) -> str:
    """Format an age with one or two units (k8s.io/apimachinery/pkg/util/duration: HumanDuration)."""
    unit, smaller = next(((large, minor) for less, large, minor in _AGES if seconds < less), ("y", ""))
    count, rest = divmod(max(seconds, 0), _UNITS[unit])
    part = rest // _UNITS[smaller] if smaller else 0
    return f"{count}{unit}" + (f"{part}{smaller}" if part else "")
