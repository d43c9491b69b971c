"""The workflow task machine: the rules of Temporal's server, one test each, with time as an argument."""

from datetime import timedelta
from typing import Any

import pytest

from engine.coded import STICKY, T0, Coded, activity, timer
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import WorkflowStart
from perdure.engine.step import next_wake

COMPLETE = cmd.CompleteWorkflowExecution(result="done")
WRONG = Failure(kind=FailureKind.APPLICATION, type="Wrong", message="no")


def taken(run: Coded, name: str = "a", fence: str = "f") -> dict[str, Any]:
    """A worker takes an attempt."""
    open_ = next(each for each in run.state.activities.values() if each.activity_id == name)
    named = {"scheduled_event_id": open_.scheduled_event_id, "attempt": open_.attempt, "fence": fence}
    assert run.ask(inp.ActivityTaken, **named).ok
    return named


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


def test_handing_out_writes_nothing_and_its_id_holds_until_the_task_has_ended() -> None:
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


def test_what_happens_before_a_worker_takes_the_task_is_recorded_at_once_and_seen_by_it() -> None:
    run = Coded.begin()
    run.signal()
    assert run.names == ["WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowExecutionSignaled"]
    assert run.take().started_event_id == 4
    run.complete(COMPLETE)
    assert run.state.closed


def test_a_task_is_handed_out_once_only() -> None:
    run = Coded.begin()
    run.take()
    assert not run.ask(inp.TaskTaken, epoch="one").ok


def test_a_completion_that_is_sent_again_is_answered_as_before_and_changes_nothing() -> None:
    run = Coded.begin()
    token = run.take()
    assert run.complete(timer("t", 5), token=token).ok
    before = run.names
    assert run.complete(timer("t", 5), token=token).ok
    assert run.names == before


def test_a_task_that_another_process_has_handed_out_counts_no_more() -> None:
    run = Coded.begin()
    token = run.take()
    run.signal()
    run.restart("two")
    assert not run.complete(COMPLETE, token=token).ok
    assert run.names[-1] == "WorkflowExecutionSignaled", "what was buffered is recorded, the worker sees it next time"
    run.decide(COMPLETE)
    assert run.state.closed


def test_a_task_that_a_worker_gives_back_is_there_for_the_next() -> None:
    run = Coded.begin()
    token = run.take()
    assert run.ask(inp.TaskReturned, token=token).ok
    assert run.take(identity="other") is not None
    run.complete(COMPLETE)
    started = next(event for event in run.events if isinstance(event, ev.WorkflowTaskStarted))
    assert started.identity == "other"


def test_the_history_names_the_users_whose_workers_have_answered() -> None:
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


def test_32_the_ends_of_activities_come_behind_all_else_that_was_buffered() -> None:
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


def test_34_a_timer_that_comes_due_while_a_worker_decides_fires_afterwards_unless_it_is_cancelled() -> None:
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


def test_34_closing_with_something_unheard_fails_the_task_and_the_next_sees_it() -> None:
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


# Attempts


def test_35_only_the_first_failed_attempt_leaves_events() -> None:
    run = Coded.begin()
    for _ in range(3):
        token = run.take()
        run.ask(inp.TaskFailed, token=token, cause="WorkflowWorkerUnhandledFailure", failure=WRONG)
    assert run.names[2:] == ["WorkflowTaskStarted", "WorkflowTaskFailed"]
    assert run.task.attempt == 4
    token = run.take()
    assert (token.scheduled_event_id, token.started_event_id) == (5, 6)
    run.complete(COMPLETE)
    assert run.names[4:] == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionCompleted",
    ]
    scheduled = run.events[4]
    assert isinstance(scheduled, ev.WorkflowTaskScheduled)
    assert scheduled.attempt == 4


def test_35_something_new_makes_a_further_attempt_a_first_one() -> None:
    run = Coded.begin()
    run.ask(inp.TaskFailed, token=run.take(), cause="WorkflowWorkerUnhandledFailure")
    assert run.task.attempt == 2
    run.signal()
    assert run.take().attempt == 1


