"""Workers on demand with real pods: from zero and back, and a new version while a run is open on the old one."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cluster.command import perdure
from support.cluster.namespace import IMAGE, Cluster
from support.manuals import REPOSITORY

pytestmark = pytest.mark.cluster

EXAMPLE = REPOSITORY / "examples" / "worker-deployment"
FLOW = """
import perdure.flow as pf

shop = pf.Environment("shop", cpu="10m", memory="64Mi")


@shop.flow
async def order(name: str) -> str:
    await pf.signal("paid", bool)
    return f"{{name}} by {code}"
"""
"""A flow that says which code has ended it."""
CRASH = """
if __file__.startswith("/flow/"):
    raise RuntimeError("there is no database")
"""
"""Fails in the pods of workers, and not when it is deployed."""
KIND = "workerdeployment"


def status(cluster: Cluster, name: str = "shop") -> dict[str, Any]:
    return (cluster.get(KIND, name) or {}).get("status") or {}


def reason(cluster: Cluster, condition: str, name: str = "shop") -> str:
    found = status(cluster, name).get("conditions") or ()
    return next((each["reason"] for each in found if each["type"] == condition), "")


def pods(cluster: Cluster, name: str = "shop") -> int:
    """How many pods of the workers exist that are not being deleted."""
    found = cluster.list("pods", f"-l=perdure.dev/worker-deployment={name}")
    return sum("deletionTimestamp" not in each["metadata"] for each in found)


def until_no_pods(cluster: Cluster) -> None:
    cluster.wait("all pods to stop", lambda: pods(cluster) == 0, seconds=240)


def deployed(cluster: Cluster, folder: Path, code: str) -> str:
    """Deploy the flow as this code, wait until it gets new runs, and return its build ID."""
    file = folder / "shop.py"
    file.write_text(FLOW.format(code=code))
    before = status(cluster).get("currentBuildId")
    perdure(cluster, "deploy", str(file), "--image", IMAGE, "--mount")
    cluster("patch", KIND, "shop", "--type=merge", "-p", '{"spec": {"idleTimeout": "20s"}}')

    def current() -> Any:
        build = status(cluster).get("currentBuildId")
        return build if build != before and reason(cluster, "RolledOut") == "RolledOut" else None

    return str(cluster.wait(f"code {code} to get new runs", current, seconds=240))


def start(cluster: Cluster, name: str) -> None:
    perdure(
        cluster, "start", "--type", "order", "--task-queue", "shop", "--input", f'{{"name": "{name}"}}', "--name", name
    )


def test_an_open_run_ends_on_its_code_and_pods_run_only_while_there_are_tasks(
    namespace: Cluster, tmp_path: Path
) -> None:
    first = deployed(namespace, tmp_path, "one")
    start(namespace, "early")
    namespace.wait("the run to be pinned", lambda: "Pinned" in perdure(namespace, "describe", "early"), seconds=120)
    second = deployed(namespace, tmp_path, "two")
    assert first != second
    until_no_pods(namespace)
    phases = {each["buildId"]: each["phase"] for each in status(namespace)["versions"]}
    assert phases == {first: "Draining", second: "Current"}
    began = time.monotonic()
    start(namespace, "late")
    for name in ("late", "early"):
        perdure(namespace, "signal", name, "--name", "paid", "--input", "true")
    assert perdure(namespace, "result", "late").strip() == "late by two"
    print(f"from zero to the result: {time.monotonic() - began:.1f} s")
    assert perdure(namespace, "result", "early").strip() == "early by one"
    until_no_pods(namespace)


def test_a_version_that_crashes_gets_no_runs_and_says_why(namespace: Cluster, tmp_path: Path) -> None:
    deployed(namespace, tmp_path, "one")
    (tmp_path / "shop.py").write_text(FLOW.format(code="two") + CRASH)
    with pytest.raises(AssertionError, match="WorkersFailing") as failed:
        perdure(namespace, "deploy", str(tmp_path / "shop.py"), "--image", IMAGE, "--mount")
    assert "RuntimeError: there is no database" in str(failed.value), "the end of the log"
    assert reason(namespace, "RolledOut") == "WorkersFailing"
    assert reason(namespace, "Ready") in {"Serving", "Idle"}, "the earlier version serves"
    start(namespace, "safe")
    perdure(namespace, "signal", "safe", "--name", "paid", "--input", "true")
    assert perdure(namespace, "result", "safe").strip() == "safe by one"


def test_the_example_runs_its_workers_on_demand(namespace: Cluster, tmp_path: Path) -> None:
    for file in EXAMPLE.iterdir():
        (tmp_path / file.name).write_text(file.read_text().replace("localhost/perdure:dev", IMAGE))
    namespace("apply", "-k", str(tmp_path))
    namespace.wait(
        "the workers to poll", lambda: reason(namespace, "RolledOut", "greetings") == "RolledOut", seconds=240
    )
    arguments = ("--type", "GreetingWorkflow", "--task-queue", "greetings")
    perdure(namespace, "start", *arguments, "--input", '{"payloads": [{"json": "Ada"}]}', "--name", "hello")
    assert "Hello, Ada!" in perdure(namespace, "result", "hello")


def test_only_users_who_can_create_deployments_can_describe_workers(namespace: Cluster) -> None:
    namespace("create", "role", "writer", "--verb=create,patch,get", "--resource=workerdeployments.perdure.dev")
    namespace("create", "rolebinding", "writer", "--role=writer", "--user=ada")
    spec = {"taskQueues": ["sneaky"], "podTemplate": {"spec": {"containers": [{"name": "worker", "image": "worker"}]}}}
    manifest = {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkerDeployment", "spec": spec}
    manifest["metadata"] = {"name": "sneaky"}
    with pytest.raises(AssertionError, match="must be allowed to create Deployments"):
        namespace("create", "-f", "-", "--as=ada", stdin=yaml.safe_dump(manifest))
