"""What static checks say of definitions: a small mistake each, and beside it what must not be called one."""

import json
from typing import Any

import pytest
import yaml

from perdure.api.workflow import WorkflowSpec
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.language.checks import Checked, Documents, between, check, checked_program, options
from perdure.language.checks.between import run_input
from perdure.language.checks.reads import reads_of
from perdure.language.compiler import compile_program
from perdure.language.program import InvalidWorkflowError, Severity

SCHEMA = """
input:
  schema:
    type: object
    required: [nights, guest, rooms, level, price, either]
    properties:
      nights: {type: integer}
      guest: {type: string}
      note: {type: string}
      price: {type: number}
      either: {type: [string, integer]}
      level: {enum: [1, 2]}
      address: {$ref: "#/$defs/address"}
      rooms: {type: array, items: {type: object, required: [n], properties: {n: {type: integer}}}}
    $defs: {address: {type: object, required: [street], properties: {street: {type: string}}}}
"""
ACTIVITIES = """
activities:
- {name: work, startToCloseTimeout: 1m, container: {image: i}}
"""
STEPS = {"steps": [{"name": "do", "activity": {"name": "work"}}]}
IDLE = {"name": "idle", "steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}


def checked(text: str = "", **spec: Any) -> Checked:
    given = yaml.safe_load(text) or {}
    defaults = {**yaml.safe_load(ACTIVITIES), **STEPS}
    return check(WorkflowSpec.parse({**defaults, **given, **spec}))


def told(text: str = "", **spec: Any) -> list[str]:
    """Severity, place and sentence of each finding, but for activities that no step runs."""
    return [
        f"{finding.severity.value} {finding}"
        for finding in checked(text, **spec).findings
        if not finding.message.startswith("no step runs activity")
    ]


def of_value(expression: str, **spec: Any) -> list[str]:
    """What is said of an expression in a `set`, with the input of the schema above."""
    text = SCHEMA + "steps:\n- {name: do, activity: {name: work}}\n- {name: s, set: {v: x}}\n"
    given = yaml.safe_load(text)
    given["steps"][1]["set"]["v"] = expression
    return told(**{**given, **spec})


# Types and names


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("${input.nights + 'x'}", "`input.nights + 'x'` can only fail: `+` does not work on (int, string)"),
        ("${input.guest > 3}", "can only fail: `>` does not work on (string, int)"),
        ("${input.nights.size()}", "can only fail"),
        ("${input.guest.first.name}", "can only fail: expression of type 'string' cannot be the operand"),
        ("${input.rooms + 1}", "can only fail: `+` does not work on"),
        ("${input.rooms[0].n + 'x'}", None),
        ("${now + 1}", "can only fail"),
        ("${run.name + 1}", "can only fail"),
        ("${run.nam}", "there is no field `nam` in `run`, did you mean `name`; the fields are: attempt, "),
        ("${steps.do.outputs}", "there is no field `outputs` in `steps.do`, did you mean `output`"),
        ("${input.nigths}", "the schema knows no field `nigths` in `input`, did you mean `nights`"),
        ("${input.address.town}", "the schema knows no field `town` in `input.address`"),
        ("${input.note}", "`input.note` may be missing; make it `required`, give it a default, or write"),
        ("${vars.total}", "no step sets the variable `total`"),
    ],
)
def test_an_expression_that_cannot_work_is_told(expression: str, want: str | None) -> None:
    findings = [finding for finding in of_value(expression) if " spec.steps[1].set.v: " in finding]
    assert (want or "") in "".join(findings)
    assert len(findings) == (1 if want else 0) or "input.address" in expression


@pytest.mark.parametrize(
    "expression",
    [
        "${input.nights > 1.5 || input.nights == 3.0}",
        "${input.rooms[input.nights % 2].n + 1}",
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
        "${schedule.name}",
        "${cel.bind(input, 1, input + 1)}",
    ],
)
def test_an_expression_that_may_work_is_left_alone(expression: str) -> None:
    assert of_value(expression) == []


