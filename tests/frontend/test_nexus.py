"""Nexus operations: endpoints, who may call them, calls of handlers, and workflows that complete operations."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import (
    ActivityType,
    Callback,
    Link,
    Payload,
    Payloads,
    RetryPolicy,
    WorkflowExecution,
    WorkflowType,
)
from temporalio.api.common.v1 import OnConflictOptions as AttachOptions
from temporalio.api.enums.v1 import (
    ActivityIdConflictPolicy,
    CallbackState,
    CommandType,
    NexusOperationCancellationState,
    PendingNexusOperationState,
    TimeoutType,
    WorkflowIdConflictPolicy,
    WorkflowTaskFailedCause,
)
from temporalio.api.failure.v1 import CanceledFailureInfo, Failure, NexusHandlerFailureInfo
from temporalio.api.nexus.v1 import (
    Endpoint,
    EndpointSpec,
    EndpointTarget,
    HandlerError,
    Response,
    StartOperationResponse,
)
from temporalio.api.nexus.v1 import Failure as NexusFailure
from temporalio.api.protocol.v1 import Message
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Acceptance, Input, Meta, Outcome, Request
from temporalio.api.update.v1 import Response as UpdateResponse
from temporalio.api.workflow.v1 import OnConflictOptions
from temporalio.api.workflowservice.v1 import PollNexusTaskQueueResponse, PollWorkflowTaskQueueResponse

from frontend.served import QUEUE, Served, complete_workflow, names, served
from perdure.controller.runs.run_conditions import lacks_worker
from perdure.frontend.endpoints import CONFIG_MAP
from perdure.frontend.errors import RpcError
from perdure.frontend.service.nexus import CALLERS_HEADER
from perdure.kube.client import ApiError
from perdure.observe import metrics
from perdure.runtime.callbacks import CallbackToken
from perdure.simulation.cluster.storage import ObjectKey

BILLS, HANDLERS = "bills", TaskQueue(name="handlers")
FIVE = Payload(metadata={"encoding": b"json/plain"}, data=b"5")


def spec(name: str = "billing", namespace: str = BILLS) -> EndpointSpec:
    worker = EndpointTarget.Worker(namespace=namespace, task_queue=HANDLERS.name)
    return EndpointSpec(name=name, target=EndpointTarget(worker=worker))


async def endpoint(here: Served, callers: str = "default", **fields: Any) -> Endpoint:
    """Create an endpoint for workers of another namespace."""
    made = await here.call("CreateNexusEndpoint", ((CALLERS_HEADER, callers),), spec=spec(**fields))
    found: Endpoint = made.endpoint
    return found


def schedule(name: str = "billing", header: dict[str, str] | None = None, **timeouts: timedelta) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_SCHEDULE_NEXUS_OPERATION)
    said = command.schedule_nexus_operation_command_attributes
    said.endpoint, said.service, said.operation = name, "invoices", "charge"
    said.input.CopyFrom(FIVE)
    said.nexus_header.update(header or {})
    for timeout, length in timeouts.items():
        getattr(said, timeout).FromTimedelta(length)
    return command


def cancel(scheduled_event_id: int) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_REQUEST_CANCEL_NEXUS_OPERATION)
    command.request_cancel_nexus_operation_command_attributes.scheduled_event_id = scheduled_event_id
    return command


async def handle(here: Served, namespace: str = BILLS) -> PollNexusTaskQueueResponse:
    """The next call, as a worker of the handler's namespace gets it."""
    polled = await here.call("PollNexusTaskQueue", namespace=namespace, queue=HANDLERS)
    task: PollNexusTaskQueueResponse = polled
    return task


async def answer(here: Served, task: PollNexusTaskQueueResponse, **said: Any) -> None:
    response = Response(start_operation=StartOperationResponse(**said))
    await here.call("RespondNexusTaskCompleted", namespace=BILLS, task_token=task.task_token, response=response)


async def start_for(here: Served, task: PollNexusTaskQueueResponse, workflow_id: str = "charge", **fields: Any) -> Any:
    """Start the workflow of an operation, as SDKs do it, and answer the call."""
    said = task.request.start_operation
    nexus = Callback.Nexus(url=said.callback, header={**said.callback_header, "Nexus-Operation-Token": workflow_id})
    started = await here.call(
        "StartWorkflowExecution",
        **{
            "namespace": BILLS,
            "workflow_id": workflow_id,
            "workflow_type": WorkflowType(name="Charge"),
            "request_id": said.request_id,
            "completion_callbacks": [Callback(nexus=nexus)],
            **fields,
        },
    )
    await answer(here, task, async_success=StartOperationResponse.Async(operation_token=workflow_id))
    return started


async def charge(here: Served, *commands: Command) -> None:
    """Decide the workflow that handles the operation."""
    task = await here.call("PollWorkflowTaskQueue", namespace=BILLS)
    await here.call("RespondWorkflowTaskCompleted", namespace=BILLS, task_token=task.task_token, commands=commands)


async def caller(here: Served, **timeouts: timedelta) -> PollNexusTaskQueueResponse:
    """A workflow that has scheduled an operation, and the call of its handler."""
    await endpoint(here)
    await here.start()
    await here.decide(schedule(**timeouts))
    return await handle(here)


