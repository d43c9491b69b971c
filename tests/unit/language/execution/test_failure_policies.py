"""`failurePolicy`: what the failure of a step, an item, or a branch does to its neighbors."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import commands as cmd
from perdure.language.checks import check
from perdure.language.memory import Status
from perdure.language.step_failures import STEPS_FAILED
from unit.language.execution.play import ACTIVITIES, SEES, Play, do

FORK = """
failurePolicy: {policy}
steps:
- {a}
- {b}
- {c}
- {d}
- {e}
"""
# argo-workflows#1442: B and C need A; D needs B, E needs D. C fails while B runs.
DIAMOND = {
    "a": do("a"),
    "b": do("b", needs="[a]"),
    "c": do("c", needs="[a]"),
    "d": do("d", needs="[b]"),
    "e": do("e", needs="[d]"),
}
ITEMS = """
steps:
- name: all
  forEach: {{items: [0, 1, 2, 3], maxConcurrency: 2, failurePolicy: {policy}}}
  activity: {{name: work, input: "${{item}}"}}
"""


def diamond(policy: str, more: str = "") -> Play:
    play = Play(FORK.format(policy=policy, **DIAMOND) + more)
    play.completes("a")
    return play


def statuses(play: Play) -> dict[str, str]:
    return {name: record.status.value for name, record in play.memory.frames[""].steps.items()}


def test_by_default_a_failure_cancels_running_steps() -> None:
    play = Play(FORK.format(policy="CancelRunning", **DIAMOND))
    plain = Play(FORK.replace("failurePolicy: {policy}", "").format(**DIAMOND))
    for each in (play, plain):
        each.completes("a")
        each.fails("c")
        assert each.cancelled == ["b"]
        assert each.failure.message.startswith("step `c`")
    assert play.commands == plain.commands


def test_finish_running_lets_running_steps_finish_and_starts_no_others() -> None:
    """argo-workflows#1442, tektoncd/pipeline#4409: what Argo and Tekton do by default."""
    play = diamond("FinishRunning")
    play.fails("c")
    assert (play.cancelled, play.closed) == ([], False)
    play.completes("b")
    assert play.failure.message.startswith("step `c`")
    assert list(play.scheduled) == ["a", "b", "c"]
    assert statuses(play) == {"a": "Succeeded", "b": "Succeeded", "c": "Failed"}


def test_continue_runs_everything_that_does_not_need_the_failed_step() -> None:
    """argo-workflows#1442: `failFast: false`."""
    play = diamond("Continue")
    play.fails("c")
    play.completes("b")
    play.completes("d")
    assert not play.closed
    play.completes("e")
    assert play.failure.message.startswith("step `c`")
    assert statuses(play) == {"a": "Succeeded", "b": "Succeeded", "c": "Failed", "d": "Succeeded", "e": "Succeeded"}


def test_what_needs_a_failed_step_directly_or_not_never_starts() -> None:
    play = diamond("Continue")
    play.fails("b")
    play.completes("c")
    assert play.closed
    assert statuses(play) == {"a": "Succeeded", "b": "Failed", "c": "Succeeded"}


@pytest.mark.parametrize("policy", ["FinishRunning", "Continue"])
def test_the_failure_names_all_failures(policy: str) -> None:
    play = diamond(policy)
    play.fails("c", "First", "one")
    play.fails("b", "Second", "two")
    assert play.failure.message == (
        "step `c`: activity `work` failed after 1 attempt (NonRetryableFailure): one; then failed as well: "
        "step `b`: activity `work` failed after 1 attempt (NonRetryableFailure): two"
    )
    assert "First: one" in play.failure.full_message
    assert "Second: two" in play.failure.full_message
    assert [each.activity_id for each in (play.failure, *play.failure.suppressed)] == ["c", "b"]


def test_a_caught_failure_is_none() -> None:
    steps = {**DIAMOND, "c": do("c", needs="[a]", catch="[{call: {block: ok}}]")}
    play = Play(FORK.format(policy="FinishRunning", **steps) + "blocks: [{name: ok, steps: [" + do("x") + "]}]")
    play.completes("a")
    play.fails("c")
    for path in ("c:catch/x", "b", "d", "e"):
        play.completes(path)
    assert isinstance(play.last, cmd.CompleteWorkflowExecution)


