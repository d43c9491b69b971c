"""Standalone activities: runs of one activity of workers, which close with its outcome."""

from typing import Any

import msgspec
import pytest

from perdure.api.reasons import ConditionReason
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.commands import StandaloneDecider
from perdure.engine.failures import RetryState, TimeoutType
from perdure.engine.fold import apply, as_recorded
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import RunState, RunStatus
from perdure.engine.step import next_wake
from support.engine.script import T0, Drive, application, seconds
from support.engine.standalone import begin, take, worker


def left(run: Drive) -> Any:
    """What is kept of the activity after the run has closed; the history leads to the state of the run."""
    folded: RunState | None = None
    for event in history.decode_events(history.encode(run.history)):
        folded = apply(folded, event)
    assert folded is not None
    assert as_recorded(folded) == as_recorded(msgspec.structs.replace(run.state, memory=None))
    assert history.decode_state(history.encode(run.state)) == run.state
    assert run.state.closed
    assert not run.state.activities
    assert next_wake(run.state, run.now) is None
    (activity,) = run.state.left_activities.values()
    return activity


def names(run: Drive) -> list[str]:
    return [type(event).__name__ for event in run.history]


def test_a_run_completes_with_the_result_of_its_activity_in_the_form_for_clients() -> None:
    run = begin(input={"payloads": [{"json": 1}, {"json": 2}]})
    take(run, 0)
    result = {"payloads": [{"json": None}]}
    worker(run, 1, result=result)
    assert names(run) == [
        "WorkflowExecutionStarted",
        "ActivityTaskScheduled",
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowExecutionCompleted",
    ]
    assert run.result == result
    activity = left(run)
    assert (activity.input, activity.identity, activity.started_time) == (None, "worker", T0)


def test_attempts_are_retried_and_described_with_their_failures() -> None:
    run = begin()
    take(run, 0)
    worker(run, 1, inp.ActivityHeartbeat, details=[1])
    worker(run, 2, failure=application(), heartbeat_details=[2])
    open_ = run.open
    assert (open_.tries, open_.heartbeats, open_.heartbeat_details) == (2, 2, [2])
    assert (open_.last_started_time, open_.last_heartbeat_time) == (T0, T0 + seconds(2))
    take(run, 3)
    worker(run, 4, result=None)
    assert left(run).tries == 2
    assert run.state.status is RunStatus.COMPLETED


def test_the_time_of_an_earlier_heartbeat_does_not_shorten_the_next_attempt() -> None:
    run = begin(heartbeat_timeout=seconds(5), retry_policy=RetryPolicy(maximum_attempts=2))
    take(run, 0)
    worker(run, 1, failure=application(), heartbeat_details=[1])
    take(run, 10)
    run.at(14)
    assert not run.state.closed
    run.at(15)
    assert run.state.status is RunStatus.TIMED_OUT


def test_the_failure_of_the_last_attempt_is_that_of_the_run() -> None:
    run = begin(retry_policy=RetryPolicy(maximum_attempts=1))
    take(run, 0)
    worker(run, 1, failure=application(), heartbeat_details=[1])
    assert run.failure == application()
    assert run.state.status is RunStatus.FAILED
    assert left(run).heartbeat_details == [1]
    failed = run.history[-2]
    assert isinstance(failed, ev.ActivityTaskFailed)
    assert failed.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED


@pytest.mark.parametrize("delay", [0, 10])
@pytest.mark.parametrize("kind", [TimeoutType.SCHEDULE_TO_START, TimeoutType.SCHEDULE_TO_CLOSE])
def test_a_timeout_closes_the_run_as_timed_out_and_counts_from_the_end_of_the_start_delay(
    kind: TimeoutType, delay: int
) -> None:
    timeouts = {kind.name.lower() + "_timeout": seconds(5)}
    run = begin(start_delay=seconds(delay) if delay else None, **timeouts)
    if kind is TimeoutType.SCHEDULE_TO_CLOSE:
        take(run, delay)
    run.at(delay + 4.999)
    assert not run.state.closed
    run.at(delay + 5)
    assert run.state.status is RunStatus.TIMED_OUT
    assert run.failure is not None
    assert run.failure.timeout_type is kind
    left(run)


def test_without_time_for_a_retry_the_description_has_the_outcome_of_the_last_attempt() -> None:
    policy = RetryPolicy(initial_interval=seconds(10))
    run = begin(schedule_to_close_timeout=seconds(8), start_to_close_timeout=seconds(2), retry_policy=policy)
    take(run, 0)
    run.at(2)
    assert run.failure is not None
    assert run.failure.timeout_type is TimeoutType.SCHEDULE_TO_CLOSE
    activity = left(run)
    assert activity.last_failure.timeout_type is TimeoutType.START_TO_CLOSE
    assert activity.last_attempt_complete_time == T0 + seconds(2)


def test_no_worker_gets_an_activity_before_its_start_delay_ends() -> None:
    run = begin(start_delay=seconds(10))
    assert next_wake(run.state, T0) == T0 + seconds(10)
    assert not list(run.state.offered_activities(T0 + seconds(9)))
    assert list(run.state.offered_activities(T0 + seconds(10)))


def test_a_cancellation_waits_only_for_a_worker_that_has_the_activity() -> None:
    run = begin()
    assert run.ask(1, inp.CancelRequested(request_id="c")).ok
    assert names(run)[2:] == [
        "WorkflowExecutionCancelRequested",
        "ActivityTaskCancelRequested",
        "ActivityTaskCanceled",
        "WorkflowExecutionCanceled",
    ]
    left(run)
    run = begin()
    take(run, 0)
    run.ask(1, inp.CancelRequested(request_id="c"))
    assert run.open.cancel_requested
    worker(run, 2, cancelled=True, result=["done so far"])
    assert run.state.status is RunStatus.CANCELLED
    assert left(run).identity == "worker"


def test_termination_waits_for_no_worker() -> None:
    run = begin()
    take(run, 0)
    assert run.ask(1, inp.TerminateRequested(request_id="t", reason="no more")).ok
    assert run.state.status is RunStatus.TERMINATED
    assert left(run).identity == "worker"


def test_pausing_the_run_pauses_its_activity_which_a_worker_can_still_complete() -> None:
    run = begin()
    take(run, 0)
    assert run.ask(1, inp.PauseRequested(request_id="p", reason="lunch")).ok
    assert run.state.paused is None
    assert run.state.pause is not None
    assert run.state.pause.reason == "lunch"
    worker(run, 2, failure=application())
    assert not list(run.state.offered_activities(T0 + seconds(9)))
    assert run.ask(9, inp.UnpauseRequested(request_id="u")).ok
    take(run, 9)
    run.ask(10, inp.PauseRequested(request_id="p2"))
    worker(run, 11, result="done")
    assert run.result == "done"
    left(run)


def test_a_run_that_starts_paused_schedules_its_activity_once_it_is_unpaused() -> None:
    activity = cmd.ScheduleActivityTask(
        activity_id="a", activity_type="Do", task_queue="q", start_to_close_timeout=seconds(60)
    )
    run = Drive.by(StandaloneDecider(activity), standalone=True, paused=True)
    assert not run.state.activities
    assert run.ask(5, inp.UnpauseRequested(request_id="u")).ok
    assert run.open.first_scheduled_time == T0 + seconds(5)


def test_a_standalone_activity_rejects_signals() -> None:
    answer = begin().signal(1)
    assert (answer.ok, answer.reason) == (False, ConditionReason.NOT_SUPPORTED)
