"""Send the same random requests to the in-memory API server and to a real one: both must give the same responses.

A seed draws the requests. They are drawn one after the other, and know what was answered before: names that exist, names that are
gone, versions that are current or old. What is a server's own affair (UIDs, versions, times, managed fields, defaults of pods) is
compared by its identity only: the same version where the other has the same, and another one where it has another.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
SHOWN = 6
"""Requests that are shown before one with another answer."""
_NAMES = ("a", "b", "c", "d")
_KEYS = ("shade", "size")
_VALUES = ("x", "y", "z")
_FINALIZERS = ("perdure.dev/first", "perdure.dev/second")
_BRIEF = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_BRIEF_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class RandomRequest(NamedTuple):
    """One request, the same for both servers except for versions and UIDs."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Send = Callable[[RandomRequest], Awaitable[tuple[int, Any]]]
"""Sends a request; the status, and the answer, decoded."""


class Placeholder(NamedTuple):
    """A placeholder for a value of an object in a server's response, in a request drawn for both servers."""

    key: tuple[str, str]
    number: int
    part: str


@dataclass
class Memory:
    """The responses of one server so far."""

    versions: dict[tuple[str, str], list[Json]] = field(default_factory=dict)
    """Metadata of each object by plural and name, in the order of the answers; each UID and version once."""

    def fill(self, value: Any) -> Any:
        """A value with this server's UIDs and versions."""
        if isinstance(value, Placeholder):
            return self.versions[value.key][value.number][value.part]
        if isinstance(value, dict):
            return {key: self.fill(each) for key, each in value.items()}
        return [self.fill(each) for each in value] if isinstance(value, list) else value

    def note(self, plural: str, meta: Json) -> tuple[int, int]:
        """Record an object, and return the numbers of its UID and version."""
        known = self.versions.setdefault((plural, meta["name"]), [])
        found = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
        if found not in known:
            known.append(found)
        uids = list(dict.fromkeys(each["uid"] for each in known))
        return uids.index(meta["uid"]), known.index(found)


@dataclass(frozen=True)
class Kind:
    """A kind, and how its objects are drawn."""

    root: str
    plural: str
    name: str
    draw: Callable[[Random], Json]
    """The fields of an object other than metadata."""
    mutable: Callable[[Random], Json]
    """A merge patch that may change it."""
    status: Callable[[Random], Json] | None = None
    immutable: bool = False
    """Whether schema or admission, which the server in memory does not have, keep the spec as it is."""
    fields: tuple[str, ...] = ()
    """Fields that lists can be selected by."""

    def manifest(self, random: Random, meta: Json) -> Json:
        """An object."""
        version = self.root.removeprefix("/apis/").removeprefix("/api/")
        return {"apiVersion": version, "kind": self.name, "metadata": meta, **self.draw(random)}


def _run(random: Random) -> Json:
    spec: Json = {"workflow": {"name": random.choice(_VALUES)}, "input": {"n": random.randrange(3)}}
    return {"spec": spec | random.choice([{}, {"ttlSecondsAfterFinished": 60}, {"workflowId": random.choice(_NAMES)}])}


def _schedule(random: Random) -> Json:
    steps = [{"name": "end", "return": {"output": random.choice(_VALUES)}}]
    template: Json = {"spec": {"inline": {"steps": steps}}}
    return {"spec": {"cron": ["0 0 1 1 *"], "workflowRunTemplate": template} | _paused(random)["spec"]}


def _paused(random: Random) -> Json:
    return {"spec": random.choice([{}, {"paused": True}, {"paused": False}, {"overlapPolicy": "AllowAll"}])}


def _operation(random: Random) -> Json:
    target = {"kind": "WorkflowRun", "name": random.choice(_NAMES)}
    return {"spec": {"target": target, "signal": {"name": random.choice(_VALUES)}}}


def _lease(random: Random) -> Json:
    return {"spec": {"holderIdentity": random.choice(_VALUES), "leaseDurationSeconds": random.randrange(1, 3)}}