@pytest.mark.parametrize(
    ("type_", "events"),
    [
        ("WorkflowExecutionAlreadyStarted", ["StartChildWorkflowExecutionFailed"]),
        ("ChildDepthExceeded", ["ChildWorkflowExecutionStarted", "ChildWorkflowExecutionFailed"]),
    ],
)
def test_only_a_cause_that_sdks_know_fails_the_start_of_a_child(type_: str, events: list[str]) -> None:
    run = Coded.begin()
    start = WorkflowStart(workflow_type="W", task_queue="q", workflow_id="c")
    run.decide(cmd.StartChildWorkflowExecution(child_id="1", start=start))
    initiated = run.state.next_event_id - 1
    failure = Failure(kind=FailureKind.APPLICATION, type=type_, message="no")
    run.at(1, inp.ChildStartFailed(initiated_event_id=initiated, failure=failure))
    assert run.since("StartChildWorkflowExecutionInitiated") == [*events, "WorkflowTaskScheduled"]
    assert not run.state.children
    run.check()


def test_a_child_that_has_started_is_not_failed_by_a_start_that_comes_too_late() -> None:
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


def test_37_a_worker_that_does_not_answer_is_given_ten_seconds() -> None:
    run = Coded.begin()
    token = run.take()
    assert next_wake(run.state, run.now) == T0 + timedelta(seconds=10)
    run.at(10)
    assert run.names[2:] == ["WorkflowTaskStarted", "WorkflowTaskTimedOut"]
    assert not run.complete(COMPLETE, token=token).ok
    run.decide(COMPLETE)
    assert run.state.closed


def test_36_from_the_fourth_attempt_on_a_worker_gets_more_time_and_no_wait_comes_between() -> None:
    run = Coded.begin(workflow_task_timeout=timedelta(seconds=2))
    lengths = []
    for _ in range(6):
        run.take((run.now - T0).total_seconds())
        wake = next_wake(run.state, run.now)
        assert wake is not None
        lengths.append((wake - run.now).total_seconds())
        run.at((wake - T0).total_seconds())
    assert lengths == [2, 2, 2, 2 + 5, 2 + 10, 2 + 20]


def test_37_the_task_timeout_is_cut_at_two_minutes() -> None:
    assert Coded.begin(workflow_task_timeout=timedelta(hours=1)).code.task_timeout == timedelta(seconds=120)


# Stickiness


def test_37_after_a_sticky_answer_the_next_task_is_for_that_worker_until_it_does_not_come() -> None:
    run = Coded.begin()
    run.decide(sticky_queue=STICKY, sticky_timeout=timedelta(seconds=5))
    run.signal()
    scheduled = run.events[-1]
    assert isinstance(scheduled, ev.WorkflowTaskScheduled)
    assert (scheduled.task_queue, scheduled.sticky) == (STICKY, True)
    run.at(5)
    assert run.names[-2:] == ["WorkflowTaskTimedOut", "WorkflowTaskScheduled"]
    assert run.code.sticky_queue == ""
    assert run.task.attempt == 1


def test_35_failing_with_the_worker_that_has_it_in_memory_is_not_counted() -> None:
    run = Coded.begin()
    run.decide(sticky_queue=STICKY)
    run.signal()
    run.ask(inp.TaskFailed, token=run.take(), cause="WorkflowWorkerUnhandledFailure")
    assert run.task.attempt == 1
    assert run.task.sticky_queue == ""


def test_a_worker_that_goes_away_leaves_its_tasks_to_the_others_at_once() -> None:
    run = Coded.begin()
    run.decide(sticky_queue=STICKY)
    run.signal()
    assert run.task.sticky_queue == STICKY
    run.ask(inp.StickinessReset)
    assert run.task.sticky_queue == ""


# Activities


