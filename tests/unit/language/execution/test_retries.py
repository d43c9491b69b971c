"""Retries: failed steps run again, and results of successful ones are kept, also in other branches and items."""

from typing import Any

import pytest

from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine import inputs as inp
from perdure.engine.resets import begin, kept_results, reset_event
from perdure.engine.state import RunStatus
from perdure.language.resets import MAX_KEPT
from support.engine.script import T0, seconds
from support.language.resumed import Run, do, plan, retried

UNDO = ", compensate: {activity: {name: work}}"
ALONE = ", needs: []"


def test_only_the_failed_step_and_finally_run_again() -> None:
    run = Run(f"[{do('a')}, {do('b')}, {do('c')}]").done("a").failed("b").done(":finally/note")
    again = retried(run)
    assert again.open() == ["b"]
    assert again.done("b", "c", ":finally/note").status is RunStatus.COMPLETED
    again.drive.check_replay()


def test_a_named_step_and_its_dependents_run_again() -> None:
    run = Run(f"[{do('a')}, {do('b')}, {do('c')}]").done("a", "b", "c", ":finally/note")
    assert run.status is RunStatus.COMPLETED
    again = retried(run, "b")
    assert again.open() == ["b"]
    assert again.done("b").open() == ["c"]
    assert again.done("c", ":finally/note").status is RunStatus.COMPLETED


def test_results_that_do_not_follow_the_named_step_are_kept() -> None:
    """`y` needs `x`, and both came after `b` began; neither needs `b`."""
    steps = f"[{do('b')}, {do('x', ALONE)}, {do('y', ', needs: [x]')}, {do('z', ', needs: [b, y]')}]"
    run = Run(steps).done("b", "x", "y", "z", ":finally/note")
    again = retried(run, "b")
    assert again.open() == ["b"]
    assert len(plan(run, "b").kept) == 2
    again.drive.check_replay()
    assert again.done("b").open() == ["z"]


def test_one_item_of_a_loop_runs_again_and_the_others_are_kept() -> None:
    loop = "{name: all, forEach: {items: [1, 2, 3]}, call: {block: pair}}"
    pair = {"name": "pair", "steps": [{"name": n, "activity": {"name": "work"}} for n in ("p", "q")]}
    run = Run(f"[{loop}]", blocks=[pair, {"name": "tidy", "steps": [{"name": "note", "activity": {"name": "work"}}]}])
    run.done(*(f"all[{i}]/{name}" for i in range(3) for name in ("p", "q")), ":finally/note")
    again = retried(run, "all[1]")
    assert again.open() == ["all[1]/p"]
    assert again.done("all[1]/p").open() == ["all[1]/q"]
    assert again.done("all[1]/q", ":finally/note").status is RunStatus.COMPLETED
    again.drive.check_replay()
    assert retried(run, "all").open() == ["all[0]/p", "all[1]/p", "all[2]/p"]


def test_a_compensated_step_and_its_dependents_run_again() -> None:
    run = Run(f"[{do('a', UNDO)}, {do('b')}, {do('c')}]").done("a", "b").failed("c")
    run.done("a:compensate", ":finally/note")
    again = retried(run)
    assert again.open() == ["a"]
    assert again.done("a").open() == ["b"]


def test_a_result_is_kept_only_for_the_same_input() -> None:
    """The new run has the result of `x` from a history in which `x` had another input."""
    run = Run(f"[{do('b')}, {do('x', ALONE)}]").done("b", "x", ":finally/note")
    found, past = plan(run, "b"), run.drive.history
    changed = Run(f"[{do('b')}, {{name: x, needs: [], activity: {{name: work, input: 7}}}}]")
    state = history.fork(changed.drive.history, 1, changed.decider)
    first: Any = past[0]
    reported = reset_event(first, 2, T0 + seconds(60), base_run_id="r", new_run_id="s", successor="next")
    kept = dict(kept_results(state, past[1:], found.kept))
    assert len(kept) == 1
    transition = begin(state, reported, [], changed.decider, (), kept=kept)
    assert {each.activity_id for each in transition.state.activities.values()} == {"b", "x"}


