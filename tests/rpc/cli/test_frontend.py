"""`perdure deployment`, `task-queue`, `worker`, `batch`, and `list --query`: the command line against the operator."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import Result
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from support.apiserver import ApiServer, serving
from support.apiserver import items as listed
from support.cli import perdure, perdure_in_thread
from support.operator import OPEN, in_memory
from support.ports import free_port

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
WORKER_DEPLOYMENTS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workerdeployments"


@workflow.defn(sandboxed=False, versioning_behavior=VersioningBehavior.PINNED)
class Order:
    """Waits for a signal."""

    def __init__(self) -> None:
        self.paid = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self.paid))
        return self.paid

    @workflow.signal
    def pay(self, by: str) -> None:
        self.paid = by


@workflow.defn(sandboxed=False)
class Payment(Order):
    """The same on workers without versions."""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self.paid))
        return self.paid


@activity.defn
async def nothing() -> None:
    """Do nothing."""


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """The addresses of a frontend: for SDKs, and of the HTTP API. Its audit log is kept out of the output of the command."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    port = free_port()
    with in_memory(namespace="shop", settings=replace(OPEN, http_address=f"127.0.0.1:{port}")) as found:
        yield found.address, f"http://127.0.0.1:{port}"
    structlog.configure(**before)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The cluster of the kubeconfig, with the runs that a test adds."""
    with serving(tmp_path, monkeypatch) as api:
        api.answers[WORKER_DEPLOYMENTS] = listed()
        yield api


def worker_of(client: Client, build_id: str) -> Worker:
    version = WorkerDeploymentVersion(deployment_name="shop", build_id=build_id)
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=True)
    return Worker(client, task_queue="orders", workflows=[Order], activities=[nothing], deployment_config=config)


def succeeded(done: Result) -> str:
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.usefixtures("server")
async def test_versions_workers_and_task_queues_are_shown_and_changed(served: tuple[str, str]) -> None:
    at = ("--address", served[1])
    nothing_yet = await perdure_in_thread("deployment", "list", *at)
    assert (nothing_yet.exit_code, nothing_yet.stdout) == (0, "")
    client = await Client.connect(served[0], namespace="shop")
    async with worker_of(client, "1"), worker_of(client, "2"):
        async with asyncio.timeout(30):
            for build in ("1", "2"):
                set_current = ("deployment", "set-current", "shop", "--build-id", build, *at)
                while (await perdure_in_thread(*set_current)).exit_code:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)  # the worker has not polled yet
        await perdure_in_thread("deployment", "set-current", "shop", "--build-id", "1", "--allow-no-pollers", *at)
        assert succeeded(
            await perdure_in_thread("deployment", "set-ramping", "shop", "--build-id", "2", "--percentage", "10", *at)
        ) == ("2: ramping version of shop, 10 %\n")
        heading, line = succeeded(await perdure_in_thread("deployment", "list", *at)).splitlines()
        assert heading.split() == ["NAME", "CURRENT", "RAMPING", "LATEST", "REASON", "PODS", "AGE"]
        assert line.split()[:5] == ["shop", "1", "2", "(10", "%)"]
        assert succeeded(await perdure_in_thread("deployment", "list", "-o", "name", *at)) == "shop\n"
        shown = succeeded(await perdure_in_thread("deployment", "describe", "shop", *at))
        assert "Current:" in shown
        versions = dict(row.split()[:2] for row in shown.splitlines() if row.startswith(("1 ", "2 ")))
        assert versions == {"1": "Current", "2": "Ramping"}
        refused = await perdure_in_thread("deployment", "set-current", "shop", "--build-id", "3", *at)
        assert refused.exit_code != 0

        queue = succeeded(await perdure_in_thread("task-queue", "describe", "orders", *at))
        assert queue.splitlines()[0] == "Task queue:  orders"
        assert "BACKLOG" in queue
        assert "Workflow" in queue
        found = json.loads(succeeded(await perdure_in_thread("task-queue", "describe", "orders", "-o", "json", *at)))
        assert {each["deploymentOptions"]["buildId"] for each in found["Workflow"]["pollers"]} == {"1", "2"}

        workers = json.loads(succeeded(await perdure_in_thread("worker", "list", "-o", "json", *at)))
        assert workers
        assert all("orders" in each["taskQueue"] for each in workers)
        assert "orders" in succeeded(await perdure_in_thread("worker", "list", *at))
        missing = await perdure_in_thread("worker", "describe", "nobody", *at)
        assert missing.exit_code != 0
    deleted = await perdure_in_thread("deployment", "delete-version", "shop", "--build-id", "2", *at)
    assert deleted.exit_code == 1  # it is ramping
    assert deleted.stderr.startswith("Error: ")


def worker_deployment(name: str, reason: str, message: str, *versions: dict[str, Any]) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "reason": reason, "message": message}]
    status = {"conditions": conditions, "readyReplicas": 3, "versions": list(versions)}
    meta = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-11-27T10:00:00Z"}
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkerDeployment", "metadata": meta, "status": status}


async def test_worker_deployments_are_shown_with_the_pods_of_their_versions(
    served: tuple[str, str], server: ApiServer
) -> None:
    """Also one whose workers have never polled: it says why."""
    at = ("--address", served[1])
    client = await Client.connect(served[0], namespace="shop")
    runs = {"buildId": "a1", "phase": "Current", "replicas": 3, "readyReplicas": 2, "openRuns": 7}
    known = worker_deployment("store", "Serving", "Version `a1` gets new runs", runs)
    broken = {"buildId": "b1", "phase": "Starting", "replicas": 1, "message": "ImagePullBackOff"}
    new = worker_deployment("new", "WorkersFailing", "Version `b1`: ImagePullBackOff", broken)
    server.answers[WORKER_DEPLOYMENTS] = listed(known, new)
    version = WorkerDeploymentVersion(deployment_name="store", build_id="a1")
    config = WorkerDeploymentConfig(version=version, use_worker_versioning=True)
    async with (
        Worker(client, task_queue="stores", workflows=[Order], deployment_config=config),
        asyncio.timeout(30),
    ):
        shown = ""
        while "Inactive" not in shown:  # the worker has not polled yet
            shown = (await perdure_in_thread("deployment", "describe", "store", *at)).stdout
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert lines["Ready:"] == ["Ready:", "Serving:", "Version", "`a1`", "gets", "new", "runs"]
    assert lines["BUILD-ID"] == ["BUILD-ID", "STATUS", "DRAINAGE", "PODS", "OPEN-RUNS", "AGE"]
    assert lines["a1"][:2] + lines["a1"][3:5] == ["a1", "Inactive", "2/3", "7"]
    shown = succeeded(await perdure_in_thread("deployment", "list", *at))
    rows = {line.split()[0]: line.split() for line in shown.splitlines()[1:]}
    assert rows["store"][-3:-1] == ["Serving", "3"]
    assert rows["new"][-3:-1] == ["WorkersFailing", "3"]

    server.answers[WORKER_DEPLOYMENTS] = listed(new)
    shown = succeeded(await perdure_in_thread("deployment", "describe", "new", *at))
    assert shown.splitlines()[-1] == "b1: ImagePullBackOff"
    assert json.loads(succeeded(await perdure_in_thread("deployment", "describe", "new", "-o", "json", *at))) == {
        "workerDeploymentInfo": {"name": "new"},
        "workerDeployment": new,
    }
    server.answers[WORKER_DEPLOYMENTS] = listed()
    missing = await perdure_in_thread("deployment", "describe", "nothing", *at)
    assert missing.exit_code == 2
    assert missing.stderr.startswith("Error: ")


async def test_a_batch_is_started_described_and_listed(served: tuple[str, str], server: ApiServer) -> None:
    at = ("--address", served[1])
    client = await Client.connect(served[0], namespace="shop")
    handles = [
        await client.start_workflow(Payment.run, id=f"batched-{number}", task_queue="unserved") for number in range(2)
    ]
    query = "WorkflowId STARTS_WITH 'batched-'"

    def run(name: str, uid: str, phase: str) -> dict[str, Any]:
        meta = {"name": name, "namespace": "shop", "uid": uid}
        return {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "WorkflowRun",
            "metadata": meta,
            "status": {"phase": phase},
        }

    items = [run(f"r-{handle.id}", str(handle.result_run_id), "Running") for handle in handles]
    other = run("other", "other", "Failed")
    server.answers[RUNS] = listed(*items, other)
    assert sorted(succeeded(await perdure_in_thread("list", "--query", query, "-o", "name", *at)).splitlines()) == [
        f"workflowrun.perdure.dev/r-{handle.id}" for handle in handles
    ]
    counted = json.loads(succeeded(await perdure_in_thread("count", "-q", query, "-o", "json", *at)))
    assert counted == {"total": 2, "phases": {"Running": 2}}
    wrong = await perdure_in_thread("list", "--query", "Nonsense = 1", *at)
    assert wrong.exit_code == 1
    assert "Nonsense" in wrong.stderr

    start = ("batch", "start", "signal", "-q", query, "--name", "pay", "--input", "ada", "--job-id", "job", *at)
    declined = await perdure_in_thread(*start)
    assert declined.exit_code != 0  # nobody confirmed
    assert succeeded(await perdure_in_thread(*start, "--yes", "--reason", "why")) == "job\n"
    async with Worker(client, task_queue="unserved", workflows=[Payment]):
        assert [await handle.result() for handle in handles] == ["ada", "ada"]
    shown = succeeded(await perdure_in_thread("batch", "describe", "job", *at)).splitlines()
    assert "Runs:       2: 2 done, 0 failed, 0 left" in shown
    assert "Reason:     why" in shown
    assert succeeded(await perdure_in_thread("batch", "list", *at)).splitlines()[1].split()[:3] == [
        "job",
        "SignalWorkflow",
        "Completed",
    ]
    stopped = await perdure_in_thread("batch", "stop", "job", *at)
    assert stopped.exit_code != 0
    assert "already ended" in stopped.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["signal"], "must name the signal"),
        (["reset"], "must be one of FirstWorkflowTask"),
        (["cancel", "--name", "x"], "does not belong to `cancel`"),
        (["terminate", "--activity-type", "x"], "does not belong to `terminate`"),
        (["pause"], "is not one of"),
    ],
)
def test_an_incomplete_batch_is_rejected(arguments: list[str], message: str) -> None:
    done = perdure("batch", "start", *arguments, "--query", "x")
    assert done.exit_code == 2
    assert message in done.stderr
