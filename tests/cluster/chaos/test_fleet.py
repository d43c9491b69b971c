"""Three operators that serve SDKs: one of them is killed, cut off, deleted, or suspended, and the others take over its shards.

PERDURE_LONGER says how many trials there are, and for how many half minutes operators are killed.
"""

import asyncio
import os
import random
import statistics
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import KeepAliveConfig, RPCError, RPCStatusCode, TLSConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.api.labels import FLEET_LABEL, MEMBERS_ANNOTATION
from perdure.controller.fleet.shards import owners, shard_of
from perdure.engine import events as ev
from perdure.kube.clock import now
from support.cluster.namespace import SYSTEM, Cluster, Json, check_history, helm_program, python, recorded
from support.cluster.process import LONGER
from support.manuals import REPOSITORY

NAME = os.environ.get("PERDURE_TEST_CLUSTER", "")
REPLICAS = 3
TRIALS = LONGER
NAP_SECONDS = 8
NODE_PORT = 30733
QUEUE = "rounds"
STORM_SECONDS = 30 * LONGER
AHEAD_SECONDS = 0.3
"""So long before its step ends, the operator of a run is struck."""
STRIKES: dict[str, str | None] = {
    "kill -9": "kill -KILL {pid}",
    "cut off": "nsenter -t {pid} -n sh -c 'iptables -I INPUT -j DROP && iptables -I OUTPUT -j DROP'",
    "deleted": None,
}
"""What a shell on the node does to an operator; None: its pod is deleted, so the kubelet sends SIGTERM."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.bench,
    pytest.mark.timeout(5400),
    pytest.mark.skipif(not NAME, reason="only processes on nodes of a kind cluster of our own can be killed"),
]


@activity.defn
async def double(number: int) -> int:
    return 2 * number


@workflow.defn
class Nap:
    @workflow.run
    async def run(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@workflow.defn
class Rounds:
    """Calls an activity and sleeps several times, then waits for a signal."""

    def __init__(self) -> None:
        self.signals = 0

    @workflow.run
    async def run(self, rounds: int, seconds: float) -> int:
        total = 0
        for number in range(rounds):
            total += await workflow.execute_activity(double, number, start_to_close_timeout=timedelta(seconds=10))
            await asyncio.sleep(seconds)
        await workflow.wait_condition(lambda: self.signals > 0)
        return total

    @workflow.signal
    def go(self) -> None:
        self.signals += 1


def on_node(node: str, *command: str) -> str:
    done = subprocess.run(["docker", "exec", node, *command], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@dataclass(frozen=True)
class Member:
    """One operator: its pod, and the process in it."""

    name: str
    node: str
    pid: str

    def signal(self, name: str) -> None:
        on_node(self.node, "kill", f"-{name}", self.pid)


@dataclass
class Fleet:
    """The operators of the cluster, and a namespace for their runs."""

    cluster: Cluster
    system: Cluster
    number: int = 0

    def pods(self) -> list[Json]:
        """Those that are ready and not about to end."""
        found = self.system.list("pods", "-l=app.kubernetes.io/component=operator")
        return [
            pod
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
        ]

    def settled(self) -> list[Json]:
        """The pods, once all are ready and divide the shards among them."""

        def agreed() -> list[Json]:
            pods = self.pods()
            names = sorted(pod["metadata"]["name"] for pod in pods)
            leases = {each["metadata"]["name"]: each for each in self.system.list("leases", f"-l={FLEET_LABEL}")}
            said = [leases[name]["metadata"]["annotations"][MEMBERS_ANNOTATION] for name in names if name in leases]
            return pods if len(pods) == REPLICAS and said == [",".join(names)] * REPLICAS else []

        found: list[Json] = self.system.wait("three operators that know each other", agreed)
        return found

    def member(self, pod: Json) -> Member:
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        container = on_node(node, "crictl", "ps", "-q", "--name=operator", f"--label=io.kubernetes.pod.name={name}")
        pid = on_node(node, "crictl", "inspect", "-o", "go-template", "--template", "{{.info.pid}}", container)
        return Member(name, node, pid)

    def remove(self, name: str) -> None:
        """Kill an operator, and replace its pod: a container that is killed again and again would be restarted late."""
        self.system.run("delete", "pod", name, "--force", "--grace-period=0")

    @contextmanager
    def aimed(self, member: Member, strike: str | None) -> Iterator[Callable[[], object]]:
        """Starts a shell on the node first, so that a kill takes effect immediately."""
        if strike is None:
            yield lambda: self.system.objects.delete("pod", SYSTEM, member.name)
            return
        command = ["docker", "exec", "-i", member.node, "sh", "-c", f"read go; {strike.format(pid=member.pid)}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as shell:

            def fire() -> None:
                shell.communicate("go\n", timeout=60)
                assert shell.returncode == 0

            try:
                yield fire
            finally:
                shell.kill()

    def owned_by(self, member: str, pods: list[Json]) -> str:
        """A workflow ID in a shard of one of them."""
        by_shard = owners([pod["metadata"]["name"] for pod in pods])
        while True:
            self.number += 1
            name = f"nap-{self.number}"
            if by_shard[shard_of(self.cluster.namespace, name)] == member:
                return name


@contextmanager
def scaled(system: Cluster) -> Iterator[None]:
    """Three operators, for the length of the block."""

    def replicas(number: int) -> None:
        command = [helm_program(), "upgrade", "perdure", str(REPOSITORY / "charts" / "perdure"), "--namespace", SYSTEM]
        command += [
            "--kubeconfig",
            str(system.kubeconfig),
            "--reset-then-reuse-values",
            f"--set=replicas={number}",
            "--wait",
        ]
        subprocess.run(command, check=True, capture_output=True, text=True)

    deployed = system.get("deployment", "perdure")
    assert deployed is not None
    replicas(REPLICAS)
    try:
        yield
    finally:
        replicas(deployed["spec"]["replicas"])


@pytest.fixture(scope="module")
def system(cluster: Cluster) -> Iterator[Cluster]:
    """The namespace of three operators, with a port of the nodes for SDKs on this machine."""
    found = Cluster(cluster.kubectl, cluster.kubeconfig, SYSTEM)
    service = found.get("service", "perdure-temporal")
    assert service is not None
    port = {"name": "grpc", "port": 7233, "targetPort": "temporal", "nodePort": NODE_PORT}
    spec = {"type": "NodePort", "selector": service["spec"]["selector"], "ports": [port]}
    with scaled(found):
        found.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "trials"}, "spec": spec})
        yield found
        found.delete("service", "trials")


@pytest.fixture
def fleet(system: Cluster, namespace: Cluster) -> Fleet:
    return Fleet(namespace, system)


async def connected(fleet: Fleet) -> Client:
    """A client with its own connection and the token of a ServiceAccount that has all permissions of SDKs."""
    cluster = fleet.cluster

    def credentials() -> tuple[str, bytes, str]:
        group, account = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": "default"}
        for role in ("perdure-temporal-worker", "perdure-temporal-client"):
            binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": role}}
            binding["roleRef"] = {"apiGroup": group, "kind": "ClusterRole", "name": role}
            cluster.apply({**binding, "subjects": [{**account, "namespace": cluster.namespace}]})
        cluster.wait("a ServiceAccount", lambda: cluster.get("serviceaccount", "default"))
        token = cluster("create", "token", "default", "--audience=perdure.dev/temporal", "--duration=3h").strip()
        published = cluster.wait("the CA certificate", lambda: cluster.get("configmap", "perdure-temporal-ca"))
        node = next(each for each in cluster.list("nodes") if each["metadata"]["name"].endswith("-control-plane"))
        address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
        return token, published["data"]["ca.crt"].encode(), address

    token, authority, address = await asyncio.to_thread(credentials)
    async with asyncio.timeout(60):
        while True:
            with suppress(RuntimeError):  # the port of the nodes was opened a moment ago
                return await Client.connect(
                    f"{address}:{NODE_PORT}",
                    namespace=cluster.namespace,
                    api_key=token,
                    tls=TLSConfig(server_root_ca_cert=authority, domain=f"perdure-temporal.{SYSTEM}"),
                    keep_alive_config=KeepAliveConfig(interval_millis=5_000, timeout_millis=5_000),
                )
            await asyncio.sleep(0.5)


@asynccontextmanager
async def working(fleet: Fleet) -> AsyncIterator[Client]:
    """Four workers, each with its own connection, and a client."""
    workers = [
        Worker(
            await connected(fleet),
            task_queue=QUEUE,
            workflows=[Nap, Rounds],
            activities=[double],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        for _ in range(4)
    ]
    async with workers[0], workers[1], workers[2], workers[3]:
        yield await connected(fleet)


def run_of(cluster: Cluster, workflow_id: str) -> str:
    """The name of the WorkflowRun of a workflow ID."""

    def named() -> str | None:
        runs = cluster.list("workflowruns")
        return next((r["metadata"]["name"] for r in runs if r["spec"].get("workflowId") == workflow_id), None)

    found: str = cluster.wait(f"the run of {workflow_id}", named)
    return found


def due_at(cluster: Cluster, name: str) -> datetime:
    """When the sleep of a run ends."""

    def started() -> list[ev.TimerStarted]:
        run = cluster.get("workflowrun", name) or {}
        events = recorded(run) if (run.get("status") or {}).get("history") else ()
        return [event for event in events if isinstance(event, ev.TimerStarted)]

    (timer,) = cluster.wait(f"run {name} to sleep", started)
    due: datetime = timer.event_time + timer.start_to_fire_timeout
    return due


def closed_at(cluster: Cluster, name: str) -> datetime:
    status = cluster.closed(name)
    assert status["phase"] == "Completed", status
    time: datetime = recorded(cluster.with_history(name))[-1].event_time
    return time


async def patiently(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call whose response is lost with its operator: that is UNKNOWN to the SDK, which does not retry."""
    async with asyncio.timeout(600):
        while True:
            try:
                await call()
            except RPCError as error:
                if error.status not in {RPCStatusCode.UNKNOWN, RPCStatusCode.UNAVAILABLE}:
                    raise
            else:
                return
            await asyncio.sleep(0.5)


