"""The start of a workflow is recorded with its first decision: saved requests, and no loss after a crash."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType, WorkflowIdConflictPolicy
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueResponse

from perdure.frontend.errors import RpcError
from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.store import Object
from rpc.served import Served, activity, complete_workflow, names, served

MINUTE = timedelta(minutes=1)
MAX_REQUESTS = 4
"""For a workflow with one activity: its creation, two decisions, and the result of the activity."""
W = WorkflowExecution(workflow_id="w")


def run_of(it: Served) -> Object:
    [run] = it.world.runs().values()
    return run


def is_recorded(it: Served) -> bool:
    return "history" in run_of(it)["status"]


async def started(it: Served, **fields: Any) -> PollWorkflowTaskQueueResponse:
    """The first task of a workflow whose start is not recorded."""
    await it.start(**fields)
    task = await it.task()
    assert not is_recorded(it)
    return task


def counted(it: Served) -> Counter[str]:
    """The requests to the API server from now on, by method and path."""
    found: Counter[str] = Counter()

    def count(request: Request) -> None:
        found[f"{request.method} {request.url.partition('?')[0]}"] += 1

    it.world.server.interceptors.append(count)
    return found


def test_a_workflow_with_one_activity_takes_four_requests() -> None:
    @served
    async def hello(it: Served) -> None:
        warm = await started(it, workflow_id="warm")  # task queues and namespaces are read once
        await it.complete(warm, complete_workflow())
        requests = counted(it)
        await it.start()
        closing = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
        result = asyncio.ensure_future(
            it.call("GetWorkflowExecutionHistory", execution=W, wait_new_event=True, history_event_filter_type=closing)
        )
        await it.decide(activity("a", start_to_close_timeout=MINUTE))
        handed = await it.call("PollActivityTaskQueue")
        await it.call("RespondActivityTaskCompleted", task_token=handed.task_token)
        await it.decide(complete_workflow())
        [closed] = (await result).history.events
        assert closed.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED
        sent = {what: number for what, number in requests.items() if "watch" not in what}
        assert sum(sent.values()) <= MAX_REQUESTS, sent
        assert names(await it.history()) == [
            *("WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted"),
            *("ActivityTaskScheduled", "ActivityTaskStarted", "ActivityTaskCompleted"),
            *("WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted", "WorkflowExecutionCompleted"),
        ]

    hello()


@served
async def test_a_start_is_recorded_within_two_seconds_and_shown_as_pending_until_then(it: Served) -> None:
    await started(it)
    assert run_of(it)["status"] == {"phase": "Pending"}
    await asyncio.sleep(2)
    status = run_of(it)["status"]
    assert status["phase"] == "Running"
    assert [event["eventType"] for event in status["history"]["events"]] == [
        "WorkflowExecutionStarted",
        "WorkflowTaskScheduled",
    ]


@served
async def test_a_restarted_operator_dispatches_the_workflow_again_and_rejects_the_old_task(it: Served) -> None:
    task = await started(it)
    await it.operator.kill()
    it.world.operators.remove(it.operator)
    it.restart()
    again = await it.task()
    assert names(again.history.events) == names(task.history.events)
    with pytest.raises(RpcError, match="not found"):
        await it.complete(task, complete_workflow())
    await it.complete(again, complete_workflow())
    assert names(await it.history())[-1] == "WorkflowExecutionCompleted"


@served
async def test_a_signal_is_recorded_with_the_start_before_it_is_acknowledged(it: Served) -> None:
    await it.start()
    await it.call("SignalWorkflowExecution", workflow_execution=W, signal_name="go")
    assert [event["eventType"] for event in run_of(it)["status"]["history"]["events"]] == [
        "WorkflowExecutionStarted",
        "WorkflowTaskScheduled",
        "WorkflowExecutionSignaled",
    ]


@served
async def test_a_signal_during_the_first_decision_is_recorded_before_it_is_acknowledged(it: Served) -> None:
    task = await started(it)
    await it.call("SignalWorkflowExecution", workflow_execution=W, signal_name="go")
    assert is_recorded(it)
    await it.complete(task)
    assert "WorkflowExecutionSignaled" in names(await it.history())


@pytest.mark.parametrize(
    ("rpc", "last"),
    [
        ("RequestCancelWorkflowExecution", "WorkflowExecutionCancelRequested"),
        ("TerminateWorkflowExecution", "WorkflowExecutionTerminated"),
    ],
)
def test_a_workflow_can_be_ended_before_its_start_is_recorded(rpc: str, last: str) -> None:
    @served
    async def ended(it: Served) -> None:
        await it.start()
        await it.call(rpc, workflow_execution=W)
        assert run_of(it)["status"]["history"]["events"][-1]["eventType"] == last

    ended()


@served
async def test_a_workflow_can_be_deleted_before_its_start_is_recorded(it: Served) -> None:
    task = await started(it)
    it.world.delete("workflowruns", run_of(it)["metadata"]["name"])
    with pytest.raises(RpcError, match=r"not found|completed"):
        await it.complete(task, complete_workflow())
    assert it.world.server.of("workflowruns") == []


@served
async def test_clients_see_only_the_recorded_state_of_a_workflow(it: Served) -> None:
    await started(it)
    listed = await it.call("ListWorkflowExecutions", query="ExecutionStatus = 'Running'")
    assert [each.execution.workflow_id for each in listed.executions] == ["w"]
    assert not is_recorded(it)
    described = await it.call("DescribeWorkflowExecution", execution=W)
    assert described.workflow_execution_info.history_length == 3  # with the task that the worker has
    assert is_recorded(it)


@served
async def test_a_run_that_waits_for_the_workflow_id_causes_the_start_to_be_recorded(it: Served) -> None:
    await started(it)
    before, replaced = it.world.loop.time(), WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING
    await it.start(request_id="other", workflow_id_conflict_policy=replaced)
    assert it.world.loop.time() - before < 0.5
    assert sorted(run["status"]["phase"] for run in it.world.runs().values()) == ["Pending", "Terminated"]


@served
async def test_a_start_is_recorded_despite_a_conflicting_write_of_another_client(it: Served) -> None:
    task = await started(it)
    name = run_of(it)["metadata"]["name"]
    it.world.edit("workflowruns", name, lambda run: run["metadata"].setdefault("labels", {}).update(team="billing"))
    await it.complete(task, complete_workflow())
    run = run_of(it)
    assert run["metadata"]["labels"] == {"team": "billing"}
    assert run["status"]["phase"] == "Completed"