async def replace(here: Served) -> None:
    """Kill the operator and start another one."""
    here.world.operators.remove(here.operator)
    await here.operator.kill()
    here.restart()
    await here.operator.do(here.operator.manager.first_lists.wait())


async def until(here: Served, event: str, workflow_id: str = "w", *, count: int = 1) -> list[str]:
    """The names of the events of a workflow, once `count` of them have this one."""
    async with asyncio.timeout(600):
        while (found := names(await here.history(workflow_id))).count(event) < count:  # noqa: ASYNC110 (as a client asks)
            await asyncio.sleep(0.1)
    return found


# Endpoints


@served
async def test_endpoints_are_stored_changed_and_deleted(here: Served) -> None:
    made = await endpoint(here, callers="default, shop")
    assert (made.version, made.spec, made.url_prefix) == (1, spec(), f"/nexus/endpoints/{made.id}/services")
    stored = here.world.server.get(ObjectKey("configmaps", "default", CONFIG_MAP))["data"]["billing"]
    assert msgspec.json.decode(stored)["allowedCallers"] == ["default", "shop"]
    with pytest.raises(RpcError, match="already registered") as taken:
        await endpoint(here)
    assert taken.value.code is grpc.StatusCode.ALREADY_EXISTS
    with pytest.raises(RpcError, match="received: 2 expected 1"):
        await here.call("UpdateNexusEndpoint", id=made.id, version=2, spec=spec())
    changed = await here.call("UpdateNexusEndpoint", id=made.id, version=1, spec=spec("invoicing"))
    assert (changed.endpoint.version, changed.endpoint.spec.name) == (2, "invoicing")
    here.restart()
    listed = await here.call("ListNexusEndpoints")
    assert list(listed.endpoints) == [changed.endpoint]
    stored = here.world.server.get(ObjectKey("configmaps", "default", CONFIG_MAP))["data"]
    assert msgspec.json.decode(stored["invoicing"])["allowedCallers"] == ["default", "shop"], "they stay"
    assert (await here.call("GetNexusEndpoint", id=made.id)).endpoint == changed.endpoint
    await here.call("DeleteNexusEndpoint", id=made.id, version=2)
    with pytest.raises(RpcError, match="not found"):
        await here.call("GetNexusEndpoint", id=made.id)
    assert not (await here.call("ListNexusEndpoints")).endpoints


@served
async def test_endpoints_are_listed_in_pages(here: Served) -> None:
    for number in range(5):
        await endpoint(here, name=f"billing-{number}")
    token, found = b"", []
    for _ in range(3):
        page = await here.call("ListNexusEndpoints", page_size=2, next_page_token=token)
        token, found = page.next_page_token, [*found, *(each.spec.name for each in page.endpoints)]
    assert (sorted(found), token) == ([f"billing-{number}" for number in range(5)], b"")
    named = await here.call("ListNexusEndpoints", name="billing-3")
    assert [each.spec.name for each in named.endpoints] == ["billing-3"]


@served
async def test_endpoints_that_cannot_be_are_refused(here: Served) -> None:
    external = EndpointTarget(external=EndpointTarget.External(url="https://example.com"))
    for wrong, message in (
        (spec(""), "endpoint name not set"),
        (spec("1st"), "must match the regex"),
        (spec("x" * 201), "length limit of 200"),
        (EndpointSpec(name="billing"), "empty target variant"),
        (EndpointSpec(name="billing", target=external), "external endpoints are not supported"),
        (spec(namespace=""), "target namespace not set"),
    ):
        with pytest.raises(RpcError, match=message) as refused:
            await here.call("CreateNexusEndpoint", spec=wrong)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


@served
async def test_an_entry_that_cannot_be_read_stays_and_admits_nobody(here: Served) -> None:
    await endpoint(here)
    key = ObjectKey("configmaps", "default", CONFIG_MAP)
    here.world.server.update(key, lambda obj: obj["data"].update(broken='{"id": 7}'))
    here.restart()
    await endpoint(here, name="other")
    assert here.world.server.get(key)["data"].keys() == {"billing", "broken", "other"}
    assert len((await here.call("ListNexusEndpoints")).endpoints) == 2


# Who may call


@served
async def test_only_namespaces_that_the_endpoint_names_may_call_it(here: Served) -> None:
    await endpoint(here, callers="")
    await here.start()
    with pytest.raises(RpcError, match='caller namespace "default" unauthorized for "billing"'):
        await here.decide(schedule())
    failed = next(event for event in await here.history() if event.HasField("workflow_task_failed_event_attributes"))
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_NEXUS_OPERATION_ATTRIBUTES
    assert failed.workflow_task_failed_event_attributes.cause == cause


@served
async def test_a_namespace_may_call_itself_and_anyone_may_be_admitted(here: Served) -> None:
    await endpoint(here, callers="", name="own", namespace="default")
    await endpoint(here, callers="*", name="open")
    await here.start()
    await here.decide(schedule("own"), schedule("open"))
    assert (await handle(here, "default")).request.endpoint == "own"
    assert (await handle(here)).request.endpoint == "open"


@served
async def test_a_namespace_that_is_no_longer_admitted_is_refused_at_the_next_attempt(here: Served) -> None:
    made = await endpoint(here)
    await here.start()
    await here.decide(schedule())
    await asyncio.sleep(5)
    await here.call("UpdateNexusEndpoint", ((CALLERS_HEADER, "shop"),), id=made.id, version=1, spec=spec())
    await until(here, "NexusOperationFailed")
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    cause = failed.nexus_operation_failed_event_attributes.failure.cause
    assert cause.nexus_handler_failure_info.type == "UNAUTHORIZED"


