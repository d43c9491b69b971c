"""Tekton's rules as cases (`tekton_rules.yaml`), and the PipelineRuns that they stand for."""

from pathlib import Path
from typing import Any, Final

import yaml

Json = dict[str, Any]

GROUPS: Final[list[Json]] = yaml.safe_load(Path(__file__).with_name("tekton_rules.yaml").read_text())


def replaced(value: Any, values: Json) -> Any:
    """A part of a pipeline, with the values of a case in place of `<name>`."""
    if isinstance(value, dict):
        return {replaced(key, values): replaced(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, values) for each in value]
    if not isinstance(value, str):
        return value
    for name, each in values.items():
        if value == f"<{name}>":
            return each
    return value


def complete(task: Json) -> Json:
    """A task with a `taskSpec` that declares what it gets, and its results."""
    params = [*task.get("params", []), *task.get("matrix", {}).get("params", [])]
    included = [each for one in task.get("matrix", {}).get("include", []) for each in one["params"]]
    looped = {each["name"] for each in [*task.get("matrix", {}).get("params", []), *included]}
    kinds = {
        each["name"]: "array" if isinstance(each["value"], list) and each["name"] not in looped else "string"
        for each in [*params, *included]
    }
    results = [each if isinstance(each, dict) else {"name": each} for each in task.get("results", [])]
    spec: Json = {"steps": [{"name": "s", "image": "i", "command": ["work"]}]}
    spec["params"] = [{"name": name, "type": kind} for name, kind in kinds.items()]
    spec["results"] = results
    return {**{key: each for key, each in task.items() if key != "results"}, "taskSpec": spec}


def run_of(group: Json, case: Json) -> Json:
    """The PipelineRun of a group, for a case."""
    made = replaced({key: each for key, each in group.items() if key != "cases"}, case.get("with", {}))
    spec = {"params": made.get("params", []), **made.get("pipeline", {})}
    spec |= {field: [complete(each) for each in made[field]] for field in ("tasks", "finally") if field in made}
    run: Json = {"pipelineSpec": spec, **made.get("run", {})}
    run["params"] = [{"name": name, "value": value} for name, value in case.get("given", {}).items()]
    return {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"name": "made"}, "spec": run}
