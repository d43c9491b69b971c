"""Attempts of activities by workers: recorded as late as possible, and never twice."""

from datetime import timedelta

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.retry import RetryPolicy
from support.engine.coded import WRONG, Coded, activity, taken

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


def test_the_history_for_workers_has_the_start_of_an_activity_that_fails_before_it_starts() -> None:
    """SDKs accept the failure of an activity only after its start."""
    for report in ({"failure": WRONG}, {"result": 1}):
        run = Coded.begin()
        run.decide(activity("a", retry_policy=RetryPolicy(maximum_attempts=1)))
        assert run.ask(inp.ActivityAnswered, activity_id="a", **report).ok
        started, closed = run.events[5:7]
        assert isinstance(started, ev.ActivityTaskStarted)
        assert isinstance(closed, ev.ActivityTaskCompleted | ev.ActivityTaskFailed)
        assert closed.started_event_id == started.event_id


# Activities that workers do


def test_the_start_of_a_long_attempt_is_recorded_and_that_of_a_short_one_is_not() -> None:
    run = Coded.begin()
    run.decide(activity())
    writes = run.writes
    taken(run)
    assert run.writes == writes
    run.at(2)
    assert run.writes == writes + 1
    assert next(iter(run.state.activities.values())).start_recorded


def test_an_attempt_that_may_be_the_only_one_is_recorded_before_it_is_dispatched() -> None:
    run = Coded.begin()
    run.decide(activity(retry_policy=RetryPolicy(maximum_attempts=1)))
    writes = run.writes
    taken(run)
    assert run.writes == writes + 1


def test_an_activity_task_that_a_worker_returns_is_offered_again_after_a_restart() -> None:
    run = Coded.begin()
    run.decide(activity())
    first = taken(run)
    run.signal()  # records, with the signal, that a worker has the attempt
    assert run.ask(inp.ActivityReturned, **first).ok
    assert run.last is not None
    assert run.last.durable
    run.restart("two")
    taken(run, fence="g")


def test_only_the_second_dispatch_of_an_attempt_counts() -> None:
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
    run.ask(inp.ActivityHeartbeat, 8, **attempt, details="half")
    run.at(17)
    assert next(iter(run.state.activities.values())).attempt == 1
    run.at(18)
    again = next(iter(run.state.activities.values()))
    assert (again.attempt, again.heartbeat_details) == (2, "half")


def test_29_an_attempt_cannot_be_cancelled_without_a_request() -> None:
    run = Coded.begin()
    run.decide(activity())
    answer = run.ask(inp.ActivityReported, **taken(run), cancelled=True)
    assert answer.reason == "CancelNotRequested"
