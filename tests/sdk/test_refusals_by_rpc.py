"""Invalid requests by RPC: rejected immediately with the field, and without harm to the workflow."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, WorkflowTaskFailedCause
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.schedule.v1 import SchedulePatch
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    CountSchedulesRequest,
    CreateScheduleRequest,
    ExecuteMultiOperationRequest,
    ListWorkflowExecutionsRequest,
    RespondWorkflowTaskCompletedRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from sdk.manual_worker import ManualWorker, close, timer
from support.sdk import flows
from support.sdk.client import Temporal


def request(temporal: Temporal, **said: Any) -> StartWorkflowExecutionRequest:
    made = StartWorkflowExecutionRequest(
        namespace=temporal.operator.namespace,
        workflow_id=temporal.task_queue,
        task_queue={"name": temporal.task_queue},
        **said,
    )
    made.workflow_type.name = made.workflow_type.name or "W"
    return made


async def refused(call: Any, what: str, status: RPCStatusCode = RPCStatusCode.INVALID_ARGUMENT) -> None:
    with pytest.raises(RPCError, match=what) as caught:
        await call
    assert caught.value.status is status


async def test_update_with_start_cannot_target_another_namespace(temporal: Temporal) -> None:
    asked = ExecuteMultiOperationRequest(namespace=temporal.operator.namespace)
    asked.operations.add().start_workflow.CopyFrom(request(temporal))
    asked.operations[0].start_workflow.namespace = "default"
    update = UpdateWorkflowExecutionRequest(
        namespace="default", workflow_execution=WorkflowExecution(workflow_id=temporal.task_queue)
    )
    asked.operations.add().update_workflow.CopyFrom(update)
    service = temporal.client.workflow_service
    await refused(service.execute_multi_operation(asked), "Operation namespace did not match request's namespace")


async def test_update_with_start_does_not_start_a_run_for_an_invalid_update(temporal: Temporal) -> None:
    asked = ExecuteMultiOperationRequest(namespace=temporal.operator.namespace)
    asked.operations.add().start_workflow.CopyFrom(request(temporal))
    asked.operations.add().update_workflow.workflow_execution.workflow_id = temporal.task_queue
    await refused(temporal.client.workflow_service.execute_multi_operation(asked), "Update-with-Start")
    await refused(
        temporal.client.get_workflow_handle(temporal.task_queue).describe(), "not found", RPCStatusCode.NOT_FOUND
    )


async def test_a_start_in_an_invalid_or_missing_namespace_is_rejected(temporal: Temporal) -> None:
    service = temporal.client.workflow_service
    for namespace, code in (
        ("", RPCStatusCode.INVALID_ARGUMENT),
        ("../x", RPCStatusCode.INVALID_ARGUMENT),
        ("no-such-namespace", RPCStatusCode.NOT_FOUND),
    ):
        asked = request(temporal)
        asked.namespace = namespace
        await refused(service.start_workflow_execution(asked), "Namespace", code)
        if code is RPCStatusCode.INVALID_ARGUMENT:
            await refused(service.count_schedules(CountSchedulesRequest(namespace=namespace)), "Namespace")


async def test_a_too_large_request_has_the_same_error_at_any_size(temporal: Temporal) -> None:
    service = temporal.client.workflow_service
    for size in (2_200_000, 3_000_000):
        asked = request(temporal, input=Payloads(payloads=[Payload(data=b"x" * size)]))
        await refused(service.start_workflow_execution(asked), "Blob data size exceeds limit")
    asked = request(temporal, input=Payloads(payloads=[Payload()] * 20_000))
    await refused(service.start_workflow_execution(asked), "It has 20,000 payloads; the limit is 10,000")
    asked = request(temporal, input=Payloads(payloads=[Payload()] * 1_500_000))
    await refused(service.start_workflow_execution(asked), "have more than 50,000 items")


async def test_negative_durations_are_rejected_and_very_long_ones_are_limited(temporal: Temporal) -> None:
    service = temporal.client.workflow_service
    for field in ("workflow_run_timeout", "workflow_start_delay"):
        asked = request(temporal)
        getattr(asked, field).seconds = -5
        await refused(service.start_workflow_execution(asked), f"{field}: negative duration")
    asked = request(temporal)
    asked.workflow_run_timeout.seconds = asked.workflow_execution_timeout.seconds = 10**15
    await service.start_workflow_execution(asked)
    await temporal.client.get_workflow_handle(temporal.task_queue).terminate()


async def test_an_invalid_workflow_name_is_rejected_with_the_purpose_of_the_task_queue(temporal: Temporal) -> None:
    with pytest.raises(RPCError, match="runs Workflows by name"):
        await temporal.client.start_workflow("Not A Name", id="w-by-name", task_queue="workflows")


async def test_a_lone_surrogate_reaches_the_workflow_unchanged(temporal: Temporal) -> None:
    sent = Payload(metadata={"encoding": b"json/plain"}, data=b'"\\ud800"')
    await temporal.client.workflow_service.start_workflow_execution(
        request(temporal, input=Payloads(payloads=[sent]), memo={"fields": {"m": sent}})
    )
    task = await ManualWorker(temporal).task()
    assert task.history.events[0].workflow_execution_started_event_attributes.input.payloads == [sent]
    await ManualWorker(temporal).complete(task, close())


def bad_commands() -> list[tuple[Command, str]]:
    endless = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    endless.continue_as_new_workflow_execution_command_attributes.workflow_type.name = "x" * 4_000
    memo = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    fields = memo.continue_as_new_workflow_execution_command_attributes.memo.fields
    fields["m"].CopyFrom(Payload(data=b"x" * 250_000))
    found_by = Command(command_type=CommandType.COMMAND_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    deep = Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 3_000 + b"]" * 3_000)
    found_by.upsert_workflow_search_attributes_command_attributes.search_attributes.indexed_fields["A"].CopyFrom(deep)
    return [
        (timer("t" * 1_025, timedelta(seconds=1)), "BAD_START_TIMER_ATTRIBUTES"),
        (timer("t", timedelta(seconds=-1)), "BAD_START_TIMER_ATTRIBUTES"),
        (endless, "BAD_CONTINUE_AS_NEW_ATTRIBUTES"),
        (memo, "BAD_CONTINUE_AS_NEW_ATTRIBUTES"),
        (found_by, "BAD_SEARCH_ATTRIBUTES"),
    ]


@pytest.mark.parametrize(("command", "cause"), bad_commands())
async def test_41_an_invalid_command_fails_the_task_and_the_workflow_continues(
    temporal: Temporal, command: Command, cause: str
) -> None:
    hand, handle = ManualWorker(temporal), await temporal.start(flows.Box.run)
    task = await hand.task()
    await refused(hand.complete(task, command), "Attributes")
    [failed] = [said for name, said in await temporal.history(handle) if name == "WorkflowTaskFailed"]
    assert failed.cause == WorkflowTaskFailedCause.Value(f"WORKFLOW_TASK_FAILED_CAUSE_{cause}")
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    await hand.complete(await hand.task(), close())
    assert (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED


async def test_a_timer_is_limited_to_a_century(temporal: Temporal) -> None:
    hand, handle = ManualWorker(temporal), await temporal.start(flows.Box.run)
    long = timer("t", timedelta(0))
    long.start_timer_command_attributes.start_to_fire_timeout.seconds = 10**12
    await hand.decide(long)
    [started] = [said for name, said in await temporal.history(handle) if name == "TimerStarted"]
    assert started.start_to_fire_timeout.ToTimedelta() == timedelta(days=36_500)
    await handle.terminate()


async def test_a_schedule_with_an_invalid_initial_trigger_is_not_created(temporal: Temporal) -> None:
    asked = CreateScheduleRequest(namespace=temporal.operator.namespace, schedule_id="s", initial_patch=SchedulePatch())
    action = asked.schedule.action.start_workflow
    action.workflow_id = action.workflow_type.name = "w"
    action.task_queue.CopyFrom(TaskQueue(name=temporal.task_queue))
    asked.initial_patch.trigger_immediately.scheduled_time.seconds = 2**60
    await refused(temporal.client.workflow_service.create_schedule(asked), "scheduled_time")
    handle = temporal.client.get_schedule_handle("s")
    await refused(handle.describe(), "not found", RPCStatusCode.NOT_FOUND)


async def test_invalid_search_attributes_and_filters_are_rejected(temporal: Temporal) -> None:
    namespace = temporal.operator.namespace
    for name, kind in (("a b", 2), ("Fine", 77)):
        asked = AddSearchAttributesRequest(namespace=namespace, search_attributes={name: kind})  # type: ignore[dict-item]
        await refused(temporal.client.operator_service.add_search_attributes(asked), "search_attributes")
    query = ListWorkflowExecutionsRequest(namespace=namespace, query=f"WorkflowId = {'1' * 5_000}")
    await refused(temporal.client.workflow_service.list_workflow_executions(query), "more than 100 digits")


async def test_a_message_that_does_not_decode_fails_the_task(temporal: Temporal) -> None:
    hand, handle = ManualWorker(temporal), await temporal.start(flows.Box.run)
    task = await hand.task()
    asked = RespondWorkflowTaskCompletedRequest(namespace=temporal.operator.namespace, task_token=task.task_token)
    broken = asked.messages.add(id="m").body
    broken.type_url, broken.value = "type.googleapis.com/temporal.api.update.v1.Acceptance", b"\xff\xff"
    service = temporal.client.workflow_service
    await refused(service.respond_workflow_task_completed(asked), "BadUpdateWorkflowExecutionMessage")
    await hand.complete(await hand.task(), close())
    await handle.result()
