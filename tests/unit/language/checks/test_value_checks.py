"""Findings of static checks about values: expressions without variables, literals, names in pods, and timeouts."""

import json
from typing import Any

import pytest

from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.language.checks import options
from perdure.language.checks.shapes import reads_of
from support.language.checks import SCHEMA, STEPS, findings_of, of_value


def test_the_references_of_an_expression_are_collected() -> None:
    reads = reads_of("has(input.a.b) && input.a['b'].c[0] > 1.5 && steps['x-y'].?output.hasValue()")
    assert reads.paths == {("input", "a"), ("input", "a", "b", "c", 0), ("steps", "x-y")}
    assert reads.guarded == {("input", "a", "b"), ("steps", "x-y", "output")}
    assert reads.doubles
    assert reads_of("input.a").alone == ("input", "a")
    assert reads_of("] not CEL [").paths == frozenset()


# Values that always fail


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("${'a'.matches('(')}", "always fails: '(' is not a regular expression"),
        ("${1/0}", "always fails: division by zero"),
        ("${int('x')}", "always fails: 'x' is not a whole number"),
        ("${duration('5 minutes')}", "always fails: '5 minutes' is not a duration"),
        ("${timestamp('x')}", "always fails: 'x' is not a time"),
        ("${lists.range(200000)}", "always fails: it makes a list of more than 131072 items"),
        ("${input.guest.matches('(')}", "always fails: '(' is not a regular expression"),
        ("${matches(input.guest, '[')}", "always fails: '[' is not a regular expression"),
        ("${input.nights / 0}", "always fails: division by zero"),
        ("${input.nights % 0}", "always fails: "),
        ("${input.nights + int('x')}", "always fails: 'x' is not a whole number"),
        (
            "${now.getHours('Europe/Berlin')}",
            "always fails: 'Europe/Berlin' is not a zone here; use 'UTC' or an offset",
        ),
        ("${(now - duration('1h')).strftime('%F', 'Mars')}", "always fails: 'Mars' is not a zone here"),
        ("${run.startTime.strftime('%Q')}", "always fails: `strftime` has no clause '%Q'"),
        ("${now - duration('5 minutes')}", "always fails: '5 minutes' is not a duration"),
        ("${ {'n': input.nights, 'm': [1, 2][2]} }", "always fails: the list has 2 items"),
        ("${cel.bind(n, int('x'), n + input.nights)}", "always fails: 'x' is not a whole number"),
        ("night ${int('x')} of ${input.nights}", "always fails: 'x' is not a whole number"),
        ("${1.0 / 0.0}", "always fails: the result is not a finite number"),
        ("${b'x'}", "always fails: the result is bytes"),
    ],
)
def test_a_constant_part_that_fails_is_an_error(expression: str, want: str) -> None:
    findings = of_value(expression)
    assert len(findings) == 1
    assert findings[0].startswith("Error spec.steps[1].set.v: ")
    assert want in findings[0]


@pytest.mark.parametrize(
    "expression",
    [
        "${input.nights > 3 ? input.nights : 1/0}",
        "${input.nights > 3 || 1/0 > 1}",
        "${input.nights > 3 && 'a'.matches('(')}",
        "${input.?note.orValue(string(int('x')))}",
        "${input.rooms.map(room, room.n / 0)}",
    ],
)
def test_a_failing_part_that_may_not_be_reached_is_a_warning(expression: str) -> None:
    (finding,) = of_value(expression)
    assert finding.startswith("Warning spec.steps[1].set.v: a part of `")


@pytest.mark.parametrize(
    "expression",
    [
        "${1 + 1}",
        "${'abc'.matches('a(b)c')}",
        "${true || 1/0 > 1}",
        "${duration('1h30m')}",
        "${lists.range(1000)}",
        "${[1, 2].map(x, x * 2).size() + input.nights}",
        "${optional.none().orValue(3)}",
        "${input.price / 2.0}",
        "${math.isFinite(1.0 / 0.0) ? 1 : 2}",
        "${type(input.nights) == int}",
        "${input.rooms.all(room, room.n > 0)}",
        "${input.rooms.exists_one(room, room.n == 1)}",
        "${input.guest.replace('a', 'b')}",
        "no expression, 1/0",
    ],
)
def test_parts_that_have_values_are_not_reported(expression: str) -> None:
    assert of_value(expression) == []