async def trial(fleet: Fleet, client: Client, strike: str | None) -> dict[str, float]:
    """Inject a fault into an operator when its timers are due. Returns the seconds until the runs continue, by their decider."""
    cluster = fleet.cluster
    pods = await asyncio.to_thread(fleet.settled)
    victim = await asyncio.to_thread(fleet.member, random.choice(pods))
    try:
        with fleet.aimed(victim, strike) as fire:
            yaml, code = fleet.owned_by(victim.name, pods), fleet.owned_by(victim.name, pods)
            steps = [{"name": "nap", "sleep": {"duration": f"{NAP_SECONDS}s"}}]
            await asyncio.to_thread(cluster.start, yaml, {"inline": {"steps": steps}})
            existing = WorkflowIDConflictPolicy.USE_EXISTING
            options: dict[str, Any] = {"id": code, "task_queue": QUEUE, "id_conflict_policy": existing}
            await patiently(lambda: client.start_workflow(Nap.run, float(NAP_SECONDS), **options))
            runs = {"a Workflow": yaml, "code": await asyncio.to_thread(run_of, cluster, code)}
            ends = {kind: await asyncio.to_thread(due_at, cluster, name) for kind, name in runs.items()}
            left = (min(ends.values()) - now()).total_seconds() - AHEAD_SECONDS
            assert left > 0, "the sleep was over before the operator could be struck"
            await asyncio.sleep(left)
            await asyncio.to_thread(fire)
        closed = {kind: await asyncio.to_thread(closed_at, cluster, name) for kind, name in runs.items()}
    finally:
        await asyncio.to_thread(fleet.remove, victim.name)
    return {kind: (closed[kind] - end).total_seconds() for kind, end in ends.items()}


