"""Scenario files: errors with file, path and remedy, and expectations compared with the outcome."""

import re
from typing import Any

import pytest
import yaml

from perdure.simulation.manifests import BadFileError, Manifest, read_definitions, read_scenario
from perdure.simulation.scenario import Scenario
from unit.simulation.stage import Json, play, policy, workflow

FLOW = """
activities:
- {name: work, startToCloseTimeout: 1m, container: {image: i}, retryPolicy: {exponential: {maximumAttempts: 2}}}
steps:
- {name: work, activity: {name: work}}
- {name: nap, sleep: {duration: 90s}}
output: "${steps.work.output}"
"""


def read(scenario: str, manifests: tuple[Any, ...]) -> None:
    reported = read_scenario(yaml.safe_load(scenario), "s.yaml")
    read_definitions(
        [Manifest(f"{i}.yaml", one) for i, one in enumerate(manifests or (workflow(FLOW),))], reported, "s.yaml"
    )


def refused(scenario: str = "{}", *manifests: Any) -> str:
    """The error for an invalid scenario or invalid manifests."""
    with pytest.raises(BadFileError) as caught:
        read(scenario, manifests)
    return str(caught.value)


@pytest.mark.parametrize(
    ("scenario", "want"),
    [
        ("[]", "s.yaml: a scenario must be an object, such as `input: {}`"),
        ("activites: {}", "s.yaml: activites: unknown field; did you mean `activities`?"),
        (
            "activities: {wrok: [{}]}",
            "s.yaml: activities.wrok: unknown activity; known: `work`",
        ),
        ("activities: {work: []}", "s.yaml: activities: `work` must have at least one entry"),
        ("activities: {work: {}}", "s.yaml: activities.work: must be a list"),
        (
            "activities: {work: [{after: soon}]}",
            "s.yaml: activities.work[0].after: must be a duration such as `90s`, `1h30m` or `30d`, or a number of seconds",
        ),
        ("activities: {work: [{after: -1}]}", "s.yaml: activities.work[0].after: must be a duration"),
        ("activities: {work: [{after: true}]}", "s.yaml: activities.work[0].after: must be a duration"),
        (
            "activities: {work: [{output: 1, fail: {}}]}",
            "s.yaml: activities.work[0]: must have at most one of `output`, `fail`, `hang` and `lost`",
        ),
        ("activities: {work: [{output: 1, exitCode: 3}]}", "`output` requires exit code 0"),
        ("activities: {work: [{fail: {}, exitCode: 0}]}", "`fail` requires an exit code other than 0"),
        ("activities: {work: [{hang: true, after: 1}]}", "must have at most one of `after` and `hang`"),
        ("activities: {work: [{heartbeats: {every: 0}}]}", "heartbeats.every: must be longer than `0s`"),
        ("signals: [{at: 1s}]", "s.yaml: signals[0].name: must be set"),
        ("children: {other: [{}]}", "s.yaml: children.other: unknown child workflow; known: none"),
        ("expect: {attempts: {wrok: 1}}", "s.yaml: expect.attempts.wrok: unknown activity"),
        ("expect: {attempts: {work: [Done]}}", "s.yaml: expect.attempts.work: must be a number of attempts, or a list"),
        ("expect: {phase: Done}", "s.yaml: expect.phase: must be one of"),
        ("expect: {elapsed: {}}", "s.yaml: expect.elapsed: must have `atLeast` or `atMost`"),
        ("strict: true", "s.yaml: activities: has no entry for `work`; write `work: [{output: …}]`"),
        ("workflow: other", "s.yaml: workflow: there is no `other` in the files, which have `main`"),
        ("kind: Workflow", "s.yaml: kind: must be 'Scenario'"),
        ("startTime: today", "s.yaml: startTime: must be an RFC 3339 time"),
    ],
)
def test_an_error_in_a_scenario_has_file_path_and_remedy(scenario: str, want: str) -> None:
    assert want in refused(scenario)


def of(spec: Json, **metadata: str) -> Json:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowRun", "metadata": metadata, "spec": spec}


NAMED = FLOW.replace("exponential: {maximumAttempts: 2}", "name: standard")


