"""The layout of steps in the console: below their needs, without overlap, inside their block."""

from itertools import combinations, pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from perdure.engine.inputs import AttemptCompleted
from perdure.view.runs.graph import MAX_BOXES, Box, lay_out, needs_of, ranks
from perdure.view.runs.steps import StepView
from support import console
from support.apiserver import serving
from support.view.flow import Flow


def step(name: str, *inner: StepView, kind: str = "activity") -> StepView:
    return StepView(path=name, name=name, kind=kind, target="", state="Pending", steps=inner)


def overlap(one: Box, other: Box) -> bool:
    disjoint = (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )
    return not disjoint


def inside(inner: Box, outer: Box) -> bool:
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.x + inner.width <= outer.x + outer.width
        and inner.y + inner.height <= outer.y + outer.height
    )


def test_steps_without_needs_follow_each_other() -> None:
    graph = lay_out([step("a"), step("b"), step("c")], {})
    assert [box.step.name for box in graph.boxes] == ["a", "b", "c"]
    for above, below in pairwise(graph.boxes):
        assert above.y + above.height < below.y
    assert len(graph.lines) == 2


def test_steps_with_the_same_needs_are_side_by_side() -> None:
    definition = {
        "steps": [
            {"name": "a"},
            {"name": "b", "needs": ["a"]},
            {"name": "c", "needs": ["a"]},
            {"name": "d", "needs": ["b", "c"]},
        ]
    }
    graph = lay_out([step(name) for name in "abcd"], definition)
    by_name = {box.step.name: box for box in graph.boxes}
    assert by_name["b"].y == by_name["c"].y
    assert not overlap(by_name["b"], by_name["c"])
    assert len(graph.lines) == 4


@given(st.dictionaries(st.integers(0, 11), st.frozensets(st.integers(0, 11)), min_size=1, max_size=12))
def test_each_step_is_below_its_needs_and_steps_do_not_overlap(needs: dict[int, frozenset[int]]) -> None:
    names = [f"s{number}" for number in sorted(needs)]
    definition = {
        "steps": [
            {"name": f"s{number}", "needs": [f"s{other}" for other in sorted(of) if other in needs and other < number]}
            for number, of in sorted(needs.items())
        ]
    }
    graph = lay_out([step(name) for name in names], definition)
    assert sorted(box.step.name for box in graph.boxes) == sorted(names)
    assert not any(overlap(one, other) for one, other in combinations(graph.boxes, 2))
    by_name = {box.step.name: box for box in graph.boxes}
    for name, of in needs_of(names, definition["steps"]).items():
        assert all(by_name[each].y < by_name[name].y for each in of)


def test_cyclic_needs_do_not_hang() -> None:
    assert ranks({"a": ("b",), "b": ("a",), "c": ()}) == [["c"], ["a", "b"]]


def test_the_items_of_a_fan_out_are_inside_its_box() -> None:
    flow = console.fanned_out(6)
    graph = lay_out(flow.run().steps, yaml.safe_load(console.FAN_OUT))
    each = next(box for box in graph.boxes if box.step.name == "each")
    inner = [box for box in graph.boxes if box.step.path.startswith("each[")]
    assert len(inner) > 6
    assert all(inside(box, each) for box in inner)
    assert graph.hidden == 0


def test_a_large_fan_out_is_drawn_partially_with_a_count_of_the_rest() -> None:
    flow = console.fanned_out(200)
    steps = flow.run().steps
    graph = lay_out(steps, yaml.safe_load(console.FAN_OUT))
    assert len(graph.boxes) <= MAX_BOXES
    assert graph.hidden + len(graph.boxes) == sum(1 for one in steps for _ in one.walk())


async def test_the_graph_shows_cached_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = AttemptCompleted(scheduled_event_id=2, attempt=1, result="R-1", cached="reserve-habc")
    with serving(tmp_path, monkeypatch) as server:
        console.fill(server, Flow().at(5, found))
        async with console.opened() as browser:
            page = await browser.get("/namespaces/shop/runs/order-42")
    assert "<title>reserve: Succeeded, cached result reserve-habc</title>" in page
    assert "reserve ✓ Succeeded · cached" in console.shown(page)
