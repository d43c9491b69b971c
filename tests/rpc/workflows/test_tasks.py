"""Workflow tasks, as workers see them."""

import asyncio
from datetime import timedelta
from typing import Any

import grpc
import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import CommandType, QueryResultType, TaskQueueKind, TimeoutType, WorkflowTaskFailedCause
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.taskqueue.v1 import StickyExecutionAttributes, TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request

from perdure.frontend.errors import RpcError, denied
from perdure.frontend.transport.door import POLLS
from perdure.frontend.transport.rpc import CallContext
from rpc.served import QUEUE, Served, activity, complete_workflow, names, served, timer

PROLONG: dict[str, Any] = {"force_create_new_workflow_task": True, "return_new_workflow_task": True}


@served
async def test_a_worker_that_extends_its_task_gets_the_next_one_with_the_response(here: Served) -> None:
    await here.start()
    first = await here.task()
    others = here.operator.do(here.call("PollWorkflowTaskQueue"))
    await asyncio.sleep(1)
    second = (await here.complete(first, **PROLONG)).workflow_task
    assert names(second.history.events) == ["WorkflowTaskCompleted", "WorkflowTaskScheduled", "WorkflowTaskStarted"]
    assert (second.previous_started_event_id, second.started_event_id) == (3, 6)
    third = (await here.complete(second, timer("t", timedelta(hours=1)), **PROLONG)).workflow_task
    assert names(third.history.events)[1] == "TimerStarted"
    last = await here.complete(third, complete_workflow(), return_new_workflow_task=True)
    assert not last.HasField("workflow_task")
    assert names(await here.history()) == [
        "WorkflowExecutionStarted",
        *("WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted"),
        *("WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted", "TimerStarted"),
        *("WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted", "WorkflowExecutionCompleted"),
    ]
    assert not (await others).task_token, "another worker has taken a task that belongs to the first"


@served
async def test_a_child_that_closes_while_a_task_is_extended_is_in_the_next_one(here: Served) -> None:
    await here.start(workflow_task_timeout=timedelta(minutes=1))
    child = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    attributes = child.start_child_workflow_execution_command_attributes
    attributes.workflow_id, attributes.workflow_type.name, attributes.task_queue.name = "child", "Parcel", "parcels"
    task = (await here.complete(await here.task(), child, **PROLONG)).workflow_task
    of_child = await here.call("PollWorkflowTaskQueue", queue=TaskQueue(name="parcels"))
    await here.complete(of_child, complete_workflow())
    types: list[str] = []
    for _ in range(5):
        await asyncio.sleep(1)
        task = (await here.complete(task, **PROLONG)).workflow_task
        types += names(task.history.events)
    assert [name for name in types if "Child" in name] == [
        "ChildWorkflowExecutionStarted",
        "ChildWorkflowExecutionCompleted",
    ]


@served
async def test_the_response_contains_a_task_only_if_one_is_due_and_the_worker_requests_it(here: Served) -> None:
    await here.start()
    first = await here.complete(await here.task(), return_new_workflow_task=True)
    assert not first.HasField("workflow_task")
    await here.call("SignalWorkflowExecution", workflow_execution=WorkflowExecution(workflow_id="w"), signal_name="a")
    task = await here.task()
    await here.call("SignalWorkflowExecution", workflow_execution=WorkflowExecution(workflow_id="w"), signal_name="b")
    second = (await here.complete(task, return_new_workflow_task=True)).workflow_task
    assert names(second.history.events)[1:3] == ["WorkflowExecutionSignaled", "WorkflowTaskScheduled"]
    assert not (await here.complete(second, force_create_new_workflow_task=True)).HasField("workflow_task")
    assert (await here.task()).started_event_id > second.started_event_id


@served
async def test_a_repeated_completion_gets_the_same_task(here: Served) -> None:
    await here.start()
    task = await here.task()
    tasks = [(await here.complete(task, **PROLONG)).workflow_task for _ in range(2)]
    assert tasks[0].task_token == tasks[1].task_token != b""


