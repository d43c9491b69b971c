"""When the decider is called and with what, and what happens when it fails or splits its decision."""

from itertools import pairwise
from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import fold, ledger, step
from perdure.engine.failures import FailureKind
from perdure.engine.inputs import PauseRequested, UnpauseRequested
from perdure.engine.starts import CarriedSignal
from perdure.engine.state import RunStatus
from perdure.engine.step import next_wake
from support.engine.script import T0, Drive, Reacting, Script, activity, application, seconds, timer

NOTE = cmd.RecordMarker(marker_name="note")


def test_the_decider_gets_each_event_separately_in_the_order_of_the_history() -> None:
    drive = Drive.by(Reacting((activity(), timer("t", 5))))
    drive.signal(1)
    drive.completed(9)
    assert drive.script.asked == [
        "WorkflowExecutionStarted",
        "WorkflowExecutionSignaled",
        "ActivityTaskCompleted",
        "TimerFired",
    ]


def test_a_failed_decision_and_later_events_wait_and_earlier_decisions_remain() -> None:
    decider = Reacting(WorkflowExecutionSignaled=[(NOTE,), (NOTE, timer("t", 1), timer("t", 1)), (NOTE,)])
    drive = Drive.by(decider)
    drive.signal(1, "a")
    drive.signal(1, "b")
    drive.signal(1, "c")
    assert drive.types().count("MarkerRecorded") == 1
    assert drive.state.task is not None
    assert drive.state.task.message == "timer id 't' is in use"
    assert [
        event.signal_name for event in drive.state.undecided if isinstance(event, ev.WorkflowExecutionSignaled)
    ] == [
        "b",
        "c",
    ]
    assert drive.state.timers == {}
    decider.reactions["WorkflowExecutionSignaled"][1] = (NOTE,)  # type: ignore[index]
    wake = next_wake(drive.state, drive.now)
    assert wake is not None
    drive.at((wake - T0).total_seconds())
    assert drive.types().count("MarkerRecorded") == 3
    assert (drive.state.task, drive.state.undecided) == (None, ())
    drive.check_replay()


def test_a_broken_decider_is_retried_once_per_step_when_something_happens() -> None:
    drive = Drive.by(Reacting())
    drive.script.broken = True
    drive.signal(1)
    drive.at(1.5)
    assert drive.state.task is not None
    assert drive.state.task.attempt == 1
    drive.signal(2)
    assert drive.state.task.attempt == 2
    assert len(drive.state.undecided) == 2


def test_timers_fire_while_the_decider_is_broken() -> None:
    drive = Drive.by(Reacting((timer("t", 3),)))
    drive.script.broken = True
    drive.signal(1)
    drive.at(3)
    assert drive.types()[-1] == "TimerFired"
    assert drive.state.timers == {}


# Decisions in parts


def test_a_decision_in_parts_takes_a_step_for_each_part_and_new_events_queue_behind_it() -> None:
    drive = Drive.by(Reacting([(NOTE,), (timer("a", 1),), (timer("b", 1),)]))  # type: ignore[arg-type]
    assert (drive.last.more, drive.state.unfinished) == (True, True)  # type: ignore[union-attr]
    drive.signal(0)
    assert drive.script.asked == ["WorkflowExecutionStarted", ""]
    assert len(drive.state.undecided) == 1
    drive.at(0)
    assert drive.script.asked[-2:] == ["", "WorkflowExecutionSignaled"]
    assert drive.last is not None
    assert not drive.last.more
    assert not drive.state.unfinished
    assert drive.types() == [
        "WorkflowExecutionStarted",
        "MarkerRecorded",
        "TimerStarted",
        "WorkflowExecutionSignaled",
        "TimerStarted",
    ]
    drive.check_replay()


def test_a_step_ends_after_a_limited_amount_of_work() -> None:
    drive = Drive.by(Reacting(), paused=True)
    drive.script.work = step.MAX_WORK // 2
    for number in range(5):
        drive.signal(1, str(number))
    transition = drive.at(2, UnpauseRequested(request_id="u"))
    assert (transition.more, len(transition.state.undecided)) == (True, 3)
    assert drive.at(2).more is False
    assert drive.state.undecided == ()


