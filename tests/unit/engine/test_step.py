"""Single steps, case by case; times are in seconds since the start."""

import msgspec
import pytest

from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.failures import FailureKind, RetryState, TimeoutType
from perdure.engine.fold import as_recorded
from perdure.engine.inputs import AttemptCompleted, HeartbeatRead
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import RunStatus
from perdure.engine.step import next_wake, terminate
from support.engine.script import T0, Drive, Reacting, Script, activity, application, seconds, timer

ONCE = RetryPolicy(maximum_attempts=1)


def test_a_completed_activity_records_scheduled_started_completed_and_the_run_continues() -> None:
    drive = Drive.of(activity())
    drive.started(1)
    drive.completed(3, {"ok": True})
    assert drive.types() == [
        "WorkflowExecutionStarted",
        "ActivityTaskScheduled",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowExecutionCompleted",
    ]
    assert drive.state.status is RunStatus.COMPLETED
    assert drive.history[2].event_time == T0 + seconds(1)
    assert drive.retired == [(2, 1)]


def test_the_start_of_an_attempt_alone_needs_no_commit() -> None:
    drive = Drive.of(activity())
    assert drive.started(1).durable is False


def test_a_retry_waits_longer_each_time_and_keeps_the_last_failure() -> None:
    drive = Drive.of(activity())
    for attempt, (offset, wait) in enumerate([(1, 1), (5, 2), (10, 4)], start=1):
        drive.failed(offset)
        assert drive.open.attempt == attempt + 1
        assert drive.open.scheduled_time == T0 + seconds(offset + wait)
        assert next_wake(drive.state, drive.now) == T0 + seconds(offset + wait)
    assert drive.open.last_failure == application()
    assert drive.types() == ["WorkflowExecutionStarted", "ActivityTaskScheduled"]
    assert drive.retired == [(2, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize(
    ("policy", "failure", "want"),
    [
        (ONCE, application(), RetryState.MAXIMUM_ATTEMPTS_REACHED),
        (RetryPolicy(), application(non_retryable=True), RetryState.NON_RETRYABLE_FAILURE),
        (
            RetryPolicy(non_retryable_error_types=("Declined",)),
            application(),
            RetryState.NON_RETRYABLE_FAILURE,
        ),
    ],
    ids=["the last attempt", "a failure marked final", "a listed type"],
)
def test_a_failure_that_is_not_retried_has_the_retry_state(
    policy: RetryPolicy, failure: object, want: RetryState
) -> None:
    drive = Drive.of(activity(retry_policy=policy))
    drive.failed(1, failure)  # type: ignore[arg-type]
    closing = drive.history[-2]
    assert isinstance(closing, ev.ActivityTaskFailed)
    assert closing.retry_state is want
    assert drive.state.status is RunStatus.FAILED


def test_22_no_retry_is_scheduled_past_schedule_to_close() -> None:
    drive = Drive.of(
        activity(schedule_to_close_timeout=seconds(2), retry_policy=RetryPolicy(initial_interval=seconds(5)))
    )
    drive.failed(0.04)
    closing = drive.history[-2]
    assert isinstance(closing, ev.ActivityTaskFailed)
    assert closing.retry_state is RetryState.TIMEOUT
    assert closing.failure == application()


def test_23_an_attempt_timeout_without_time_for_another_becomes_schedule_to_close() -> None:
    drive = Drive.of(
        activity(
            start_to_close_timeout=seconds(5),
            schedule_to_close_timeout=seconds(7),
            retry_policy=RetryPolicy(initial_interval=seconds(5)),
        )
    )
    drive.started(0)
    drive.at(5)
    closing = drive.history[-2]
    assert isinstance(closing, ev.ActivityTaskTimedOut)
    assert closing.failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE
    assert closing.failure.message.startswith("Not enough time to schedule next retry before activity ScheduleToClose")
    assert closing.failure.cause is not None
    assert closing.failure.cause.timeout_type is TimeoutType.START_TO_CLOSE


def test_26_next_retry_delay_replaces_the_interval_once_and_exceeds_the_maximum() -> None:
    drive = Drive.of(activity(retry_policy=RetryPolicy(maximum_interval=seconds(10))))
    drive.failed(1, application(next_retry_delay=seconds(50)))
    assert drive.open.scheduled_time == T0 + seconds(51)
    drive.failed(51)
    assert drive.open.scheduled_time == T0 + seconds(53)


def test_25_start_to_close_restarts_with_each_attempt() -> None:
    drive = Drive.of(activity(start_to_close_timeout=seconds(10)))
    drive.started(2)
    drive.at(12)
    assert drive.open.attempt == 2
    drive.started(13)
    drive.at(22)
    assert drive.open.attempt == 2
    drive.at(23)
    assert drive.open.attempt == 3


@pytest.mark.parametrize("timeout", ["schedule_to_start_timeout", "schedule_to_close_timeout"])
def test_24_an_activity_that_does_not_start_in_time_is_never_retried(timeout: str) -> None:
    drive = Drive.of(activity(**{timeout: seconds(5)}))
    drive.at(5)
    closing = drive.history[-2]
    assert isinstance(closing, ev.ActivityTaskTimedOut)
    assert closing.failure.timeout_type is TimeoutType.SCHEDULE_TO_START
    assert (closing.started_event_id, closing.retry_state) == (0, RetryState.TIMEOUT)


def test_schedule_to_close_ends_a_backing_off_activity_with_its_last_failure_as_cause() -> None:
    drive = Drive.of(activity(schedule_to_close_timeout=seconds(10)))
    drive.failed(1)
    drive.started(2)
    drive.at(10)
    closing = drive.history[-2]
    assert isinstance(closing, ev.ActivityTaskTimedOut)
    assert closing.failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE
    assert closing.failure.cause == application()


def beat(drive: Drive, offset: float | None, details: object = None) -> HeartbeatRead:
    a = drive.open
    time = None if offset is None else T0 + seconds(offset)
    return HeartbeatRead(scheduled_event_id=a.scheduled_event_id, attempt=a.attempt, time=time, details=details)


def test_25_a_heartbeat_timeout_fires_only_after_the_lease_was_read_again() -> None:
    drive = Drive.of(activity(heartbeat_timeout=seconds(5)))
    drive.started(0)
    drive.at(6)
    assert drive.open.attempt == 1
    drive.at(7, beat(drive, 4, {"done": 3}))
    assert drive.open.attempt == 1
    assert next_wake(drive.state, drive.now) == T0 + seconds(9)
    drive.at(9, beat(drive, 4, {"done": 3}))
    assert drive.open.attempt == 2
    assert drive.open.last_failure is not None
    assert drive.open.last_failure.timeout_type is TimeoutType.HEARTBEAT
    assert drive.open.heartbeat_details == {"done": 3}


def test_a_reading_of_an_earlier_attempt_causes_no_heartbeat_timeout() -> None:
    drive = Drive.of(activity(heartbeat_timeout=seconds(5)))
    drive.failed(1)
    drive.started(2)
    drive.at(20, HeartbeatRead(scheduled_event_id=2, attempt=1, time=T0))
    assert drive.open.attempt == 2


def test_27_heartbeat_details_survive_failed_attempts_and_an_empty_heartbeat_clears_them() -> None:
    drive = Drive.of(activity(heartbeat_timeout=seconds(50)))
    drive.started(0)
    drive.at(1, beat(drive, 1, "p1"))
    drive.failed(2)
    drive.started(3)
    drive.failed(4)
    assert drive.open.heartbeat_details == "p1"
    drive.started(6)
    drive.at(7, beat(drive, 7, None))
    assert drive.open.heartbeat_details is None


def test_31_the_failure_of_an_attempt_is_kept_in_short_form_while_others_follow() -> None:
    drive = Drive.of(activity())
    cause = application(stack_trace="w" * 9_000)
    drive.failed(1, application("x" * 9_000, details="y" * 9_000, stack_trace="z" * 9_000, cause=cause))
    kept = drive.open.last_failure
    assert kept is not None
    assert msgspec.structs.replace(kept, cause=None) == application("x" * 4_096, stack_trace="z" * 4_096)
    assert kept.cause is not None
    assert kept.cause.message == "no"
    assert len(msgspec.json.encode(kept.cause)) <= 4_096
    drive.failed(3, application(details="small"))
    assert drive.open.last_failure == application(details="small")


@pytest.mark.parametrize("losses", [0, 2])
def test_an_activity_fails_when_more_attempts_are_lost_than_its_policy_allows(losses: int) -> None:
    """airflow#53015."""
    policy = RetryPolicy(maximum_losses=losses)
    drive = Drive.by(Reacting((activity(retry_policy=policy),)))
    for number in range(losses):
        drive.lost(10 * number)
        assert drive.open.losses == number + 1
        drive.at(10 * number + 5)
    drive.lost(100)
    failed = drive.history[-1]
    assert isinstance(failed, ev.ActivityTaskFailed)
    assert (failed.failure.type, failed.losses, failed.failure.non_retryable) == ("TooManyLosses", losses + 1, True)
    assert failed.failure.cause is not None
    assert failed.failure.cause.message == "node gone"
    drive.check_replay()


def test_a_lost_pod_does_not_count_as_an_attempt_of_the_policy() -> None:
    drive = Drive.of(activity(retry_policy=RetryPolicy(maximum_attempts=2)))
    drive.lost(1)
    drive.lost(3)
    assert drive.open.attempt == 3
    drive.failed(8)
    assert drive.open.attempt == 4
    drive.failed(10)
    assert drive.state.status is RunStatus.FAILED


def test_a_superseded_attempt_changes_nothing() -> None:
    drive = Drive.of(activity())
    drive.failed(1)
    before = drive.state
    drive.at(2, AttemptCompleted(scheduled_event_id=2, attempt=1, result="late"))
    assert drive.state == before
    assert drive.last is not None
    assert drive.last.events == ()


def test_a_result_observed_after_the_deadline_counts() -> None:
    drive = Drive.of(activity(start_to_close_timeout=seconds(10), retry_policy=ONCE))
    drive.started(0)
    drive.completed(3600, "done")
    assert drive.state.status is RunStatus.COMPLETED


def test_timers_fire_in_the_order_of_their_times_before_a_later_run_timeout() -> None:
    drive = Drive.of(timer("a", 10), timer("b", 10), workflow_run_timeout=seconds(1000))
    drive.at(500)
    assert drive.types()[1:3] == ["TimerStarted", "TimerFired"]
    drive.at(5000)
    assert drive.types()[-1] == "WorkflowExecutionCompleted"


def test_a_state_that_contradicts_itself_is_refused_and_cannot_keep_the_operator_busy() -> None:
    drive = Drive.of(timer("short", 5))
    state = history.encode(drive.state)
    state["timers"] = {"short": {**state["timers"]["short"], "timerId": "other"}}
    with pytest.raises(msgspec.ValidationError, match=r"`timers\.short` has the ID 'other'"):
        history.decode_state(state)
    other = msgspec.structs.replace(drive.state.timers["short"], timer_id="other")
    drive.assume(timers={"short": other})
    with pytest.raises(RuntimeError, match="the state contradicts itself"):
        drive.at(6)


def test_the_run_timeout_closes_the_run_and_its_open_work() -> None:
    drive = Drive.of(activity(), workflow_run_timeout=seconds(30))
    drive.started(1)
    drive.at(30)
    assert drive.state.status is RunStatus.TIMED_OUT
    assert drive.failure is not None
    assert drive.failure.kind is FailureKind.TIMEOUT
    assert drive.retired == [(2, 1)]
    assert drive.state.activities == {}


def test_termination_closes_the_run_and_its_open_work_immediately_with_the_reason() -> None:
    drive = Drive.of(activity(), timer("t", 1))
    drive.started(1)
    drive.take(terminate(drive.state, "enough", T0 + seconds(2), drive.script))
    assert drive.state.status is RunStatus.TERMINATED
    assert drive.failure is not None
    assert (drive.failure.kind, drive.failure.message) == (FailureKind.TERMINATED, "enough")
    assert drive.retired == [(2, 1)]
    replayed = history.replay(drive.history, Script(activity(), timer("t", 1)))
    assert replayed == as_recorded(drive.state)


def test_30_activity_timeouts_are_limited_to_the_run_timeout_and_heartbeats_to_start_to_close() -> None:
    drive = Drive.of(
        activity(start_to_close_timeout=seconds(600), heartbeat_timeout=seconds(900)),
        workflow_run_timeout=seconds(100),
    )
    assert drive.open.start_to_close_timeout == seconds(100)
    assert drive.open.heartbeat_timeout == seconds(100)


def test_30_start_to_close_defaults_to_schedule_to_close() -> None:
    drive = Drive.of(activity(start_to_close_timeout=None, schedule_to_close_timeout=seconds(70)))
    assert drive.open.start_to_close_timeout == seconds(70)


def test_a_failed_decision_is_retried_with_backoff_and_does_not_fail_the_run() -> None:
    drive = Drive.of(activity())
    drive.script.broken = True
    drive.completed(1, "kept")
    assert drive.state.status is RunStatus.RUNNING
    assert drive.state.task is not None
    assert drive.state.task.message == "the script is broken"
    assert next_wake(drive.state, drive.now) == T0 + seconds(3)
    drive.at(3)
    assert drive.state.task.attempt == 2
    drive.script.broken = False
    drive.at(7)
    assert drive.state.task is None
    assert drive.types()[-1] == "WorkflowExecutionCompleted"


def test_a_closed_run_ignores_further_inputs() -> None:
    drive = Drive.of(timer("t", 1))
    drive.at(2)
    before = drive.state
    assert drive.at(9).events == ()
    assert drive.state == before
    assert next_wake(before, drive.now) is None
