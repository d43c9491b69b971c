"""A workflow that hibernates is, for clients and workers, like one in memory."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request

from rpc.served import Served, complete_workflow, names, served, timer

HOURS = timedelta(hours=2)
W = WorkflowExecution(workflow_id="w")


async def asleep(here: Served) -> str:
    """Start a workflow that waits for two hours, and wait until it hibernates; returns its run ID."""
    run_id = (await here.start()).run_id
    await here.decide(timer("long", HOURS))
    await asyncio.sleep(300)
    assert hibernates(here, run_id)
    return run_id


def hibernates(here: Served, run_id: str) -> bool:
    runs = here.operator.manager.runs
    return run_id in runs.hibernation and runs.get(run_id) is None


@served
async def test_its_timer_fires_on_time(here: Served) -> None:
    await asleep(here)
    await asyncio.sleep(HOURS.total_seconds() - 330)
    await here.decide(complete_workflow())
    events = await here.history()
    started, fired = (
        each
        for each in events
        if each.event_type in {EventType.EVENT_TYPE_TIMER_STARTED, EventType.EVENT_TYPE_TIMER_FIRED}
    )
    late = fired.event_time.ToDatetime() - started.event_time.ToDatetime() - HOURS
    assert timedelta(0) <= late < timedelta(seconds=1)


@served
async def test_a_signal_reaches_it(here: Served) -> None:
    await asleep(here)
    await here.call("SignalWorkflowExecution", workflow_execution=W, signal_name="go", request_id="one")
    await here.decide(complete_workflow())
    assert "WorkflowExecutionSignaled" in names(await here.history())


@served
async def test_a_run_that_changes_often_stays_in_memory(here: Served) -> None:
    spec = {"steps": [{"name": "wait", "waitForSignal": {"name": "decided"}}]}
    here.world.server.create("workflows", {"metadata": {"name": "approval"}, "spec": spec})
    started = await here.start(queue=TaskQueue(name="workflows"), workflow_type=WorkflowType(name="approval"))
    for number in range(5):
        await asyncio.sleep(45)
        assert not hibernates(here, started.run_id)
        await here.call("SignalWorkflowExecution", workflow_execution=W, signal_name="other", request_id=f"{number}")
    await asyncio.sleep(120)
    assert hibernates(here, started.run_id)


@served
async def test_it_answers_queries_and_hibernates_again(here: Served) -> None:
    run_id = await asleep(here)
    asked = asyncio.create_task(here.call("QueryWorkflow", execution=W, query=WorkflowQuery(query_type="state")))
    task = await here.task()
    assert task.query.query_type == "state"
    answer = Payloads(payloads=[Payload(data=b"1")])
    await here.call("RespondQueryTaskCompleted", task_token=task.task_token, completed_type=1, query_result=answer)
    assert (await asked).query_result == answer
    await asyncio.sleep(120)
    assert hibernates(here, run_id)


@served
async def test_an_update_reaches_a_worker(here: Served) -> None:
    await asleep(here)
    request = Request(meta=Meta(update_id="u"), input=Input(name="change"))
    sent = asyncio.create_task(here.call("UpdateWorkflowExecution", workflow_execution=W, request=request))
    task = await here.task()
    assert [each.protocol_instance_id for each in task.messages] == ["u"]
    sent.cancel()


@served
async def test_a_client_that_waits_for_its_end_gets_it(here: Served) -> None:
    run_id = await asleep(here)
    waits = asyncio.create_task(
        here.history(
            wait_new_event=True,
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        )
    )
    await asyncio.sleep(5)
    await here.call("TerminateWorkflowExecution", workflow_execution=W, reason="enough")
    assert names(await waits) == ["WorkflowExecutionTerminated"]
    assert not hibernates(here, run_id)


@served
async def test_a_client_that_has_read_its_history_gets_the_next_event(here: Served) -> None:
    await asleep(here)
    first = await here.call("GetWorkflowExecutionHistory", execution=W, wait_new_event=True)
    assert len(first.history.events) == 5
    waits = asyncio.create_task(
        here.call(
            "GetWorkflowExecutionHistory", execution=W, wait_new_event=True, next_page_token=first.next_page_token
        )
    )
    await asyncio.sleep(5)
    await here.call("SignalWorkflowExecution", workflow_execution=W, signal_name="go", request_id="one")
    assert names((await waits).history.events)[0] == "WorkflowExecutionSignaled"


@served
async def test_lists_and_descriptions_have_it(here: Served) -> None:
    await asleep(here)
    found = await here.call("ListWorkflowExecutions", query="ExecutionStatus = 'Running'")
    assert [each.execution.workflow_id for each in found.executions] == ["w"]
    described = await here.call("DescribeWorkflowExecution", execution=W)
    assert described.workflow_execution_info.history_length == 5


@served
async def test_an_id_in_use_is_refused(here: Served) -> None:
    await asleep(here)
    with pytest.raises(Exception, match="already"):
        await here.start(request_id="another")


@served
async def test_it_hibernates_after_a_restart_without_being_in_memory(here: Served) -> None:
    run_id = await asleep(here)
    await here.operator.kill()
    here.world.operators.remove(here.operator)
    here.restart()
    await asyncio.sleep(30)
    assert hibernates(here, run_id)
    await asyncio.sleep(HOURS.total_seconds() - 330)
    await here.decide(complete_workflow())
    assert names(await here.history())[-1] == "WorkflowExecutionCompleted"