def test_a_step_ends_after_a_limited_number_of_rounds() -> None:
    drive = Drive.of(*[timer(f"t{number}", 0) for number in range(step.MAX_ROUNDS + 1)])
    steps = 1
    while drive.last is not None and drive.last.more:
        drive.at(0)
        steps += 1
    assert steps == 2
    assert drive.state.status is RunStatus.COMPLETED


def test_a_run_that_never_finishes_deciding_still_times_out() -> None:
    parts: list[Any] = [()] * 50
    drive = Drive.by(Reacting(parts), workflow_run_timeout=seconds(5))  # type: ignore[arg-type]
    for offset in range(6):
        drive.at(offset)
    assert drive.state.status is RunStatus.TIMED_OUT
    assert drive.state.unfinished is False


def test_continue_as_new_is_suggested_from_a_number_of_events() -> None:
    drive = Drive.by(Reacting())
    drive.assume(next_event_id=fold.SUGGEST_EVENTS - 1)
    for offset in range(1, 5):
        drive.signal(offset)
    assert [suggested for _, suggested in drive.script.heard] == [False, False, False, True, True]


# Pauses


def test_a_paused_run_decides_nothing_and_starts_no_attempts_but_its_timers_fire() -> None:
    work = activity(start_to_close_timeout=seconds(5), schedule_to_start_timeout=seconds(50))
    drive = Drive.by(Reacting((work, timer("t", 3))))
    drive.ask(1, PauseRequested(request_id="p", reason="look"))
    assert drive.state.paused is not None
    assert not drive.state.may_start(drive.open, drive.now)
    drive.started(2)  # its pod existed already
    assert drive.state.may_start(drive.open, drive.now)
    drive.at(3)
    drive.at(7)
    assert drive.open.attempt == 2
    assert drive.script.asked == ["WorkflowExecutionStarted"]
    assert next_wake(drive.state, drive.now) == T0 + seconds(58)
    drive.ask(9, UnpauseRequested(request_id="u"))
    assert drive.script.asked == ["WorkflowExecutionStarted", "TimerFired"]
    assert drive.state.may_start(drive.open, drive.now)
    drive.check_replay()


def test_a_paused_run_does_not_spin() -> None:
    drive = Drive.by(Reacting())
    drive.ask(1, PauseRequested(request_id="p"))
    transition = drive.at(2)
    assert (transition.more, transition.durable) == (False, False)
    drive.signal(3)
    assert drive.last is not None
    assert drive.last.more is False
    assert next_wake(drive.state, drive.now) is None


def test_a_second_pause_and_unpausing_a_running_run_change_nothing() -> None:
    drive = Drive.by(Reacting())
    assert drive.ask(1, UnpauseRequested(request_id="u")).ok
    assert drive.ask(2, PauseRequested(request_id="p")).ok
    assert drive.ask(3, PauseRequested(request_id="q")).ok
    assert drive.types() == ["WorkflowExecutionStarted", "WorkflowExecutionPaused"]


def test_a_paused_activity_keeps_running_and_is_not_retried_until_it_is_unpaused() -> None:
    drive = Drive.of(activity())
    drive.started(1)
    assert drive.ask(2, PauseRequested(request_id="p", activity_id="work")).ok
    assert drive.last is not None
    assert drive.last.durable
    drive.failed(3)
    assert drive.open.attempt == 2
    assert next_wake(drive.state, drive.now) is None
    assert not drive.state.may_start(drive.open, T0 + seconds(60))
    drive.ask(60, UnpauseRequested(request_id="u", activity_id="work"))
    assert drive.state.may_start(drive.open, drive.now)
    assert drive.types() == ["WorkflowExecutionStarted", "ActivityTaskScheduled"]


@pytest.mark.parametrize("request_", [PauseRequested, UnpauseRequested])
def test_an_unknown_activity_cannot_be_paused(request_: Any) -> None:
    answer = Drive.by(Reacting()).ask(1, request_(request_id="p", activity_id="none"))
    assert (answer.ok, answer.reason) == (False, "ActivityNotFound")


# The beginning


def test_no_decision_happens_before_the_first_one_is_due() -> None:
    drive = Drive.by(Reacting((NOTE,)), first_workflow_task_backoff=seconds(10))
    drive.signal(1)
    assert drive.script.asked == []
    assert next_wake(drive.state, drive.now) == T0 + seconds(10)
    drive.check_replay()
    drive.at(10)
    assert drive.script.asked == ["WorkflowExecutionStarted", "WorkflowExecutionSignaled"]
    assert next_wake(drive.state, drive.now) is None
    drive.check_replay()