def test_without_a_schema_nothing_is_known_of_the_input() -> None:
    assert told(steps=[{"name": "s", "set": {"v": "${input.a.b + input.c}"}}]) == []


@pytest.mark.parametrize(
    ("step", "want"),
    [
        ({"when": "${input.nights}", "sleep": {"duration": "1s"}}, "type int, and must give true or false"),
        ({"forEach": {"items": "${input.guest}"}, "sleep": {"duration": "1s"}}, "must give a list or a map"),
        ({"sleep": {"duration": "${input.nights}"}}, "must give a duration, such as `duration('30d')`"),
        ({"sleep": {"until": "${input.rooms}"}}, "must give a time"),
        ({"waitUntil": {"condition": "${input.guest}", "timeout": "1m"}}, "must give true or false"),
    ],
)
def test_what_gives_a_value_of_the_wrong_type_is_told(step: dict[str, Any], want: str) -> None:
    (finding,) = told(SCHEMA, steps=[{"name": "s", **step}])
    assert finding.startswith("Error spec.steps[0].")
    assert want in finding


def test_the_items_of_a_loop_have_the_type_that_the_schema_tells() -> None:
    loop = {"name": "s", "forEach": {"items": "${input.rooms}", "as": "room"}}
    good = {**loop, "activity": {"name": "work", "input": "${room.n + index}"}}
    bad = {**loop, "activity": {"name": "work", "input": "${room.n + 'x'}"}}
    assert told(SCHEMA, steps=[good]) == []
    (finding,) = told(SCHEMA, steps=[bad])
    assert "`room.n + 'x'` can only fail" in finding


def test_a_loop_variable_outside_of_its_loop_and_a_step_of_another_list_are_told_where_they_are() -> None:
    loop = {"name": "rooms", "forEach": {"items": [1], "as": "room"}, "activity": {"name": "work"}}
    (finding,) = told(steps=[loop, {"name": "s", "set": {"v": "${room}"}}])
    assert finding.endswith("(`room` is known only within step `rooms`)")
    block = {"name": "b", "steps": [{"name": "x", "set": {"v": "${steps.do.output}"}}]}
    (finding,) = told(steps=[*STEPS["steps"], {"name": "c", "call": {"block": "b"}}], blocks=[block])
    assert "(it stands in the main steps: hand what you need on" in finding


# Inputs and defaults


def test_a_default_has_to_fit_its_schema_but_need_not_be_whole() -> None:
    schema = {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "integer"}}}
    assert told(input={"schema": schema, "default": {"a": 1}}) == []
    assert told(input={"schema": schema, "default": {"a": "x"}}) == [
        'Error spec.input.default.a: does not fit `spec.input.schema`: "x" is not of type "integer"'
    ]
    assert len(told(input={"schema": {"type": "string"}, "default": 3})) == 1


PARAMS = {
    "schema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}, "t": {"enum": ["a", "b"]}}}
}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"n": 1}, None),
        ({"n": "${input.nights}"}, None),
        ({"n": "${input.either}", "t": "${input.guest}"}, None),
        ("${input}", None),
        ({"n": "x"}, 'input.n: does not fit the params of block `b`: "x" is not of type "integer"'),
        ({"n": "${input.guest}"}, "input.n: does not fit the params of block `b`: an expression that gives a string"),
        ({"n": "${input.nights} nights"}, "an expression that gives a string"),
        ({}, 'input: does not fit the params of block `b`: "n" is a required property'),
        (None, "is not of type"),
    ],
)
def test_what_a_block_is_given_has_to_fit_its_params(given: Any, want: str | None) -> None:
    block = {"name": "b", "params": PARAMS, "steps": IDLE["steps"]}
    findings = told(SCHEMA, steps=[{"name": "c", "call": {"block": "b", "input": given}}], blocks=[block])
    assert len(findings) == (1 if want else 0), findings
    assert (want or "") in "".join(findings)


