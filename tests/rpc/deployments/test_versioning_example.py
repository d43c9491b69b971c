"""The workers of examples/versioning, as they are, against an operator in memory: a release with a ramp."""

from contextlib import AsyncExitStack

import yaml
from temporalio.api.workflowservice.v1 import (
    ListWorkerDeploymentsRequest,
    SetWorkerDeploymentCurrentVersionRequest,
    SetWorkerDeploymentRampingVersionRequest,
)
from temporalio.client import Client, WorkflowHandle

from support.example_code import example_module
from support.manuals import REPOSITORY
from support.operator import in_memory

FOLDER = REPOSITORY / "examples" / "versioning"
NAME, QUEUE = "parcels", "parcels"
VERSIONS = ("v1", "v2")


async def has_polled(client: Client, build: str) -> bool:
    """Whether a worker of a version has registered it."""
    request = ListWorkerDeploymentsRequest(namespace=client.namespace)
    found = (await client.workflow_service.list_worker_deployments(request)).worker_deployments
    return any(each.latest_version_summary.deployment_version.build_id == build for each in found)


async def set_current(client: Client, build: str) -> None:
    request = SetWorkerDeploymentCurrentVersionRequest(namespace=client.namespace, deployment_name=NAME, build_id=build)
    await client.workflow_service.set_worker_deployment_current_version(request)


async def set_ramping(client: Client, build: str, percentage: float) -> None:
    request = SetWorkerDeploymentRampingVersionRequest(
        namespace=client.namespace, deployment_name=NAME, build_id=build, percentage=percentage
    )
    await client.workflow_service.set_worker_deployment_ramping_version(request)


async def start(client: Client, kind: str, workflow_id: str) -> WorkflowHandle[object, str]:
    return await client.start_workflow(kind, workflow_id, id=workflow_id, task_queue=QUEUE, result_type=str)


async def version_of(handle: WorkflowHandle[object, str]) -> str:
    """The version that has decided the workflow."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.HasField("workflow_task_completed_event_attributes"):
            return event.workflow_task_completed_event_attributes.deployment_version.build_id
    raise AssertionError


async def test_pinned_workflows_keep_their_version_and_others_move() -> None:
    with example_module("versioning", "app") as app, in_memory() as server:
        async with AsyncExitStack() as workers:
            client = await Client.connect(server.address, namespace=server.namespace)
            for build in VERSIONS:
                await workers.enter_async_context(app.worker(client, build))
                while not await has_polled(client, build):
                    pass
            await set_current(client, "v1")
            parcel, depot = [
                await start(client, kind, name)
                for kind, name in (("ParcelWorkflow", "parcel-1"), ("DepotWorkflow", "depot-1"))
            ]
            assert [await version_of(each) for each in (parcel, depot)] == ["v1", "v1"]

            await set_ramping(client, "v2", 100)
            ramped = await start(client, "ParcelWorkflow", "parcel-2")
            assert await version_of(ramped) == "v2"
            await set_ramping(client, "", 0)
            rolled_back = await start(client, "ParcelWorkflow", "parcel-3")
            assert await version_of(rolled_back) == "v1"

            await set_current(client, "v2")
            await depot.signal("store", "parcel-4")
            await depot.signal("close")
            for each in (parcel, ramped, rolled_back):
                await each.signal("arrived")
            assert [await each.result() for each in (parcel, ramped, rolled_back, depot)] == [
                "parcel-1 delivered by v1",
                "parcel-2 delivered by v2",
                "parcel-3 delivered by v1",
                "depot-1 closed by v2: 1 parcels",
            ]


def test_each_version_has_a_deployment() -> None:
    documents = yaml.safe_load_all((FOLDER / "workers.yaml").read_text(encoding="utf-8"))
    pods = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    builds = [env["value"] for pod in pods for env in pod["containers"][0]["env"] if env["name"] == "VERSION"]
    assert builds == [*VERSIONS]
    assert all((FOLDER / f"{build}.py").is_file() for build in builds)
