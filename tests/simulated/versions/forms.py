"""Recorded forms: the objects of a cluster in the middle of its work, as one version of the operator has stored them.

`record` plays the first half of a story with one operator, and returns all objects. `finish` starts today's operator on recorded
objects, and plays the second half. So whoever changes a stored form learns whether objects of every earlier one are continued.
"""

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from perdure.api import labels
from perdure.api.names import DEFAULTS_NAME
from perdure.api.stored import MessageStruct
from perdure.controller.manager import Manager
from perdure.controller.upgrades import UpgradeSettings
from perdure.frontend.core import Frontend
from perdure.frontend.deployments.rules import Version, WorkerDeployment
from perdure.frontend.matching.dispatch import QueueSettings, Rank, RateLimit
from perdure.frontend.matching.queues import (
    Destination,
    Kind,
    Offer,
    OfferBatch,
    PolledQueues,
    Poller,
    QueueLoad,
    QueueName,
)
from perdure.frontend.messages.tokens import ActivityToken, NexusToken, PageToken, QueryToken, Token, WorkflowTaskToken
from perdure.frontend.messages.tokens import pack as pack_token
from perdure.frontend.nexus.endpoints import Endpoint
from perdure.frontend.peers.client import OfferTaken, pack
from perdure.frontend.settings import Settings
from perdure.handlers.assembly import OperatorOptions
from perdure.runtime import status_encoding
from perdure.runtime.callbacks import CallbackToken
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import ContainerExit, Kubelet
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.process import Operator, Session, task_factory
from perdure.simulation.cluster.resources import kinds
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.ids import seeded_ids
from simulated.scenarios.definitions import activity, step
from simulated.versions.clients import WORKERS, Clients
from support.memory_archive import MemoryArchive

if TYPE_CHECKING:
    from perdure.archive.rows import Archive

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


def _added_runs() -> dict[str, Object]:
    """The runs that recordings have since state version 3."""
    nap, pod = [{"name": "nap", "sleep": {"duration": "2h"}}], [step("one", "steady")]
    blocks = [{"name": "nap", "steps": nap}, {"name": "pod", "steps": pod}, {"name": "wait", "steps": [_WAIT]}]
    branches = [{"name": each["name"], "block": each["name"]} for each in blocks]
    services = [{"name": "db", "image": "db", "readyTimeout": "1h"}]
    return {
        "branching": _flow({"name": "all", "parallel": {"wait": "All", "branches": branches}}, blocks=blocks),
        "served": _flow(_WAIT, services=services, output="${services.db.host}"),
        "unready": _flow(_WAIT, services=services),
    }


_SIGNALED: Final = ("signaled", "sealed", "caching", "uploading", "holding", "queueing", "paused")
_SIGNALED_SINCE: Final = ("branching", "served", "unready")
"""Runs that wait for a signal."""
_WEBHOOK: Final = {"signature": {"secret": {"name": "orders"}}, "start": {"workflow": {"name": "child"}}}
_WORKERS: Final = {
    "taskQueues": [WORKERS],
    "buildId": "v1",
    "podTemplate": {"spec": {"containers": [{"name": "worker", "image": "worker"}]}},
}
CHILD: Final = {"steps": [_WAIT], "output": "${'done'}"}
_LOOP: Final = {
    "activities": [activity("steady")],
    "steps": [
        step("work", "steady"),
        {"name": "nap", "sleep": {"duration": "40s"}},
        {"name": "again", "when": "${input.n > 0}", "continueAsNew": {"input": {"n": "${input.n - 1}"}}},
    ],
    "output": "${input.n}",
}


def _is_service(pod: Object) -> bool:
    return labels.SERVICE_LABEL in pod["metadata"]["labels"]


class _Nodes(Kubelet):
    """Runs every pod; services are ready after a while."""

    def ready_seconds(self, pod: Object) -> float:  # noqa: ARG002 - the same for all
        return 5.0


class _Stage:
    """A cluster in memory with one operator and no faults, in virtual time."""

    def __init__(self, start: datetime, script: Callable[[Object], ContainerExit]) -> None:
        self.loop = VirtualLoop(start)
        self.loop.set_task_factory(task_factory)
        self.server = ApiServer(self.loop, Random(str(start)))
        self.kubelet = _Nodes(self.loop, self.server, script)
        self.crashed: list[str] = []
        self.archive = MemoryArchive()

    def operator(self, **options: Any) -> Operator:
        session = Session(self.server, "operator")

        def serve(manager: Manager) -> Frontend:
            self.frontend = Frontend(manager, Settings(authentication=False))
            return self.frontend

        return Operator(
            OperatorOptions(instance="operator", **options),
            self.loop,
            self.server,
            session,
            crashed=self.crashed.append,
            frontend=serve,
            archive=cast("Archive", self.archive),
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

    def objects(self) -> list[Object]:
        return [obj for _, obj in sorted(self.server.objects.items())]

    async def upgrade_record(self) -> None:
        """Wait until the operator has written the upgrade record: while nothing is stored, it writes its newest version."""
        while not self.server.of("configmaps"):  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.5)

    def lose_service(self, run: str) -> None:
        """Lose the pod of a service of a run before it is ready."""
        for pod in self.server.of("pods"):
            if _is_service(pod) and pod["metadata"]["labels"][labels.RUN_LABEL] == run:
                self.server.delete(ObjectKey("pods", "default", pod["metadata"]["name"]))

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