# What never runs


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ([{"name": "a", "return": {}}], "step `z` never runs: step `a` before it always ends the block or the run"),
        ([{"name": "a", "fail": {}}], "step `z` never runs: step `a` before it always fails"),
        ([{"name": "a", "continueAsNew": {}}], "step `z` never runs: step `a` before it always closes the run"),
        ([{"name": "a", "return": {}, "when": "${1 < 2}"}], "step `z` never runs"),
        ([{"name": "a", "return": {}, "when": "${input.x}"}], None),
        ([{"name": "a", "fail": {}, "catch": [{"call": {"block": "idle"}}]}], None),
        ([{"name": "a", "fail": {}, "forEach": {"items": "${input}"}}], None),
    ],
)
def test_a_step_that_never_runs_is_told(steps: list[dict[str, Any]], want: str | None) -> None:
    last = {"name": "z", "sleep": {"duration": "1s"}}
    findings = [f for f in told(steps=[*steps, last], blocks=[IDLE]) if "idle" not in f]
    assert (want or "") in "".join(findings)
    assert len(findings) == (1 if want else 0)


def test_a_step_beside_one_that_ends_the_run_may_run() -> None:
    steps = [{"name": "a", "needs": [], "return": {}}, {"name": "z", "needs": [], "sleep": {"duration": "1s"}}]
    assert told(steps=steps) == []


def test_a_condition_that_is_never_true_is_told() -> None:
    (finding,) = told(steps=[{"name": "a", "when": "${false}", "sleep": {"duration": "1s"}}])
    assert finding == "Warning spec.steps[0].when: step `a` never runs: its `when` is always false"


def test_ways_of_a_switch_that_are_never_taken_are_told() -> None:
    call = {"call": {"block": "idle"}}
    whens = ["${input.a}", "${input.a}", "${false}", "${true}", "${input.b}"]
    switch = {"cases": [{"when": when, **call} for when in whens], "default": call}
    findings = told(steps=[{"name": "s", "switch": switch}], blocks=[IDLE])
    assert [finding.split(": ")[0].removeprefix("Warning spec.steps[0].switch.") for finding in findings] == [
        "cases[1]",
        "cases[2]",
        "cases[4]",
        "default",
    ]


def test_clauses_that_catch_nothing_are_told() -> None:
    def clauses(*types: list[str]) -> list[str]:
        catch = [{"errorTypes": each, "call": {"block": "idle"}} for each in types]
        return told(steps=[{"name": "s", "activity": {"name": "work"}, "catch": catch}], blocks=[IDLE])

    assert clauses(["A"], ["B"], []) == []
    assert [finding.split(":")[0] for finding in clauses(["A", "B"], ["B"])] == ["Warning spec.steps[0].catch[1]"]
    assert [finding.split(":")[0] for finding in clauses([], ["B"])] == ["Warning spec.steps[0].catch[1]"]


def test_what_nobody_uses_is_told() -> None:
    assert told(blocks=[IDLE]) == ["Warning spec.blocks[0]: nothing calls block `idle`; take it away"]
    unused = checked(steps=IDLE["steps"]).findings
    assert [str(finding) for finding in unused] == [
        "spec.activities[0]: no step runs activity `work`; take it away",
    ]


# What may be missing


def test_the_output_of_a_step_that_may_be_skipped_is_to_be_asked_for() -> None:
    maybe = {"name": "maybe", "when": "${input.x}", "activity": {"name": "work"}}

    def reader(expression: str, **more: Any) -> list[str]:
        return told(steps=[maybe, {"name": "s", "set": {"v": expression}, **more}])

    (finding,) = reader("${steps.maybe.output.id}")
    assert finding.startswith("Warning spec.steps[1].set.v: step `maybe` may be skipped, and then `steps.maybe.output`")
    assert len(reader("${steps.maybe.output}")) == 1
    assert reader("${steps.maybe.output.id}", when="${input.x}") == []
    assert reader("${steps.maybe.output.id}", when="${steps.maybe.status == 'Succeeded'}") == []
    assert reader("${steps.maybe.status == 'Skipped' ? 0 : steps.maybe.output.id}") == []
    assert reader("${steps.maybe.output == null ? 0 : steps.maybe.output.id}") == []
    assert reader("${steps.maybe.output.?id.orValue(0)}") == []
    assert len(told(steps=[maybe], output="${steps.maybe.output.id}")) == 1


