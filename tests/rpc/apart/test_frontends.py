"""Frontends that are processes of their own: SDKs notice neither the end of an operator nor that of a frontend."""

import asyncio
import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import aiohttp
import pytest
import yaml
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType, IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    GetSystemInfoRequest,
    ListNamespacesRequest,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
)
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RetryConfig, RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.frontend.matching.queues import Kind, QueueName
from rpc.http.calls import Http
from support.fleet import ServedFleet, in_memory_fleet

QUEUE = "orders"
SECRET = "a secret of the test"
OBJECTS = f"""
apiVersion: perdure.dev/v1alpha1
kind: Webhook
metadata: {{name: builds}}
spec:
  signature: {{secret: {{name: builds, key: secret}}}}
  start: {{workflow: {{name: build}}}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {{name: build}}
spec:
  input: {{default: {{commit: HEAD}}}}
  steps: [{{name: nothing, set: {{done: true}}}}]
  output: "built ${{input.commit}}"
---
kind: Secret
metadata: {{name: builds}}
data: {{secret: {base64.b64encode(SECRET.encode()).decode()}}}
"""
LEASE_SECONDS = 10
"""As in a cluster: a busy machine renews them in time, so that only the operators of a test end, and no others."""
NO_RETRIES = RetryConfig(max_retries=0)


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
            doubled = await workflow.execute_activity(double, number, start_to_close_timeout=timedelta(seconds=30))
            self.total += doubled
        await workflow.wait_condition(lambda: self.done)
        return self.total

    @workflow.signal
    def finish(self) -> None:
        self.done = True

    @workflow.query
    def so_far(self) -> int:
        return self.total

    @workflow.update
    async def add(self, number: int) -> int:
        self.total += number
        return self.total


@pytest.fixture(scope="module")
def fleet() -> Iterator[ServedFleet]:
    with in_memory_fleet(
        3, "other", frontends=2, objects=list(yaml.safe_load_all(OBJECTS)), lease_seconds=LEASE_SECONDS
    ) as served:
        yield served


@pytest.fixture
async def http(fleet: ServedFleet) -> AsyncIterator[Http]:
    async with aiohttp.ClientSession() as session:
        yield Http(session, f"http://127.0.0.1:{fleet.fleet.frontends[0].http_port}")


@asynccontextmanager
async def working(client: Client, queue: str = QUEUE) -> AsyncIterator[None]:
    async with Worker(
        client, task_queue=queue, workflows=[Order], activities=[double], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        yield


async def started(client: Client, steps: int = 2) -> WorkflowHandle[Order, int]:
    return await client.start_workflow(Order.run, steps, id=str(uuid.uuid4()), task_queue=QUEUE)


async def strict(fleet: ServedFleet) -> Client:
    """A client that shows each error of the frontend, because it does not retry."""
    return await fleet.connect(retry_config=NO_RETRIES)


async def test_workflows_of_all_operators_complete(fleet: ServedFleet) -> None:
    client = await strict(fleet)
    async with working(await fleet.connect()):
        handles = [await started(client) for _ in range(12)]
        owners = {fleet.fleet.owner_of(handle.id) for handle in handles}
        assert owners == set(fleet.fleet.members), "otherwise the test does not show that calls reach all operators"
        for handle in handles:
            assert await handle.query(Order.so_far) in {0, 2}
            assert await handle.execute_update(Order.add, 5) >= 5
            await handle.signal(Order.finish)
        assert [await handle.result() for handle in handles] == [7] * 12
        with pytest.raises(WorkflowAlreadyStartedError):
            await client.start_workflow(
                Order.run,
                1,
                id=handles[0].id,
                task_queue=QUEUE,
                id_reuse_policy=1 + 2,  # REJECT_DUPLICATE
            )
        with pytest.raises(RPCError, match="not found") as error:
            await client.get_workflow_handle("no-such-workflow").describe()
        assert error.value.status is RPCStatusCode.NOT_FOUND


async def test_operators_listen_to_frontends_and_members_only(fleet: ServedFleet) -> None:
    for member in fleet.fleet.members.values():
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", member.port)


async def test_calls_without_an_owner_are_answered_by_any_operator(fleet: ServedFleet) -> None:
    client = await strict(fleet)
    service = client.workflow_service
    assert (await service.get_system_info(GetSystemInfoRequest())).capabilities.supports_schedules
    described = await service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    assert described.namespace_info.name == "default"
    first = await service.list_namespaces(ListNamespacesRequest(page_size=1))
    assert [each.namespace_info.name for each in first.namespaces] == ["default"]
    rest = await service.list_namespaces(ListNamespacesRequest(next_page_token=first.next_page_token))
    assert [each.namespace_info.name for each in rest.namespaces] == ["other"]
    handle = await started(client)
    query = f"WorkflowId = '{handle.id}'"
    async with asyncio.timeout(30):
        while not [each async for each in client.list_workflows(query)]:  # noqa: ASYNC110 (an operator may not have observed it)
            await asyncio.sleep(0.05)
    await handle.terminate()


async def test_a_run_is_found_by_its_run_id_alone(fleet: ServedFleet) -> None:
    client = await strict(fleet)

    def is_known(run_id: str) -> bool:
        return all(each.frontend.directory.get(run_id) is not None for each in fleet.fleet.members.values())

    for _ in range(6):
        handle = await started(client)
        run_id = handle.first_execution_run_id or ""
        await asyncio.wrap_future(fleet.do(fleet.fleet.until(partial(is_known, run_id))))
        by_run = client.get_workflow_handle("", run_id=run_id)
        assert (await by_run.describe()).id == handle.id
        await handle.terminate()
        assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED


async def test_settings_reach_all_operators(fleet: ServedFleet) -> None:
    client = await strict(fleet)
    for _ in range(6):  # each operator has read them
        await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
    added = AddSearchAttributesRequest(
        namespace="default", search_attributes={"Region": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD}
    )
    await client.operator_service.add_search_attributes(added)
    for _ in range(6):
        known = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
        assert "Region" in known.custom_attributes


async def test_the_http_api_starts_and_describes_workflows(http: Http) -> None:
    body = {"workflowType": {"name": "Any"}, "taskQueue": {"name": "nobody"}}
    status, begun = await http.call("POST", "/api/v1/namespaces/default/workflows/by-http", body)
    assert status == 200
    status, described = await http.call("GET", "/api/v1/namespaces/default/workflows/by-http")
    assert (status, described["workflowExecutionInfo"]["execution"]["runId"]) == (200, begun["runId"])
    status, refused = await http.call("GET", "/api/v1/namespaces/default/workflows/unknown")
    assert (status, refused["code"]) == (404, 5)
    status, refused = await http.call("GET", "/perdure/v1/namespaces/default/archived-run?name=any")
    assert (status, refused["message"].split(";")[0]) == (501, "this installation has no archive")
    status, refused = await http.call("POST", "/nexus/endpoints/unknown/services/s/o", {})
    assert (status, refused["message"]) == (404, "nexus endpoint not found")


async def test_a_webhook_request_is_checked_by_an_operator(http: Http) -> None:
    raw = json.dumps({"commit": "abc"}).encode()
    signature = hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()

    async def send(name: str, digest: str) -> tuple[int, Any]:
        headers = {"X-Hub-Signature-256": f"sha256={digest}"}
        return await http.call("POST", f"/webhooks/default/{name}", raw, headers=headers)

    status, created = await send("builds", signature)
    assert (status, created["outcome"], created["kind"]) == (202, "Created", "WorkflowRun")
    assert await send("builds", signature) == (200, {**created, "outcome": "Duplicate"})
    forged = await send("builds", "0" * 64)
    assert forged[0] == 401
    assert await send("unknown", signature) == forged, "a sender without the secret must not learn which Webhooks exist"


@pytest.mark.parametrize("ending", ["kill", "leave"])
async def test_no_call_of_a_client_without_retries_fails_while_operators_end(ending: str) -> None:
    with in_memory_fleet(3, frontends=2, lease_seconds=LEASE_SECONDS) as fleet:
        client = await strict(fleet)
        async with working(await fleet.connect()):
            handles = [await started(client, steps=20) for _ in range(12)]
            for name in list(fleet.fleet.members)[:2]:
                ended = asyncio.wrap_future(fleet.do(getattr(fleet.fleet, ending)(name)))
                handles.append(await started(client, steps=20))
                for handle in handles:
                    assert await handle.execute_update(Order.add, 0) >= 0
                await ended
                await asyncio.wrap_future(fleet.do(fleet.fleet.complete()))
                await asyncio.wrap_future(fleet.do(fleet.fleet.start()))
            for handle in handles:
                await handle.signal(Order.finish)
            assert [await handle.result() for handle in handles] == [380] * 14
            for handle in handles:
                names = [event.event_type async for event in handle.fetch_history_events()]
                assert names.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) == 20


