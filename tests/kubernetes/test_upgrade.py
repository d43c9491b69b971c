"""N-1 → N → N-1 → N on a real cluster, with work of every kind in flight: a rolling update, and rollbacks in the middle of it.

The version before is built from the commit that `hack/releases.txt` names, by its own scripts. Nothing may be lost, and nothing
may happen twice.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from temporalio import activity, workflow
from temporalio.client import Client, TLSConfig
from temporalio.service import KeepAliveConfig, RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

import deploy
import releases
from cluster import lifecycle, projectimage
from cluster.docker import find_docker
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from perdure.api.state_versions import NEWEST, OLDEST
from perdure.schedule.run_manifests import scheduled_by
from support.cluster import artifacts
from support.cluster.namespace import SYSTEM, Cluster, check_history

pytestmark = [pytest.mark.bench, pytest.mark.timeout(5400)]

Json = dict[str, Any]
CACHE = Cache.from_environment(os.environ)
NAME = "perdure-upgrade"
NODE_PORT = 30733
EVERY = 15
"""Seconds between two runs of a Schedule."""
QUEUE = "rounds"
ROUNDS, PAUSE = 12, 10.0
WAIT: Json = {"name": "wait", "waitForSignal": {"name": "go"}}


# The work


def work(name: str, image: str, script: str, **options: Any) -> Json:
    """An activity in a pod, which writes its output to the termination log."""
    container = {
        "image": image,
        "command": ["sh", "-ec", script],
        "resources": {"requests": {"cpu": "1m", "memory": "4Mi"}},
    }
    return {"name": name, "startToCloseTimeout": "10m", "container": container, **options}


def step(name: str, call: str, **options: Any) -> Json:
    return {"name": name, "activity": {"name": call}, **options}


def flow(*steps: Json, activities: tuple[Json, ...] = (), output: str = "${'done'}") -> Json:
    return {"inline": {"activities": list(activities), "steps": list(steps), "output": output}}


DONE = "printf '\"ok\"' > /dev/termination-log"


def runs_of(image: str) -> dict[str, tuple[int, Json]]:
    """How many runs of each kind are started, and their spec."""
    slow = work("slow", image, f"sleep 150; {DONE}")
    quick = work("quick", image, DONE)
    retry = {"exponential": {"initialInterval": "40s", "backoffCoefficient": "1", "maximumAttempts": 6}}
    flaky = work("flaky", image, f'test "$PERDURE_ATTEMPT" -ge 5 || exit 1; {DONE}', retryPolicy=retry)
    once = {"exponential": {"maximumAttempts": 1}}
    broken = work("broken", image, "exit 1", retryPolicy=once)
    guarded = work("guarded", image, f'test "$PERDURE_ATTEMPT" -ge 3 || exit 1; {DONE}', retryPolicy={"name": "calm"})
    cached = work("cached", image, DONE, cache={"key": "k", "maxAge": "1h"})
    make = work("make", image, "echo text > /out/report", artifacts={"outputs": [_OUTPUT]}, retryPolicy=once)
    child = {"name": "child", "childWorkflow": {"workflow": {"name": "child"}}}
    fan = {"name": "fan", "forEach": {"items": "${[1, 2, 3]}", "as": "x"}, "activity": {"name": "quick"}}
    nap = {"name": "nap", "sleep": {"duration": "45s"}}
    limited = flow(nap)
    limited["inline"]["limits"] = [{"name": "oven"}]
    undo = {**step("book", "quick"), "compensate": {"activity": {"name": "quick"}}}
    return {
        "sleeping": (5, flow({"name": "nap", "sleep": {"duration": "6m"}})),
        "in-a-pod": (5, flow(step("slow", "slow"), step("then", "quick"), activities=(slow, quick))),
        "retrying": (4, flow(step("try", "flaky"), activities=(flaky,))),
        "guarded": (2, flow(step("try", "guarded"), activities=(guarded,))),
        "signaled": (6, flow(step("one", "quick"), WAIT, activities=(quick,), output="${steps.wait.output}")),
        "parent": (5, flow(child)),
        "chain": (3, {"workflow": {"name": "loop"}, "input": {"n": 6}}),
        "limited": (4, limited),
        "undoing": (2, flow(undo, WAIT, step("last", "broken"), activities=(quick, broken))),
        "lettered": (2, flow({**step("last", "broken"), "deadLetter": True}, WAIT, activities=(broken,))),
        "fanned": (2, flow(nap, fan, WAIT, activities=(quick,))),
        "caching": (2, flow(step("ask", "cached"), WAIT, step("again", "cached"), activities=(cached,))),
        "artifacts": (2, flow(step("make", "make"), WAIT, activities=(make,))),
        "paused": (2, flow(nap, WAIT)),
    }


_OUTPUT: Json = {"name": "report", "path": "/out/report"}
SIGNALED = {"signaled", "undoing", "lettered", "fanned", "caching", "artifacts", "paused"}
"""Kinds whose runs wait for a signal, and so do children."""
FAILED = {"undoing", "lettered"}
CODED = 6


@activity.defn
async def double(number: int) -> int:
    return 2 * number


@workflow.defn
class Rounds:
    """Calls an activity and sleeps several times, then waits for a signal."""

    def __init__(self) -> None:
        self.signals = 0

    @workflow.run
    async def run(self, rounds: int, pause: float) -> int:
        total = 0
        for number in range(rounds):
            total += await workflow.execute_activity(double, number, start_to_close_timeout=timedelta(seconds=30))
            await asyncio.sleep(pause)
        await workflow.wait_condition(lambda: self.signals > 0)
        return total

    @workflow.signal
    def go(self) -> None:
        self.signals += 1


@dataclass
class Workers:
    """SDK workers and a client in a thread, which keep their connections while operators come and go."""

    connect: Callable[[], Any]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    client: Client | None = None

    def __enter__(self) -> Self:
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self.loop.run_until_complete, args=(self._work(),))
        self._thread.start()
        assert self._ready.wait(300), "the SDK cannot connect"
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._end.set)
        self._thread.join(120)
        self.loop.close()

    async def _work(self) -> None:
        self.client = await self.connect()
        options: Json = {"task_queue": QUEUE, "workflows": [Rounds], "activities": [double]}
        workers = [
            Worker(await self.connect(), workflow_runner=UnsandboxedWorkflowRunner(), **options) for _ in range(2)
        ]
        async with workers[0], workers[1]:
            self._ready.set()
            await self._end.wait()

    def call(self, make: Callable[[Client], Any], seconds: float = 300) -> Any:
        """Call the operator until it answers: a call whose answer is lost with its operator is repeated."""

        async def patiently() -> Any:
            assert self.client is not None
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(RPCError):
                        return await make(self.client)
                    await asyncio.sleep(1)

        return asyncio.run_coroutine_threadsafe(patiently(), self.loop).result(seconds + 30)


# The cluster


@dataclass
class Stand:
    """A cluster with the version before, and everything that this test does to it."""

    target: deploy.Target
    previous: releases.Release
    charts: dict[str, Path]
    cluster: Cluster
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.0f} s  {text}", flush=True)

    def upgrade(self, version: str, image: str, *flags: str) -> None:
        repository, _, tag = image.rpartition(":")
        command = ["helm", "upgrade", "--install", "perdure", str(self.charts[version])]
        command += [f"--namespace={SYSTEM}", "--create-namespace", "--reuse-values"]
        values = [f"--set=image.repository={repository}", f"--set-string=image.tag={tag}"]
        self.target.run(*command, *values, *flags)

    def operators(self) -> list[str]:
        """The images of the operators that run."""
        pods = Cluster(self.cluster.kubectl, self.cluster.kubeconfig, SYSTEM).list(
            "pods", "-l=app.kubernetes.io/component=operator"
        )
        ready = [
            pod
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        ]
        return sorted(pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in ready)

    def rolled_out(self) -> None:
        self.target.run("kubectl", "rollout", "status", "deployment/perdure", f"--namespace={SYSTEM}", "--timeout=10m")

    def record(self) -> Json:
        """The upgrade record; empty if the version before has none."""
        found = Cluster(self.cluster.kubectl, self.cluster.kubeconfig, SYSTEM).get("configmap", "perdure-state-version")
        data: Json = (found or {}).get("data") or {}
        return data

    def runs(self) -> list[Json]:
        return self.cluster.list("workflowruns")

    def in_flight(self) -> str:
        """What is open, by kind."""
        open_runs = [run for run in self.runs() if not (run.get("status") or {}).get("completionTime")]
        counts = Counter(_label(run) for run in open_runs)
        pods = [pod for pod in self.cluster.list("pods") if pod["status"].get("phase") == "Running"]
        parts = [f"{count} {kind}" for kind, count in sorted(counts.items())]
        return f"{len(open_runs)} open runs ({', '.join(parts)}), {len(pods)} running pods"

    def check_readable(self) -> None:
        """No operator reports an object as damaged, or as one of a newer version."""
        for kind in ("workflowruns", "schedules", "workflowlimits", "retrypolicies", "operations"):
            for obj in self.cluster.list(kind):
                reasons = {each["reason"] for each in (obj.get("status") or {}).get("conditions") or ()}
                assert not reasons & {"StateDamaged", "NewerState"}, f"{kind} {obj['metadata']['name']}: {reasons}"

    def signal(self, *names: str) -> None:
        for name in names:
            target = {"kind": "WorkflowRun", "name": name}
            self.create("Operation", f"go-{name}"[:63], {"target": target, "signal": {"name": "go", "input": name}})

    def create(self, kind: str, name: str, spec: Json) -> None:
        self.cluster.create(manifest(kind, name, spec))


def _label(run: Json) -> str:
    """The kind of work of a run."""
    name = run["metadata"]["name"]
    for prefix in ("parent", "chain", "every"):
        if name.startswith(prefix):
            return {"parent": "parents and children", "chain": "chains", "every": "scheduled"}[prefix]
    return "coded" if "taskQueue" in str(run["spec"].get("workflow")) else name.rpartition("-")[0]


def manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A cluster with both images, and the version before installed."""
    (previous, *_) = releases.releases()
    archives = [releases.image(CACHE, previous), tmp_path / "new.tar"]
    projectimage.build(CACHE, REPOSITORY / "Dockerfile", REPOSITORY, deploy.IMAGE, archives[1])
    tools = ensure_tools(CACHE, DEFAULT_TOOLS)
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster")]
    subprocess.run([*command, "up", f"--name={NAME}", "--workers=0", "--audit"], check=True, timeout=3600)
    try:
        lifecycle.load(CACHE, NAME, archives)
        docker, kubeconfig = find_docker(CACHE), CACHE.cluster(NAME).kubeconfig
        assert docker is not None
        environment = {**os.environ, **docker.environment, "KUBECONFIG": str(kubeconfig)}
        environment["PATH"] = f"{tools}:{os.environ['PATH']}"
        target = deploy.Target(NAME, deploy.IMAGE, environment)
        charts = {
            "previous": releases.source(CACHE, previous) / "charts" / "perdure",
            "next": REPOSITORY / "charts" / "perdure",
        }
        cluster = Cluster(str(tools / "kubectl"), kubeconfig, "shop")
        found = Stand(target, previous, charts, cluster)
        found.upgrade("previous", previous.image, "--wait", "--timeout=10m")
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        yield found
    finally:
        if not os.environ.get("KEEP"):
            subprocess.run([*command, "down", f"--name={NAME}"], check=True, timeout=1800)