@pytest.mark.parametrize(
    ("policy", "want"), [("FinishRunning", "Succeeded"), ("Continue", "Succeeded"), ("CancelRunning", "Cancelled")]
)
def test_finally_sees_the_statuses(policy: str, want: str) -> None:
    """tektoncd/pipeline#4409: `finally` saw `Cancelled` for a task that was cut off."""
    handler = """
blocks: [{name: see, steps: [{name: note, activity: {name: work, input: "${params}"}}]}]
finally:
  block: see
  input: {b: "${steps.b.status}", c: "${steps.c.status}", e: "${steps.?e.?status.orValue('None')}", run: "${run.status}"}
"""
    play = diamond(policy, handler)
    play.fails("c")
    if policy != "CancelRunning":
        play.completes("b")
    if policy == "Continue":
        play.completes("d")
        play.fails("e")
    params = play.scheduled[":finally/note"]
    assert params == {"b": want, "c": "Failed", "e": "Failed" if policy == "Continue" else "None", "run": "Failed"}


@pytest.mark.parametrize("policy", ["FinishRunning", "Continue"])
def test_a_cancellation_still_cancels_what_runs(policy: str) -> None:
    """The run is Cancelled, as someone requested, and so its retry policy starts no other run."""
    play = diamond(policy)
    play.fails("c")
    play.cancel()
    assert play.cancelled == ["b"]
    assert isinstance(play.last, cmd.CancelWorkflowExecution)


def test_a_return_after_a_failure_does_not_complete_the_run() -> None:
    steps = {**DIAMOND, "d": "{name: d, needs: [b], return: {output: done}}", "e": do("e", needs="[a]")}
    play = Play(FORK.format(policy="Continue", **steps))
    play.completes("a")
    play.fails("c")
    play.completes("b")
    assert play.cancelled == ["e"]
    assert play.failure.activity_id == "c"


def test_a_run_with_failures_does_not_continue_as_new() -> None:
    steps = {**DIAMOND, "d": "{name: d, needs: [b], continueAsNew: {}}"}
    play = Play(FORK.format(policy="Continue", **steps))
    play.completes("a")
    play.fails("c")
    play.completes("b")
    assert play.failure.activity_id == "c"
    assert [each.type for each in play.failure.suppressed] == [STEPS_FAILED]


def test_steps_wait_for_their_turn_after_a_failure() -> None:
    text = "failurePolicy: Continue\nmaxConcurrency: 1\nsteps:\n" + "".join(
        f"- {do(name, needs='[]')}\n" for name in ("a", "b", "c")
    )
    play = Play(text)
    play.fails("a")
    assert list(play.scheduled) == ["a", "b"]
    play.completes("b")
    play.fails("c")
    assert [each.activity_id for each in (play.failure, *play.failure.suppressed)] == ["a", "c"]


def test_compensations_run_when_everything_has_ended() -> None:
    steps = {**DIAMOND, "b": do("b", needs="[a]", compensate="{activity: {name: undo}}")}
    play = Play(FORK.format(policy="FinishRunning", **steps))
    play.completes("a")
    play.fails("c")
    play.completes("b")
    assert "b:compensate" in play.scheduled
    play.completes("b:compensate")
    assert play.failure.activity_id == "c"


# Blocks


def test_blocks_have_the_policy_of_the_workflow_unless_they_set_their_own() -> None:
    text = """
failurePolicy: Continue
steps: [{name: one, call: {block: one}}, {name: two, needs: [], call: {block: two}}]
blocks:
- {name: one, steps: [%s, %s]}
- {name: two, failurePolicy: CancelRunning, steps: [%s, %s]}
""" % (do("x", needs="[]"), do("y", needs="[]"), do("x", needs="[]"), do("y", needs="[]"))  # fmt: skip # noqa: UP031
    play = Play(text)
    play.fails("one/x")
    assert play.cancelled == []
    play.fails("two/x")
    assert play.cancelled == ["two/y"]
    play.completes("one/y")
    assert [each.activity_id for each in (play.failure, *play.failure.suppressed)] == ["two/x", "one/x"]


