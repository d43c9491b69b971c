"""`perdure migrate`: from one server to another."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

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

from support.apiserver import ApiServer, serving
from support.cli import perdure_in_thread
from support.operator import OPEN, in_memory
from support.ports import free_port
from support.temporal import Server
from support.temporal_server import temporal_server

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


@pytest.fixture(
    scope="module",
    params=[
        "perdure",
        pytest.param(
            "temporal",
            marks=[
                pytest.mark.bench,
                pytest.mark.timeout(3600),  # the first build of the server takes long
                pytest.mark.skipif(shutil.which("go") is None, reason="Temporal's server is built with Go"),
            ],
        ),
    ],
)
def source(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server to leave: Perdure, which serves the same API, or Temporal's own."""
    with in_memory(namespace="old") if request.param == "perdure" else temporal_server() as server:
        yield server


@pytest.fixture(scope="module")
def target(source: Server) -> Iterator[Server]:  # noqa: ARG001 - an empty one for each source
    settings = replace(OPEN, http_address=f"127.0.0.1:{free_port()}")
    with in_memory(namespace="shop", settings=settings) as server:
        yield server


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep the logs of the servers out of the output of the command."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
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


async def test_schedules_attributes_and_workflows_are_moved(source: Server, target: Server, server: ApiServer) -> None:
    there = await Client.connect(source.address, namespace=source.namespace)
    here = await Client.connect(target.address, namespace="shop")
    options = ("--from", source.address, "--from-namespace", source.namespace)
    options += ("--address", f"http://{target.http_address}")
    await _fill(there)

    dry = await perdure_in_thread("migrate", *options, "--workflow-type", "Poll", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "workflow poll: Poll, from the input of run" in dry.stdout
    assert [each.id async for each in await here.list_schedules()] == []
    assert server.created == []

    moved = await perdure_in_thread("migrate", *options)
    assert moved.exit_code == 0, moved.output
    assert f"namespace {source.namespace}: create it with kubectl" in moved.stdout
    assert "search attribute Customer: Keyword, registered" in moved.stdout
    assert server.created[-1]["data"] == {"Customer": "Keyword"}
    assert "schedule nightly: created, paused" in moved.stdout
    for name in ("nightly", "stopped"):
        found = (await here.get_schedule_handle(name).describe()).schedule
        assert found.state.paused
        assert found.spec.intervals[0].every == timedelta(days=30)
    assert not (await there.get_schedule_handle("nightly").describe()).schedule.state.paused

    again = await perdure_in_thread("migrate", *options)
    assert again.exit_code == 0, again.output
    assert "schedule nightly: exists here already" in again.stdout
    await here.operator_service.add_search_attributes(_registration(here))
    taken = await perdure_in_thread("migrate", *options, "--take-over", "--workflow-type", "Poll")
    assert taken.exit_code == 0, taken.output
    assert "schedule nightly: taken over; paused on the Temporal server" in taken.stdout
    assert "workflow other: starts here within 60s" in taken.stdout
    repeated = await perdure_in_thread("migrate", *options, "--take-over")
    assert repeated.exit_code == 0, repeated.output
    assert "schedule nightly: exists here already" in repeated.stdout
    assert not (await here.get_schedule_handle("nightly").describe()).schedule.state.paused
    stopped = (await here.get_schedule_handle("stopped").describe()).schedule.state
    assert stopped.paused
    assert stopped.note == "kept"
    assert (await there.get_schedule_handle("nightly").describe()).schedule.state.paused
    assert (await there.get_workflow_handle("poll").describe()).status is WorkflowExecutionStatus.TERMINATED
    async with Worker(here, task_queue="polls", workflows=[Poll]):
        handle = here.get_workflow_handle("poll")
        described = await handle.describe()
        assert described.typed_search_attributes.get(CUSTOMER) == "C-7"
        assert await described.memo() == {"a": 1}
        await handle.signal("finish")  # a signal ends the delay
        assert await handle.result() == 3  # the last input of the chain, not the first


async def test_workflows_are_not_started_beside_those_that_run() -> None:
    refused = await perdure_in_thread("migrate", "--from", "127.0.0.1:1", "--workflow-type", "Poll")
    assert refused.exit_code == 2
    assert "would run twice" in refused.stderr


async def test_a_missing_server_is_reported(server: ApiServer) -> None:
    done = await perdure_in_thread("migrate", "--from", f"127.0.0.1:{free_port()}")
    assert done.exit_code == 2
    assert "cannot be reached" in done.stderr
    assert not server.asked


def _registration(client: Client) -> AddSearchAttributesRequest:
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    return AddSearchAttributesRequest(namespace=client.namespace, search_attributes={"Customer": keyword})


async def _fill(there: Client) -> None:
    """Give the server an attribute, two schedules, and two open workflows of one type, one in its third run."""
    reached.clear()
    await there.operator_service.add_search_attributes(_registration(there))
    await there.create_schedule("nightly", schedule(paused=False))
    await there.create_schedule("stopped", schedule(paused=True))
    attributes = TypedSearchAttributes([SearchAttributePair(CUSTOMER, "C-7")])
    async with Worker(there, task_queue="polls", workflows=[Poll]):
        await there.start_workflow(
            Poll.run, 1, id="poll", task_queue="polls", search_attributes=attributes, memo={"a": 1}
        )
        assert await asyncio.to_thread(reached.wait, 30)
    await there.start_workflow(Poll.run, 3, id="other", task_queue="polls")
    await _listed(there, 2)


async def _listed(client: Client, number: int) -> None:
    """Wait until the server lists the open workflows: visibility of Temporal's server follows later."""
    query = "ExecutionStatus = 'Running' AND WorkflowType = 'Poll'"
    while (await client.count_workflows(query)).count < number:  # noqa: ASYNC110 - nothing tells when
        await asyncio.sleep(0.1)
