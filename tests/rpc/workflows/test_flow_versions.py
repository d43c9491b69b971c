"""A flow whose code is broken, and fixed: its runs move to the version with the fix, and repeat nothing."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from perdure.api.labels import INPUT_ANNOTATION
from perdure.flow import definitions
from perdure.flow.manifests import Placement, workflow_of
from perdure.flow.modules import load
from perdure.flow.serve import BUILD_ID, DEPLOYMENT, place, serve
from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from support.apiserver import kubeconfig
from support.cli import perdure_in_thread
from support.cluster_over_http import over_http
from support.manuals import REPOSITORY
from support.operator import in_memory
from support.sdk.client import until
from support.temporal import Server

WORKERS_URL = "/apis/perdure.dev/v1alpha1/namespaces/shop/workerdeployments/parcels"
WORKERS = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "WorkerDeployment",
    "metadata": {"name": "parcels"},
    "spec": {
        "taskQueues": ["parcels"],
        "podTemplate": {"spec": {"containers": [{"name": "worker", "image": "parcels:1"}]}},
        "buildId": "1",
    },
}


@pytest.fixture
def ran() -> list[str]:
    """The activities that ran in pods, with their images."""
    return []


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> Iterator[Server]:
    definitions.LISTENERS.append(place)
    try:
        found_in = REPOSITORY / "tests" / "support" / "parcels"
        broken, fixed = load(str(found_in / "broken.py")), load(str(found_in / "fixed.py"))
        modules = {"parcels:1": broken.parcels, "parcels:2": fixed.parcels}

        def run_pod(pod: Object) -> ContainerExit:
            image, meta = pod["spec"]["containers"][0]["image"], pod["metadata"]
            activity = modules[image].activities[meta["labels"]["perdure.dev/activity"]]
            ran.append(f"{activity.name} of {image}")
            return ContainerExit(
                after=0.05, message=json.dumps(activity.run(json.loads(meta["annotations"][INPUT_ANNOTATION])))
            )

        objects = [workflow_of(broken.parcels, Placement(image="parcels:1", module="parcels.py")), WORKERS]
        with in_memory(namespace="shop", objects=objects, pods=run_pod) as found, over_http(found.cluster) as url:
            kubeconfig(tmp_path, monkeypatch, url)
            yield found
    finally:
        definitions.LISTENERS.remove(place)


@pytest.fixture
def deploy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Run the worker of a version, and let the operator make it current."""

    @asynccontextmanager
    async def deployed(build: str) -> AsyncIterator[Client]:
        flow = sys.modules["broken" if build == "1" else "fixed"].parcel
        client = await Client.connect(server.address, namespace=server.namespace)
        monkeypatch.setenv(DEPLOYMENT, "parcels")
        monkeypatch.setenv(BUILD_ID, build)
        await call(server, "PATCH", WORKERS_URL, {"spec": {"buildId": build}})
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(client, [flow], stop))

        async def is_current() -> bool:
            found = await call(server, "GET", WORKERS_URL)
            return bool(found.get("status", {}).get("currentBuildId") == build)

        await until("the version to become current", is_current)
        yield client
        stop.set()
        await worker

    return deployed


async def call(server: Server, method: str, url: str, body: Object | None = None) -> Any:
    """Send a request to the API server, whose loop runs in another thread."""
    headers = {"Content-Type": "application/merge-patch+json"}
    asked = Request(method=method, url=url, query={}, headers=headers, body=json.dumps(body).encode(), actor="user")
    answer: Future[bytes] = Future()
    server.cluster.loop.call_soon_threadsafe(lambda: answer.set_result(server.cluster.handle(asked).body))
    return json.loads(await asyncio.wrap_future(answer))


async def perdure(*arguments: str) -> str:
    done = await perdure_in_thread(*arguments)
    assert done.exit_code == 0, done.output
    return str(done.output)


async def described(workflow_id: str, text: str) -> str:
    """What `describe` shows of a run once it shows a text."""

    async def shown() -> str:
        found = await perdure("describe", "-w", workflow_id)
        return found if text in found else ""

    return str(await until(text, shown))


async def test_a_flow_that_fails_continues_on_the_code_that_was_fixed(
    deploy: Callable[[str], Any], ran: list[str]
) -> None:
    async with deploy("1") as client:
        handle = await client.start_workflow("parcel", {"order": "A-1"}, id="parcel-1", task_queue="parcels")
        shown = await described("parcel-1", "the workflow task fails, and the run stays on version `1`")
        assert "perdure set-version -n shop parcel-1-" in shown
        async with deploy("2"):
            matching = ("set-version", "--workflow", "parcel", "--failing")
            assert "No open run matches" in await perdure("set-version", "--workflow", "other", "--failing")
            assert "moved to version 2 (dry run)" in await perdure(*matching, "--dry-run")
            await perdure(*matching, "--yes")
            assert (await asyncio.wait_for(handle.result(), 60)).startswith("A-1 packed, shipped")
    assert [each.partition(" ")[0] for each in ran] == ["pack", "ship"]
    assert "parcels:2 (Pinned)" in await perdure("describe", "-w", "parcel-1")


@pytest.mark.parametrize(
    "arguments",
    [("retry",), ("reset", "--type", "LastWorkflowTask"), ("reset", "--event-id", "9")],
    ids=("retry", "reset to the last task", "reset to an event"),
)
async def test_a_failed_run_starts_again_on_the_code_that_was_fixed(
    deploy: Callable[[str], Any], ran: list[str], arguments: tuple[str, ...]
) -> None:
    async with deploy("1") as client:
        await client.start_workflow("parcel", {"order": "too late"}, id="parcel-1", task_queue="parcels")
        await described("parcel-1", "--to-version current")
        verb, *options = arguments
        if verb == "retry":
            refused = await perdure_in_thread("retry", "-w", "parcel-1")
            assert "--to-version current" in refused.output
        async with deploy("2"):
            await perdure(verb, "-w", "parcel-1", *options, "--to-version", "current")
            handle = client.get_workflow_handle("parcel-1")
            assert (await asyncio.wait_for(handle.result(), 60)).startswith("too late packed, shipped")
    assert [each.partition(" ")[0] for each in ran] == ["pack", "ship"]


async def test_a_version_without_workers_is_refused(deploy: Callable[[str], Any]) -> None:
    async with deploy("1") as client:
        await client.start_workflow("parcel", {"order": "A-1"}, id="parcel-1", task_queue="parcels")
        await described("parcel-1", "the workflow task fails")
        refused = await perdure_in_thread("set-version", "-w", "parcel-1", "--to", "7")
        assert refused.exit_code == 1
        assert "no version `7` whose workers have polled; it has `1`" in refused.output