@served
async def test_the_operations_of_temporal_itself_are_refused_with_what_to_do_instead(here: Served) -> None:
    await here.start()
    with pytest.raises(RpcError, match=r"cannot start workflows with a signal: .* from an activity"):
        await here.decide(schedule("__temporal_system"))
    failed = next(event for event in await here.history() if event.HasField("workflow_task_failed_event_attributes"))
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_NEXUS_OPERATION_ATTRIBUTES
    assert failed.workflow_task_failed_event_attributes.cause == cause


@served
async def test_an_endpoint_that_does_not_exist_fails_the_task_or_the_operation(here: Served) -> None:
    await here.start()
    with pytest.raises(RpcError, match='endpoint "billing" not found'):
        await here.decide(schedule())
    made = await endpoint(here)
    await here.decide(schedule())
    await asyncio.sleep(1)
    await here.call("DeleteNexusEndpoint", id=made.id, version=1)
    await until(here, "NexusOperationFailed")


def stored(here: Served) -> dict[str, Any]:
    """The run of the workflow, as the API server has it."""
    [run] = [each for each in here.world.server.of("workflowruns") if each["spec"]["workflowId"] == "w"]
    return run


def lacks(here: Served) -> str:
    """What the workflow says of workers that are missing."""
    return lacks_worker(stored(here)["status"])


@served
async def test_an_endpoint_that_no_worker_polls_is_reported_until_one_does(here: Served) -> None:
    await endpoint(here)
    await asyncio.sleep(30)  # the time that workers have to come after a restart
    await here.start()
    await here.decide(schedule())
    await asyncio.sleep(8)
    assert lacks(here) == "", "workers may be busy for a while"
    await asyncio.sleep(130)  # the next call is due a minute later
    lacking = "operation `invoices.charge`: no worker polls the task queue of the Nexus endpoint `billing`"
    assert lacks(here) == lacking
    assert [each["note"] for each in here.world.server.posted if each["reason"] == "NoWorker"] == [lacking]
    polling = asyncio.create_task(handle(here))
    while lacks(here):
        assert not polling.done(), "it is noticed before the next call"
        await asyncio.sleep(1)
    await answer(here, await polling, async_success=StartOperationResponse.Async(operation_token="later"))
    await here.decide()
    await asyncio.sleep(120)
    assert lacks(here) == "", "it waits for no worker any more"


@served
async def test_a_worker_that_has_polled_is_missed_when_it_stops(here: Served) -> None:
    task = await caller(here)
    await asyncio.sleep(100)  # it does not answer, and polls no more
    assert "endpoint `billing`" in lacks(here)
    assert task.task_token


@served
async def test_nothing_is_told_of_the_workers_of_an_endpoint_that_does_not_admit_the_namespace(here: Served) -> None:
    made = await endpoint(here)
    await asyncio.sleep(30)
    await here.start()
    await here.decide(schedule())
    run = here.operator.manager.runs.get(stored(here)["metadata"]["uid"])
    assert run is not None
    assert run.state is not None
    [operation] = run.state.operations.values()
    assert not here.frontend.handled("default", operation)
    await here.call("UpdateNexusEndpoint", ((CALLERS_HEADER, "shop"),), id=made.id, version=1, spec=spec())
    assert here.frontend.handled("default", operation)
    assert not here.frontend.handled("shop", operation)


@served
async def test_a_worker_of_another_namespace_cannot_answer(here: Served) -> None:
    task = await caller(here)
    with pytest.raises(RpcError, match="Invalid TaskToken"):
        await here.call("RespondNexusTaskCompleted", namespace="shop", task_token=task.task_token)
    forged = task.task_token.replace(b'"bills"', b'"shop"')
    assert forged != task.task_token
    with pytest.raises(RpcError, match="not found or already expired"):
        await here.call("RespondNexusTaskCompleted", namespace="shop", task_token=forged)
    await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))


@served
async def test_a_callback_that_was_made_up_completes_nothing(here: Served) -> None:
    task = await caller(here)
    told = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    run_id = told.workflow_execution_info.execution.run_id
    token = CallbackToken(
        namespace="default", name="w", workflow_id="w", run_id=run_id, scheduled_event_id=5, request_id="guessed"
    )
    task.request.start_operation.callback_header["temporal-callback-token"] = token.text()
    await start_for(here, task)
    await charge(here, complete_workflow())
    execution = WorkflowExecution(workflow_id="charge")
    async with asyncio.timeout(60):
        while True:
            told = await here.call("DescribeWorkflowExecution", namespace=BILLS, execution=execution)
            if told.callbacks[0].state == CallbackState.CALLBACK_STATE_FAILED:
                break
            await asyncio.sleep(0.1)
    assert told.callbacks[0].last_attempt_failure.message == "operation not found"
    assert "NexusOperationCompleted" not in names(await here.history())


def _with_token(token: bytes) -> Callback.Nexus:
    header = {"Temporal-Callback-Token": base64.urlsafe_b64encode(token).decode()}
    return Callback.Nexus(url="temporal://system", header=header)