def test_artifacts_are_kept_with_the_results() -> None:
    run = Run(f"[{do('b')}, {do('x', ALONE)}]").done("b")
    run.at(inp.AttemptCompleted(**run.key("x"), artifacts={"report": {"key": "k"}}))
    run.done(":finally/note")
    completed = [each for each in retried(run, "b").drive.history if isinstance(each, ev.ActivityTaskCompleted)]
    assert [each.artifacts for each in completed if each.activity_id == "x"] == [{"report": {"key": "k"}}]


def test_results_that_are_too_large_in_total_are_computed_again_and_counted() -> None:
    steps = [do("b"), *(do(f"x{i}", ALONE) for i in range(4))]
    run = Run(f"[{', '.join(steps)}]").done("b")
    for i in range(4):
        run.at(inp.AttemptCompleted(**run.key(f"x{i}"), result="r" * (MAX_KEPT // 3)))
    run.done(":finally/note")
    found = plan(run, "b")
    assert (len(found.kept), found.left_out) == (2, 2)
    assert retried(run, "b").open() == ["b", "x2", "x3"]


def test_a_retry_continues_a_cancelled_run() -> None:
    run = Run(f"[{do('a')}, {do('b')}]").done("a")
    run.at(inp.CancelRequested(request_id="c"))
    run.done(":finally/note")
    assert run.status is RunStatus.CANCELLED
    assert retried(run).open() == ["b"]


def test_a_run_that_cannot_be_retried_is_rejected() -> None:
    run = Run(f"[{do('a')}]").done("a", ":finally/note")
    with pytest.raises(ValueError, match="no step failed; name steps in `from`"):
        plan(run)
    with pytest.raises(ValueError, match="step `x` has not started in that run; choose one of `a`"):
        plan(run, "x")


# Stopping


def test_a_run_that_is_stopped_runs_only_finally() -> None:
    run = Run(f"[{do('a', UNDO)}, {do('b')}]", onCancel={"block": "tidy"}).done("a")
    run.at(inp.CancelRequested(request_id="s", stop=True, reason="enough"))
    assert run.open() == [":finally/note"]
    assert run.done(":finally/note").status is RunStatus.CANCELLED
    asked = next(e for e in run.drive.history if isinstance(e, ev.WorkflowExecutionCancelRequested))
    assert (asked.stop, asked.cause) == (True, "enough")
    run.drive.check_replay()
    cancelled = Run(f"[{do('a', UNDO)}, {do('b')}]", onCancel={"block": "tidy"}).done("a")
    assert cancelled.at(inp.CancelRequested(request_id="c")).open() == ["a:compensate"]


HOOKED = ", onStart: {block: notify}, onEnd: {block: notify}"
NOTIFY = [{"name": name, "steps": [{"name": "note", "activity": {"name": "work"}}]} for name in ("notify", "tidy")]


def test_a_failed_step_runs_again_without_its_start_hook() -> None:
    run = Run(f"[{do('a', HOOKED)}, {do('b')}]", blocks=NOTIFY)
    run.done("a:onStart/note").failed("a").done("a:onEnd/note", ":finally/note")
    again = retried(run)
    assert again.open() == ["a"]
    assert again.done("a", "a:onEnd/note", "b", ":finally/note").status is RunStatus.COMPLETED
    again.drive.check_replay()


def test_only_the_failed_end_hook_runs_again() -> None:
    run = Run(f"[{do('a', HOOKED)}, {do('b')}]", blocks=NOTIFY)
    run.done("a:onStart/note", "a").failed("a:onEnd/note").done(":finally/note")
    again = retried(run)
    assert again.open() == ["a:onEnd/note"]
    assert again.done("a:onEnd/note").open() == ["b"]
    again.drive.check_replay()
