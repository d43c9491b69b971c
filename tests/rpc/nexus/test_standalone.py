"""Standalone Nexus operations without an SDK: across namespaces, from manifests, after restarts, and in lists."""

import asyncio
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import Link, Payload, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import NexusOperationExecutionStatus, NexusOperationWaitStage
from temporalio.api.nexus.v1 import StartOperationResponse
from temporalio.api.workflowservice.v1 import (
    DescribeNexusOperationExecutionResponse,
    PollNexusOperationExecutionResponse,
    StartNexusOperationExecutionResponse,
)

from perdure.frontend.errors import RpcError
from rpc.nexus.calls import FIVE, answer, charge, endpoint, handle, replace, start_for
from rpc.served import Served, complete_workflow, served

PAID = Payload(metadata={"encoding": b"json/plain"}, data=b'"paid"')
SYNC = StartOperationResponse.Sync(payload=PAID)
STARTED = NexusOperationWaitStage.NEXUS_OPERATION_WAIT_STAGE_STARTED
CLOSED = NexusOperationWaitStage.NEXUS_OPERATION_WAIT_STAGE_CLOSED
RUNNING = NexusOperationExecutionStatus.NEXUS_OPERATION_EXECUTION_STATUS_RUNNING


async def begin(here: Served, operation_id: str = "o", **fields: Any) -> StartNexusOperationExecutionResponse:
    """Start a standalone operation of the endpoint ``billing``."""
    fields = {"endpoint": "billing", "service": "invoices", "operation": "charge", "input": FIVE, **fields}
    started: StartNexusOperationExecutionResponse = await here.call(
        "StartNexusOperationExecution", operation_id=operation_id, request_id=operation_id, **fields
    )
    return started


async def outcome(here: Served, operation_id: str = "o", **fields: Any) -> PollNexusOperationExecutionResponse:
    polled: PollNexusOperationExecutionResponse = await here.call(
        "PollNexusOperationExecution", operation_id=operation_id, **fields
    )
    return polled


async def describe(here: Served, operation_id: str = "o") -> DescribeNexusOperationExecutionResponse:
    described: DescribeNexusOperationExecutionResponse = await here.call(
        "DescribeNexusOperationExecution", operation_id=operation_id, include_input=True
    )
    return described


@served
async def test_a_handler_of_another_namespace_responds_and_gets_the_caller(here: Served) -> None:
    await endpoint(here)
    begun = await begin(here)
    task = await handle(here)
    said = task.request.start_operation
    assert (said.service, said.operation, said.payload) == ("invoices", "charge", FIVE)
    assert [link.url for link in said.links] == [
        f"temporal:///namespaces/default/nexus-operations/o/{begun.run_id}/details"
    ]
    await answer(here, task, sync_success=SYNC)
    assert (await outcome(here)).result == PAID


@served
async def test_a_workflow_of_another_namespace_completes_an_operation_after_a_restart(here: Served) -> None:
    await endpoint(here)
    await begin(here)
    await start_for(here, await handle(here))
    reported = await outcome(here, wait_stage=STARTED)
    assert (reported.wait_stage, reported.operation_token) == (STARTED, "charge")
    await replace(here)
    assert (await describe(here)).info.status == RUNNING
    await charge(here, complete_workflow())
    reported = await outcome(here)
    assert (reported.wait_stage, reported.HasField("failure")) == (CLOSED, False)


@served
async def test_an_endpoint_that_does_not_admit_the_namespace_is_not_found(here: Served) -> None:
    await endpoint(here, callers="shop")
    for name in ("billing", "nowhere"):
        with pytest.raises(RpcError, match="could not find Nexus endpoint") as refused:
            await begin(here, endpoint=name)
        assert refused.value.code is grpc.StatusCode.NOT_FOUND
    here.world.create("WorkflowRun", "charge", manifest())
    async with asyncio.timeout(600):
        while not (await here.call("CountNexusOperationExecutions", query="ExecutionStatus = 'Failed'")).count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (await outcome(here)).failure.nexus_handler_failure_info.type == "UNAUTHORIZED"


def manifest() -> dict[str, Any]:
    operation = {"endpoint": "billing", "service": "invoices", "operation": "charge", "headers": {"trace": "id"}}
    return {"nexusOperation": operation, "workflowId": "o", "input": {"order": 17}}


@served
async def test_a_manifest_starts_an_operation_that_clients_see(here: Served) -> None:
    await endpoint(here)
    here.world.create("WorkflowRun", "charge", manifest())
    task = await handle(here)
    assert task.request.start_operation.payload.data == b'{"order":17}'
    assert task.request.header["trace"] == "id"
    with pytest.raises(RpcError, match="already started"):
        await begin(here)
    await answer(here, task, sync_success=SYNC)
    assert (await outcome(here)).result == PAID
    assert (await describe(here)).input.data == b'{"order":17}'
    status = here.world.run("charge")["status"]
    assert (status["phase"], status["output"]) == ("Completed", "paid")


@served
async def test_operations_activities_and_workflows_can_have_the_same_id(here: Served) -> None:
    await endpoint(here)
    await here.start("o")
    begun = await begin(here)
    listed = await here.call("ListNexusOperationExecutions", query="OperationId = 'o'")
    assert [each.run_id for each in listed.operations] == [begun.run_id]
    workflows = await here.call("ListWorkflowExecutions")
    assert [each.execution.workflow_id for each in workflows.executions] == ["o"]
    assert not (await here.call("ListActivityExecutions")).executions
    with pytest.raises(RpcError, match="not found"):
        await here.call("DescribeWorkflowExecution", execution={"workflow_id": "o", "run_id": begun.run_id})
    with pytest.raises(RpcError, match="activity not found"):
        await here.call("DescribeActivityExecution", activity_id="o", run_id=begun.run_id)


@served
async def test_a_response_for_a_terminated_operation_changes_nothing(here: Served) -> None:
    await endpoint(here)
    await begin(here)
    task = await handle(here)
    await here.call("TerminateNexusOperationExecution", operation_id="o", reason="no more")
    with pytest.raises(RpcError, match="Nexus task not found"):
        await answer(here, task, sync_success=SYNC)
    assert (await outcome(here)).failure.message == "no more"


@served
async def test_a_signal_keeps_the_links_to_the_operation_that_sent_it(here: Served) -> None:
    link = Link(nexus_operation=Link.NexusOperation(namespace="shop", operation_id="o", run_id="r"))
    await here.start()
    execution = WorkflowExecution(workflow_id="w")
    await here.call("SignalWorkflowExecution", workflow_execution=execution, signal_name="paid", links=[link])
    await here.call(
        "SignalWithStartWorkflowExecution",
        workflow_id="other",
        workflow_type=WorkflowType(name="Type"),
        signal_name="paid",
        links=[link],
    )
    for workflow_id in ("w", "other"):
        events = await here.history(workflow_id)
        (signaled,) = (event for event in events if event.HasField("workflow_execution_signaled_event_attributes"))
        assert list(signaled.links) == [link]