def test_a_handler_asks_whether_a_step_has_begun() -> None:
    def handler(expression: str) -> list[str]:
        return told(onFailure={"block": "idle", "input": expression}, blocks=[IDLE])

    (finding,) = handler("${steps.do.output}")
    assert "Warning spec.onFailure.input: `steps.do` may be missing; write `steps.?do.orValue(…)`" in finding
    assert handler("${steps.?do.?output.orValue(null)}") == []
    assert handler("${error.type} ${error.message}") == []
    assert handler("${error.typ}")[0].startswith("Error spec.onFailure.input: there is no field `typ` in `error`")


def test_a_branch_that_need_not_win_may_be_missing() -> None:
    branches = [{"name": name, "block": "idle"} for name in ("a", "b")]
    reader = {"name": "s", "set": {"v": "${steps.race.output.a}"}}
    race = {"name": "race", "parallel": {"branches": branches, "wait": "Any"}}
    assert len(told(steps=[race, reader], blocks=[IDLE])) == 1
    race = {"name": "race", "parallel": {"branches": branches}}
    assert told(steps=[race, reader], blocks=[IDLE]) == []


# Without end, without limit


def test_blocks_that_call_each_other_whatever_happens_are_told() -> None:
    def blocks(**more: Any) -> list[str]:
        there = {"name": "a", "steps": [{"name": "x", "call": {"block": "b"}}]}
        back = {
            "name": "b",
            "steps": [{"name": "y", "sleep": {"duration": "1s"}}, {"name": "z", "call": {"block": "a"}}],
        }
        back["steps"][1] |= more
        return told(steps=[{"name": "s", "call": {"block": "a"}}], blocks=[there, back])

    assert blocks() == [
        (
            "Error spec.blocks[0].steps[0]: these blocks call each other without end: `a` calls `b` calls `a`; give one "
            "of the calls a `when`, or put it into a `switch`"
        )
    ]
    assert blocks(when="${steps.y.status == 'x'}") == []
    assert blocks(forEach={"items": "${input}"}) == []
    assert blocks(catch=[{"call": {"block": "b"}}]) == []


def test_a_block_that_may_return_before_it_calls_itself_is_left_alone() -> None:
    steps = [
        {"name": "done", "when": "${params.n == 0}", "return": {}},
        {"name": "again", "call": {"block": "a", "input": {"n": "${params.n - 1}"}}},
    ]
    assert told(steps=[{"name": "s", "call": {"block": "a"}}], blocks=[{"name": "a", "steps": steps}]) == []


def test_waiting_without_limit_is_worth_a_note() -> None:
    (finding,) = told(steps=[{"name": "w", "waitForSignal": {"name": "paid"}}])
    assert finding.startswith("Note spec.steps[0].waitForSignal: waits without limit; set `timeout`")
    assert told(steps=[{"name": "w", "waitForSignal": {"name": "paid", "timeout": "1d"}}]) == []
    assert told(steps=[{"name": "w", "waitForSignal": {"name": "paid"}, "timeout": "1d"}]) == []


