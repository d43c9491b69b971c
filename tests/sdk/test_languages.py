"""The workers of examples/workers, built and run as they are against the real operator."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import VersioningBehavior
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.service import RPCError

from support.manuals import REPOSITORY
from support.sdk.client import Temporal, until

pytestmark = pytest.mark.cluster

FOLDER = REPOSITORY / "examples" / "workers"
PATIENCE = 300.0
"""Seconds after which a worker that has not begun will not begin."""
VERSION = {"TEMPORAL_DEPLOYMENT_NAME": "subscriptions", "TEMPORAL_WORKER_BUILD_ID": "7"}
"""As a WorkerDeployment sets it for its pods."""
Build = Callable[[Path], list[str]]


def build_go(folder: Path) -> list[str]:
    worker = folder / "worker"
    subprocess.run(["go", "build", "-o", worker, "."], cwd=FOLDER / "go", check=True)
    return [str(worker)]


def build_java(folder: Path) -> list[str]:
    sources = shutil.copytree(FOLDER / "java", folder / "java", ignore=shutil.ignore_patterns("target"))
    subprocess.run(["mvn", "--quiet", "--batch-mode", "package"], cwd=sources, check=True)
    return ["java", "-jar", str(sources / "target" / "worker.jar")]


def build_typescript(folder: Path) -> list[str]:
    ignored = shutil.ignore_patterns("node_modules", "lib")
    sources = shutil.copytree(FOLDER / "typescript", folder / "typescript", ignore=ignored)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=sources, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=sources, check=True)
    return ["node", str(sources / "lib" / "worker.js")]


@contextmanager
def working(command: list[str], temporal: Temporal, folder: Path) -> Iterator[None]:
    """Run a worker with the credentials that worker.yaml mounts; the operator of the tests asks for no token."""
    credentials = folder / "credentials"
    credentials.mkdir()
    (credentials / "ca.crt").write_text(temporal.operator.authority)
    (credentials / "token").write_text("unused")
    settings = {
        "PERDURE_CREDENTIALS": str(credentials),
        "TEMPORAL_ADDRESS": temporal.operator.address,
        "TEMPORAL_NAMESPACE": temporal.operator.namespace,
        **VERSION,
    }
    with (folder / "log").open("wb") as log:
        worker = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            yield
            assert worker.poll() is None, (folder / "log").read_text()[-4_000:]
        finally:
            worker.terminate()
            worker.wait(60)


async def made_current(temporal: Temporal) -> bool:
    """Give new runs to the version; the server refuses until a worker of it has polled."""
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=temporal.client.namespace,
        deployment_name=VERSION["TEMPORAL_DEPLOYMENT_NAME"],
        build_id=VERSION["TEMPORAL_WORKER_BUILD_ID"],
    )
    try:
        await temporal.client.workflow_service.set_worker_deployment_current_version(request)
    except RPCError:
        return False
    return True


@pytest.mark.parametrize(
    ("tool", "build", "status"),
    [
        ("go", build_go, WorkflowExecutionStatus.COMPLETED),
        pytest.param("mvn", build_java, WorkflowExecutionStatus.CANCELED, marks=pytest.mark.bench),
        pytest.param("npm", build_typescript, WorkflowExecutionStatus.COMPLETED, marks=pytest.mark.bench),
    ],
    ids=["Go", "Java", "TypeScript"],
)
async def test_a_subscription_bills_until_it_is_cancelled(
    temporal: Temporal, tmp_path: Path, tool: str, build: Build, status: WorkflowExecutionStatus
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool}")
    with working(build(tmp_path), temporal, tmp_path):
        await until("the version to get runs", lambda: made_current(temporal), PATIENCE)
        handle = await temporal.client.start_workflow(
            "Subscription", args=["Ada", 600.0], id=f"w-{uuid.uuid4().hex[:8]}", task_queue="subscriptions"
        )

        async def sleeps() -> bool:
            return "TimerStarted" in await temporal.names(handle)

        await until("the first receipt", sleeps, PATIENCE)
        assert await handle.query("so_far") == ["Ada paid for month 1"]
        versioning = (await handle.describe()).raw_description.workflow_execution_info.versioning_info
        assert versioning.deployment_version.build_id == VERSION["TEMPORAL_WORKER_BUILD_ID"]
        assert versioning.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
        await handle.cancel()
        with suppress(WorkflowFailureError):  # the Java SDK's way to end what was cancelled
            await handle.result()
        assert (await handle.describe()).status is status
        assert await handle.query("so_far") == ["Ada paid for month 1", "goodbye, Ada"]
