"""Standalone activities without an SDK: long polls, restarts, manifests, and changes by clients."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import ActivityType, Payload, Payloads
from temporalio.api.enums.v1 import ActivityExecutionStatus, PendingActivityState
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    DescribeActivityExecutionResponse,
    PollActivityExecutionResponse,
    PollActivityTaskQueueResponse,
    StartActivityExecutionResponse,
)

from perdure.frontend.errors import RpcError
from rpc.served import QUEUE, Served, activity, served

DONE = Payloads(payloads=[Payload(metadata={"encoding": b"json/plain"}, data=b'"done"')])


async def begin(here: Served, activity_id: str = "a", **fields: Any) -> StartActivityExecutionResponse:
    """Start a standalone activity."""
    fields.setdefault("start_to_close_timeout", Duration(seconds=60))
    fields.setdefault("request_id", activity_id)
    started: StartActivityExecutionResponse = await here.call(
        "StartActivityExecution", activity_id=activity_id, activity_type=ActivityType(name="Do"), **fields
    )
    return started


async def attempt(here: Served) -> PollActivityTaskQueueResponse:
    """The next attempt."""
    task: PollActivityTaskQueueResponse = await here.call("PollActivityTaskQueue")
    assert task.task_token, "no attempt within the length of a poll"
    return task


async def complete(here: Served, task: PollActivityTaskQueueResponse) -> None:
    await here.call("RespondActivityTaskCompleted", task_token=task.task_token, result=DONE)


async def fail(here: Served, task: PollActivityTaskQueueResponse) -> None:
    await here.call("RespondActivityTaskFailed", task_token=task.task_token, failure=Failure(message="no"))


async def restart(here: Served) -> None:
    """Kill the operator, and wait until another one has listed the runs."""
    await here.operator.kill()
    here.world.operators.remove(here.operator)
    await asyncio.sleep(10)
    here.restart()
    await asyncio.sleep(10)


async def describe(here: Served, **fields: Any) -> DescribeActivityExecutionResponse:
    reported: DescribeActivityExecutionResponse = await here.call(
        "DescribeActivityExecution", **{"activity_id": "a", **fields}
    )
    return reported


async def outcome(here: Served, **fields: Any) -> PollActivityExecutionResponse:
    reported: PollActivityExecutionResponse = await here.call("PollActivityExecution", **{"activity_id": "a", **fields})
    return reported


@served
async def test_a_poll_for_the_outcome_waits_a_minute_each_time(here: Served) -> None:
    started = await begin(here)
    time = here.world.loop.time()
    assert await outcome(here) == PollActivityExecutionResponse()
    assert here.world.loop.time() - time == pytest.approx(60)
    waiting = asyncio.ensure_future(outcome(here))
    task = await attempt(here)
    assert (task.activity_run_id, task.workflow_execution.workflow_id) == (started.run_id, "")
    await complete(here, task)
    found = await waiting
    assert (found.run_id, found.outcome.result) == (started.run_id, DONE)


@served
async def test_a_long_poll_of_a_description_returns_when_it_changes(here: Served) -> None:
    run_id = (await begin(here)).run_id
    reported = await describe(here)
    again = await describe(here)
    assert again.long_poll_token == reported.long_poll_token
    assert await describe(here, run_id=run_id, long_poll_token=reported.long_poll_token) == (
        DescribeActivityExecutionResponse()
    )
    waiting = asyncio.ensure_future(describe(here, run_id=run_id, long_poll_token=reported.long_poll_token))
    await asyncio.sleep(1)
    assert not waiting.done()
    await attempt(here)
    assert (await waiting).info.run_state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    await begin(here, "b")
    with pytest.raises(RpcError, match="long poll token does not match execution"):
        await describe(
            here,
            activity_id="b",
            run_id=(await describe(here, activity_id="b")).run_id,
            long_poll_token=reported.long_poll_token,
        )


@served
async def test_a_restart_keeps_activities_and_recorded_attempts(here: Served) -> None:
    run_id = (await begin(here)).run_id
    task = await attempt(here)
    await asyncio.sleep(5)  # that the attempt has started is recorded then
    await restart(here)
    assert (await begin(here)).run_id == run_id, "a start that is repeated finds what it has started"
    assert (await describe(here)).info.run_state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    await complete(here, task)
    assert (await outcome(here)).outcome.result == DONE
    await restart(here)
    assert (await outcome(here, run_id=run_id)).outcome.result == DONE
    listed = (await here.call("ListActivityExecutions")).executions
    assert [(each.activity_id, each.status) for each in listed] == [
        ("a", ActivityExecutionStatus.ACTIVITY_EXECUTION_STATUS_COMPLETED)
    ]


@served
async def test_a_manifest_starts_an_activity_that_clients_see(here: Served) -> None:
    described = {"type": "Do", "taskQueue": QUEUE, "startToCloseTimeout": "1m"}
    here.world.create("WorkflowRun", "charge", {"activity": described, "workflowId": "a", "input": {"order": 17}})
    task = await attempt(here)
    assert (task.activity_id, task.activity_type.name, task.input.payloads[0].data) == ("a", "Do", b'{"order":17}')
    with pytest.raises(RpcError, match="activity execution already started"):
        await begin(here)
    await complete(here, task)
    assert (await outcome(here)).outcome.result == DONE
    status = here.world.run("charge")["status"]
    assert (status["phase"], status["output"]) == ("Completed", "done")


@served
async def test_a_manifest_that_names_a_retry_policy_waits_for_it(here: Served) -> None:
    described = {
        "type": "Do",
        "taskQueue": QUEUE,
        "startToCloseTimeout": "1m",
        "retryPolicy": {"name": "twice"},
    }
    here.world.create("WorkflowRun", "charge", {"activity": described, "workflowId": "a"})
    await asyncio.sleep(30)
    here.world.create("RetryPolicy", "twice", {"exponential": {"initialInterval": "1s", "maximumAttempts": 2}})
    for _ in range(2):
        await fail(here, await attempt(here))
    assert (await outcome(here)).outcome.failure.message == "no"


@served
async def test_a_client_can_pause_and_reset_an_activity(here: Served) -> None:
    await begin(here)
    await fail(here, await attempt(here))
    paused = {"activity_id": "a", "reason": "maintenance", "request_id": "1"}
    await here.call("PauseActivityExecution", **paused)
    await here.call("PauseActivityExecution", **paused)
    with pytest.raises(RpcError, match="activity is in non-pausable state Paused"):
        await here.call("PauseActivityExecution", activity_id="a", request_id="2")
    info = (await describe(here)).info
    assert (info.status, info.run_state) == (
        ActivityExecutionStatus.ACTIVITY_EXECUTION_STATUS_PAUSED,
        PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED,
    )
    query = "ExecutionStatus = 'Paused'"
    assert [each.activity_id for each in (await here.call("ListActivityExecutions", query=query)).executions] == ["a"]
    waiting = asyncio.ensure_future(attempt(here))
    await asyncio.sleep(30)
    assert not waiting.done()
    await here.call("UnpauseActivityExecution", activity_id="a", request_id="1")
    second = await waiting
    assert second.attempt == 2
    with pytest.raises(RpcError, match="activity is in non-unpausable state Started"):
        await here.call("UnpauseActivityExecution", activity_id="a")
    await here.call("ResetActivityExecution", activity_id="a")
    assert (await here.call("RecordActivityTaskHeartbeat", task_token=second.task_token)).activity_reset
    await fail(here, second)
    last = await attempt(here)
    assert last.attempt == 2, "the attempt that was reset counts as the first"
    await here.call("PauseActivityExecution", activity_id="a")
    assert (await here.call("RecordActivityTaskHeartbeat", task_token=last.task_token)).activity_paused
    await complete(here, last)
    assert (await outcome(here)).outcome.result == DONE
    for rpc in ("PauseActivityExecution", "UnpauseActivityExecution", "ResetActivityExecution"):
        with pytest.raises(RpcError, match="state Completed"):
            await here.call(rpc, activity_id="a")


@served
async def test_a_client_can_change_the_options_of_an_activity(here: Served) -> None:
    await begin(here)
    options = ActivityOptions()
    options.start_to_close_timeout.FromSeconds(5)
    options.retry_policy.maximum_attempts = 1
    mask = FieldMask(paths=["startToCloseTimeout", "retry_policy.maximum_attempts"])
    changed = await here.call(
        "UpdateActivityExecutionOptions", activity_id="a", activity_options=options, update_mask=mask
    )
    assert changed.activity_options.start_to_close_timeout.seconds == 5
    assert changed.activity_options.retry_policy.maximum_attempts == 1
    restored = await here.call("UpdateActivityExecutionOptions", activity_id="a", restore_original=True)
    assert restored.activity_options.start_to_close_timeout.seconds == 60
    await here.call("UpdateActivityExecutionOptions", activity_id="a", activity_options=options, update_mask=mask)
    await attempt(here)
    assert (await outcome(here)).outcome.failure.message == "activity StartToClose timeout"
    with pytest.raises(RpcError, match="UpdateMask must specify at least one path"):
        await here.call("UpdateActivityExecutionOptions", activity_id="a")
    with pytest.raises(RpcError, match="activity not found for ID: nothing"):
        await here.call("UpdateActivityExecutionOptions", activity_id="nothing", restore_original=True)


@served
async def test_the_same_rpcs_change_an_activity_of_a_workflow(here: Served) -> None:
    await here.start()
    await here.decide(activity("a", start_to_close_timeout=timedelta(seconds=60)))
    await here.call("PauseActivityExecution", workflow_id="w", activity_id="a")
    waiting = asyncio.ensure_future(attempt(here))
    await asyncio.sleep(30)
    assert not waiting.done()
    await here.call("UnpauseActivityExecution", workflow_id="w", activity_id="a")
    assert (await waiting).activity_id == "a"
    with pytest.raises(RpcError, match="activity not found"):
        await here.call("ResetActivityExecution", workflow_id="w", activity_id="b")
    with pytest.raises(RpcError, match="activity not found for ID: a"):
        await here.call("ResetActivityExecution", activity_id="a")