@pytest.mark.parametrize(
    ("timeouts", "want"),
    [
        ({"startToCloseTimeout": "30m"}, None),
        ({"startToCloseTimeout": "2h", "heartbeatTimeout": "1m"}, None),
        ({"startToCloseTimeout": "2h"}, "has no `heartbeatTimeout`"),
        ({"scheduleToCloseTimeout": "2h"}, "has no `heartbeatTimeout`"),
        ({"startToCloseTimeout": "1m", "heartbeatTimeout": "1m"}, "so it never ends one"),
        ({"startToCloseTimeout": "3m", "scheduleToCloseTimeout": "2m"}, "is longer than `scheduleToCloseTimeout`"),
    ],
)
def test_timeouts_that_do_not_do_what_they_seem_to_are_told(timeouts: dict[str, str], want: str | None) -> None:
    findings = told(activities=[{"name": "work", "container": {"image": "i"}, **timeouts}])
    assert len(findings) == (1 if want else 0)
    assert (want or "") in "".join(findings)


# Several definitions


def child(workflow: str, given: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": "c", "childWorkflow": {"workflow": {"name": workflow}, "input": given}, **more}


def together(**workflows: list[dict[str, Any]]) -> list[str]:
    """What is said of Workflows in the light of each other; each takes a number `n`."""
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    known = {name: checked(input={"schema": schema}, steps=steps) for name, steps in workflows.items()}
    return [
        f"{name}: {finding.severity.value} {finding}"
        for name, each in known.items()
        for finding in between(each, Documents(known), name=name)
    ]


def test_what_a_child_is_given_has_to_fit_its_input() -> None:
    nap = IDLE["steps"]
    assert together(a=[child("b", {"n": "${input.n}"})], b=nap) == []
    assert together(a=[child("b", {"n": "${run.name}"})], b=nap) == [
        (
            "a: Error spec.steps[0].childWorkflow.input.n: does not fit the input of Workflow `b`: an expression that "
            'gives a string: it is not of type "integer"'
        )
    ]
    (finding,) = together(a=[child("b", {})], b=nap)
    assert finding.endswith('"n" is a required property')


def test_a_child_that_is_in_none_of_the_files_is_told_where_others_are() -> None:
    (finding,) = together(a=[child("bb")], b=IDLE["steps"])
    assert (
        "Warning spec.steps[0].childWorkflow.workflow.name: there is no Workflow `bb` in the files, did you" in finding
    )
    (finding,) = together(a=[child("bb")])
    assert "Note spec.steps[0].childWorkflow.workflow.name: Workflow `bb` is in none of the files" in finding


def test_workflows_that_start_each_other_whatever_happens_are_told() -> None:
    (finding,) = together(a=[child("b", {"n": 1})], b=[child("a", {"n": 1})])
    assert (
        "a: Error spec.steps[0].childWorkflow: these Workflows start each other without end: `a` starts `b`" in finding
    )
    assert together(a=[child("b", {"n": 1})], b=[child("a", {"n": 1}, when="${input.n > 0}")]) == []


def test_a_retry_policy_that_is_in_none_of_the_files_is_told() -> None:
    policy = {"name": "standart"}
    activity = {**yaml.safe_load(ACTIVITIES)["activities"][0], "retryPolicy": policy}
    each = checked(activities=[activity])
    (finding,) = between(each, Documents(policies=frozenset({"standard"})))
    assert finding.severity is Severity.WARNING
    assert finding.path == "spec.activities[0].retryPolicy.name"
    assert "did you mean `standard`" in finding.message


def test_a_limit_that_is_in_none_of_the_files_is_reported() -> None:
    each = checked(limits=[{"name": "databse"}])
    (finding,) = between(each, Documents(limits=frozenset({"database"})))
    assert finding.severity is Severity.WARNING
    assert finding.path == "spec.limits[0].name"
    assert "did you mean `database`" in finding.message


def test_the_key_of_a_limit_uses_what_is_known_before_the_run_starts() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}
    spec = {"steps": IDLE["steps"], "input": {"schema": schema}, "activities": []}

    def found(key: str) -> list[str]:
        return [str(each) for each in checked(**spec, limits=[{"name": "a"}, {"name": "b", "key": key}]).findings]

    assert found("${has(input.city) ? input.city : ''}") == []
    (finding,) = found("${steps.s.output}")
    assert finding.startswith("spec.limits[1].key: unknown name `steps`")
    assert any("spec.limits[1].key" in each and "town" in each for each in found("${input.town}"))


