"""How a run went, as its author sees it: on Tekton, and imported, on Perdure. Both have the same form, to compare them."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from fidelity.argo.observed import STUCK, Imported, Observed
from fidelity.tekton.controller import Played
from fidelity.tekton.examples import ExampleCase
from perdure.cli.files.conversion import convert_files
from perdure.cli.files.documents import read_documents
from perdure.importing.tekton import manifests as tekton
from perdure.importing.writer import valid_name
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.report import Report
from perdure.simulation.scenario import ScriptedAttempt
from perdure.simulation.script import ScriptedEntries
from perdure.simulation.simulator import Simulator

Json = dict[str, Any]
_PHASES: Final = {"True": "Succeeded", "False": "Failed"}
_UID: Final = "00000000-0000-4000-8000-000000000001"
"""The UID that the simulator gives a run."""
_WORKSPACE: Final = re.compile(r"\$\(workspaces\.([^.()]+)\.path\)")
"""A variable in a parameter that only the task knows: Tekton fills in its parameters first, and then its workspaces."""


def on_tekton(case: ExampleCase, played: Played) -> Observed:
    """Return how a run went on Tekton."""
    status = played.run.get("status") or {}
    condition: Json = next((each for each in status.get("conditions") or [] if each["type"] == "Succeeded"), {})
    phase = STUCK if played.stuck else _PHASES.get(condition.get("status", ""), STUCK)
    outputs = {each["name"]: _text(each["value"]) for each in status.get("results") or []}
    uid = played.run["metadata"]["uid"]
    attempts = tuple((each.task, _seen(_texts(each.input, case.declared(each.task)), uid)) for each in played.attempts)
    errors = (f"{condition.get('reason')}: {condition.get('message')}",) if phase != "Succeeded" else ()
    return Observed(phase, outputs if phase == "Succeeded" else {}, attempts, errors)


def _seen(values: Mapping[str, str], uid: str) -> dict[str, str]:
    """Return parameters of a task as its steps see them, with the UID of the simulator."""
    return {key: _WORKSPACE.sub(r"/workspace/\1", text.replace(uid, _UID)) for key, text in values.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(values: Mapping[str, Any], declared: frozenset[str]) -> dict[str, str]:
    return {key: _text(value) for key, value in values.items() if key in declared}


@dataclass
class _Script(ScriptedEntries[ScriptedAttempt]):
    """The ends of the tasks of an imported run, as the case says; the attempts that began."""

    case: ExampleCase
    attempts: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def next(self, name: str, value: Any) -> ScriptedAttempt | None:
        """Return how the next attempt of an activity ends."""
        run = self.case.documents[0]
        referred = str((run["spec"].get("taskRef") or {}).get("name")) if run["kind"] == "TaskRun" else ""
        names = {valid_name(each): each for each in self.case.tasks} | {valid_name(referred): run["metadata"]["name"]}
        task = names.get(name)
        if task is None:
            return None
        inputs = value if isinstance(value, dict) else {}
        values = {key: each for key, each in inputs.items() if key in self.case.declared(task)}
        self.attempts.append((task, _texts(values, self.case.declared(task))))
        key = f"{task}/{json.dumps(values, sort_keys=True)}"
        self.counts[key] += 1
        outcome = self.case.outcome(task, values, self.counts[key])
        after = timedelta(seconds=outcome.seconds)
        if outcome.hangs:
            return ScriptedAttempt(hang=True)
        if outcome.code:
            return ScriptedAttempt(exit_code=outcome.code, after=after)
        results = list(outcome.results.values())
        return ScriptedAttempt(output=results[0] if len(results) == 1 else dict(outcome.results) or None, after=after)


def on_perdure(case: ExampleCase, folder: Path) -> Imported:
    """Import a run, simulate it, and return how it went.

    Args:
        case: The run, and what its tasks do.
        folder: Where the files are written.
    """
    source, target = folder / "foreign.yaml", folder / "imported.yaml"
    placed = [{**each, "metadata": {**each["metadata"], "namespace": case.name}} for each in case.documents]
    source.write_text("\n---\n".join(json.dumps(each) for each in placed), encoding="utf-8")
    made = convert_files([str(source)], tekton.KINDS, tekton.convert)
    if not made.complete:
        return Imported(Observed("NotImported", {}, ()), made.sentences, made.text, "")
    target.write_text(made.text, encoding="utf-8")
    manifests = [Manifest(str(target), data) for data in read_documents(str(target))]
    told = read_scenario({}, "the scenario")
    script = _Script(case)
    world = Simulator(read_definitions(manifests, told, "the scenario"), told, script)
    world.run()
    report = Report(world)
    phase = {"Completed": "Succeeded"}.get(report.phase, "Failed")
    failure = report.failure.full_message if report.failure else ""
    outputs = _outputs(case, report.output) if phase == "Succeeded" else {}
    return Imported(Observed(phase, outputs, tuple(script.attempts)), (), made.text, failure)


def _outputs(case: ExampleCase, output: Any) -> dict[str, str]:
    """Return the results of a run: of a task with one result, the output is its value."""
    run = case.documents[0]
    if run["kind"] == "TaskRun":
        names = list(case.outcome(case.tasks[0], {}, 1).results)
        output = {names[0]: output} if len(names) == 1 else output
        return {name: _text(output[name]) for name in names if isinstance(output, dict) and name in output}
    pipelines = [each["spec"] for each in case.documents if each["kind"] == "Pipeline"]
    spec: Json = run["spec"].get("pipelineSpec") or next(iter(pipelines), {})
    names = [each["name"] for each in spec.get("results") or []]
    return {name: _text(output[name]) for name in names if isinstance(output, dict) and name in output}