@pytest.mark.parametrize("how", STRIKES)
async def test_runs_of_a_lost_operator_continue_on_another_one(fleet: Fleet, how: str) -> None:
    trials: list[dict[str, float]] = []
    async with working(fleet) as client:
        for _ in range(TRIALS):
            trials.append(await trial(fleet, client, STRIKES[how]))
            print(f"{how}:", *(f"{kind} {seconds:.1f} s" for kind, seconds in trials[-1].items()), flush=True)
    for kind in ("a Workflow", "code"):
        took = sorted(each[kind] for each in trials)
        print(
            f"{how}, a run of {kind}: {len(took)} trials, p50 {statistics.median(took):.1f} s, maximum {took[-1]:.1f} s"
        )


@dataclass
class Load:
    """Runs of code and of Workflows that each do some rounds, and wait for one signal."""

    fleet: Fleet
    client: Client
    rounds: int
    seconds: float
    handles: list[WorkflowHandle[Rounds, int]]
    names: list[str]

    async def start(self, code: int, yaml: int) -> None:
        cluster = self.fleet.cluster
        for number in range(code):
            handle = await self.client.start_workflow(
                Rounds.run, args=[self.rounds, self.seconds], id=f"code-{number}", task_queue=QUEUE
            )
            self.handles.append(handle)
        for number in range(yaml):
            self.names.append(f"yaml-{number}")
            spec = self._spec(in_pod=number % 10 == 0)
            await asyncio.to_thread(cluster.start, self.names[-1], spec)

    def _spec(self, *, in_pod: bool) -> Json:
        naps = [{"name": f"nap-{n}", "sleep": {"duration": f"{self.seconds:.0f}s"}} for n in range(self.rounds)]
        work = [{"name": "work", "activity": {"name": "work"}}] if in_pod else []
        steps = [naps[0], *work, *naps[1:], {"name": "wait", "waitForSignal": {"name": "go"}}]
        activities = {"activities": [python("activity.main({'work': lambda _: 1})")]} if in_pod else {}
        return {"inline": {**activities, "steps": steps}}

    async def signal(self) -> None:
        """Send each run its signal, one after the other, in the time that all take."""
        cluster = self.fleet.cluster
        pause = self.rounds * self.seconds / (len(self.handles) + len(self.names) + 1)
        targets: list[WorkflowHandle[Rounds, int] | str] = [*self.handles, *self.names]
        random.shuffle(targets)
        for target in targets:
            await asyncio.sleep(pause)
            if isinstance(target, str):
                spec = {"target": {"kind": "WorkflowRun", "name": target}, "signal": {"name": "go"}}
                operation = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation", "spec": spec}
                await asyncio.to_thread(cluster.create, {**operation, "metadata": {"name": f"go-{target}"}})
            else:
                await self._signal(target.id)

    async def _signal(self, workflow_id: str) -> None:
        """Signal a workflow of code, once."""
        request = SignalWorkflowExecutionRequest(
            namespace=self.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            signal_name="go",
            request_id=workflow_id,
        )
        await patiently(lambda: self.client.workflow_service.signal_workflow_execution(request))

    async def check(self) -> None:
        """Check that all have completed, and no history has duplicate events."""
        for handle in self.handles:
            assert await asyncio.wait_for(handle.result(), 600) == self.rounds * (self.rounds - 1)
            events = [event async for event in handle.fetch_history_events()]
            assert [event.event_id for event in events] == list(range(1, len(events) + 1))
            types = [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in events]
            for name in ("ACTIVITY_TASK_SCHEDULED", "ACTIVITY_TASK_COMPLETED", "TIMER_STARTED", "TIMER_FIRED"):
                assert types.count(name) == self.rounds, (handle.id, name)
            assert types.count("WORKFLOW_EXECUTION_SIGNALED") == 1
        for name in self.names:
            await asyncio.to_thread(self._check_run, name)

    def _check_run(self, name: str) -> None:
        status = self.fleet.cluster.closed(name, seconds=600)
        assert status["phase"] == "Completed", status
        run = self.fleet.cluster.with_history(name)
        check_history(run)
        events = recorded(run)
        assert len([event for event in events if isinstance(event, ev.TimerFired)]) == self.rounds
        assert len([event for event in events if isinstance(event, ev.WorkflowExecutionSignaled)]) == 1
        started = [event for event in events if isinstance(event, ev.ActivityTaskStarted)]
        assert all(event.attempt == 1 for event in started)


