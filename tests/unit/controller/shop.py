"""An API server with the objects of the namespace `shop`, and operators that watch it."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
from aiohttp import web

from perdure.api.labels import API_VERSION
from perdure.api.times import format_time
from perdure.controller.manager import Manager
from perdure.controller.namespaces import ServedNamespaces
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.runtime import status_encoding
from perdure.simulation.cluster.apiserver import by_labels
from support.http_server import serving
from support.managers import services_over

Json = dict[str, Any]

WORK = {"name": "work", "startToCloseTimeout": "1h", "container": {"image": "shop"}}
TWO_STEPS: Json = {
    "activities": [WORK],
    "steps": [{"name": "first", "activity": {"name": "work"}}, {"name": "second", "activity": {"name": "work"}}],
}
KINDS = {"workflowruns": "WorkflowRun", "schedules": "Schedule"}


class Store:
    """The API server: objects of the namespace `shop`, compare-and-swap, lists, and a watch that never lags."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.events: list[Json] = []
        self.watch: Callable[[str, Json, bool], None] = lambda _plural, _obj, _deleted: None
        self.address = ""
        self._count = 0

    def create(self, plural: str, name: str, *, uid: str = "", labels: Json | None = None, **content: Any) -> Json:
        self._count += 1
        meta = {"name": name, "namespace": "shop", "generation": 1, "creationTimestamp": format_time(now())}
        meta |= {"uid": uid or f"{plural}-{self._count}", "labels": labels or {}}
        return self.put(plural, {"metadata": meta, **content})

    def put(self, plural: str, obj: Json) -> Json:
        self._count += 1
        obj["metadata"]["resourceVersion"] = str(self._count)
        obj |= {"apiVersion": API_VERSION, "kind": KINDS.get(plural, "")}
        self.objects[f"{plural}/{obj['metadata']['name']}"] = obj
        self.watch(plural, copy.deepcopy(obj), False)
        return copy.deepcopy(obj)

    def edit(self, key: str, change: Callable[[Json], None]) -> None:
        """Change an object as another client does."""
        obj = status_encoding.decode(copy.deepcopy(self.objects[key]))
        change(obj)
        self.put(key.split("/", maxsplit=1)[0], obj)

    def status(self, key: str = "workflowruns/order") -> Json:
        found: Json = copy.deepcopy(status_encoding.decode(self.objects.get(key, {})).get("status") or {})
        return found

    def condition(self, key: str = "workflowruns/order") -> Json:
        found: Json = next(iter(self.status(key).get("conditions") or ()), {})
        return found

    def events_of(self, reason: str) -> int:
        return [event["reason"] for event in self.events].count(reason)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.split("/namespaces/shop/")[-1].split("/")
        plural, name = parts[0], parts[1] if len(parts) > 1 else ""
        key = f"{plural}/{name}"
        body = orjson.loads(await request.read() or b"null")
        if "/namespaces/" not in request.path or not name:
            return self._collection(request, request.path.rsplit("/", 1)[-1], body)
        obj = self.objects.get(key)
        if obj is None:
            return web.json_response({"reason": "NotFound", "message": "gone"}, status=404)
        if request.method == "DELETE":
            self.deleted.append(key)
            self.watch(plural, self.objects.pop(key), True)
        elif request.method == "PUT":
            return self._with_status(plural, obj, body)
        return web.json_response(obj)

    def _collection(self, request: web.BaseRequest, plural: str, body: Json) -> web.StreamResponse:
        if request.method == "POST" and plural == "events":
            self.events.append(body)
            return web.json_response(body, status=201)
        if request.method == "POST":
            name = body["metadata"]["name"]
            if f"{plural}/{name}" in self.objects:
                return web.json_response({"reason": "AlreadyExists", "message": name}, status=409)
            self.created.append(f"{plural}/{name}")
            self._count += 1
            created = format_time(now())
            body["metadata"] |= {"uid": f"{plural}-{self._count}", "namespace": "shop", "creationTimestamp": created}
            return web.json_response(self.put(plural, body), status=201)
        selected = by_labels(request.query.get("labelSelector", ""))
        items = [obj for key, obj in self.objects.items() if key.startswith(f"{plural}/") and selected(obj)]
        return web.json_response({"items": items, "metadata": {"resourceVersion": str(self._count)}})

    def _with_status(self, plural: str, obj: Json, body: Json) -> web.StreamResponse:
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            return web.json_response({"reason": "Conflict", "message": "changed"}, status=409)
        return web.json_response({"metadata": self.put(plural, {**obj, "status": body["status"]})["metadata"]})


@asynccontextmanager
async def shop() -> AsyncIterator[Store]:
    """The API server, on loopback."""
    found = Store()
    async with serving(found.answer) as found.address:
        yield found


@asynccontextmanager
async def operator(store: Store) -> AsyncIterator[Manager]:
    """One process of the operator."""
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        recorder = Recorder(client, instance="test")
        services = services_over(client, recorder)
        manager = Manager(services, ServedNamespaces(("shop",)))

        def watch(plural: str, obj: Json, deleted: bool) -> None:
            if plural in {"workflowruns", "pods", "schedules"}:
                manager.informers[plural].on_event(obj, deleted=deleted)

        work = asyncio.create_task(manager.run())
        await manager.first_lists.wait()
        for key, obj in list(store.objects.items()):
            watch(key.split("/")[0], copy.deepcopy(obj), False)
        store.watch = watch
        try:
            yield manager
        finally:  # before the session is closed that the work uses
            store.watch = lambda _plural, _obj, _deleted: None
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work


async def until(holds: Callable[[], Any]) -> Any:
    """Wait for something."""
    async with asyncio.timeout(180):
        while not (found := holds()):  # noqa: ASYNC110 - several things may have to come together
            await asyncio.sleep(0.005)
    return found


def reason(store: Store, wanted: str, key: str = "workflowruns/order") -> Callable[[], bool]:
    return lambda: store.condition(key).get("reason") == wanted


def pods(store: Store) -> list[str]:
    return [key.removeprefix("pods/") for key in store.created if key.startswith("pods/")]


def succeed(store: Store, name: str) -> None:
    """The kubelet reports that the container of a pod has succeeded."""
    ended = {"exitCode": 0, "startedAt": format_time(now()), "finishedAt": format_time(now()), "message": '"done"'}
    container = {"name": "activity", "state": {"terminated": ended}}
    phase = {"phase": "Succeeded", "containerStatuses": [container]}
    store.edit(f"pods/{name}", lambda pod: pod.update(status=phase))


async def halfway(store: Store) -> Json:
    """A run of two steps, of which the first has finished; and its status from before."""
    store.create("workflows", "two", spec=TWO_STEPS)
    store.create("workflowruns", "order", spec={"workflow": {"name": "two"}})
    await until(lambda: len(pods(store)) == 1)
    before = store.status()
    succeed(store, pods(store)[0])
    await until(lambda: len(pods(store)) == 2)
    return before


def schedule(**status: Any) -> Json:
    steps = {"steps": [{"name": "x", "return": {"output": 1}}]}
    spec = {
        "intervals": [{"every": "1h"}],
        "catchupWindow": "365d",
        "overlapPolicy": "AllowAll",
        "workflowRunTemplate": {"spec": {"inline": steps}},
    }
    return {"spec": spec, **({"status": status} if status else {})}
