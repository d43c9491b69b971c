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

from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.api.labels import INPUT_ANNOTATION
from perdure.flow.manifests import Placement, manifests_of
from perdure.flow.modules import load
from perdure.flow.serve import BUILD_ID, DEPLOYMENT, serve
from perdure.runtime.workers.versions import build_id
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

KINDS = "/apis/perdure.dev/v1alpha1/namespaces/shop/"
SUPPORT = REPOSITORY / "tests" / "support" / "parcels"


@pytest.fixture
def ran() -> list[str]:
    """The activities that ran in pods, with their images."""
    return []


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]) -> Iterator[Server]:
    modules = {f"parcels:{name}": load(str(SUPPORT / f"{name}.py")) for name in ("broken", "fixed")}

    def run_pod(pod: Object) -> ContainerExit:
        image, meta = pod["spec"]["containers"][0]["image"], pod["metadata"]
        activity = modules[image].parcels.activities[meta["labels"]["perdure.dev/activity"]]
        ran.append(f"{activity.name} of {image}")
        try:
            result = activity.run(json.loads(meta["annotations"][INPUT_ANNOTATION]))
        except ValueError as error:
            failure = {"type": "ValueError", "message": str(error)}
            return ContainerExit(after=0.05, code=1, message=json.dumps({"error": failure}))
        return ContainerExit(after=0.05, message=json.dumps(result))

    with in_memory(namespace="shop", pods=run_pod) as found, over_http(found.cluster) as url:
        kubeconfig(tmp_path, monkeypatch, url)
        yield found


async def apply(server: Server, *objects: Object) -> None:
    """Create objects, or change them."""
    for each in objects:
        url = f"{KINDS}{each['kind'].lower()}s"
        answer = await call(server, "PATCH", f"{url}/{each['metadata']['name']}", each)
        if answer.get("reason") == "NotFound":
            await call(server, "POST", url, each)