@served
async def test_a_repeated_completion_with_different_commands_is_rejected(here: Served) -> None:
    await here.start()
    task = await here.task()
    await here.complete(task, timer("t", timedelta(hours=1)))
    before = names(await here.history())
    with pytest.raises(RpcError, match=r"Workflow task not found\."):
        await here.complete(task, timer("u", timedelta(hours=1)))
    assert names(await here.history()) == before


@served
async def test_an_extended_task_delivers_an_update_once_and_a_lost_task_delivers_it_again(here: Served) -> None:
    execution = WorkflowExecution(workflow_id="w")
    await here.start()
    await here.decide()
    wanted = Request(meta=Meta(update_id="u"), input=Input(name="change"))
    update = here.operator.do(here.call("UpdateWorkflowExecution", workflow_execution=execution, request=wanted))
    task = await here.task()
    assert [message.protocol_instance_id for message in task.messages] == ["u"]
    prolonged = (await here.complete(task, **PROLONG)).workflow_task
    assert not prolonged.messages
    assert names(await here.history())[-3:] == ["WorkflowTaskCompleted", "WorkflowTaskScheduled", "WorkflowTaskStarted"]
    await here.call("RespondWorkflowTaskFailed", task_token=prolonged.task_token)
    assert [message.protocol_instance_id for message in (await here.task()).messages] == ["u"]
    update.cancel()


@served
async def test_a_query_result_can_have_2_mib(here: Served) -> None:
    await here.start()
    await here.decide()
    execution, answered = WorkflowExecution(workflow_id="w"), QueryResultType.QUERY_RESULT_TYPE_ANSWERED
    for size in (2_000_000, 3_000_000):
        asked = here.operator.do(
            here.call("QueryWorkflow", execution=execution, query=WorkflowQuery(query_type="state"))
        )
        result = Payloads(payloads=[Payload(data=b"x" * size)])
        task = await here.task()
        await here.call(
            "RespondQueryTaskCompleted", task_token=task.task_token, completed_type=answered, query_result=result
        )
        if size < 2 * 1024 * 1024:
            assert (await asked).query_result == result
            continue
        with pytest.raises(RpcError, match=r"Blob data size exceeds limit\."):
            await asked


@served
async def test_a_workflow_whose_decision_is_too_large_to_send_is_terminated(here: Served) -> None:
    await here.start()
    task = await here.task()
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_GRPC_MESSAGE_TOO_LARGE
    await here.call("RespondWorkflowTaskFailed", task_token=task.task_token, cause=cause)
    *_, failed, terminated = await here.history()
    forced = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
    assert failed.workflow_task_failed_event_attributes.cause == forced
    assert terminated.workflow_execution_terminated_event_attributes.reason == "GrpcMessageTooLarge"


def sticky_queue(name: str) -> TaskQueue:
    return TaskQueue(name=name, kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=QUEUE)


@served
async def test_a_task_for_a_disconnected_worker_goes_to_another_one_immediately(here: Served) -> None:
    execution = WorkflowExecution(workflow_id="w")
    await here.start()
    sticky = StickyExecutionAttributes(worker_task_queue=TaskQueue(name="mine"))
    sticky.schedule_to_start_timeout.FromTimedelta(timedelta(seconds=10))
    await here.decide(sticky_attributes=sticky)
    polls = [here.operator.do(here.call("PollWorkflowTaskQueue", queue=sticky_queue("mine"))) for _ in range(2)]
    await asyncio.sleep(1)
    polls.pop().cancel()
    await asyncio.sleep(0.1)
    await here.call("SignalWorkflowExecution", workflow_execution=execution, signal_name="one")
    task = await polls.pop()
    assert task.previous_started_event_id == 3
    assert names(task.history.events)[0] == "WorkflowTaskCompleted", "the other poll of that worker has got it"
    await here.complete(task, sticky_attributes=sticky)

    last = here.operator.do(here.call("PollWorkflowTaskQueue", queue=sticky_queue("mine")))
    await asyncio.sleep(1)
    last.cancel()
    await asyncio.sleep(0.1)
    await here.call("SignalWorkflowExecution", workflow_execution=execution, signal_name="two")
    before = here.world.loop.time()
    task = await here.task()
    assert here.world.loop.time() - before < 1
    assert names(task.history.events)[0] == "WorkflowExecutionStarted"
    assert "WorkflowTaskTimedOut" not in names(await here.history())


