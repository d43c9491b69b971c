"""The ConfigMap of worker deployments, when someone edits it or when a read is slow."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.api.enums.v1 import WorkerVersioningMode

from frontend.served import Served, served
from frontend.test_versioning import NAME, options, register, set_current
from perdure.frontend.deployment_registry import CONFIG_MAP
from perdure.frontend.errors import RpcError
from perdure.frontend.given import UnfitError
from perdure.kube import client as kube

URL = kube.path(kube.CORE, "default", "configmaps", CONFIG_MAP)


async def edit(here: Served, change: Callable[[dict[str, Any]], None], *names: str) -> dict[str, str]:
    """Edit the entries of deployments as `kubectl edit` does, and restart the operator; the new entries."""
    client = here.frontend.runs.manager.client
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


def without_offset(entry: dict[str, Any]) -> None:
    entry["createTime"] = "2026-01-01T00:00:00"


def with_unknown_kind(entry: dict[str, Any]) -> None:
    entry["versions"]["1"]["taskQueues"] = {"unknown": ["orders"]}


def with_unknown_version(entry: dict[str, Any]) -> None:
    entry["current"] = "9"


@pytest.mark.parametrize("change", [without_offset, with_unknown_kind, with_unknown_version])
def test_an_unreadable_deployment_is_kept_and_its_workers_are_refused(change: Callable[[dict[str, Any]], None]) -> None:
    @served
    async def run(here: Served) -> None:
        await register(here, "1")
        await set_current(here, "1")
        before = await edit(here, change, NAME)
        with pytest.raises(RpcError, match=f"worker deployment '{NAME}' cannot be read: fix or delete its entry"):
            await here.call("PollWorkflowTaskQueue", deployment_options=options("1"))
        found = await here.operator.do(here.frontend.runs.manager.client.get(URL))
        assert found["data"] == before

    run()


@served
async def test_a_slow_read_does_not_undo_a_change(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await asyncio.sleep(11)  # in virtual time: the next RPC reads the ConfigMap again
    client = here.frontend.runs.manager.client
    read, go_on = asyncio.Event(), asyncio.Event()
    get = client.get

    async def slow(url: str, *args: Any, **options: Any) -> Any:
        found = await get(url, *args, **options)
        if url == URL and not read.is_set():
            read.set()
            await go_on.wait()
        return found

    client.get = slow
    listing = asyncio.ensure_future(here.call("ListWorkerDeployments"))
    await read.wait()
    await set_current(here, "2")
    go_on.set()
    await listing
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    routing = described.worker_deployment_info.routing_config
    assert routing.current_deployment_version.build_id == "2"


@served
async def test_a_deployment_name_of_an_unversioned_worker_is_bounded(here: Served) -> None:
    worker = WorkerDeploymentOptions(deployment_name="x" * 1_001, build_id="1")
    with pytest.raises(UnfitError, match="WorkerDeploymentName length exceeds limit"):
        await here.call("PollWorkflowTaskQueue", deployment_options=worker)
