"""Histories, as different clients see them."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import RetryPolicy, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, HistoryEventFilterType
from temporalio.api.history.v1 import HistoryEvent

from perdure.frontend.workflows.histories import as_continued
from perdure.runtime import status_encoding
from perdure.runtime.segments import MAX_TAIL_EVENTS
from rpc.served import QUEUE, Served, names, served, timer

CLOSE = HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT
FOLLOWS = (("supported-features", "other,follows-next-run-id"),)


def fail_workflow(message: str) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION)
    failure = command.fail_workflow_execution_command_attributes.failure
    failure.message = message
    failure.application_failure_info.SetInParent()
    return command


def continue_as_new() -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    command.continue_as_new_workflow_execution_command_attributes.workflow_type.name = "Order"
    return command


@served
async def test_an_older_client_sees_a_retried_run_as_continued_as_new(here: Served) -> None:
    policy = RetryPolicy(maximum_attempts=2)
    policy.initial_interval.FromTimedelta(timedelta(seconds=1))
    first = (await here.start(retry_policy=policy)).run_id
    await here.decide(fail_workflow("one"))
    execution = WorkflowExecution(workflow_id="w", run_id=first)
    asked = {"execution": execution, "history_event_filter_type": CLOSE, "wait_new_event": True}
    ended = {}
    for metadata in ((), FOLLOWS):
        (ended[metadata],) = (await here.call("GetWorkflowExecutionHistory", metadata, **asked)).history.events
    assert names(ended.values()) == ["WorkflowExecutionContinuedAsNew", "WorkflowExecutionFailed"]
    continued = ended[()].workflow_execution_continued_as_new_event_attributes
    failed = ended[FOLLOWS].workflow_execution_failed_event_attributes
    assert continued.new_execution_run_id == failed.new_execution_run_id != ""
    assert continued.failure == failed.failure
    assert ended[()].event_id == ended[FOLLOWS].event_id
    assert names(await here.history(run_id=first))[-1] == "WorkflowExecutionFailed", "a whole history is as recorded"

    await here.decide(fail_workflow("two"))
    (last,) = (
        await here.call("GetWorkflowExecutionHistory", **(asked | {"execution": WorkflowExecution(workflow_id="w")}))
    ).history.events
    assert names([last]) == ["WorkflowExecutionFailed"], "no run follows the last attempt"


@pytest.mark.parametrize("name", ["completed", "timed_out"])
def test_every_closing_event_with_a_next_run_becomes_continue_as_new(name: str) -> None:
    event = HistoryEvent(event_id=7)
    ended = getattr(event, f"workflow_execution_{name}_event_attributes")
    ended.SetInParent()
    assert as_continued(event) is event
    ended.new_execution_run_id = "next"
    if name == "completed":
        ended.result.payloads.add(data=b"1")
    made = as_continued(event).workflow_execution_continued_as_new_event_attributes
    assert made.new_execution_run_id == "next"
    assert bool(made.last_completion_result.payloads) == (name == "completed")
    assert made.HasField("failure") == (name == "timed_out")


@served
async def test_temporals_cli_and_ui_get_only_recorded_events(here: Served) -> None:
    await here.start()
    await here.task()
    execution = WorkflowExecution(workflow_id="w")
    shown = await here.call("GetWorkflowExecutionHistory", (("client-name", "temporal-cli"),), execution=execution)
    assert names(shown.history.events) == ["WorkflowExecutionStarted", "WorkflowTaskScheduled"]
    assert names(await here.history())[-1] == "WorkflowTaskStarted"


@served
async def test_clients_do_not_see_the_gap_between_a_run_and_its_successor(here: Served) -> None:
    first = (await here.start()).run_id
    execution = WorkflowExecution(workflow_id="w")
    for _ in range(5):
        await here.decide(continue_as_new())
        described, history, backwards = await asyncio.gather(
            here.call("DescribeWorkflowExecution", execution=execution),
            here.history(),
            here.call("GetWorkflowExecutionHistoryReverse", execution=execution),
        )
        assert described.execution_config.task_queue.name == QUEUE
        assert described.workflow_execution_info.execution.run_id != first
        assert names(history)[0] == names(backwards.history.events)[-1] == "WorkflowExecutionStarted"
        assert history[0].workflow_execution_started_event_attributes.continued_execution_run_id


@served
async def test_a_closed_run_of_an_earlier_version_is_readable(here: Served) -> None:
    await here.start()
    await here.decide(fail_workflow("one"))
    execution = WorkflowExecution(workflow_id="w")
    want = await here.history(), await here.call("DescribeWorkflowExecution", execution=execution)
    (run,) = here.world.server.of("workflowruns")
    values = status_encoding.decode(run)["status"]
    assert values != run["status"]
    await here.world.operators.pop().kill()
    here.world.edit("workflowruns", run["metadata"]["name"], lambda obj: obj.update(status=values))
    here.restart()
    await asyncio.sleep(10)
    assert (await here.history(), await here.call("DescribeWorkflowExecution", execution=execution)) == want


@served
async def test_a_history_with_only_sealed_events_is_complete(here: Served) -> None:
    await here.start()
    await here.decide(*[timer(f"t{number}", timedelta(hours=1)) for number in range(MAX_TAIL_EVENTS - 6)])
    execution = WorkflowExecution(workflow_id="w")
    await here.call("SignalWorkflowExecution", workflow_execution=execution, signal_name="go")
    for _ in range(2):  # the second attempt writes no event, and seals those before
        await here.call("RespondWorkflowTaskFailed", task_token=(await here.task()).task_token)
    task = await here.task()
    (run,) = here.world.server.of("workflowruns")
    assert run["status"]["history"]["events"] == []
    complete = names(await here.history())
    assert complete.count("TimerStarted") == MAX_TAIL_EVENTS - 6
    assert names(task.history.events) == complete
    await here.call("DescribeWorkflowExecution", execution=execution)
    assert names(await here.history(history_event_filter_type=CLOSE)) == ["WorkflowTaskFailed"]