def _config(random: Random) -> Json:
    return {"data": {key: random.choice(_VALUES) for key in random.sample(_KEYS, random.randrange(1, 3))}}


def _pod(random: Random) -> Json:
    allowed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    safe = {**allowed, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "main", "image": random.choice(_VALUES), "securityContext": safe}
    # The pod garbage collector removes deleted pods that wait for a node, and, 40 s after it first sees a missing node,
    # the pods on it: so each pod has its own missing node.
    spec: Json = {
        "containers": [container],
        "nodeName": f"nowhere-{random.getrandbits(64):x}",
        "restartPolicy": "Never",
    }
    return {"spec": spec | random.choice([{}, {"terminationGracePeriodSeconds": 5}])}


KINDS = (
    Kind(
        "/apis/perdure.dev/v1alpha1",
        "workflowruns",
        "WorkflowRun",
        _run,
        lambda random: {"spec": {"ttlSecondsAfterFinished": random.choice([60, 90, None])}},
        lambda random: {"phase": random.choice(["Pending", "Running"]), "attempt": random.randrange(1, 3)},
        immutable=True,
        fields=("status.phase", "spec.workflowId", "spec.workflow.name"),
    ),
    Kind(
        "/apis/perdure.dev/v1alpha1",
        "schedules",
        "Schedule",
        _schedule,
        _paused,
        lambda random: {"observedGeneration": random.randrange(1, 3)},
    ),
    Kind(
        "/apis/perdure.dev/v1alpha1",
        "operations",
        "Operation",
        _operation,
        lambda _: {},
        lambda random: {"phase": random.choice(["Running", "Complete"])},
        immutable=True,
        fields=("status.phase", "spec.target.name"),
    ),
    Kind("/apis/coordination.k8s.io/v1", "leases", "Lease", _lease, _lease),
    Kind("/api/v1", "configmaps", "ConfigMap", _config, _config),
    Kind(
        "/api/v1",
        "pods",
        "Pod",
        _pod,
        lambda _: {},
        lambda random: {"phase": random.choice(["Pending", "Succeeded", "Failed"]), "message": random.choice(_VALUES)},
        immutable=True,
        fields=("status.phase",),
    ),
)


def draw(random: Random, namespace: str, memory: Memory) -> RandomRequest:
    """A request; `memory` is that of either server."""
    kind = random.choice(KINDS)
    url = f"{kind.root}/namespaces/{namespace}/{kind.plural}"
    name = random.choice(_NAMES)
    key = (kind.plural, name)
    versions = [Placeholder(key, number, "resourceVersion") for number in range(len(memory.versions.get(key, ())))]
    verb = random.choices(["create", "get", "list", "delete", "put", "json", "merge"], [6, 3, 3, 3, 3, 5, 5])[0]
    if verb == "put" and kind.immutable:
        verb = "json"
    asked = RandomRequest("GET", f"{url}/{name}", {}, {}, None)
    match verb:
        case "create":
            query = {"dryRun": "All"} if random.random() < 0.1 else {}
            asked = RandomRequest("POST", url, query, {}, kind.manifest(random, _metadata(random, name)))
        case "get":
            asked = asked._replace(headers=random.choice([{}, {"Accept": _BRIEF}]))
        case "list":
            headers = random.choice([{}, {"Accept": _BRIEF_LIST}])
            asked = asked._replace(path=url, query=_selectors(random, kind), headers=headers)
        case "delete":
            asked = asked._replace(method="DELETE", body=_options(random, kind, key, versions))
        case "put":
            version = {"resourceVersion": _version(random, versions)} if versions else {}
            body = kind.manifest(random, {**_metadata(random, name), **version})
            asked = asked._replace(method="PUT", body=body)
            if kind.status is not None and "status" not in body and random.random() < 0.5:
                parts = {part: body[part] for part in ("apiVersion", "kind")}
                meta = {"namespace": namespace, "name": name, **version}
                brief = {"Accept": _BRIEF}
                put = {**parts, "metadata": meta, "status": kind.status(random)}
                asked = asked._replace(path=f"{asked.path}/status", headers=brief, body=put)
        case "json":
            where, operations = _json_patch(random, kind, versions)
            asked = RandomRequest("PATCH", f"{asked.path}{where}", {}, {"Content-Type": JSON_PATCH}, operations)
        case "merge":
            where, body = _merge_patch(random, kind, versions)
            asked = RandomRequest("PATCH", f"{asked.path}{where}", {}, {"Content-Type": MERGE_PATCH}, body)
    return asked


