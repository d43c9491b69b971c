"""Batches: one request to many workflows, executed once for each, described, listed, and stopped.

The requests are those of Temporal's API: the `operation` of `StartBatchOperationRequest`
(https://github.com/temporalio/api/blob/master/temporal/api/workflowservice/v1/request_response.proto).
"""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.batch.v1 import (
    BatchOperationDeletion,
    BatchOperationReset,
    BatchOperationResetActivities,
    BatchOperationSignal,
    BatchOperationTermination,
    BatchOperationUnpauseActivities,
    BatchOperationUpdateActivityOptions,
    BatchOperationUpdateWorkflowExecutionOptions,
)
from temporalio.api.common.v1 import ActivityType, Execution, ResetOptions, RetryPolicy, WorkflowExecution
from temporalio.api.enums.v1 import BatchOperationState, BatchOperationType, ExecutionType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import DescribeBatchOperationResponse

from perdure.frontend.errors import RpcError, denied
from perdure.frontend.transport.rpc import CallContext
from rpc.deployments.versioned import PINNED, decide, describe, moved_to, pinned_to, start_on
from rpc.served import Served, activity, complete_workflow, names, served, timer

HOUR = timedelta(hours=1)
W = [WorkflowExecution(workflow_id="w")]


async def batch(here: Served, job: str, **fields: Any) -> DescribeBatchOperationResponse:
    """Run a batch to its end, for the workflow `w` unless the fields say which."""
    if not fields.keys() & {"visibility_query", "executions", "target_executions"}:
        fields["executions"] = W
    await here.call("StartBatchOperation", job_id=job, reason="why", **fields)
    for _ in range(60):
        found: DescribeBatchOperationResponse = await here.call("DescribeBatchOperation", job_id=job)
        if found.state == BatchOperationState.BATCH_OPERATION_STATE_COMPLETED:
            return found
        await asyncio.sleep(1)
    raise AssertionError(found)


def counts(found: DescribeBatchOperationResponse) -> tuple[int, int, int]:
    return found.total_operation_count, found.complete_operation_count, found.failure_operation_count


async def pending(here: Served, workflow_id: str = "w") -> dict[str, PendingActivityInfo]:
    found = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id=workflow_id))
    return {each.activity_id: each for each in found.pending_activities}


async def with_activities(here: Served, *workflow_ids: str) -> None:
    """Workflows with an activity `a` of type `any`, which waits for its second attempt, and one of type `other`."""
    for workflow_id in workflow_ids:
        await here.start(workflow_id)
        other = activity("b", start_to_close_timeout=HOUR)
        other.schedule_activity_task_command_attributes.activity_type.name = "other"
        failing = activity("a", start_to_close_timeout=HOUR)
        policy = RetryPolicy(initial_interval=Duration(seconds=3_000), maximum_interval=Duration(seconds=3_000))
        failing.schedule_activity_task_command_attributes.retry_policy.CopyFrom(policy)
        await here.decide(failing, other)
        for _ in range(2):
            task = await here.call("PollActivityTaskQueue")
            if task.activity_id == "a":
                await here.call("RespondActivityTaskFailed", task_token=task.task_token, failure=Failure(message="no"))


@served
async def test_a_batch_is_executed_once_for_each_run_also_if_it_is_requested_twice(here: Served) -> None:
    for name in ("one", "two"):
        await here.start(name)
    signal = BatchOperationSignal(signal="go", identity="me")
    query = "WorkflowType = 'Order'"
    for _ in range(2):
        found = await batch(here, "job", visibility_query=query, signal_operation=signal)
        assert counts(found) == (2, 2, 0)
    assert (found.operation_type, found.query, found.reason, found.identity) == (
        BatchOperationType.BATCH_OPERATION_TYPE_SIGNAL_WORKFLOW,
        query,
        "why",
        "me",
    )
    for name in ("one", "two"):
        assert names(await here.history(name)).count("WorkflowExecutionSignaled") == 1
    listed = await here.call("ListBatchOperations")
    assert [each.job_id for each in listed.operation_info] == ["job"]


@served
async def test_a_batch_deletes_open_and_closed_runs(here: Served) -> None:
    for name in ("closed", "open"):
        await here.start(name)
    for _ in range(2):
        task = await here.task()
        closes = task.workflow_execution.workflow_id == "closed"
        await here.complete(task, complete_workflow() if closes else timer("t", HOUR))
    found = await batch(
        here, "job", visibility_query="WorkflowType = 'Order'", deletion_operation=BatchOperationDeletion()
    )
    assert found.operation_type == BatchOperationType.BATCH_OPERATION_TYPE_DELETE_WORKFLOW
    assert counts(found) == (2, 2, 0)
    await asyncio.sleep(60)  # until the finalizers have run
    for name in ("closed", "open"):
        with pytest.raises(RpcError, match="not found"):
            await here.history(name)
    await here.start("open", request_id="again")
    await here.history("open")  # the batch was about the run, not about the workflow ID


