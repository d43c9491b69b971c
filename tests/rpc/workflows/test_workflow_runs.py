"""A run of a Workflow in Temporal's clients: its task queue, the IDs in its events, and its queries."""

import asyncio
import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.sdk.v1 import UserMetadata
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.frontend.errors import RpcError
from rpc.served import Served, served

APPROVAL = {
    "activities": [{"name": "file", "startToCloseTimeout": "1m", "container": {"image": "shop"}}],
    "steps": [
        {"name": "nap", "sleep": {"duration": "10s"}},
        {"name": "file", "activity": {"name": "file"}},
        {"name": "wait", "waitForSignal": {"name": "decided"}},
    ],
}


async def started(here: Served, **fields: Any) -> None:
    """Start a run of a Workflow, as the Web UI does."""
    here.world.server.create("workflows", {"metadata": {"name": "approval"}, "spec": APPROVAL})
    await here.call(
        "StartWorkflowExecution",
        queue=TaskQueue(name="workflows"),
        workflow_id="w",
        workflow_type=WorkflowType(name="approval"),
        request_id="w",
        **fields,
    )


async def asked(here: Served, query: str) -> Any:
    answer = await here.call(
        "QueryWorkflow", execution=WorkflowExecution(workflow_id="w"), query=WorkflowQuery(query_type=query)
    )
    return json.loads(answer.query_result.payloads[0].data)


@served
async def test_events_have_the_names_of_their_steps_as_summaries(here: Served) -> None:
    await started(here)
    await asyncio.sleep(30)
    events = await here.history()
    summaries = {
        event.event_id: json.loads(event.user_metadata.summary.data)
        for event in events
        if event.HasField("user_metadata")
    }
    assert summaries == {2: "nap", 4: "file"}
    assert events[0].workflow_execution_started_event_attributes.task_queue.name == "workflows"
    last = await here.call("GetWorkflowExecutionHistoryReverse", execution=WorkflowExecution(workflow_id="w"))
    assert [event.user_metadata.summary.data for event in last.history.events if event.event_id == 4] == [b'"file"']


@served
async def test_a_yaml_run_has_the_workflows_task_queue(here: Served) -> None:
    await started(here)
    execution = WorkflowExecution(workflow_id="w")
    described = await here.call("DescribeWorkflowExecution", execution=execution)
    assert described.execution_config.task_queue.name == "workflows"
    assert described.workflow_execution_info.task_queue == "workflows"
    found = await here.call("ListWorkflowExecutions", query="TaskQueue = 'workflows'")
    assert [each.execution.workflow_id for each in found.executions] == ["w"]


@served
async def test_summary_and_details_of_the_client_are_kept(here: Served) -> None:
    summary = Payload(metadata={"encoding": b"json/plain"}, data=b'"Order of Ada"')
    await started(here, user_metadata=UserMetadata(summary=summary))
    described = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
    assert described.execution_config.user_metadata.summary == summary


@served
async def test_a_yaml_run_answers_queries_while_open_and_closed(here: Served) -> None:
    await started(here)
    await asyncio.sleep(30)
    assert [step["status"] for step in await asked(here, "steps")] == ["Succeeded", "Succeeded", "Waiting"]
    assert (await asked(here, "__stack_trace")).splitlines()[0] == "at wait (waitForSignal decided)"
    assert (await asked(here, "__temporal_workflow_metadata"))["definition"]["type"] == "approval"
    await here.call("TerminateWorkflowExecution", workflow_execution=WorkflowExecution(workflow_id="w"))
    assert [step["status"] for step in await asked(here, "steps")] == ["Succeeded", "Succeeded", "Stopped"]
    with pytest.raises(RpcError, match="unknown queryType other: a run of a Workflow answers steps, __stack_trace"):
        await asked(here, "other")


@served
async def test_the_operator_polls_the_workflows_task_queue(here: Served) -> None:
    for kind, want in ((TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, 1), (TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, 0)):
        queue = TaskQueue(name="workflows")
        described = await here.call("DescribeTaskQueue", queue=queue, task_queue_type=kind)
        assert len(described.pollers) == want