@served
async def test_callbacks_to_other_places_are_refused(here: Served) -> None:
    for nexus, message in (
        (Callback.Nexus(url="https://example.com/steal"), "does not match any configured callback address"),
        (Callback.Nexus(url="temporal://system"), "temporal-callback-token is missing or invalid"),
        (_with_token(b"not JSON"), "temporal-callback-token is missing or invalid"),
        (_with_token(b'{"x":' + b"[" * 3_000), "temporal-callback-token is missing or invalid"),
        (Callback.Nexus(url="temporal://system", header={"a": "b" * 9_000}), "header size longer"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.start(completion_callbacks=[Callback(nexus=nexus)])


# Calls


@served
async def test_a_handler_gets_what_the_workflow_has_said(here: Served) -> None:
    await endpoint(here)
    await here.start()
    await here.decide(schedule(header={"Tenant": "a"}, schedule_to_close_timeout=timedelta(minutes=1)))
    request = (await handle(here)).request
    said = request.start_operation
    assert (request.endpoint, said.service, said.operation, said.payload) == ("billing", "invoices", "charge", FIVE)
    assert request.header["tenant"] == "a"
    assert 8_000 <= int(request.header["request-timeout"].removesuffix("ms")) <= 9_000
    assert 59_000 <= int(request.header["operation-timeout"].removesuffix("ms")) <= 60_000
    assert request.capabilities.temporal_failure_responses
    scheduled = (await here.history())[4].nexus_operation_scheduled_event_attributes
    assert said.request_id == scheduled.request_id
    assert said.links[0].url.startswith("temporal:///namespaces/default/workflows/w/")
    assert said.links[0].url.endswith(
        "/history?eventID=5&eventType=NexusOperationScheduled&referenceType=EventReference"
    )


@served
async def test_an_answer_completes_the_operation(here: Served) -> None:
    task = await caller(here)
    await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))
    completed = (await here.history())[5].nexus_operation_completed_event_attributes
    assert (completed.scheduled_event_id, completed.result) == (5, FIVE)
    with pytest.raises(RpcError, match="not found or already expired"):
        await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))


@served
async def test_a_handler_error_is_retried_unless_it_is_final(here: Served) -> None:
    task = await caller(here)
    busy = HandlerError(error_type="UNAVAILABLE", failure=NexusFailure(message="busy"))
    await here.call("RespondNexusTaskFailed", namespace=BILLS, task_token=task.task_token, error=busy)
    told = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    pending = told.pending_nexus_operations[0]
    assert pending.state == PendingNexusOperationState.PENDING_NEXUS_OPERATION_STATE_BACKING_OFF
    assert (pending.attempt, pending.last_attempt_failure.cause.message) == (1, "busy")
    again = await handle(here)
    assert again.request.start_operation.request_id == task.request.start_operation.request_id
    final = Failure(message="no", nexus_handler_failure_info=NexusHandlerFailureInfo(type="BAD_REQUEST"))
    await here.call("RespondNexusTaskFailed", namespace=BILLS, task_token=again.task_token, failure=final)
    failed = (await here.history())[5].nexus_operation_failed_event_attributes.failure
    assert failed.nexus_operation_execution_failure_info.endpoint == "billing"
    assert failed.cause == final


@served
async def test_a_worker_that_does_not_answer_has_failed_and_another_is_asked(here: Served) -> None:
    task = await caller(here)
    again = await handle(here)
    assert again.request.start_operation == task.request.start_operation
    with pytest.raises(RpcError, match="not found or already expired"):
        await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))
    await answer(here, again, sync_success=StartOperationResponse.Sync(payload=FIVE))
    assert "NexusOperationCompleted" in names(await here.history())


def ended(namespace: str) -> dict[str, float]:
    """How many operations of the callers in a namespace have ended, by outcome."""
    [family] = metrics.NEXUS_OPERATIONS.collect()
    mine = [each for each in family.samples if each.labels["namespace"] == namespace and each.name.endswith("_total")]
    return {each.labels["outcome"]: each.value for each in mine}


@served
async def test_operations_that_have_ended_are_counted_by_outcome(here: Served) -> None:
    metrics.NEXUS_OPERATIONS.clear()
    await endpoint(here)
    await here.start()
    await here.decide(schedule(), schedule(), schedule(), schedule(schedule_to_close_timeout=timedelta(seconds=5)))
    calls = [await handle(here) for _ in range(4)]  # in any order; the last one is not answered
    good, bad, stopped, _ = sorted(calls, key=lambda call: "operation-timeout" in call.request.header)
    assert ended("default") == {}, "none has ended"
    await answer(here, good, sync_success=StartOperationResponse.Sync(payload=FIVE))
    final = Failure(message="no", nexus_handler_failure_info=NexusHandlerFailureInfo(type="BAD_REQUEST"))
    await here.call("RespondNexusTaskFailed", namespace=BILLS, task_token=bad.task_token, failure=final)
    canceled = Failure(message="stopped", canceled_failure_info=CanceledFailureInfo())
    await answer(here, stopped, failure=canceled)
    await until(here, "NexusOperationTimedOut")
    assert ended("default") == {"Completed": 1, "Failed": 1, "Canceled": 1, "TimedOut": 1}
    assert ended(BILLS) == {}


@served
async def test_a_restart_of_the_operator_calls_the_handler_again(here: Served) -> None:
    task = await caller(here)
    await replace(here)
    again = await handle(here)
    assert again.request.start_operation.request_id == task.request.start_operation.request_id
    await answer(here, again, sync_success=StartOperationResponse.Sync(payload=FIVE))
    assert "NexusOperationCompleted" in names(await here.history())


