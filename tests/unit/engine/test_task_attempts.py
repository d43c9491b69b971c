"""Attempts of workflow tasks: they fail, time out, and are repeated; sticky queues and heartbeats."""

from datetime import timedelta

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.step import next_wake
from support.engine.coded import COMPLETE, STICKY, T0, WRONG, Coded, activity, timer

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


def test_35_a_new_event_makes_the_next_attempt_a_first_one() -> None:
    run = Coded.begin()
    run.ask(inp.TaskFailed, token=run.take(), cause="WorkflowWorkerUnhandledFailure")
    assert run.task.attempt == 2
    run.signal()
    assert run.take().attempt == 1


def test_37_a_workflow_task_times_out_after_ten_seconds() -> None:
    run = Coded.begin()
    token = run.take()
    assert next_wake(run.state, run.now) == T0 + timedelta(seconds=10)
    run.at(10)
    assert run.names[2:] == ["WorkflowTaskStarted", "WorkflowTaskTimedOut"]
    assert not run.complete(COMPLETE, token=token).ok
    run.decide(COMPLETE)
    assert run.state.closed


def test_36_from_the_fourth_attempt_a_worker_gets_more_time_and_there_is_no_wait() -> None:
    run = Coded.begin(workflow_task_timeout=timedelta(seconds=2))
    lengths = []
    for _ in range(6):
        run.take((run.now - T0).total_seconds())
        wake = next_wake(run.state, run.now)
        assert wake is not None
        lengths.append((wake - run.now).total_seconds())
        run.at((wake - T0).total_seconds())
    assert lengths == [2, 2, 2, 2 + 5, 2 + 10, 2 + 20]


def test_37_the_task_timeout_is_at_most_two_minutes() -> None:
    assert Coded.begin(workflow_task_timeout=timedelta(hours=1)).code.task_timeout == timedelta(seconds=120)


# Stickiness


def test_37_a_sticky_worker_gets_the_next_task_until_it_stops_polling() -> None:
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


def test_35_a_failure_of_the_worker_with_the_cached_workflow_does_not_count() -> None:
    run = Coded.begin()
    run.decide(sticky_queue=STICKY)
    run.signal()
    run.ask(inp.TaskFailed, token=run.take(), cause="WorkflowWorkerUnhandledFailure")
    assert run.task.attempt == 1
    assert run.task.sticky_queue == ""


def test_tasks_of_a_worker_that_shuts_down_go_to_others_immediately() -> None:
    run = Coded.begin()
    run.decide(sticky_queue=STICKY)
    run.signal()
    assert run.task.sticky_queue == STICKY
    run.ask(inp.StickinessReset)
    assert run.task.sticky_queue == ""


# Prolonging


def test_38_a_worker_can_extend_a_task_for_half_an_hour_in_total() -> None:
    run = Coded.begin()
    for minute in range(0, 31, 5):
        assert run.decide(force_new_task=True, seconds=minute * 60).ok
    answer = run.decide(force_new_task=True, seconds=31 * 60)
    assert not answer.ok
    assert run.names.count("WorkflowTaskTimedOut") == 1


def test_a_timer_fires_between_two_tasks_of_a_worker_that_gets_the_next_with_its_answer() -> None:
    run = Coded.begin()
    run.decide(timer("t", 1), force_new_task=True)
    run.take(0)
    again = inp.TaskDispatched(request_id="next", epoch=run.epoch, identity="worker")
    assert run.complete(force_new_task=True, following=again, seconds=3).ok
    assert "TimerFired" in run.names
    assert run.task.started_time is not None, "the worker has the next task"
    assert run.task.started_event_id > run.events[run.names.index("TimerFired")].event_id


# Commands


def test_30_41_bad_attributes_fail_the_task_and_the_workflow_continues() -> None:
    run = Coded.begin()
    answer = run.decide(activity(start_to_close_timeout=None))
    assert not answer.ok
    failed = run.events[-1]
    assert isinstance(failed, ev.WorkflowTaskFailed)
    assert failed.cause == "BadScheduleActivityAttributes"
    assert not run.state.closed
    assert run.names.count("ActivityTaskScheduled") == 0


def test_30_a_task_whose_commands_are_rejected_again_times_out() -> None:
    """Otherwise, a worker that repeats its answer would get the task again immediately, without end."""
    run = Coded.begin()
    twice = [activity("a"), activity("a")]
    assert run.decide(*twice).reason == "BadCommand"
    assert run.task.attempt == 2
    assert run.decide(*twice, seconds=1).reason == "BadCommand"
    assert run.task.started_time is not None, "nobody is asked before the time of this attempt is over"
    run.at(12)
    assert (run.task.attempt, run.task.started_time) == (3, None)
    assert run.names.count("WorkflowTaskFailed") == 1


def test_the_failure_of_a_task_is_kept_until_one_completes() -> None:
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
