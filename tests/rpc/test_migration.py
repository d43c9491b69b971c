"""`perdure migrate`: from one server to another. The frontend itself is the source, because it serves the same API."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from temporalio import workflow
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleState,
    WorkflowExecutionStatus,
)
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.worker import Worker

from perdure.api.search_attributes import REGISTRY
from rpc.test_cli_calls import perdure
from support.apiserver import ApiServer, serving
from support.operator import OPEN, in_memory
from support.ports import free_port

REGISTERED = f"/api/v1/namespaces/shop/configmaps/{REGISTRY}"
CUSTOMER = SearchAttributeKey.for_keyword("Customer")


reached = threading.Event()
"""Set when a workflow waits."""


@workflow.defn(sandboxed=False)
class Poll:
    """Continues as new with the next number, and then waits."""

    def __init__(self) -> None:
        self.done = False

    @workflow.run
    async def run(self, number: int) -> int:
        if number < 3:
            workflow.continue_as_new(number + 1)
        reached.set()
        await workflow.wait_condition(lambda: self.done)
        return number

    @workflow.signal
    def finish(self) -> None:
        self.done = True


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str, str]]:
    """The addresses of the Temporal server; and of Perdure: for SDKs, and of its HTTP API."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    port = free_port()
    settings = replace(OPEN, http_address=f"127.0.0.1:{port}")
    with in_memory(namespace="old") as source, in_memory(namespace="shop", settings=settings) as here:
        yield source.address, here.address, f"http://127.0.0.1:{port}"
    structlog.configure(**before)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """The cluster of the kubeconfig."""
    with serving(tmp_path, monkeypatch) as api:
        yield api


def schedule(*, paused: bool) -> Schedule:
    action = ScheduleActionStartWorkflow(Poll.run, 7, id="scheduled", task_queue="polls")
    every = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=30))])
    return Schedule(action=action, spec=every, state=ScheduleState(paused=paused, note="kept" if paused else ""))


async def test_schedules_attributes_and_workflows_are_moved(servers: tuple[str, str, str], server: ApiServer) -> None:
    there = await Client.connect(servers[0], namespace="old")
    here = await Client.connect(servers[1], namespace="shop")
    options: tuple[str, ...] = ("--from", servers[0], "--from-namespace", "old", "--address", servers[2])
    await there.operator_service.add_search_attributes(_adding(there))
    await there.create_schedule("nightly", schedule(paused=False))
    await there.create_schedule("stopped", schedule(paused=True))
    attributes = TypedSearchAttributes([SearchAttributePair(CUSTOMER, "C-7")])
    async with Worker(there, task_queue="polls", workflows=[Poll]):
        await there.start_workflow(
            Poll.run, 1, id="poll", task_queue="polls", search_attributes=attributes, memo={"a": 1}
        )
        assert await asyncio.to_thread(reached.wait, 30)
    await there.start_workflow(Poll.run, 3, id="other", task_queue="polls")

    refused = await perdure("migrate", *options, "--workflow-type", "Poll")
    assert refused.exit_code == 2
    assert "would run twice" in refused.stderr
    dry = await perdure("migrate", *options, "--workflow-type", "Poll", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "workflow poll: Poll, from the input of run" in dry.stdout
    assert [each.id async for each in await here.list_schedules()] == []

    moved = await perdure("migrate", *options)
    assert moved.exit_code == 0, moved.output
    assert "namespace old: create it with kubectl" in moved.stdout
    assert "search attribute Customer: Keyword, registered" in moved.stdout
    assert _written(server)["data"] == {"Customer": "Keyword"}
    assert "schedule nightly: created, paused" in moved.stdout
    for name in ("nightly", "stopped"):
        found = (await here.get_schedule_handle(name).describe()).schedule
        assert found.state.paused
        assert found.spec.intervals[0].every == timedelta(days=30)
    assert not (await there.get_schedule_handle("nightly").describe()).schedule.state.paused

    again = await perdure("migrate", *options)
    assert again.exit_code == 1
    assert "schedule nightly: not moved: " in again.stderr
    await here.operator_service.add_search_attributes(_adding(here))
    taken = await perdure("migrate", *options, "--take-over", "--workflow-type", "Poll")
    assert "schedule nightly: taken over; paused on the Temporal server" in taken.stdout
    assert not (await here.get_schedule_handle("nightly").describe()).schedule.state.paused
    assert (await there.get_schedule_handle("nightly").describe()).schedule.state.paused
    assert (await there.get_workflow_handle("poll").describe()).status is WorkflowExecutionStatus.TERMINATED
    async with Worker(here, task_queue="polls", workflows=[Poll]):
        handle = here.get_workflow_handle("poll")
        described = await handle.describe()
        assert described.typed_search_attributes.get(CUSTOMER) == "C-7"
        assert await described.memo() == {"a": 1}
        await handle.signal("finish")  # a signal ends the delay
        assert await handle.result() == 3  # the last input of the chain, not the first


async def test_a_missing_server_is_reported(server: ApiServer) -> None:
    done = await perdure("migrate", "--from", f"127.0.0.1:{free_port()}")
    assert done.exit_code == 2
    assert "cannot be reached" in done.stderr
    assert not server.asked


def _adding(client: Client) -> Any:
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return AddSearchAttributesRequest(namespace=client.namespace, search_attributes={"Customer": keyword})


def _written(server: ApiServer) -> dict[str, Any]:
    """The last ConfigMap that was written."""
    return server.created[-1]
