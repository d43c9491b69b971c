"""Golden histories: recorded decisions of runs, stored in tests/golden and replayed by every later version.

A file holds the definitions and the histories of all runs of a simulation, or of a test on a real cluster: an event on each
line, so that a change can be read in a diff. `pytest --record` records them again; see tests/golden/README.md.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from perdure.cli.files.replays import Difference, read_history, replay, show
from perdure.engine import history
from perdure.language.interpreter import Refuser
from perdure.runtime import status_encoding
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.simulator import Simulator
from perdure.simulation.transcript import SimulatedChain
from perdure.view.page import Page
from support.manuals import REPOSITORY

Json = dict[str, Any]

GOLDEN = REPOSITORY / "tests" / "golden"
EXAMPLES = REPOSITORY / "examples"
_PAGE = Page(now=datetime(2026, 1, 1, tzinfo=UTC), width=160)


@dataclass(frozen=True)
class Recorded:
    """The history of one run, and the definition that it was pinned to."""

    name: str
    namespace: str
    workflow: str
    definition: Json
    events: list[Json]

    def difference(self, definition: Json | None = None) -> str | None:
        """The error of `perdure replay` for the history and a definition, by default its own; None if the replay succeeds."""
        spec = self.definition if definition is None else definition
        manifest = {"kind": "Workflow", "metadata": {"name": self.workflow}, "spec": spec}
        events = read_history(json.dumps({"events": self.events}), self.name)
        found = replay(events, manifest, name=self.name, namespace=self.namespace)
        if isinstance(found, Difference):
            return "\n".join(line.plain.rstrip() for line in show(found, _PAGE))
        return found


def simulate(scenario: Path, **changes: Any) -> Simulator:
    """Play a scenario; `changes` override its fields."""
    data = {**yaml.safe_load(scenario.read_text(encoding="utf-8")), **changes}
    files = [scenario.parent / name for name in data["files"]]
    manifests = [Manifest(str(file), one) for file in files for one in yaml.safe_load_all(file.read_text("utf-8"))]
    return play(manifests, data, str(scenario))


def play(manifests: list[Manifest], scenario: Json, source: str) -> Simulator:
    """Play a scenario with the given manifests."""
    reported = read_scenario(scenario, source)
    world = Simulator(read_definitions(manifests, reported, source), reported)
    world.run()
    return world


def recorded(world: Simulator) -> list[Recorded]:
    """The histories of all runs of a simulation; a run whose input was rejected never started."""
    chains = [execution for execution in world.transcript.executions if isinstance(execution, SimulatedChain)]
    return [
        Recorded(
            name=run.name,
            namespace=chain.workflow.namespace,
            workflow=chain.workflow.workflow_type,
            definition=chain.workflow.program.spec.dump(),
            events=history.encode(run.events),
        )
        for chain in chains
        for run in chain.runs
        if not isinstance(run.decider, Refuser)
    ]


def exported(runs: Iterable[Json]) -> list[Recorded]:
    """The histories of WorkflowRuns of a cluster, by name."""
    runs = map(status_encoding.decode, runs)
    return [
        Recorded(
            name=run["metadata"]["name"],
            namespace=run["metadata"]["namespace"],
            workflow=(run["spec"].get("workflow") or {}).get("name") or run["metadata"]["name"],
            definition=run["spec"].get("inline") or run["status"]["definition"],
            events=run["status"]["history"]["events"],
        )
        for run in sorted(filter(has_definition, runs), key=lambda run: str(run["metadata"]["name"]))
    ]


def has_definition(run: Json) -> bool:
    """Whether a run has a definition to replay; a run whose input was rejected never started, and has none."""
    return bool(run["spec"].get("inline") or run["status"].get("definition"))


def write(file: Path, runs: list[Recorded]) -> None:
    """Keep histories."""
    definitions = {run.workflow: run.definition for run in runs}
    assert all(definitions[run.workflow] == run.definition for run in runs), "a name stands for two definitions"
    lines = ["{", '"workflows": {']
    lines.append(",\n".join(f"{_line(name)}: {_line(spec)}" for name, spec in definitions.items()))
    lines += ["},", '"runs": [']
    blocks = []
    for run in runs:
        head = {"name": run.name, "namespace": run.namespace, "workflow": run.workflow}
        events = ",\n".join(map(_line, run.events))
        blocks.append(f'{_line(head)[:-1]}, "events": [\n{events}\n]}}')
    lines += [",\n".join(blocks), "]", "}", ""]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines), encoding="utf-8")


def read(file: Path) -> list[Recorded]:
    """Histories that were kept."""
    data = json.loads(file.read_text(encoding="utf-8"))
    return [Recorded(definition=data["workflows"][run["workflow"]], **run) for run in data["runs"]]


def first_change(before: list[Recorded], after: list[Recorded]) -> str | None:
    """Describe the first event that differs between two recordings of the same run; None if they are equal."""
    for old, new in zip(before, after, strict=False):
        for i, (was, found) in enumerate(zip(old.events, new.events, strict=False), start=1):
            if was != found:
                return f"run `{old.name}`, event {i}\n  was: {_line(was)}\n  is:  {_line(found)}"
        if len(old.events) != len(new.events):
            return f"run `{old.name}` had {len(old.events)} events, and has {len(new.events)}"
        if old != new:
            return f"run `{old.name}` has another name, namespace or definition than it had"
    return f"there were {len(before)} runs, and are {len(after)}" if len(before) != len(after) else None


def _line(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)
