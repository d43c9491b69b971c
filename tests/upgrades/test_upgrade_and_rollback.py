"""The previous release, this version, and both once more: `helm upgrade` and `helm rollback` under runs of every kind.

docs/upgrades.md promises that a rollback right after an upgrade is safe. The previous release is the newest one in
`hack/releases.txt`, built from its commit, or the one that PREVIOUS names. Each run works in five stages; all but the last
are in progress while operators are replaced. A second rollback follows `perdure fleet --finish-upgrade`: the previous release
cannot read the runs, and leaves them as they are. At the end, each has completed, and has done each piece of work exactly once.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import releases
from cluster import lifecycle, projectimage
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from deploy import Target, kind_cluster
from perdure.api.state_versions import NEWEST
from perdure.engine import events as ev
from perdure.engine.events import AnyEvent
from support.cluster.artifacts import store
from support.cluster.namespace import SYSTEM, Cluster, Json, check_history, recorded, run_manifest, temporary_namespace
from version import declared_version

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

CACHE = Cache.from_environment(os.environ)
NAME = "perdure-upgrades"
STAGES = 5
COPIES = 6
EVERY_SECONDS = 10
IMAGE = f"localhost/perdure:{declared_version(REPOSITORY)}-upgraded"


@dataclass(frozen=True)
class Kind:
    """Runs that do the same work in each stage."""

    work: Json
    """The step."""
    activities: int = 0
    """How many activities complete in each stage, and how many attempts each has."""
    attempts: int = 1
    children: int = 0
    timers: int = 0
    copies: int = COPIES


def activity(name: str, script: str, image: str, **options: object) -> Json:
    resources = {"requests": {"cpu": "5m", "memory": "8Mi"}}
    container = {"image": image, "command": ["sh", "-c", script], "resources": resources}
    return {"name": name, "startToCloseTimeout": "5m", "container": container, **options}


RESULT = 'printf %s "$PERDURE_INPUT" > /dev/termination-log'
REPORT = {"outputs": [{"name": "report", "path": "/out/report"}]}
RETRY = {"exponential": {"initialInterval": "15s", "backoffCoefficient": "1", "maximumAttempts": 5}}
KINDS = {
    "sleep": Kind({"sleep": {"duration": "20s"}}, timers=1),
    "pod": Kind({"activity": {"name": "slow", "input": "${1}"}}, activities=1),
    "retry": Kind({"activity": {"name": "flaky", "input": "${1}"}}, activities=1, attempts=2),
    "child": Kind({"childWorkflow": {"workflow": {"name": "nap"}}}, children=1),
    "loop": Kind({"forEach": {"items": "${lists.range(4)}", "maxConcurrency": 2}, "call": {"block": "nap"}}, timers=4),
    "branches": Kind(
        {"parallel": {"wait": "All", "branches": [{"name": "a", "block": "nap"}, {"name": "b", "block": "pod"}]}},
        activities=1,
        timers=1,
    ),
    "limited": Kind({"activity": {"name": "licensed", "input": "${1}"}}, activities=1),
    "files": Kind({"activity": {"name": "keep", "input": "${1}"}}, activities=1),
    "signal": Kind({"set": {"waited": "${true}"}}),
    "code": Kind({}, activities=1, copies=4),
}


def spec(kind: Kind, image: str) -> Json:
    """A definition with the work of each stage, and a signal before each but the first."""
    steps = []
    for stage in range(STAGES):
        if stage:
            steps.append({"name": f"wait-{stage}", "waitForSignal": {"name": f"go-{stage}", "timeout": "1h"}})
        steps.append({"name": f"work-{stage}", **kind.work})
    blocks: list[Json] = [
        {"name": "nap", "steps": [{"name": "nap", "sleep": {"duration": "10s"}}]},
        {"name": "pod", "steps": [{"name": "pod", "activity": {"name": "slow", "input": "${1}"}}]},
    ]
    activities = [
        activity("slow", f"sleep 20; {RESULT}", image),
        activity("flaky", f'[ "$PERDURE_ATTEMPT" = 2 ] && {RESULT}', image, retryPolicy=RETRY),
        activity("keep", f"echo done > /out/report; {RESULT}", image, artifacts=REPORT),
        activity("licensed", f"sleep 3; {RESULT}", image, limits=[{"name": "licenses"}]),
    ]
    return {"inline": {"activities": activities, "blocks": blocks, "steps": steps}}


WORKER = f"""\
import asyncio, os
from collections.abc import Sequence
from datetime import timedelta
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.service import TLSConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

