"""Worker deployments: which version gets the tasks of a workflow."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import grpc
import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentOptions, WorkerDeploymentVersion
from temporalio.api.enums.v1 import (
    CommandType,
    ContinueAsNewVersioningBehavior,
    EventType,
    TaskQueueKind,
    VersioningBehavior,
    WorkerDeploymentVersionStatus,
    WorkerVersioningMode,
)
from temporalio.api.taskqueue.v1 import StickyExecutionAttributes, TaskQueue
from temporalio.api.workflow.v1 import PostResetOperation, VersioningOverride, WorkflowExecutionOptions

from frontend.served import Served, activity, complete_workflow, names, served
from perdure.frontend.errors import RpcError
from perdure.frontend.stored import WORKER_DEPLOYMENTS

PINNED = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
AUTO_UPGRADE = VersioningBehavior.VERSIONING_BEHAVIOR_AUTO_UPGRADE
BY_UPGRADE = ContinueAsNewVersioningBehavior.CONTINUE_AS_NEW_VERSIONING_BEHAVIOR_AUTO_UPGRADE
USE_RAMPING_VERSION = ContinueAsNewVersioningBehavior.CONTINUE_AS_NEW_VERSIONING_BEHAVIOR_USE_RAMPING_VERSION
NAME = "shop"
MINUTE = timedelta(minutes=1)


def options(build: str) -> WorkerDeploymentOptions:
    mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    return WorkerDeploymentOptions(deployment_name=NAME, build_id=build, worker_versioning_mode=mode)


def version(build: str) -> WorkerDeploymentVersion:
    return WorkerDeploymentVersion(deployment_name=NAME, build_id=build)


def pinned_to(build: str) -> VersioningOverride:
    made = VersioningOverride()
    made.pinned.behavior = VersioningOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED
    made.pinned.version.CopyFrom(version(build))
    return made


def moved_to(build: str) -> PostResetOperation:
    """After a reset, pin the new run to a version."""
    made = PostResetOperation()
    made.update_workflow_options.workflow_execution_options.versioning_override.CopyFrom(pinned_to(build))
    made.update_workflow_options.update_mask.paths.append("versioning_override")
    return made


async def poll(here: Served, build: str, **fields: Any) -> Any:
    """Poll for a workflow task as a worker of a version; empty for an unversioned one."""
    return await here.call(
        "PollWorkflowTaskQueue", **({"deployment_options": options(build)} if build else {}), **fields
    )


async def decide(here: Served, build: str, behavior: int, *commands: Command, **fields: Any) -> Any:
    """Take the next workflow task of a version and answer it."""
    task = await poll(here, build)
    assert task.task_token, f"no workflow task for version {build}"
    await here.complete(task, *commands, deployment_options=options(build), versioning_behavior=behavior, **fields)
    return task


async def register(here: Served, *builds: str) -> None:
    """Let workers of versions poll once."""
    for build in builds:
        assert not (await poll(here, build)).task_token
        assert not (await here.call("PollActivityTaskQueue", deployment_options=options(build))).task_token


async def set_current(here: Served, build: str, **fields: Any) -> Any:
    return await here.call("SetWorkerDeploymentCurrentVersion", deployment_name=NAME, build_id=build, **fields)


async def signal(here: Served, workflow_id: str = "w") -> None:
    execution = WorkflowExecution(workflow_id=workflow_id)
    await here.call("SignalWorkflowExecution", workflow_execution=execution, signal_name="go")


async def describe(here: Served, workflow_id: str = "w") -> Any:
    return await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id=workflow_id))


async def versions_shown(here: Served) -> dict[str, Any]:
    """The search attributes about versions that are lists."""
    found = (await describe(here)).workflow_execution_info.search_attributes.indexed_fields
    names = ("BuildIds", "TemporalUsedWorkerDeploymentVersions")
    return {name: json.loads(found[name].data) for name in names if name in found}


def statuses(described: Any) -> dict[str, str]:
    info = described.worker_deployment_info
    name = WorkerDeploymentVersionStatus.Name
    prefix = "WORKER_DEPLOYMENT_VERSION_STATUS_"
    return {each.deployment_version.build_id: name(each.status).removeprefix(prefix) for each in info.version_summaries}


@served
async def test_workers_that_poll_register_their_version(here: Served) -> None:
    await register(here, "1")
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"1": "INACTIVE"}
    told = await here.call("DescribeWorkerDeploymentVersion", deployment_version=version("1"))
    assert [each.name for each in told.version_task_queues] == ["orders", "orders"]
    listed = await here.call("ListWorkerDeployments")
    assert [each.name for each in listed.worker_deployments] == [NAME]
    assert listed.worker_deployments[0].routing_config.current_version == "__unversioned__"


@served
async def test_only_the_first_poll_of_a_task_queue_writes(here: Served) -> None:
    await register(here, "1")
    stored = "/api/v1/namespaces/default/configmaps/perdure-worker-deployments"
    before = await here.operator.do(here.frontend.runs.manager.client.get(stored))
    await register(here, "1")
    after = await here.operator.do(here.frontend.runs.manager.client.get(stored))
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


@served
async def test_a_new_workflow_starts_on_the_current_version(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "2")
    await here.start()
    assert not (await poll(here, "1")).task_token
    assert not (await poll(here, "")).task_token
    await decide(here, "2", PINNED)
    completed = [e for e in await here.history() if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    attributes = completed[0].workflow_task_completed_event_attributes
    assert attributes.deployment_version == version("2")
    assert attributes.worker_deployment_name == NAME
    assert attributes.versioning_behavior == PINNED
    info = (await describe(here)).workflow_execution_info
    assert info.versioning_info.behavior == PINNED
    assert info.versioning_info.deployment_version == version("2")
    assert info.worker_deployment_name == NAME
    found = await here.call("ListWorkflowExecutions", query="TemporalWorkerDeploymentVersion = 'shop:2'")
    assert [each.execution.workflow_id for each in found.executions] == ["w"]


@served
async def test_without_a_current_version_unversioned_workers_get_new_workflows(here: Served) -> None:
    await register(here, "1")
    await here.start()
    assert not (await poll(here, "1")).task_token
    assert (await poll(here, "")).task_token


@served
async def test_without_a_current_version_a_versioned_client_gets_the_task_of_the_workflow_that_it_starts(
    here: Served,
) -> None:
    await register(here, "1")
    started = await here.start(request_eager_execution=True, eager_worker_deployment_options=options("1"))
    task = started.eager_workflow_task
    assert task.task_token
    await here.complete(task, deployment_options=options("1"), versioning_behavior=PINNED)
    await signal(here)
    await decide(here, "1", PINNED, complete_workflow())
    assert [each.event_type for each in await here.history()][-1] == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


@served
async def test_a_versioned_client_gets_no_task_that_goes_to_another_version(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "2")
    started = await here.start(request_eager_execution=True, eager_worker_deployment_options=options("1"))
    assert not started.eager_workflow_task.task_token
    await decide(here, "2", PINNED, complete_workflow())


@served
async def test_a_pinned_workflow_stays_on_its_version_with_its_activities(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
    await decide(here, "1", PINNED, activity("a", start_to_close_timeout=MINUTE))
    await set_current(here, "2")
    await signal(here)
    assert not (await poll(here, "2")).task_token
    assert not (await here.call("PollActivityTaskQueue", deployment_options=options("2"))).task_token
    assert (await here.call("PollActivityTaskQueue", deployment_options=options("1"))).task_token
    task = await poll(here, "1")
    started = task.history.events[-1].workflow_task_started_event_attributes
    assert started.target_worker_deployment_version_changed


@served
async def test_an_auto_upgrade_workflow_moves_to_the_new_current_version(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
    sticky = StickyExecutionAttributes(
        worker_task_queue=TaskQueue(name="sticky", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY)
    )
    await decide(here, "1", AUTO_UPGRADE, sticky_attributes=sticky)
    own = TaskQueue(name="sticky", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name="orders")
    assert not (await poll(here, "1", queue=own)).task_token
    await set_current(here, "2")
    await signal(here)
    assert not (await poll(here, "1")).task_token
    await decide(here, "2", AUTO_UPGRADE)
    assert (await describe(here)).workflow_execution_info.versioning_info.deployment_version == version("2")


@served
async def test_a_task_that_waits_moves_when_the_current_version_changes(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
    await set_current(here, "2")
    assert not (await poll(here, "1")).task_token
    assert (await poll(here, "2")).task_token


@served
async def test_a_ramping_version_gets_its_share_of_new_workflows(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.call("SetWorkerDeploymentRampingVersion", deployment_name=NAME, build_id="2", percentage=40)
    for number in range(20):
        await here.start(f"w{number}")
    taken: dict[str, list[str]] = {"1": [], "2": []}
    for build, workflows in taken.items():
        while (task := await poll(here, build)).task_token:
            workflows.append(task.workflow_execution.workflow_id)
            await here.complete(task, deployment_options=options(build), versioning_behavior=PINNED)
    assert sorted(taken["1"] + taken["2"]) == sorted(f"w{number}" for number in range(20))
    assert 3 <= len(taken["2"]) <= 15, "about 40 percent; which ones depends only on their IDs"


@served
async def test_children_and_continued_runs_inherit_the_pinned_version(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
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
async def test_continue_as_new_may_ask_for_the_ramping_version(here: Served) -> None:
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
async def test_continue_as_new_may_ask_for_an_upgrade(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    await signal(here)
    await decide(here, "1", PINNED, continue_as_new(BY_UPGRADE))
    await decide(here, "2", PINNED)


@served
async def test_a_version_is_inherited_only_on_task_queues_that_it_polls(here: Served) -> None:
    await register(here, "1")
    await set_current(here, "1")
    await here.start()
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
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
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
async def test_a_reset_may_change_the_override_of_the_new_run(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
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
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start(cron_schedule="* * * * *")
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
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start(versioning_override=pinned_to("2"))
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
async def test_an_override_needs_a_version_that_polls_the_task_queue(here: Served) -> None:
    await register(here, "1")
    with pytest.raises(RpcError) as refused:
        await here.start(versioning_override=pinned_to("9"))
    assert refused.value.message == "Pinned version 'shop:9' is not present in task queue 'orders' of type 'Workflow'"


@served
async def test_a_pinned_override_without_a_version_names_the_one_that_the_workflow_is_pinned_to(here: Served) -> None:
    await register(here, "1")
    await set_current(here, "1")
    await here.start()
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


@served
async def test_describe_shows_the_versions_that_have_decided(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
    assert await versions_shown(here) == {}
    await decide(here, "1", AUTO_UPGRADE)
    assert await versions_shown(here) == {"TemporalUsedWorkerDeploymentVersions": ["shop:1"]}
    await set_current(here, "2")
    await signal(here)
    await decide(here, "2", PINNED)
    assert await versions_shown(here) == {
        "BuildIds": ["pinned:shop:2"],
        "TemporalUsedWorkerDeploymentVersions": ["shop:1", "shop:2"],
    }


@served
async def test_a_version_drains_until_no_workflow_is_pinned_to_it(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start()
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    for _ in range(4):
        await poll(here, "2")  # each takes a minute
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"1": "DRAINING", "2": "CURRENT"}
    with pytest.raises(RpcError, match="cannot be deleted since it is draining"):
        await here.call("DeleteWorkerDeploymentVersion", deployment_version=version("1"))
    await signal(here)
    await decide(here, "1", PINNED, complete_workflow())
    await poll(here, "2")
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"1": "DRAINED", "2": "CURRENT"}
    await here.call("DeleteWorkerDeploymentVersion", deployment_version=version("1"))
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"2": "CURRENT"}


@served
async def test_a_stale_conflict_token_is_refused(here: Served) -> None:
    await register(here, "1", "2")
    first = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    await set_current(here, "1", conflict_token=first.conflict_token)
    with pytest.raises(RpcError, match="conflict token mismatch"):
        await set_current(here, "2", conflict_token=first.conflict_token)
    answer = await set_current(here, "2")
    assert answer.previous_deployment_version == version("1")


@served
async def test_only_the_manager_of_a_deployment_changes_it(here: Served) -> None:
    await register(here, "1")
    await here.call("SetWorkerDeploymentManager", deployment_name=NAME, manager_identity="ci")
    with pytest.raises(RpcError, match="ManagerIdentity 'ci' is set and does not match user identity 'worker'"):
        await set_current(here, "1")
    await set_current(here, "1", identity="ci")


@served
async def test_a_version_that_nobody_polls_is_set_only_on_request(here: Served) -> None:
    await register(here, "1")
    with pytest.raises(RpcError, match="build ID '2' not found in Worker Deployment 'shop'"):
        await set_current(here, "2")
    await set_current(here, "2", allow_no_pollers=True)
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described)["2"] == "CURRENT"


@served
async def test_metadata_of_a_version_is_kept(here: Served) -> None:
    await register(here, "1")
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'"abc123"')
    answer = await here.call(
        "UpdateWorkerDeploymentVersionMetadata", deployment_version=version("1"), upsert_entries={"commit": payload}
    )
    assert answer.metadata.entries["commit"] == payload
    here.restart()
    told = await here.call("DescribeWorkerDeploymentVersion", deployment_version=version("1"))
    assert told.worker_deployment_version_info.metadata.entries["commit"] == payload


@served
async def test_a_restarted_operator_routes_as_before(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start("pinned")
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    here.restart()
    await here.start("new")
    await signal(here, "pinned")
    assert (await poll(here, "1")).workflow_execution.workflow_id == "pinned"
    assert (await poll(here, "2")).workflow_execution.workflow_id == "new"


@served
async def test_deprecated_versioning_is_refused_with_a_message(here: Served) -> None:
    with pytest.raises(
        RpcError, match="GetWorkerVersioningRules is deprecated and not supported: use worker deployments"
    ):
        await here.call("GetWorkerVersioningRules", task_queue="orders")


@served
async def test_changes_of_the_routing_are_events_on_the_config_map(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.call("SetWorkerDeploymentRampingVersion", deployment_name=NAME, build_id="2", percentage=12.5)
    await set_current(here, "2")
    await set_current(here, "2")
    await asyncio.sleep(5)
    told = [event for event in here.world.server.posted if event["regarding"]["name"] == WORKER_DEPLOYMENTS.config_map]
    notes = [(event["reason"], event["note"]) for event in told]
    assert notes == [
        ("CurrentVersionChanged", "Worker deployment `shop`: the current version is `1`, was unversioned"),
        ("RampingVersionChanged", "Worker deployment `shop`: 12.5% go to `2`, was: no version is ramping"),
        ("CurrentVersionChanged", "Worker deployment `shop`: the current version is `2`, was `1`"),
        ("RampingVersionChanged", "Worker deployment `shop`: no version is ramping, was: 12.5% go to `2`"),
    ]
