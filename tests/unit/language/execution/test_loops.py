"""`forEach`: steps for each item."""

from typing import Any

import pytest

from perdure.engine.failures import FailureKind
from perdure.language.execution import flow
from unit.language.execution.play import Play, do

# Loops


def test_max_concurrency_limits_items_in_progress() -> None:
    play = Play(f"steps: [{do('l', '${[index, room]}', forEach='{items: [a, b, c], maxConcurrency: 2, as: room}')}]")
    assert play.scheduled == {"l[0]": [0, "a"], "l[1]": [1, "b"]}
    play.completes("l[1]", "B")
    assert play.scheduled["l[2]"] == [2, "c"]
    play.completes("l[2]", "C")
    play.completes("l[0]", "A")
    assert play.result == ["A", "B", "C"]


@pytest.mark.parametrize("name", ["at", "frame", "self", "template", "where", "extra"])
def test_a_variable_may_have_the_name_of_a_parameter_of_the_interpreter(name: str) -> None:
    play = Play(f"steps: [{do('l', f'${{{name}}}', forEach=f'{{items: [a], as: {name}}}')}]")
    assert play.scheduled == {"l[0]": "a"}


@pytest.mark.parametrize(
    ("items", "want"),
    [
        ("[]", []),
        ("'${lists.range(3)}'", [0, 1, 2]),
        ("[5, 6]", [5, 6]),
        ("[true, 1]", [True, 1]),
        ("'${input}'", [{"key": "a", "value": 1}, {"key": "b", "value": 2}]),
    ],
)
def test_items_are_lists_ranges_and_maps(items: str, want: list[Any]) -> None:
    play = Play(
        f"steps: [{{name: l, forEach: {{items: {items}}}, call: {{block: same, input: '${{item}}'}}}}]\n"
        "blocks: [{name: same, steps: [{name: r, return: {output: '${params}'}}]}]",
        {"b": 2, "a": 1},
    )
    assert play.result == want


def test_a_value_that_is_not_a_list_of_items_fails_the_step() -> None:
    assert "must give a list or a map" in Play(f"steps: [{do('l', forEach='{items: 5}')}]").failure.message


def test_a_failed_item_stops_the_others() -> None:
    play = Play(f"steps: [{do('l', forEach='{items: [a, b, c]}')}]")
    play.completes("l[0]")
    play.fails("l[1]")
    assert play.cancelled == ["l[2]"]
    assert play.failure.kind is FailureKind.ACTIVITY


def test_a_loop_within_a_loop_continues_with_many_open_tasks() -> None:
    play = Play("""
steps: [{name: l, forEach: {items: "${lists.range(3)}"}, call: {block: b, input: "${item}"}}]
blocks:
- name: b
  steps: [{name: m, forEach: {items: "${lists.range(100)}"}, activity: {name: work, input: "${params * 100 + item}"}}]
""")
    done, peak = 0, 0
    while not play.closed:
        open_now = [path for path in play.memory.tasks if path in play.scheduled]
        peak = max(peak, len(play.memory.tasks))
        for path in open_now:
            play.completes(path, play.scheduled[path])
            done += 1
    assert done == 300
    assert flow.MAX_OPEN <= peak <= flow.MAX_OPEN + 3
    assert play.result == [[*range(100)], [*range(100, 200)], [*range(200, 300)]]


def test_outputs_of_items_without_references_are_not_kept() -> None:
    play = Play(f"steps: [{do('l', forEach='{items: [a, b]}')}, {do('last')}]")
    play.completes("l[0]", "x" * 1000)
    assert play.memory.loops["l"].outputs == {}


def test_outputs_of_items_that_are_too_large_together_fail_the_step() -> None:
    play = Play(f"steps: [{do('l', forEach='{items: [a, b, c]}')}]")
    play.completes("l[0]", "x" * 100_000)
    play.completes("l[1]", "x" * 100_000)
    assert play.failure.type == "OutputTooLarge"


def test_a_long_loop_keeps_only_open_items() -> None:
    play = Play("steps: [" + do("l", forEach="{items: '${lists.range(2000)}'}") + ", {name: s, set: {x: 1}}]")
    assert len(play.scheduled) == flow.MAX_OPEN
    sizes = {}
    for index in range(2_000):
        play.completes(f"l[{index}]", index)
        if index in {1_100, 1_700}:
            sizes[index] = len(str(play.memory))
    assert play.closed
    assert len(play.scheduled) == 2_000
    assert sizes[1_700] < 1.02 * sizes[1_100] < 40_000