def test_a_block_that_continues_is_cancelled_with_the_list_around_it() -> None:
    text = """
steps: [{name: one, call: {block: one}}, %s]
blocks: [{name: one, failurePolicy: Continue, steps: [%s, %s]}]
""" % (do("b", needs="[]"), do("x", needs="[]"), do("y", needs="[]"))  # fmt: skip # noqa: UP031
    play = Play(text)
    play.fails("one/x")
    play.fails("b")
    assert play.cancelled == ["one/y"]
    assert play.failure.activity_id == "b"
    assert statuses(play) == {"one": "Cancelled", "b": "Failed"}


def test_finish_running_counts_a_running_block_and_loop_as_one_step() -> None:
    """What runs is the step: its block and its items go on to the end, as nested templates of Argo do."""
    text = """
failurePolicy: FinishRunning
steps:
- {name: call, call: {block: two}}
- name: loop
  needs: []
  forEach: {items: [0, 1], maxConcurrency: 1}
  activity: {name: work, input: "${item}"}
- %s
blocks: [{name: two, steps: [%s, %s]}]
""" % (do("b", needs="[]"), do("x"), do("y"))  # fmt: skip # noqa: UP031
    play = Play(text)
    play.fails("b")
    for path in ("call/x", "call/y", "loop[0]"):
        play.completes(path)
    assert not play.closed
    play.completes("loop[1]")
    assert play.failure.activity_id == "b"


# Loops


def test_an_item_cancels_the_others_by_default() -> None:
    play = Play(ITEMS.format(policy="CancelRunning"))
    play.fails("all[0]")
    assert (list(play.scheduled), play.cancelled) == (["all[0]", "all[1]"], ["all[1]"])


def test_finish_running_lets_open_items_finish() -> None:
    play = Play(ITEMS.format(policy="FinishRunning"))
    play.fails("all[0]")
    assert (play.cancelled, play.closed) == ([], False)
    play.completes("all[1]")
    assert list(play.scheduled) == ["all[0]", "all[1]"]
    assert play.failure.activity_id == "all[0]"


def test_continue_runs_all_items() -> None:
    play = Play(ITEMS.format(policy="Continue"))
    play.fails("all[0]")
    play.completes("all[1]")
    play.fails("all[2]")
    play.completes("all[3]")
    assert list(play.scheduled) == [f"all[{i}]" for i in range(4)]
    assert [each.activity_id for each in (play.failure, *play.failure.suppressed)] == ["all[0]", "all[2]"]


def test_a_loop_has_the_policy_of_its_list() -> None:
    play = Play("failurePolicy: Continue\n" + ITEMS.replace(", failurePolicy: {policy}", "").format())
    for i in range(4):
        play.fails(f"all[{i}]")
    assert len(play.failure.suppressed) == 3


def test_a_loop_with_failures_keeps_no_outputs() -> None:
    play = Play(ITEMS.format(policy="Continue") + "output: '${steps.all.output}'")
    play.completes("all[0]", "kept")
    assert play.memory.loops["all"].outputs == {"0": "kept"}
    play.fails("all[1]")
    play.completes("all[2]", "dropped")
    assert play.memory.loops["all"].outputs == {}


def test_thousands_of_failures_are_counted_and_stay_small() -> None:
    text = """
steps:
- name: all
  forEach: {items: "${lists.range(1000)}", failurePolicy: Continue}
  activity: {name: work, input: "${item}"}
"""
    play = Play(text)
    for i in range(1000):
        play.fails(f"all[{i}]", message="no " * 300)
        if i == 500:
            assert len(str(play.memory.loops["all"].failures)) < 200_000
    failure = play.failure
    assert failure.activity_id == "all[0]"
    assert failure.suppressed[-1].message.endswith(" more steps or items")
    assert len(failure.suppressed) - 1 + int(failure.suppressed[-1].message.split()[0]) == 999


# Branches


@pytest.mark.parametrize(
    ("policy", "cancelled"), [("CancelRunning", ["p.two/x"]), ("FinishRunning", []), ("Continue", [])]
)
def test_branches_finish_after_a_failure(policy: str, cancelled: list[str]) -> None:
    text = """
steps: [{name: p, parallel: {failurePolicy: %s, branches: [{name: one, block: b}, {name: two, block: b}]}}]
blocks: [{name: b, steps: [%s]}]
""" % (policy, do("x"))  # fmt: skip # noqa: UP031
    play = Play(text)
    play.fails("p.one/x")
    assert play.cancelled == cancelled
    if not cancelled:
        play.fails("p.two/x")
        assert [each.activity_id for each in play.failure.suppressed] == ["p.two/x"]
    assert play.failure.activity_id == "p.one/x"