@pytest.fixture
def deploy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Apply what `perdure deploy` applies for a module, run its worker, and let the operator make its version current."""

    @asynccontextmanager
    async def deployed(name: str) -> AsyncIterator[Client]:
        module = sys.modules[name]
        *_, workflow, workers = manifests_of(module.parcels, Placement(image=f"parcels:{name}", module="parcels.py"))
        client = await Client.connect(server.address, namespace=server.namespace)
        build = build_id(WorkerDeploymentSpec.parse(workers["spec"]))
        monkeypatch.setenv(DEPLOYMENT, "parcels")
        monkeypatch.setenv(BUILD_ID, build)
        await apply(server, workers, workflow)
        stop = asyncio.Event()
        worker = asyncio.create_task(serve(client, [module.parcel], stop))

        async def is_current() -> bool:
            found = await call(server, "GET", f"{KINDS}workerdeployments/parcels")
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
    async with deploy("broken") as client:
        handle = await client.start_workflow("parcel", {"order": "A-1"}, id="parcel-1", task_queue="parcels")
        shown = await described("parcel-1", "the workflow task fails, and the run stays on version `")
        assert "perdure set-version -n shop parcel-1-" in shown
        async with deploy("fixed"):
            matching = ("set-version", "--workflow", "parcel", "--failing")
            assert "No open run matches" in await perdure("set-version", "--workflow", "other", "--failing")
            assert "moved to version" in await perdure(*matching, "--dry-run")
            await perdure(*matching, "--yes")
            assert await asyncio.wait_for(handle.result(), 60) == "A-1 packed, shipped by the second version"
    assert ran == ["pack of parcels:broken", "ship of parcels:fixed"]
    assert " (Pinned)\n" in await perdure("describe", "-w", "parcel-1")


@pytest.mark.parametrize(
    "arguments",
    [("retry",), ("reset", "--type", "LastWorkflowTask"), ("reset", "--event-id", "9")],
    ids=("retry", "reset to the last task", "reset to an event"),
)
async def test_a_failed_run_starts_again_on_the_code_that_was_fixed(
    deploy: Callable[[str], Any], ran: list[str], arguments: tuple[str, ...]
) -> None:
    async with deploy("broken") as client:
        await client.start_workflow("parcel", {"order": "too late"}, id="parcel-1", task_queue="parcels")
        await described("parcel-1", "--to-version current")
        verb, *options = arguments
        if verb == "retry":
            refused = await perdure_in_thread("retry", "-w", "parcel-1")
            assert "--to-version current" in refused.output
        async with deploy("fixed"):
            await perdure(verb, "-w", "parcel-1", *options, "--to-version", "current")
            handle = client.get_workflow_handle("parcel-1")
            assert await asyncio.wait_for(handle.result(), 60) == "too late packed, shipped by the second version"
    assert ran == ["pack of parcels:broken", "ship of parcels:fixed"]


async def test_a_version_without_workers_is_refused(deploy: Callable[[str], Any]) -> None:
    async with deploy("broken") as client:
        await client.start_workflow("parcel", {"order": "A-1"}, id="parcel-1", task_queue="parcels")
        await described("parcel-1", "the workflow task fails")
        refused = await perdure_in_thread("set-version", "-w", "parcel-1", "--to", "7")
        assert refused.exit_code == 1
        assert "no version `7` whose workers have polled; it has `" in refused.output


async def test_an_open_run_keeps_the_activities_of_its_version(deploy: Callable[[str], Any], ran: list[str]) -> None:
    async with deploy("broken") as client:
        handle = await client.start_workflow("parcel", {"order": "A-1 slowly"}, id="parcel-1", task_queue="parcels")

        async def is_packed() -> bool:
            return bool(ran)

        await until("the first activity", is_packed)
        async with deploy("fixed"):
            await handle.signal("go", None)
            assert await asyncio.wait_for(handle.result(), 60) == "A-1 slowly packed, shipped"
    assert ran == ["pack of parcels:broken", "ship of parcels:broken"]


async def test_a_deployment_whose_workers_never_start_changes_nothing(
    server: Server, deploy: Callable[[str], Any], ran: list[str]
) -> None:
    async with deploy("broken") as client:
        *_, workflow, workers = manifests_of(
            sys.modules["fixed"].parcels, Placement(image="parcels:fixed", module="x.py")
        )
        await apply(server, workflow, workers)

        async def has_deployment() -> bool:
            return len((await call(server, "GET", "/apis/apps/v1/namespaces/shop/deployments"))["items"]) > 1

        await until("the Deployment of the new version", has_deployment)
        handle = await client.start_workflow("parcel", {"order": "A-1 slowly"}, id="parcel-1", task_queue="parcels")
        await handle.signal("go", None)
        assert await asyncio.wait_for(handle.result(), 60) == "A-1 slowly packed, shipped"
    assert ran == ["pack of parcels:broken", "ship of parcels:broken"]


async def test_an_activity_that_fails_gets_the_code_of_the_version_to_which_its_run_moves(
    deploy: Callable[[str], Any], ran: list[str]
) -> None:
    async with deploy("broken") as client:
        order = {"order": "A-1 slowly, refused"}
        handle = await client.start_workflow("parcel", order, id="parcel-1", task_queue="parcels")
        await described("parcel-1", "refused by the first version")
        async with deploy("fixed"):
            await perdure("set-version", "-w", "parcel-1")
            await handle.signal("go", None)
            assert (await asyncio.wait_for(handle.result(), 60)).endswith("shipped by the second version")
    assert "pack of parcels:fixed" in ran


async def test_a_version_waits_until_its_activities_are_applied(server: Server) -> None:
    module = load(str(SUPPORT / "fixed.py"))
    *_, workflow, workers = manifests_of(module.parcels, Placement(image="parcels:fixed", module="x.py"))

    async def says(text: str) -> bool:
        found = await call(server, "GET", f"{KINDS}workerdeployments/parcels")
        conditions = found.get("status", {}).get("conditions", ())
        return any(each["type"] == "RolledOut" and text in each["message"] for each in conditions)

    await apply(server, workers)
    await until("the report", lambda: says("Workflow `parcels`, which has its activities, does not exist"))
    other = {**workflow, "metadata": {"name": "parcels", "annotations": {"perdure.dev/activities": "other"}}}
    await apply(server, other)
    await until("the report", lambda: says("Workflow `parcels` has those with the hash other"))
    assert not (await call(server, "GET", "/apis/apps/v1/namespaces/shop/deployments"))["items"]
    await apply(server, workflow)
    await until("the Deployment", lambda: says("its workers have not polled yet"))
    (made,) = (await call(server, "GET", "/apis/apps/v1/namespaces/shop/deployments"))["items"]
    found = await call(server, "GET", f"{KINDS}workflows/parcels")
    assert made["metadata"]["annotations"]["perdure.dev/revisions"] == f"parcels={found['status']['revision']}"