@served
async def test_a_batch_of_deletions_needs_the_right_to_delete(here: Served) -> None:
    await here.start()
    asked: list[str] = []

    async def permit(rpc: str) -> None:
        asked.append(rpc)
        raise denied("may not delete")

    caller = CallContext(None, permit=permit)
    request = {"job_id": "job", "executions": W, "deletion_operation": BatchOperationDeletion()}
    with pytest.raises(RpcError, match="may not delete") as error:
        await here.call("StartBatchOperation", caller=caller, **request)
    assert error.value.code is grpc.StatusCode.PERMISSION_DENIED
    assert asked == ["DeleteWorkflowExecution"]
    await here.call(
        "StartBatchOperation",
        caller=caller,
        **{**request, "deletion_operation": None},
        termination_operation=BatchOperationTermination(),
    )
    assert asked == ["DeleteWorkflowExecution"]


@served
async def test_a_batch_resets_activities_of_a_type_or_all(here: Served) -> None:
    await with_activities(here, "w")
    assert (await pending(here))["a"].attempt == 2
    by_type = BatchOperationResetActivities(type="any")
    assert counts(await batch(here, "one", reset_activities_operation=by_type)) == (1, 1, 0)
    open_ = await pending(here)
    assert (open_["a"].attempt, open_["b"].attempt) == (1, 1)
    none = BatchOperationResetActivities(type="unknown")
    assert counts(await batch(here, "none", reset_activities_operation=none)) == (1, 0, 1)
    every = BatchOperationResetActivities(match_all=True)
    assert counts(await batch(here, "all", reset_activities_operation=every)) == (1, 1, 0)


@served
async def test_a_batch_unpauses_the_activities_that_it_selects(here: Served) -> None:
    await with_activities(here, "w")
    for name in ("a", "b"):
        await here.call("PauseActivity", execution=W[0], id=name)
    assert all(each.paused for each in (await pending(here)).values())
    by_type = BatchOperationUnpauseActivities(type="any")
    assert counts(await batch(here, "one", unpause_activities_operation=by_type)) == (1, 1, 0)
    assert {name: each.paused for name, each in (await pending(here)).items()} == {"a": False, "b": True}
    every = BatchOperationUnpauseActivities(match_all=True, reset_attempts=True)
    found = await batch(here, "all", unpause_activities_operation=every)
    assert found.operation_type == BatchOperationType.BATCH_OPERATION_TYPE_UNPAUSE_ACTIVITY
    open_ = await pending(here)
    assert not any(each.paused for each in open_.values())
    assert open_["a"].attempt == 1


@served
async def test_a_batch_changes_the_options_of_activities_and_restores_them(here: Served) -> None:
    await with_activities(here, "w", "v")
    both = [WorkflowExecution(workflow_id=name) for name in ("w", "v")]
    options = ActivityOptions(task_queue={"name": "elsewhere"})
    options.start_to_close_timeout.FromSeconds(77)
    options.retry_policy.maximum_attempts = 9
    mask = FieldMask(
        paths=["task_queue.name", "start_to_close_timeout", "heartbeat_timeout", "retry_policy.maximum_attempts"]
    )
    change = BatchOperationUpdateActivityOptions(match_all=True, activity_options=options, update_mask=mask)
    found = await batch(here, "change", executions=both, update_activity_options_operation=change)
    assert counts(found) == (2, 2, 0)
    for name in ("w", "v"):
        for each in (await pending(here, name)).values():
            now = each.activity_options
            assert (now.task_queue.name, now.start_to_close_timeout.seconds) == ("elsewhere", 77)
            assert now.retry_policy.maximum_attempts == 9
        assert (await pending(here, name))["a"].activity_options.retry_policy.initial_interval.seconds == 3_000
    restore = BatchOperationUpdateActivityOptions(type="any", restore_original=True)
    await batch(here, "restore", update_activity_options_operation=restore)
    open_ = await pending(here)
    assert open_["a"].activity_options.start_to_close_timeout.seconds == 3_600
    assert open_["b"].activity_options.start_to_close_timeout.seconds == 77
    removes = BatchOperationUpdateActivityOptions(
        match_all=True, update_mask=FieldMask(paths=["start_to_close_timeout"])
    )
    assert counts(await batch(here, "removed", update_activity_options_operation=removes)) == (1, 0, 1)


