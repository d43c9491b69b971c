"""Events of activities that code schedules: SDKs must read what Temporal's server would write."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.retry import RetryPolicy
from support.engine.coded import Coded, activity
from support.engine.script import application, seconds

NOT_ENOUGH_TIME = "Not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying"


def begun(*, maximum_attempts: int = 0, **options: Any) -> Coded:
    """A run with an open activity; each failed attempt is retried after a second."""
    policy = RetryPolicy(backoff_coefficient=1.0, maximum_attempts=maximum_attempts)
    run = Coded.begin()
    run.decide(activity(retry_policy=policy, **options))
    return run


def take(run: Coded, at: float) -> None:
    """Let a worker take the attempt that is due."""
    (open_,) = run.state.activities.values()
    asked = {"scheduled_event_id": open_.scheduled_event_id, "attempt": open_.attempt}
    assert run.ask(inp.ActivityDispatched, at, fence="f", **asked).ok


def report(run: Coded, at: float, **said: Any) -> None:
    """Let the worker report how the attempt ended."""
    (open_,) = run.state.activities.values()
    asked = {"scheduled_event_id": open_.scheduled_event_id, "attempt": open_.attempt}
    assert run.ask(inp.ActivityReported, at, fence="f", **asked, **said).ok


def closing(run: Coded) -> Any:
    """The event that has closed the activity."""
    closed = (ev.ActivityTaskFailed, ev.ActivityTaskTimedOut, ev.ActivityTaskCanceled)
    return next(event for event in run.events if isinstance(event, closed))


@pytest.mark.parametrize("timeout", ["start_to_close_timeout", "heartbeat_timeout"])
def test_the_cause_of_the_last_timeout_is_the_failure_of_the_previous_attempt(timeout: str) -> None:
    run = begun(maximum_attempts=2, **{timeout: seconds(5)})
    take(run, 0)
    report(run, 1, failure=application(cause=application("deeper")))
    take(run, 2)
    run.at(7)
    closed = closing(run)
    assert isinstance(closed, ev.ActivityTaskTimedOut)
    assert closed.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED
    assert closed.failure.timeout_type in {TimeoutType.START_TO_CLOSE, TimeoutType.HEARTBEAT}
    assert closed.failure.cause == application(cause=application("deeper"))


def test_a_timeout_that_is_retried_has_neither_a_cause_nor_heartbeat_details() -> None:
    run = begun(start_to_close_timeout=seconds(5))
    take(run, 0)
    report(run, 1, failure=application(), heartbeat_details=[1])
    take(run, 2)
    run.at(7)
    (open_,) = run.state.activities.values()
    assert open_.last_failure is not None
    assert (open_.last_failure.cause, open_.last_failure.last_heartbeat_details) == (None, None)
    assert open_.heartbeat_details == [1]


def test_schedule_to_close_during_an_attempt_has_the_message_of_temporals_server() -> None:
    run = begun(schedule_to_close_timeout=seconds(5))
    take(run, 0)
    report(run, 1, failure=application(), heartbeat_details=[1])
    take(run, 2)
    run.at(5)
    closed = closing(run)
    assert isinstance(closed, ev.ActivityTaskTimedOut)
    assert closed.retry_state is RetryState.TIMEOUT
    assert closed.failure == Failure(
        kind=FailureKind.TIMEOUT,
        message=NOT_ENOUGH_TIME,
        timeout_type=TimeoutType.SCHEDULE_TO_CLOSE,
        last_heartbeat_details=[1],
        cause=application(),
    )


def test_23_a_timeout_without_time_for_another_attempt_has_the_previous_failure_as_its_cause() -> None:
    run = begun(start_to_close_timeout=seconds(3), schedule_to_close_timeout=seconds(5.5))
    take(run, 0)
    report(run, 1, failure=application())
    take(run, 2)
    run.at(5)
    closed = closing(run)
    assert (closed.failure.timeout_type, closed.failure.message) == (TimeoutType.SCHEDULE_TO_CLOSE, NOT_ENOUGH_TIME)
    assert (closed.retry_state, closed.failure.cause) == (RetryState.TIMEOUT, application())


def test_schedule_to_start_is_a_timeout_with_the_last_failure_as_its_cause() -> None:
    run = begun(schedule_to_start_timeout=seconds(2))
    take(run, 0)
    report(run, 1, failure=application())
    run.at(4)
    closed = closing(run)
    assert isinstance(closed, ev.ActivityTaskTimedOut)
    assert (closed.retry_state, closed.failure.message) == (RetryState.TIMEOUT, "activity ScheduleToStart timeout")
    assert closed.failure.cause == application()


def test_a_timeout_after_a_request_to_cancel_is_not_retried_for_that_reason() -> None:
    run = begun(schedule_to_close_timeout=seconds(5))
    take(run, 1)
    run.signal()
    run.decide(cmd.RequestCancelActivityTask(activity_id="a"))
    run.at(5)
    closed = closing(run)
    assert (closed.retry_state, closed.failure.message) == (
        RetryState.CANCEL_REQUESTED,
        "activity ScheduleToClose timeout",
    )


def test_a_worker_that_reports_a_timeout_reports_a_failure() -> None:
    run = begun()
    take(run, 0)
    timeout = Failure(kind=FailureKind.TIMEOUT, timeout_type=TimeoutType.START_TO_CLOSE, message="mine")
    report(run, 1, failure=timeout)
    take(run, 2)
    final = Failure(kind=FailureKind.TIMEOUT, timeout_type=TimeoutType.SCHEDULE_TO_START, message="mine")
    report(run, 3, failure=final)
    closed = closing(run)
    assert isinstance(closed, ev.ActivityTaskFailed)
    assert (closed.retry_state, closed.failure) == (RetryState.TIMEOUT, final)


def test_29_an_activity_that_has_not_started_is_canceled_by_the_worker_that_decides() -> None:
    run = begun()
    run.signal()
    run.decide(cmd.RequestCancelActivityTask(activity_id="a"), identity="ada")
    asked = next(event for event in run.events if isinstance(event, ev.ActivityTaskCancelRequested))
    closed = closing(run)
    assert isinstance(closed, ev.ActivityTaskCanceled)
    assert closed.latest_cancel_requested_event_id == asked.event_id
    assert (closed.details, closed.identity) == ("ACTIVITY_ID_NOT_STARTED", "ada")


def test_29_a_running_activity_that_is_canceled_names_the_request() -> None:
    run = begun()
    take(run, 0)
    run.signal()
    run.decide(cmd.RequestCancelActivityTask(activity_id="a"))
    report(run, 1, cancelled=True, result="stopped")
    asked = next(event for event in run.events if isinstance(event, ev.ActivityTaskCancelRequested))
    closed = closing(run)
    assert isinstance(closed, ev.ActivityTaskCanceled)
    assert (closed.latest_cancel_requested_event_id, closed.details) == (asked.event_id, "stopped")


@pytest.mark.parametrize(("run_timeout", "want"), [(None, 60), (90, 60), (7, 7)])
def test_a_workflow_task_has_no_more_time_than_its_run(run_timeout: float | None, want: float) -> None:
    limit = None if run_timeout is None else timedelta(seconds=run_timeout)
    run = Coded.begin(workflow_task_timeout=timedelta(seconds=60), workflow_run_timeout=limit)
    scheduled = run.events[1]
    assert isinstance(scheduled, ev.WorkflowTaskScheduled)
    assert scheduled.start_to_close_timeout == timedelta(seconds=want)


@pytest.mark.parametrize(
    ("said", "recorded"),
    [
        ({"start_to_close": 100}, {"schedule_to_close": 60, "schedule_to_start": 60, "start_to_close": 60}),
        (
            {"start_to_close": 5, "heartbeat": 10},
            {"schedule_to_close": 60, "schedule_to_start": 60, "start_to_close": 5, "heartbeat": 5},
        ),
        (
            {"schedule_to_close": 20, "schedule_to_start": 30, "start_to_close": 100},
            {"schedule_to_close": 20, "schedule_to_start": 20, "start_to_close": 20},
        ),
    ],
)
def test_no_timeout_is_longer_than_that_of_the_run_however_late_the_activity_is_scheduled(
    said: dict[str, float], recorded: dict[str, float]
) -> None:
    run = Coded.begin(workflow_run_timeout=seconds(60))
    run.at(17)
    run.decide(activity(**{f"{name}_timeout": seconds(length) for name, length in said.items()}))
    (scheduled,) = (event for event in run.events if isinstance(event, ev.ActivityTaskScheduled))
    names = ("schedule_to_close", "schedule_to_start", "start_to_close", "heartbeat")
    found = {name: getattr(scheduled, f"{name}_timeout") for name in names}
    assert found == {name: seconds(recorded[name]) if name in recorded else None for name in names}