def test_a_run_gives_what_its_workflow_takes() -> None:
    known = Documents({"order": checked(SCHEMA)})
    (finding,) = run_input(
        "order", {"nights": "x", "guest": "g", "rooms": [], "level": 1, "price": 1, "either": 1}, known, "spec"
    )
    assert finding.path == "spec.input.nights"
    assert [f.severity for f in run_input("ordre", {}, known, "spec")] == [Severity.WARNING]


# What follows from it


def test_no_run_starts_with_an_error_but_one_that_has_started_goes_on() -> None:
    spec = WorkflowSpec.parse({**yaml.safe_load(ACTIVITIES), "steps": [{"name": "s", "set": {"v": "${now + 1}"}}]})
    compile_program(spec)
    with pytest.raises(InvalidWorkflowError, match="can only fail"):
        checked_program(spec)


def test_findings_have_the_path_of_the_manifest_and_errors_come_first() -> None:
    spec = WorkflowSpec.parse({"blocks": [IDLE], "steps": [{"name": "s", "set": {"v": "${run.x}"}}]})
    found = check(spec, path="spec.inline").findings
    assert [(finding.severity, finding.path) for finding in found] == [
        (Severity.ERROR, "spec.inline.steps[0].set.v"),
        (Severity.WARNING, "spec.inline.blocks[0]"),
    ]


def test_what_an_expression_reads_is_known() -> None:
    reads = reads_of("has(input.a.b) && input.a['b'].c[0] > 1.5 && steps['x-y'].?output.hasValue()")
    assert reads.paths == {("input", "a"), ("input", "a", "b", "c", 0), ("steps", "x-y")}
    assert reads.guarded == {("input", "a", "b"), ("steps", "x-y", "output")}
    assert reads.doubles
    assert reads_of("input.a").alone == ("input", "a")
    assert reads_of("] not CEL [").paths == frozenset()


# What fails whatever comes


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("${'a'.matches('(')}", "can only fail: '(' is not a regular expression"),
        ("${1/0}", "can only fail: division by zero"),
        ("${int('x')}", "can only fail: 'x' is not a whole number"),
        ("${duration('5 minutes')}", "can only fail: '5 minutes' is not a duration"),
        ("${timestamp('x')}", "can only fail: 'x' is not a time"),
        ("${lists.range(200000)}", "can only fail: it makes a list of more than 131072 items"),
        ("${input.guest.matches('(')}", "can only fail: '(' is not a regular expression"),
        ("${matches(input.guest, '[')}", "can only fail: '[' is not a regular expression"),
        ("${input.nights / 0}", "can only fail: division by zero"),
        ("${input.nights % 0}", "can only fail: "),
        ("${input.nights + int('x')}", "can only fail: 'x' is not a whole number"),
        ("${now - duration('5 minutes')}", "can only fail: '5 minutes' is not a duration"),
        ("${ {'n': input.nights, 'm': [1, 2][2]} }", "can only fail: the list has 2 items"),
        ("${cel.bind(n, int('x'), n + input.nights)}", "can only fail: 'x' is not a whole number"),
        ("night ${int('x')} of ${input.nights}", "can only fail: 'x' is not a whole number"),
        ("${1.0 / 0.0}", "can only fail: the result is not a finite number"),
        ("${b'x'}", "can only fail: the result is bytes"),
    ],
)
def test_a_part_that_reads_nothing_and_fails_is_an_error(expression: str, want: str) -> None:
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
def test_a_part_that_fails_and_may_not_be_reached_is_a_warning(expression: str) -> None:
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
def test_parts_that_have_values_are_left_alone(expression: str) -> None:
    assert of_value(expression) == []


