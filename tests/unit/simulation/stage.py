"""Simulated workflows: definitions and scenarios as YAML, and their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from perdure.engine import history
from perdure.engine.fold import as_recorded
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.report import Report
from perdure.simulation.simulator import Simulator
from perdure.simulation.transcript import SimulatedChain, SimulatedRun, make_run

Json = dict[str, Any]


def workflow(spec: str, name: str = "main") -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": yaml.safe_load(spec),
    }


def policy(name: str, spec: str) -> Json:
    return {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "RetryPolicy",
        "metadata": {"name": name},
        "spec": yaml.safe_load(spec),
    }


@dataclass
class Played:
    """A finished simulation."""

    report: Report

    @property
    def json(self) -> Json:
        return self.report.as_json()

    @property
    def phase(self) -> str:
        return self.report.phase

    @property
    def elapsed(self) -> float:
        return self.report.elapsed.total_seconds()

    def events(self, *kinds: str) -> list[tuple[float, str]]:
        """The events of the chain, or those of some kinds: when, and what."""
        return [(e["time"], e["eventType"]) for e in self.json["events"] if not kinds or e["eventType"] in kinds]

    def attempts(self, activity: str) -> list[tuple[float | None, float | None, str]]:
        return [(a["start"], a["end"], a["outcome"]) for a in self.json["attempts"].get(activity, [])]

    def steps(self) -> dict[str, str]:
        """The status of every node of the tree, by path."""
        return {step.path: step.state for top in self.report.last.steps for step in top.walk()}

    def child(self, workflow_name: str) -> Json:
        (only,) = [child for child in self.json["children"] if child["workflow"] == workflow_name]
        return dict(only)


def play(spec: str | Json, scenario: str = "{}", *others: Json) -> Played:
    """Simulate a workflow; `others` are further manifests."""
    manifests = [Manifest("w.yaml", workflow(spec) if isinstance(spec, str) else spec)]
    manifests += [Manifest(f"other{i}.yaml", other) for i, other in enumerate(others)]
    reported = read_scenario(yaml.safe_load(scenario), "s.yaml")
    definitions = read_definitions(manifests, reported, "s.yaml")
    world = Simulator(definitions, reported)
    world.run()
    for execution in world.transcript.executions:
        for run in execution.runs if isinstance(execution, SimulatedChain) else ():
            of_schedule = execution is world.transcript.root
            check_stored_history(run, definitions.target.annotations if of_schedule else {})
    return Played(Report(world))


def check_stored_history(run: SimulatedRun, annotations: Mapping[str, str]) -> None:
    """Check that the stored history of a run leads to its state, and that a new decider decides the same."""
    assert run.state is not None
    if run.state.ended_undecided:
        return
    events = history.decode_events(history.encode(run.events))
    obj = {
        "metadata": {"name": run.name, "uid": run.run_id, "annotations": annotations},
        "spec": {"input": run.requested_input},
    }
    again = make_run(run.chain, run.first, obj).decider
    state = history.replay(events, again, undecided=len(run.state.undecided), unfinished=run.state.unfinished)
    closed = {"memory": None} if run.state.closed else {}
    want = msgspec.structs.replace(as_recorded(run.state), **closed)
    assert history.encode(msgspec.structs.replace(as_recorded(state), **closed)) == history.encode(want)