def connecting(stand: Stand) -> Callable[[], Any]:
    """Connects the SDK to whatever operator answers, at a port of the node."""
    system = Cluster(stand.cluster.kubectl, stand.cluster.kubeconfig, SYSTEM)
    service = system.get("service", "perdure-temporal")
    assert service is not None
    port = {"name": "grpc", "port": 7233, "targetPort": "temporal", "nodePort": NODE_PORT}
    spec = {"type": "NodePort", "selector": service["spec"]["selector"], "ports": [port]}
    system.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "trials"}, "spec": spec})
    group, account = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": "default", "namespace": "shop"}
    for role in ("perdure-temporal-worker", "perdure-temporal-client"):
        binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": role}}
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
        stand.cluster.apply({**binding, "roleRef": reference, "subjects": [account]})
    stand.cluster.wait("a ServiceAccount", lambda: stand.cluster.get("serviceaccount", "default"))
    token = stand.cluster("create", "token", "default", "--audience=perdure.dev/temporal", "--duration=3h").strip()
    published = stand.cluster.wait("the CA", lambda: stand.cluster.get("configmap", "perdure-temporal-ca"))
    (node,) = stand.cluster.list("nodes")
    address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")

    async def connect() -> Client:
        while True:
            with suppress(RuntimeError):
                return await Client.connect(
                    f"{address}:{NODE_PORT}",
                    namespace="shop",
                    api_key=token,
                    tls=TLSConfig(
                        server_root_ca_cert=published["data"]["ca.crt"].encode(), domain=f"perdure-temporal.{SYSTEM}"
                    ),
                    keep_alive_config=KeepAliveConfig(interval_millis=5_000, timeout_millis=5_000),
                )
            await asyncio.sleep(1)

    return connect


