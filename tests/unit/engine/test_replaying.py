"""Replays of a history: to the end, or to a point from which another one continues."""

from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.commands import Decision, UndecidableError
from perdure.engine.inputs import PauseRequested, TerminateRequested
from perdure.engine.step import step
from support.engine.script import Drive, Reacting, Script, activity, seconds, timer

NOTE = cmd.RecordMarker(marker_name="note")


def signalled(*reactions: Any) -> Reacting:
    return Reacting((activity("a"),), WorkflowExecutionSignaled=list(reactions))


def drive_with_two_signals() -> Drive:
    drive = Drive.by(signalled((timer("t", 10),), (activity("b", input={"x": 1}),)))
    drive.signal(1)
    drive.signal(2)
    return drive


@pytest.mark.parametrize(
    "other",
    [
        (activity("b", input={"x": 2}),),
        (activity("b", input={"x": 1}, start_to_close_timeout=seconds(5)),),
        (activity("c", input={"x": 1}),),
        (NOTE,),
        (),
        (cmd.CancelTimer(timer_id="none"),),
    ],
    ids=["another input", "another timeout", "another name", "another kind", "nothing", "nothing that leaves an event"],
)
def test_the_first_difference_is_reported_with_both_sides(other: Any) -> None:
    drive = drive_with_two_signals()
    with pytest.raises(history.NondeterminismError) as caught:
        history.replay(drive.history, signalled((timer("t", 10),), other))
    assert (caught.value.number, caught.value.event) == (6, drive.history[5])
    left = [command for command in other if not isinstance(command, cmd.CancelTimer)]
    assert caught.value.command == (left[0] if left else None)


def test_a_decider_that_continues_after_an_open_history_differs_there() -> None:
    drive = drive_with_two_signals()
    with pytest.raises(history.NondeterminismError, match="the history ends") as caught:
        history.replay(drive.history, signalled((timer("t", 10),), (activity("b", input={"x": 1}), NOTE)))
    assert (caught.value.number, caught.value.event, caught.value.command) == (7, None, NOTE)


def test_pending_decisions_of_a_paused_run_are_no_difference() -> None:
    drive = Drive.by(signalled((NOTE,)))
    drive.ask(1, PauseRequested(request_id="p"))
    drive.signal(2)
    replayed = history.replay(drive.history, signalled((NOTE,)))
    assert replayed.undecided == drive.state.undecided
    assert replayed.memory == drive.state.memory


def test_a_failed_decision_names_the_event() -> None:
    drive = drive_with_two_signals()
    drive.script.broken = True
    with pytest.raises(UndecidableError, match="event 1 cannot be decided: the script is broken"):
        history.replay(drive.history, drive.script)


def test_a_cancellation_of_something_closed_leaves_no_event_in_a_replay() -> None:
    again = (cmd.CancelTimer(timer_id="t"), cmd.RequestCancelActivityTask(activity_id="a"), NOTE)
    drive = Drive.by(Reacting((timer("t", 3),), TimerFired=[again], WorkflowExecutionSignaled=[again, again]))
    drive.signal(1)
    drive.at(5)
    drive.signal(6)
    assert drive.types().count("TimerCanceled") == 1
    drive.check_replay()


def test_a_closed_history_replays_with_events_that_were_not_decided() -> None:
    drive = Drive.by(Reacting((timer("t", 5),), TimerFired=[(cmd.CompleteWorkflowExecution(),)]), paused=False)
    drive.script.broken = True
    drive.at(6)
    drive.signal(6)
    drive.script.broken = False
    drive.signal(7)
    assert drive.types()[-4:] == [
        "TimerFired",
        *["WorkflowExecutionSignaled"] * 2,
        "WorkflowExecutionCompleted",
    ]
    drive.check_replay()


STOP = TerminateRequested(request_id="stop")


@pytest.mark.parametrize("retraced", [False, True])
def test_the_last_events_before_a_termination_were_decided(retraced: bool) -> None:
    """Issue 44's audit: a step that had completed before a termination was shown as stopped."""
    drive = Drive.by(signalled((timer("t", 100),)))
    drive.signal(1)
    drive.signal(2)
    drive.ask(3, STOP)
    again = signalled((timer("t", 100),))
    if retraced:
        history.retrace(drive.history, again)
    else:
        history.replay(drive.history, again)
    assert again.asked == ["WorkflowExecutionStarted", *["WorkflowExecutionSignaled"] * 2]
    drive.check_replay()


