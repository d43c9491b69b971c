"""Histories that definitions still lead to, or not."""

import json

import pytest
import yaml

from perdure.cli.errors import CliError
from perdure.cli.replaying import read_history, read_manifest, replay
from perdure.cli.view.difference import Difference, show
from perdure.engine.events import AnyEvent
from unit.cli.flow import ORDER, Flow, charged_after_two_refusals, declined, golden, plain


def recorded(flow: Flow) -> tuple[AnyEvent, ...]:
    return read_history(json.dumps({"events": flow.status["history"]["events"]}), "h.json")


def manifest(definition: str) -> str:
    return yaml.safe_dump({"kind": "Workflow", "metadata": {"name": "order-flow"}, "spec": yaml.safe_load(definition)})


def check(flow: Flow, definition: str = ORDER) -> Difference | str | None:
    return replay(recorded(flow), read_manifest(manifest(definition), "w.yaml", ""), name=None, namespace=None)


@pytest.mark.parametrize(
    "flow",
    [
        charged_after_two_refusals().at(56),
        charged_after_two_refusals(),
        Flow().started(1).completed(2).failed(3, declined(non_retryable=True)),
        Flow(),
    ],
    ids=["completed", "open", "failed", "just started"],
)
def test_the_definition_that_made_a_history_replays_it(flow: Flow) -> None:
    assert check(flow) is None


def test_the_first_difference_is_shown_side_by_side() -> None:
    flow = charged_after_two_refusals()
    found = check(flow, ORDER.replace("${input.amount}", "${input.amount + 1}"))
    assert isinstance(found, Difference)
    assert plain(list(show(found, flow.page()))) == golden("""
        does not replay: event 5 differs
          history:    ActivityTaskScheduled
                      activityId: charge
                      activityType: charge-card
                      input: {"amount":349}
          definition: ScheduleActivityTask
                      activityId: charge
                      activityType: charge-card
                      input: {"amount":350}
    """)


def test_a_definition_that_goes_on_after_the_history_differs_there() -> None:
    definition = "steps: [{name: done, return: {output: 1}}]"
    flow = Flow(definition)
    flow.status["history"]["events"].pop()
    found = check(flow, definition)
    assert isinstance(found, Difference)
    assert (found.number, found.event) == (2, None)
    assert "history:    has ended" in plain(list(show(found, flow.page())))


def test_a_step_that_is_gone_leaves_the_definition_with_nothing_to_ask_for() -> None:
    flow = charged_after_two_refusals()
    found = check(flow, ORDER.replace("- {name: change-of-mind, sleep: {duration: 30s}}\n", ""))
    assert isinstance(found, Difference)
    assert found.number == 8
    assert "WorkflowExecution" in plain(list(show(found, flow.page())))


@pytest.mark.parametrize(
    ("definition", "want"),
    [
        ("steps: [{name: a, activity: {name: none}}]", "activity `none` is not defined"),
        ("steps: [{name: a, nap: 3}]", "spec|unknown field|steps"),
    ],
)
def test_a_definition_that_cannot_be_run_says_why(definition: str, want: str) -> None:
    with_it = read_manifest(manifest(definition), "w.yaml", "")
    found = replay(recorded(Flow()), with_it, name=None, namespace=None)
    assert isinstance(found, str)
    assert found.startswith("the definition cannot be run: ")
    assert any(part in found for part in want.split("|"))


def test_a_history_with_a_gap_is_not_replayed() -> None:
    flow = charged_after_two_refusals()
    del flow.status["history"]["events"][1]
    found = check(flow)
    assert isinstance(found, str)
    assert "expected event 2, got 3" in found


def test_among_several_workflows_the_one_of_the_history_is_taken() -> None:
    other = manifest("steps: [{name: a, return: {}}]").replace("order-flow", "other")
    both = f"{other}---\n{manifest(ORDER)}"
    assert read_manifest(both, "w.yaml", "order-flow")["metadata"]["name"] == "order-flow"


@pytest.mark.parametrize("content", ["{", "{}", '{"events": [{"eventType": "X"}]}', '{"events": []}', "3"])
def test_what_is_no_history_is_told_with_how_to_write_one(content: str) -> None:
    with pytest.raises(CliError, match="history --output json"):
        read_history(content, "h.json")


@pytest.mark.parametrize("content", ["", "kind: Pod", "a: [", "kind: WorkflowRun\nspec: {workflow: {name: x}}"])
def test_what_has_no_definition_is_told(content: str) -> None:
    with pytest.raises(CliError, match=r"w\.yaml"):
        read_manifest(content, "w.yaml", "")
