"""Runs of every kind that work in stages: before each stage but the first, they wait for a signal.

Tests interrupt them with a change of the cluster, and look at what became of their work.
"""

from collections import Counter
from dataclasses import dataclass

import yaml

from cluster.paths import REPOSITORY
from perdure.engine.events import AnyEvent
from support.cluster.artifacts import store
from support.cluster.namespace import Cluster, Json, recorded, run_manifest

STAGES = 5
EVERY_SECONDS = 10
"""How often the Schedule starts a run."""


@dataclass(frozen=True)
class Kind:
    """Runs that do the same work in each stage."""

    work: Json
    """The step."""
    activities: int = 0
    """How many activities complete in each stage, and how many attempts each has."""
    attempts: int = 1
    failures: int = 0
    """How many activities fail permanently in each stage, and leave a dead letter."""
    services: int = 0
    """How many services run beside all stages: each is two activities, and the one that keeps its pod is cancelled."""
    children: int = 0
    timers: int = 0


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
    "served": Kind({"activity": {"name": "ask", "input": "${1}"}}, activities=1),
    "letter": Kind(
        {
            "activity": {"name": "hopeless", "input": "${1}"},
            "deadLetter": True,
            "catch": [{"errorTypes": ["ExitCode1"], "call": {"block": "accept"}}],
        },
        failures=1,
    ),
    "signal": Kind({"set": {"waited": "${true}"}}),
    "code": Kind({}, activities=1),
}
LATER_KINDS = {
    "grouped": Kind({"activity": {"name": "slow", "input": "${1}"}}, activities=1, services=1),
    "defaulted": Kind({"activity": {"name": "shaky", "input": "${1}"}}, activities=1, attempts=2),
}
"""What 0.1.0 does not know: services of all steps, and the defaults of a namespace."""
TEAM = {"team": "warehouse"}
"""The labels that the defaults give to runs."""


def service(image: str) -> Json:
    """A service that is ready after two seconds, and does nothing until it is stopped."""
    probe = {"exec": {"command": ["sh", "-c", "[ -e /tmp/ready ]"]}, "periodSeconds": 1}
    script = "sleep 2; touch /tmp/ready; trap exit TERM; sleep 100000 & wait"
    resources = {"requests": {"cpu": "5m", "memory": "8Mi"}}
    command = ["sh", "-c", script]
    return {"name": "beside", "image": image, "command": command, "readinessProbe": probe, "resources": resources}


def spec(kind: Kind, image: str, effect: str) -> Json:
    """A definition with the work of each stage, and a signal before each but the first."""
    steps = []
    for stage in range(STAGES):
        if stage:
            steps.append({"name": f"wait-{stage}", "waitForSignal": {"name": f"go-{stage}", "timeout": "1h"}})
        steps.append({"name": f"work-{stage}", **kind.work})
    blocks: list[Json] = [
        {"name": "nap", "steps": [{"name": "nap", "sleep": {"duration": "10s"}}]},
        {"name": "pod", "steps": [{"name": "pod", "activity": {"name": "slow", "input": "${1}"}}]},
        {"name": "accept", "steps": [{"name": "accept", "set": {"failed": "${true}"}}]},
    ]
    second = f'{effect}; [ "$PERDURE_ATTEMPT" = 2 ] && {RESULT}'
    activities = [
        activity("slow", f"sleep 20; {effect}; {RESULT}", image),
        activity("flaky", second, image, retryPolicy=RETRY),
        activity("shaky", second, image),
        activity("keep", f"echo done > /out/report; {effect}; {RESULT}", image, artifacts=REPORT),
        activity("ask", f"sleep 5; {effect}; {RESULT}", image, services=[service(image)]),
        activity("hopeless", f"{effect}; exit 1", image, retryPolicy={"exponential": {"maximumAttempts": 1}}),
        activity("licensed", f"sleep 3; {effect}; {RESULT}", image, limits=[{"name": "licenses"}]),
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


def begin(namespace: Cluster, image: str, *, copies: int, effect: str = "true") -> dict[str, Kind]:
    """Start the runs, a Schedule, and the worker.

    Args:
        namespace: The namespace.
        image: An image with a shell, which the nodes have.
        copies: How many runs of each kind.
        effect: A command of the shell that each attempt of an activity in a pod runs.

    Returns:
        The runs by their names.
    """
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
        for number in range(copies):
            run = f"{name}-{number}"
            code = {"workflow": {"type": "Stages", "taskQueue": "stages"}}
            namespace.create(run_manifest(run, code if name == "code" else spec(kind, image, effect)))
            runs[run] = kind
    return runs


def begin_later(namespace: Cluster, image: str, *, copies: int) -> dict[str, Kind]:
    """Start the runs that 0.1.0 does not know, in a namespace with defaults.

    Args:
        namespace: The namespace, which has nothing else.
        image: An image with a shell, which the nodes have.
        copies: How many runs of each kind.

    Returns:
        The runs by their names.
    """
    defaults = {"runMetadata": {"labels": TEAM}, "activities": {"retryPolicy": RETRY}}
    head: Json = {"apiVersion": "perdure.dev/v1alpha1"}
    namespace.apply(
        head | {"kind": "WorkflowDefaults", "metadata": {"name": "default"}, "spec": defaults},
        head | {"kind": "WorkflowLimit", "metadata": {"name": "licenses"}, "spec": {"capacity": 2}},
    )
    runs = {}
    for name, kind in LATER_KINDS.items():
        for number in range(copies):
            run = f"{name}-{number}"
            wanted = spec(kind, image, "true")
            if name == "grouped":
                wanted["inline"]["services"] = [service(image)]
            namespace.create(run_manifest(run, wanted))
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


def started(namespace: Cluster, name: str) -> bool:
    run = namespace.get("workflowrun", name)
    return bool(run and (run.get("status") or {}).get("phase") not in (None, "Pending"))


def signals(namespace: Cluster, name: str) -> int:
    return pieces(recorded(namespace.with_history(name)))["WorkflowExecutionSignaled"]


def has_done(run: Json, kind: Kind, stage: int) -> bool:
    """Whether a run has done the work of a stage, and of those before."""
    if not (run.get("status") or {}).get("history"):
        return False
    found = pieces(recorded(run))
    wanted = {
        "ActivityTaskCompleted": kind.activities,
        "ActivityTaskFailed": kind.failures,
        "ChildWorkflowExecutionCompleted": kind.children,
        "TimerFired": kind.timers,
    }
    return all(found[name] >= (stage + 1) * number for name, number in wanted.items())
