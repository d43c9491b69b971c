"""Tekton's rules, each with its source (`tekton_rules.yaml`), for imported pipelines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from unit.importing.imported import Json, Result, tekton

GROUPS: Final[list[Json]] = yaml.safe_load(Path(__file__).with_name("tekton_rules.yaml").read_text())


def cases() -> Iterator[Any]:
    """All cases, with their groups."""
    for group in GROUPS:
        for number, case in enumerate(group["cases"]):
            yield pytest.param(group, case, id=f"{group['rule']} {number}")


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


def imported(folder: Path, group: Json, case: Json) -> Result:
    """The pipeline of a group, for a case."""
    return tekton(folder, json.dumps(run_of(group, case)))


@pytest.mark.parametrize(("group", "case"), list(cases()))
def test_rule(tmp_path: Path, group: Json, case: Json) -> None:
    expect: Json = case["expect"]
    made = imported(tmp_path, group, case)
    if "reported" in expect:
        assert not made.complete
        assert any(expect["reported"] in each for each in made.sentences), made.sentences
        return
    assert made.complete, made.sentences
    report = made.simulate(case.get("do", {}))
    assert report["phase"] == expect.get("phase", "Completed"), report["failure"]
    attempts = {name: len(found) for name, found in report["attempts"].items()}
    assert sorted(attempts) == expect.get("ran", sorted(attempts))
    assert {**attempts, **expect.get("attempts", {})} == attempts
    scheduled = [each for each in report["events"] if each["eventType"] == "ActivityTaskScheduled"]
    for task, inputs in expect.get("input", {}).items():
        assert [each.get("input") for each in scheduled if each["activityType"] == task] == inputs
    assert report["output"] == expect.get("output", report["output"])
    assert report["elapsed"] == expect.get("elapsed", report["elapsed"])


def test_every_group_has_a_source() -> None:
    assert all(each["source"].startswith("https://") for each in GROUPS)
    assert sum(len(each["cases"]) for each in GROUPS) >= 150