@served
async def test_answers_that_cannot_be_are_refused(here: Served) -> None:
    task = await caller(here)
    with pytest.raises(RpcError, match="missing opration token"):
        await answer(here, task, async_success=StartOperationResponse.Async())
    with pytest.raises(RpcError, match="exceeds allowed limit"):
        await answer(here, task, async_success=StartOperationResponse.Async(operation_token="x" * 4_097))
    for wrong, message in (
        ({}, "must contain error or failure"),
        ({"failure": Failure(message="no")}, "with NexusHandlerFailureInfo"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.call("RespondNexusTaskFailed", namespace=BILLS, task_token=task.task_token, **wrong)
    await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))


# Workflows that complete operations


@served
async def test_the_end_of_a_workflow_completes_the_operation_in_the_other_namespace(here: Served) -> None:
    task = await caller(here)
    started = await start_for(here, task)
    first = (await here.history("charge", namespace=BILLS))[0].workflow_execution_started_event_attributes
    assert len(first.completion_callbacks) == 1
    await charge(here, complete_workflow())
    events = await until(here, "NexusOperationCompleted")
    assert events[5] == "NexusOperationStarted"
    assert (await here.history())[5].nexus_operation_started_event_attributes.operation_token == "charge"
    execution = WorkflowExecution(workflow_id="charge", run_id=started.run_id)
    told = await here.call("DescribeWorkflowExecution", namespace=BILLS, execution=execution)
    assert told.callbacks[0].state == CallbackState.CALLBACK_STATE_SUCCEEDED


@served
async def test_an_operation_waits_for_the_last_run_of_the_workflow(here: Served) -> None:
    task = await caller(here)
    await start_for(here, task)
    again = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    again.continue_as_new_workflow_execution_command_attributes.workflow_type.name = "Charge"
    await charge(here, again)
    await asyncio.sleep(5)
    assert "NexusOperationCompleted" not in names(await here.history())
    await charge(here, complete_workflow())
    await until(here, "NexusOperationCompleted")


@served
async def test_an_operator_that_is_killed_still_completes_the_operation(here: Served) -> None:
    task = await caller(here)
    await start_for(here, task)
    polled = await here.call("PollWorkflowTaskQueue", namespace=BILLS)
    key = next(k for k in here.world.server.objects if k.plural == "workflowruns" and k.namespace == BILLS)
    deciding = asyncio.ensure_future(
        here.call(
            "RespondWorkflowTaskCompleted",
            namespace=BILLS,
            task_token=polled.task_token,
            commands=[complete_workflow()],
        )
    )
    while not (here.world.server.get(key).get("status") or {}).get("completionTime"):  # noqa: ASYNC110 (as fast as can be)
        await asyncio.sleep(0.001)
    await replace(here)
    await asyncio.gather(deciding, return_exceptions=True)
    events = await until(here, "NexusOperationCompleted")
    assert events.count("NexusOperationCompleted") == 1


@served
async def test_a_handler_gets_a_null_payload_for_an_operation_without_input(here: Served) -> None:
    await endpoint(here)
    await here.start()
    scheduled = schedule()
    scheduled.schedule_nexus_operation_command_attributes.ClearField("input")
    await here.decide(scheduled)
    task = await handle(here)
    assert task.request.start_operation.payload == Payload(metadata={"encoding": b"binary/null"})


@served
async def test_several_operations_wait_for_one_workflow(here: Served) -> None:
    first = await caller(here)
    started = await start_for(here, first)
    await here.decide()
    await here.start("other")
    await here.decide(schedule())
    second = await handle(here)
    options = OnConflictOptions(attach_request_id=True, attach_completion_callbacks=True, attach_links=True)
    policy = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
    attached = await start_for(here, second, on_conflict_options=options, workflow_id_conflict_policy=policy)
    assert (attached.run_id, attached.started) == (started.run_id, False)
    assert "WorkflowExecutionOptionsUpdated" in names(await here.history("charge", namespace=BILLS))
    await charge(here, complete_workflow())
    await until(here, "NexusOperationCompleted")
    await until(here, "NexusOperationCompleted", "other")


@served
async def test_a_cancellation_reaches_the_handler(here: Served) -> None:
    task = await caller(here)
    await start_for(here, task)
    await here.decide(cancel(5))
    call = await handle(here)
    assert call.request.cancel_operation.operation_token == "charge"
    told = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    pending = told.pending_nexus_operations[0]
    state = NexusOperationCancellationState.NEXUS_OPERATION_CANCELLATION_STATE_SCHEDULED
    assert (pending.state, pending.cancellation_info.state) == (
        PendingNexusOperationState.PENDING_NEXUS_OPERATION_STATE_STARTED,
        state,
    )
    done = Response()
    done.cancel_operation.SetInParent()
    await here.call("RespondNexusTaskCompleted", namespace=BILLS, task_token=call.task_token, response=done)
    assert "NexusOperationCancelRequestCompleted" in names(await here.history())