async def poll(client: Client, queue: str) -> PollWorkflowTaskQueueResponse:
    request = PollWorkflowTaskQueueRequest(namespace="default", task_queue=TaskQueue(name=queue), identity="me")
    return await client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(seconds=60))


async def test_a_poll_at_a_killed_operator_gets_its_task_from_the_next_one() -> None:
    with in_memory_fleet(2, frontends=1) as fleet:
        client = await strict(fleet)
        polled = asyncio.create_task(poll(client, "polled"))
        name = QueueName("default", Kind.WORKFLOW, "polled")

        def poller() -> list[str]:
            members = fleet.fleet.members.items()
            return [each for each, member in members if member.frontend.queues.alive(name)]

        await asyncio.wrap_future(fleet.do(fleet.fleet.until(lambda: bool(poller()))))
        (member,) = poller()
        await asyncio.wrap_future(fleet.do(fleet.fleet.kill(member)))
        await client.start_workflow("Any", id="polled", task_queue="polled")
        assert (await polled).workflow_execution.workflow_id == "polled"


async def test_workflows_complete_while_frontends_are_replaced() -> None:
    with in_memory_fleet(2, frontends=2, lease_seconds=LEASE_SECONDS) as fleet:
        client = await fleet.connect()
        async with working(client):
            handles = [await started(client, steps=20) for _ in range(12)]
            for frontend in list(fleet.fleet.frontends):
                await asyncio.wrap_future(fleet.do(fleet.fleet.start_frontend()))
                await asyncio.wrap_future(fleet.do(frontend.stop()))
                for handle in handles:
                    assert await handle.execute_update(Order.add, 0) >= 0
            for handle in handles:
                await handle.signal(Order.finish)
            assert [await handle.result() for handle in handles] == [380] * 12
            for handle in handles:
                events = [event async for event in handle.fetch_history_events()]
                names = [event.event_type for event in events]
                assert names.count(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED) == 20
                assert EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT not in names, "a stopped frontend has lost a task"


async def test_a_header_that_is_not_utf_8_is_rejected_before_it_is_passed_on(http: Http) -> None:
    address, _, port = http.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    writer.write(b"GET /api/v1/namespaces/other/workflows HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
    writer.write(b"Grpc-Metadata-Shop: \xff\xfe\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the header 'Grpc-Metadata-Shop' is not UTF-8" in answer