@activity.defn
async def slow(stage: int) -> int:
    await asyncio.sleep(5)
    return stage

@workflow.defn
class Stages:
    def __init__(self) -> None:
        self.gone = 0

    @workflow.run
    async def run(self) -> int:
        total = 0
        for stage in range({STAGES}):
            await workflow.wait_condition(lambda: self.gone >= stage)
            total += await workflow.execute_activity(slow, stage, start_to_close_timeout=timedelta(minutes=1))
        return total

    @workflow.signal(dynamic=True)
    def go(self, name: str, args: Sequence[RawValue]) -> None:
        self.gone += 1

async def main() -> None:
    here = "/var/run/perdure"
    client = await Client.connect(
        os.environ["TEMPORAL_ADDRESS"],
        namespace=os.environ["TEMPORAL_NAMESPACE"],
        api_key=open(f"{{here}}/token").read(),
        tls=TLSConfig(server_root_ca_cert=open(f"{{here}}/ca.crt", "rb").read()),
    )
    worker = Worker(
        client, task_queue="stages", workflows=[Stages], activities=[slow], workflow_runner=UnsandboxedWorkflowRunner()
    )
    await worker.run()

asyncio.run(main())
"""


@dataclass(frozen=True)
class Installation:
    """A cluster with the chart of one of the two versions."""

    target: Target
    system: Cluster
    previous: releases.Release

    def helm(self, *arguments: str) -> str:
        return self.target.run("helm", *arguments, f"--namespace={SYSTEM}")

    def settings(self, image: str, *others: str) -> list[str]:
        repository, _, tag = image.rpartition(":")
        flags = [f"--set-string=image.repository={repository}", f"--set-string=image.tag={tag}", *others]
        return [*flags, "--wait", "--timeout=5m"]

    def missing_values(self) -> list[str]:
        """The values that today's chart requires and the previous one does not have."""
        chart = Path("charts") / "perdure"
        before = yaml.safe_load(
            (releases.source(CACHE, self.previous) / chart / "values.yaml").read_text(encoding="utf-8")
        )
        required = (REPOSITORY / chart / "files" / "required-values.txt").read_text(encoding="utf-8").split()

        def known(path: str) -> bool:
            return reduce(lambda found, name: (found or {}).get(name), path.split("."), before) is not None

        return [each for each in required if not known(each)]

    def upgrade(self) -> None:
        self.helm("upgrade", "perdure", "charts/perdure", "--reset-then-reuse-values", *self.settings(IMAGE))
        self.check_operators(IMAGE)

    def roll_back(self) -> None:
        self.helm("rollback", "perdure", "1", "--wait", "--timeout=5m")
        self.check_operators(self.previous.image)

    def finish_upgrade(self) -> None:
        """Have the operators store objects in the form of today's version."""
        self.target.run(
            str(Path(sys.executable).with_name("perdure")), "fleet", "--finish-upgrade", f"--namespace={SYSTEM}"
        )

    def check_operators(self, image: str) -> None:
        """Two operators, all of one version."""

        def images() -> list[str]:
            pods = self.system.list("pods", "-l=app.kubernetes.io/component=operator")
            return [each["spec"]["containers"][0]["image"] for each in pods]

        self.system.wait(f"two operators with {image}", lambda: images() == [image] * 2)


def cluster(verb: str, *arguments: str) -> None:
    """Run the cluster scripts: they may start a daemon that outlives them."""
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), verb, f"--name={NAME}", *arguments]
    subprocess.run(command, check=True, timeout=1800)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """A new cluster with the previous release, and the images of both versions."""
    known = {each.version: each for each in reversed(releases.releases())}
    previous = known[os.environ.get("PREVIOUS") or list(known)[-1]]
    try:
        cluster("up", "--workers=0")
        archives = [releases.image(CACHE, previous), REPOSITORY / "build" / "upgraded.tar"]
        projectimage.build(CACHE, REPOSITORY / "Dockerfile", REPOSITORY, IMAGE, archives[1])
        target = kind_cluster(CACHE, NAME, workers=0)
        lifecycle.load(CACHE, NAME, archives)
        kubeconfig = Path(target.environment["KUBECONFIG"])
        found = Installation(target, Cluster("kubectl", kubeconfig, SYSTEM), previous)
        chart = releases.source(CACHE, previous) / "charts" / "perdure"
        found.helm("upgrade", "--install", "perdure", str(chart), "--create-namespace", *found.settings(previous.image))
        yield found
    finally:
        if not os.environ.get("KEEP"):
            cluster("down")