def test_a_run_starts_with_carried_signals_and_can_start_paused() -> None:
    carried = [CarriedSignal(signal_name="a", input=1, identity="who"), CarriedSignal(signal_name="b")]
    drive = Drive.by(Reacting(), signals=carried, paused=True)
    assert drive.types() == [
        "WorkflowExecutionStarted",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionSignaled",
        "WorkflowExecutionPaused",
    ]
    first = drive.history[1]
    assert isinstance(first, ev.WorkflowExecutionSignaled)
    assert (first.signal_name, first.input, first.identity) == ("a", 1, "who")
    assert drive.script.asked == []
    drive.check_replay()
    drive.ask(5, UnpauseRequested(request_id="u"))
    assert drive.script.asked == ["WorkflowExecutionStarted", *["WorkflowExecutionSignaled"] * 2]


# Limits


@pytest.mark.parametrize(
    "near", [{"next_event_id": step.MAX_EVENTS - 1}, {"history_size": step.MAX_BYTES - 500}], ids=str
)
def test_52_a_history_that_is_too_long_terminates_the_run_without_a_decision(near: dict[str, int]) -> None:
    drive = Drive.by(Reacting((activity(),)))
    drive.assume(**near)
    while not drive.state.closed:
        heard = len(drive.script.asked)
        drive.signal(len(drive.history), input="x" * 100)
    assert len(drive.script.asked) == heard
    assert drive.state.status is RunStatus.TERMINATED
    assert drive.failure is not None
    assert drive.failure.kind is FailureKind.TERMINATED
    assert "continueAsNew" in drive.failure.message
    assert drive.history[-1].event_id == step.MAX_EVENTS + 2 or "history_size" in near
    assert drive.retired == [(2, 1)]


def test_52_the_number_of_pending_items_of_a_run_is_limited() -> None:
    names = [str(number) for number in range(ledger.MAX_PENDING)]
    drive = Drive.by(Reacting((*map(activity, names), *(timer(name, 9) for name in names))))
    assert drive.state.task is None
    drive = Drive.by(Reacting((*map(activity, names), activity("more"))))
    assert drive.state.task is not None
    assert "a run can have at most 2,000 of each kind open" in drive.state.task.message
    assert drive.types() == ["WorkflowExecutionStarted"]


@pytest.mark.parametrize(
    ("commands", "want"),
    [
        ((activity("a"), activity("a")), "activity id 'a' is in use"),
        ((timer("a", 1), timer("a", 2)), "timer id 'a' is in use"),
        ((cmd.CompleteWorkflowExecution(), NOTE), "invalid command sequence"),
        ((activity("a", start_to_close_timeout=None),), "must be set"),
        ((cmd.ContinueAsNewWorkflowExecution(),), "no name"),
    ],
)
def test_invalid_commands_fail_the_decision_but_not_the_run(commands: Any, want: str) -> None:
    drive = Drive.by(Reacting(commands))
    assert drive.state.task is not None
    assert want in drive.state.task.message
    assert drive.state.status is RunStatus.RUNNING
    assert drive.types() == ["WorkflowExecutionStarted"]
    assert drive.retired == []


def test_a_cancelled_timer_does_not_fire_and_a_fired_timer_cannot_be_cancelled() -> None:
    cancel = cmd.CancelTimer(timer_id="t")
    drive = Drive.by(Reacting((timer("t", 5),), WorkflowExecutionSignaled=[(cancel,), (cancel, NOTE)]))
    drive.signal(1)
    drive.signal(2)
    drive.at(10)
    assert [name for name in drive.types() if name.startswith("Timer")] == ["TimerStarted", "TimerCanceled"]
    assert drive.types()[-1] == "MarkerRecorded"
    drive.check_replay()


def test_the_backoff_after_failures_grows_up_to_a_maximum() -> None:
    drive = Drive.of(activity())
    drive.script.broken = True
    drive.failed(1, application(non_retryable=True))
    waits = []
    for _ in range(12):
        wake = next_wake(drive.state, drive.now)
        assert wake is not None
        waits.append((wake - drive.now).total_seconds())
        drive.at((wake - T0).total_seconds())
    assert all(shorter <= longer for shorter, longer in pairwise(waits))
    assert waits[-1] == 600
    assert isinstance(drive.script, Script)
