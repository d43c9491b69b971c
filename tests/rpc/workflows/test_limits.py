"""WorkflowLimits that select workflows as code and activities of workers."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import yaml
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import WorkflowExecutionStatus

from rpc.served import QUEUE, Served, activity, complete_workflow, names, served
from simulated.scenarios.limits import succeeded
from support.manuals import REPOSITORY

MINUTE = timedelta(minutes=1)
_FULL = "is full: it allows 1"


async def limit(here: Served, name: str, **selector: Any) -> None:
    """Create a limit of one."""
    here.world.create("WorkflowLimit", name, {"capacity": 1, "appliesTo": selector})
    await asyncio.sleep(30)  # the operator knows it from a watch, which lags


def entries(here: Served, field: str, name: str = "one") -> list[tuple[str, str | None]]:
    (found,) = [each for each in here.world.server.of("workflowlimits") if each["metadata"]["name"] == name]
    return [(each["run"], each.get("step")) for each in (found.get("status") or {}).get(field) or ()]


def run_of(here: Served, workflow_id: str) -> str:
    runs = here.world.runs().items()
    return next(name for name, run in runs if run["spec"]["workflowId"] == workflow_id)


def eager(name: str) -> Command:
    command = activity(name, start_to_close_timeout=MINUTE)
    command.schedule_activity_task_command_attributes.request_eager_execution = True
    return command


@served
async def test_the_first_task_of_a_workflow_waits_for_its_limit_and_its_clients_see_it(here: Served) -> None:
    await limit(here, "one", types=["Order"], taskQueues=[QUEUE])
    await here.start("first")
    second = await here.start("second", request_eager_execution=True)
    assert not second.HasField("eager_workflow_task"), "the client must not get what waits"
    task = await here.task()
    assert task.workflow_execution.workflow_id == "first"
    waiting = here.operator.do(here.call("PollWorkflowTaskQueue"))
    await asyncio.sleep(5)
    assert names(await here.history("second")) == ["WorkflowExecutionStarted", "WorkflowTaskScheduled"]
    condition = succeeded(here.world, run_of(here, "second"))
    assert (condition["reason"], _FULL in condition["message"]) == ("LimitReached", True)
    await here.call(
        "SignalWorkflowExecution", workflow_execution=WorkflowExecution(workflow_id="second"), signal_name="hello"
    )
    assert not waiting.done()
    await here.complete(task, complete_workflow())
    task = await waiting
    assert task.workflow_execution.workflow_id == "second"
    assert "WorkflowExecutionSignaled" in names(task.history.events)
    await here.complete(task, complete_workflow())
    await asyncio.sleep(5)
    assert (entries(here, "holders"), entries(here, "waiters")) == ([], [])


@served
async def test_a_waiting_workflow_can_be_terminated_and_others_do_not_wait_for_it(here: Served) -> None:
    await limit(here, "one", taskQueues=[QUEUE])
    for name in ("first", "second", "third"):
        await here.start(name)
        await asyncio.sleep(1.5)
    first = await here.task()
    execution = WorkflowExecution(workflow_id="second")
    await here.call("TerminateWorkflowExecution", workflow_execution=execution)
    described = (await here.call("DescribeWorkflowExecution", execution=execution)).workflow_execution_info
    assert described.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED
    await here.complete(first, complete_workflow())
    assert (await here.task()).workflow_execution.workflow_id == "third"


@served
async def test_activities_of_workers_wait_for_their_limits_and_keep_them_while_they_are_retried(here: Served) -> None:
    await limit(here, "one", takers="Activities", types=["any"], taskQueues=[QUEUE])
    await here.start()
    answer = await here.decide(eager("first"), eager("second"))
    assert not answer.activity_tasks, "what takes a limit is not executed eagerly"
    first = await here.call("PollActivityTaskQueue")
    assert first.activity_id == "first"
    waiting = here.operator.do(here.call("PollActivityTaskQueue"))
    await asyncio.sleep(3)
    run = run_of(here, "w")
    assert (entries(here, "holders"), entries(here, "waiters")) == ([(run, "first")], [(run, "second")])
    condition = succeeded(here.world, run)
    assert (condition["reason"], _FULL in condition["message"]) == ("LimitReached", True)
    await here.call("RespondActivityTaskFailed", task_token=first.task_token)
    again = await waiting
    assert (again.activity_id, again.attempt) == ("first", 2), "a retry keeps the place"
    await here.call("RespondActivityTaskCompleted", task_token=again.task_token)
    second = await here.call("PollActivityTaskQueue")
    assert second.activity_id == "second"
    await here.call("RespondActivityTaskCompleted", task_token=second.task_token)
    await here.decide(complete_workflow())
    await asyncio.sleep(5)
    assert entries(here, "holders") == []


@served
async def test_an_activity_that_two_limits_select_takes_both_or_none(here: Served) -> None:
    await limit(here, "one", takers="Activities", taskQueues=[QUEUE])
    await limit(here, "two", takers="Activities", types=["other"])
    await here.start("a")
    await here.decide(activity("holds", start_to_close_timeout=MINUTE))
    holds = await here.call("PollActivityTaskQueue")
    await here.start("b")
    both = activity("both", start_to_close_timeout=MINUTE)
    both.schedule_activity_task_command_attributes.activity_type.name = "other"
    await here.decide(both)
    await asyncio.sleep(3)
    assert entries(here, "holders", "two") == [], "it must not hold one while it waits for the other"
    await here.call("RespondActivityTaskCompleted", task_token=holds.task_token)
    assert (await here.call("PollActivityTaskQueue")).activity_id == "both"
    assert entries(here, "holders", "one") == entries(here, "holders", "two") == [(run_of(here, "b"), "both")]


@served
async def test_a_waiting_activity_times_out_and_gives_up_its_turn(here: Served) -> None:
    await limit(here, "one", takers="Activities")
    await here.start()
    await here.decide(
        activity("first", start_to_close_timeout=MINUTE),
        activity("late", start_to_close_timeout=MINUTE, schedule_to_start_timeout=timedelta(seconds=5)),
    )
    first = await here.call("PollActivityTaskQueue")
    await asyncio.sleep(8)
    assert names(await here.history()).count("ActivityTaskTimedOut") == 1
    await here.call("RespondActivityTaskCompleted", task_token=first.task_token)
    await here.decide(complete_workflow())
    await asyncio.sleep(5)
    assert (entries(here, "holders"), entries(here, "waiters")) == ([], [])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_limit_is_kept_when_the_operator_restarts(restarted: bool) -> None:
    @served
    async def test(here: Served) -> None:
        await limit(here, "one", takers="Activities")
        await here.start()
        await here.decide(*(activity(each, start_to_close_timeout=MINUTE) for each in ("first", "second")))
        first = await here.call("PollActivityTaskQueue")
        if restarted:
            await here.operator.kill()
            here.world.operators.remove(here.operator)
            here.restart()
            first = await here.call("PollActivityTaskQueue")  # its start was not recorded yet
            assert first.activity_id == "first"
        waiting = here.operator.do(here.call("PollActivityTaskQueue"))
        await asyncio.sleep(5)
        assert not waiting.done()
        await here.call("RespondActivityTaskCompleted", task_token=first.task_token)
        assert (await waiting).activity_id == "second"

    test()


@served
async def test_the_example_limits_the_charges_of_the_workers_of_orders(here: Served) -> None:
    for manifest in yaml.safe_load_all((REPOSITORY / "examples/temporal/limits.yaml").read_text()):
        here.world.create(manifest["kind"], manifest["metadata"]["name"], manifest["spec"])
    await asyncio.sleep(30)
    await here.start(workflow_type=WorkflowType(name="OrderWorkflow"))
    charges = [activity(str(number), start_to_close_timeout=MINUTE) for number in range(4)]
    for each in charges:
        each.schedule_activity_task_command_attributes.activity_type.name = "charge"
    await here.decide(*charges)
    tasks = [await here.call("PollActivityTaskQueue") for _ in range(3)]
    waiting = here.operator.do(here.call("PollActivityTaskQueue"))
    await asyncio.sleep(5)
    assert not waiting.done()
    await here.call("RespondActivityTaskCompleted", task_token=tasks[0].task_token)
    assert (await waiting).activity_id == "3"
    assert (len(entries(here, "holders", "charges")), len(entries(here, "holders", "open-orders"))) == (3, 1)
