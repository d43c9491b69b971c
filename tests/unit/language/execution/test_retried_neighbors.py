"""Retries of runs in which a failure had an effect on its neighbors, under each `failurePolicy`.

What failed runs again, and what was cancelled only because of it. What completed does not.
"""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.fold import apply
from perdure.engine.inputs import ChildOutcome
from perdure.engine.state import RunStatus
from support.engine.script import seconds
from support.language.resumed import BAD, Run, do, retried

ALONE = ", needs: []"
ALL = (":finally/note",)


def loop(policy: str, action: str = "activity: {name: work}") -> str:
    return f"{{name: all, forEach: {{items: [0, 1, 2, 3], maxConcurrency: 2, failurePolicy: {policy}}}, {action}}}"


def child(name: str, more: str = "", step: str = "") -> str:
    return f"{{name: {name}, childWorkflow: {{workflow: {{name: w}}{more}}}{step}}}"


class Family(Run):
    """A run with children."""

    def number(self, path: str) -> int:
        (found,) = (each for each in self.drive.state.children.values() if each.child_id == path)
        return found.initiated_event_id

    def begins(self, *paths: str) -> "Family":
        for path in paths:
            self.at(inp.ChildStarted(initiated_event_id=self.number(path), run_id=f"run-{path}"))
        return self

    def ends(self, path: str, outcome: ChildOutcome, result: Any = None) -> "Family":
        failure = BAD if outcome is ChildOutcome.FAILED else None
        self.at(
            inp.ChildClosed(
                initiated_event_id=self.number(path),
                run_id=f"run-{path}",
                outcome=outcome,
                result=result,
                failure=failure,
            )
        )
        return self

    @property
    def waiting(self) -> list[str]:
        """The children that are to be started."""
        return [each.child_id for each in self.drive.state.children.values() if each.start is not None]


# Steps


@pytest.mark.parametrize("policy", ["FinishRunning", "Continue"])
def test_all_failed_steps_run_again_and_nothing_else(policy: str) -> None:
    run = Run(f"[{do('a')}, {do('b', ALONE)}, {do('c', ALONE)}]", failurePolicy=policy)
    run.failed("a").done("b").failed("c").done(*ALL)
    assert run.status is RunStatus.FAILED
    new = retried(run)
    assert new.open() == ["a", "c"]
    assert new.done("a", "c", *ALL).status is RunStatus.COMPLETED
    new.drive.check_replay()


def test_steps_that_did_not_start_follow() -> None:
    run = Run(
        f"[{do('a')}, {do('b', ALONE)}, {do('c', ', needs: [a]')}, {do('d', ', needs: [b]')}]",
        failurePolicy="FinishRunning",
    )
    run.failed("a").done("b", *ALL)
    new = retried(run)
    assert new.open() == ["a", "d"]
    assert new.done("a", "d", "c", *ALL).status is RunStatus.COMPLETED


def test_a_failure_in_a_block_that_a_neighbor_cancelled_runs_retried() -> None:
    """Otherwise the block would fail again with the failure that it has recorded."""
    blocks = [
        {
            "name": "two",
            "failurePolicy": "Continue",
            "steps": [{"name": n, "needs": [], "activity": {"name": "work"}} for n in ("x", "y")],
        },
        {"name": "tidy", "steps": [{"name": "note", "activity": {"name": "work"}}]},
    ]
    run = Run(f"[{{name: t, call: {{block: two}}}}, {do('b', ALONE)}]", blocks=blocks)
    run.failed("t/x").failed("b").done(*ALL)
    new = retried(run)
    assert sorted(new.open()) == ["b", "t/x", "t/y"]
    assert new.done("t/x", "t/y", "b", *ALL).status is RunStatus.COMPLETED


# Items of loops


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ("CancelRunning", ["all[0]", "all[1]"]),
        ("FinishRunning", ["all[0]", "all[2]"]),
        ("Continue", ["all[0]", "all[2]"]),
    ],
)
def test_failed_items_are_found(policy: str, want: list[str]) -> None:
    run = Run(f"[{loop(policy)}]").failed("all[0]")
    if policy != "CancelRunning":
        run.done("all[1]")
    if policy == "Continue":
        run.failed("all[2]").done("all[3]")
    run.done(*ALL)
    new = retried(run)
    assert sorted(new.open()) == want
    for path in [*want, *(f"all[{i}]" for i in range(4))]:
        if path in new.open():
            new.done(path)
    assert new.done(*ALL).status is RunStatus.COMPLETED
    new.drive.check_replay()


# Children