def test_losers_of_a_race_are_cancelled_under_each_policy() -> None:
    text = """
failurePolicy: Continue
steps: [{name: p, parallel: {wait: Any, branches: [{name: one, block: b}, {name: two, block: b}]}}]
blocks: [{name: b, steps: [%s]}]
""" % do("x")  # fmt: skip # noqa: UP031
    play = Play(text)
    play.completes("p.one/x")
    assert play.cancelled == ["p.two/x"]


def test_run_failure_in_expressions_has_the_others() -> None:
    play = diamond("FinishRunning", SEES)
    play.fails("c", "First")
    play.fails("b", "Second")
    params: Any = play.scheduled[":finally/note"]
    assert params == {"status": "Failed", "type": "First", "suppressed": 1}


def test_the_memory_of_ordinary_runs_has_no_new_fields() -> None:
    """Their stored form, and its digest, stay as before."""
    play = diamond("CancelRunning")
    assert play.memory.frames[""].failures is None
    assert all(record.status in set(Status) for record in play.memory.frames[""].steps.values())
    assert "failures" not in str(play.stored_memory)
    assert "stepsTimeout" not in str(play.stored_memory)


# Checks


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("failurePolicy: Continue\nsteps: [%s, %s]", ["spec.failurePolicy"]),
        ("failurePolicy: Continue\nsteps: [{name: c, call: {block: one}}]\nblocks: [{name: one, steps: [%s, %s]}]", []),
        (
            "steps: [{name: c, call: {block: one}}]\nblocks: [{name: one, failurePolicy: Continue, steps: [%s, %s]}]",
            ["spec.blocks[0].failurePolicy"],
        ),
    ],
)
def test_a_policy_without_effect_is_reported(text: str, want: list[str]) -> None:
    spec = WorkflowSpec.parse({"activities": ACTIVITIES, **yaml.safe_load(text % (do("a"), do("b")))})
    assert [each.path for each in check(spec).findings if each.path.endswith("failurePolicy")] == want


@pytest.mark.parametrize(
    ("field", "value"), [("failurePolicy", "Abort"), ("stepsTimeout", "0s"), ("stepsTimeout", "soon")]
)
def test_other_values_are_refused(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=field):
        WorkflowSpec.parse({field: value, "steps": [yaml.safe_load(do("a"))]})


# What is stopped later


def test_the_failures_of_a_loop_that_a_neighbor_cancels_are_named() -> None:
    play = Play(ITEMS.format(policy="Continue") + f"- {do('b', needs='[]')}\n")
    play.fails("all[0]")
    play.fails("b")
    assert play.cancelled == ["all[1]", "all[2]"]
    assert [each.activity_id for each in (play.failure, *play.failure.suppressed)] == ["b", "all[0]"]


def test_a_cancelled_run_names_the_failures_before() -> None:
    play = diamond("FinishRunning")
    play.fails("c")
    play.cancel()
    assert isinstance(play.last, cmd.CancelWorkflowExecution)
    assert play.last.failure is not None
    assert [each.activity_id for each in play.last.failure.suppressed] == ["c"]


def test_the_failures_in_branches_that_a_neighbor_cancels_are_named() -> None:
    text = """
steps: [{name: p, parallel: {failurePolicy: Continue, branches: [{name: one, block: b}, {name: two, block: b}]}}, %s]
blocks: [{name: b, failurePolicy: Continue, steps: [%s, %s]}]
""" % (do("y", needs="[]"), do("x"), do("z", needs="[]"))  # fmt: skip # noqa: UP031
    play = Play(text)
    play.fails("p.one/x")
    play.fails("y")
    assert sorted(play.cancelled) == ["p.one/z", "p.two/x", "p.two/z"]
    assert [each.activity_id for each in (play.failure, *play.failure.suppressed)] == ["y", "p.one/x"]