def start_everything(stand: Stand, workers: Workers) -> list[str]:
    """Start all kinds of work, and wait until it is under way. Returns the names of the runs that this test has started."""
    image, cluster = stand.previous.image, stand.cluster
    loop = [
        {"name": "nap", "sleep": {"duration": "40s"}},
        {"name": "again", "when": "${input.n > 0}", "continueAsNew": {"input": {"n": "${input.n - 1}"}}},
    ]
    breaker = {"failureThreshold": 50, "openDuration": "10s"}
    retries = {"initialInterval": "30s", "backoffCoefficient": "1", "maximumAttempts": 6}
    template = {"spec": {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "5s"}}]}}}
    often = {"intervals": [{"every": f"{EVERY}s"}], "overlapPolicy": "AllowAll", "catchupWindow": "1h"}
    for kind, name, spec in (
        ("Workflow", "child", {"steps": [WAIT]}),
        ("Workflow", "loop", {"steps": loop, "output": "${input.n}"}),
        ("WorkflowLimit", "oven", {"capacity": 1}),
        ("RetryPolicy", "calm", {"exponential": retries, "circuitBreaker": breaker}),
        ("Schedule", "every", {**often, "workflowRunTemplate": template, "successfulRunsHistoryLimit": 500}),
    ):
        stand.create(kind, name, spec)
    names = []
    for kind, (count, spec) in runs_of(image).items():
        for number in range(1, count + 1):
            stand.create("WorkflowRun", f"{kind}-{number}", {**spec, "ttlSecondsAfterFinished": 100_000})
            names.append(f"{kind}-{number}")
    for number in range(1, CODED + 1):
        name = f"coded-{number}"
        workers.call(
            lambda client, name=name: client.start_workflow(Rounds.run, args=[ROUNDS, PAUSE], id=name, task_queue=QUEUE)
        )
    for number in (1, 2):
        target = {"kind": "WorkflowRun", "name": f"paused-{number}"}
        stand.create("Operation", f"pause-{number}", {"target": target, "pause": {}})
    for name in names:
        if not name.startswith("limited"):
            cluster.wait(f"{name} to begin", lambda name=name: begun(cluster, name), seconds=600)
    return names


