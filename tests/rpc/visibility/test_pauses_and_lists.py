"""Pauses of whole workflows, and the lists of older clients."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.filter.v1 import StartTimeFilter, StatusFilter, WorkflowExecutionFilter, WorkflowTypeFilter

from perdure.frontend.errors import RpcError
from rpc.served import Served, activity, complete_workflow, served


@served
async def test_a_paused_workflow_dispatches_no_task_until_it_is_unpaused(here: Served) -> None:
    await here.start()
    paused = {"workflow_id": "w", "reason": "maintenance", "request_id": "1"}
    await here.call("PauseWorkflowExecution", **paused)
    await here.call("PauseWorkflowExecution", **paused)
    with pytest.raises(RpcError, match="already paused"):
        await here.call("PauseWorkflowExecution", workflow_id="w", request_id="2")
    found = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    info = found.workflow_extended_info.pause_info
    assert (info.reason, info.identity, info.HasField("paused_time")) == ("maintenance", "worker", True)
    waiting = asyncio.ensure_future(here.task())
    await asyncio.sleep(30)
    assert not waiting.done()
    await here.call("UnpauseWorkflowExecution", workflow_id="w")
    await waiting
    with pytest.raises(RpcError, match="not paused"):
        await here.call("UnpauseWorkflowExecution", workflow_id="w")
    with pytest.raises(RpcError, match="not found"):
        await here.call("PauseWorkflowExecution", workflow_id="nobody")


@served
async def test_older_clients_can_list_open_and_closed_workflows(here: Served) -> None:
    await here.start("it's done")
    await here.decide(complete_workflow())
    await asyncio.sleep(10)
    await here.start("open")

    async def ids(rpc: str, **filters: object) -> list[str]:
        found = await here.call(rpc, **filters)
        return [each.execution.workflow_id for each in found.executions]

    assert await ids("ListOpenWorkflowExecutions") == ["open"]
    assert await ids("ListClosedWorkflowExecutions") == ["it's done"]
    named = WorkflowExecutionFilter(workflow_id="it's done")
    assert await ids("ListClosedWorkflowExecutions", execution_filter=named) == ["it's done"]
    assert await ids("ListOpenWorkflowExecutions", execution_filter=named) == []
    assert await ids("ListOpenWorkflowExecutions", type_filter=WorkflowTypeFilter(name="Order")) == ["open"]
    assert await ids("ListOpenWorkflowExecutions", type_filter=WorkflowTypeFilter(name="Other")) == []
    failed = StatusFilter(status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_FAILED)
    completed = StatusFilter(status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED)
    assert await ids("ListClosedWorkflowExecutions", status_filter=failed) == []
    assert await ids("ListClosedWorkflowExecutions", status_filter=completed) == ["it's done"]
    found = await here.call("ListOpenWorkflowExecutions")
    times = StartTimeFilter(latest_time=found.executions[0].start_time)
    assert await ids("ListOpenWorkflowExecutions", start_time_filter=times) == ["open"]
    times.latest_time.seconds -= 1
    assert await ids("ListOpenWorkflowExecutions", start_time_filter=times) == []


@served
async def test_a_pause_without_an_identity_names_the_user(here: Served) -> None:
    """The Web UI sends no identity."""
    await here.start()
    await here.call("PauseWorkflowExecution", principal="ada", workflow_id="w", request_id="1", identity="")
    found = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    assert found.workflow_extended_info.pause_info.identity == "ada"
    await here.call("UnpauseWorkflowExecution", workflow_id="w")
    await here.decide(activity("a", start_to_close_timeout=timedelta(minutes=1)))
    execution = WorkflowExecution(workflow_id="w")
    await here.call("PauseActivity", principal="eve", execution=execution, id="a", identity="")
    found = await here.call("DescribeWorkflowExecution", execution=execution)
    assert found.pending_activities[0].pause_info.manual.identity == "eve"
