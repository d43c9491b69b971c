"""Versions that children, continued, reset, and retried runs inherit, and overrides."""

from typing import Any

import grpc
import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import (
    CommandType,
    EventType,
)
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PostResetOperation, WorkflowExecutionOptions

from perdure.frontend.errors import RpcError
from rpc.deployments.versioned import (
    AUTO_UPGRADE,
    BY_UPGRADE,
    NAME,
    PINNED,
    USE_RAMPING_VERSION,
    decide,
    describe,
    moved_to,
    options,
    pinned_to,
    poll,
    register,
    set_current,
    signal,
    start_on,
    version,
)
from rpc.served import Served, complete_workflow, names, served


@served
async def test_children_and_continued_runs_inherit_the_pinned_version(here: Served) -> None:
    await start_on(here, "1", "2")
    child = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    said = child.start_child_workflow_execution_command_attributes
    said.workflow_id, said.workflow_type.name = "child", "Child"
    await decide(here, "1", PINNED, child)
    await set_current(here, "2")
    first = await poll(here, "1")
    second = await poll(here, "1")
    tasks = {task.workflow_execution.workflow_id: task for task in (first, second)}
    assert tasks.keys() == {"w", "child"}
    started = tasks["child"].history.events[0].workflow_execution_started_event_attributes
    assert started.inherited_pinned_version == version("1")
    again = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    await here.complete(tasks["w"], again, deployment_options=options("1"), versioning_behavior=PINNED)
    task = await poll(here, "1")
    started = task.history.events[0].workflow_execution_started_event_attributes
    assert (task.workflow_execution.workflow_id, started.inherited_pinned_version) == ("w", version("1"))


def continue_as_new(behavior: int = 0, queue: str = "") -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_CONTINUE_AS_NEW_WORKFLOW_EXECUTION)
    said = command.continue_as_new_workflow_execution_command_attributes
    said.initial_versioning_behavior, said.task_queue.name = behavior, queue
    return command