@served
async def test_a_poll_whose_permission_is_revoked_ends_with_the_denial(here: Served) -> None:
    """A poll without a task ends so, too: an empty answer would hide from the worker that it polls in vain."""

    async def revoked() -> None:
        raise denied("the permission is revoked")

    for rpc in sorted(POLLS):
        with pytest.raises(RpcError, match="the permission is revoked") as error:
            await here.call(rpc, caller=CallContext(None, recheck=revoked))
        assert error.value.code is grpc.StatusCode.PERMISSION_DENIED
    await here.start()
    with pytest.raises(RpcError, match="the permission is revoked"):
        await here.call("PollWorkflowTaskQueue", caller=CallContext(None, recheck=revoked))
    await here.decide(complete_workflow())  # the task went to another worker


def eager(name: str) -> Command:
    command = activity(name, start_to_close_timeout=timedelta(minutes=1))
    command.schedule_activity_task_command_attributes.request_eager_execution = True
    return command


@served
async def test_a_worker_gets_eager_activities_with_the_response(here: Served) -> None:
    await here.start()
    others = here.operator.do(here.call("PollActivityTaskQueue"))
    await asyncio.sleep(1)
    task = await here.task()
    later = activity("later", start_to_close_timeout=timedelta(minutes=1))
    answers = [(await here.complete(task, eager("one"), later, eager("two"))).activity_tasks for _ in range(2)]
    assert [each.activity_id for each in answers[0]] == ["one", "two"]
    assert answers[0] == answers[1], "an answer that is sent again gets the same"
    assert (await others).activity_id == "later"
    for each in answers[0]:
        await here.call("RespondActivityTaskCompleted", task_token=each.task_token)
    await here.decide(complete_workflow())
    assert names(await here.history()).count("ActivityTaskCompleted") == 2


@served
async def test_a_worker_gets_eager_activities_from_the_next_operator_if_the_response_was_lost(here: Served) -> None:
    """The operator is killed between the commit, which records that they have started, and its response."""
    await here.start()
    task = await here.task()
    first = (await here.complete(task, eager("one"))).activity_tasks
    await here.operator.kill()
    here.world.operators.remove(here.operator)
    here.restart()
    await here.operator.do(here.frontend.ready())
    again = (await here.complete(task, eager("one"))).activity_tasks
    assert list(first) == list(again) != []


@served
async def test_an_eager_activity_that_takes_all_its_time_times_out_by_schedule_to_close(here: Served) -> None:
    """Both timeouts end at the same time: a start-to-close timeout that is not set is the schedule-to-close timeout."""
    await here.start()
    command = activity("one", schedule_to_close_timeout=timedelta(seconds=5))
    said = command.schedule_activity_task_command_attributes
    said.request_eager_execution, said.retry_policy.maximum_attempts = True, 1
    assert len((await here.decide(command)).activity_tasks) == 1
    await asyncio.sleep(6)
    timed_out = next(
        event for event in await here.history() if event.HasField("activity_task_timed_out_event_attributes")
    )
    info = timed_out.activity_task_timed_out_event_attributes.failure.timeout_failure_info
    assert info.timeout_type == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE


@served
async def test_an_activity_in_a_pod_is_not_dispatched_to_a_worker(here: Served) -> None:
    await here.start()
    command = eager("one")
    command.schedule_activity_task_command_attributes.task_queue.name = "pods/checksums"
    assert not (await here.decide(command)).activity_tasks
