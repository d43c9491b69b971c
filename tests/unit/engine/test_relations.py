"""Relations between runs: children, signals and cancellations between runs, and the next run of a chain."""

from typing import Any

import pytest

from perdure.api.policies import ParentClosePolicy
from perdure.engine import commands as cmd
from perdure.engine import effects as fx
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.inputs import ChildOutcome
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import CarriedSignal, ExternalReference
from perdure.engine.state import DEAD_LETTER, RunStatus
from support.engine.script import T0, Drive, Reacting, activity, application, child, seconds, timer

SIGNAL = cmd.SignalExternalWorkflowExecution(signal_id="notify", workflow_id="other", signal_name="go", input=1)
CANCEL = cmd.RequestCancelExternalWorkflowExecution(workflow_id="other", reason="enough")
AGAIN = RetryPolicy(initial_interval=seconds(3), maximum_attempts=3)


# Children


def test_a_child_is_initiated_started_and_closed_and_the_decider_sees_start_and_end() -> None:
    drive = Drive.by(Reacting((child(),)))
    (pending,) = drive.state.children.values()
    assert pending.start is not None
    drive.at(1, inp.ChildStarted(initiated_event_id=2, run_id="c1"))
    drive.at(2, inp.ChildClosed(initiated_event_id=2, run_id="c2", outcome=ChildOutcome.COMPLETED, result=7))
    assert drive.script.asked[1:] == ["ChildWorkflowExecutionStarted", "ChildWorkflowExecutionCompleted"]
    closed = drive.history[-1]
    assert isinstance(closed, ev.ChildWorkflowExecutionCompleted)
    assert (closed.started_event_id, closed.run_id, closed.child_id, closed.result) == (3, "c2", "kid", 7)
    assert drive.state.children == {}
    drive.check_replay()


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (ChildOutcome.COMPLETED, ev.ChildWorkflowExecutionCompleted),
        (ChildOutcome.FAILED, ev.ChildWorkflowExecutionFailed),
        (ChildOutcome.CANCELLED, ev.ChildWorkflowExecutionCanceled),
        (ChildOutcome.TIMED_OUT, ev.ChildWorkflowExecutionTimedOut),
        (ChildOutcome.TERMINATED, ev.ChildWorkflowExecutionTerminated),
    ],
)
def test_a_child_that_closes_before_its_start_was_seen_has_started(outcome: ChildOutcome, want: type) -> None:
    drive = Drive.by(Reacting((child(),)))
    closed = inp.ChildClosed(initiated_event_id=2, run_id="c", outcome=outcome, failure=application("gone"))
    drive.at(1, closed, closed)
    assert drive.new() == ["ChildWorkflowExecutionStarted", want.__name__]
    last: Any = drive.history[-1]
    assert getattr(last, "failure", application("gone")) == application("gone")
    assert getattr(last, "reason", "gone") == "gone"


@pytest.mark.parametrize("outcome", [ChildOutcome.FAILED, ChildOutcome.TIMED_OUT])
def test_the_last_event_of_a_child_has_its_retry_state(outcome: ChildOutcome) -> None:
    drive = Drive.by(Reacting((child(),)))
    reached = RetryState.MAXIMUM_ATTEMPTS_REACHED
    drive.at(1, inp.ChildClosed(initiated_event_id=2, run_id="c", outcome=outcome, retry_state=reached))
    last: Any = drive.history[-1]
    assert last.retry_state is reached


def test_a_child_that_cannot_start_is_a_failure() -> None:
    drive = Drive.by(Reacting((child(),)))
    drive.at(1, inp.ChildStartFailed(initiated_event_id=2, failure=application()))
    assert drive.script.asked[-1] == "StartChildWorkflowExecutionFailed"
    assert drive.state.children == {}


def test_stale_reports_about_children_and_other_runs_change_nothing() -> None:
    drive = Drive.by(Reacting((child(),)))
    drive.at(1, inp.ChildStarted(initiated_event_id=2, run_id="c"))
    before = drive.state
    drive.at(
        2,
        inp.ChildStarted(initiated_event_id=2, run_id="c"),
        inp.ChildStartFailed(initiated_event_id=2, failure=application()),
        inp.ChildStarted(initiated_event_id=9, run_id="c"),
        inp.ExternalDone(initiated_event_id=2),
    )
    assert drive.state == before


def test_two_open_children_cannot_have_the_same_name() -> None:
    drive = Drive.by(Reacting((child(), child())))
    assert drive.state.task is not None
    assert "child id 'kid' is in use" in drive.state.task.message


# Others


