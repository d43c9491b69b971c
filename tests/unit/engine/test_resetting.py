"""A run that starts with the history of another one and decides again from there."""

from collections.abc import Sequence
from typing import Any

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.inputs import ChildOutcome
from perdure.engine.resets import begin, reset_event, since
from perdure.engine.state import DEAD_LETTER, RunStatus, closing_failure
from support.engine.script import T0, Drive, Reacting, activity, application, child, seconds, timer

NOTIFY = cmd.SignalExternalWorkflowExecution(signal_id="notify", workflow_id="other", signal_name="go", input=1)


def reset(
    drive: Drive, point: int, at: float, decider: Any, *, signals: bool = True, requests: Sequence[str] = ()
) -> Drive:
    """A run that starts with the first events of another one."""
    now = T0 + seconds(at)
    first: Any = drive.history[0]
    state = history.fork(drive.history, point, decider)
    reported = reset_event(first, point + 1, now, base_run_id="r", new_run_id="s", successor="next", reason="why")
    other = Drive(decider, now=now, history=list(drive.history[:point]))
    other.take(
        begin(state, reported, list(since(state, drive.history[point:], "r", signals=signals)), decider, requests)
    )
    return other


def test_events_after_the_point_are_decided_again_and_recorded_as_temporal_does() -> None:
    drive = Drive.by(Reacting((activity("a"),), ActivityTaskCompleted=[(activity("wrong"),)]))
    drive.completed(1, "done")
    other = reset(drive, 4, 60, Reacting((activity("a"),), ActivityTaskCompleted=[(activity("right"),)]))
    assert other.types()[4:] == ["WorkflowTaskFailed", "ActivityTaskScheduled"]
    reported: Any = other.history[4]
    assert (reported.cause, reported.reason, reported.base_run_id, reported.new_run_id) == (
        "ResetWorkflow",
        "why",
        "r",
        "s",
    )
    assert other.open.activity_id == "right"
    assert other.state.successor == "next"
    other.check_replay()


def test_open_activities_and_timeouts_of_the_run_start_from_scratch() -> None:
    script = Reacting((activity("a", schedule_to_close_timeout=seconds(10)), timer("t", 5)), TimerFired=[()])
    drive = Drive.by(script, workflow_run_timeout=seconds(100), workflow_execution_timeout=seconds(200))
    drive.started(1)
    drive.at(5)
    other = reset(drive, 4, 1000, Reacting((activity("a", schedule_to_close_timeout=seconds(10)), timer("t", 5))))
    assert (other.open.attempt, other.open.started_time) == (1, None)
    assert other.open.expiration == T0 + seconds(1010)
    assert other.state.run_deadline == T0 + seconds(1100)
    assert other.state.expiration == T0 + seconds(1200)
    other.check_replay()


def test_later_signals_are_received_again_unless_the_request_excludes_them() -> None:
    drive = Drive.by(Reacting((activity("a"),)))
    drive.signal(1, "early", input=0)
    drive.signal(2, "late", input=1, identity="ada")
    drive.signal(3, "later", input=2)
    other = reset(drive, 3, 9, Reacting((activity("a"),)), requests=drive.state.requests)
    got = [
        (e.signal_name, e.input, e.identity) for e in other.history[4:] if isinstance(e, ev.WorkflowExecutionSignaled)
    ]
    assert got == [("late", 1, "ada"), ("later", 2, "")]
    # A requester that has not seen the result repeats its request: nothing changes.
    assert other.ask(10, inp.SignalRequested(request_id="late@2", signal_name="late")).ok
    assert other.new() == []
    other.check_replay()
    without = reset(drive, 3, 9, Reacting((activity("a"),)), signals=False)
    assert without.types()[4:] == []


def test_the_start_time_and_the_run_timeout_of_a_new_run_count_from_the_reset() -> None:
    drive = Drive.by(Reacting((activity("a"),)), workflow_run_timeout=seconds(100))
    drive.completed(5)
    other = reset(drive, 4, 1000, Reacting((activity("a"),), ActivityTaskCompleted=[(activity("b"),)]))
    assert (other.state.start_time, other.state.began) == (T0, T0 + seconds(1000))
    other.at(1100)
    failure = closing_failure(other.state, other.history[-1])
    assert failure is not None
    assert failure.message == "workflow timeout: the runTimeout of 1m40s has passed"


def test_outcomes_of_children_and_requests_are_received_again() -> None:
    first = (child(), NOTIFY, timer("t", 1))
    drive = Drive.by(Reacting(first))
    drive.at(1)
    drive.at(2, inp.ChildStarted(initiated_event_id=2, run_id="c"), inp.ExternalDone(initiated_event_id=3))
    drive.at(
        3, inp.ChildClosed(initiated_event_id=2, run_id="c", outcome=ChildOutcome.FAILED, failure=application("gone"))
    )
    other = reset(drive, 5, 9, Reacting(first))
    assert other.types()[5:] == [
        "WorkflowTaskFailed",
        "ChildWorkflowExecutionStarted",
        "ExternalWorkflowExecutionSignaled",
        "ChildWorkflowExecutionFailed",
    ]
    closed: Any = other.history[-1]
    assert closed.failure == application("gone")
    assert (other.state.children, other.state.externals) == ({}, {})
    other.check_replay()


def test_earlier_dead_letters_are_not_written_again() -> None:
    note = cmd.RecordMarker(marker_name=DEAD_LETTER, details={})
    drive = Drive.by(Reacting((note, timer("t", 1))))
    drive.at(1)
    assert drive.state.markers
    assert reset(drive, 4, 9, Reacting((note, timer("t", 1)))).state.markers == {}


def test_a_run_hands_over_what_it_started_before_the_point_to_the_new_run() -> None:
    script = Reacting(
        (child("kept"), NOTIFY),
        WorkflowExecutionSignaled=[(child("left"),)],
    )
    drive = Drive.by(script)
    drive.signal(1)
    stop = inp.TerminateRequested(request_id="x", reason="reset", reset_run="r-reset", reset_event_id=4)
    drive.ask(2, stop)
    assert drive.state.status is RunStatus.TERMINATED
    assert [c.child_id for c in drive.state.children.values()] == ["left"]
    assert drive.state.externals == {}
    closing: Any = drive.history[-1]
    assert (closing.reset_run, closing.reset_event_id) == ("r-reset", 4)
    drive.check_replay()


def test_a_run_can_be_reset_again() -> None:
    def script() -> Reacting:
        return Reacting((timer("t", 1),), TimerFired=[(activity("a"),)], ActivityTaskCompleted=[(activity("b"),)])

    drive = Drive.by(script())
    drive.at(1)
    drive.completed(2)
    once = reset(drive, 3, 10, script())
    once.completed(11)
    twice = reset(once, len(once.history) - 1, 20, script())
    assert twice.types().count("WorkflowTaskFailed") == 2
    assert twice.open.activity_id == "b"
    twice.check_replay()