class Stumbling(Reacting):
    """Cannot decide about signals."""

    def decide(self, memory: Any, event: ev.AnyEvent | None, *, continue_as_new_suggested: bool = False) -> Decision:
        self.broken = isinstance(event, ev.WorkflowExecutionSignaled)
        return super().decide(memory, event, continue_as_new_suggested=continue_as_new_suggested)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("decider", [Stumbling, Reacting])
def test_an_event_that_was_not_decided_before_a_termination_is_no_difference(
    paused: bool, decider: type[Reacting]
) -> None:
    drive = Drive.by(Stumbling((timer("t", 100),), WorkflowExecutionSignaled=[(NOTE,)]))
    if paused:
        drive.ask(1, PauseRequested(request_id="p"))
    drive.signal(2)
    drive.ask(3, STOP)
    assert drive.types()[-2:] == ["WorkflowExecutionSignaled", "WorkflowExecutionTerminated"]
    again = decider((timer("t", 100),), WorkflowExecutionSignaled=[(NOTE,)])
    history.replay(drive.history, again)
    assert len(again.heard) == (2 if decider is Reacting and not paused else 1)


def test_a_run_that_was_terminated_before_it_began_has_decided_nothing() -> None:
    drive = Drive.by(signalled((NOTE,)), paused=True)
    drive.ask(3, STOP)
    again = signalled((NOTE,))
    assert history.replay(drive.history, again).memory is None
    assert again.heard == []


# Forking


def test_after_a_reset_point_everything_is_decided_again() -> None:
    drive = drive_with_two_signals()
    state = history.fork(drive.history, 5, signalled((timer("t", 10),)))
    assert [event.event_id for event in state.undecided] == [5]
    fixed = signalled((timer("t", 10),), (NOTE,))
    repeated = step(state, (), drive.now, fixed)
    assert [type(event).__name__ for event in repeated.events] == ["MarkerRecorded"]
    assert list(repeated.state.timers) == ["t"]
    history.replay([*drive.history[:5], *repeated.events], fixed)


def test_after_the_first_event_everything_is_decided_again() -> None:
    drive = drive_with_two_signals()
    state = history.fork(drive.history, 1, Reacting())
    assert (state.memory, len(state.undecided)) == (None, 1)
    assert step(state, (), drive.now, drive.script.__class__((NOTE,))).events


@pytest.mark.parametrize(
    ("point", "want"), [(2, "choose event 1 or 3"), (4, "3 or 5"), (6, "choose event 5$"), (99, "5$"), (0, "event 1$")]
)
def test_an_event_without_a_decision_is_rejected_with_the_nearest_reset_points(point: int, want: str) -> None:
    with pytest.raises(ValueError, match=want):
        history.fork(drive_with_two_signals().history, point, Reacting())


def test_the_middle_of_a_decision_is_not_a_reset_point() -> None:
    both = tuple(cmd.RequestCancelActivityTask(activity_id=name) for name in "ab")
    drive = Drive.by(Reacting((activity("a"), activity("b")), WorkflowExecutionSignaled=[both]))
    drive.signal(1)
    assert history.decision_points(drive.history) == [1, 4]


def test_an_activity_with_a_cancellation_request_does_not_start_again_after_a_reset() -> None:
    ask = cmd.RequestCancelActivityTask(activity_id="a")
    drive = Drive.by(signalled((ask,)))
    drive.started(1)
    drive.signal(2)
    drive.signal(3)
    state = history.fork(drive.history, 5, signalled((ask,)))
    repeated = step(state, (), drive.now, signalled((ask,)))
    assert [type(event).__name__ for event in repeated.events] == ["ActivityTaskCanceled"]


def test_a_decider_that_differs_before_the_reset_point_cannot_fork_there() -> None:
    drive = drive_with_two_signals()
    with pytest.raises(history.NondeterminismError):
        history.fork(drive.history, 5, signalled((timer("other", 10),)))


def test_a_history_that_is_empty_or_has_gaps_is_invalid() -> None:
    with pytest.raises(ValueError, match="empty"):
        history.replay([], Script())
    drive = Drive.of(timer("a", 1), timer("b", 1))
    drive.at(1)
    with pytest.raises(ValueError, match="expected event 3, got 4"):
        history.replay([*drive.history[:2], *drive.history[3:]], drive.script)