def _metadata(random: Random, name: str) -> Json:
    meta: Json = {"name": name}
    if random.random() < 0.5:
        meta["labels"] = {random.choice(_KEYS): random.choice(_VALUES)}
    if random.random() < 0.3:
        meta["finalizers"] = random.sample(_FINALIZERS, random.randrange(1, 3))
    return meta


def _version(random: Random, versions: list[Placeholder]) -> Any:
    """Mostly the newest version."""
    return versions[-1] if random.random() < 0.7 else random.choice(versions)


def _selectors(random: Random, kind: Kind) -> Json:
    query: Json = {}
    if kind.plural != "configmaps" and random.random() < 0.3:
        return {"limit": random.choice("123")}
    if random.random() < 0.5:
        key, value = random.choice(_KEYS), random.choice(_VALUES)
        query["labelSelector"] = random.choice([key, f"!{key}", f"{key}={value}", f"{key}!={value}", f"{key}=={value}"])
    if random.random() < 0.4:
        term = random.choice([*kind.fields, "metadata.name", "spec.none"])
        equal = random.choice(["=", "!=", "=="])
        query["fieldSelector"] = f"{term}{equal}{random.choice([*_NAMES, *_VALUES, 'Pending', 'Running', ''])}"
    return query


def _options(random: Random, kind: Kind, key: tuple[str, str], versions: list[Placeholder]) -> Json:
    options: Json = {"propagationPolicy": "Background"}
    if versions and random.random() < 0.5:
        version = _version(random, versions)
        part = random.choice(["uid", "resourceVersion"])
        options["preconditions"] = {part: Placeholder(key, version.number, part)}
    if kind.plural == "pods" and random.random() < 0.5:
        options["gracePeriodSeconds"] = random.choice([0, 1, 30])
    return options


def _json_patch(random: Random, kind: Kind, versions: list[Placeholder]) -> tuple[str, list[Json]]:
    operations: list[Json] = []
    if versions and random.random() < 0.6:
        operations.append(
            {
                "op": random.choice(["replace", "test"]),
                "path": "/metadata/resourceVersion",
                "value": _version(random, versions),
            }
        )
    if kind.status is not None and random.random() < 0.5:
        status = kind.status(random)
        part = random.choice(list(status))
        verb = random.choice(["add", "replace", "remove", "test"])
        operations += [{"op": "add", "path": "/status", "value": status}] if random.random() < 0.6 else []
        operations.append({"op": verb, "path": f"/status/{part}", "value": status[part]})
        return "/status", [_without_value(each) for each in operations]
    label = f"/metadata/labels/{random.choice(_KEYS)}"
    first = {"op": "add", "path": "/metadata/labels", "value": {random.choice(_KEYS): random.choice(_VALUES)}}
    changes: list[list[Json]] = [
        [{"op": random.choice(["add", "replace", "test"]), "path": label, "value": random.choice(_VALUES)}],
        [{"op": "remove", "path": label}],
        [first],
        [{"op": "remove", "path": f"/metadata/finalizers/{random.choice(['0', '1'])}"}],
        [
            {"op": "test", "path": "/metadata/finalizers/0", "value": _FINALIZERS[0]},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ],
        [{"op": "remove", "path": "/metadata/finalizers"}],
        [{"op": "add", "path": "/metadata/finalizers", "value": [random.choice(_FINALIZERS)]}],
        [{"op": "add", "path": "/metadata/finalizers/-", "value": random.choice(_FINALIZERS)}],
    ]
    return "", operations + random.choice(changes)


