"""Resets of workflows and activities, changed options, and batches, as clients ask for them."""

import uuid
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.batch.v1 import BatchOperationReset, BatchOperationSignal, BatchOperationTermination
from temporalio.api.common.v1 import ResetOptions, WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyType
from temporalio.api.workflowservice.v1 import (
    DescribeBatchOperationRequest,
    ListBatchOperationsRequest,
    PauseActivityRequest,
    ResetActivityRequest,
    ResetWorkflowExecutionRequest,
    StartBatchOperationRequest,
    UnpauseActivityRequest,
    UpdateActivityOptionsRequest,
)
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import TerminatedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer

from support.sdk import flows, registry
from support.sdk.client import Temporal, until


async def reset(temporal: Temporal, handle: WorkflowHandle, event_id: int, **said: object) -> WorkflowHandle:
    """Reset a workflow, with a repeated request, as after a lost response."""
    request = ResetWorkflowExecutionRequest(
        namespace=temporal.operator.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.result_run_id or ""),
        workflow_task_finish_event_id=event_id,
        request_id=uuid.uuid4().hex,
        reason="mended",
        **said,  # type: ignore[arg-type]
    )
    service = temporal.client.workflow_service
    first, second = await service.reset_workflow_execution(request), await service.reset_workflow_execution(request)
    assert first.run_id == second.run_id
    return temporal.client.get_workflow_handle(handle.id, run_id=first.run_id)


@pytest.mark.parametrize("event_id", [3, 4], ids=["started", "completed"])
async def test_54_a_reset_continues_from_the_point_with_later_signals(temporal: Temporal, event_id: int) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Box.run)
        assert await handle.query(flows.Box.look) == []  # after the first workflow task: events 2, 3 and 4
        await handle.signal(flows.Box.put, "one")
        again = await reset(temporal, handle, event_id)
        assert await again.query(flows.Box.look) == ["one"]
        old = temporal.client.get_workflow_handle(handle.id, run_id=handle.result_run_id)
        assert (await old.describe()).status is WorkflowExecutionStatus.TERMINATED
        newest = temporal.client.get_workflow_handle(handle.id)
        assert (await newest.describe()).run_id == again.run_id
        await newest.signal(flows.Box.close)
        assert await again.result() == ["one"]
        events = await temporal.history(again)
        [(_, reported)] = [(name, said) for name, said in events if name == "WorkflowTaskFailed"]
        assert (reported.base_run_id, reported.new_run_id) == (handle.result_run_id, again.run_id)
        await Replayer(workflows=registry.WORKFLOWS).replay_workflow(await again.fetch_history())


async def test_a_closed_workflow_can_be_reset_without_its_signals(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Box.run)
        assert await handle.query(flows.Box.look) == []  # after the first workflow task: events 2, 3 and 4
        await handle.signal(flows.Box.put, "one")
        await handle.signal(flows.Box.close)
        assert await handle.result() == ["one"]
        again = await reset(temporal, handle, 4, reset_reapply_type=ResetReapplyType.RESET_REAPPLY_TYPE_NONE)
        assert await again.query(flows.Box.look) == []
        await again.signal(flows.Box.close)
        assert await again.result() == []


async def test_an_activity_after_the_reset_point_runs_again(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "you")
        assert await handle.result() == "Hello, you"
        again = await reset(temporal, handle, 4)
        assert await again.result() == "Hello, you"
        assert (await temporal.names(again)).count("ActivityTaskCompleted") == 1


async def test_a_reset_to_an_event_without_a_decision_is_rejected(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "you")
        await handle.result()
    for event_id, message in ((6, "choose event"), (1, "must be > 1")):
        with pytest.raises(RPCError, match=message) as caught:
            await reset(temporal, handle, event_id)
        assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT


async def open_activity(handle: WorkflowHandle, so: Any = lambda _: True) -> Any:
    """The open activity of a workflow, once it is like that."""

    async def find() -> Any:
        pending = (await handle.describe()).raw_description.pending_activities
        return pending[0] if pending and so(pending[0]) else None

    return await until("the activity", find)


def execution(handle: WorkflowHandle) -> WorkflowExecution:
    return WorkflowExecution(workflow_id=handle.id)


