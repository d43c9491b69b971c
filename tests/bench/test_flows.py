"""Flows in Python on a cluster: from zero pods to the result, with a running worker, and beside YAML, Prefect, and Airflow."""

import shutil
import time
from pathlib import Path
from statistics import median

import pytest

from bench.schedulers import ACTIVITIES, Airflow, Prefect, measure_idle, pod_processes, started
from perdure.api.times import parse_time
from support.cluster.command import perdure
from support.cluster.namespace import IMAGE, Cluster, python

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(3600)]

STARTS = 3
WARM = 20
IDLE = 60
FLOWS = f"""
import perdure.flow as pf

speed = pf.Environment("speed", cpu="10m", memory="64Mi")


@speed.activity(timeout="2m")
def work(number: int) -> int:
    return number


@speed.flow
async def nothing(number: int) -> int:
    return number


@speed.flow
async def chain(number: int) -> int:
    for _ in range({ACTIVITIES}):
        number = await work(number)
    return number
"""
YAML = {
    "activities": [python("activity.complete(1)")],
    "steps": [{"name": f"work-{number}", "activity": {"name": "work"}} for number in range(ACTIVITIES)],
}


def pods(namespace: Cluster) -> list[str]:
    found = namespace.list("pods", "-l=perdure.dev/worker-deployment=speed")
    return [pod["metadata"]["name"] for pod in found]


def texts(times: list[float]) -> str:
    return ", ".join(f"{each:.1f} s" for each in times)


def seconds(namespace: Cluster, name: str, spec: dict[str, object]) -> float:
    """How long a run takes from its creation to its end, by the status."""
    namespace.start(name, spec)
    namespace.closed(name, seconds=600)
    run = namespace.get("workflowrun", name) or {}
    status = run["status"]
    assert status["phase"] == "Completed", status
    begun = parse_time(run["metadata"]["creationTimestamp"])  # whole seconds
    return (parse_time(status["completionTime"]) - max(begun, parse_time(status["startTime"]))).total_seconds()


def flow(name: str) -> dict[str, object]:
    return {"workflow": {"type": name, "taskQueue": "speed"}, "input": {"payloads": [{"json": {"number": 7}}]}}


def processes(namespace: Cluster, *selected: str) -> list[int]:
    """The processes of pods."""
    return pod_processes(namespace("get", "pods", *selected, "-o", "jsonpath={.items[*].metadata.uid}").split())


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv installs Prefect and Airflow")
def test_flows_beside_yaml_prefect_and_airflow(namespace: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "speed.py"
    file.write_text(FLOWS)
    perdure(namespace, "deploy", str(file), "--image", IMAGE, "--mount")
    namespace("patch", "workerdeployment", "speed", "--type=merge", "-p", '{"spec": {"idleTimeout": "10s"}}')
    from_zero = []
    for number in range(STARTS):
        namespace.wait("the worker to get runs", lambda: (namespace.get("workerdeployment", "speed") or {})["status"])
        namespace.wait("all pods to stop", lambda: not pods(namespace), seconds=300)
        began = time.monotonic()
        seconds(namespace, f"cold-{number}", flow("nothing"))
        from_zero.append(time.monotonic() - began)
    namespace.wait("all pods to stop", lambda: not pods(namespace), seconds=300)
    idle = measure_idle(lambda: processes(namespace, "-n", "perdure-system"), IDLE)
    namespace("patch", "workerdeployment", "speed", "--type=merge", "-p", '{"spec": {"minReplicas": 1}}')
    seconds(namespace, "first", flow("nothing"))
    warm = [seconds(namespace, f"warm-{number}", flow("nothing")) for number in range(WARM)]
    worker = measure_idle(lambda: processes(namespace, "-l=perdure.dev/worker-deployment=speed"), IDLE)
    in_flow = seconds(namespace, "chain", flow("chain"))
    in_yaml = seconds(namespace, "yaml", {"inline": YAML})
    print(f"Perdure, a run without activities, from zero pods: {texts(from_zero)}")
    print(f"with a running worker: median {median(warm) * 1000:.0f} ms, longest {max(warm) * 1000:.0f} ms of {WARM}")
    print(f"{ACTIVITIES} activities, each in a pod: {in_flow:.1f} s in a flow, {in_yaml:.1f} s in YAML")
    print(f"idle: operators {idle}; a worker that is kept {worker}")
    for scheduler in (Prefect(tmp_path / "prefect"), Airflow(tmp_path / "airflow")):
        with started(scheduler):
            one = scheduler.seconds("nothing", STARTS)
            (chain,) = scheduler.seconds("chain", 1)
            idle = measure_idle(scheduler.installed.processes, IDLE)
        print(f"{type(scheduler).__name__}, {scheduler.SHORTEST}: {texts(one)}")
        print(f"{ACTIVITIES} tasks: {chain:.1f} s; idle: {idle}")
