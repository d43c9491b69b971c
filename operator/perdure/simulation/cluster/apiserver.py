"""An API server in memory: what a client of one can tell apart, as far as an operator relies on it.

Versions and 409, JSON patch with `test`, merge patch, the status subresource, defaults of CRDs, finalizers, graceful deletion of
pods, garbage collection by owner, lists in pages with selectors, metadata only. Requests are bytes, and so are answers, so that
the operator's own client runs unchanged. Admission, schemas and CEL rules are not here: tests on a real cluster have those.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from operator import itemgetter
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from perdure.simulation.cluster.loop import Loop
from perdure.simulation.cluster.patching import PatchError, copy, json_patch, merge_patch
from perdure.simulation.cluster.resources import ResourceType, resources
from perdure.simulation.cluster.selecting import by_fields, by_labels

Object = dict[str, Any]

_GRACE_SECONDS = 30
_COLLECTED_WITHIN = 2.0
"""Seconds that the garbage collector takes at most after an owner has gone."""


class ObjectKey(NamedTuple):
    """Where an object is stored."""

    plural: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request."""

    method: str
    url: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    actor: str
    """Who sends it."""


@dataclass(frozen=True, slots=True)
class Response:
    """What it is answered with."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A change of what is stored."""

    time: float
    actor: str
    type: str
    """``ADDED``, ``MODIFIED`` or ``DELETED``, as a watch says it."""
    key: ObjectKey
    before: Object | None
    after: Object
    """As it is now, or was when it was removed."""
    asked_to_delete: bool = False
    """The actor has sent a DELETE, whether or not the object is gone by it."""