async def test_a_suspended_operator_applies_no_input_twice_after_it_resumes(fleet: Fleet) -> None:
    async with working(fleet) as client:
        pods = await asyncio.to_thread(fleet.settled)
        load = Load(fleet, client, rounds=6, seconds=8, handles=[], names=[])
        await load.start(code=20, yaml=10)
        signals = asyncio.create_task(load.signal())
        victim = await asyncio.to_thread(fleet.member, random.choice(pods))
        await asyncio.sleep(load.seconds / 2)
        await asyncio.to_thread(victim.signal, "STOP")
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.to_thread(victim.signal, "CONT")
        await signals
        await load.check()
    assert (
        await asyncio.to_thread(fleet.member, next(p for p in pods if p["metadata"]["name"] == victim.name)) == victim
    )


async def test_nothing_is_lost_or_duplicated_while_operators_are_killed_every_five_seconds(fleet: Fleet) -> None:
    async with working(fleet) as client:
        await asyncio.to_thread(fleet.settled)
        rounds = 6
        load = Load(fleet, client, rounds=rounds, seconds=STORM_SECONDS / rounds, handles=[], names=[])
        await load.start(code=10 * LONGER, yaml=5 * LONGER)
        signals = asyncio.create_task(load.signal())
        loop, kills = asyncio.get_running_loop(), 0
        end = loop.time() + STORM_SECONDS
        while loop.time() < end:
            await asyncio.sleep(5)
            pods = await asyncio.to_thread(fleet.system.list, "pods", "-l=app.kubernetes.io/component=operator")
            living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and pod["spec"].get("nodeName")]
            await asyncio.to_thread(fleet.remove, random.choice(living)["metadata"]["name"])
            kills += 1
        await signals
        await load.check()
    print(
        f"{len(load.handles)} runs of code and {len(load.names)} of Workflows, {kills} operators killed: all is done once"
    )