@pytest.fixture
def namespace(installation: Installation) -> Iterator[Cluster]:
    with temporary_namespace(installation.system) as made:
        yield made


def begin(namespace: Cluster, image: str) -> dict[str, Kind]:
    """Start the runs, a Schedule, and the worker; return the runs by their names."""
    worker(namespace, image)
    store(namespace, image)
    count = [{"name": "count", "return": {"output": "${schedule.scheduledTime}"}}]
    nap = [{"name": "nap", "sleep": {"duration": "15s"}}]
    head: Json = {"apiVersion": "perdure.dev/v1alpha1"}
    schedule = {
        "intervals": [{"every": f"{EVERY_SECONDS}s"}],
        "overlapPolicy": "AllowAll",
        "catchupWindow": "10m",
        "successfulRunsHistoryLimit": 1000,
        "workflowRunTemplate": {"spec": {"workflow": {"name": "count"}}},
    }
    namespace.apply(
        head | {"kind": "Workflow", "metadata": {"name": "nap"}, "spec": {"steps": nap}},
        head | {"kind": "Workflow", "metadata": {"name": "count"}, "spec": {"steps": count}},
        head | {"kind": "WorkflowLimit", "metadata": {"name": "licenses"}, "spec": {"capacity": 2}},
        head | {"kind": "Schedule", "metadata": {"name": "often"}, "spec": schedule},
    )
    runs = {}
    for name, kind in KINDS.items():
        for number in range(kind.copies):
            run = f"{name}-{number}"
            code = {"workflow": {"type": "Stages", "taskQueue": "stages"}}
            namespace.create(run_manifest(run, code if name == "code" else spec(kind, image)))
            runs[run] = kind
    return runs


def worker(namespace: Cluster, image: str) -> None:
    """The worker of the example, with other code; it lives through all upgrades."""
    namespace.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orders-app"}, "data": {"app.py": WORKER}}
    )
    text = (REPOSITORY / "examples" / "temporal" / "worker.yaml").read_text(encoding="utf-8")
    for each in yaml.safe_load_all(text):
        if each["kind"] == "Deployment":
            each["spec"]["template"]["spec"]["containers"][0]["image"] = image
        namespace.apply(each)


def send(namespace: Cluster, stage: int, runs: dict[str, Kind]) -> None:
    for name in runs:
        namespace.create(
            {
                "apiVersion": "perdure.dev/v1alpha1",
                "kind": "Operation",
                "metadata": {"name": f"go-{stage}-{name}"},
                "spec": {"target": {"kind": "WorkflowRun", "name": name}, "signal": {"name": f"go-{stage}"}},
            }
        )


def in_flight(namespace: Cluster, runs: dict[str, Kind]) -> dict[str, Counter[str]]:
    """What each kind of run does now: what is pending, or else its phase. The timeout of a signal is a timer."""
    found: dict[str, Counter[str]] = {}
    for each in namespace.list("workflowruns"):
        name, status = each["metadata"]["name"], each.get("status") or {}
        if name in runs:
            doing = [each for each in ("Activities", "Timers", "Children") if status.get(f"pending{each}")]
            found.setdefault(name.rpartition("-")[0], Counter())[", ".join(doing) or status.get("phase", "new")] += 1
    return found


def pieces(events: tuple[AnyEvent, ...]) -> Counter[str]:
    return Counter(type(each).__name__ for each in events)