def test_30_no_timeout_of_an_activity_is_longer_than_its_schedule_to_close_timeout() -> None:
    run = Coded.begin()
    short, long = timedelta(seconds=5), timedelta(seconds=9)
    run.decide(
        cmd.ScheduleActivityTask(
            activity_id="a",
            activity_type="a",
            task_queue="q",
            schedule_to_close_timeout=short,
            schedule_to_start_timeout=long,
            start_to_close_timeout=long,
        )
    )
    scheduled = next(event for event in run.events if isinstance(event, ev.ActivityTaskScheduled))
    assert scheduled.start_to_close_timeout == scheduled.schedule_to_start_timeout == short


# Prolonging


def test_38_a_worker_may_prolong_a_task_for_half_an_hour_in_all() -> None:
    run = Coded.begin()
    for minute in range(0, 31, 5):
        assert run.decide(force_new_task=True, seconds=minute * 60).ok
    answer = run.decide(force_new_task=True, seconds=31 * 60)
    assert not answer.ok
    assert run.names.count("WorkflowTaskTimedOut") == 1


def test_a_timer_fires_between_two_tasks_of_a_worker_that_takes_the_next_with_its_answer() -> None:
    run = Coded.begin()
    run.decide(timer("t", 1), force_new_task=True)
    run.take(0)
    again = inp.TaskTaken(request_id="next", epoch=run.epoch, identity="worker")
    assert run.complete(force_new_task=True, following=again, seconds=3).ok
    assert "TimerFired" in run.names
    assert run.task.started_time is not None, "the worker has the next task"
    assert run.task.started_event_id > run.events[run.names.index("TimerFired")].event_id


# Speculative tasks and updates


def accept(name: str = "u") -> cmd.AcceptUpdate:
    return cmd.AcceptUpdate(update_id=name, name="change")


def test_39_a_rejected_update_leaves_no_event_and_tells_where_to_go_back_to() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    before = run.names
    run.ask(inp.TaskWanted)
    assert run.names == before
    token = run.take()
    answer = run.complete(token=token, rejects_only=True, receives_again=True)
    assert (answer.ok, answer.message) == (True, "3")
    assert run.names == before
    assert run.code.task is None


def test_a_rejection_by_a_worker_that_takes_no_event_twice_writes_the_task() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inp.TaskWanted)
    token = run.take()
    answer = run.complete(token=token, rejects_only=True)
    assert (answer.ok, answer.message) == (True, "")
    assert run.since("TimerStarted") == ["WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted"]


def test_an_accepted_update_writes_the_task_that_brought_it() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inp.TaskWanted)
    run.take()
    run.complete(accept(), cmd.CompleteUpdate(update_id="u", result=1))
    assert run.since("TimerStarted") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionUpdateAccepted",
        "WorkflowExecutionUpdateCompleted",
    ]
    record = run.code.updates["u"]
    assert (record.accepted_event_id, record.completed_event_id) == (9, 10)


def test_39_a_speculative_task_becomes_a_task_like_others_when_something_happens() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inp.TaskWanted)
    run.signal()
    assert run.since("TimerStarted") == ["WorkflowTaskScheduled", "WorkflowExecutionSignaled"]
    assert not run.task.speculative


DELAYED = {"first_workflow_task_backoff": timedelta(hours=1)}


def test_an_update_does_not_wait_for_the_end_of_a_start_delay() -> None:
    run = Coded.begin(**DELAYED)
    run.signal()
    assert run.since("WorkflowExecutionStarted") == ["WorkflowExecutionSignaled"]
    run.ask(inp.TaskWanted, 5)
    run.take(6)
    run.complete(timer("t", 10), cmd.AcceptUpdate(update_id="u", name="set"))
    assert run.since("WorkflowExecutionSignaled") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "TimerStarted",
        "WorkflowExecutionUpdateAccepted",
    ]
    assert run.state.first_decision_time == T0 + timedelta(seconds=5)
    run.at(16)
    assert run.since("WorkflowExecutionUpdateAccepted") == ["TimerFired", "WorkflowTaskScheduled"]