def begun(cluster: Cluster, name: str) -> bool:
    status = (cluster.get("workflowrun", name) or {}).get("status") or {}
    return status.get("phase") not in {None, "Pending"}


def test_work_of_every_kind_survives_upgrades_and_rollbacks(stand: Stand, capsys: pytest.CaptureFixture[str]) -> None:
    with Workers(connecting(stand)) as workers:
        artifacts_store(stand)
        names = start_everything(stand, workers)
        stand.say(f"version {stand.previous.version}: {stand.in_flight()}")
        waiting = [name for name in names if name.rpartition("-")[0] in SIGNALED - {"paused"}]

        stand.upgrade("next", deploy.IMAGE)
        mixed = watch(stand, lambda: len(set(stand.operators())) > 1, "operators of both versions")
        stand.signal(*waiting[::3])
        stand.rolled_out()
        stand.say(f"upgraded ({' and '.join(sorted(set(mixed)))} in between): {stand.in_flight()}")
        assert stand.record()["writes"] == str(OLDEST), "not during the hold-back"
        time.sleep(30)
        stand.check_readable()

        stand.target.run("helm", "rollback", "perdure", "1", f"--namespace={SYSTEM}")
        stand.signal(*waiting[1::3])
        stand.rolled_out()
        stand.say(f"rolled back: {stand.in_flight()}")
        time.sleep(30)
        stand.check_readable()

        stand.upgrade("next", deploy.IMAGE)
        watch(stand, lambda: len(set(stand.operators())) > 1, "operators of both versions")
        stand.target.run("helm", "rollback", "perdure", "1", f"--namespace={SYSTEM}")
        stand.rolled_out()
        stand.say(f"rolled back in the middle of a rolling update: {stand.in_flight()}")

        stand.upgrade("next", deploy.IMAGE)
        stand.rolled_out()
        stand.check_readable()
        stand.say(f"upgraded again: {stand.in_flight()}")
        stand.target.run(str(Path(sys.executable).parent / "perdure"), "fleet", "--finish-upgrade")
        watch(stand, lambda: stand.record().get("writes") == str(NEWEST), "the new state version")
        stand.say(f"finished the upgrade: state version {NEWEST}")
        finish_everything(stand, workers, waiting[2::3])
        text = report(stand, names)
    with capsys.disabled():
        print(text)
    print(text)


