"""The operator reports a status that another client has written, and does not act on it."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from perdure.api.fields import format_time
from perdure.api.labels import ACCEPT_STATE_ANNOTATION, API_VERSION, DEAD_LETTER_ANNOTATION, DEAD_LETTER_LABEL
from perdure.api.operation import Reset
from perdure.api.reasons import ConditionReason
from perdure.controller.dead_letters import DeadLetters
from perdure.controller.errors import RefusedError
from perdure.controller.limits.workflow_limits import WorkflowLimits
from perdure.controller.manager import Manager
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.payloads.payload_store import Blobs
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.pods.service_account import ActivityIdentity
from perdure.controller.retry_policies import Policies
from perdure.controller.runs.resets import reset
from perdure.controller.tools import Tools
from perdure.controller.workflows.definitions import Definitions
from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.clock import now
from perdure.kube.event_recorder import Recorder
from perdure.observe.metrics import REGISTRY
from perdure.runtime import status_texts
from perdure.runtime.attempts import PodSettings
from perdure.runtime.commits import RESTORED_LABEL
from perdure.simulation.cluster.selecting import by_labels

Json = dict[str, Any]

WORK = {"name": "work", "startToCloseTimeout": "1h", "container": {"image": "shop"}}
TWO_STEPS: Json = {
    "activities": [WORK],
    "steps": [{"name": "first", "activity": {"name": "work"}}, {"name": "second", "activity": {"name": "work"}}],
}
KINDS = {"workflowruns": "WorkflowRun", "schedules": "Schedule"}
LONG_AGO = "2020-01-01T00:00:00Z"


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
        obj = status_texts.decode(copy.deepcopy(self.objects[key]))
        change(obj)
        self.put(key.split("/", maxsplit=1)[0], obj)

    def status(self, key: str = "workflowruns/order") -> Json:
        found: Json = copy.deepcopy(status_texts.decode(self.objects.get(key, {})).get("status") or {})
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
            body["metadata"] |= {"uid": f"{plural}-{self._count}", "namespace": "shop"}
            return web.json_response(self.put(plural, body), status=201)
        selected = by_labels(request.query.get("labelSelector", ""))
        items = [obj for key, obj in self.objects.items() if key.startswith(f"{plural}/") and selected(obj)]
        return web.json_response({"items": items, "metadata": {"resourceVersion": str(self._count)}})

    def _with_status(self, plural: str, obj: Json, body: Json) -> web.StreamResponse:
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            return web.json_response({"reason": "Conflict", "message": "changed"}, status=409)
        return web.json_response({"metadata": self.put(plural, {**obj, "status": body["status"]})["metadata"]})


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    found = Store()
    runner = web.ServerRunner(web.Server(found.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.address = "http://{}:{}".format(*runner.addresses[0][:2])
    yield found
    await runner.cleanup()


@asynccontextmanager
async def operator(store: Store) -> AsyncIterator[Manager]:
    """One process of the operator."""
    async with Client.open(Access(server=store.address), user_agent="test") as client:
        recorder = Recorder(client, instance="test")
        tools = Tools(
            client=client,
            pods=Pods(client, ActivityIdentity(client, "perdure-activity"), PodSettings()),
            definitions=Definitions(client),
            policies=Policies(client, recorder),
            letters=DeadLetters(client, recorder),
            limits=WorkflowLimits(client, recorder),
            recorder=recorder,
            blobs=Blobs(client),
        )
        manager = Manager(tools, ServedNamespaces(("shop",)))
        takers = {
            "workflowruns": manager.on_run,
            "pods": manager.on_pod,
            "schedules": manager.on_schedule,
        }

        def watch(plural: str, obj: Json, deleted: bool) -> None:
            if plural in takers:
                takers[plural](obj, deleted=deleted)

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


EDITS: dict[str, Callable[[Json, Json], Json]] = {
    "removed": lambda _now, _before: {},
    "an older one put back": lambda _now, before: before,
    "another definition": lambda now, _before: {
        **now,
        "definition": {"steps": [{"name": "x", "return": {"output": 1}}]},
    },
    "a completion time": lambda now, _before: {**now, "completionTime": LONG_AGO, "phase": "Completed"},
    "a state that closed": lambda now, _before: {
        **now,
        "completionTime": LONG_AGO,
        "phase": "Completed",
        "state": {**now["state"], "status": "Completed", "activities": {}},
    },
    "a step that did not finish": lambda now, _before: {**now, "state": {**now["state"], "activities": {}}},
}


def damaged() -> float:
    """How many damaged WorkflowRuns the metrics count."""
    labels = {"namespace": "shop", "kind": "WorkflowRun"}
    return REGISTRY.get_sample_value("perdure_state_damaged_total", labels) or 0.0


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_an_edit_is_reported_and_no_work_is_repeated(store: Store, edit: Callable[[Json, Json], Json]) -> None:
    async with operator(store):
        before = await halfway(store)
        good = store.status()
        found = damaged()
        store.edit("workflowruns/order", lambda run: run.update(status=edit(good, before)))
        await until(reason(store, "StateDamaged"))
        assert store.condition()["status"] == "Unknown"
        await until(lambda: store.events_of("StateDamaged"))
        assert damaged() == found + 1
        assert len(pods(store)) == 2
        assert not [key for key in store.deleted if key.startswith("workflowruns/")]
        # It is restored despite later writes, and continues where it was.
        store.edit("workflowruns/order", lambda run: run.update(status=good))
        await until(reason(store, "Running"))
        succeed(store, pods(store)[1])
        await until(reason(store, "Completed"))
        assert len(pods(store)) == 2
        assert store.events_of("StateDamaged") == 1


@pytest.mark.parametrize("name", ["another definition", "a completion time", "a step that did not finish"])
async def test_an_edit_while_no_operator_runs_is_reported(store: Store, name: str) -> None:
    async with operator(store):
        before = await halfway(store)
    good = store.status()
    store.edit("workflowruns/order", lambda run: run.update(status=EDITS[name](good, before)))
    async with operator(store):
        await until(reason(store, "StateDamaged"))
    async with operator(store):
        store.edit("workflowruns/order", lambda run: run.update(status=good))
        await until(reason(store, "Running"))
        succeed(store, pods(store)[1])
        await until(reason(store, "Completed"))
    assert len(pods(store)) == 2


async def test_a_finished_run_whose_completion_time_was_forged_is_kept(store: Store) -> None:
    store.create("workflowruns", "order", spec={"inline": {"steps": [{"name": "x", "return": {"output": 1}}]}})
    async with operator(store):
        await until(reason(store, "Completed"))
        good = store.status()
        store.edit("workflowruns/order", lambda run: run["status"].update(completionTime=LONG_AGO))
        await until(reason(store, "StateDamaged"))
        assert store.status()["phase"] == "Completed"
        store.edit("workflowruns/order", lambda run: run.update(status=good))
        await until(reason(store, "Completed"))
        assert not store.deleted
        # One that was written by a commit counts.
        store.edit("workflowruns/order", lambda run: run["spec"].update(ttlSecondsAfterFinished=0))
        await until(lambda: store.deleted == ["workflowruns/order"])


async def test_a_forged_output_of_a_child_does_not_reach_its_parent(store: Store) -> None:
    child = {"steps": [{"name": "x", "return": {"output": "good"}}]}
    steps = [{"name": "child", "childWorkflow": {"workflow": {"name": "child"}}}]
    store.create("workflows", "child", spec=child)
    store.create("workflowruns", "order", spec={"inline": {"steps": steps}})
    made = "workflowruns/order-2"
    forged: list[Json] = []

    def forge(plural: str, obj: Json, deleted: bool) -> None:
        if obj["metadata"]["name"] == "order-2" and (obj.get("status") or {}).get("output") == "good" and not forged:
            forged.append(obj["status"])
            store.objects[made]["status"]["output"] = "forged"
            obj = copy.deepcopy(store.objects[made])
        passed(plural, obj, deleted)

    async with operator(store):
        passed, store.watch = store.watch, forge
        await until(reason(store, "StateDamaged", made))
        assert store.condition()["reason"] == "Running"
        store.edit(made, lambda run: run.update(status=forged[0]))
        await until(reason(store, "Completed"))
    closing = store.status()["history"]["events"]
    assert [event["result"] for event in closing if event["eventType"] == "ChildWorkflowExecutionCompleted"] == ["good"]


async def test_a_forged_outcome_of_a_redrive_is_ignored(store: Store) -> None:
    letter = store.create("deadletters", "letter", spec={"activity": "work"})
    again = {"inline": {"steps": [{"name": "x", "return": {"output": "good"}}]}}
    store.create("workflowruns", "order", spec=again, labels={DEAD_LETTER_LABEL: letter["metadata"]["uid"]})
    meta = store.objects["workflowruns/order"]["metadata"]
    meta |= {"name": "letter-redrive-1", "annotations": {DEAD_LETTER_ANNOTATION: "letter"}}
    made = "workflowruns/letter-redrive-1"
    store.objects[made] = store.objects.pop("workflowruns/order")
    forged: list[Json] = []

    def forge(plural: str, obj: Json, deleted: bool) -> None:
        if plural == "workflowruns" and (obj.get("status") or {}).get("output") == "good" and not forged:
            forged.append(obj["status"])
            store.objects[made]["status"]["output"] = "forged"
            obj = copy.deepcopy(store.objects[made])
        passed(plural, obj, deleted)

    passed, store.watch = store.watch, forge
    async with operator(store):
        passed, store.watch = store.watch, forge
        await until(reason(store, "StateDamaged", made))
        await until(reason(store, "RedriveRunning", "deadletters/letter"))
        store.edit(made, lambda run: run.update(status=forged[0]))
        await until(reason(store, "RedriveSucceeded", "deadletters/letter"))
    assert store.status("deadletters/letter")["output"] == "good"


async def test_a_reset_does_not_continue_an_edited_history(store: Store) -> None:
    store.create("workflowruns", "order", spec={"inline": {"steps": [{"name": "x", "return": {"output": 1}}]}})
    async with operator(store) as manager:
        await until(reason(store, "Completed"))
        run = status_texts.decode(store.objects["workflowruns/order"])
        run["status"]["history"]["events"][0]["input"] = "forged"
        with pytest.raises(RefusedError, match="damaged") as caught:
            await reset(manager.client, manager.tools.definitions, run, Reset(event_id=1), request_id="asked")
    assert caught.value.reason is ConditionReason.STATE_DAMAGED


async def test_a_run_of_an_earlier_version_without_a_commit_continues(store: Store) -> None:
    async with operator(store):
        await halfway(store)
    store.edit("workflowruns/order", lambda run: run["status"].pop("commit"))
    async with operator(store):
        succeed(store, pods(store)[1])
        await until(reason(store, "Completed"))
    assert store.status()["commit"]["number"] >= 1
    assert (len(pods(store)), store.events_of("StateDamaged")) == (2, 0)


async def test_a_restored_run_continues_only_when_its_status_is_accepted(store: Store) -> None:
    async with operator(store):
        await halfway(store)
    backup = store.objects.pop("workflowruns/order")
    for name in pods(store):
        store.objects.pop(f"pods/{name}", None)
    # As Velero does it: the object, and then its status.
    store.create("workflowruns", "order", spec=backup["spec"], labels={RESTORED_LABEL: "monday"})
    async with operator(store):
        await until(reason(store, "StateDamaged"))
        assert "monday" in store.condition()["message"]
        store.edit("workflowruns/order", lambda run: run.update(status=backup["status"]))
        await until(lambda: backup["metadata"]["uid"] in store.condition().get("message", ""))
        accepted = store.condition()["message"].rpartition("to `")[2].rstrip("`")
        assert len(pods(store)) == 2
        annotations = {ACCEPT_STATE_ANNOTATION: accepted}
        store.edit("workflowruns/order", lambda run: run["metadata"].update(annotations=annotations))
        await until(lambda: len(pods(store)) == 3)  # the second step once more, and the first not
        assert pods(store)[2] == pods(store)[1]
        succeed(store, pods(store)[2])
        await until(reason(store, "Completed"))
        assert store.status()["runId"] == store.objects["workflowruns/order"]["metadata"]["uid"]


def schedule(**status: Any) -> Json:
    steps = {"steps": [{"name": "x", "return": {"output": 1}}]}
    spec = {
        "intervals": [{"every": "1h"}],
        "catchupWindow": "365d",
        "overlapPolicy": "AllowAll",
        "workflowRunTemplate": {"spec": {"inline": steps}},
    }
    return {"spec": spec, **({"status": status} if status else {})}


@pytest.mark.parametrize("how", ["removed", "put back", "edited"])
async def test_an_edited_schedule_repeats_no_times(store: Store, how: str) -> None:
    store.create("schedules", "nightly", **schedule())
    key, past = "schedules/nightly", format_time(now() - timedelta(days=3))
    async with operator(store):
        await until(reason(store, "Accepted", key))
        old = store.status(key)
        old["state"]["cursor"] = old["state"]["handledAfter"] = past
        asked = {"request": "r1", "ok": True}
        store.edit(key, lambda obj: obj["spec"].update(notes="changed", intervals=[{"every": "2h"}]))
        store.edit(key, lambda obj: obj["metadata"].update(generation=2))
        await until(lambda: store.status(key)["commit"]["number"] > 1)
        good = store.status(key)
        edits: dict[str, Callable[[Json], Any]] = {
            "removed": lambda obj: obj.pop("status"),
            "put back": lambda obj: obj.update(status={**good, "commit": old["commit"], "state": old["state"]}),
            "edited": lambda obj: obj["status"]["state"].update(cursor=past, answered=[asked]),
        }
        store.edit(key, edits[how])
        await until(reason(store, "StateDamaged", key))
        await until(lambda: store.events_of("StateDamaged"))
        store.edit(key, lambda obj: obj.update(status=good))
        await until(reason(store, "Accepted", key))
    assert store.events_of("StateDamaged") == 1
    assert not [key for key in store.created if key.startswith("workflowruns/")]


async def test_a_schedule_with_an_unreadable_state_restarts_from_now_when_accepted(store: Store) -> None:
    store.create("schedules", "nightly", **schedule())
    key = "schedules/nightly"
    async with operator(store):
        await until(reason(store, "Accepted", key))
        long_ago = format_time(now() - timedelta(days=3))
        store.edit(key, lambda obj: obj["metadata"].update(creationTimestamp=long_ago))
        store.edit(key, lambda obj: obj["status"]["state"].update(cursor="yesterday"))
        await until(reason(store, "StateDamaged", key))
        accepted = store.condition(key)["message"].rpartition("to `")[2].rstrip("`")
        annotations = {ACCEPT_STATE_ANNOTATION: accepted}
        store.edit(key, lambda obj: obj["metadata"].update(annotations=annotations))
        await until(reason(store, "Accepted", key))
    assert not [key for key in store.created if key.startswith("workflowruns/")]