MEMBER: Final[Mapping[str, Any]] = {
    "fleet": "perdure",
    "upgrades": UpgradeSettings(record="perdure-state-version", hold_back=timedelta(minutes=1)),
}
"""The options of an operator that has a Lease, and an upgrade record."""


@dataclass(frozen=True)
class Recorded:
    """What is stored in the middle of the story."""

    objects: list[Object]
    archive: dict[str, str]
    """The rows of the archive by the names of their runs, in base64."""


def record(
    more: Mapping[tuple[str, str], Object] | None = None,
    defaults: Object | None = None,
    *,
    whole: bool = True,
    **options: Any,
) -> Recorded:
    """What is stored in the middle of the story, as an operator of today's code has stored it.

    Args:
        more: The specs of more objects by kind and name. Operations come too late for the operator.
        defaults: The spec of the WorkflowDefaults; None: there are none.
        whole: Whether to add what recordings have since state version 3.
        options: Options of the operator, in addition to its name.
    """
    again = False
    more = more or {}

    def script(pod: Object) -> ContainerExit:
        name = pod["metadata"]["labels"][labels.ACTIVITY_LABEL]
        failed = ContainerExit(after=1, code=1, message='{"type": "Flaky", "message": "no"}')
        endless = ContainerExit(after=None)
        ends = {"slow": endless, "flaky": failed, "doomed": endless if again else failed, "guarded": failed}
        if _is_service(pod):
            return endless
        return ends.get(name, ContainerExit(after=1))

    stage = _Stage(START, script)

    async def play() -> None:
        nonlocal again
        operator = stage.operator(**options, **(MEMBER if whole else {}))
        if whole:
            await stage.upgrade_record()
        stage.create("Workflow", "child", CHILD)
        stage.create("Workflow", "loop", _LOOP)
        if defaults is not None:
            stage.server.create("workflowdefaults", {"metadata": {"name": DEFAULTS_NAME}, "spec": defaults})
        stage.create("WorkflowLimit", "oven", {"capacity": 1, "rate": {"count": 5, "period": "1h"}})
        breaker = {"failureThreshold": 1, "openDuration": "2h", "successThreshold": 1}
        retries = {"initialInterval": "1s", "maximumInterval": "1s", "maximumAttempts": 12}
        stage.create("RetryPolicy", "breaker", {"exponential": retries, "circuitBreaker": breaker})
        runs = {**_runs(), **(_added_runs() if whole else {})}
        for (kind, name), spec in {
            **{("WorkflowRun", name): {"inline": each} for name, each in runs.items()},
            **more,
        }.items():
            if kind != "Operation":
                stage.create(
                    kind, name, {**spec, "ttlSecondsAfterFinished": 10_000_000} if kind == "WorkflowRun" else spec
                )
                await asyncio.sleep(0.5)
        if whole:
            stage.lose_service("unready")
            stage.create("Webhook", "orders", _WEBHOOK)
            stage.create("WorkerDeployment", WORKERS, _WORKERS)
            await Clients(operator, stage.frontend).begin()
        stage.create("WorkflowRun", "chain", {"workflow": {"name": "loop"}, "input": {"n": 3}})
        stage.create("WorkflowRun", "coded", {"workflow": {"type": "Order", "taskQueue": "orders"}})
        template = {"spec": {"workflow": {"name": "child"}}}
        often = {"intervals": [{"every": "30s"}], "overlapPolicy": "BufferOne", "workflowRunTemplate": template}
        stage.create("Schedule", "every", often)
        await asyncio.sleep(20)
        stage.operate("pause", "paused", pause={"reason": "for a look"})
        if whole:
            again = True
            (letter,) = stage.server.of("deadletters")
            target = {"kind": "DeadLetter", "name": letter["metadata"]["name"]}
            stage.create("Operation", "redrive", {"target": target, "redrive": {}})
        await asyncio.sleep(_RECORDED_AFTER.total_seconds() - stage.loop.time())
        for (kind, name), spec in more.items():
            if kind == "Operation":
                stage.create(kind, name, spec)
        await operator.kill()

    with _playing(stage):
        stage.loop.run_until_complete(play())
    assert not stage.crashed, stage.crashed
    rows = {each.name: base64.b64encode(each.content).decode() for each in stage.archive.rows.values()}
    return Recorded(stage.objects(), dict(sorted(rows.items())))


