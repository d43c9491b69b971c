"""Which definitions can be run, and what is said of those that cannot."""

from typing import Any

import pytest

from perdure.api.steps import STEP_KINDS, Step
from perdure.api.workflow import WorkflowSpec
from perdure.engine.retry import RetryPolicy
from perdure.language.program import _KINDS, InvalidWorkflowError, compile_program, retry_policy

Json = dict[str, Any]

WORK = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "60s"}
DO = {"name": "do", "activity": {"name": "work"}}
BLOCK = {"name": "block", "steps": [DO]}
LATER = "is part of the API but not yet run by this version of the operator; see docs/limits.md"


def findings(**spec: Any) -> list[str]:
    """What is wrong with a definition, as sentences."""
    parsed = WorkflowSpec.parse({"activities": [WORK], "steps": [DO], **spec})
    try:
        compile_program(parsed)
    except InvalidWorkflowError as error:
        return [str(finding) for finding in error.findings]
    return []


def test_a_definition_that_can_be_run_has_no_findings() -> None:
    assert findings() == []


def test_every_step_is_compiled_in_its_place() -> None:
    spec = WorkflowSpec.parse({"activities": [WORK], "steps": [DO, {"name": "nap", "sleep": {"duration": "1s"}}]})
    program = compile_program(spec)
    assert [compiled.step.name for compiled in program.steps] == ["do", "nap"]
    assert list(program.activities) == ["work"]
    assert program.output is None


KINDS_OF_LATER = {
    "waitForSignal": {"name": "paid"},
    "waitUntil": {"condition": "${vars.x}"},
    "childWorkflow": {"workflow": {"name": "other"}},
    "call": {"block": "block"},
    "parallel": {"branches": [{"name": "a", "block": "block"}]},
    "switch": {"cases": [{"when": "${true}", "call": {"block": "block"}}]},
    "signal": {"workflowId": "w", "name": "s"},
    "continueAsNew": {},
}


@pytest.mark.parametrize(("kind", "body"), KINDS_OF_LATER.items(), ids=list(KINDS_OF_LATER))
def test_a_kind_of_step_that_is_not_run_yet_is_refused(kind: str, body: Json) -> None:
    assert findings(steps=[DO, {"name": "x", kind: body}]) == [f"spec.steps[1].{kind}: a step of kind `{kind}` {LATER}"]


def test_every_kind_of_step_is_run_or_refused() -> None:
    assert {kind.rstrip("_") for kind in STEP_KINDS} == {*_KINDS, *map(snake, KINDS_OF_LATER)}


MODIFIERS_OF_LATER = {
    "needs": ["do"],
    "when": "${true}",
    "forEach": {"items": [1]},
    "catch": [{"call": {"block": "block"}}],
    "compensate": {"activity": {"name": "work"}},
    "timeout": "1h",
    "deadLetter": True,
}


@pytest.mark.parametrize(("modifier", "value"), MODIFIERS_OF_LATER.items(), ids=list(MODIFIERS_OF_LATER))
def test_a_modifier_that_is_not_run_yet_is_refused(modifier: str, value: Any) -> None:
    step = {"name": "x", "activity": {"name": "work"}, modifier: value}
    assert findings(steps=[DO, step]) == [f"spec.steps[1].{modifier}: the modifier `{modifier}` {LATER}"]


def test_every_field_of_a_step_is_its_name_a_kind_or_a_modifier() -> None:
    assert set(Step.model_fields) == {"name", *STEP_KINDS, *map(snake, MODIFIERS_OF_LATER)}


def test_to_need_nothing_is_not_the_default_and_is_refused_too() -> None:
    step = {"name": "x", "activity": {"name": "work"}, "needs": []}
    assert findings(steps=[DO, step]) == [f"spec.steps[1].needs: the modifier `needs` {LATER}"]


@pytest.mark.parametrize(
    ("part", "value", "what"),
    [
        ("blocks", [BLOCK], "`blocks`"),
        ("onCancel", {"block": "block"}, "`onCancel`"),
        ("onFailure", {"block": "block"}, "`onFailure`"),
        ("finally", {"block": "block"}, "`finally`"),
    ],
)
def test_a_part_that_is_not_run_yet_is_refused(part: str, value: Any, what: str) -> None:
    assert findings(**{part: value}) == [f"spec.{part}: {what} {LATER}"]


def test_a_schema_for_the_input_is_refused() -> None:
    assert findings(input={"schema": {"type": "object"}}) == [f"spec.input.schema: a schema for the input {LATER}"]


@pytest.mark.parametrize(
    ("policy", "where", "what"),
    [
        ({"name": "shared"}, "name", "a RetryPolicy by name (write `exponential` in place)"),
        ({"cloudScheduler": {}}, "cloudScheduler", "a `cloudScheduler` policy (write `exponential`)"),
    ],
    ids=["by name", "cloudScheduler"],
)
def test_a_retry_policy_that_is_not_run_yet_is_refused_wherever_it_stands(policy: Json, where: str, what: str) -> None:
    call = {"name": "do", "activity": {"name": "work", "retryPolicy": policy}}
    assert findings(steps=[call]) == [f"spec.steps[0].activity.retryPolicy.{where}: {what} {LATER}"]
    assert findings(activities=[{**WORK, "retryPolicy": policy}]) == [
        f"spec.activities[0].retryPolicy.{where}: {what} {LATER}"
    ]


