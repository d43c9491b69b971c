"""A run that exceeds the pending limit: the step that exceeds it fails, and the run continues or fails."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.engine.ledger import MAX_PENDING
from perdure.language.execution.flow import MAX_WAITING
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.report import Report
from perdure.simulation.simulator import Simulator

FANS = 32
BLOCK = 32

KINDS = {
    "activities": {"activity": {"name": "work"}},
    "timers": {"sleep": {"duration": "1h"}, "timeout": "2h"},
    "children": {"childWorkflow": {"workflow": {"name": "child"}}},
    "signals": {"waitForSignal": {"name": "never", "timeout": "1h"}, "timeout": "2h"},
}


def fans(step: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A workflow whose blocks start 32 times 32 steps of a kind concurrently."""
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "fan"},
        "spec": {
            "activities": [{"name": "work", "startToCloseTimeout": "1h", "container": {"image": "i"}}],
            "steps": [{"name": f"s{i}", "needs": [], "call": {"block": "fan"}, **more} for i in range(FANS)],
            "blocks": [
                {"name": "fan", "steps": [{"name": f"x{i}", "needs": [], **step} for i in range(BLOCK)]},
                {"name": "idle", "steps": [{"name": "x", "set": {"v": 1}}]},
            ],
        },
    }


def simulate(workflow: dict[str, Any], **scenario: Any) -> Report:
    parsed = read_scenario({"children": {"child": [{"after": "1h"}]}, **scenario}, "s")
    if "child" not in str(workflow["spec"]["blocks"]):
        parsed = read_scenario(scenario, "s")
    definitions = read_definitions([Manifest("f", yaml.safe_load(yaml.safe_dump(workflow)))], parsed, "s")
    assert isinstance(definitions.target.spec, WorkflowRunSpec)
    world = Simulator(definitions, parsed)
    world.run()
    return Report(world)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_step_that_exceeds_the_pending_limit_fails_the_run(kind: str) -> None:
    report = simulate(fans(KINDS[kind]), maxEvents=200_000)
    assert report.phase == "Failed"
    failure = report.as_json()["failure"]
    assert failure["type"] == "PendingLimitExceeded"
    assert f"{MAX_WAITING} steps and items of the run wait already" in failure["message"]


def test_the_maximum_number_of_pending_children_can_close_at_the_same_time() -> None:
    workflow = fans(KINDS["children"])
    workflow["spec"]["steps"] = workflow["spec"]["steps"][: MAX_WAITING // BLOCK]
    report = simulate(workflow, maxEvents=200_000)
    assert report.phase == "Completed"


def test_the_failure_can_be_caught_and_started_work_continues() -> None:
    workflow = fans(KINDS["activities"], catch=[{"errorTypes": ["PendingLimitExceeded"], "call": {"block": "idle"}}])
    report = simulate(workflow, maxEvents=200_000)
    assert report.phase == "Completed"
    done = sum(attempt["outcome"] == "Completed" for attempt in report.as_json()["attempts"]["work"])
    assert MAX_WAITING - BLOCK < done <= MAX_WAITING


def test_a_loop_waits_instead_of_exceeding_the_pending_limit() -> None:
    workflow = fans(KINDS["activities"])
    workflow["spec"]["steps"] = [
        {"name": "all", "forEach": {"items": "${lists.range(1500)}"}, "activity": {"name": "work"}}
    ]
    report = simulate(workflow, maxEvents=200_000)
    assert report.phase == "Completed"
    assert len(report.as_json()["attempts"]["work"]) == 1500


def test_steps_that_only_run_blocks_do_not_count() -> None:
    nested = fans({"call": {"block": "deep"}})
    nested["spec"]["blocks"].append({"name": "deep", "steps": [{"name": "x", "set": {"v": 1}}]})
    assert simulate(nested, maxEvents=200_000).phase == "Completed"


def test_the_engine_limit_allows_all_timers_of_waiting_steps() -> None:
    assert 2 * MAX_WAITING + 1 <= MAX_PENDING