def artifacts_store(stand: Stand) -> None:
    artifacts.IMAGE = stand.previous.image  # type: ignore[misc]
    artifacts.store(stand.cluster)


def watch(stand: Stand, holds: Callable[[], bool], what: str, seconds: float = 600) -> list[str]:
    """Wait until something holds; returns the images of the operators at that time."""
    stand.cluster.wait(what, holds, seconds=seconds)
    return stand.operators()


def finish_everything(stand: Stand, workers: Workers, waiting: list[str]) -> None:
    """Give everything what it waits for, and wait until all runs are closed."""
    for number in (1, 2):
        target = {"kind": "WorkflowRun", "name": f"paused-{number}"}
        stand.create("Operation", f"unpause-{number}", {"target": target, "unpause": {}})
    stand.signal(*waiting, "paused-1", "paused-2", *(f"parent-{number}-2" for number in range(1, 6)))
    for number in range(1, CODED + 1):
        name = f"coded-{number}"
        workers.call(lambda client, name=name: client.get_workflow_handle(name).signal(Rounds.go))
        want = sum(2 * each for each in range(ROUNDS))
        assert workers.call(lambda client, name=name: client.get_workflow_handle(name).result(), 600) == want
    stand.cluster.objects.patch("schedule", "shop", "every", {"spec": {"paused": True}})

    def closed() -> bool:
        return all((run.get("status") or {}).get("completionTime") for run in stand.runs())

    stand.cluster.wait("all runs to close", closed, seconds=1200)
    stand.say(f"all runs are closed: {len(stand.runs())}")


