"""Standalone activities, as the SDK's client and its workers see them."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.workflowservice.v1 import DeleteActivityExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import (
    ActivityExecutionStatus,
    ActivityFailureError,
    ActivityHandle,
    ActivityOptionsKeys,
    PendingActivityState,
)
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, Priority, RetryPolicy
from temporalio.exceptions import (
    ActivityAlreadyStartedError,
    ApplicationError,
    CancelledError,
    TerminatedError,
    TimeoutType,
)
from temporalio.exceptions import TimeoutError as TemporalTimeoutError
from temporalio.service import RPCError, RPCStatusCode

from support.sdk.client import Temporal, until

MINUTE = timedelta(minutes=1)


@activity.defn
async def greet(name: str) -> str:
    info = activity.info()
    assert info.workflow_id is None
    assert info.activity_run_id
    return f"Hello, {name}, from attempt {info.attempt}"


@activity.defn
async def fail_until(attempt: int) -> int:
    activity.heartbeat("at", activity.info().attempt)
    if activity.info().attempt < attempt:
        raise ApplicationError("not yet", type="NotYet")
    return activity.info().attempt


@activity.defn
async def wait_for_cancellation() -> str:
    try:
        while True:
            activity.heartbeat("waiting")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        raise CancelledError("stopped") from None


@activity.defn
async def complete_async() -> str:
    activity.raise_complete_async()


async def start(temporal: Temporal, what: Any, *arguments: Any, **options: Any) -> ActivityHandle[Any]:
    options.setdefault("id", f"a-{uuid.uuid4().hex[:8]}")
    options.setdefault("task_queue", temporal.task_queue)
    options.setdefault("start_to_close_timeout", MINUTE)
    return await temporal.client.start_activity(what, args=list(arguments), **options)


async def failure(handle: ActivityHandle[Any]) -> BaseException:
    with pytest.raises(ActivityFailureError) as caught:
        await handle.result()
    assert caught.value.cause is not None
    return caught.value.cause


@pytest.fixture
async def worker(temporal: Temporal) -> AsyncIterator[None]:
    done = [greet, fail_until, wait_for_cancellation, complete_async]
    async with temporal.worker(workflows=[], activities=done):
        yield


@pytest.mark.usefixtures("worker")
async def test_an_activity_is_executed_without_a_workflow(temporal: Temporal) -> None:
    said = await temporal.client.execute_activity(
        greet, "World", id=temporal.task_queue, task_queue=temporal.task_queue, start_to_close_timeout=MINUTE
    )
    assert said == "Hello, World, from attempt 1"
    reported = await temporal.client.get_activity_handle(temporal.task_queue).describe(
        include_input=True, include_outcome=True
    )
    assert reported.status is ActivityExecutionStatus.COMPLETED
    assert reported.activity_type == "greet"
    assert reported.attempt == 1
    assert reported.run_state is None
    assert await reported.input() == ["World"]
    assert await reported.result() == said
    assert reported.close_time is not None
    assert reported.execution_duration == reported.close_time - reported.schedule_time
    assert reported.last_worker_identity
    assert reported.retry_policy == RetryPolicy(maximum_interval=timedelta(seconds=100))


@pytest.mark.usefixtures("worker")
async def test_an_activity_that_fails_is_retried_with_its_heartbeat_details(temporal: Temporal) -> None:
    handle = await start(temporal, fail_until, 3, retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=50)))
    assert await handle.result() == 3
    reported = await handle.describe(include_heartbeat_details=True, include_last_failure=True)
    assert reported.attempt == 3
    assert await reported.heartbeat_details() == ["at", 3]
    assert reported.total_heartbeat_count >= 3
    last = await reported.last_failure()
    assert isinstance(last, ApplicationError)
    assert last.type == "NotYet"


@pytest.mark.usefixtures("worker")
async def test_a_non_retryable_failure_fails_the_activity(temporal: Temporal) -> None:
    handle = await start(temporal, fail_until, 9, retry_policy=RetryPolicy(maximum_attempts=1))
    error = await failure(handle)
    assert isinstance(error, ApplicationError)
    assert error.type == "NotYet"
    reported = await handle.describe(include_outcome=True)
    assert reported.status is ActivityExecutionStatus.FAILED
    assert isinstance(await reported.outcome_failure(), ApplicationError)


async def test_an_activity_without_a_worker_times_out(temporal: Temporal) -> None:
    handle = await start(temporal, greet, "World", schedule_to_start_timeout=timedelta(milliseconds=200))
    error = await failure(handle)
    assert isinstance(error, TemporalTimeoutError)
    assert error.type is TimeoutType.SCHEDULE_TO_START
    assert (await handle.describe()).status is ActivityExecutionStatus.TIMED_OUT


@pytest.mark.usefixtures("worker")
async def test_a_running_activity_gets_a_cancellation_request(temporal: Temporal) -> None:
    handle = await start(temporal, wait_for_cancellation, heartbeat_timeout=timedelta(seconds=2))

    async def started() -> bool:
        return (await handle.describe()).run_state is PendingActivityState.STARTED

    await until("the start of the activity", started)
    await handle.cancel(reason="enough")
    error = await failure(handle)
    assert isinstance(error, CancelledError)
    assert error.message == "Activity canceled"
    reported = await handle.describe()
    assert reported.status is ActivityExecutionStatus.CANCELED
    assert reported.canceled_reason == "enough"


async def test_a_pending_activity_is_canceled_immediately(temporal: Temporal) -> None:
    handle = await start(temporal, greet, "World")
    assert (await handle.describe()).run_state is PendingActivityState.SCHEDULED
    await handle.cancel(reason="enough")
    error = await failure(handle)
    assert isinstance(error, CancelledError)
    assert list(error.details) == ["enough"]
    with pytest.raises(RPCError, match="activity is in terminal state Canceled") as caught:
        await handle.cancel()
    assert caught.value.status is RPCStatusCode.FAILED_PRECONDITION


async def test_an_activity_is_terminated(temporal: Temporal) -> None:
    handle = await start(temporal, greet, "World")
    await handle.terminate(reason="no more")
    error = await failure(handle)
    assert isinstance(error, TerminatedError)
    assert error.message == "no more"
    assert (await handle.describe()).status is ActivityExecutionStatus.TERMINATED
    with pytest.raises(RPCError, match="already terminated with request ID"):
        await handle.terminate()


@pytest.mark.usefixtures("worker")
async def test_an_activity_is_completed_by_its_id(temporal: Temporal) -> None:
    handle = await start(temporal, complete_async)

    async def started() -> bool:
        return (await handle.describe()).run_state is PendingActivityState.STARTED

    await until("the start of the activity", started)
    by_id = temporal.client.get_async_activity_handle(activity_id=handle.id, run_id=handle.run_id)
    await by_id.heartbeat("half")
    assert await (await handle.describe(include_heartbeat_details=True)).heartbeat_details() == ["half"]
    await by_id.complete("done")
    assert await handle.result() == "done"


@pytest.mark.usefixtures("worker")
async def test_the_conflict_policy_applies_to_an_id_in_use(temporal: Temporal) -> None:
    handle = await start(temporal, complete_async)
    with pytest.raises(ActivityAlreadyStartedError) as caught:
        await start(temporal, greet, "World", id=handle.id)
    assert caught.value.run_id == handle.run_id
    same = await start(temporal, greet, "World", id=handle.id, id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING)
    assert same.run_id == handle.run_id
    await temporal.client.get_async_activity_handle(activity_id=handle.id, run_id=None).complete("done")
    assert await same.result() == "done"
    for policy in (ActivityIDReusePolicy.REJECT_DUPLICATE, ActivityIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY):
        with pytest.raises(ActivityAlreadyStartedError):
            await start(temporal, greet, "World", id=handle.id, id_reuse_policy=policy)
    again = await start(temporal, greet, "World", id=handle.id)
    assert again.run_id != handle.run_id
    assert await again.result() == "Hello, World, from attempt 1"
    assert await temporal.client.get_activity_handle(handle.id, run_id=handle.run_id).result() == "done"


async def test_an_activity_and_a_workflow_with_the_same_id_are_listed_separately(temporal: Temporal) -> None:
    workflow = await temporal.start("NoDecider")
    handle = await start(temporal, greet, "World", id=workflow.id)
    client, query = temporal.client, f"TaskQueue = '{temporal.task_queue}'"
    assert [each.run_id async for each in client.list_workflows(query)] == [workflow.result_run_id]
    listed = [each async for each in client.list_activities(f"{query} AND ActivityId = '{handle.id}'")]
    assert [(each.activity_run_id, each.activity_type, each.status) for each in listed] == [
        (handle.run_id, "greet", ActivityExecutionStatus.RUNNING)
    ]
    assert (await client.count_workflows(query)).count == 1
    counted = await client.count_activities(f"{query} GROUP BY ExecutionStatus")
    assert [(group.count, list(group.group_values)) for group in counted.groups] == [(1, ["Running"])]
    with pytest.raises(RPCError, match="workflow not found for ID"):
        await client.get_workflow_handle(handle.id, run_id=handle.run_id).describe()
    request = ListWorkflowExecutionsRequest(namespace=client.namespace, query="ActivityId = 'a'")
    with pytest.raises(RPCError, match="ActivityId is not a valid search attribute"):
        await client.workflow_service.list_workflow_executions(request)
    await workflow.terminate()
    assert (await handle.describe()).status is ActivityExecutionStatus.RUNNING


async def test_an_activity_waits_for_its_start_delay(temporal: Temporal) -> None:
    handle = await start(
        temporal, greet, "World", start_delay=timedelta(hours=1), priority=Priority(priority_key=1), summary="in short"
    )
    reported = await handle.describe()
    assert reported.start_delay == timedelta(hours=1)
    assert reported.execution_time == reported.schedule_time + timedelta(hours=1)
    assert reported.next_attempt_schedule_time == reported.execution_time
    assert reported.priority == Priority(priority_key=1)
    assert reported.raw_info.user_metadata.summary.data == b'"in short"'


async def test_a_deleted_activity_is_not_found(temporal: Temporal) -> None:
    handle = await start(temporal, greet, "World")
    await temporal.client.workflow_service.delete_activity_execution(
        DeleteActivityExecutionRequest(namespace=temporal.client.namespace, activity_id=handle.id)
    )

    async def gone() -> bool:
        return not (await temporal.client.count_activities(f"ActivityId = '{handle.id}'")).count

    await until("the end of the activity", gone)
    with pytest.raises(RPCError, match=f"activity not found for ID: {handle.id}"):
        await handle.describe()


@pytest.mark.usefixtures("worker")
async def test_a_large_input_and_result_are_passed(temporal: Temporal) -> None:
    name = "x" * 255_000
    handle = await start(temporal, greet, name)
    assert await handle.result() == f"Hello, {name}, from attempt 1"
    assert (await handle.describe()).status is ActivityExecutionStatus.COMPLETED


@pytest.mark.parametrize("policy", [ActivityIDConflictPolicy.FAIL, ActivityIDConflictPolicy.USE_EXISTING])
async def test_simultaneous_starts_create_one_activity(temporal: Temporal, policy: ActivityIDConflictPolicy) -> None:
    name = temporal.task_queue
    several = [start(temporal, greet, "World", id=name, id_conflict_policy=policy) for _ in range(5)]
    begun = await asyncio.gather(*several, return_exceptions=True)
    (listed,) = [each async for each in temporal.client.list_activities(f"ActivityId = '{name}'")]
    runs = [each.run_id for each in begun if isinstance(each, (ActivityHandle, ActivityAlreadyStartedError))]
    assert runs == [listed.activity_run_id] * 5
    handles = [each for each in begun if isinstance(each, ActivityHandle)]
    assert len(handles) == (1 if policy is ActivityIDConflictPolicy.FAIL else 5)


@pytest.mark.usefixtures("worker")
async def test_a_client_can_pause_an_activity_and_change_its_task_queue(temporal: Temporal) -> None:
    handle = await start(temporal, greet, "World", task_queue="nobody")
    await handle.pause(reason="maintenance")
    reported = await handle.describe()
    assert (reported.status, reported.run_state) == (ActivityExecutionStatus.PAUSED, PendingActivityState.PAUSED)
    await handle.update_options([ActivityOptionsKeys.task_queue.value_set(temporal.task_queue)])
    await handle.unpause()
    assert await handle.result() == "Hello, World, from attempt 1"
