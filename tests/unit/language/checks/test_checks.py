"""Findings of static checks: a small mistake each, and a similar definition that must not be reported."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.language.checks import check
from perdure.language.compiler import compile_program
from perdure.language.program import Severity
from support.language.checks import ACTIVITIES, IDLE, SCHEMA, STEPS, findings_of, of_value

# Types and names


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("${input.nights + 'x'}", "`input.nights + 'x'` always fails: `+` does not work on (int, string)"),
        ("${input.guest > 3}", "always fails: `>` does not work on (string, int)"),
        ("${input.nights.size()}", "always fails"),
        ("${input.guest.first.name}", "always fails: expression of type 'string' cannot be the operand"),
        ("${input.rooms + 1}", "always fails: `+` does not work on"),
        ("${input.rooms[0].n + 'x'}", None),
        ("${now + 1}", "always fails"),
        ("${run.name + 1}", "always fails"),
        ("${run.nam}", "there is no field `nam` in `run`, did you mean `name`; the fields are: attempt, "),
        ("${steps.do.outputs}", "there is no field `outputs` in `steps.do`, did you mean `output`"),
        ("${input.nigths}", "the schema does not define field `nigths` in `input`, did you mean `nights`"),
        ("${input.address.town}", "the schema does not define field `town` in `input.address`"),
        ("${input.note}", "`input.note` may be missing; make it `required`, give it a default, or write"),
        ("${vars.total}", "no step sets the variable `total`"),
    ],
)
def test_an_expression_that_always_fails_is_reported(expression: str, want: str | None) -> None:
    findings = [finding for finding in of_value(expression) if " spec.steps[1].set.v: " in finding]
    assert (want or "") in "".join(findings)
    assert len(findings) == (1 if want else 0) or "input.address" in expression


@pytest.mark.parametrize(
    "expression",
    [
        "${input.nights > 1.5 || input.nights == 3.0}",
        "${input.rooms[input.nights % 2].n + 1}",
        "${now.getHours('+02:00') + now.getMinutes(input.guest)}",
        "${input.price * 2 + 1.5}",
        "${input.either + 'x'}",
        "${input.level + 1}",
        "${has(input.note) ? input.note.size() : 0}",
        "${input.?note.orValue('none')}",
        "${'note' in input && input.note == ''}",
        "${has(input.address) && has(input.address.street) ? input.address.street + '!' : ''}",
        "${input.rooms.map(input, input + 1)}",
        "${input.rooms.filter(room, room.n > 1).size()}",
        "${run.attempt + 1} of ${now - run.startTime}",
        "${vars.v}",
        "${has(vars.total) ? vars.total : 0}",
        "${steps.do.output.anything[0].at.all}",
        "${signals.vote.size() + 1}",
        "${schedule.?name.orValue('')}",
        "${cel.bind(input, 1, input + 1)}",
    ],
)
def test_an_expression_that_can_succeed_is_not_reported(expression: str) -> None:
    assert of_value(expression) == []


def test_without_a_schema_any_use_of_the_input_is_accepted() -> None:
    assert findings_of(steps=[{"name": "s", "set": {"v": "${input.a.b + input.c}"}}]) == []


@pytest.mark.parametrize(
    ("step", "want"),
    [
        ({"when": "${input.nights}", "sleep": {"duration": "1s"}}, "type int, but must be true or false"),
        ({"forEach": {"items": "${input.guest}"}, "sleep": {"duration": "1s"}}, "must be a list or a map"),
        ({"sleep": {"duration": "${input.nights}"}}, "must be a duration, such as `duration('30d')`"),
        ({"sleep": {"until": "${input.rooms}"}}, "must be a time"),
        ({"waitUntil": {"condition": "${input.guest}", "timeout": "1m"}}, "must be true or false"),
    ],
)
def test_a_value_of_the_wrong_type_is_reported(step: dict[str, Any], want: str) -> None:
    (finding,) = findings_of(SCHEMA, steps=[{"name": "s", **step}])
    assert finding.startswith("Error spec.steps[0].")
    assert want in finding


def test_the_items_of_a_loop_have_the_type_in_the_schema() -> None:
    loop = {"name": "s", "forEach": {"items": "${input.rooms}", "as": "room"}}
    good = {**loop, "activity": {"name": "work", "input": "${room.n + index}"}}
    bad = {**loop, "activity": {"name": "work", "input": "${room.n + 'x'}"}}
    assert findings_of(SCHEMA, steps=[good]) == []
    (finding,) = findings_of(SCHEMA, steps=[bad])
    assert "`room.n + 'x'` always fails" in finding


def test_a_name_out_of_scope_is_reported_with_the_place_where_it_is_defined() -> None:
    loop = {"name": "rooms", "forEach": {"items": [1], "as": "room"}, "activity": {"name": "work"}}
    (finding,) = findings_of(steps=[loop, {"name": "s", "set": {"v": "${room}"}}])
    assert finding.endswith("(`room` is defined only in step `rooms`)")
    block = {"name": "b", "steps": [{"name": "x", "set": {"v": "${steps.do.output}"}}]}
    (finding,) = findings_of(steps=[*STEPS["steps"], {"name": "c", "call": {"block": "b"}}], blocks=[block])
    assert "(it is in the main steps: pass what you need" in finding


# Inputs and defaults


def test_a_default_must_match_its_schema_but_can_be_partial() -> None:
    schema = {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "integer"}}}
    assert findings_of(input={"schema": schema, "default": {"a": 1}}) == []
    assert findings_of(input={"schema": schema, "default": {"a": "x"}}) == [
        'Error spec.input.default.a: does not match `spec.input.schema`: "x" is not of type "integer"'
    ]
    assert len(findings_of(input={"schema": {"type": "string"}, "default": 3})) == 1


PARAMS = {
    "schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "t": {"enum": ["a", "b"]}}}
}


@pytest.mark.parametrize(
    ("input_", "want"),
    [
        ({"n": 1}, None),
        ({"n": "${input.nights}"}, None),
        ({"n": "${input.either}", "t": "${input.guest}"}, None),
        ("${input}", None),
        ({"n": "x"}, 'input.n: does not match the params of block `b`: "x" is not of type "integer"'),
        (
            {"n": "${input.guest}"},
            "input.n: does not match the params of block `b`: an expression that returns a string",
        ),
        ({"n": "${input.nights} nights"}, "an expression that returns a string"),
        ({}, 'input: does not match the params of block `b`: "n" is a required property'),
        (None, "is not of type"),
    ],
)
def test_the_input_of_a_call_must_match_the_params_of_the_block(input_: Any, want: str | None) -> None:
    block = {"name": "b", "params": PARAMS, "steps": IDLE["steps"]}
    findings = findings_of(SCHEMA, steps=[{"name": "c", "call": {"block": "b", "input": input_}}], blocks=[block])
    assert len(findings) == (1 if want else 0), findings
    assert (want or "") in "".join(findings)


# Consequences of findings


def test_an_error_prevents_the_start_of_runs_but_open_runs_continue() -> None:
    spec = WorkflowSpec.parse({**yaml.safe_load(ACTIVITIES), "steps": [{"name": "s", "set": {"v": "${now + 1}"}}]})
    compile_program(spec)
    (error,) = check(spec).errors
    assert "always fails" in error.message


def test_findings_have_the_path_of_the_manifest_and_errors_come_first() -> None:
    spec = WorkflowSpec.parse({"blocks": [IDLE], "steps": [{"name": "s", "set": {"v": "${run.x}"}}]})
    found = check(spec, path="spec.inline").findings
    assert [(finding.severity, finding.path) for finding in found] == [
        (Severity.ERROR, "spec.inline.steps[0].set.v"),
        (Severity.WARNING, "spec.inline.blocks[0]"),
    ]