def test_an_activity_of_an_sdk_worker_is_refused() -> None:
    worker = {"name": "work", "worker": {"taskQueue": "q"}, "startToCloseTimeout": "60s"}
    assert findings(activities=[worker]) == [
        f"spec.activities[0].worker: an activity done by a Temporal SDK worker {LATER}"
    ]


def test_a_definition_without_steps_is_refused() -> None:
    assert findings(steps=[]) == ["spec.steps: there is nothing to do: must have at least one step"]


def test_an_activity_that_is_not_there_is_told_with_those_that_are() -> None:
    other = {**WORK, "name": "another"}
    assert findings(activities=[WORK, other], steps=[{"name": "do", "activity": {"name": "wrok"}}]) == [
        "spec.steps[0].activity.name: there is no activity `wrok` in `spec.activities`; there are: another, work"
    ]
    assert findings(activities=[]) == [
        "spec.steps[0].activity.name: there is no activity `work` in `spec.activities`; there are: none"
    ]


@pytest.mark.parametrize(
    ("steps", "spec", "path", "source"),
    [
        (
            [{"name": "do", "activity": {"name": "work", "input": {"a": "${input}", "b": ["${steps.hotl.output}"]}}}],
            {},
            "spec.steps[0].activity.input",
            "steps.hotl.output",
        ),
        ([{"name": "do", "set": {"v": "of ${steps['hotl']}"}}], {}, "spec.steps[0].set", "steps['hotl']"),
        ([{"name": "do", "sleep": {"until": "${steps.hotl.output}"}}], {}, "spec.steps[0].sleep.until", ""),
        ([{"name": "do", "return": {"output": "${steps.hotl.output}"}}], {}, "spec.steps[0].return.output", ""),
        ([{"name": "do", "fail": {"message": "${steps.?hotl}"}}], {}, "spec.steps[0].fail.message", "steps.?hotl"),
        ([DO], {"output": "${steps.hotl.output}"}, "spec.output", "steps.hotl.output"),
    ],
    ids=["an input", "a variable", "a sleep", "a return", "a fail", "the output"],
)
def test_a_step_that_is_not_there_is_told_with_place_and_expression(
    steps: list[Json], spec: Json, path: str, source: str
) -> None:
    assert findings(steps=steps, **spec) == [
        f"{path}: there is no step `hotl`, which `{source or 'steps.hotl.output'}` refers to; there are: do"
    ]


@pytest.mark.parametrize(
    ("template", "path", "want"),
    [
        ("${input.}", "spec.output", "at column 7"),
        ({"a": ["${inptu.x}"]}, "spec.output.a[0]", "inptu"),
        ({"${input}": 1}, "spec.output", "the keys of a map are not computed"),
        ("${", "spec.output", "the closing } is missing"),
        ("${}", "spec.output", "it is empty"),
    ],
    ids=["no CEL", "an unknown name", "a computed key", "not closed", "empty"],
)
def test_an_expression_that_does_not_compile_is_told_with_its_place(template: Any, path: str, want: str) -> None:
    (found,) = findings(output=template)
    assert found.startswith(f"{path}: ")
    assert want in found


def test_everything_that_is_wrong_is_told_at_once() -> None:
    found = findings(
        blocks=[BLOCK],
        activities=[{**WORK, "retryPolicy": {"name": "shared"}}],
        steps=[
            {"name": "a", "activity": {"name": "wrok", "input": "${nothing}"}, "timeout": "1h"},
            {"name": "b", "continueAsNew": {}},
            {"name": "c", "set": {"x": "${steps.d}"}},
        ],
    )
    assert [sentence.split(": ")[0] for sentence in found] == [
        "spec.blocks",
        "spec.activities[0].retryPolicy.name",
        "spec.steps[0].timeout",
        "spec.steps[0].activity.name",
        "spec.steps[0].activity.input",
        "spec.steps[1].continueAsNew",
        "spec.steps[2].set",
    ]


def test_the_error_as_text_tells_all_of_it() -> None:
    spec = WorkflowSpec.parse({"steps": [DO], "output": "${}"})
    with pytest.raises(InvalidWorkflowError) as caught:
        compile_program(spec)
    first, second = caught.value.findings
    assert str(caught.value) == f"{first}; {second}"


@pytest.mark.parametrize(
    ("steps", "spec", "want"),
    [
        ([DO, {**DO, "name": "last"}], {}, {"last"}),
        ([DO, {**DO, "name": "last"}], {"output": 1}, set()),
        ([DO, {"name": "last", "set": {"x": "${steps.do.output}"}}], {}, {"do", "last"}),
        ([DO, {"name": "last", "return": {"output": "${steps.do.status}"}}], {"output": 1}, {"do"}),
        ([DO, {"name": "last", "set": {"x": "${steps}"}}], {"output": 1}, {"do", "last"}),
    ],
    ids=["the last, for the run's output", "none", "what is asked for", "also where only its status is", "all of them"],
)
def test_only_steps_that_an_expression_asks_for_are_kept(steps: list[Json], spec: Json, want: set[str]) -> None:
    parsed = WorkflowSpec.parse({"activities": [WORK], "steps": steps, **spec})
    assert compile_program(parsed).kept == want


def test_without_a_choice_the_retry_policy_is_temporals() -> None:
    assert retry_policy(None) == RetryPolicy()


def snake(name: str) -> str:
    """A field's Python name: `forEach` is `for_each`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