@served
async def test_a_batch_pins_workflows_to_a_version_and_resets_them_onto_one(here: Served) -> None:
    async def pinned() -> str:
        return str(
            (await describe(here)).workflow_execution_info.versioning_info.versioning_override.pinned.version.build_id
        )

    await start_on(here, "1", "2")
    await decide(here, "1", PINNED, timer("t", HOUR))
    change = BatchOperationUpdateWorkflowExecutionOptions(
        workflow_execution_options=WorkflowExecutionOptions(versioning_override=pinned_to("2")),
        update_mask=FieldMask(paths=["versioning_override"]),
    )
    assert counts(await batch(here, "pin", update_workflow_options_operation=change)) == (1, 1, 0)
    assert await pinned() == "2"
    change.workflow_execution_options.versioning_override.CopyFrom(pinned_to("unknown"))
    with pytest.raises(RpcError, match="is not present in task queue"):
        await batch(here, "unknown", update_workflow_options_operation=change)
    change.workflow_execution_options.Clear()
    await batch(here, "unpin", update_workflow_options_operation=change)
    assert not await pinned()
    reset = BatchOperationReset(options=ResetOptions(first_workflow_task={}), post_reset_operations=[moved_to("2")])
    assert counts(await batch(here, "reset", reset_operation=reset)) == (1, 1, 0)
    assert await pinned() == "2"


@pytest.mark.parametrize(
    ("field", "type_"),
    [
        ("cancel_activities_operation", "CANCEL_ACTIVITY"),
        ("terminate_activities_operation", "TERMINATE_ACTIVITY"),
        ("delete_activities_operation", "DELETE_ACTIVITY"),
    ],
)
def test_a_batch_of_standalone_activities(field: str, type_: str) -> None:
    @served
    async def check(here: Served) -> None:
        started = await here.call(
            "StartActivityExecution",
            activity_id="a",
            activity_type=ActivityType(name="Do"),
            start_to_close_timeout=HOUR,
            request_id="a",
        )
        target = Execution(type=ExecutionType.EXECUTION_TYPE_ACTIVITY, business_id="a", run_id=started.run_id)
        found = await batch(here, "job", target_executions=[target], **{field: {}})
        assert found.operation_type == BatchOperationType.Value(f"BATCH_OPERATION_TYPE_{type_}")
        assert counts(found) == (1, 1, 0)
        if field.startswith("delete"):
            await asyncio.sleep(60)
            with pytest.raises(RpcError, match="not found"):
                await here.call("DescribeActivityExecution", activity_id="a")
        else:
            described = await here.call("DescribeActivityExecution", activity_id="a")
            assert described.info.HasField("close_time") or described.info.cancel_requested_time is not None

    check()


@served
async def test_a_stopped_batch_reaches_no_further_runs(here: Served) -> None:
    """A run whose Workflow does not exist yet gets the request when it starts, unless the batch was stopped."""
    await here.start()
    here.world.create("WorkflowRun", "late", {"workflow": {"name": "missing"}})
    await asyncio.sleep(5)
    both = [*W, WorkflowExecution(workflow_id="late")]
    signal = BatchOperationSignal(signal="go")
    await here.call("StartBatchOperation", job_id="job", executions=both, signal_operation=signal)
    await asyncio.sleep(10)
    found = await here.call("DescribeBatchOperation", job_id="job")
    assert found.state == BatchOperationState.BATCH_OPERATION_STATE_RUNNING
    assert counts(found) == (2, 1, 0)
    await here.call("StopBatchOperation", job_id="job")
    await asyncio.sleep(10)
    found = await here.call("DescribeBatchOperation", job_id="job")
    assert found.state == BatchOperationState.BATCH_OPERATION_STATE_COMPLETED
    assert counts(found) == (2, 1, 0)
    with pytest.raises(RpcError, match="already ended"):
        await here.call("StopBatchOperation", job_id="job")
    with pytest.raises(RpcError, match="not found"):
        await here.call("StopBatchOperation", job_id="unknown")


@served
async def test_an_unsuitable_batch_is_rejected_before_any_run_gets_it(here: Served) -> None:
    await here.start()
    refused: dict[str, dict[str, Any]] = {
        "activity type or match_all": {"reset_activities_operation": BatchOperationResetActivities()},
        "update_mask": {"update_activity_options_operation": BatchOperationUpdateActivityOptions(match_all=True)},
        "restore_original": {
            "update_activity_options_operation": BatchOperationUpdateActivityOptions(
                match_all=True, restore_original=True, update_mask=FieldMask(paths=["task_queue"])
            )
        },
        "cannot be changed": {
            "update_activity_options_operation": BatchOperationUpdateActivityOptions(
                match_all=True, update_mask=FieldMask(paths=["nonsense"])
            )
        },
        "build_id": {"reset_operation": BatchOperationReset(options=ResetOptions(build_id="1"))},
    }
    for message, fields in refused.items():
        with pytest.raises(RpcError, match=message) as error:
            await here.call("StartBatchOperation", job_id="job", executions=W, **fields)
        assert error.value.code is grpc.StatusCode.INVALID_ARGUMENT
    listed = await here.call("ListBatchOperations")
    assert not listed.operation_info