@served
async def test_continue_as_new_can_request_the_ramping_version(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.call("SetWorkerDeploymentRampingVersion", deployment_name=NAME, build_id="2", percentage=0.0)
    await here.start()
    await decide(here, "1", PINNED, continue_as_new(USE_RAMPING_VERSION))
    task = await decide(here, "2", AUTO_UPGRADE)
    started = task.history.events[0].workflow_execution_started_event_attributes
    assert not started.HasField("inherited_pinned_version")
    upgrade = started.inherited_auto_upgrade_info
    assert upgrade.source_deployment_version == version("1")
    assert upgrade.continue_as_new_initial_versioning_behavior == USE_RAMPING_VERSION
    await signal(here)
    await decide(here, "1", AUTO_UPGRADE)  # only the first task goes to the ramping version


@served
async def test_continue_as_new_can_request_an_upgrade(here: Served) -> None:
    await start_on(here, "1", "2")
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    await signal(here)
    await decide(here, "1", PINNED, continue_as_new(BY_UPGRADE))
    await decide(here, "2", PINNED)


@served
async def test_a_version_is_inherited_only_on_task_queues_that_it_polls(here: Served) -> None:
    await start_on(here, "1")
    child = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    said = child.start_child_workflow_execution_command_attributes
    said.workflow_id, said.workflow_type.name, said.task_queue.name = "child", "Child", "elsewhere"
    await decide(here, "1", PINNED, child, continue_as_new(queue="elsewhere"))
    for _ in range(2):
        task = await here.call("PollWorkflowTaskQueue", queue=TaskQueue(name="elsewhere"))
        started = task.history.events[0].workflow_execution_started_event_attributes
        assert not started.HasField("inherited_pinned_version"), task.workflow_execution


@served
async def test_a_reset_workflow_stays_on_its_version(here: Served) -> None:
    await start_on(here, "1", "2")
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    execution = WorkflowExecution(workflow_id="w")
    await here.call("ResetWorkflowExecution", workflow_execution=execution, workflow_task_finish_event_id=4)
    info = (await describe(here)).workflow_execution_info.versioning_info
    assert not info.behavior, "its only workflow task is undone"
    await decide(here, "2", PINNED)
    await signal(here)
    await decide(here, "2", PINNED)
    await set_current(here, "1")
    finish = [e.event_id for e in await here.history() if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    await here.call("ResetWorkflowExecution", workflow_execution=execution, workflow_task_finish_event_id=finish[-1])
    assert not (await poll(here, "1")).task_token
    await decide(here, "2", PINNED)


@served
async def test_a_reset_can_change_the_override_of_the_new_run(here: Served) -> None:
    await start_on(here, "1", "2")
    await decide(here, "1", PINNED)
    reset: dict[str, Any] = {
        "workflow_execution": WorkflowExecution(workflow_id="w"),
        "workflow_task_finish_event_id": 4,
    }
    to_nothing = PostResetOperation(signal_workflow={"signal_name": "s"})
    with pytest.raises(RpcError, match="only `update_workflow_options` is supported"):
        await here.call("ResetWorkflowExecution", **reset, post_reset_operations=[to_nothing])
    with pytest.raises(RpcError, match="Pinned version 'shop:9' is not present"):
        await here.call("ResetWorkflowExecution", **reset, post_reset_operations=[moved_to("9")])
    await here.call("ResetWorkflowExecution", **reset, post_reset_operations=[moved_to("2")])
    assert names(await here.history())[-3:] == [
        "WorkflowTaskFailed",
        "WorkflowExecutionOptionsUpdated",
        "WorkflowTaskScheduled",
    ]
    await decide(here, "2", PINNED)


@served
async def test_runs_of_a_cron_schedule_inherit_no_version(here: Served) -> None:
    await start_on(here, "1", "2", cron_schedule="* * * * *")
    for build, after in (("1", "2"), ("2", "1")):
        task = None
        while not (task and task.task_token):
            task = await poll(here, build)
        await set_current(here, after)
        done = {"deployment_options": options(build), "versioning_behavior": PINNED}
        await here.complete(task, complete_workflow(), **done)
        started = task.history.events[0].workflow_execution_started_event_attributes
        assert not started.HasField("inherited_pinned_version")


@served
async def test_an_override_pins_a_workflow_until_it_is_removed(here: Served) -> None:
    await start_on(here, "1", "2", versioning_override=pinned_to("2"))
    assert not (await poll(here, "1")).task_token
    task = await decide(here, "2", AUTO_UPGRADE)
    started = task.history.events[-1].workflow_task_started_event_attributes
    assert not started.target_worker_deployment_version_changed, "the client has chosen the version"
    info = (await describe(here)).workflow_execution_info.versioning_info
    assert (info.behavior, info.versioning_override.pinned) == (AUTO_UPGRADE, pinned_to("2").pinned)
    execution = WorkflowExecution(workflow_id="w")
    answer = await here.call(
        "UpdateWorkflowExecutionOptions",
        workflow_execution=execution,
        workflow_execution_options=WorkflowExecutionOptions(),
        update_mask={"paths": ["versioning_override"]},
    )
    assert not answer.workflow_execution_options.HasField("versioning_override")
    event = (await here.history())[-1]
    assert event.workflow_execution_options_updated_event_attributes.unset_versioning_override
    await signal(here)
    await decide(here, "1", AUTO_UPGRADE)


@served
async def test_a_failing_task_goes_to_the_version_of_an_override_immediately(here: Served) -> None:
    """SDKs keep further attempts at a task that fails until they time out."""
    await start_on(here, "1", "2")
    await decide(here, "1", PINNED)
    await signal(here)
    first = await poll(here, "1")
    await here.call("RespondWorkflowTaskFailed", task_token=first.task_token, deployment_options=options("1"))
    kept = await poll(here, "1")
    assert kept.attempt == 2
    await here.call(
        "UpdateWorkflowExecutionOptions",
        workflow_execution=WorkflowExecution(workflow_id="w"),
        workflow_execution_options=WorkflowExecutionOptions(versioning_override=pinned_to("2")),
        update_mask={"paths": ["versioning_override"]},
    )
    before = here.world.loop.time()
    await decide(here, "2", PINNED)
    assert here.world.loop.time() - before < 1
    with pytest.raises(RpcError, match="not found"):
        await here.complete(kept, deployment_options=options("1"), versioning_behavior=PINNED)


@served
async def test_an_override_requires_a_version_that_polls_the_task_queue(here: Served) -> None:
    await register(here, "1")
    with pytest.raises(RpcError) as refused:
        await here.start(versioning_override=pinned_to("9"))
    assert refused.value.message == "Pinned version 'shop:9' is not present in task queue 'orders' of type 'Workflow'"


@served
async def test_a_pinned_override_without_a_version_uses_the_pinned_version_of_the_workflow(here: Served) -> None:
    await start_on(here, "1")
    pinned = pinned_to("1")
    pinned.pinned.ClearField("version")
    change = {
        "workflow_execution": WorkflowExecution(workflow_id="w"),
        "workflow_execution_options": WorkflowExecutionOptions(versioning_override=pinned),
        "update_mask": {"paths": ["versioning_override"]},
    }
    with pytest.raises(RpcError, match="name a version") as refused:
        await here.call("UpdateWorkflowExecutionOptions", **change)
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    await decide(here, "1", PINNED)
    answer = await here.call("UpdateWorkflowExecutionOptions", **change)
    assert answer.workflow_execution_options.versioning_override == pinned_to("1")