@pytest.mark.parametrize(
    ("manifests", "want"),
    [
        (["text"], "0.yaml: must be a manifest with `apiVersion: perdure.dev/v1alpha1` and a `kind`"),
        ([{"apiVersion": "v1", "kind": "ConfigMap"}], "the files contain no Workflow and no WorkflowRun"),
        ([workflow("steps: [{name: a, sleep: {}}]")], "0.yaml: spec.steps[0].sleep: must have exactly one of"),
        (
            [workflow("steps: [{name: a, activity: {name: b}}]")],
            "0.yaml: spec.steps[0].activity.name: activity `b` is not defined",
        ),
        ([workflow(NAMED)], "0.yaml: spec.activities[0].retryPolicy.name: there is no RetryPolicy `standard`"),
        (
            [workflow("{limits: [{name: pool}], steps: [{name: a, sleep: {duration: 1s}}]}")],
            "0.yaml: spec.limits[0].name: there is no WorkflowLimit `pool` in the files",
        ),
        ([workflow(FLOW), workflow(FLOW, "b")], "s.yaml: the files have `main`, `b`; choose one with `workflow: NAME`"),
        ([workflow(FLOW), workflow(NAMED)], "1.yaml: Workflow `main` is defined differently in 0.yaml"),
        ([of({"workflow": {"name": "x"}}, name="r")], "0.yaml: spec.workflow: there is no Workflow `x` in the files"),
        (
            [of({"inline": workflow("steps: [{name: a, call: {block: b}}]")["spec"]}, name="r")],
            "0.yaml: spec.inline.steps[0].call.block: block `b` is not defined",
        ),
        (
            [{"apiVersion": "perdure.dev/v1alpha1", "kind": "Scenario"}],
            "0.yaml: is a scenario; name it with --scenario",
        ),
    ],
)
def test_an_error_in_a_manifest_has_file_path_and_remedy(manifests: list[Any], want: str) -> None:
    assert want in refused("{}", *manifests)


def test_all_errors_are_reported_on_one_line_each() -> None:
    assert len(refused("{foo: 1, bar: 2, expect: {phase: x}}").splitlines()) == 3


def test_a_workflow_can_be_selected_by_name_or_by_a_run() -> None:
    run = of({"workflow": {"name": "b"}, "input": 5, "workflowId": "five"}, name="r", namespace="shop")
    other = workflow("{steps: [{name: a, return: {output: '${input} ${run.workflowId} ${run.namespace}'}}]}", "b")
    assert play(FLOW, "workflow: b", other, run).json["output"] == "5 five shop"
    assert play(FLOW, "{workflow: b, input: 6}", other).json["output"] == "6 b default"
    assert play(FLOW, "{}", other, run).json["name"] == "r"


def test_references_to_retry_policies_are_found_everywhere() -> None:
    spec = """
    activities: [{name: work, startToCloseTimeout: 1m, container: {image: i}}]
    steps:
    - name: a
      activity: {name: work, retryPolicy: {name: twice}}
      compensate: {activity: {name: work, retryPolicy: {name: twice}}}
    """
    played = play(spec, "activities: {work: [{fail: {}}]}", policy("twice", "exponential: {maximumAttempts: 2}"))
    assert len(played.attempts("work")) == 2


EXPECTED = "activities: {work: [{fail: {type: Busy}}, {output: {id: 1}}]}"


@pytest.mark.parametrize(
    "expect",
    [
        "{phase: Completed, output: {id: 1}, elapsed: 91s, attempts: {work: 2}, runs: 1}",
        "{elapsed: 91}",
        "{elapsed: {atLeast: 1m, atMost: 2m}, attempts: {work: [Failed, Completed]}}",
        "{}",
    ],
)
def test_fulfilled_expectations_are_met(expect: str) -> None:
    assert unmet(expect) == []


@pytest.mark.parametrize(
    ("expect", "want"),
    [
        ("{phase: Failed}", "phase: expected Failed, got Completed"),
        ("{output: {id: 2}}", 'output: expected {"id":2}, got {"id":1}'),
        ("{output: null}", 'output: expected null, got {"id":1}'),
        ("{failureType: Busy}", "failureType: expected Busy, got no failure"),
        ("{elapsed: 90s}", "elapsed: expected 1m30s, got 1m31s"),
        ("{elapsed: {atMost: 90s}}", "elapsed: expected at most 1m30s, got 1m31s"),
        ("{runs: 2}", "runs: expected 2, got 1"),
        ("{attempts: {work: 1}}", "attempts.work: expected 1, got 2: Failed, Completed"),
        ("{attempts: {work: [Completed]}}", "attempts.work: expected Completed, got 2: Failed, Completed"),
    ],
)
def test_unmet_expectations_are_reported(expect: str, want: str) -> None:
    assert unmet(expect) == [want]


def unmet(expect: str, scenario: str = EXPECTED) -> list[str]:
    reported = Scenario.parse({**yaml.safe_load(scenario), "expect": yaml.safe_load(expect)})
    assert reported.expect is not None
    return play(FLOW, scenario).report.unmet(reported.expect)


def test_a_failure_type_matches_anywhere_in_the_chain_of_causes() -> None:
    failing = "activities: {work: [{fail: {type: Busy}}]}"
    assert unmet("{phase: Failed, failureType: Busy}", failing) == []
    assert unmet("{failureType: Activity}", failing) == []
    (reported,) = unmet("{failureType: Other}", failing)
    assert reported == "failureType: expected Other, got Activity > Busy"
    (reported,) = unmet("{output: null}", failing)
    assert reported == "output: expected null, got none, it is Failed"


def test_a_null_output_can_be_expected() -> None:
    assert unmet("{output: null}", "{}") == []


def test_every_field_of_the_model_has_a_description() -> None:
    for name, field in Scenario.model_fields.items():
        assert field.description, name
        assert re.match(r"[A-Z]", field.description)
