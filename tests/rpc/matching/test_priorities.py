"""Priorities of workflows, activities and children."""

from datetime import timedelta
from itertools import pairwise

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Priority, WorkflowExecution
from temporalio.api.enums.v1 import CommandType
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.frontend.errors import RpcError
from rpc.served import Served, activity, served

MINUTE = timedelta(minutes=1)


def urgent(name: str, priority: Priority) -> Command:
    command = activity(name, start_to_close_timeout=MINUTE)
    command.schedule_activity_task_command_attributes.priority.CopyFrom(priority)
    return command


def child(workflow_id: str, priority: Priority) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    said = command.start_child_workflow_execution_command_attributes
    said.workflow_id, said.workflow_type.name, said.task_queue.name = workflow_id, "Child", "children"
    said.priority.CopyFrom(priority)
    return command


@served
async def test_activities_and_children_inherit_unset_fields_of_the_priority(here: Served) -> None:
    await here.start(priority=Priority(priority_key=1, fairness_key="tenant", fairness_weight=2))
    await here.decide(
        activity("plain", start_to_close_timeout=MINUTE),
        urgent("own", Priority(priority_key=4)),
        child("inherits", Priority(fairness_key="other")),
    )
    first, second = [await here.call("PollActivityTaskQueue") for _ in range(2)]
    assert (first.activity_id, second.activity_id) == ("plain", "own"), "the more urgent one comes first"
    assert first.priority == Priority(priority_key=1, fairness_key="tenant", fairness_weight=2)
    assert second.priority == Priority(priority_key=4, fairness_key="tenant", fairness_weight=2)
    task = await here.call("PollWorkflowTaskQueue", queue=TaskQueue(name="children"))
    started = task.history.events[0].workflow_execution_started_event_attributes
    assert started.priority == Priority(priority_key=1, fairness_key="other", fairness_weight=2)


@served
async def test_tasks_of_an_urgent_workflow_are_dispatched_first(here: Served) -> None:
    for number in range(5):
        await here.start(f"ordinary-{number}")
    await here.start("urgent", priority=Priority(priority_key=1))
    await here.start("late", priority=Priority(priority_key=5))
    found = [(await here.task()).workflow_execution.workflow_id for _ in range(7)]
    assert found[0] == "urgent"
    assert found[-1] == "late"
    assert sorted(found[1:-1]) == [f"ordinary-{number}" for number in range(5)]


@served
async def test_the_rate_limit_of_workers_applies_to_the_whole_queue(here: Served) -> None:
    await here.start()
    await here.decide(*(activity(str(number), start_to_close_timeout=MINUTE) for number in range(4)))
    begin, metadata = here.world.loop.time(), {"max_tasks_per_second": {"value": 0.5}}
    times = []
    for _ in range(4):
        task = await here.call("PollActivityTaskQueue", task_queue_metadata=metadata)
        assert task.task_token
        times.append(here.world.loop.time() - begin)
    assert [later - earlier >= 1.9 for earlier, later in pairwise(times)] == [True] * 3


@served
async def test_invalid_priorities_are_rejected(here: Served) -> None:
    for wrong, message in (
        (Priority(priority_key=-1), "priority key can't be negative"),
        (Priority(fairness_key="x" * 65), "fairness key length exceeds limit"),
        (Priority(fairness_weight=-1), "must be greater than zero"),
        (Priority(fairness_weight=float("nan")), "must be greater than zero"),
    ):
        with pytest.raises(RpcError, match=message):
            await here.start("refused", priority=wrong)
    execution = WorkflowExecution(workflow_id="refused")
    with pytest.raises(RpcError, match="not found"):
        await here.call("DescribeWorkflowExecution", execution=execution)
