"""Requests to a run, and their answers."""

from typing import Any

import pytest

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine import step
from perdure.engine import step as engine
from perdure.engine.failures import FailureKind
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import RunStatus
from support.engine.script import T0, Drive, Reacting, activity, application, seconds


def test_44_signals_are_recorded_once_in_order_with_their_senders() -> None:
    drive = Drive.by(Reacting())
    signal = inp.SignalRequested(request_id="1", signal_name="go", input={"n": 1}, identity="me")
    other = inp.SignalRequested(request_id="2", signal_name="on")
    transition = drive.at(1, signal, other, signal)
    assert {key: answer.ok for key, answer in transition.answers.items()} == {"1": True, "2": True}
    assert drive.new() == ["WorkflowExecutionSignaled"] * 2
    first = drive.history[1]
    assert isinstance(first, ev.WorkflowExecutionSignaled)
    assert (first.signal_name, first.input, first.identity) == ("go", {"n": 1}, "me")
    assert drive.state.requests == ("1", "2")
    assert drive.at(2, signal).answers["1"].ok
    assert drive.new() == []
    assert not drive.last.durable  # type: ignore[union-attr]


def test_an_answered_request_is_forgotten_without_a_write_of_its_own() -> None:
    drive = Drive.by(Reacting())
    drive.signal(1, request_id="1")
    assert drive.at(2, inp.RequestForgotten(request_id="1")).durable is False
    assert drive.state.requests == ()


def test_the_number_of_remembered_requests_is_limited() -> None:
    drive = Drive.by(Reacting())
    earlier = tuple(f"earlier-{number}" for number in range(step.MAX_REQUESTS - 1))
    drive.assume(requests=earlier)
    for number in "12":
        drive.signal(1, request_id=number)
    assert drive.state.requests == (*earlier[1:], "1", "2")


def test_44_the_number_of_signals_of_a_run_is_limited() -> None:
    drive = Drive.by(Reacting())
    drive.assume(signals=step.MAX_SIGNALS - 2)
    assert drive.signal(1).ok
    assert drive.signal(2).ok
    answer = drive.signal(3, request_id="3")
    assert (answer.ok, answer.reason) == (False, "SignalLimitExceeded")
    assert "3" not in drive.state.requests
    assert drive.types().count("WorkflowExecutionSignaled") == 2


def test_45_a_second_cancellation_changes_nothing() -> None:
    drive = Drive.by(Reacting())
    assert drive.ask(1, inp.CancelRequested(request_id="1", reason="why", identity="me")).ok
    assert drive.ask(2, inp.CancelRequested(request_id="2")).ok
    (event,) = [e for e in drive.history if isinstance(e, ev.WorkflowExecutionCancelRequested)]
    assert (event.cause, event.identity) == ("why", "me")
    assert drive.script.asked.count("WorkflowExecutionCancelRequested") == 1


def test_termination_closes_without_a_decision_and_later_requests_find_a_closed_run() -> None:
    drive = Drive.by(Reacting((activity(),)))
    end = inp.TerminateRequested(request_id="t", reason="enough", details={"a": 1}, identity="me")
    signal = inp.SignalRequested(request_id="s", signal_name="go")
    transition = drive.at(1, end, signal, inp.CancelRequested(request_id="c"))
    event = drive.history[-1]
    assert isinstance(event, ev.WorkflowExecutionTerminated)
    assert (event.reason, event.details, event.identity) == ("enough", {"a": 1}, "me")
    assert drive.retired == [(2, 1)]
    assert transition.answers["t"].ok
    assert transition.answers["c"].ok
    assert transition.answers["s"].reason == "WorkflowExecutionCompleted"
    assert drive.script.asked == ["WorkflowExecutionStarted"]