def test_runs_of_every_kind_survive_an_upgrade_a_rollback_and_the_next_upgrade(
    installation: Installation, namespace: Cluster
) -> None:
    runs = begin(namespace, installation.previous.image)
    namespace.wait("all runs to begin", lambda: all(started(namespace, name) for name in runs))
    observations = [in_flight(namespace, runs)]
    if missing := installation.missing_values():
        with pytest.raises(ClusterError, match=f"values are missing: {missing[0].partition('.')[0]}"):
            installation.helm("upgrade", "perdure", "charts/perdure", "--reuse-values", *installation.settings(IMAGE))
    installation.upgrade()
    for stage, change in ((1, installation.roll_back), (2, installation.upgrade)):
        send(namespace, stage, runs)
        namespace.wait("the signals", lambda stage=stage: all(signals(namespace, name) >= stage for name in runs))
        observations.append(in_flight(namespace, runs))
        change()
    installation.finish_upgrade()
    send(namespace, 3, runs)
    namespace.wait("the signals", lambda: all(signals(namespace, name) >= 3 for name in runs))
    observations.append(in_flight(namespace, runs))
    installation.roll_back()
    send(namespace, 4, runs)
    check_left_alone(namespace, runs)
    installation.upgrade()
    for name, kind in runs.items():
        status = namespace.closed(name, seconds=900)
        assert status["phase"] == "Completed", (name, status.get("failure"))
        check_once(namespace.with_history(name), kind)
    children = [each for each in namespace.list("workflowruns") if each["metadata"]["name"] not in runs]
    counted = [each for each in children if (each["spec"].get("workflow") or {}).get("name") == "count"]
    naps = [each for each in children if (each["spec"].get("workflow") or {}).get("name") == "nap"]
    assert len(naps) == STAGES * COPIES
    check_files(namespace.list("artifactsets"), [namespace.with_history(name) for name in runs if "files" in name])
    times = check_schedule([namespace.closed(each["metadata"]["name"])["output"] for each in counted])
    print(table(observations))
    print(
        f"Schedule: {len(times)} runs, one every {EVERY_SECONDS} s, none twice and none missing; {len(naps)} children"
    )


def check_left_alone(namespace: Cluster, runs: dict[str, Kind]) -> None:
    """The operators of the previous release report runs that they cannot read, and change nothing but that condition."""
    before = {name: without_conditions(namespace, name) for name in runs}
    for name in runs:
        reported = namespace.condition("workflowrun", name, "NewerState")
        assert f"state version {NEWEST}, and this operator reads versions 1 to" in reported["message"]
    assert {name: without_conditions(namespace, name) for name in runs} == before


def without_conditions(namespace: Cluster, name: str) -> tuple[Json, Json]:
    """The spec of a run, and its status as it is stored."""
    run = namespace.get("workflowrun", name) or {}
    assert run["status"]["stateVersion"] == NEWEST, name
    return run["spec"], {key: each for key, each in run["status"].items() if key != "conditions"}


def started(namespace: Cluster, name: str) -> bool:
    run = namespace.get("workflowrun", name)
    return bool(run and (run.get("status") or {}).get("phase") not in (None, "Pending"))


def signals(namespace: Cluster, name: str) -> int:
    return pieces(recorded(namespace.with_history(name)))["WorkflowExecutionSignaled"]


def check_once(run: Json, kind: Kind) -> None:
    """Each piece of work of the run is in its history exactly once; today's code decides the same."""
    events = recorded(run)
    found = pieces(events)
    want = {
        "WorkflowExecutionSignaled": STAGES - 1,
        "ActivityTaskScheduled": STAGES * kind.activities,
        "ActivityTaskCompleted": STAGES * kind.activities,
        "ActivityTaskFailed": 0,
        "ChildWorkflowExecutionCompleted": STAGES * kind.children,
        "TimerFired": STAGES * kind.timers,
        "WorkflowExecutionCompleted": 1,
    }
    assert {each: found[each] for each in want} == want, run["metadata"]["name"]
    attempts = {each.attempt for each in events if isinstance(each, ev.ActivityTaskStarted)}
    assert attempts <= {kind.attempts}, (run["metadata"]["name"], attempts)
    if "inline" in run["spec"]:
        check_history(run)


def check_files(sets: list[Json], runs: list[Json]) -> None:
    """Each stage of each run has uploaded its file, and no other attempt has."""
    assert len(sets) == len(runs)
    for run in runs:
        completed = [each for each in recorded(run) if isinstance(each, ev.ActivityTaskCompleted)]
        assert [list(each.artifacts) for each in completed] == [["report"]] * STAGES, run["metadata"]["name"]


def check_schedule(times: list[str]) -> list[str]:
    """Check the scheduled times of the runs of a Schedule: each once, and none is left out."""
    seconds = sorted(datetime.fromisoformat(each).timestamp() for each in times)
    assert {later - earlier for earlier, later in pairwise(seconds)} == {EVERY_SECONDS}
    return times


def table(observations: list[dict[str, Counter[str]]]) -> str:
    stages = ("upgrade", "rollback", "second upgrade", "rollback from the new form")
    lines = [" | ".join(["kind", "runs", *(f"during the {each}" for each in stages), "at the end"])]
    for name, kind in KINDS.items():
        cells = [
            ", ".join(f"{number} {what}" for what, number in each.get(name, Counter()).items()) for each in observations
        ]
        lines.append(" | ".join([name, str(kind.copies), *cells, "all completed, once"]))
    return "\n".join(lines)