def test_a_rejected_update_leaves_a_start_delay_as_it_was() -> None:
    run = Coded.begin(**DELAYED)
    run.ask(inp.TaskWanted, 5)
    run.take()
    assert run.complete(rejects_only=True, receives_again=True).ok
    assert run.names == ["WorkflowExecutionStarted"]
    run.signal(seconds=10)
    assert run.since("WorkflowExecutionStarted") == ["WorkflowExecutionSignaled"]
    assert next_wake(run.state, run.now) == T0 + timedelta(hours=1)
    run.at(3600)
    assert run.since("WorkflowExecutionSignaled") == ["WorkflowTaskScheduled"]


def test_an_update_that_no_worker_takes_ends_a_start_delay() -> None:
    run = Coded.begin(**DELAYED)
    run.ask(inp.TaskWanted, 5)
    run.at(10)
    assert run.since("WorkflowExecutionStarted") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskTimedOut",
        "WorkflowTaskScheduled",
    ]


def test_a_signal_during_a_speculative_task_is_not_lost_when_the_update_is_rejected() -> None:
    run = Coded.begin()
    run.decide(timer("t", 100))
    run.ask(inp.TaskWanted)
    run.take()
    run.signal()
    run.complete(rejects_only=True, receives_again=True)
    assert run.since("TimerStarted") == [
        "WorkflowTaskScheduled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionSignaled",
        "WorkflowTaskScheduled",
    ]


# Commands


def test_30_41_bad_attributes_fail_the_task_and_the_workflow_goes_on() -> None:
    run = Coded.begin()
    answer = run.decide(activity(start_to_close_timeout=None))
    assert not answer.ok
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowTaskFailed)
    assert failed.cause == "BadScheduleActivityAttributes"
    assert not run.state.closed
    assert run.names.count("ActivityTaskScheduled") == 0


def test_30_commands_that_are_refused_again_leave_the_task_to_run_out() -> None:
    """Or the worker, which would answer the same, would be asked again at once, for ever."""
    run = Coded.begin()
    twice = [activity("a"), activity("a")]
    assert run.decide(*twice).reason == "BadCommand"
    assert run.task.attempt == 2
    assert run.decide(*twice, seconds=1).reason == "BadCommand"
    assert run.task.started_time is not None, "nobody is asked before the time of this attempt is over"
    run.at(12)
    assert (run.task.attempt, run.task.started_time) == (3, None)
    assert run.names.count("WorkflowTaskFailed") == 1


def test_why_a_task_came_to_nothing_is_known_until_one_is_completed() -> None:
    run = Coded.begin()
    run.take()
    run.ask(inp.TaskFailed, token=run.token, cause="WorkflowWorkerUnhandledFailure", failure=WRONG)
    assert run.code.failure == "WorkflowWorkerUnhandledFailure: Wrong: no"
    run.take()
    run.at(11)
    assert run.code.failure == "WorkflowWorkerUnhandledFailure: Wrong: no", (
        "why it does not answer stands in the first attempt"
    )
    run.decide(timer("t", 5))
    assert run.code.failure == ""
    run.at(20)
    run.take(identity="lazy")
    run.at(31)
    assert run.code.failure == "lazy has not answered within 10 s"


def test_an_activity_that_fails_before_it_has_started_has_started_for_workers() -> None:
    """SDKs take an activity's failure only after its start."""
    for report in ({"failure": WRONG}, {"result": 1}):
        run = Coded.begin()
        run.decide(activity("a", retry_policy=RetryPolicy(maximum_attempts=1)))
        assert run.ask(inp.ActivityAnswered, activity_id="a", **report).ok
        started, closed = run.events[5:7]
        assert isinstance(started, ev.ActivityTaskStarted)
        assert isinstance(closed, ev.ActivityTaskCompleted | ev.ActivityTaskFailed)
        assert closed.started_event_id == started.event_id


def test_30_two_activities_of_one_id_fail_the_task() -> None:
    run = Coded.begin()
    run.decide(activity("a"), activity("a"))
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowTaskFailed)
    assert failed.cause == "ScheduleActivityDuplicateId"


def test_40_nothing_may_follow_a_command_that_closes() -> None:
    run = Coded.begin()
    assert not run.decide(COMPLETE, timer("t", 1)).ok
    assert isinstance(run.events[-1], ev.WorkflowTaskFailed)


