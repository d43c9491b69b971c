"""References to RetryPolicies: read when something is scheduled, recorded, and never read again."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.effects import ReportAttempt
from perdure.engine.inputs import DecideAgain, EffectDone
from perdure.engine.retry import CloudSchedulerRetry, PolicyReference, RetryPolicy
from perdure.engine.starts import WorkflowStart
from perdure.engine.state import CircuitResult
from perdure.engine.step import start, step
from support.engine.script import T0, Drive, Reacting, activity, application, first_event, seconds

SHARED = RetryPolicy(name="shared", initial_interval=seconds(7), maximum_attempts=3)
BREAKING = RetryPolicy(name="shared", maximum_attempts=2, circuit_breaker=True, non_retryable_error_types=("Bad",))


def named(name: str = "shared", **options: Any) -> cmd.ScheduleActivityTask:
    return activity(retry_policy=PolicyReference(name), **options)


def drive_of(*commands: cmd.Command, policies: dict[str, RetryPolicy]) -> Drive:
    drive = Drive(Reacting(commands))
    drive.take(start(first_event(), drive.script, policies=policies))
    return drive


def test_the_contents_of_a_policy_are_recorded_and_pinned() -> None:
    drive = drive_of(named(), policies={"shared": SHARED})
    scheduled = drive.history[1]
    assert isinstance(scheduled, ev.ActivityTaskScheduled)
    assert scheduled.retry_policy == SHARED
    drive.failed(1)  # without any policies: the recorded ones are used
    assert drive.open.scheduled_time == T0 + seconds(8)
    drive.check_replay()
    assert history.decode_events(history.encode(drive.history)) == tuple(drive.history)


def test_a_run_waits_for_a_missing_policy_and_reports_it() -> None:
    drive = drive_of(named(), policies={})
    assert drive.types() == ["WorkflowExecutionStarted"]
    task = drive.state.task
    assert task is not None
    assert task.reason == "RetryPolicyNotFound"
    assert "`shared`" in task.message
    drive.at(0.5)
    assert drive.state.task == task
    again = step(drive.state, [DecideAgain()], T0 + seconds(0.5), drive.script, {"shared": SHARED})
    drive.take(again)
    assert drive.state.task is None
    assert drive.open.retry_policy == SHARED
    drive.check_replay()


def test_a_history_with_another_recorded_policy_does_not_replay() -> None:
    drive = drive_of(named(), policies={"shared": SHARED})
    other = Reacting((named("other"),))
    with pytest.raises(history.NondeterminismError) as caught:
        history.replay(drive.history, other)
    assert caught.value.number == 2


def test_a_child_starts_with_the_contents_of_its_policy() -> None:
    google = RetryPolicy(name="google", cloud_scheduler=CloudSchedulerRetry(retry_count=2))
    wanted = WorkflowStart(workflow_type="other", workflow_id="w-kid")
    asked = cmd.StartChildWorkflowExecution(child_id="kid", start=wanted, retry_policy=PolicyReference("google"))
    drive = drive_of(asked, policies={"google": google})
    (child,) = drive.state.children.values()
    assert child.start is not None
    assert child.start.retry_policy == google
    drive.check_replay()


def reported(drive: Drive) -> dict[str, CircuitResult]:
    return {key: report.result for key, report in drive.state.reports.items()}


def breaking(**options: Any) -> Drive:
    return drive_of(named(**options), policies={"shared": BREAKING})


def test_the_outcome_of_each_attempt_is_reported_to_the_circuit_breaker() -> None:
    drive = breaking()
    drive.failed(1)
    assert reported(drive) == {"2/1": CircuitResult.FAILED}
    done = drive.at(2, EffectDone(effect=ReportAttempt(2, 1)))
    assert done.durable
    assert reported(drive) == {}
    drive.started(3)
    drive.completed(4)
    assert reported(drive) == {"2/2": CircuitResult.SUCCEEDED}


def test_losses_and_failures_that_are_not_retried_do_not_count() -> None:
    for failure in (application(type="Bad"), application(non_retryable=True)):
        drive = breaking()
        drive.failed(1, failure)
        assert reported(drive) == {"2/1": CircuitResult.RELEASED}
    drive = breaking()
    drive.lost(1)
    assert reported(drive) == {"2/1": CircuitResult.RELEASED}


def test_a_timeout_of_a_running_attempt_counts_and_one_of_a_waiting_attempt_does_not() -> None:
    ran = breaking(start_to_close_timeout=seconds(5))
    ran.started(1)
    ran.at(6)
    assert reported(ran) == {"2/1": CircuitResult.FAILED}
    for begun, result in ((True, CircuitResult.FAILED), (False, CircuitResult.RELEASED)):
        drive = breaking(schedule_to_close_timeout=seconds(5))
        if begun:
            drive.started(1)
        drive.at(5)
        assert reported(drive) == {"2/1": result}


def test_a_closed_run_still_sends_its_reports() -> None:
    drive = breaking()
    drive.started(1)
    deadline = {"workflow_run_timeout": timedelta(seconds=2)}
    assert deadline
    closed = Drive(Reacting((named(),)))
    closed.take(start(first_event(**deadline), closed.script, policies={"shared": BREAKING}))
    closed.at(2)
    assert closed.state.closed
    assert reported(closed) == {"2/1": CircuitResult.RELEASED}
    assert closed.state.has_pending_work
    assert closed.at(3, EffectDone(effect=ReportAttempt(2, 1))).durable
    assert not closed.state.has_pending_work


def test_without_a_circuit_breaker_nothing_is_reported() -> None:
    drive = drive_of(named(), policies={"shared": SHARED})
    drive.failed(1)
    assert reported(drive) == {}