def _without_value(operation: Json) -> Json:
    return {key: value for key, value in operation.items() if key != "value" or operation["op"] != "remove"}


def _merge_patch(random: Random, kind: Kind, versions: list[Placeholder]) -> tuple[str, Json]:
    version = {"resourceVersion": _version(random, versions)} if versions and random.random() < 0.4 else {}
    if kind.status is not None and random.random() < 0.5:
        status = kind.status(random)
        part = random.choice(list(status))
        body: Json = {"status": random.choice([status, {part: status[part]}, {part: None}, None])}
        return "/status", {**body, **({"metadata": version} if version else {})}
    labels = random.choice([{random.choice(_KEYS): random.choice([*_VALUES, None])}, None])
    changes = random.choice(
        [{"labels": labels}, {"finalizers": None}, {"finalizers": [random.choice(_FINALIZERS)]}, {}]
    )
    body = kind.mutable(random) if random.random() < 0.4 else {}
    return "", {**body, "metadata": {**changes, **version}}


def compared(asked: RandomRequest, status: int, answer: Any, memory: Memory) -> Any:
    """The part of a response that must be the same for both servers."""
    plural = next(kind.plural for kind in KINDS if f"/{kind.plural}" in asked.path)
    if answer.get("kind") == "Status":
        return (status, answer.get("status"), answer.get("reason"))
    if str(answer.get("kind", "")).endswith("List"):
        more = bool(answer["metadata"].get("continue"))
        return (
            status,
            more,
            [_shape(plural, obj, memory) for obj in answer["items"] or () if obj["metadata"]["name"] in _NAMES],
        )
    if asked.query.get("dryRun"):
        answer["metadata"]["resourceVersion"] = ""  # missing, or without a meaning
        return (status, _shape(plural, answer, Memory()))
    return (status, _shape(plural, answer, memory))


def _shape(plural: str, obj: Json, memory: Memory) -> Json:
    meta = dict(obj["metadata"])
    uid, version = memory.note(plural, meta)
    ignored = ("managedFields", "creationTimestamp", "selfLink")
    shown = {key: value for key, value in meta.items() if key not in ignored}
    shown |= {"uid": uid, "resourceVersion": version, "namespace": "own"}
    if "deletionTimestamp" in shown:
        shown["deletionTimestamp"] = "set"
    rest = {key: value for key, value in obj.items() if key not in {"metadata", "kind", "apiVersion"}}
    if plural == "pods":  # their defaults are many, and nothing here relies on them
        rest = {
            "image": (rest.get("spec") or {}).get("containers", [{}])[0].get("image"),
            "phase": (rest.get("status") or {}).get("phase"),
        }
    return {"metadata": shown, **rest}


async def differences(seed: int, requests: int, namespace: str, *servers: Send) -> Iterator[str]:
    """Send random `requests` of a seed to two servers, and return the differences of their responses."""
    random, memories, lines, found = Random(seed), [Memory() for _ in servers], [], []
    for number in range(requests):
        asked = draw(random, namespace, memories[0])
        lines.append(f"{asked.method} {asked.path} {asked.query} {orjson.dumps(asked.body, default=str).decode()}")
        reported = []
        for send, memory in zip(servers, memories, strict=True):
            status, answer = await send(asked._replace(body=memory.fill(asked.body)))
            reported.append(compared(asked, status, answer, memory))
        if reported[0] != reported[1]:
            before = "\n".join(
                [line for line in lines if asked.path.partition("?")[0].removesuffix("/status") in line][-SHOWN:]
            )
            found.append(f"seed {seed}, request {number}:\n{before}\n  {reported[0]}\n  {reported[1]}")
            break  # from here on they have other states
    return iter(found)
