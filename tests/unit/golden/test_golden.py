"""Decisions of runs are stable: recorded histories replay, and scenarios repeat them."""

import copy
from pathlib import Path

import pytest
import yaml

from perdure.simulation.manifests import Manifest
from perdure.simulation.report import Report
from support import histories
from support.histories import EXAMPLES, GOLDEN
from support.manuals import blocks_in

FLOWS = histories.REPOSITORY / "docs" / "flows.md"
KEPT = sorted(file for file in GOLDEN.rglob("*.json") if file.relative_to(GOLDEN).parts[0] != "forms")
SCENARIOS = sorted(
    file
    for folder in (EXAMPLES, GOLDEN / "programs")
    for file in folder.glob("*/scenarios/*.yaml")
    if (file.parents[1] / "workflow.yaml").exists()
)
"""Those of Workflows; `tests/unit/flow` plays those of flows in Python."""
RECORD = "if this is intended, record it again with --record; runs that are open during the upgrade will not replay"


def place(scenario: Path) -> Path:
    """Where the history of a scenario is kept."""
    group = "examples" if scenario.is_relative_to(EXAMPLES) else "programs"
    return GOLDEN / "simulated" / group / scenario.parents[1].name / f"{scenario.stem}.json"


def flows() -> list[Manifest]:
    return [
        Manifest(str(block), manifest)
        for block in blocks_in(FLOWS, FLOWS.read_text(encoding="utf-8"))
        for manifest in block.ours()
    ]


FLOW_RUNS = [manifest.data["metadata"]["name"] for manifest in flows() if manifest.data["kind"] == "WorkflowRun"]


def compare(file: Path, runs: list[histories.Recorded], *, record: bool) -> None:
    if record:
        histories.write(file, runs)
    assert file.exists(), f"{file} is missing: record it with --record"
    change = histories.first_change(histories.read(file), runs)
    assert change is None, f"{change}\n{RECORD}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda file: f"{file.parents[1].name}/{file.stem}")
def test_each_scenario_passes_and_repeats_its_recorded_history(scenario: Path, *, record: bool) -> None:
    world = histories.simulate(scenario)
    assert world.scenario.expect is not None
    assert Report(world).unmet(world.scenario.expect) == []
    compare(place(scenario), histories.recorded(world), record=record)


@pytest.mark.parametrize("name", FLOW_RUNS)
def test_the_examples_of_the_flows_page_repeat_their_recorded_histories(name: str, *, record: bool) -> None:
    world = histories.play(flows(), {"workflow": name}, name)
    compare(GOLDEN / "simulated" / "flows" / f"{name}.json", histories.recorded(world), record=record)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: str(file.relative_to(GOLDEN).with_suffix("")))
def test_a_recorded_history_replays(file: Path) -> None:
    for run in histories.read(file):
        difference = run.difference()
        assert difference is None, f"{run.name}: {difference}"


def test_every_recorded_history_has_a_scenario() -> None:
    simulated = set((GOLDEN / "simulated").rglob("*.json"))
    wanted = {place(scenario) for scenario in SCENARIOS}
    wanted |= {GOLDEN / "simulated" / "flows" / f"{name}.json" for name in FLOW_RUNS}
    assert simulated == wanted


def test_every_example_has_scenarios_with_expectations() -> None:
    examples = {file.parent for file in EXAMPLES.glob("*/workflow.yaml")}
    assert {scenario.parents[1] for scenario in SCENARIOS if scenario.is_relative_to(EXAMPLES)} == examples
    for scenario in SCENARIOS:
        assert yaml.safe_load(scenario.read_text(encoding="utf-8")).get("expect"), scenario


@pytest.mark.parametrize(
    ("kept", "change", "want"),
    [
        (
            "examples/trip-saga/booked",
            lambda spec: spec["steps"].insert(0, spec["steps"].pop(1)),
            ["event 2 differs", "activityId: hotel", "activityId: flight"],
        ),
        (
            "examples/approval/approved",
            lambda spec: spec["steps"][0]["activity"]["input"].update(person="${input.manager}"),
            ["event 2 differs", 'input: {"person":"bob","document":"purchase 17"}', 'input: {"person":"eve",'],
        ),
        (
            "examples/map-reduce/three-parts",
            lambda spec: spec["steps"][1]["childWorkflow"].update(input={"piece": "${part}"}),
            ["StartChildWorkflowExecution", "childId: map[0]", "start.input.part: the sea", "start.input.piece: "],
        ),
        (
            "examples/subscription/left-later",
            lambda spec: spec["blocks"][0]["steps"][0].update(sleep={"duration": "31d"}),
            ["TimerStarted", "startToFireTimeout: 30d", "startToFireTimeout: 31d"],
        ),
        (
            "examples/race/near-wins",
            lambda spec: spec["activities"][0].update(heartbeatTimeout="21s"),
            ["ActivityTaskScheduled", "heartbeatTimeout: 20s", "heartbeatTimeout: 21s"],
        ),
    ],
    ids=["order of steps", "input", "input of a child", "length of a sleep", "a timeout"],
)
def test_a_changed_definition_is_reported_at_the_first_difference(kept: str, change: object, want: list[str]) -> None:
    run = histories.read(GOLDEN / "simulated" / f"{kept}.json")[0]
    changed = copy.deepcopy(run.definition)
    change(changed)  # type: ignore[operator]
    reported = run.difference(changed)
    assert reported is not None
    assert [part for part in want if part not in reported] == [], reported
