"""A reset to the last workflow task: from there, the run can succeed, whatever made it fail."""

from datetime import timedelta

import pytest

from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.inputs import ChildOutcome
from perdure.engine.state import RunStatus
from perdure.language.resets import last_task
from support.engine.script import T0
from support.language.resumed import BAD, SCOPE, Run, do


def test_an_activity_that_failed_before_finally_runs_again() -> None:
    run = Run(f"[{do('a')}, {do('b')}]").done("a").failed("b").done(":finally/note")
    assert run.status is RunStatus.FAILED
    assert run.type_at_point == "ActivityTaskCompleted"
    again = run.reset()
    assert again.open() == ["b"]
    again.done("b", ":finally/note")
    assert again.status is RunStatus.COMPLETED
    again.drive.check_replay()


def test_the_reset_point_precedes_compensations_and_handlers() -> None:
    undo = ", compensate: {activity: {name: work}}"
    run = Run(f"[{do('a', undo)}, {do('b')}]", onFailure={"block": "tidy"}).done("a").failed("b")
    run.done("a:compensate", ":onFailure/note").failed(":finally/note")
    assert run.status is RunStatus.FAILED
    again = run.reset()
    assert again.open() == ["b"]
    assert again.done("b", ":finally/note").status is RunStatus.COMPLETED


def test_results_of_other_branches_before_the_failure_are_kept() -> None:
    run = Run(f"[{do('a')}, {do('b', ', needs: []')}]").done("a").failed("b").done(":finally/note")
    assert run.reset().open() == ["b"]


def test_an_activity_whose_failure_a_catch_rethrew_runs_again() -> None:
    run = Run(f"[{do('a', ', catch: [{call: {block: tidy-and-fail}}]')}]").failed("a")
    run.done("a:catch/note", ":finally/note")
    assert run.status is RunStatus.FAILED
    assert run.type_at_point == "WorkflowExecutionStarted"
    assert run.reset().done("a", ":finally/note").status is RunStatus.COMPLETED


@pytest.mark.parametrize("wait", ["timeout: 5s, waitForSignal: {name: go}", "waitForSignal: {name: go, timeout: 5s}"])
def test_a_wait_that_timed_out_starts_again(wait: str) -> None:
    run = Run(f"[{do('a')}, {{name: wait, {wait}}}]").done("a").at(after=5).done(":finally/note")
    assert run.status is RunStatus.FAILED
    assert run.type_at_point == "ActivityTaskCompleted"
    again = run.reset().at(after=1)
    again.at(inp.SignalRequested(request_id="s", signal_name="go")).done(":finally/note")
    assert again.status is RunStatus.COMPLETED


def test_the_point_of_a_timeout_is_when_it_fired() -> None:
    step = "{name: b, timeout: 5s, activity: {name: work, cancellationType: WaitCancellationCompleted, heartbeatTimeout: 9s}}"
    run = Run(f"[{do('a')}, {step}]").done("a")
    run.at(inp.AttemptStarted(**run.key("b"), time=T0 + timedelta(seconds=1))).at(after=5)
    assert run.open() == ["b"]
    run.at(inp.AttemptCancelled(**run.key("b"))).done(":finally/note")
    assert run.status is RunStatus.FAILED
    assert run.type_at_point == "ActivityTaskCompleted"
    assert run.reset().done("b", ":finally/note").status is RunStatus.COMPLETED


def test_a_child_that_failed_is_started_again() -> None:
    run = Run(f"[{do('a')}, {{name: c, childWorkflow: {{workflow: {{name: other}}}}}}]").done("a")
    (child,) = run.drive.state.children.values()
    started = child.initiated_event_id
    run.at(inp.ChildStarted(initiated_event_id=started, run_id="c"))
    run.at(inp.ChildClosed(initiated_event_id=started, run_id="c", outcome=ChildOutcome.FAILED, failure=BAD))
    run.done(":finally/note")
    assert run.status is RunStatus.FAILED
    assert run.type_at_point == "ActivityTaskCompleted"
    again = run.reset()
    (child,) = again.drive.state.children.values()
    assert child.initiated_event_id > started


def test_a_signal_that_was_not_received_is_sent_again() -> None:
    run = Run(f"[{do('a')}, {{name: s, signal: {{workflowId: x, name: go}}}}]").done("a")
    (external,) = run.drive.state.externals.values()
    run.at(inp.ExternalDone(initiated_event_id=external.initiated_event_id, failure=BAD)).done(":finally/note")
    assert run.status is RunStatus.FAILED
    again = run.reset()
    assert len(again.drive.state.externals) == 1
    assert again.status is RunStatus.RUNNING


def test_a_failing_decision_is_made_again() -> None:
    run = Run(f"[{do('a')}, {{name: f, fail: {{type: Wrong}}}}]").done("a", ":finally/note")
    assert run.status is RunStatus.FAILED
    assert run.type_at_point == "ActivityTaskCompleted"
    assert run.reset().open() == [":finally/note"]


def test_a_cancelled_run_is_reset_to_before_the_request() -> None:
    run = Run(f"[{do('a')}, {do('b')}]", onCancel={"block": "tidy"}).done("a")
    run.at(inp.CancelRequested(request_id="c")).done(":onCancel/note", ":finally/note")
    assert run.status is RunStatus.CANCELLED
    assert run.type_at_point == "ActivityTaskCompleted"
    assert run.reset().done("b", ":finally/note").status is RunStatus.COMPLETED


def test_only_finally_runs_again_if_all_steps_succeeded() -> None:
    run = Run(f"[{do('a')}]").done("a").failed(":finally/note")
    assert run.status is RunStatus.FAILED
    again = run.reset()
    assert again.open() == [":finally/note"]
    assert again.done(":finally/note").status is RunStatus.COMPLETED
    completed = Run(f"[{do('a')}]").done("a", ":finally/note")
    assert completed.status is RunStatus.COMPLETED
    assert completed.reset().open() == [":finally/note"]


def test_an_open_run_is_reset_to_its_newest_decision() -> None:
    run = Run(f"[{do('a')}, {do('b')}]").done("a")
    assert run.point == 4
    assert run.reset().open() == ["b"]
    run.failed("b")  # `finally` runs
    assert run.point == 4
    run.at(inp.TerminateRequested(request_id="t"))
    assert run.status is RunStatus.TERMINATED
    assert run.point == 4


def test_a_different_program_is_nondeterministic() -> None:
    run = Run(f"[{do('a')}, {do('b')}]").done("a").failed("b")
    other = Run(f"[{do('a')}, {do('c')}]")
    with pytest.raises(history.NondeterminismError):
        last_task(run.drive.history, other.program, SCOPE, input=None, start_time=T0)
    assert not any(isinstance(event, ev.WorkflowExecutionFailed) for event in run.drive.history)