@pytest.mark.parametrize(
    ("command", "failure", "want"),
    [
        (SIGNAL, None, "ExternalWorkflowExecutionSignaled"),
        (SIGNAL, application(), "SignalExternalWorkflowExecutionFailed"),
        (CANCEL, None, "ExternalWorkflowExecutionCancelRequested"),
        (CANCEL, application(), "RequestCancelExternalWorkflowExecutionFailed"),
    ],
)
def test_the_decider_sees_the_outcome_of_a_request_to_another_run(
    command: cmd.Command, failure: Failure | None, want: str
) -> None:
    drive = Drive.by(Reacting((command,)))
    assert list(drive.state.externals) == ["2"]
    done = inp.ExternalDone(initiated_event_id=2, failure=failure)
    drive.at(1, done, done)
    assert (drive.new(), drive.script.asked[-1]) == ([want], want)
    assert drive.state.externals == {}
    drive.check_replay()


def test_an_open_child_is_cancelled_by_its_name_and_a_closed_one_is_not() -> None:
    cancel = cmd.RequestCancelExternalWorkflowExecution(child_id="kid", reason="enough")
    drive = Drive.by(Reacting((child(),), WorkflowExecutionSignaled=[(cancel,), (cancel,)]))
    drive.signal(1)
    asked = drive.history[-1]
    assert isinstance(asked, ev.RequestCancelExternalWorkflowExecutionInitiated)
    assert (asked.workflow_id, asked.child_workflow_only, asked.reason) == ("w-kid", True, "enough")
    drive.at(2, inp.ChildClosed(initiated_event_id=2, run_id="c", outcome=ChildOutcome.CANCELLED))
    drive.signal(3)
    assert drive.new() == ["WorkflowExecutionSignaled"]
    drive.check_replay()


# After the end


def test_effects_of_a_closed_run_are_kept_until_they_are_done() -> None:
    letter = cmd.RecordMarker(marker_name=DEAD_LETTER, details={})
    first = (
        child("a"),
        child("b", ParentClosePolicy.ABANDON),
        child("c", ParentClosePolicy.ABANDON),
        SIGNAL,
        letter,
        cmd.RecordMarker(marker_name="note"),
    )
    on = cmd.ContinueAsNewWorkflowExecution()
    drive = Drive.by(Reacting(first, WorkflowExecutionSignaled=[(on,)]), successor="next")
    drive.at(1, inp.ChildStarted(initiated_event_id=3, run_id="c"))
    drive.signal(2)
    state = drive.state
    assert (list(state.children), list(state.externals), list(state.markers)) == (["2", "4"], ["5"], ["6"])
    assert state.start_successor
    steps: list[tuple[inp.RunInput, bool]] = [
        (inp.EffectDone(effect=fx.CloseChild(2)), True),
        (inp.ChildStarted(initiated_event_id=4, run_id="c"), True),
        (inp.ExternalDone(initiated_event_id=5), True),
        (inp.EffectDone(effect=fx.WriteDeadLetter(6)), True),
        (inp.EffectDone(effect=fx.StartSuccessor()), True),
        (inp.EffectDone(effect=fx.StartSuccessor()), False),
        (inp.EffectDone(effect=fx.CloseChild(99)), False),
    ]
    for done, durable in steps:
        assert drive.state.has_pending_work is durable
        assert drive.at(3, done).durable is durable
    assert drive.new() == []


def test_a_child_that_must_end_with_its_parent_is_kept_until_the_request_was_sent() -> None:
    drive = Drive.by(Reacting((child(), cmd.CompleteWorkflowExecution())))
    drive.at(1, inp.ChildStarted(initiated_event_id=2, run_id="c"))
    assert drive.state.has_pending_work
    ended = inp.ChildClosed(initiated_event_id=2, run_id="c", outcome=ChildOutcome.COMPLETED)
    assert drive.at(2, ended).durable
    assert not drive.state.has_pending_work


def test_a_written_dead_letter_is_removed_with_the_next_commit() -> None:
    drive = Drive.by(Reacting((cmd.RecordMarker(marker_name=DEAD_LETTER),)))
    assert drive.at(1, inp.EffectDone(effect=fx.WriteDeadLetter(2))).durable is False
    assert drive.state.markers == {}


# The next run of a chain


def test_continue_as_new_carries_signals_that_were_not_consumed() -> None:
    kept = CarriedSignal(signal_name="kept", input=1, identity="x")
    sender = ExternalReference(workflow_id="other", run_id="u-9", initiated_event_id=7)
    on = cmd.ContinueAsNewWorkflowExecution(input={"n": 2}, signals=(kept,))
    drive = Drive.by(Reacting((), WorkflowExecutionSignaled=[(on,)]), successor="next")
    drive.ask(0.5, inp.PauseRequested(request_id="p"))
    drive.signal(1, "first")
    drive.ask(2, inp.CancelRequested(request_id="c"))
    drive.signal(3, "second", input=3, identity="me", external=sender)
    drive.ask(4, inp.UnpauseRequested(request_id="u"))
    event = drive.history[-1]
    assert isinstance(event, ev.WorkflowExecutionContinuedAsNew)
    assert event.signals == (kept, CarriedSignal(signal_name="second", input=3, identity="me", external=sender))
    assert (event.new_workflow_run, event.input) == ("next", {"n": 2})
    assert drive.state.start_successor
    assert drive.state.undecided == ()
    drive.check_replay()