@served
async def test_a_reset_of_the_caller_keeps_its_operations(here: Served) -> None:
    task = await caller(here)
    await start_for(here, task)
    await here.decide()
    await here.call(
        "ResetWorkflowExecution",
        workflow_execution=WorkflowExecution(workflow_id="w"),
        workflow_task_finish_event_id=8,
        request_id="reset",
    )
    await charge(here, complete_workflow())
    events = await until(here, "NexusOperationCompleted")
    assert events.count("NexusOperationScheduled") == events.count("NexusOperationStarted") == 1


@served
async def test_a_result_for_which_the_run_has_no_room_fails_the_operation(here: Served) -> None:
    await endpoint(here)
    await here.start()
    await here.decide(*(schedule() for _ in range(9)))
    await answer(here, await handle(here), sync_success=StartOperationResponse.Sync(payload=FIVE))
    deciding = await here.task()
    for _ in range(8):  # what happens meanwhile waits in the status
        await answer(here, await handle(here), sync_success=StartOperationResponse.Sync(payload=_filling(200)))
    await here.complete(deciding)
    events = names(await here.history())
    assert events.count("NexusOperationCompleted") + events.count("NexusOperationFailed") == 9
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    cause = failed.nexus_operation_failed_event_attributes.failure.cause
    assert cause.application_failure_info.type == "PayloadTooLarge"


def _filling(kibibytes: int) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=b'"' + b"x" * kibibytes * 1024 + b'"')


async def _worker(here: Served, rpc: str, namespace: str, act: Callable[[Any], Awaitable[None]]) -> None:
    """Poll, and act on each task. A call that an operator takes with it is repeated, as SDKs do."""
    queue = HANDLERS if rpc == "PollNexusTaskQueue" else TaskQueue(name=QUEUE)
    while True:
        try:
            task = await here.call(rpc, namespace=namespace, queue=queue)
            if task.task_token:
                await act(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            await asyncio.sleep(0.1)
        except (RpcError, ApiError):
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(6))
def test_operators_that_are_killed_complete_an_operation_once(seed: int) -> None:
    async def play(here: Served) -> None:
        random = Random(seed)
        await endpoint(here)
        await here.start()

        async def decide(task: PollWorkflowTaskQueueResponse) -> None:
            events = names(task.history.events)
            if "NexusOperationScheduled" not in events:
                await here.complete(task, schedule())
            else:
                await here.complete(task, *[complete_workflow()] * ("NexusOperationCompleted" in events))

        async def finish(task: PollWorkflowTaskQueueResponse) -> None:
            await here.call(
                "RespondWorkflowTaskCompleted",
                namespace=BILLS,
                task_token=task.task_token,
                commands=[complete_workflow()],
            )

        workers = [
            asyncio.ensure_future(_worker(here, "PollWorkflowTaskQueue", "default", decide)),
            asyncio.ensure_future(_worker(here, "PollWorkflowTaskQueue", BILLS, finish)),
            asyncio.ensure_future(_worker(here, "PollNexusTaskQueue", BILLS, partial(start_for, here))),
        ]
        for _ in range(4):
            await asyncio.sleep(random.choice([0.01, 0.1, 1]) * random.random())
            await replace(here)
        await until(here, "WorkflowExecutionCompleted")
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        events = names(await here.history())
        assert [events.count(f"NexusOperation{what}") for what in ("Scheduled", "Started", "Completed")] == [1, 1, 1]
        runs = [key for key in here.world.server.objects if key.plural == "workflowruns" and key.namespace == BILLS]
        assert len(runs) == 1, "the handler has started one workflow"

    served(play)()


# Updates and standalone activities that complete operations


def _callback_of(task: PollNexusTaskQueueResponse, token: str) -> Callback:
    """The callback that a handler hands on, as SDKs do it."""
    said = task.request.start_operation
    return Callback(
        nexus=Callback.Nexus(url=said.callback, header={**said.callback_header, "Nexus-Operation-Token": token})
    )


def _update_for(
    here: Served, task: PollNexusTaskQueueResponse, update_id: str = "u", workflow_id: str = "charge"
) -> Any:
    """Update a workflow for an operation, until the update is accepted."""
    asked = Request(
        meta=Meta(update_id=update_id),
        input=Input(name="add"),
        request_id=task.request.start_operation.request_id,
        completion_callbacks=[_callback_of(task, update_id)],
    )
    execution = WorkflowExecution(workflow_id=workflow_id)
    return asyncio.ensure_future(
        here.call("UpdateWorkflowExecution", namespace=BILLS, workflow_execution=execution, request=asked)
    )


async def _updated(here: Served) -> tuple[PollNexusTaskQueueResponse, Message]:
    """An operation whose handler updates an open workflow; and the update, which that has accepted."""
    task = await caller(here)
    await here.start("charge", namespace=BILLS)
    await charge(here)
    asked = _update_for(here, task)
    polled = await here.call("PollWorkflowTaskQueue", namespace=BILLS)
    [message] = polled.messages
    await _say(
        here, polled, message, Acceptance(accepted_request_message_id=message.id, accepted_request=_request(message))
    )
    await asked
    await answer(here, task, async_success=StartOperationResponse.Async(operation_token="u"))
    return task, message


def _request(message: Message) -> Request:
    """The request of an update, as sdk-core repeats it: only what workflows see."""
    asked = Request()
    message.body.Unpack(asked)
    return Request(meta=asked.meta, input=asked.input)