async def test_resetting_a_paused_activity_restarts_its_attempts(temporal: Temporal) -> None:
    service, namespace = temporal.client.workflow_service, temporal.operator.namespace
    async with temporal.worker():
        retry = {"maximum_attempts": 3, "initial_interval": 600}
        handle = await temporal.start(flows.Call.run, "fail_until", [2], {"retry": retry})
        waiting = await open_activity(handle, lambda a: a.attempt == 2)
        await service.pause_activity(
            PauseActivityRequest(namespace=namespace, execution=execution(handle), id=waiting.activity_id)
        )
        assert (await open_activity(handle)).paused
        await service.reset_activity(
            ResetActivityRequest(
                namespace=namespace, execution=execution(handle), id=waiting.activity_id, keep_paused=True
            )
        )
        found = await open_activity(handle)
        assert (found.attempt, found.paused) == (1, True)
        # From here on it waits no longer: its next attempt counts as the first, and the one after it as the second.
        options = ActivityOptions()
        options.retry_policy.initial_interval.FromMilliseconds(100)
        said = await service.update_activity_options(
            UpdateActivityOptionsRequest(
                namespace=namespace,
                execution=execution(handle),
                id=waiting.activity_id,
                activity_options=options,
                update_mask=FieldMask(paths=["retryPolicy.initialInterval"]),
            )
        )
        assert said.activity_options.retry_policy.maximum_attempts == 3
        await service.unpause_activity(
            UnpauseActivityRequest(namespace=namespace, execution=execution(handle), id=waiting.activity_id)
        )
        assert await handle.result() == 2


async def test_an_activity_option_that_cannot_change_is_rejected_by_name(temporal: Temporal) -> None:
    handle = await temporal.start(flows.Greet.run, "Ada")
    async with temporal.worker(activities=[]):  # the activity stays open: no worker polls it
        waiting = await open_activity(handle)
        with pytest.raises(RPCError, match="task_queue") as caught:
            await temporal.client.workflow_service.update_activity_options(
                UpdateActivityOptionsRequest(
                    namespace=temporal.operator.namespace,
                    execution=execution(handle),
                    id=waiting.activity_id,
                    activity_options=ActivityOptions(task_queue={"name": "pods/tool"}),
                    update_mask=FieldMask(paths=["task_queue"]),
                )
            )
        assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT


async def test_a_batch_signals_every_workflow_that_matches_its_filter(temporal: Temporal) -> None:
    service, namespace = temporal.client.workflow_service, temporal.operator.namespace
    async with temporal.worker():
        name = f"of-a-batch-{uuid.uuid4().hex[:6]}"
        handles = [await temporal.start(flows.Box.run, id=f"{name}-{number}") for number in range(3)]
        put, close = BatchOperationSignal(signal="put"), BatchOperationSignal(signal="close")
        put.input.payloads.extend(await temporal.client.data_converter.encode(["all"]))
        for number, signal in enumerate((put, close)):
            request = StartBatchOperationRequest(
                namespace=namespace,
                job_id=f"{name}/{number}",
                visibility_query=f"WorkflowId STARTS_WITH '{name}' AND ExecutionStatus = 'Running'",
                reason="for all",
                signal_operation=signal,
            )
            await service.start_batch_operation(request)
            await service.start_batch_operation(request)

            async def done(job: str = request.job_id) -> Any:
                found = await service.describe_batch_operation(
                    DescribeBatchOperationRequest(namespace=namespace, job_id=job)
                )
                return found if found.complete_operation_count == 3 else None

            found = await until("the batch", done)
            assert (found.total_operation_count, found.failure_operation_count, found.reason) == (3, 0, "for all")
        assert [await handle.result() for handle in handles] == [["all"]] * 3
    listed = await service.list_batch_operations(ListBatchOperationsRequest(namespace=namespace))
    assert [info.job_id for info in listed.operation_info][:2] == [f"{name}/1", f"{name}/0"]


async def test_a_batch_terminates_workflows_and_unsupported_batches_are_rejected(temporal: Temporal) -> None:
    service, namespace = temporal.client.workflow_service, temporal.operator.namespace
    handle = await temporal.start(flows.Sleeper.run, 600)
    await service.start_batch_operation(
        StartBatchOperationRequest(
            namespace=namespace,
            job_id=uuid.uuid4().hex,
            executions=[execution(handle)],
            reason="enough",
            termination_operation=BatchOperationTermination(identity="me"),
        )
    )
    with pytest.raises(WorkflowFailureError) as ended:
        await handle.result()
    assert isinstance(ended.value.cause, TerminatedError)
    with pytest.raises(RPCError, match="build_id") as caught:
        await service.start_batch_operation(
            StartBatchOperationRequest(
                namespace=namespace,
                job_id="x",
                visibility_query="WorkflowId = 'x'",
                reset_operation=BatchOperationReset(options=ResetOptions(build_id="1")),
            )
        )
    assert caught.value.status is RPCStatusCode.INVALID_ARGUMENT