@pytest.mark.parametrize("policy", ["Terminate", "Abandon", "RequestCancel"])
def test_a_child_that_was_cancelled_because_a_neighbor_failed_starts_retried(policy: str) -> None:
    """temporal#10639: the new run inherited the cancellation, and failed at once."""
    run = Family(f"[{child('kid', f', parentClosePolicy: {policy}')}, {do('chk', ALONE)}]").begins("kid")
    run.failed("chk")
    run.ends("kid", ChildOutcome.CANCELLED).done(*ALL)
    assert run.status is RunStatus.FAILED
    new = retried(run)
    assert (new.open(), new.waiting) == (["chk"], ["kid"])
    new.begins("kid").done("chk")
    new.ends("kid", ChildOutcome.COMPLETED).done(*ALL)
    assert new.status is RunStatus.COMPLETED
    new.drive.check_replay()
    assert fold(new.drive.history).status is RunStatus.COMPLETED


def test_a_child_whose_cancellation_nobody_waits_for_starts_retried() -> None:
    run = Family(f"[{child('kid', ', cancellationType: TryCancel')}, {do('chk', ALONE)}]").begins("kid")
    run.failed("chk").done(*ALL)
    assert run.status is RunStatus.FAILED
    assert retried(run).waiting == ["kid"]


def test_a_child_that_was_left_alone_is_not_started_retried() -> None:
    """It still runs, and becomes a child of the new run."""
    kid = child("kid", ", cancellationType: Abandon, parentClosePolicy: Abandon")
    run = Family(f"[{kid}, {do('chk', ALONE)}]").begins("kid")
    run.failed("chk").done(*ALL)
    new = retried(run)
    assert (new.waiting, [each.child_id for each in new.drive.state.children.values()]) == ([], ["kid"])


def test_a_child_that_completed_despite_its_cancellation_is_kept() -> None:
    run = Family(f"[{child('kid')}, {do('chk', ALONE)}]").begins("kid")
    run.failed("chk")
    run.ends("kid", ChildOutcome.COMPLETED, "done").done(*ALL)
    new = retried(run)
    assert (new.open(), new.waiting) == (["chk"], [])
    assert new.done("chk", *ALL).status is RunStatus.COMPLETED


def test_a_failed_child_starts_again_and_what_came_before_its_end_is_kept() -> None:
    """A sleep that has ended next to the child is not repeated."""
    nap = "{name: nap, needs: [], sleep: {duration: 30d}}"
    run = Family(f"[{child('kid')}, {nap}]", failurePolicy="FinishRunning").begins("kid")
    run.at(after=30 * 86_400)
    run.ends("kid", ChildOutcome.FAILED).done(*ALL)
    new = retried(run)
    assert new.waiting == ["kid"]
    assert new.drive.state.timers == {}
    new.begins("kid").ends("kid", ChildOutcome.COMPLETED).done(*ALL)
    assert new.status is RunStatus.COMPLETED


def test_failed_children_of_a_loop_are_found_and_completed_ones_are_kept() -> None:
    action = "childWorkflow: {workflow: {name: w}, input: '${item}'}"
    run = Family(f"[{loop('Continue', action)}]").begins("all[0]", "all[1]")
    run.ends("all[0]", ChildOutcome.FAILED).ends("all[1]", ChildOutcome.COMPLETED, 1)
    run.begins("all[2]", "all[3]")
    run.ends("all[2]", ChildOutcome.COMPLETED, 2).ends("all[3]", ChildOutcome.FAILED).done(*ALL)
    new = retried(run)
    assert new.waiting == ["all[0]", "all[3]"]
    new.begins("all[0]", "all[3]").ends("all[0]", ChildOutcome.COMPLETED).ends("all[3]", ChildOutcome.COMPLETED)
    assert new.done(*ALL).status is RunStatus.COMPLETED
    new.drive.check_replay()
    fold(new.drive.history)


def test_a_handled_failure_of_a_child_stays_handled() -> None:
    caught = ", catch: [{call: {block: tidy}}]"
    run = Family(f"[{child('kid', step=caught)}, {do('chk', ALONE)}]", failurePolicy="FinishRunning").begins("kid")
    run.failed("chk").ends("kid", ChildOutcome.FAILED).done("kid:catch/note", *ALL)
    new = retried(run)
    assert (sorted(new.open()), new.waiting) == (["chk", "kid:catch/note"], [])


