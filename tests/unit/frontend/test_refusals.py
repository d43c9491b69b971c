"""Unsupported requests of clients are rejected with the field."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.batch.v1 import BatchOperationReset
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import ResetOptions
from temporalio.api.enums.v1 import CommandType, WorkflowIdConflictPolicy
from temporalio.api.workflowservice.v1 import (
    ResetWorkflowExecutionRequest,
    SignalWithStartWorkflowExecutionRequest,
    StartBatchOperationRequest,
    StartWorkflowExecutionRequest,
)

from perdure.engine.retry import RetryPolicy
from perdure.engine.state import OpenActivityOptions
from perdure.frontend.activities.changes import changed_options
from perdure.frontend.errors import RpcError
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.workflows.batches import run_request
from perdure.frontend.workflows.commands import BadCommandError, CommandReader
from perdure.frontend.workflows.starts import id_policies, start_refused
from support.managers import client_without_server, frontend_over

NOW = OpenActivityOptions(task_queue="orders", retry_policy=RetryPolicy(maximum_attempts=7))


async def call(rpc: str, request: Any) -> None:
    """Call an operator without an API server."""
    async with client_without_server() as client:
        await frontend_over(client).handlers()[rpc](request, CallContext(None))


def test_49_an_invalid_cron_schedule_of_a_start_is_rejected() -> None:
    request = StartWorkflowExecutionRequest(workflow_id="a", cron_schedule="often")
    request.workflow_type.name = request.task_queue.name = "a"
    with pytest.raises(RpcError, match=r"invalid CronSchedule\."):
        id_policies(request, "Fail")
    request.cron_schedule = "@daily"
    id_policies(request, "Fail")
    request.workflow_start_delay.FromSeconds(1)
    with pytest.raises(RpcError, match="CronSchedule and WorkflowStartDelay may not be used together"):
        id_policies(request, "Fail")


@pytest.mark.parametrize("delay", [{"seconds": 2**62}, {"seconds": 1}, {"nanos": 1}])
def test_an_update_with_start_cannot_be_delayed(delay: dict[str, int]) -> None:
    request = StartWorkflowExecutionRequest()
    assert not start_refused(request)
    request.workflow_start_delay.MergeFrom(Duration(**delay))
    assert start_refused(request) == "WorkflowStartDelay is not supported."


async def test_signal_with_start_rejects_the_conflict_policy_fail() -> None:
    fail = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_FAIL
    request = SignalWithStartWorkflowExecutionRequest(signal_name="go", workflow_id_conflict_policy=fail)
    with pytest.raises(RpcError, match="WORKFLOW_ID_CONFLICT_POLICY_FAIL is not supported") as caught:
        await call("SignalWithStartWorkflowExecution", request)
    assert caught.value.code is StatusCode.INVALID_ARGUMENT


def test_49_an_invalid_cron_schedule_of_a_child_fails_the_workflow_task() -> None:
    command = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    said = command.start_child_workflow_execution_command_attributes
    said.workflow_id = said.workflow_type.name = "a"
    said.cron_schedule = "often"
    with pytest.raises(BadCommandError, match="invalid CronSchedule on StartChildWorkflowExecutionCommand") as caught:
        CommandReader(3, {}).read([command], [])
    assert caught.value.cause == "BadStartChildExecutionAttributes"


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("start_child_workflow_execution", "BadStartChildExecutionAttributes"),
        ("signal_external_workflow_execution", "BadSignalWorkflowExecutionAttributes"),
        (
            "request_cancel_external_workflow_execution",
            "BadRequestCancelExternalWorkflowExecutionAttributes",
        ),
    ],
)
def test_a_command_about_another_namespace_fails_the_workflow_task(kind: str, cause: str) -> None:
    command = Command(command_type=CommandType.Value(f"COMMAND_TYPE_{kind.upper()}"))  # type: ignore[arg-type]
    getattr(command, f"{kind}_command_attributes").namespace = "theirs"
    with pytest.raises(BadCommandError, match="between ours and theirs") as caught:
        CommandReader(3, {}, "ours").read([command], [])
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("start_delay", {}),
        ("task_queue.name", {"task_queue": {"name": "pods/tool"}}),
        ("retry_policy", {"retry_policy": {"maximum_attempts": -1}}),
        ("start_to_close_timeout", {}),
    ],
)
def test_invalid_activity_options_are_rejected(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(RpcError, match=path.partition(".")[0]):
        changed_options(NOW, ActivityOptions(**options), [path])


def test_only_fields_in_the_mask_are_changed() -> None:
    asked = ActivityOptions(task_queue={"name": "other"}, retry_policy={"maximum_attempts": 2})
    asked.start_to_close_timeout.FromSeconds(5)
    asked.retry_policy.initial_interval.FromSeconds(9)
    changed = changed_options(NOW, asked, ["start_to_close_timeout", "retry_policy.initial_interval"])
    assert changed.task_queue == "orders"
    assert changed.start_to_close_timeout is not None
    assert (changed.retry_policy.maximum_attempts, changed.retry_policy.initial_interval.seconds) == (7, 9)


def test_a_reset_in_a_batch_requires_a_valid_target() -> None:
    request = StartBatchOperationRequest(
        reset_operation=BatchOperationReset(options=ResetOptions(workflow_task_id=8)), reason="mended"
    )
    said = {"reapplySignals": True, "eventId": 7, "reason": "mended"}
    assert run_request(request, "reset_operation") == {"reset": said}
    for asked in (
        BatchOperationReset(),
        BatchOperationReset(reset_type=99),  # type: ignore[arg-type]
        BatchOperationReset(options=ResetOptions(workflow_task_id=2**62)),
    ):
        with pytest.raises(RpcError, match="reset_operation"):
            run_request(StartBatchOperationRequest(reset_operation=asked), "reset_operation")


async def test_a_reset_to_a_too_large_event_id_is_rejected() -> None:
    request = ResetWorkflowExecutionRequest(workflow_task_finish_event_id=2**62)
    with pytest.raises(RpcError, match="WorkflowTaskFinishEventId"):
        await call("ResetWorkflowExecution", request)