class Refusal(Exception):  # noqa: N818 - it is an answer
    """What the API server refuses."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    def answer(self) -> Response:
        """As a client gets it."""
        told = {"kind": "Status", "status": "Failure", "code": self.status, "reason": self.reason}
        return Response(self.status, orjson.dumps({**told, "message": self.message}))


class ApiServer:
    """Everything that is stored, and the rules of changing it. Stored objects are never changed in place."""

    log = b"the log of a container\n"
    """What every container writes."""

    def __init__(self, loop: Loop, random: Random, *, largest_page: int = 500) -> None:
        self.objects: dict[ObjectKey, Object] = {}
        self.uncollected: set[str] = set()
        """UIDs of owners that are gone, and whose objects the garbage collector has not looked for yet."""
        self.observers: list[Callable[[Write], None]] = []
        self.admit: Callable[[ObjectKey, Object], None] = lambda _key, _obj: None
        """May change what is to be created."""
        self.posted: list[Object] = []
        """Kubernetes Events; they are not stored."""
        self._loop = loop
        self._random = random
        self._version = 1_000
        self._largest_page = largest_page
        self._pages: dict[str, list[Object]] = {}

    # As a client sees it

    def handle(self, request: Request) -> Response:
        """Answer one request."""
        try:
            return self._handle(request)
        except Refusal as refusal:
            return refusal.answer()
        except PatchError as error:
            return Refusal(422, "Invalid", f"the server rejected our request: {error}").answer()

    def _handle(self, request: Request) -> Response:
        path, _, inline = request.url.partition("?")
        query = dict(part.split("=", 1) for part in inline.split("&") if part) | request.query
        resource, namespace, name, subresource = _parse(path)
        brief = "PartialObjectMetadata" in request.headers.get("Accept", "")
        body = orjson.loads(request.body) if request.body else {}
        if name is None and request.method == "GET":
            return Response(200, orjson.dumps(self._list(resource, namespace, query, brief=brief)))
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
        change: Callable[[Object], Object]
        match request.method:
            case "GET":
                return self.get(key)
            case "DELETE":
                conditions, grace = body.get("preconditions") or {}, body.get("gracePeriodSeconds")
                return self.delete(key, actor=request.actor, conditions=conditions, grace=grace)
            case "PUT":
                change = lambda _: body  # noqa: E731
            case "PATCH" if request.headers["Content-Type"] == "application/json-patch+json":
                change = partial(json_patch, operations=body)
            case "PATCH":
                change = partial(merge_patch, patch=body)
            case _:
                raise Refusal(405, "MethodNotAllowed", request.method)
        return self._change(resource, key, subresource, change, request.actor)

    def _list(self, resource: ResourceType, namespace: str | None, query: dict[str, str], *, brief: bool) -> Object:
        token = query.get("continue")
        if token is not None:
            if token not in self._pages:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
            found = self._pages.pop(token)
        else:
            found = self._select(resource, namespace, query)
        limit = min(
            int(query.get("limit") or len(found) + 1), self._largest_page if "limit" in query else len(found) + 1
        )
        page, rest = found[:limit], found[limit:]
        meta: Object = {"resourceVersion": str(self._version)}
        if rest:
            meta["continue"] = token = f"{self._random.getrandbits(64):x}"
            self._pages[token] = rest
        if brief:
            page = [{"metadata": obj["metadata"]} for obj in page]
        elif not resource.is_custom:
            page = [{part: value for part, value in obj.items() if part not in {"kind", "apiVersion"}} for obj in page]
        return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": page}

    def _select(self, resource: ResourceType, namespace: str | None, query: dict[str, str]) -> list[Object]:
        labelled = by_labels(query.get("labelSelector", ""))
        fielded, fields = by_fields(query.get("fieldSelector", ""))
        if not fields <= resource.selectable:
            raise Refusal(400, "BadRequest", f"field label not supported: {sorted(fields - resource.selectable)}")
        found = [each for each in self.objects.items() if each[0].plural == resource.plural]
        return [
            obj
            for key, obj in sorted(found, key=itemgetter(0))
            if namespace in {None, key.namespace} and labelled(obj) and fielded(obj)
        ]

    def _post(self, resource: ResourceType, namespace: str, body: Object, actor: str, *, dry: bool) -> Object:
        if resource.plural == "events":
            self.posted.append(body)
            return body
        if dry:
            return self._made(ObjectKey(resource.plural, namespace, body["metadata"]["name"]), body)
        return self.create(resource.plural, body, namespace=namespace, actor=actor)

    # What is stored

    def get(self, key: ObjectKey) -> Object:
        """An object; not to be changed.

        Raises:
            Refusal: it does not exist.
        """
        try:
            return self.objects[key]
        except KeyError:
            raise Refusal(404, "NotFound", f"{key.plural} {key.name!r} not found") from None

    def of(self, plural: str) -> Iterator[Object]:
        """All objects of a kind."""
        return (obj for key, obj in list(self.objects.items()) if key.plural == plural)

    def create(self, plural: str, body: Object, *, namespace: str = "default", actor: str = "user") -> Object:
        """Store a new object.

        Raises:
            Refusal: there is one of that name.
        """
        key = ObjectKey(plural, namespace, body["metadata"]["name"])
        obj = self._made(key, body)
        obj["metadata"]["resourceVersion"] = self._next_version()
        self.objects[key] = obj
        self._tell("ADDED", key, None, obj, actor)
        for owner in _owners(obj):
            if not any(each["metadata"]["uid"] == owner for each in self.objects.values()):
                self._collect_later(owner)
        return obj

    def _made(self, key: ObjectKey, body: Object) -> Object:
        """A new object, with everything that the API server adds but its version; not stored."""
        if key in self.objects:
            raise Refusal(409, "AlreadyExists", f"{key.plural} {key.name!r} already exists")
        resource = next(each for each in resources().values() if each.plural == key.plural)
        obj: Object = copy(body)
        self.admit(key, obj)
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        if resource.has_status:
            obj.pop("status", None)
        if resource.defaults is not None:
            resource.defaults(obj)
        if key.plural == "pods":
            obj["status"] = {"phase": "Pending"}
        obj["metadata"] |= {
            "namespace": key.namespace,
            "uid": self.new_uid(key),
            "creationTimestamp": self._stamp(),
        }
        if resource.has_generation:
            obj["metadata"]["generation"] = 1
        return obj

    def new_uid(self, key: ObjectKey) -> str:  # noqa: ARG002 - another server may say it by the key
        """A UID for a new object."""
        return str(UUID(int=self._random.getrandbits(128), version=4))

    def update(self, key: ObjectKey, change: Callable[[Object], None], *, actor: str = "user") -> Object | None:
        """Change a copy of an object, all of it, and store that; None if it does not exist."""
        if key not in self.objects:
            return None
        new = copy(self.objects[key])
        change(new)
        return self._store(key, new, actor)

    def delete(
        self,
        key: ObjectKey,
        *,
        actor: str = "user",
        conditions: Mapping[str, str] = MappingProxyType({}),
        grace: int | None = None,
    ) -> Object:
        """Delete an object: at once, or mark it where finalizers or running containers keep it.

        Raises:
            Refusal: it does not exist, or has another uid or resourceVersion than `conditions` say.
        """
        obj = self.get(key)
        for part, wanted in conditions.items():
            if obj["metadata"][part] != wanted:
                raise Refusal(409, "Conflict", f"the {part} in the precondition ({wanted}) does not match")
        if key.plural == "pods":
            return self._delete_pod(key, obj, actor, grace)
        if not obj["metadata"].get("finalizers"):
            return self._remove(key, actor, asked=True)
        if "deletionTimestamp" in obj["metadata"]:
            return obj
        return self._store(key, _marked(obj, self._stamp(), 0), actor, asked=True)

    def remove(self, key: ObjectKey, *, actor: str) -> None:
        """Remove an object, whatever its finalizers: somebody has deleted it by force."""
        self._remove(key, actor, asked=True)

    def _delete_pod(self, key: ObjectKey, obj: Object, actor: str, grace: int | None) -> Object:
        """Pods get the time that their containers take to stop, unless none runs."""
        meta = obj["metadata"]
        seconds = obj["spec"].get("terminationGracePeriodSeconds", _GRACE_SECONDS) if grace is None else grace
        if not obj["spec"].get("nodeName") or obj["status"].get("phase") in {"Succeeded", "Failed"}:
            seconds = 0
        if "deletionTimestamp" in meta:
            seconds = (
                min(seconds, meta["deletionGracePeriodSeconds"])
                if grace is not None
                else meta["deletionGracePeriodSeconds"]
            )
        return self._store(
            key, _marked(obj, meta.get("deletionTimestamp") or self._stamp(seconds), seconds), actor, asked=True
        )

    def _change(
        self,
        resource: ResourceType,
        key: ObjectKey,
        subresource: str | None,
        change: Callable[[Object], Object],
        actor: str,
    ) -> Object:
        old = self.get(key)
        new = change(old)
        version = (new.get("metadata") or {}).get("resourceVersion")
        if version is not None and version != old["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", f"Operation cannot be fulfilled on {key.plural} {key.name!r}")
        if subresource == "status":
            if not resource.has_status:
                raise Refusal(404, "NotFound", f"{key.plural} have no status of their own")
            new = (
                {**old, "status": new["status"]} if "status" in new else {k: v for k, v in old.items() if k != "status"}
            )
        elif resource.has_status:
            new = (
                {**new, "status": old["status"]} if "status" in old else {k: v for k, v in new.items() if k != "status"}
            )
        new = copy({**new, "metadata": _kept(old["metadata"], new["metadata"])})
        if key.plural == "pods":
            new.setdefault("status", {})
        if resource.defaults is not None:
            resource.defaults(new)
        return self._store(key, new, actor)

    def _store(self, key: ObjectKey, new: Object, actor: str, *, asked: bool = False) -> Object:
        old = self.objects[key]
        if new == old:
            return old
        meta = new["metadata"]
        if "generation" in meta and new.get("spec") != old.get("spec"):
            meta["generation"] += 1
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            self.objects[key] = new
            last = self._remove(key, actor, asked=asked)
            return last if asked else new  # which never was stored, so its version is the one before
        meta["resourceVersion"] = self._next_version()
        self.objects[key] = new
        self._tell("MODIFIED", key, old, new, actor, asked=asked)
        return new

    def _remove(self, key: ObjectKey, actor: str, *, asked: bool) -> Object:
        old = self.objects.pop(key)
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": self._next_version()}}
        self._tell("DELETED", key, old, last, actor, asked=asked)
        self._collect_later(old["metadata"]["uid"])
        return last

    # The garbage collector

    def _collect_later(self, owner: str) -> None:
        latest = self._random.choice([0.02, 0.02, _COLLECTED_WITHIN])
        self.uncollected.add(owner)
        self._loop.call_later(self._random.uniform(0.001, latest), self._collect, owner)

    def _collect(self, gone: str) -> None:
        """Delete what belonged to an object that is gone, and to nothing else."""
        self.uncollected.discard(gone)
        there = {obj["metadata"]["uid"] for obj in self.objects.values()}
        if gone in there:
            return
        for key, obj in list(self.objects.items()):
            if gone in (owners := _owners(obj)) and not owners & there:
                self.delete(key, actor="garbage collector")

    def _tell(
        self, type_: str, key: ObjectKey, before: Object | None, after: Object, actor: str, *, asked: bool = False
    ) -> None:
        write = Write(
            time=self._loop.time(),
            actor=actor,
            type=type_,
            key=key,
            before=before,
            after=after,
            asked_to_delete=asked,
        )
        for observe in self.observers:
            observe(write)

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)

    def _stamp(self, after: float = 0) -> str:
        return (self._loop.now() + timedelta(seconds=after)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse(path: str) -> tuple[ResourceType, str | None, str | None, str | None]:
    """Kind, namespace, name and subresource of a path."""
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


def _owners(obj: Object) -> set[str]:
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or ()}


def _marked(obj: Object, when: str, seconds: int) -> Object:
    """An object that is being deleted."""
    meta = {**obj["metadata"], "deletionTimestamp": when, "deletionGracePeriodSeconds": seconds}
    if "generation" in meta and "deletionTimestamp" not in obj["metadata"]:
        meta["generation"] += 1
    marked: Object = copy({**obj, "metadata": meta})
    return marked


def _kept(old: Object, new: Object) -> Object:
    """New metadata, with everything in it that only the API server writes as it was.

    Raises:
        Refusal: it has a finalizer more, and the object is being deleted.
    """
    own = ("uid", "creationTimestamp", "namespace", "name", "resourceVersion", "generation")
    deletion = ("deletionTimestamp", "deletionGracePeriodSeconds")
    said = {part: value for part, value in new.items() if part not in (*own, *deletion)}
    for part in ("labels", "annotations", "finalizers", "ownerReferences"):
        if not said.get(part):
            said.pop(part, None)
    more = set(said.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if "deletionTimestamp" in old and more:
        raise Refusal(422, "Invalid", "no new finalizers can be added if the object is being deleted")
    return {**said, **{part: old[part] for part in (*own, *deletion) if part in old}}