@pytest.mark.parametrize(
    ("step", "want"),
    [
        ({"forEach": {"items": 5}, "activity": {"name": "work"}}, "forEach.items: must give a list or a map, not 5"),
        ({"forEach": {"items": "abc"}, "activity": {"name": "work"}}, "forEach.items: must give a list or a map"),
        ({"forEach": {"items": "${5}"}, "activity": {"name": "work"}}, "must give a list or a map"),
        (
            {"childWorkflow": {"workflow": {"name": "w"}, "workflowId": "w" * 1_001}},
            "childWorkflow.workflowId: has 1,001 characters; it may have 1,000",
        ),
        (
            {"signal": {"workflowId": "${'w' + '" + "w" * 1_000 + "'}", "name": "go"}},
            "signal.workflowId: has 1,001 characters; it may have 1,000",
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
def test_a_literal_that_a_step_cannot_take_is_an_error(step: dict[str, Any], want: str) -> None:
    (finding,) = told(steps=[STEPS["steps"][0], {"name": "s", **step}])
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
def test_a_literal_that_a_step_can_take_is_left_alone(step: dict[str, Any]) -> None:
    assert told(steps=[STEPS["steps"][0], {"name": "s", **step}]) == []


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
            "podTemplate.spec.volumes[0].name: the activity's pod has a volume named `perdure` of Perdure's own",
        ),
        (
            {"podTemplate": {"spec": {"containers": [{"image": "i"}, {"name": "perdure-sidecar"}]}}, "sidecar": {}},
            "podTemplate.spec.containers[1].name: the activity's pod has a container named `perdure-sidecar`",
        ),
        ({"container": {"image": "i", "name": "perdure-sidecar"}, "sidecar": {}}, "container.name: "),
        (
            {
                "container": {"image": "i", "volumeMounts": [{"name": "v", "mountPath": "/perdure/"}]},
            },
            "container.volumeMounts[0].mountPath: the activity's pod has a mount at `/perdure`",
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
def test_names_in_a_pod_that_are_perdures_own_are_not_taken(activity: dict[str, Any], want: str) -> None:
    (finding,) = told(activities=[{**TEMPLATE, **activity}])
    assert finding.startswith("Error spec.activities[0].")
    assert want in finding


@pytest.mark.parametrize(
    "activity",
    [
        {"container": {"image": "i", "name": "perdure-sidecar"}},
        {"container": {"image": "i", "volumeMounts": [{"name": "v", "mountPath": "/perdure-files"}]}},
        {"podTemplate": {"spec": {"containers": [{"image": "i"}], "volumes": [{"name": "perdure-sidecar"}]}}},
    ],
)
def test_names_of_the_sidecar_are_free_without_one(activity: dict[str, Any]) -> None:
    assert told(activities=[{**TEMPLATE, **activity}]) == []


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
def test_timeouts_that_expressions_give(step: dict[str, Any], path: str) -> None:
    def of(expression: str) -> list[str]:
        given = json.loads(json.dumps({"name": "s", **step}).replace("%", expression))
        return told(SCHEMA, steps=[given])

    where = f"spec.steps[0].{path}: "
    assert of("${input.guest}") == of("${duration('1h')}") == []
    (wrong,) = of("${input.nights > 1}")
    assert wrong.startswith(f"Error {where}`input.nights > 1` gives a value of type bool, and must give a duration")
    (unknown,) = of("${inputs.guest}")
    assert unknown.startswith(f"Error {where}unknown name `inputs`")
    (never,) = of("${'soon'}")
    assert never.startswith(f'Error {where}"soon" must be a duration')
    zero = of("${duration('0s')}")
    assert zero == ([f"Error {where}must be longer than `0s`"] if path.endswith("Timeout") else [])


def test_the_outcome_of_a_run_is_known_by_its_names() -> None:
    assert of_value("${run.status} ${run.failure == null ? '' : run.failure.type}") == []
    (finding,) = of_value("${run.outcome}")
    assert "there is no field `outcome` in `run`" in finding
