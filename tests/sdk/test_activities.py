"""Activities and retries, as the SDK sees them. The numbers in names are the points of Temporal's semantics that they try."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as TemporalTimeoutError

from support.sdk import flows
from support.sdk.client import Temporal, until


async def failure(temporal: Temporal, name: str, arguments: list[Any], **options: Any) -> ActivityError:
    with pytest.raises(WorkflowFailureError) as caught:
        await temporal.run(flows.Call.run, name, arguments, options)
    error = caught.value.cause
    assert isinstance(error, ActivityError)
    return error


async def test_hello_world_has_temporals_history(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "World")
        assert await handle.result() == "Hello, World"
    assert await temporal.names(handle) == [
        "WorkflowExecutionStarted",
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "ActivityTaskScheduled",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionCompleted",
    ]


async def test_21_defaults_of_the_retry_policy_are_written_into_the_history(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Greet.run, "World")
        await handle.result()
    scheduled = next(a for name, a in await temporal.history(handle) if name == "ActivityTaskScheduled")
    policy = scheduled.retry_policy
    assert policy.initial_interval.ToTimedelta() == timedelta(seconds=1)
    assert policy.backoff_coefficient == 2.0
    assert policy.maximum_interval.ToTimedelta() == timedelta(seconds=100)
    assert policy.maximum_attempts == 0


async def test_22_an_activity_fails_immediately_if_the_next_attempt_would_be_too_late(temporal: Temporal) -> None:
    async with temporal.worker():
        error = await failure(
            temporal, "fail", ["Slow", False], schedule_to_close_timeout=60, retry={"initial_interval": 90}
        )
    assert error.retry_state == RetryState.RETRY_STATE_TIMEOUT
    assert isinstance(error.cause, ApplicationError)
    assert error.cause.type == "Slow"


async def test_23_a_timeout_without_time_for_another_attempt_becomes_schedule_to_close(
    temporal: Temporal,
) -> None:
    async with temporal.worker():
        error = await failure(
            temporal,
            "silent",
            [],
            start_to_close_timeout=1,
            schedule_to_close_timeout=60,
            retry={"initial_interval": 90},
        )
    assert error.retry_state == RetryState.RETRY_STATE_TIMEOUT
    assert isinstance(error.cause, TemporalTimeoutError)
    assert error.cause.type == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE
    assert error.cause.message.startswith("Not enough time to schedule next retry")
    assert error.cause.cause is None, "the cause is the failure of the attempt before, and this was the first one"


async def test_24_25_timeouts_end_attempts(temporal: Temporal) -> None:
    async with temporal.worker():
        silent = await failure(temporal, "silent", [], start_to_close_timeout=1, retry={"maximum_attempts": 1})
        beatless = await failure(
            temporal, "silent", [], heartbeat_timeout=1, start_to_close_timeout=30, retry={"maximum_attempts": 1}
        )
    assert isinstance(silent.cause, TemporalTimeoutError)
    assert silent.cause.type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    assert silent.cause.message == "activity StartToClose timeout"
    assert isinstance(beatless.cause, TemporalTimeoutError)
    assert beatless.cause.type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT
    assert beatless.cause.message == "activity Heartbeat timeout"


async def test_24_schedule_to_start_is_never_retried(temporal: Temporal) -> None:
    async with temporal.worker(activities=[]):
        late = await failure(temporal, "greet", ["x"], schedule_to_start_timeout=1)
        never = await failure(temporal, "greet", ["x"], schedule_to_close_timeout=1)
    for error in (late, never):
        assert isinstance(error.cause, TemporalTimeoutError)
        assert error.cause.type == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START


async def test_26_next_retry_delay_replaces_the_interval_and_respects_the_limits(temporal: Temporal) -> None:
    retry = {"initial_interval": 3600, "maximum_attempts": 3}
    async with temporal.worker():
        error = await failure(temporal, "fail_with_delay", [0.1], retry=retry)
        late = await failure(
            temporal, "fail_with_delay", [3600], schedule_to_close_timeout=60, retry={"initial_interval": 0.1}
        )
    assert error.retry_state == RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
    assert late.retry_state == RetryState.RETRY_STATE_TIMEOUT


async def test_27_heartbeat_details_survive_failed_attempts(temporal: Temporal) -> None:
    async with temporal.worker():
        result = await temporal.run(flows.Call.run, "beat_then_fail", [], {"retry": {"initial_interval": 0.1}})
    assert result == [3, "p1"]


async def test_28_only_the_last_attempt_has_a_started_event(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Call.run, "fail_until", [3], {"retry": {"initial_interval": 0.1}})
        assert await handle.result() == 3
    started = [a for name, a in await temporal.history(handle) if name == "ActivityTaskStarted"]
    assert [a.attempt for a in started] == [3]
    assert started[0].last_failure.application_failure_info.type == "NotYet"


async def test_31_failures_of_earlier_attempts_are_kept_in_short_form(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Call.run, "fail_at_length", [], {"retry": {"initial_interval": 3600}})

        async def failed() -> Any:
            found = (await handle.describe()).raw_description.pending_activities
            return found[0].last_failure if found and found[0].attempt == 2 else None

        kept = await until("the first attempt to fail", failed)
        assert (kept.message, kept.application_failure_info.type) == ("x" * 4_096, "Long")
        assert not kept.application_failure_info.HasField("details")
        await handle.terminate()


@pytest.mark.parametrize("started", [True, False])
async def test_29_cancelling_an_activity(temporal: Temporal, *, started: bool) -> None:
    async with temporal.worker():
        assert await temporal.run(flows.CancelsActivity.run, started) == "CancelledError"


async def test_errors_keep_type_details_and_non_retryable(temporal: Temporal) -> None:
    async with temporal.worker():
        error = await failure(temporal, "fail", ["Broken", True])
    assert error.retry_state == RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
    cause = error.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.message, cause.type, cause.non_retryable, list(cause.details)) == (
        "it failed",
        "Broken",
        True,
        [{"code": 7}],
    )


async def test_an_activity_is_completed_by_its_task_token(temporal: Temporal) -> None:
    async with temporal.worker():
        handle = await temporal.start(flows.Call.run, "complete_async", [], {})

        async def pending() -> Any:
            found = (await handle.describe()).raw_description.pending_activities
            return found[0] if found and found[0].attempt and found[0].HasField("last_started_time") else None

        activity = await until("the activity to start", pending)
        by_id = temporal.client.get_async_activity_handle(
            workflow_id=handle.id, run_id=None, activity_id=activity.activity_id
        )
        await by_id.heartbeat("half")
        assert (await handle.describe()).raw_description.pending_activities[0].HasField("heartbeat_details")
        await by_id.complete("from elsewhere")
        assert await handle.result() == "from elsewhere"
        with pytest.raises(Exception, match="activity"):
            await by_id.complete("again")


@pytest.mark.cluster
async def test_a_worker_cannot_complete_an_activity_that_runs_in_a_pod(temporal: Temporal) -> None:
    waits = {"image": "registry.invalid/none", "command": ["true"]}
    work = {"name": "work", "startToCloseTimeout": "1h", "container": waits}
    definition = {"activities": [work], "steps": [{"name": "work", "activity": {"name": "work"}}]}
    cluster = temporal.cluster
    cluster.start("in-pod", {"inline": definition})
    pending = await asyncio.to_thread(cluster.pending, "in-pod", step="work")
    forged = temporal.client.get_async_activity_handle(workflow_id="in-pod", run_id=None, activity_id="work")
    for said in (forged.heartbeat("forged"), forged.complete("forged"), forged.fail(ValueError("forged"))):
        with pytest.raises(Exception, match=r"runs in a pod.*`completeActivity`"):
            await said
    with pytest.raises(Exception, match="runs in a pod"):
        await forged.report_cancellation("forged")
    after = cluster.pending("in-pod", step="work")
    assert [after.get(field) for field in ("attempt", "lastFailure", "heartbeatDetails")] == [
        pending["attempt"],
        None,
        None,
    ]
    cluster.delete("workflowrun", "in-pod")


async def test_ten_concurrent_workflows_complete(temporal: Temporal) -> None:
    async with temporal.worker(max_concurrent_activities=20):
        results = await asyncio.gather(*[temporal.run(flows.Greet.run, str(number)) for number in range(10)])
    assert results == [f"Hello, {number}" for number in range(10)]


async def test_an_unknown_pod_activity_fails(temporal: Temporal) -> None:
    async with temporal.worker():
        error = await failure(temporal, "upper", [], task_queue="pods/nobody")
        assert isinstance(error.cause, ApplicationError)
        assert error.cause.type == "InvalidActivity"