def finish(objects: Iterable[Object], **options: Any) -> tuple[dict[str, Object], dict[str, Object]]:
    """Let today's operator finish the story of recorded objects.

    Args:
        objects: The recorded objects.
        options: Options of the operator, in addition to its name.

    Returns:
        The runs by name, and the other objects of Perdure by kind and name, at the end.
    """
    stage = _Stage(START + _RECORDED_AFTER, lambda pod: ContainerExit(after=None if _is_service(pod) else 1))
    stage.load(objects)
    is_whole = any(each["kind"] == "WorkerDeployment" for each in stage.objects())

    async def play() -> None:
        operator = stage.operator(**options, **(MEMBER if is_whole else {}))
        await asyncio.sleep(10)
        stage.operate("unpause", "paused", unpause={})
        for name in (*_SIGNALED, *(_SIGNALED_SINCE if is_whole else ())):
            stage.operate(f"go-{name}", name, signal={"name": "go", "input": {"sent": name}})
        for pod in stage.server.of("pods"):
            if pod["status"]["phase"] == "Running" and not _is_service(pod):
                stage.kubelet.finish(
                    ObjectKey("pods", "default", pod["metadata"]["name"]), pod["metadata"]["uid"], 0, '"ok"'
                )
        stage.operate("end", "coded", terminate={})
        for name, run in stage.runs().items():  # the child of `parent`, and the runs of the Schedule
            if not run["status"].get("completionTime") and "child" in str(run["spec"].get("workflow")):
                stage.operate(f"go-{name}"[:60], name, signal={"name": "go", "input": {}})
        if is_whole:
            await Clients(operator, stage.frontend).finish()
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
_LOAD: Final = QueueLoad(name=_QUEUE, waiting=3, since=START, limited=False, in_progress=1, last_used=START)
MESSAGES: Final[Mapping[str, MessageStruct]] = {
    "OfferBatch": OfferBatch(
        session="s", complete=True, offers={"run-id": [(_OFFER, Destination(_QUEUE, "sticky"))], "gone": []}
    ),
    "OfferTaken": OfferTaken(kind=Kind.ACTIVITY, offer=_OFFER, poller=Poller("worker", True, "op-2", "request")),
    "PolledQueues": PolledQueues(known=True, alive=[_QUEUE], polled=[_QUEUE]),
    "PolledQueues with loads": PolledQueues(known=True, alive=[_QUEUE], polled=[_QUEUE], loads=[_LOAD]),
}
"""Messages between members of a fleet."""
SETTINGS: Final[Mapping[str, Any]] = {
    "perdure-worker-deployments": WorkerDeployment(
        create_time=START, versions={"v2": _VERSION}, current="v2", current_changed_time=START, revision=1, changes=1
    ),
    "perdure-nexus-endpoints": Endpoint(id="e", namespace="shop", task_queue="orders", created_time=START),
    "perdure-task-queues": {"activity": _QUEUE_SETTINGS},
}
"""Settings of Temporal's clients: an entry of each ConfigMap."""


TOKENS: Final[tuple[Token, ...]] = (
    WorkflowTaskToken(namespace="shop", run_id="r", workflow_id="w", scheduled=2, started=3, attempt=1, epoch="e"),
    ActivityToken(namespace="shop", run_id="r", workflow_id="w", scheduled=5, attempt=2, fence="f", activity_id="a"),
    QueryToken(namespace="shop", run_id="r", query="q"),
    NexusToken(namespace="shop", run_id="", call="c", shard=7),
    PageToken(namespace="shop", run_id="r", from_event_id=9),
)
"""What callers send back, perhaps to an operator of another version."""
CALLBACK: Final = CallbackToken(
    namespace="shop", name="n", workflow_id="w", run_id="r", scheduled_event_id=5, request_id="secret"
)
"""What a workflow that an operation has started keeps about the operation."""


def write(folder: Path, recorded: Recorded, fields: Mapping[str, list[str]]) -> None:
    """Keep what is recorded, messages, settings, tokens, and the fields of all stored types in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: msgspec.json.encode(each).decode() for name, each in SETTINGS.items()}
    packed = {name: base64.b64encode(pack(each)).decode() for name, each in MESSAGES.items()}
    tokens = {type(each).__name__: pack_token(each).decode() for each in TOKENS} | {"CallbackToken": CALLBACK.text()}
    _dump(folder / "objects.json", recorded.objects)
    _dump(folder / "archive.json", recorded.archive)
    _dump(folder / "tokens.json", tokens)
    _dump(folder / "settings.json", texts)
    _dump(folder / "messages.json", packed)
    _dump(folder / "fields.json", fields)


def _dump(file: Path, value: Any) -> None:
    file.write_text(f"{json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)}\n", encoding="utf-8")


def read(folder: Path, name: str = "objects") -> Any:
    """Read the objects, the messages, or the settings that are kept in a folder."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