@pytest.mark.parametrize(
    ("request_", "ok"),
    [
        (inp.CancelRequested(request_id="1"), True),
        (inp.TerminateRequested(request_id="1"), False),
        (inp.SignalRequested(request_id="1", signal_name="go"), False),
        (inp.PauseRequested(request_id="1"), False),
        (inp.UnpauseRequested(request_id="1"), False),
        (inp.PauseRequested(request_id="1", activity_id="work"), False),
        (inp.ActivityAnswered(request_id="1", activity_id="work"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_45_a_closed_run_accepts_only_a_cancellation(request_: Any, ok: bool) -> None:
    drive = Drive.of()
    assert drive.state.closed
    answer = drive.ask(1, request_)
    assert answer.ok is ok
    assert answer.reason == "WorkflowExecutionCompleted"
    assert drive.new() == []


def test_the_request_that_closed_a_run_succeeds_when_it_is_repeated() -> None:
    drive = Drive.by(Reacting())
    end = inp.TerminateRequested(request_id="t", reason="enough")
    drive.at(1, end)
    assert drive.at(2, end).answers["t"].ok


def test_a_refusal_is_not_remembered() -> None:
    drive = Drive.by(Reacting())
    assert not drive.ask(1, inp.ActivityAnswered(request_id="a", activity_id="none")).ok
    assert drive.state.requests == ()
    assert drive.last is not None
    assert not drive.last.durable


# Answers for activities


def test_a_started_activity_can_be_completed_from_outside() -> None:
    drive = Drive.of(activity())
    drive.started(1)
    assert drive.ask(2, inp.ActivityAnswered(request_id="a", activity_id="work", result=7)).ok
    completed = drive.history[3]
    assert isinstance(completed, ev.ActivityTaskCompleted)
    assert (completed.result, completed.started_event_id, completed.attempt) == (7, 3, 1)
    assert drive.retired == [(2, 1)]


def test_an_activity_that_has_not_started_can_be_completed_from_outside() -> None:
    drive = Drive.of(activity())
    drive.ask(2, inp.ActivityAnswered(request_id="a", activity_id="work", result=7))
    completed = drive.history[2]
    assert isinstance(completed, ev.ActivityTaskCompleted)
    assert completed.started_event_id == 0


def test_a_failure_from_outside_is_retried_by_the_policy() -> None:
    drive = Drive.of(activity(retry_policy=RetryPolicy(maximum_attempts=2)))
    failed = inp.ActivityAnswered(request_id="a", activity_id="work", failure=application())
    assert drive.ask(1, failed).ok
    assert (drive.open.attempt, drive.open.scheduled_time) == (2, T0 + seconds(2))
    assert drive.state.requests == ("a",)
    assert drive.ask(1, failed).ok
    assert drive.open.attempt == 2
    drive.ask(2, inp.ActivityAnswered(request_id="b", activity_id="work", failure=application()))
    assert drive.state.status is RunStatus.FAILED


def test_an_activity_is_cancelled_from_outside_only_after_a_cancellation_request() -> None:
    ask = cmd.RequestCancelActivityTask(activity_id="work")
    drive = Drive.by(Reacting((activity(),), WorkflowExecutionSignaled=[(ask,)]))
    drive.started(1)
    cancelled = inp.ActivityAnswered(request_id="a", activity_id="work", cancelled=True)
    answer = drive.ask(2, cancelled)
    assert (answer.ok, answer.reason) == (False, "CancelNotRequested")
    drive.signal(3)
    assert drive.ask(4, cancelled).ok
    assert drive.new() == ["ActivityTaskStarted", "ActivityTaskCanceled"]


def test_a_terminated_run_has_a_failure_of_that_kind() -> None:
    drive = Drive.by(Reacting())
    drive.ask(1, inp.TerminateRequested(request_id="t", reason="enough"))
    assert drive.failure is not None
    assert drive.failure.kind is FailureKind.TERMINATED


def test_a_run_started_by_signal_with_start_has_the_signal_before_its_first_decision() -> None:
    script = Reacting()
    signal = inp.SignalRequested(request_id="op", signal_name="go", input=1, identity="me")
    first = Drive.by(Reacting()).history[0]
    assert isinstance(first, ev.WorkflowExecutionStarted)
    transition = engine.start(first, script, requests=(signal,))
    assert [type(event).__name__ for event in transition.events] == [
        "WorkflowExecutionStarted",
        "WorkflowExecutionSignaled",
    ]
    assert transition.state.requests == ("op",)
    assert transition.state.signals == 1
    assert transition.answers["op"].ok
    asked_again = engine.step(transition.state, [signal], T0, script)
    assert asked_again.answers["op"].ok
    assert asked_again.events == ()


def test_an_activity_cancelled_from_outside_records_its_details() -> None:
    ask = cmd.RequestCancelActivityTask(activity_id="work")
    drive = Drive.by(Reacting((activity(),), WorkflowExecutionSignaled=[(ask,)]))
    drive.started(1)
    drive.signal(2, request_id="s")
    answered = inp.ActivityAnswered(request_id="a", activity_id="work", result="half", cancelled=True)
    assert drive.ask(3, answered).ok
    (event,) = [e for e in drive.history if isinstance(e, ev.ActivityTaskCanceled)]
    assert event.details == "half"


def test_events_of_requests_name_the_user_and_events_of_decisions_do_not() -> None:
    drive = Drive.by(Reacting(WorkflowExecutionSignaled=[(activity("a"),)]))
    drive.at(1, inp.SignalRequested(request_id="1", signal_name="go", identity="me", principal="alice"))
    assert [event.principal for event in drive.history[1:]] == ["alice", ""]
    drive.at(
        2, inp.PauseRequested(request_id="2", principal="bob"), inp.UnpauseRequested(request_id="3", principal="carol")
    )
    drive.at(3, inp.CancelRequested(request_id="4", principal="dave"))
    drive.at(4, inp.ActivityAnswered(request_id="5", activity_id="a", result=1, principal="erin"))
    drive.at(5, inp.TerminateRequested(request_id="6", principal="frank"))
    found = {type(event).__name__: event.principal for event in drive.history if event.principal}
    assert found == {
        "WorkflowExecutionSignaled": "alice",
        "WorkflowExecutionPaused": "bob",
        "WorkflowExecutionUnpaused": "carol",
        "WorkflowExecutionCancelRequested": "dave",
        "ActivityTaskCompleted": "erin",
        "WorkflowExecutionTerminated": "frank",
    }
