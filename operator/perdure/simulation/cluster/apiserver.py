"""An in-memory API server. An operator cannot distinguish it from a real one within the features below.

Versions and 409, JSON patch with `test`, merge patch, the status subresource, defaults of CRDs, finalizers, graceful deletion of
pods, garbage collection by owner, paged lists with selectors, metadata-only requests, and tables. Requests and responses are
bytes, so the operator's own client runs unchanged. Admission, schemas and CEL rules are missing: tests on a real cluster cover
them.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

import msgspec
import orjson

from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.object_store import ObjectStore, Refusal
from perdure.simulation.cluster.patching import PatchError, json_patch, merge_patch
from perdure.simulation.cluster.printed_tables import as_table
from perdure.simulation.cluster.resources import ResourceType, resources
from perdure.simulation.cluster.selecting import by_fields, by_labels
from perdure.simulation.cluster.storage import Object, ObjectKey


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
    """Answers HTTP requests about the objects of a registry."""

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
        return as_table(resource.plural, found["items"], found["metadata"], self._loop.now(), metadata=metadata)

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

    def _post(self, resource: ResourceType, namespace: str, body: Object, actor: str, *, dry: bool) -> Object:
        if resource.plural == "events":
            self.posted.append(body)
            return body
        if dry:
            return self.prepare(ObjectKey(resource.plural, namespace, body["metadata"]["name"]), body)
        return self.create(resource.plural, body, namespace=namespace, actor=actor)


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