async def _say(here: Served, task: Any, about: Message, *said: Any, commands: Sequence[Command] = ()) -> None:
    """Answer a workflow task with messages about an update."""
    messages = []
    for number, body in enumerate(said):
        message = Message(
            id=f"{about.id}/{number}/{task.started_event_id}", protocol_instance_id=about.protocol_instance_id
        )
        message.body.Pack(body)
        messages.append(message)
    await here.call(
        "RespondWorkflowTaskCompleted",
        namespace=BILLS,
        task_token=task.task_token,
        messages=messages,
        commands=commands,
    )


async def _next_task(here: Served) -> Any:
    """Have the workflow decide once more."""
    execution = WorkflowExecution(workflow_id="charge")
    await here.call("SignalWorkflowExecution", namespace=BILLS, workflow_execution=execution, signal_name="go")
    return await here.call("PollWorkflowTaskQueue", namespace=BILLS)


def _done(outcome: Outcome) -> UpdateResponse:
    return UpdateResponse(meta=Meta(update_id="u"), outcome=outcome)


async def _callbacks(here: Served) -> list[Any]:
    execution = WorkflowExecution(workflow_id="charge")
    return list((await here.call("DescribeWorkflowExecution", namespace=BILLS, execution=execution)).callbacks)


@served
async def test_the_end_of_an_update_completes_the_operation_and_the_workflow_stays_open(here: Served) -> None:
    _, message = await _updated(here)
    accepted = (await here.history("charge", namespace=BILLS))[-1]
    [callback] = accepted.workflow_execution_update_accepted_event_attributes.accepted_request.completion_callbacks
    assert callback.nexus.url == "temporal://system"
    [waiting] = await _callbacks(here)
    assert waiting.trigger.update_workflow_execution_completed.update_id == "u"
    assert waiting.state == CallbackState.CALLBACK_STATE_STANDBY
    await here.decide()
    assert "NexusOperationCompleted" not in names(await here.history())
    await _say(here, await _next_task(here), message, _done(Outcome(success=Payloads(payloads=[FIVE]))))
    await until(here, "NexusOperationCompleted")
    completed = (await here.history())[-2].nexus_operation_completed_event_attributes
    assert completed.result == FIVE
    await _say(here, await _next_task(here), message)
    assert await _callbacks(here) == [], "an open workflow forgets them"


@served
async def test_an_update_that_fails_or_that_its_workflow_leaves_behind_fails_the_operation(here: Served) -> None:
    _, message = await _updated(here)
    await here.decide()
    await _say(here, await _next_task(here), message, _done(Outcome(failure=Failure(message="no money"))))
    await until(here, "NexusOperationFailed")
    failed = (await here.history())[-2].nexus_operation_failed_event_attributes.failure
    assert failed.cause.message == "no money"


@served
async def test_a_workflow_that_closes_before_its_update_fails_the_operation(here: Served) -> None:
    _, message = await _updated(here)
    await here.decide()
    await _say(here, await _next_task(here), message, commands=[complete_workflow()])
    await until(here, "NexusOperationFailed")
    failed = (await here.history())[-2].nexus_operation_failed_event_attributes.failure
    assert failed.cause.application_failure_info.type == "AcceptedUpdateCompletedWorkflow"


@served
async def test_another_operation_that_repeats_an_update_waits_for_its_end_too(here: Served) -> None:
    _, message = await _updated(here)
    await here.decide()
    await here.start("other")
    await here.decide(schedule())
    second = await handle(here)
    await _update_for(here, second)
    await answer(here, second, async_success=StartOperationResponse.Async(operation_token="u"))
    [attached] = (await here.history("charge", namespace=BILLS))[
        -1
    ].workflow_execution_options_updated_event_attributes.workflow_update_options
    assert (attached.update_id, attached.attached_request_id) == ("u", second.request.start_operation.request_id)
    assert len(attached.attached_completion_callbacks) == 1
    await replace(here)
    await _say(here, await _next_task(here), message, _done(Outcome(success=Payloads(payloads=[FIVE]))))
    await until(here, "NexusOperationCompleted")
    await until(here, "NexusOperationCompleted", "other")
    late = await _update_for(here, second)
    assert late.outcome.success.payloads == [FIVE], "an update that has ended answers at once"


@served
async def test_callbacks_of_updates_that_cannot_be_are_refused(here: Served) -> None:
    await here.start()
    execution = WorkflowExecution(workflow_id="w")
    good = CallbackToken(
        namespace="default", name="w", workflow_id="w", run_id="r", scheduled_event_id=5, request_id="guessed"
    )
    header = {"temporal-callback-token": good.text()}
    right = Callback(nexus=Callback.Nexus(url="temporal://system", header=header))
    for callbacks, request_id, message in (
        ([right], "", "request_id: is required"),
        (
            [Callback(nexus=Callback.Nexus(url="https://example.com"))],
            "r",
            "does not match any configured callback address",
        ),
        ([Callback()], "r", "unknown callback variant"),
        ([right] * 33, "r", "more than 32 callbacks"),
    ):
        asked = Request(input=Input(name="add"), request_id=request_id, completion_callbacks=callbacks)
        with pytest.raises(RpcError, match=message) as refused:
            await here.call("UpdateWorkflowExecution", workflow_execution=execution, request=asked)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def _activity_for(here: Served, task: PollNexusTaskQueueResponse, **fields: Any) -> Any:
    """Start a standalone activity for an operation, and answer the call."""
    started = await here.call(
        "StartActivityExecution",
        namespace=BILLS,
        activity_id="charge",
        activity_type=ActivityType(name="Charge"),
        start_to_close_timeout=Duration(seconds=60),
        request_id=task.request.start_operation.request_id,
        **{"completion_callbacks": [_callback_of(task, "charge")], **fields},
    )
    await answer(here, task, async_success=StartOperationResponse.Async(operation_token="charge"))
    return started