def test_a_retried_retry_starts_the_child_retried() -> None:
    run = Family(f"[{child('kid')}, {do('chk', ALONE)}]").begins("kid")
    run.failed("chk").ends("kid", ChildOutcome.CANCELLED).done(*ALL)
    second = retried(run).begins("kid")
    second.failed("chk").ends("kid", ChildOutcome.CANCELLED).done(*ALL)
    third = retried(second)
    assert (third.open(), third.waiting) == (["chk"], ["kid"])
    third.drive.check_replay()


# Deadlines


def test_a_retry_after_a_deadline_repeats_what_ran_and_gives_it_the_whole_time() -> None:
    run = Run(f"[{do('a')}, {do('b')}]", stepsTimeout="10s").done("a")
    run.at(after=20).done(*ALL)
    assert run.status is RunStatus.FAILED
    new = retried(run)
    assert new.open() == ["b"]
    (timer,) = new.drive.state.timers.values()
    assert timer.fire_time == new.drive.now + seconds(10)
    assert new.done("b", *ALL).status is RunStatus.COMPLETED
    new.drive.check_replay()


def test_a_retry_long_after_a_failure_does_not_exceed_the_deadline() -> None:
    run = Run(f"[{do('a')}, {do('b')}]", stepsTimeout="10s").done("a").failed("b").done(*ALL)
    assert retried(run).done("b", *ALL).status is RunStatus.COMPLETED


def test_a_block_that_exceeded_its_deadline_continues_where_it_was() -> None:
    blocks = [
        {
            "name": "two",
            "stepsTimeout": "10s",
            "steps": [{"name": n, "activity": {"name": "work"}} for n in ("x", "y")],
        },
        {"name": "tidy", "steps": [{"name": "note", "activity": {"name": "work"}}]},
    ]
    run = Run("[{name: t, call: {block: two}}]", blocks=blocks).done("t/x")
    run.at(after=20).done(*ALL)
    new = retried(run)
    assert new.open() == ["t/y"]
    assert new.done("t/y", *ALL).status is RunStatus.COMPLETED


def test_a_reset_to_the_last_task_repeats_the_first_of_several_failures() -> None:
    run = Run(f"[{do('a')}, {do('b', ALONE)}]", stepsTimeout="1m", failurePolicy="FinishRunning").failed("a")
    run.at(after=100).done(*ALL)
    assert run.reset().open() == ["a", "b"]


def fold(events: list[ev.AnyEvent]) -> Any:
    state = None
    for event in events:
        state = apply(state, event)
    return state


# Results that are kept until their step begins again


def test_items_that_completed_are_kept_although_failed_ones_take_all_turns_first() -> None:
    """Two items at a time: the others begin only when the first two, which failed, have run again."""
    run = Run(f"[{loop('Continue')}]").failed("all[0]").failed("all[1]").done("all[2]", "all[3]", *ALL)
    new = retried(run)
    assert (new.open(), sorted(new.drive.state.kept)) == (["all[0]", "all[1]"], ["all[2]", "all[3]"])
    new.done("all[0]")
    assert (new.open(), new.drive.state.kept) == (["all[1]"], {})
    assert new.done("all[1]", *ALL).status is RunStatus.COMPLETED
    new.drive.check_replay()


def test_a_result_after_a_sleep_is_kept() -> None:
    """`late` follows a sleep, which the new run repeats because it comes after the point."""
    steps = f"[{do('a')}, {{name: nap, needs: [], sleep: {{duration: 10s}}}}, {do('late', ', needs: [nap]')}]"
    run = Run(steps, failurePolicy="Continue").failed("a")
    run.at(after=20).done("late", *ALL)
    new = retried(run).done("a")
    assert new.open() == []
    assert new.at(after=10).open() == [":finally/note"]


def test_a_result_for_another_input_is_dropped() -> None:
    run = Run(f"[{loop('Continue')}]").failed("all[0]").failed("all[1]").done("all[2]", "all[3]", *ALL)
    new = retried(run)
    state = new.drive.state
    wrong = {path: msgspec.structs.replace(each, input_digest="other") for path, each in state.kept.items()}
    assert new.drive.last is not None
    new.drive.last = replace(new.drive.last, state=msgspec.structs.replace(state, kept=wrong))
    new.done("all[0]")
    assert (sorted(new.open()), sorted(new.drive.state.kept)) == (["all[1]", "all[2]"], ["all[3]"])


def test_a_loop_that_will_fail_keeps_other_steps_from_starting() -> None:
    run = Run(f"[{loop('FinishRunning')}, {do('b', ALONE)}, {do('c')}]", failurePolicy="FinishRunning")
    run.failed("all[0]").done("b")
    assert run.open() == ["all[1]"]
    assert run.done("all[1]", *ALL).status is RunStatus.FAILED