@pytest.mark.parametrize(
    ("failure", "started", "want"),
    [
        (application(), {}, RetryState.IN_PROGRESS),
        (application(), {"attempt": 2}, RetryState.IN_PROGRESS),
        (application(), {"attempt": 3}, RetryState.MAXIMUM_ATTEMPTS_REACHED),
        (application(), {"retry_policy": None}, RetryState.RETRY_POLICY_NOT_SET),
        (application(), {"successor": ""}, RetryState.RETRY_POLICY_NOT_SET),
        (application(non_retryable=True), {}, RetryState.NON_RETRYABLE_FAILURE),
        (application(), {"workflow_execution_expiration_time": T0 + seconds(2)}, RetryState.TIMEOUT),
        (Failure(kind=FailureKind.ACTIVITY, cause=application()), {}, RetryState.IN_PROGRESS),
        (
            Failure(kind=FailureKind.ACTIVITY, cause=application(non_retryable=True)),
            {},
            RetryState.NON_RETRYABLE_FAILURE,
        ),
        (
            Failure(kind=FailureKind.ACTIVITY, cause=application(type="Listed")),
            {"retry_policy": RetryPolicy(non_retryable_error_types=("Listed",))},
            RetryState.NON_RETRYABLE_FAILURE,
        ),
        (Failure(kind=FailureKind.ACTIVITY, cause=Failure(kind=FailureKind.CANCELLED)), {}, RetryState.IN_PROGRESS),
        (Failure(kind=FailureKind.CANCELLED), {}, RetryState.NON_RETRYABLE_FAILURE),
    ],
)
def test_a_failed_run_is_retried_by_its_policy_or_records_why_not(
    failure: Failure, started: dict[str, Any], want: RetryState
) -> None:
    options: dict[str, Any] = {"retry_policy": AGAIN, "successor": "next", **started}
    drive = Drive.by(Reacting((cmd.FailWorkflowExecution(failure=failure),)), **options)
    event = drive.history[-1]
    assert isinstance(event, ev.WorkflowExecutionFailed)
    assert event.retry_state is want
    retried = want is RetryState.IN_PROGRESS
    assert event.new_workflow_run == ("next" if retried else "")
    assert event.new_run_backoff == (AGAIN.interval(options.get("attempt", 1)) if retried else None)
    assert drive.state.start_successor is retried
    drive.check_replay()


def test_a_failure_can_set_the_delay_of_the_retry_of_its_run() -> None:
    failure = application(next_retry_delay=seconds(50))
    fail = cmd.FailWorkflowExecution(failure=failure)
    drive = Drive.by(Reacting((fail,)), retry_policy=AGAIN, successor="next")
    event = drive.history[-1]
    assert isinstance(event, ev.WorkflowExecutionFailed)
    assert event.new_run_backoff == seconds(50)


@pytest.mark.parametrize(
    ("started", "want"),
    [
        ({"workflow_run_timeout": seconds(5)}, RetryState.IN_PROGRESS),
        ({"workflow_run_timeout": seconds(5), "retry_policy": None}, RetryState.RETRY_POLICY_NOT_SET),
        ({"workflow_execution_expiration_time": T0 + seconds(5)}, RetryState.TIMEOUT),
        (
            {"workflow_run_timeout": seconds(5), "workflow_execution_expiration_time": T0 + seconds(6)},
            RetryState.TIMEOUT,
        ),
    ],
    ids=["the run's time", "without a policy", "the time of the chain", "no time left for a retry"],
)
def test_a_run_that_timed_out_is_retried_unless_the_execution_timeout_has_expired(
    started: dict[str, Any], want: RetryState
) -> None:
    drive = Drive.by(Reacting((activity(),)), **{"retry_policy": AGAIN, "successor": "next", **started})
    drive.at(5)
    event = drive.history[-1]
    assert isinstance(event, ev.WorkflowExecutionTimedOut)
    assert event.retry_state is want
    assert (event.new_workflow_run == "next") is (want is RetryState.IN_PROGRESS)
    assert drive.state.status is RunStatus.TIMED_OUT
    assert drive.retired == [(2, 1)]


@pytest.mark.parametrize(
    "ending",
    [cmd.CancelWorkflowExecution(failure=application()), cmd.CompleteWorkflowExecution(result=1)],
)
def test_other_outcomes_are_never_retried(ending: cmd.Command) -> None:
    drive = Drive.by(Reacting((timer("t", 5), ending)), retry_policy=AGAIN, successor="next")
    assert drive.state.closed
    assert not drive.state.start_successor
    assert drive.state.timers == {}
    drive.check_replay()


def test_48_termination_is_never_retried() -> None:
    drive = Drive.by(Reacting(), retry_policy=AGAIN, successor="next")
    drive.ask(1, inp.TerminateRequested(request_id="t"))
    assert not drive.state.start_successor