@served
async def test_the_end_of_a_standalone_activity_completes_the_operations_that_wait_for_it(here: Served) -> None:
    first = await caller(here)
    started = await _activity_for(here, first)
    await here.decide()
    await here.start("other")
    await here.decide(schedule())
    options = AttachOptions(attach_request_id=True, attach_completion_callbacks=True, attach_links=True)
    policy = ActivityIdConflictPolicy.ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING
    link = Link(activity=Link.Activity(namespace="default", activity_id="from", run_id="r"))
    attached = await _activity_for(
        here, await handle(here), on_conflict_options=options, id_conflict_policy=policy, links=[link]
    )
    assert (attached.run_id, attached.started) == (started.run_id, False)
    told = await here.call("DescribeActivityExecution", namespace=BILLS, activity_id="charge")
    assert [each.info.state for each in told.callbacks] == [CallbackState.CALLBACK_STATE_STANDBY] * 2
    assert list(told.info.links) == [link]
    task = await here.call("PollActivityTaskQueue", namespace=BILLS)
    await here.call(
        "RespondActivityTaskCompleted", namespace=BILLS, task_token=task.task_token, result=Payloads(payloads=[FIVE])
    )
    await until(here, "NexusOperationCompleted")
    assert (await here.history())[-2].nexus_operation_completed_event_attributes.result == FIVE
    await until(here, "NexusOperationCompleted", "other")


@served
async def test_activities_started_at_the_same_time_for_one_id_complete_all_operations(here: Served) -> None:
    await endpoint(here)
    await here.start()
    await here.decide(*(schedule() for _ in range(4)))
    calls = [await handle(here) for _ in range(4)]
    options = AttachOptions(attach_request_id=True, attach_completion_callbacks=True, attach_links=True)
    policy = ActivityIdConflictPolicy.ACTIVITY_ID_CONFLICT_POLICY_USE_EXISTING
    started = await asyncio.gather(
        *(_activity_for(here, call, on_conflict_options=options, id_conflict_policy=policy) for call in calls)
    )
    assert sorted(each.started for each in started) == [False, False, False, True]
    assert len({each.run_id for each in started}) == 1
    task = await here.call("PollActivityTaskQueue", namespace=BILLS)
    await here.call("RespondActivityTaskCompleted", namespace=BILLS, task_token=task.task_token)
    await here.decide()
    await until(here, "NexusOperationCompleted", count=4)


@served
async def test_a_standalone_activity_shows_a_link_that_its_callback_has_too(here: Served) -> None:
    task = await caller(here)
    link = Link(nexus_operation=Link.NexusOperation(namespace="default", operation_id="from", run_id="r"))
    callback = _callback_of(task, "charge")
    callback.links.append(link)
    await _activity_for(here, task, completion_callbacks=[callback], links=[link])
    told = await here.call("DescribeActivityExecution", namespace=BILLS, activity_id="charge")
    assert list(told.info.links) == [link]


@served
async def test_a_standalone_activity_that_fails_or_times_out_fails_the_operation(here: Served) -> None:
    await _activity_for(here, await caller(here), retry_policy=RetryPolicy(maximum_attempts=1))
    task = await here.call("PollActivityTaskQueue", namespace=BILLS)
    await here.call(
        "RespondActivityTaskFailed", namespace=BILLS, task_token=task.task_token, failure=Failure(message="no money")
    )
    await until(here, "NexusOperationFailed")
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    assert failed.nexus_operation_failed_event_attributes.failure.cause.message == "no money"
    await here.decide(schedule())
    await _activity_for(here, await handle(here), retry_policy=RetryPolicy(maximum_attempts=1))
    await here.call("PollActivityTaskQueue", namespace=BILLS)
    await asyncio.sleep(70)
    failures = [
        event.nexus_operation_failed_event_attributes.failure.cause
        for event in await here.history()
        if event.HasField("nexus_operation_failed_event_attributes")
    ]
    assert failures[1].timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE


@served
async def test_the_reason_of_a_terminated_activity_is_the_failure_of_the_operation(here: Served) -> None:
    await _activity_for(here, await caller(here))
    await here.call("TerminateActivityExecution", namespace=BILLS, activity_id="charge", reason="out of stock")
    await until(here, "NexusOperationFailed")
    failed = next(e for e in await here.history() if e.HasField("nexus_operation_failed_event_attributes"))
    assert failed.nexus_operation_failed_event_attributes.failure.cause.message == "out of stock"


@served
async def test_attaching_to_an_open_activity_needs_what_to_attach(here: Served) -> None:
    for options, message in (
        (AttachOptions(attach_completion_callbacks=True), "requires attach_request_id"),
        (AttachOptions(attach_request_id=True), "requires at least one completion callback or link"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.call(
                "StartActivityExecution",
                activity_id="a",
                activity_type=ActivityType(name="Charge"),
                start_to_close_timeout=Duration(seconds=60),
                on_conflict_options=options,
            )
