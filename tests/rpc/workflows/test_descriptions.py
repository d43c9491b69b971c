"""The descriptions of a workflow and of the server."""

import asyncio
import json
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Priority, WorkerVersionStamp, WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState, TaskQueueKind
from temporalio.api.failure.v1 import Failure

from rpc.served import QUEUE, Served, activity, complete_workflow, served


async def described(here: Served) -> Any:
    return await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id="w"))


@served
async def test_describe_shows_priority_request_id_and_build_ids(here: Served) -> None:
    await here.start(priority=Priority(priority_key=2, fairness_key="tenant"))
    found = await described(here)
    assert not found.workflow_execution_info.auto_reset_points.points
    assert "BuildIds" not in found.workflow_execution_info.search_attributes.indexed_fields
    assert not found.workflow_execution_info.HasField("most_recent_worker_version_stamp")
    for build in ("one", "one", "two"):
        await here.decide(worker_version_stamp=WorkerVersionStamp(build_id=build), force_create_new_workflow_task=True)
    found = await described(here)
    info = found.workflow_execution_info
    assert info.priority == Priority(priority_key=2, fairness_key="tenant")
    assert info.most_recent_worker_version_stamp.build_id == "two"
    points = [(point.build_id, point.first_workflow_task_completed_id) for point in info.auto_reset_points.points]
    assert points == [("one", 4), ("two", 10)]
    builds = info.search_attributes.indexed_fields["BuildIds"]
    assert json.loads(builds.data) == ["unversioned", "unversioned:one", "unversioned:two"]
    assert all(point.resettable and point.run_id == info.execution.run_id for point in info.auto_reset_points.points)
    request = found.workflow_extended_info.request_id_infos["w"]
    assert (request.event_type, request.event_id) == (EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, 1)
    assert found.execution_config.task_queue.kind == TaskQueueKind.TASK_QUEUE_KIND_NORMAL


@served
async def test_describe_shows_options_and_last_attempt_of_a_pending_activity(here: Served) -> None:
    await here.start()
    await here.decide(
        activity("a", start_to_close_timeout=timedelta(minutes=1), heartbeat_timeout=timedelta(seconds=9))
    )
    (pending,) = (await described(here)).pending_activities
    assert not pending.HasField("last_attempt_complete_time")
    options = pending.activity_options
    assert options.task_queue.name == options.task_queue.normal_name == QUEUE
    assert options.start_to_close_timeout.ToTimedelta() == timedelta(minutes=1)
    assert options.heartbeat_timeout.ToTimedelta() == timedelta(seconds=9)
    assert options.retry_policy.initial_interval.ToTimedelta() == timedelta(seconds=1)

    attempt = await here.call("PollActivityTaskQueue", identity="first")
    await here.call("RespondActivityTaskFailed", task_token=attempt.task_token, failure=Failure(message="no"))
    (pending,) = (await described(here)).pending_activities
    assert pending.last_worker_identity == "first"
    ended = pending.last_attempt_complete_time.ToDatetime()
    assert pending.next_attempt_schedule_time.ToDatetime() - ended == timedelta(seconds=1)
    assert pending.current_retry_interval.ToTimedelta() == timedelta(seconds=1)


@served
async def test_describe_shows_activities_left_open_by_a_closed_workflow(here: Served) -> None:
    await here.start()
    await here.decide(activity("a", start_to_close_timeout=timedelta(minutes=1)))
    await here.call("PollActivityTaskQueue", identity="busy")
    execution = WorkflowExecution(workflow_id="w")
    await here.call("TerminateWorkflowExecution", workflow_execution=execution)
    (pending,) = (await described(here)).pending_activities
    assert (pending.activity_id, pending.last_worker_identity) == ("a", "busy")
    assert pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED

    await here.operator.kill()
    here.world.operators.remove(here.operator)
    here.restart()
    await asyncio.sleep(5)
    (pending,) = (await described(here)).pending_activities
    assert (pending.activity_id, pending.last_worker_identity) == ("a", "busy")


@served
async def test_describe_shows_no_pending_activities_after_they_have_closed(here: Served) -> None:
    await here.start()
    await here.decide(activity("a", start_to_close_timeout=timedelta(minutes=1)))
    attempt = await here.call("PollActivityTaskQueue")
    await here.call("RespondActivityTaskCompleted", task_token=attempt.task_token)
    await here.decide(complete_workflow())
    assert not (await described(here)).pending_activities


@served
async def test_the_clients_of_every_sdk_are_supported(here: Served) -> None:
    found = await here.call("GetClusterInfo")
    assert {"temporal-go", "temporal-java", "temporal-typescript", "temporal-python"} <= set(found.supported_clients)