@pytest.mark.parametrize(
    ("step", "want"),
    [
        ({"forEach": {"items": 5}, "activity": {"name": "work"}}, "forEach.items: must be a list or a map, not 5"),
        ({"forEach": {"items": "abc"}, "activity": {"name": "work"}}, "forEach.items: must be a list or a map"),
        ({"forEach": {"items": "${5}"}, "activity": {"name": "work"}}, "must be a list or a map"),
        (
            {"childWorkflow": {"workflow": {"name": "w"}, "workflowId": "w" * 1_001}},
            "childWorkflow.workflowId: has 1,001 characters; the limit is 1,000",
        ),
        (
            {"signal": {"workflowId": "${'w' + '" + "w" * 1_000 + "'}", "name": "go"}},
            "signal.workflowId: has 1,001 characters; the limit is 1,000",
        ),
        ({"sleep": {"duration": "${'5 minutes'}"}}, "sleep.duration: "),
        ({"sleep": {"until": "${'tomorrow'}"}}, "sleep.until: "),
        (
            {"childWorkflow": {"workflow": {"name": "w"}, "searchAttributes": {"-bad": 1}}},
            "childWorkflow.searchAttributes.-bad: must be 1 to 63 letters",
        ),
        (
            {"childWorkflow": {"workflow": {"name": "w"}, "searchAttributes": {"big": "é" * 40_000}}},
            "childWorkflow.searchAttributes.big: has more than 2,048 bytes",
        ),
    ],
)
def test_an_invalid_literal_of_a_step_is_an_error(step: dict[str, Any], want: str) -> None:
    (finding,) = findings_of(steps=[STEPS["steps"][0], {"name": "s", **step}])
    assert finding.startswith("Error spec.steps[1].")
    assert want in finding


@pytest.mark.parametrize(
    "step",
    [
        {"forEach": {"items": [1, 2]}, "activity": {"name": "work"}},
        {"forEach": {"items": {"a": 1}}, "activity": {"name": "work"}},
        {"forEach": {"items": []}, "activity": {"name": "work"}},
        {"childWorkflow": {"workflow": {"name": "w"}, "workflowId": "w" * 1_000}},
        {
            "childWorkflow": {
                "workflow": {"name": "w"},
                "searchAttributes": {"a.b-c_D9": "${input.x" + " " * 3_000 + "}", "n" * 63: ""},
            }
        },
        {"sleep": {"duration": "${'1h30m'}"}},
        {"sleep": {"until": "${'2026-01-31T09:00:00Z'}"}},
    ],
)
def test_a_valid_literal_is_not_reported(step: dict[str, Any]) -> None:
    assert findings_of(steps=[STEPS["steps"][0], {"name": "s", **step}]) == []


TEMPLATE = {"name": "work", "startToCloseTimeout": "1m"}


@pytest.mark.parametrize(
    ("activity", "want"),
    [
        (
            {
                "podTemplate": {
                    "spec": {"containers": [{"image": "i"}], "volumes": [{"name": "perdure", "emptyDir": {}}]}
                }
            },
            "podTemplate.spec.volumes[0].name: Perdure reserves a volume named `perdure`",
        ),
        (
            {"podTemplate": {"spec": {"containers": [{"image": "i"}, {"name": "perdure-sidecar"}]}}, "sidecar": {}},
            "podTemplate.spec.containers[1].name: Perdure reserves a container named `perdure-sidecar`",
        ),
        ({"container": {"image": "i", "name": "perdure-sidecar"}, "sidecar": {}}, "container.name: "),
        (
            {
                "container": {"image": "i", "volumeMounts": [{"name": "v", "mountPath": "/perdure/"}]},
            },
            "container.volumeMounts[0].mountPath: Perdure reserves a mount at `/perdure`",
        ),
        (
            {
                "container": {"image": "i", "volumeMounts": [{"name": "v", "mountPath": "/perdure-files"}]},
                "sidecar": {},
            },
            "container.volumeMounts[0].mountPath: ",
        ),
    ],
)
def test_reserved_names_in_a_pod_are_rejected(activity: dict[str, Any], want: str) -> None:
    (finding,) = findings_of(activities=[{**TEMPLATE, **activity}])
    assert finding.startswith("Error spec.activities[0].")
    assert want in finding