def report(stand: Stand, names: list[str]) -> str:
    """Check what each run did, and describe it."""
    lines = [f"{'kind':24} {'runs':>4} {'activities':>10} {'attempts':>8}  ended as"]
    by_kind: dict[str, list[Json]] = {}
    for run in stand.runs():
        by_kind.setdefault(_label(run), []).append(run)
    for kind, found in sorted(by_kind.items()):
        phases, activities, attempts = Counter[str](), 0, 0
        for run in found:
            name = run["metadata"]["name"]
            whole = stand.cluster.whole(name)
            if kind != "coded":
                check_history(whole)
            phase = run["status"]["phase"]
            phases[phase] += 1
            want = "Failed" if kind in FAILED else "Completed"
            assert phase in {want, "ContinuedAsNew"}, f"{name} is {phase}: {run['status'].get('failure')}"
            scheduled, ended, started = attempts_of(whole)
            assert len(ended) == len(set(ended)) == scheduled, f"{name}: an activity has ended twice, or not at all"
            activities, attempts = activities + scheduled, attempts + started
            if kind == "signaled":
                assert run["status"]["output"] == name
            if kind in {"retrying", "guarded"}:
                assert started == {"retrying": 5, "guarded": 3}[kind], f"{name} had {started} attempts"
        lines.append(f"{kind:24} {len(found):4} {activities:10} {attempts:8}  {dict(phases)}")
    lines.append(schedule_report(by_kind["scheduled"]))
    lines.append(pods_report())
    versions = Counter(run["status"].get("stateVersion", OLDEST) for run in stand.runs())
    lines.append(f"state versions of the runs: {dict(versions)}")
    assert len([name for name in names if any(run["metadata"]["name"] == name for run in stand.runs())]) == len(names)
    return "\n".join(lines)


def attempts_of(run: Json) -> tuple[int, list[int], int]:
    """How many activities a run has scheduled, which of them have ended, and how many attempts were started."""
    events = run["status"]["history"]["events"]
    kinds = [(each["eventType"], each) for each in map(as_event, events)]
    scheduled = sum(kind == "ActivityTaskScheduled" for kind, _ in kinds)
    ends = ("ActivityTaskCompleted", "ActivityTaskFailed", "ActivityTaskTimedOut", "ActivityTaskCanceled")
    ended = [each["scheduledEventId"] for kind, each in kinds if kind in ends]
    started = sum(each.get("attempt", 1) for kind, each in kinds if kind == "ActivityTaskStarted")
    return scheduled, ended, started


def as_event(event: Any) -> Json:
    found: Json = json.loads(event) if isinstance(event, str) else event
    return found


def schedule_report(runs: list[Json]) -> str:
    """The Schedule has started a run for each time, and none twice."""
    times = sorted(tie.scheduled_time for run in runs if (tie := scheduled_by(run)) is not None)
    assert len(times) == len(runs)
    gaps = {round((after - before).total_seconds()) for before, after in pairwise(times)}
    assert gaps == {EVERY}, f"between the times of the Schedule's runs: {gaps} seconds"
    return f"Schedule: {len(runs)} runs, one for every {EVERY} s from {times[0]:%H:%M:%S} to {times[-1]:%H:%M:%S}"


def pods_report() -> str:
    """Each pod of an attempt was created once."""
    created = Counter[str]()
    with CACHE.cluster(NAME).audit.joinpath("audit.log").open() as lines:
        for line in lines:
            if '"pods"' not in line or '"create"' not in line or '"shop"' not in line:
                continue
            entry = json.loads(line)
            target = entry["objectRef"]
            is_new = entry["responseStatus"].get("code") == 201 and not target.get("subresource")
            if target.get("resource") == "pods" and is_new and str(entry.get("userAgent", "")).startswith("perdure"):
                created[target["name"]] += 1
    twice = {name: count for name, count in created.items() if count > 1}
    assert created
    assert not twice, f"pods that were created more than once: {twice}"
    return f"{len(created)} pods of attempts, each created once"
