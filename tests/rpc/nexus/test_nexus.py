"""Nexus operations: calls of handlers, and workflows that complete operations."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import (
    Payload,
    WorkflowExecution,
)
from temporalio.api.enums.v1 import (
    CallbackState,
    CommandType,
    NexusOperationCancellationState,
    PendingNexusOperationState,
    WorkflowIdConflictPolicy,
)
from temporalio.api.failure.v1 import CanceledFailureInfo, Failure, NexusHandlerFailureInfo
from temporalio.api.nexus.v1 import Failure as NexusFailure
from temporalio.api.nexus.v1 import (
    HandlerError,
    Response,
    StartOperationResponse,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import OnConflictOptions
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueResponse

from perdure.frontend.errors import RpcError
from perdure.kube.client import ApiError
from perdure.observe import metrics
from rpc.nexus.calls import (
    BILLS,
    FIVE,
    HANDLERS,
    answer,
    caller,
    cancel,
    charge,
    endpoint,
    handle,
    replace,
    schedule,
    start_for,
    until,
)
from rpc.served import QUEUE, Served, complete_workflow, names, served

# Calls


@served
async def test_a_handler_gets_input_headers_and_timeouts_of_the_caller(here: Served) -> None:
    await endpoint(here)
    await here.start()
    await here.decide(
        schedule(header={"Tenant": "a", "X-Api-Key": "k"}, schedule_to_close_timeout=timedelta(minutes=1))
    )
    request = (await handle(here)).request
    said = request.start_operation
    assert (request.endpoint, said.service, said.operation, said.payload) == ("billing", "invoices", "charge", FIVE)
    assert (request.header["tenant"], request.header["x-api-key"]) == ("a", "k")
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
async def test_a_synchronous_response_completes_the_operation(here: Served) -> None:
    task = await caller(here)
    await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))
    completed = (await here.history())[5].nexus_operation_completed_event_attributes
    assert (completed.scheduled_event_id, completed.result) == (5, FIVE)
    with pytest.raises(RpcError, match="not found or already expired"):
        await answer(here, task, sync_success=StartOperationResponse.Sync(payload=FIVE))


@served
async def test_a_handler_error_is_retried_unless_it_is_non_retryable(here: Served) -> None:
    task = await caller(here)
    busy = HandlerError(error_type="UNAVAILABLE", failure=NexusFailure(message="busy"))
    await here.call("RespondNexusTaskFailed", namespace=BILLS, task_token=task.task_token, error=busy)
    reported = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    pending = reported.pending_nexus_operations[0]
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
async def test_a_handler_task_without_a_response_is_retried_on_another_worker(here: Served) -> None:
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
async def test_completed_operations_are_counted_by_outcome(here: Served) -> None:
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
async def test_invalid_responses_are_rejected(here: Served) -> None:
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
    reported = await here.call("DescribeWorkflowExecution", namespace=BILLS, execution=execution)
    assert reported.callbacks[0].state == CallbackState.CALLBACK_STATE_SUCCEEDED


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
async def test_an_operation_completes_after_the_operator_is_killed(here: Served) -> None:
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
    reported = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    pending = reported.pending_nexus_operations[0]
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
async def test_a_result_that_does_not_fit_into_the_run_fails_the_operation(here: Served) -> None:
    await endpoint(here)
    await here.start()
    await here.decide(*(schedule() for _ in range(9)))
    await answer(here, await handle(here), sync_success=StartOperationResponse.Sync(payload=FIVE))
    deciding = await here.task()
    for _ in range(8):  # events during that time wait in the status
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
    """Poll, and process each task. Calls lost with an operator are repeated, as SDKs do."""
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
def test_an_operation_completes_once_when_operators_are_killed(seed: int) -> None:
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
