"""Recorded forms: the objects of a cluster in the middle of its work, as one version of the operator has stored them.

`record` plays the first half of a story with one operator, and returns all objects. `finish` starts today's operator on recorded
objects, and plays the second half. So whoever changes a stored form learns whether objects of every earlier one are continued.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from perdure.api import labels
from perdure.api.names import DEFAULTS_NAME
from perdure.api.stored import MessageStruct
from perdure.frontend.deployments.rules import Version, WorkerDeployment
from perdure.frontend.matching.dispatch import QueueSettings, Rank, RateLimit
from perdure.frontend.matching.queues import Destination, Kind, Offer, OfferBatch, PolledQueues, Poller, QueueName
from perdure.frontend.nexus.endpoints import Endpoint
from perdure.frontend.peers.client import OfferTaken, pack
from perdure.handlers.assembly import OperatorOptions
from perdure.runtime import status_encoding
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import ContainerExit, Kubelet
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.process import Operator, Session, task_factory
from perdure.simulation.cluster.resources import kinds
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.ids import seeded_ids
from simulated.scenarios.definitions import activity, step

FORMS: Final = Path(__file__).resolve().parents[2] / "golden" / "forms"
START: Final = datetime(2026, 11, 22, tzinfo=UTC)
_RECORDED_AFTER: Final = timedelta(seconds=100)
_ITEMS: Final = 110
"""Each has two events; from 200 on, they are sealed."""
_WAIT: Final = {"name": "wait", "waitForSignal": {"name": "go"}}
_ONCE: Final = {"exponential": {"maximumAttempts": 1}}
_OUTPUTS: Final = {"outputs": [{"name": "report", "path": "/out/report"}], "store": "store"}


def _flow(*steps: Object, activities: Iterable[Object] = (), **more: Any) -> Object:
    return {"activities": [activity("steady"), *activities], "steps": list(steps), "output": "${'done'}", **more}


def _runs() -> dict[str, Object]:
    """The runs of the story: each is in the middle of something else when the objects are recorded."""
    retries = {"exponential": {"initialInterval": "10m", "maximumAttempts": 5}}
    items = "${" + str(list(range(_ITEMS))) + "}"
    fan = {"name": "fan", "forEach": {"items": items, "maxConcurrency": 25, "as": "x"}}
    make = {"name": "make", "activity": {"name": "make"}}
    ask = step("ask", "ask", input="a")
    return {
        "sleeping": _flow(step("one", "steady"), {"name": "nap", "sleep": {"duration": "2h"}}),
        "signaled": _flow(step("one", "steady", input={"n": 1}), _WAIT, output="${steps.wait.output}"),
        "retrying": _flow(step("work", "flaky"), activities=[activity("flaky", retryPolicy=retries)]),
        "beating": _flow(step("work", "slow"), activities=[activity("slow", heartbeatTimeout="1h")]),
        "sealed": _flow(fan | {"sleep": {"duration": "1s"}}, step("one", "steady"), _WAIT),
        "parent": _flow({"name": "child", "childWorkflow": {"workflow": {"name": "child"}, "input": {}}}),
        "undoing": _flow(
            {**step("one", "steady"), "compensate": {"activity": {"name": "flaky", "input": "one"}}},
            step("last", "doomed"),
            activities=[activity("flaky", retryPolicy=retries), activity("doomed", retryPolicy=_ONCE)],
        ),
        "lettered": _flow(
            {**step("work", "doomed"), "deadLetter": True}, activities=[activity("doomed", retryPolicy=_ONCE)]
        ),
        "guarded": _flow(step("work", "guarded"), activities=[activity("guarded", retryPolicy={"name": "breaker"})]),
        "caching": _flow(ask, _WAIT, activities=[activity("ask", cache={"key": "${input}", "maxAge": "60d"})]),
        "uploading": _flow(make, _WAIT, activities=[activity("make", artifacts=_OUTPUTS, retryPolicy=_ONCE)]),
        "holding": _flow(_WAIT, limits=[{"name": "oven"}]),
        "queueing": _flow(_WAIT, limits=[{"name": "oven"}]),
        "paused": _flow(step("one", "steady"), _WAIT),
        "done": _flow(step("one", "steady")),
    }


_SIGNALED: Final = ("signaled", "sealed", "caching", "uploading", "holding", "queueing", "paused")
"""Runs that wait for a signal."""
_CHILD: Final = {"steps": [_WAIT], "output": "${'done'}"}
_LOOP: Final = {
    "activities": [activity("steady")],
    "steps": [
        step("work", "steady"),
        {"name": "nap", "sleep": {"duration": "40s"}},
        {"name": "again", "when": "${input.n > 0}", "continueAsNew": {"input": {"n": "${input.n - 1}"}}},
    ],
    "output": "${input.n}",
}


class _Stage:
    """A cluster in memory with one operator and no faults, in virtual time."""

    def __init__(self, start: datetime, script: Callable[[Object], ContainerExit]) -> None:
        self.loop = VirtualLoop(start)
        self.loop.set_task_factory(task_factory)
        self.server = ApiServer(self.loop, Random(str(start)))
        self.kubelet = Kubelet(self.loop, self.server, script)
        self.crashed: list[str] = []

    def operator(self, **options: Any) -> Operator:
        session = Session(self.server, "operator")
        return Operator(
            OperatorOptions(instance="operator", **options),
            self.loop,
            self.server,
            session,
            crashed=self.crashed.append,
        )

    def create(self, kind: str, name: str, spec: Object, **meta: Any) -> None:
        plural = {"RetryPolicy": "retrypolicies"}.get(kind, f"{kind.lower()}s")
        self.server.create(plural, {"metadata": {"name": name, **meta}, "spec": spec})

    def operate(self, name: str, run: str, **what: Any) -> None:
        self.create("Operation", name, {"target": {"kind": "WorkflowRun", "name": run}, **what})

    def load(self, objects: Iterable[Object]) -> None:
        """Store objects as they were recorded."""
        plurals = {each.kind: each.plural for each in kinds().values()}
        for obj in objects:
            meta = obj["metadata"]
            self.server.objects.put(ObjectKey(plurals[obj["kind"]], meta["namespace"], meta["name"]), obj)
            self.server.version = max(self.server.version, int(meta["resourceVersion"]))

    def runs(self) -> dict[str, Object]:
        return {each["metadata"]["name"]: status_encoding.decode(each) for each in self.server.of("workflowruns")}


@contextmanager
def _playing(stage: _Stage) -> Any:
    asyncio.set_event_loop(stage.loop)
    try:
        with seeded_ids(Random(str(stage.loop.now()))):
            yield
    finally:
        stage.loop.abandon()
        asyncio.set_event_loop(None)
        stage.loop.close()


def record(more: Mapping[str, Object] | None = None, defaults: Object | None = None, **options: Any) -> list[Object]:
    """All objects in the middle of the story, as an operator of today's code has stored them.

    Args:
        more: The specs of runs that start with those of the story, by name.
        defaults: The spec of the WorkflowDefaults; None: there are none.
        options: Options of the operator, in addition to its name.
    """

    def script(pod: Object) -> ContainerExit:
        name = pod["metadata"]["labels"][labels.ACTIVITY_LABEL]
        failed = ContainerExit(after=1, code=1, message='{"type": "Flaky", "message": "no"}')
        ends = {"slow": ContainerExit(after=None), "flaky": failed, "doomed": failed, "guarded": failed}
        return ends.get(name, ContainerExit(after=1))

    stage = _Stage(START, script)

    async def play() -> None:
        operator = stage.operator(**options)
        stage.create("Workflow", "child", _CHILD)
        stage.create("Workflow", "loop", _LOOP)
        if defaults is not None:
            stage.server.create("workflowdefaults", {"metadata": {"name": DEFAULTS_NAME}, "spec": defaults})
        stage.create("WorkflowLimit", "oven", {"capacity": 1, "rate": {"count": 5, "period": "1h"}})
        breaker = {"failureThreshold": 1, "openDuration": "2h", "successThreshold": 1}
        retries = {"initialInterval": "1s", "maximumInterval": "1s", "maximumAttempts": 12}
        stage.create("RetryPolicy", "breaker", {"exponential": retries, "circuitBreaker": breaker})
        for name, spec in {**{name: {"inline": each} for name, each in _runs().items()}, **(more or {})}.items():
            stage.create("WorkflowRun", name, {**spec, "ttlSecondsAfterFinished": 10_000_000})
            await asyncio.sleep(0.5)
        stage.create("WorkflowRun", "chain", {"workflow": {"name": "loop"}, "input": {"n": 3}})
        stage.create("WorkflowRun", "coded", {"workflow": {"type": "Order", "taskQueue": "orders"}})
        template = {"spec": {"workflow": {"name": "child"}}}
        often = {"intervals": [{"every": "30s"}], "overlapPolicy": "BufferOne", "workflowRunTemplate": template}
        stage.create("Schedule", "every", often)
        await asyncio.sleep(20)
        stage.operate("pause", "paused", pause={"reason": "for a look"})
        await asyncio.sleep(_RECORDED_AFTER.total_seconds() - stage.loop.time())
        await operator.kill()

    with _playing(stage):
        stage.loop.run_until_complete(play())
    assert not stage.crashed, stage.crashed
    return [obj for _, obj in sorted(stage.server.objects.items())]


def finish(objects: Iterable[Object], **options: Any) -> tuple[dict[str, Object], dict[str, Object]]:
    """Let today's operator finish the story of recorded objects.

    Args:
        objects: The recorded objects.
        options: Options of the operator, in addition to its name.

    Returns:
        The runs by name, and the other objects of Perdure by kind and name, at the end.
    """
    stage = _Stage(START + _RECORDED_AFTER, lambda _pod: ContainerExit(after=1))
    stage.load(objects)

    async def play() -> None:
        operator = stage.operator(**options)
        await asyncio.sleep(10)
        stage.operate("unpause", "paused", unpause={})
        for name in _SIGNALED:
            stage.operate(f"go-{name}", name, signal={"name": "go", "input": {"sent": name}})
        for pod in stage.server.of("pods"):
            if pod["status"]["phase"] == "Running":
                stage.kubelet.finish(
                    ObjectKey("pods", "default", pod["metadata"]["name"]), pod["metadata"]["uid"], 0, '"ok"'
                )
        stage.operate("end", "coded", terminate={})
        for name, run in stage.runs().items():  # the child of `parent`, and the runs of the Schedule
            if not run["status"].get("completionTime") and "child" in str(run["spec"].get("workflow")):
                stage.operate(f"go-{name}"[:60], name, signal={"name": "go", "input": {}})
        stage.server.update(ObjectKey("schedules", "default", "every"), lambda obj: obj["spec"].update(paused=True))
        await asyncio.sleep(100)
        for name, run in stage.runs().items():  # a run that the Schedule had buffered
            if not run["status"].get("completionTime") and name.startswith("every-"):
                stage.operate(f"then-{name}"[:60], name, signal={"name": "go", "input": {}})
        await asyncio.sleep(timedelta(hours=3).total_seconds())
        await operator.kill()

    with _playing(stage):
        stage.loop.run_until_complete(play())
    assert not stage.crashed, stage.crashed
    others = {
        f"{obj['kind']}/{obj['metadata']['name']}": obj
        for key, obj in sorted(stage.server.objects.items())
        if key.plural != "workflowruns" and obj["apiVersion"] == labels.API_VERSION
    }
    return stage.runs(), others


_OFFER: Final = Offer("run-id", 5, 2, "", Rank(1, "vip", 2.5), "op-1")
_QUEUE: Final = QueueName("shop", Kind.ACTIVITY, "orders", "v2")
_LIMIT: Final = RateLimit(requests_per_second=5.0, reason="slow", update_identity="ops", update_time=START)
_VERSION: Final = Version(create_time=START, task_queues={Kind.WORKFLOW: ("orders",)}, current_since_time=START)
_QUEUE_SETTINGS: Final = QueueSettings(queue_rate_limit=_LIMIT, fairness_weight_overrides={"vip": 3.0})
MESSAGES: Final[tuple[MessageStruct, ...]] = (
    OfferBatch(session="s", complete=True, offers={"run-id": [(_OFFER, Destination(_QUEUE, "sticky"))], "gone": []}),
    OfferTaken(kind=Kind.ACTIVITY, offer=_OFFER, poller=Poller("worker", True, "op-2", "request")),
    PolledQueues(known=True, alive=[_QUEUE], polled=[_QUEUE]),
)
"""Messages between members of a fleet."""
SETTINGS: Final[Mapping[str, Any]] = {
    "perdure-worker-deployments": WorkerDeployment(
        create_time=START, versions={"v2": _VERSION}, current="v2", current_changed_time=START, revision=1, changes=1
    ),
    "perdure-nexus-endpoints": Endpoint(id="e", namespace="shop", task_queue="orders", created_time=START),
    "perdure-task-queues": {"activity": _QUEUE_SETTINGS},
}
"""Settings of Temporal's clients: an entry of each ConfigMap."""


def write(folder: Path, objects: Iterable[Object], fields: Mapping[str, list[str]]) -> None:
    """Keep recorded objects, messages, settings, and the fields of all stored types in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: msgspec.json.encode(each).decode() for name, each in SETTINGS.items()}
    packed = {type(each).__name__: base64.b64encode(pack(each)).decode() for each in MESSAGES}
    _dump(folder / "objects.json", list(objects))
    _dump(folder / "settings.json", texts)
    _dump(folder / "messages.json", packed)
    _dump(folder / "fields.json", fields)


def _dump(file: Path, value: Any) -> None:
    file.write_text(f"{json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)}\n", encoding="utf-8")


def read(folder: Path, name: str = "objects") -> Any:
    """Read the objects, the messages, or the settings that are kept in a folder."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
