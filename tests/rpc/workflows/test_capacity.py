"""Clients that start workflows in a namespace with too many open runs, or while the operator is short of memory."""

import asyncio

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType

from perdure.controller.capacity import CapacitySettings
from perdure.frontend.errors import RpcError
from rpc.served import Served, complete_workflow, served


async def limited(here: Served, capacity: CapacitySettings) -> None:
    """Replace the operator by one with these limits."""
    here.world.capacity = capacity
    await here.operator.kill()
    here.world.operators.remove(here.operator)
    here.restart()


async def refused(here: Served, workflow_id: str, message: str) -> None:
    with pytest.raises(RpcError, match=message) as found:
        await here.start(workflow_id)
    assert found.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert workflow_id not in {each["spec"]["workflowId"] for each in here.world.runs().values()}


@served
async def test_a_namespace_with_too_many_open_runs_gets_no_more(here: Served) -> None:
    await limited(here, CapacitySettings(open_runs=1))
    first = await here.start("first")
    await asyncio.sleep(5)  # the start is recorded within a second
    await refused(here, "second", "the namespace has 1 open runs, the most that a namespace may have")
    assert (await here.start("first")).run_id == first.run_id, "a repeated request gets its run"
    signaled = await here.call(
        "SignalWithStartWorkflowExecution",
        workflow_id="first",
        workflow_type=WorkflowType(name="Order"),
        signal_name="go",
        request_id="signal",
    )
    assert signaled.run_id == first.run_id
    await here.decide(complete_workflow())
    assert (await here.start("second")).run_id


@served
async def test_what_is_open_continues_while_memory_is_short(here: Served) -> None:
    used = 0.5
    await limited(here, CapacitySettings(memory_in_use=lambda: used))
    await here.start("open")
    used = 0.95
    await asyncio.sleep(2)  # it is read once a second
    await refused(here, "new", "the operator uses more than 90% of its memory limit")
    await here.call(
        "SignalWorkflowExecution",
        workflow_execution=WorkflowExecution(workflow_id="open"),
        signal_name="go",
        request_id="signal",
    )
    await here.decide(complete_workflow())
