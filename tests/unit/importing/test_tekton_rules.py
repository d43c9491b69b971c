"""Tekton's rules, each with its source (`support/tekton_rules.yaml`), for imported pipelines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.tekton_rules import GROUPS, run_of
from unit.importing.imported import Json, Result, tekton


def cases() -> Iterator[Any]:
    """All cases, with their groups."""
    for group in GROUPS:
        for number, case in enumerate(group["cases"]):
            yield pytest.param(group, case, id=f"{group['rule']} {number}")


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
