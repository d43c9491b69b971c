"""Several operators serve SDKs together: RPCs and tasks reach the right one, also while operators join and leave."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import nexusrpc.handler
import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, IndexedValueType, TaskQueueType
from temporalio.api.nexus.v1 import Request, StartOperationRequest
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, RespondNexusTaskCompletedRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.controller.fleet.membership import Membership
from perdure.frontend.nexus.tasks import DispatchNexusTaskRequest
from perdure.frontend.peers.frames import FrameConnection
from support.fleet import ServedFleet, in_memory_fleet

QUEUE = "orders"
refusals: list[int] = []
"""The queries that workflows have refused."""


@activity.defn
async def double(number: int) -> int:
    await asyncio.sleep(0.01)
    return 2 * number


@workflow.defn
class Order:
    """Does some activities, and waits for a signal."""

    def __init__(self) -> None:
        self.total = 0
        self.done = False

    @workflow.run
    async def run(self, steps: int) -> int:
        for number in range(steps):
            doubled = await workflow.execute_activity(double, number, start_to_close_timeout=timedelta(seconds=10))
            self.total += doubled  # after the await: an update may change the total meanwhile
        await workflow.wait_condition(lambda: self.done)
        return self.total

    @workflow.signal
    def finish(self) -> None:
        self.done = True

    @workflow.query
    def so_far(self) -> int:
        return self.total

    @workflow.query
    def refuse(self, length: int) -> None:
        refusals.append(length)
        raise ValueError("no " * length)

    @workflow.update
    async def add(self, number: int) -> int:
        self.total += number
        return self.total


@pytest.fixture(scope="module")
def fleet() -> Iterator[ServedFleet]:
    with in_memory_fleet(3) as served:
        yield served


@asynccontextmanager
async def working(client: Client, queue: str = QUEUE) -> AsyncIterator[None]:
    worker = Worker(
        client, task_queue=queue, workflows=[Order], activities=[double], workflow_runner=UnsandboxedWorkflowRunner()
    )
    async with worker:
        yield


async def started(client: Client, number: int, steps: int = 2, queue: str = QUEUE) -> WorkflowHandle[Order, int]:
    return await client.start_workflow(Order.run, steps, id=f"{uuid.uuid4()}-{number}", task_queue=queue)


async def finish_all(handles: list[WorkflowHandle[Order, int]]) -> list[int]:
    for handle in handles:
        await handle.signal(Order.finish)
    return [await handle.result() for handle in handles]


async def test_a_worker_connected_to_one_operator_serves_workflows_of_all(fleet: ServedFleet) -> None:
    first, second, third = [await fleet.connect(name) for name in fleet.fleet.members]
    async with working(first):
        handles = [await started(second, number) for number in range(20)]
        for handle in handles:
            assert await third.get_workflow_handle_for(Order.run, handle.id).query(Order.so_far) in {0, 2}
        for handle in handles:
            assert await handle.execute_update(Order.add, 5) >= 5
            await third.get_workflow_handle(handle.id).signal(Order.finish)
        assert [await handle.result() for handle in handles] == [7] * 20


async def test_members_of_earlier_versions_are_called_over_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    def others(membership: Membership) -> frozenset[str]:
        return frozenset(membership.others)

    def unused(*_: object) -> None:
        raise AssertionError("an earlier version knows no frames")

    monkeypatch.setattr(Membership, "others_over_grpc", property(others))
    monkeypatch.setattr(FrameConnection, "__init__", unused)
    with in_memory_fleet(2) as served:
        clients = [await served.connect(name) for name in served.fleet.members]
        async with working(clients[0]):
            handles = [await started(clients[1], number) for number in range(8)]
            assert await handles[0].query(Order.so_far) in {0, 2}
            assert await finish_all(handles) == [2] * 8


async def test_tasks_reach_workers_connected_to_any_operator(fleet: ServedFleet) -> None:
    clients = [await fleet.connect(name) for name in fleet.fleet.members]
    queues = [f"queue-{number}" for number in range(6)]
    async with AsyncExitStack() as stack:
        for number, queue in enumerate(queues):
            await stack.enter_async_context(working(clients[number % 3], queue))
        handles = [await started(clients[(number + 1) % 3], number, queue=queue) for number, queue in enumerate(queues)]
        for handle in handles:
            await handle.signal(Order.finish)
        assert [await handle.result() for handle in handles] == [2] * 6


async def test_a_workflow_stays_on_the_worker_that_caches_it(fleet: ServedFleet) -> None:
    first, second, third = [await fleet.connect(name, identity=name) for name in fleet.fleet.members]
    queue = "sticky"
    async with working(first, queue), working(second, queue):
        handle = await started(third, 0, steps=8, queue=queue)
        await handle.signal(Order.finish)
        await handle.result()
        deciders = {
            event.workflow_task_completed_event_attributes.identity
            async for event in handle.fetch_history_events()
            if event.HasField("workflow_task_completed_event_attributes")
        }
    assert len(deciders) == 1


async def test_an_error_of_the_owner_reaches_the_caller_with_its_details(fleet: ServedFleet) -> None:
    clients = [await fleet.connect(name) for name in fleet.fleet.members]
    name = str(uuid.uuid4())
    await clients[0].start_workflow(Order.run, 1, id=name, task_queue="nobody")
    for client in clients:
        with pytest.raises(WorkflowAlreadyStartedError):
            await client.start_workflow(Order.run, 1, id=name, task_queue="nobody")
        with pytest.raises(RPCError, match="not found") as error:
            await client.get_workflow_handle("no-such-workflow").describe()
        assert error.value.status is RPCStatusCode.NOT_FOUND
    await clients[1].get_workflow_handle(name).terminate()
    for client in clients:
        assert (await client.get_workflow_handle(name).describe()).status is WorkflowExecutionStatus.TERMINATED


async def test_a_query_that_fails_with_a_long_message_is_executed_once_and_its_failure_is_shortened(
    fleet: ServedFleet,
) -> None:
    clients = [await fleet.connect(name) for name in fleet.fleet.members]
    async with working(clients[0]):
        handle = await started(clients[0], 0)
        for client in clients:
            refusals.clear()
            with pytest.raises(WorkflowQueryFailedError, match=r"^no no .*…$"):
                await client.get_workflow_handle_for(Order.run, handle.id).query(Order.refuse, 20_000)
            assert refusals == [20_000]
        await handle.signal(Order.finish)
        await handle.result()


async def test_every_operator_lists_the_workers_and_pollers_of_a_queue(fleet: ServedFleet) -> None:
    clients = [await fleet.connect(name) for name in fleet.fleet.members]
    async with working(clients[0], "described"):
        await finish_all([await started(clients[1], 0, queue="described")])
        for client in clients:
            request = DescribeTaskQueueRequest(
                namespace=fleet.namespace,
                task_queue=TaskQueue(name="described"),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
            assert len((await client.workflow_service.describe_task_queue(request)).pollers) == 1


@nexusrpc.handler.service_handler(name="Billing")
class Billing:
    """Can be called by clients of any operator."""

    @nexusrpc.handler.sync_operation
    async def quote(self, context: nexusrpc.handler.StartOperationContext, name: str) -> str:  # noqa: ARG002
        return f"7 for {name}"


async def test_a_client_of_one_operator_calls_a_handler_of_a_worker_at_another(fleet: ServedFleet) -> None:
    client = await fleet.connect(next(iter(fleet.fleet.members)))
    async with Worker(client, task_queue="bills", nexus_service_handlers=[Billing()]):
        for name, member in fleet.fleet.members.items():
            start = StartOperationRequest(service="Billing", operation="quote")
            start.payload.CopyFrom(Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(name).encode()))
            asked = DispatchNexusTaskRequest(fleet.namespace, "bills", Request(start_operation=start))
            answer = await asyncio.wrap_future(fleet.do(member.frontend.direct_calls.call(asked, 20)))
            assert isinstance(answer, RespondNexusTaskCompletedRequest)
            assert json.loads(answer.response.start_operation.sync_success.payload.data) == f"7 for {name}"


async def test_a_run_is_found_before_its_owner_has_observed_it(fleet: ServedFleet) -> None:
    async def create() -> str:
        owner = fleet.fleet.owner_of("just-created")
        fleet.fleet.members[owner].operator.interrupt(10, "workflowruns")
        spec = {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1h"}}]}}
        fleet.fleet.kubernetes.create("workflowruns", {"metadata": {"name": "just-created"}, "spec": spec})
        return owner

    owner = await asyncio.wrap_future(fleet.do(create()))
    client = await fleet.connect(next(name for name in fleet.fleet.members if name != owner))
    handle = client.get_workflow_handle("just-created")
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    await handle.terminate()


async def test_a_search_attribute_registered_at_one_operator_is_known_to_all(fleet: ServedFleet) -> None:
    first, *others = [await fleet.connect(name) for name in fleet.fleet.members]
    key = SearchAttributeKey.for_keyword("Region")
    for client in (first, *others):  # each has read the search attributes before
        await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=fleet.namespace))
    added = AddSearchAttributesRequest(
        namespace=fleet.namespace, search_attributes={"Region": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
    )
    await first.operator_service.add_search_attributes(added)
    for number, client in enumerate(others):
        await client.start_workflow(
            Order.run,
            1,
            id=f"region-{number}",
            task_queue="nobody",
            search_attributes=TypedSearchAttributes([SearchAttributePair(key, "north")]),
        )


async def test_workflows_complete_while_an_operator_cannot_reach_the_api_server() -> None:
    with in_memory_fleet(3) as fleet:
        client = await fleet.connect()
        async with working(client):
            handles = [await started(client, number, steps=20) for number in range(12)]
            await asyncio.wrap_future(fleet.do(fleet.fleet.cut_off(fleet.fleet.owner_of(handles[0].id))))
            # Workers and clients that are connected to it get on by way of the others.
            for member in list(fleet.fleet.members):
                direct = await fleet.connect(member)
                assert await direct.get_workflow_handle(handles[0].id).execute_update(Order.add, 0) >= 0
            await asyncio.wrap_future(fleet.do(fleet.fleet.complete()))
            assert await finish_all(handles) == [380] * 12


@pytest.mark.parametrize("ending", ["kill", "leave"])
async def test_workflows_complete_while_operators_join_and_leave(ending: str) -> None:
    with in_memory_fleet(3) as fleet:
        client = await fleet.connect()
        async with working(client):
            handles = [await started(client, number, steps=20) for number in range(12)]
            for name in list(fleet.fleet.members)[:2]:
                await asyncio.wrap_future(fleet.do(getattr(fleet.fleet, ending)(name)))
                await asyncio.wrap_future(fleet.do(fleet.fleet.complete()))
                await asyncio.wrap_future(fleet.do(fleet.fleet.start()))
            assert await finish_all(handles) == [380] * 12
            for handle in handles:
                names = [event.event_type async for event in handle.fetch_history_events()]
                assert names.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) == 20


async def test_long_polls_continue_at_the_next_owner_of_their_workflow() -> None:
    with in_memory_fleet(3) as fleet:
        client = await fleet.connect()
        async with working(client):
            handle = await started(client, 0)
            assert await handle.query(Order.so_far) >= 0
            owner = fleet.fleet.owner_of(handle.id)
            # Calls arrive at an operator that stays, and wait at the one that is killed.
            edge = await fleet.connect(next(name for name in fleet.fleet.members if name != owner))
            result = asyncio.create_task(edge.get_workflow_handle_for(Order.run, handle.id).result())
            await asyncio.sleep(0.5)
            assert not result.done()
            await asyncio.wrap_future(fleet.do(fleet.fleet.kill(owner)))
            assert await edge.get_workflow_handle(handle.id).execute_update(Order.add, 1) >= 1
            await edge.get_workflow_handle(handle.id).signal(Order.finish)
            assert await result == 3