@pytest.mark.parametrize(
    ("containers", "want"),
    [
        (
            [{"image": "i", "command": ["a"], "needs": ["b"]}],
            "containers[0].needs[0]: `b` is not a container of the pod",
        ),
        (
            [{"image": "i", "command": ["a"], "needs": ["b"]}, {"name": "b", "image": "i"}],
            "containers[1].command: must be set",
        ),
        (
            [
                {"image": "i", "command": ["a"], "needs": ["b"]},
                {"name": "b", "image": "i", "command": ["b"], "needs": ["activity"]},
            ],
            "containers[0].needs: the containers need each other: `activity` → `b` → `activity`",
        ),
    ],
)
def test_containers_without_a_valid_order_are_rejected(containers: list[dict[str, Any]], want: str) -> None:
    (finding,) = findings_of(activities=[{**TEMPLATE, "podTemplate": {"spec": {"containers": containers}}}])
    assert finding.startswith(f"Error spec.activities[0].podTemplate.spec.{want}")


def test_an_init_container_has_no_needs() -> None:
    spec = {"containers": [{"image": "i"}], "initContainers": [{"name": "first", "image": "i", "needs": []}]}
    (finding,) = findings_of(activities=[{**TEMPLATE, "podTemplate": {"spec": spec}}])
    assert "initContainers[0].needs: must not be used" in finding


@pytest.mark.parametrize(
    "activity",
    [
        {"container": {"image": "i", "name": "perdure-sidecar"}},
        {"container": {"image": "i", "volumeMounts": [{"name": "v", "mountPath": "/perdure-files"}]}},
        {"podTemplate": {"spec": {"containers": [{"image": "i"}], "volumes": [{"name": "perdure-sidecar"}]}}},
    ],
)
def test_names_of_the_sidecar_are_allowed_without_one(activity: dict[str, Any]) -> None:
    assert findings_of(activities=[{**TEMPLATE, **activity}]) == []


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ({}, []),
        ({"a": 1, "b.c_d-E": "x" * 2_000, "n" * 63: {"deep": [1]}}, []),
        ({"": 1}, ["spec.searchAttributes."]),
        ({"n" * 64: 1}, ["spec.searchAttributes.nnn"]),
        ({"a/b": 1, "-a": 1, "a.": 1, "é": 1}, ["spec.searchAttributes."] * 4),
        ({"a": "x" * 70_000}, ["spec.searchAttributes.a: has more than"]),
    ],
)
def test_search_attributes_become_labels_and_annotations(attributes: dict[str, Any], want: list[str]) -> None:
    spec = WorkflowRunSpec.parse({"workflow": {"name": "w"}, "searchAttributes": attributes})
    findings = [str(finding) for finding in options(spec)]
    assert len(findings) == len(want)
    assert all(finding.startswith(begins) for finding, begins in zip(findings, want, strict=True))


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"timeout": "%", "activity": {"name": "work"}}, "timeout"),
        ({"waitForSignal": {"name": "go", "timeout": "%"}}, "waitForSignal.timeout"),
        ({"waitUntil": {"condition": "${vars.?x.hasValue()}", "timeout": "%"}}, "waitUntil.timeout"),
        ({"activity": {"name": "work", "startToCloseTimeout": "%"}}, "activity.startToCloseTimeout"),
        ({"activity": {"name": "work", "heartbeatTimeout": "%"}}, "activity.heartbeatTimeout"),
        ({"childWorkflow": {"workflow": {"name": "w"}, "executionTimeout": "%"}}, "childWorkflow.executionTimeout"),
        (
            {
                "activity": {"name": "work"},
                "compensate": {"activity": {"name": "work", "scheduleToCloseTimeout": "%"}},
            },
            "compensate.activity.scheduleToCloseTimeout",
        ),
    ],
)
def test_computed_timeouts_are_checked(step: dict[str, Any], path: str) -> None:
    def of(expression: str) -> list[str]:
        parsed = json.loads(json.dumps({"name": "s", **step}).replace("%", expression))
        return findings_of(SCHEMA, steps=[parsed])

    where = f"spec.steps[0].{path}: "
    assert of("${input.guest}") == of("${duration('1h')}") == []
    (wrong,) = of("${input.nights > 1}")
    assert wrong.startswith(f"Error {where}the value of `input.nights > 1` has type bool, but must be a duration")
    (unknown,) = of("${inputs.guest}")
    assert unknown.startswith(f"Error {where}unknown name `inputs`")
    (never,) = of("${'soon'}")
    assert never.startswith(f'Error {where}"soon" must be a duration')
    zero = of("${duration('0s')}")
    assert zero == ([f"Error {where}must be longer than `0s`"] if path.endswith("Timeout") else [])


def test_outcomes_of_a_run_are_checked_by_name() -> None:
    assert of_value("${run.status} ${run.failure == null ? '' : run.failure.type}") == []
    (finding,) = of_value("${run.outcome}")
    assert "there is no field `outcome` in `run`" in finding
