"""The workflow task machine: the rules of Temporal's server, one test each, with time as an argument."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import effects
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import WorkflowStart
from perdure.engine.step import next_wake
from support.engine.coded import COMPLETE, T0, WRONG, Coded, activity, taken, timer

# The course of a task


def test_a_workflow_of_one_activity_has_temporals_history() -> None:
    run = Coded.begin()
    run.decide(activity())
    attempt = taken(run)
    assert run.ask(inp.ActivityReported, **attempt, result=1).ok
    run.decide(COMPLETE)
    assert run.names == [
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
    assert run.writes == 4, "the start, two decisions and the activity's end are one write each"


def test_dispatching_a_task_writes_nothing_and_its_id_is_valid_until_the_task_ends() -> None:
    run = Coded.begin()
    token = run.take()
    assert run.writes == 1
    run.signal()
    assert token.started_event_id == 3
    run.complete(timer("t", 5))
    assert run.names[2:] == [
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "TimerStarted",
        "WorkflowExecutionSignaled",
        "WorkflowTaskScheduled",
    ]


def test_events_before_a_worker_takes_the_task_are_recorded_immediately_and_part_of_it() -> None:
    run = Coded.begin()
    run.signal()
    assert run.names == ["WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowExecutionSignaled"]
    assert run.take().started_event_id == 4
    run.complete(COMPLETE)
    assert run.state.closed


def test_a_task_is_dispatched_only_once() -> None:
    run = Coded.begin()
    run.take()
    assert not run.ask(inp.TaskDispatched, epoch="one").ok


def test_a_repeated_completion_gets_the_same_answer_and_changes_nothing() -> None:
    run = Coded.begin()
    token = run.take()
    assert run.complete(timer("t", 5), token=token).ok
    before = run.names
    assert run.complete(timer("t", 5), token=token).ok
    assert not run.complete(timer("t", 6), token=token, digest="another").ok
    assert run.names == before


def test_a_task_that_another_process_dispatched_is_invalid() -> None:
    run = Coded.begin()
    token = run.take()
    run.signal()
    run.restart("two")
    assert not run.complete(COMPLETE, token=token).ok
    assert run.names[-1] == "WorkflowExecutionSignaled", "what was buffered is recorded, the worker sees it next time"
    run.decide(COMPLETE)
    assert run.state.closed


def test_a_task_that_a_worker_returns_goes_to_the_next_worker() -> None:
    run = Coded.begin()
    token = run.take()
    assert run.ask(inp.TaskReturned, token=token).ok
    assert run.take(identity="other") is not None
    run.complete(COMPLETE)
    started = next(event for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    assert started.identity == "other"


def test_the_history_names_the_users_of_the_workers() -> None:
    run = Coded.begin()
    run.take()
    assert run.ask(inp.TaskFailed, token=run.token, cause="Odd", identity="w1", principal="alice").ok
    run.decide(activity("a"), activity("b"), principal="bob")
    final = Failure(kind=FailureKind.APPLICATION, message="no", non_retryable=True)
    run.ask(inp.ActivityReported, **taken(run, "a"), principal="carol", result=1)
    run.ask(inp.ActivityReported, **taken(run, "b"), principal="carol", failure=final)
    named = {type(event).__name__: event.principal for event in run.events if event.principal}
    assert named == {
        "WorkflowTaskFailed": "alice",
        "WorkflowTaskCompleted": "bob",
        "ActivityTaskCompleted": "carol",
        "ActivityTaskFailed": "carol",
    }


# Buffering


def test_32_buffered_ends_of_activities_are_recorded_after_other_buffered_events() -> None:
    run = Coded.begin()
    run.decide(activity())
    attempt = taken(run)
    run.signal("wake")
    run.take()
    run.ask(inp.ActivityReported, **attempt, result=1)
    run.signal("s1")
    run.signal("s2")
    run.complete()
    assert run.since("WorkflowTaskCompleted") == [
        "ActivityTaskStarted",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionSignaled",
        "ActivityTaskCompleted",
        "WorkflowTaskScheduled",
    ]


def test_an_activity_whose_end_is_buffered_has_ended() -> None:
    run = Coded.begin()
    run.decide(activity())
    attempt = taken(run)
    run.signal()
    run.take()
    assert run.ask(inp.ActivityReported, **attempt, result=1).ok
    assert not run.ask(inp.ActivityReported, **attempt, result=2).ok
    run.at(100)  # no timeout of it fires either
    assert run.names.count("ActivityTaskCompleted") + run.names.count("ActivityTaskTimedOut") == 1


@pytest.mark.parametrize("again", ["completed", "failed", "lost", "cancelled"])
def test_another_observation_of_a_pod_changes_nothing_while_its_end_is_buffered(again: str) -> None:
    run = Coded.begin()
    run.decide(
        cmd.ScheduleActivityTask(activity_id="work", activity_type="W", start_to_close_timeout=timedelta(minutes=1))
    )
    attempt: dict[str, Any] = {"scheduled_event_id": 5, "attempt": 1}
    run.signal()
    run.take()
    run.at(1, inp.AttemptCompleted(**attempt, result=1, started_time=T0))
    observation: inp.AttemptInput = {
        "completed": inp.AttemptCompleted(**attempt, result=1, started_time=T0),
        "failed": inp.AttemptFailed(
            **attempt, failure=Failure(kind=FailureKind.APPLICATION, message="no"), started_time=T0
        ),
        "lost": inp.AttemptLost(**attempt, failure=Failure(kind=FailureKind.SERVER, message="gone")),
        "cancelled": inp.AttemptCancelled(**attempt, started_time=T0),
    }[again]
    run.at(2, observation)
    assert not effects.attempt_effects(run.state, T0 + timedelta(seconds=2)), "its pod is needed no longer"
    answer = run.ask(inp.ActivityAnswered, activity_id="work", result=2)
    assert answer.reason == "ActivityNotFound"
    run.complete()
    assert run.since("WorkflowTaskCompleted") == [
        "ActivityTaskStarted",
        "ActivityTaskCompleted",
        "WorkflowTaskScheduled",
    ]
    assert not run.state.activities


def test_34_a_timer_due_during_a_workflow_task_fires_afterwards_unless_it_is_cancelled() -> None:
    run = Coded.begin()
    run.decide(timer("kept", 5), timer("dropped", 5))
    run.signal()
    run.take(4)
    run.at(6)
    assert "TimerFired" not in run.names
    run.complete(cmd.CancelTimer(timer_id="dropped"))
    assert run.since("WorkflowTaskCompleted") == ["TimerCanceled", "WorkflowTaskScheduled", "TimerFired"] or run.since(
        "WorkflowTaskCompleted"
    ) == ["TimerCanceled", "TimerFired", "WorkflowTaskScheduled"]


def test_34_closing_with_unprocessed_events_fails_the_task_and_the_next_task_has_them() -> None:
    run = Coded.begin()
    run.take()
    run.signal()
    answer = run.complete(COMPLETE)
    assert (answer.ok, answer.reason) == (False, "UnhandledCommand")
    assert run.names[2:] == [
        "WorkflowTaskStarted",
        "WorkflowTaskFailed",
        "WorkflowExecutionSignaled",
        "WorkflowTaskScheduled",
    ]
    run.take()
    assert run.signal().reason == "WorkflowClosing"
    run.complete(COMPLETE)
    assert run.state.closed


def test_33_more_than_a_hundred_buffered_events_fail_the_task() -> None:
    run = Coded.begin()
    run.take()
    for number in range(101):
        run.signal(f"s{number}")
    assert run.names.count("WorkflowExecutionSignaled") == 101
    failed = next(event for event in run.events if isinstance(event, ev.WorkflowTaskFailed))
    assert failed.cause == "ForceCloseCommand"


@pytest.mark.parametrize(
    ("type_", "events"),
    [
        ("WorkflowExecutionAlreadyStarted", ["StartChildWorkflowExecutionFailed"]),
        ("ChildDepthExceeded", ["ChildWorkflowExecutionStarted", "ChildWorkflowExecutionFailed"]),
    ],
)
def test_the_start_of_a_child_fails_only_with_causes_that_sdks_know(type_: str, events: list[str]) -> None:
    run = Coded.begin()
    start = WorkflowStart(workflow_type="W", task_queue="q", workflow_id="c")
    run.decide(cmd.StartChildWorkflowExecution(child_id="1", start=start))
    initiated = run.state.next_event_id - 1
    failure = Failure(kind=FailureKind.APPLICATION, type=type_, message="no")
    run.at(1, inp.ChildStartFailed(initiated_event_id=initiated, failure=failure))
    assert run.since("StartChildWorkflowExecutionInitiated") == [*events, "WorkflowTaskScheduled"]
    assert not run.state.children
    run.check()


def test_a_late_start_does_not_fail_a_child_that_has_started() -> None:
    run = Coded.begin()
    start = WorkflowStart(workflow_type="W", task_queue="q", workflow_id="c")
    run.decide(cmd.StartChildWorkflowExecution(child_id="1", start=start))
    initiated = run.state.next_event_id - 1
    run.at(1, inp.ChildStarted(initiated_event_id=initiated, run_id="r"))
    before = list(run.names)
    run.at(2, inp.ChildStartFailed(initiated_event_id=initiated, failure=WRONG))
    assert list(run.names) == before
    assert run.state.children
    run.check()


def test_30_two_activities_with_the_same_id_fail_the_task() -> None:
    run = Coded.begin()
    run.decide(activity("a"), activity("a"))
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowTaskFailed)
    assert failed.cause == "ScheduleActivityDuplicateId"


def test_40_no_command_can_follow_one_that_closes_the_run() -> None:
    run = Coded.begin()
    assert not run.decide(COMPLETE, timer("t", 1)).ok
    assert isinstance(run.events[-1], ev.WorkflowTaskFailed)


def test_29_an_activity_cancelled_before_its_start_ends_after_the_commands_and_causes_a_task() -> None:
    run = Coded.begin()
    run.decide(activity("a"))
    run.signal()
    run.decide(cmd.RequestCancelActivityTask(scheduled_event_id=5), timer("t", 9))
    assert run.since("WorkflowTaskCompleted") == [
        "ActivityTaskCancelRequested",
        "TimerStarted",
        "ActivityTaskCanceled",
        "WorkflowTaskScheduled",
    ]


def test_40_terminating_during_a_workflow_task_fails_it_and_keeps_buffered_events() -> None:
    run = Coded.begin()
    run.take()
    run.signal()
    assert run.ask(inp.TerminateRequested, reason="enough").ok
    assert run.names[2:] == [
        "WorkflowTaskStarted",
        "WorkflowTaskFailed",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionTerminated",
    ]


def test_48_only_the_outermost_failure_decides_whether_a_run_is_retried() -> None:
    run = Coded.begin(retry_policy=RetryPolicy())
    inner = Failure(kind=FailureKind.APPLICATION, type="Final", non_retryable=True)
    run.decide(cmd.FailWorkflowExecution(failure=Failure(kind=FailureKind.ACTIVITY, cause=inner)))
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowExecutionFailed)
    assert failed.retry_state is RetryState.IN_PROGRESS


def test_44_no_task_is_scheduled_before_the_first_backoff_ends() -> None:
    run = Coded.begin(first_workflow_task_backoff=timedelta(seconds=30))
    run.signal()
    assert "WorkflowTaskScheduled" not in run.names
    assert next_wake(run.state, run.now) == T0 + timedelta(seconds=30)
    run.at(30)
    assert run.names[-1] == "WorkflowTaskScheduled"


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (cmd.CancelTimer(timer_id="none"), "BadCancelTimerAttributes"),
        (cmd.RequestCancelActivityTask(scheduled_event_id=99), "BadRequestCancelActivityAttributes"),
    ],
    ids=["timer", "activity"],
)
def test_cancelling_something_unknown_fails_the_task(command: cmd.Command, cause: str) -> None:
    run = Coded.begin()
    assert run.decide(command).reason == "BadCommand"
    failed = next(event for event in run.events if isinstance(event, ev.WorkflowTaskFailed))
    assert failed.cause == cause