def test_29_cancelling_an_activity_that_has_not_started_ends_it_behind_the_commands_and_brings_a_task() -> None:
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


def test_40_terminating_while_a_worker_decides_fails_its_task_and_keeps_what_was_buffered() -> None:
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


def test_48_a_run_fails_by_its_outermost_failure_only() -> None:
    run = Coded.begin(retry_policy=RetryPolicy())
    inner = Failure(kind=FailureKind.APPLICATION, type="Final", non_retryable=True)
    run.decide(cmd.FailWorkflowExecution(failure=Failure(kind=FailureKind.ACTIVITY, cause=inner)))
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowExecutionFailed)
    assert failed.retry_state is RetryState.IN_PROGRESS


def test_44_no_task_comes_before_the_backoff_of_the_first_one_has_ended() -> None:
    run = Coded.begin(first_workflow_task_backoff=timedelta(seconds=30))
    run.signal()
    assert "WorkflowTaskScheduled" not in run.names
    assert next_wake(run.state, run.now) == T0 + timedelta(seconds=30)
    run.at(30)
    assert run.names[-1] == "WorkflowTaskScheduled"


# Activities that workers do


def test_an_attempt_that_goes_on_is_recorded_as_started_and_a_short_one_is_not() -> None:
    run = Coded.begin()
    run.decide(activity())
    writes = run.writes
    taken(run)
    assert run.writes == writes
    run.at(2)
    assert run.writes == writes + 1
    assert next(iter(run.state.activities.values())).start_recorded


def test_an_attempt_that_may_be_the_only_one_is_recorded_before_it_is_handed_out() -> None:
    run = Coded.begin()
    run.decide(activity(retry_policy=RetryPolicy(maximum_attempts=1)))
    writes = run.writes
    taken(run)
    assert run.writes == writes + 1


def test_what_a_worker_gives_back_is_offered_again_after_a_restart_whatever_was_recorded_meanwhile() -> None:
    run = Coded.begin()
    run.decide(activity())
    first = taken(run)
    run.signal()  # records, with the signal, that somebody has the attempt
    assert run.ask(inp.ActivityReturned, **first).ok
    assert run.last is not None
    assert run.last.durable
    run.restart("two")
    taken(run, fence="g")


def test_of_an_attempt_that_was_handed_out_twice_only_the_second_counts() -> None:
    run = Coded.begin()
    run.decide(activity())
    first = taken(run, fence="one")
    assert run.ask(inp.ActivityReturned, **first).ok
    second = taken(run, fence="two")
    assert not run.ask(inp.ActivityReported, **first, result=1).ok
    assert run.ask(inp.ActivityReported, **second, result=2).ok


def test_heartbeats_keep_an_attempt_alive_and_their_details_reach_the_next() -> None:
    run = Coded.begin()
    run.decide(activity(heartbeat_timeout=timedelta(seconds=10)))
    attempt = taken(run)
    run.ask(inp.ActivityBeat, 8, **attempt, details="half")
    run.at(17)
    assert next(iter(run.state.activities.values())).attempt == 1
    run.at(18)
    again = next(iter(run.state.activities.values()))
    assert (again.attempt, again.heartbeat_details) == (2, "half")


def test_29_an_attempt_that_was_not_asked_to_stop_cannot_be_cancelled() -> None:
    run = Coded.begin()
    run.decide(activity())
    answer = run.ask(inp.ActivityReported, **taken(run), cancelled=True)
    assert answer.reason == "CancelNotRequested"


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (cmd.CancelTimer(timer_id="none"), "BadCancelTimerAttributes"),
        (cmd.RequestCancelActivityTask(scheduled_event_id=99), "BadRequestCancelActivityAttributes"),
    ],
    ids=["timer", "activity"],
)
def test_code_cannot_cancel_what_is_not_there(command: cmd.Command, cause: str) -> None:
    run = Coded.begin()
    assert run.decide(command).reason == "BadCommand"
    failed = next(event for event in run.events if isinstance(event, ev.WorkflowTaskFailed))
    assert failed.cause == cause
