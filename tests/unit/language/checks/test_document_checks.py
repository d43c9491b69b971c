"""Findings of static checks across several manifests."""

from typing import Any

import yaml

from perdure.language.checks import Documents, check_references
from perdure.language.checks.definition import run_input
from perdure.language.program import Severity
from support.language.checks import ACTIVITIES, IDLE, SCHEMA, checked

# Several definitions


def child(workflow: str, input_: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "childWorkflow": {"workflow": {"name": workflow}, "input": input_}, **more}


def together(**workflows: list[dict[str, Any]]) -> list[str]:
    """The findings for several Workflows together; each has an input `n`."""
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    known = {name: checked(input={"schema": schema}, steps=steps) for name, steps in workflows.items()}
    return [
        f"{name}: {finding.severity.value} {finding}"
        for name, each in known.items()
        for finding in check_references(each, Documents(known), name=name)
    ]


def test_the_input_of_a_child_must_match_its_schema() -> None:
    nap = IDLE["steps"]
    assert together(a=[child("b", {"n": "${input.n}"})], b=nap) == []
    assert together(a=[child("b", {"n": "${run.name}"})], b=nap) == [
        (
            "a: Error spec.steps[0].childWorkflow.input.n: does not match the input schema of Workflow `b`: an expression that "
            'returns a string: it is not of type "integer"'
        )
    ]
    (finding,) = together(a=[child("b", {})], b=nap)
    assert finding.endswith('"n" is a required property')


def test_a_child_missing_from_the_files_is_reported_if_others_are_there() -> None:
    (finding,) = together(a=[child("bb")], b=IDLE["steps"])
    assert (
        "Warning spec.steps[0].childWorkflow.workflow.name: there is no Workflow `bb` in the files, did you" in finding
    )
    (finding,) = together(a=[child("bb")])
    assert "Note spec.steps[0].childWorkflow.workflow.name: Workflow `bb` is in none of the files" in finding


def test_workflows_that_always_start_each_other_are_reported() -> None:
    (finding,) = together(a=[child("b", {"n": 1})], b=[child("a", {"n": 1})])
    assert "a: Error spec.steps[0].childWorkflow: these Workflows start each other endlessly: `a` starts `b`" in finding
    assert together(a=[child("b", {"n": 1})], b=[child("a", {"n": 1}, when="${input.n > 0}")]) == []


def test_a_retry_policy_missing_from_the_files_is_reported() -> None:
    policy = {"name": "standart"}
    activity = {**yaml.safe_load(ACTIVITIES)["activities"][0], "retryPolicy": policy}
    each = checked(activities=[activity])
    (finding,) = check_references(each, Documents(policies=frozenset({"standard"})))
    assert finding.severity is Severity.WARNING
    assert finding.path == "spec.activities[0].retryPolicy.name"
    assert "did you mean `standard`" in finding.message


def test_a_limit_missing_from_the_files_is_reported() -> None:
    each = checked(limits=[{"name": "databse"}])
    (finding,) = check_references(each, Documents(limits=frozenset({"database"})))
    assert finding.severity is Severity.WARNING
    assert finding.path == "spec.limits[0].name"
    assert "did you mean `database`" in finding.message


def test_the_key_of_a_limit_can_only_use_values_known_before_the_start() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
    spec = {"steps": IDLE["steps"], "input": {"schema": schema}, "activities": []}

    def found(key: str) -> list[str]:
        return [str(each) for each in checked(**spec, limits=[{"name": "a"}, {"name": "b", "key": key}]).findings]

    assert found("${has(input.city) ? input.city : ''}") == []
    (finding,) = found("${steps.s.output}")
    assert finding.startswith("spec.limits[1].key: unknown name `steps`")
    assert any("spec.limits[1].key" in each and "town" in each for each in found("${input.town}"))


def test_the_input_of_a_run_must_match_its_workflow() -> None:
    known = Documents({"order": checked(SCHEMA)})
    (finding,) = run_input(
        "order", {"nights": "x", "guest": "g", "rooms": [], "level": 1, "price": 1, "either": 1}, known, "spec"
    )
    assert finding.path == "spec.input.nights"
    assert [f.severity for f in run_input("ordre", {}, known, "spec")] == [Severity.WARNING]
