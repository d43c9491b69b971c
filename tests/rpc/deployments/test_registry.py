"""The ConfigMap of worker deployments, when someone edits it or when a read is slow."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.api.enums.v1 import WorkerVersioningMode

from perdure.frontend.deployments.rules import MAX_VERSIONS
from perdure.frontend.deployments.versions import WORKER_DEPLOYMENTS
from perdure.frontend.errors import RpcError
from perdure.frontend.messages.values import UnfitError
from perdure.kube import client as kube
from perdure.simulation.cluster.apiserver import Request
from rpc.deployments.versioned import NAME, options, register, set_current, version
from rpc.served import Served, served

URL = kube.path(kube.CORE, "default", "configmaps", WORKER_DEPLOYMENTS.config_map)


async def edit(here: Served, change: Callable[[dict[str, Any]], None], *names: str) -> dict[str, str]:
    """Edit the entries of deployments as `kubectl edit` does, and restart the operator; the new entries."""
    client = here.frontend.client
    found = await here.operator.do(client.get(URL))
    for name in names:
        entry = json.loads(found["data"][name])
        change(entry)
        found["data"][name] = json.dumps(entry)
    await here.operator.do(client.replace(URL, found))
    here.restart()
    data: dict[str, str] = found["data"]
    return data


@served
async def test_deployments_without_times_route_workflows(here: Served) -> None:
    mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    workers = [
        WorkerDeploymentOptions(deployment_name=name, build_id="1", worker_versioning_mode=mode) for name in ("a", "b")
    ]
    for worker in workers:
        await here.call("PollWorkflowTaskQueue", deployment_options=worker)
    await edit(here, lambda entry: entry.update(current="1"), "a", "b")
    await here.start()
    tasks = [(await here.call("PollWorkflowTaskQueue", deployment_options=each)).task_token for each in workers]
    assert len([token for token in tasks if token]) == 1


@served
async def test_a_deployment_of_a_newer_version_routes_and_is_not_written(here: Served) -> None:
    await register(here, "1")
    before = await edit(here, lambda entry: entry.update(regions=["eu"], current="1"), NAME)
    with pytest.raises(RpcError, match=f"a newer version of Perdure has written worker deployment '{NAME}'") as refused:
        await register(here, "2")
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    await here.start()
    assert (await here.call("PollWorkflowTaskQueue", deployment_options=options("1"))).task_token
    found = await here.operator.do(here.frontend.client.get(URL))
    assert found["data"] == before


def without_offset(entry: dict[str, Any]) -> None:
    entry["createTime"] = "2026-01-01T00:00:00"


def with_unknown_kind(entry: dict[str, Any]) -> None:
    entry["versions"]["1"]["taskQueues"] = {"unknown": ["orders"]}


def with_unknown_version(entry: dict[str, Any]) -> None:
    entry["current"] = "9"


@pytest.mark.parametrize("change", [without_offset, with_unknown_kind, with_unknown_version])
def test_an_unreadable_deployment_is_kept_and_its_workers_are_rejected(
    change: Callable[[dict[str, Any]], None],
) -> None:
    @served
    async def run(here: Served) -> None:
        await register(here, "1")
        await set_current(here, "1")
        before = await edit(here, change, NAME)
        with pytest.raises(RpcError, match=f"worker deployment '{NAME}' cannot be read: fix or delete its entry"):
            await here.call("PollWorkflowTaskQueue", deployment_options=options("1"))
        found = await here.operator.do(here.frontend.client.get(URL))
        assert found["data"] == before

    run()


@served
async def test_a_slow_read_does_not_undo_a_change(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await asyncio.sleep(11)  # in virtual time: the next RPC reads the ConfigMap again
    slow = here.world.faults.slow
    slow["GET", URL] = 20
    listing = asyncio.ensure_future(here.call("ListWorkerDeployments"))
    await asyncio.sleep(1)  # the API server has read the ConfigMap, and its response is on its way
    del slow["GET", URL]
    await set_current(here, "2")
    assert not listing.done()
    await listing
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    routing = described.worker_deployment_info.routing_config
    assert routing.current_deployment_version.build_id == "2"


@served
async def test_a_deployment_name_of_an_unversioned_worker_is_bounded(here: Served) -> None:
    worker = WorkerDeploymentOptions(deployment_name="x" * 1_001, build_id="1")
    with pytest.raises(UnfitError, match="WorkerDeploymentName length exceeds limit"):
        await here.call("PollWorkflowTaskQueue", deployment_options=worker)


@served
async def test_polls_with_new_versions_write_at_most_once_a_second(here: Served) -> None:
    requests = recorded(here)
    polling = [asyncio.ensure_future(register_one(here, str(number))) for number in range(50)]
    await asyncio.sleep(2)
    assert len(requests) <= 6, "what comes together goes with one write"
    requests.clear()
    for number in range(50, 90):  # ten a second
        polling.append(asyncio.ensure_future(register_one(here, str(number))))
        await asyncio.sleep(0.1)
    writes = [method for method in requests if method != "GET"]
    assert 15 <= len(writes) <= 26, "a burst of 20, then one a second"
    await asyncio.gather(*polling)


@served
async def test_a_version_beyond_the_limit_is_rejected_without_a_request(here: Served) -> None:
    polling = [asyncio.ensure_future(register_one(here, str(number))) for number in range(MAX_VERSIONS)]
    await asyncio.sleep(5)
    requests = recorded(here)
    for number in range(3):
        with pytest.raises(RpcError, match="cannot add version, maximum number of versions"):
            await here.call("PollNexusTaskQueue", deployment_options=options(f"new-{number}"))
    assert len(requests) <= 1
    await asyncio.gather(*polling)


@served
async def test_a_version_is_kept_until_its_workers_can_poll_a_restarted_operator(here: Served) -> None:
    await register(here, "1")
    here.restart()
    with pytest.raises(RpcError, match="cannot be deleted since it has active pollers"):
        await here.call("DeleteWorkerDeploymentVersion", deployment_version=version("1"))
    await asyncio.sleep(31)  # in virtual time
    await here.call("DeleteWorkerDeploymentVersion", deployment_version=version("1"))


@served
async def test_unversioned_workers_continue_while_deployments_are_unreadable(here: Served) -> None:
    await here.start("begun")
    await here.decide()
    here.restart()
    here.world.faults.broken.add(URL)
    await here.start("new")
    await here.call("SignalWorkflowExecution", workflow_execution={"workflow_id": "begun"}, signal_name="go")
    task = await here.task()
    assert task.workflow_execution.workflow_id == "begun"
    await here.complete(task)
    assert not (await here.call("PollWorkflowTaskQueue")).task_token, "a version may be current"
    with pytest.raises(RpcError, match="a fault of the simulation"):
        await here.call("PollWorkflowTaskQueue", deployment_options=options("1"))
    here.world.faults.broken.remove(URL)
    assert (await here.task()).workflow_execution.workflow_id == "new"


@served
async def test_deployments_do_not_route_in_other_namespaces(here: Served) -> None:
    here.world.server.create("namespaces", {"metadata": {"name": "other"}}, namespace="None")
    await register(here, "1")
    await set_current(here, "1")
    await here.start()
    await here.start("v", namespace="other")
    other = await here.call("PollWorkflowTaskQueue", namespace="other")
    assert other.workflow_execution.workflow_id == "v"
    assert not (await here.call("PollWorkflowTaskQueue")).task_token
    with pytest.raises(RpcError, match="no Worker Deployment found with name 'shop'"):
        await here.call("DescribeWorkerDeployment", namespace="other", deployment_name=NAME)
    with pytest.raises(RpcError, match="no Worker Deployment found with name 'shop'"):
        await here.call("SetWorkerDeploymentCurrentVersion", namespace="other", deployment_name=NAME, build_id="1")
    await here.call("PollWorkflowTaskQueue", namespace="other", deployment_options=options("2"))
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert [each.deployment_version.build_id for each in described.worker_deployment_info.version_summaries] == ["1"]


@served
async def test_unused_namespaces_are_removed_from_the_cache(here: Served) -> None:
    registry = here.frontend.deployments
    for number in range(1_000):
        await here.operator.do(registry.load(f"n{number}"))
    await asyncio.sleep(301)  # in virtual time
    await register(here, "1")
    assert registry.is_known("default")
    assert not registry.is_known("n0")


async def register_one(here: Served, build: str) -> None:
    await here.call("PollNexusTaskQueue", deployment_options=options(build))


def recorded(here: Served) -> list[str]:
    """The methods of the requests about ConfigMaps of the namespace from now on."""
    methods: list[str] = []

    def record(request: Request) -> None:
        if request.url.startswith(kube.path(kube.CORE, "default", "configmaps")):
            methods.append(request.method)

    here.world.server.interceptors.append(record)
    return methods
