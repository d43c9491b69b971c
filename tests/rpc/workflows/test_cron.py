"""Cron schedules of starts, as clients and workers see them."""

import asyncio

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import CommandType, WorkflowExecutionStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueResponse

from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.errors import RpcError
from rpc.served import Served, served

INPUT = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b'"input"')])
RESULT = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b'"done"')])


def complete() -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION)
    command.complete_workflow_execution_command_attributes.result.CopyFrom(RESULT)
    return command


@served
async def test_a_cron_schedule_starts_one_run_an_hour_and_survives_a_restart(here: Served) -> None:
    signaled = await here.call(
        "SignalWithStartWorkflowExecution",
        workflow_id="w",
        workflow_type=WorkflowType(name="Order"),
        signal_name="go",
        cron_schedule="@hourly",
        input=INPUT,
    )
    runs = [signaled.run_id]
    for number in range(3):
        described = await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))
        info = described.workflow_execution_info
        assert info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
        assert (info.execution.run_id, info.first_run_id) == (runs[-1], runs[0])
        due = info.execution_time.ToDatetime()
        assert (due.minute, due.second) == (0, 0), "a whole hour, rounded up to a second at most"
        if number == 1:
            await here.operator.kill()
            here.world.operators.remove(here.operator)
            here.restart()
        task = await _task(here)
        assert task.workflow_execution.run_id == runs[-1]
        started = task.history.events[0].workflow_execution_started_event_attributes
        assert (started.cron_schedule, started.first_execution_run_id) == ("@hourly", runs[0])
        assert started.input == INPUT
        assert bool(started.last_completion_result.payloads) == (number > 0)
        await here.call("RespondWorkflowTaskCompleted", task_token=task.task_token, commands=[complete()])
        end = (await here.history(run_id=runs[-1]))[-1].workflow_execution_completed_event_attributes
        assert end.new_execution_run_id
        runs.append(end.new_execution_run_id)
    await asyncio.sleep(60)  # lists depend on the watches
    listed = await here.call("ListWorkflowExecutions", query="ExecutionStatus = 'Running'")
    assert [each.execution.run_id for each in listed.executions] == runs[-1:]
    assert len(here.world.runs()) == len(runs), "one run for each hour"


async def _task(here: Served) -> PollWorkflowTaskQueueResponse:
    while True:
        task: PollWorkflowTaskQueueResponse = await here.call("PollWorkflowTaskQueue")
        if task.task_token:
            return task


@served
async def test_cron_schedules_that_temporal_rejects_are_rejected(here: Served) -> None:
    for schedule, message in (
        ("often", "invalid CronSchedule."),
        ("0 0 30 2 *", "invalid CronSchedule, no time can be found to satisfy the schedule"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.start(cron_schedule=schedule)
    with pytest.raises(RpcError, match="CronSchedule is not supported for Workflows; create a Schedule"):
        await here.start(cron_schedule="@daily", queue=TaskQueue(name=WORKFLOWS_QUEUE))
    assert not here.world.runs(), "nothing was started"


@served
async def test_a_reset_run_is_followed_by_the_next_run_of_its_cron_schedule(here: Served) -> None:
    execution = WorkflowExecution(workflow_id="w")
    before = (await here.start(cron_schedule="@hourly")).run_id
    task = await _task(here)
    await here.complete(task)
    reset = await here.call(
        "ResetWorkflowExecution", workflow_execution=execution, workflow_task_finish_event_id=4, request_id="reset"
    )
    task = await _task(here)
    assert task.workflow_execution.run_id == reset.run_id
    await here.complete(task, complete())
    end = (await here.history(run_id=reset.run_id))[-1].workflow_execution_completed_event_attributes
    task = await _task(here)
    assert task.workflow_execution.run_id == end.new_execution_run_id
    started = task.history.events[0].workflow_execution_started_event_attributes
    assert (started.cron_schedule, started.first_execution_run_id) == ("@hourly", before)
    assert started.last_completion_result == RESULT
