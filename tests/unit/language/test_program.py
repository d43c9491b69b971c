"""Valid definitions, and the errors of invalid ones."""

from datetime import timedelta
from typing import Any, get_args

import pytest

from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.steps import STEP_KINDS
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine.retry import CloudSchedulerRetry, PolicyReference, RetryPolicy
from perdure.language.compiler import compile_program
from perdure.language.program import Action, InvalidWorkflowError, retry_policy

Json = dict[str, Any]

WORK = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "60s"}
DO = {"name": "do", "activity": {"name": "work"}}
BLOCK = {"name": "block", "steps": [DO]}
LATER = "is part of the API but not yet run by this version of the operator; see docs/limits.md"


def findings(**spec: Any) -> list[str]:
    """The errors of a definition, as text."""
    parsed = WorkflowSpec.parse({"activities": [WORK], "steps": [DO], **spec})
    try:
        compile_program(parsed)
    except InvalidWorkflowError as error:
        return [str(finding) for finding in error.findings]
    return []


def test_a_valid_definition_has_no_findings() -> None:
    assert findings() == []


def test_every_step_is_compiled_in_its_place() -> None:
    spec = WorkflowSpec.parse({"activities": [WORK], "steps": [DO, {"name": "nap", "sleep": {"duration": "1s"}}]})
    program = compile_program(spec)
    assert [compiled.step.name for compiled in program.main.steps] == ["do", "nap"]
    assert list(program.activities) == ["work"]
    assert program.main.output is None


KINDS = {
    "activity": {"name": "work"},
    "sleep": {"duration": "1s"},
    "waitForSignal": {"name": "paid"},
    "waitUntil": {"condition": "${signals.vote.size() > 2}"},
    "childWorkflow": {"workflow": {"name": "other"}},
    "call": {"block": "block"},
    "parallel": {"branches": [{"name": "a", "block": "block"}]},
    "switch": {"cases": [{"when": "${true}", "call": {"block": "block"}}]},
    "set": {"x": 1},
    "signal": {"workflowId": "w", "name": "s"},
    "continueAsNew": {},
    "fail": {},
    "return": {},
}


@pytest.mark.parametrize(("kind", "body"), KINDS.items(), ids=list(KINDS))
def test_every_kind_of_step_can_be_run(kind: str, body: Json) -> None:
    assert findings(steps=[DO, {"name": "x", kind: body}], blocks=[BLOCK]) == []


def test_every_kind_of_step_is_compiled_to_an_action_of_its_own() -> None:
    steps = [{"name": f"s{i}", kind: body} for i, (kind, body) in enumerate(KINDS.items())]
    spec = WorkflowSpec.parse({"activities": [WORK], "steps": steps, "blocks": [BLOCK]})
    assert {kind.rstrip("_") for kind in STEP_KINDS} == {*map(snake, KINDS)}
    assert {type(step.action) for step in compile_program(spec).main.steps} == {*get_args(Action)}


# Graphs


def test_a_step_can_read_only_steps_that_end_before_it() -> None:
    def step(name: str, *needs: str, sees: str = "a") -> Json:
        return {"name": name, "needs": list(needs), "set": {"v": f"${{steps.{sees}.output}}"}}

    first = {"name": "a", "set": {"v": 1}}
    assert findings(steps=[first, step("b", "a"), step("c", "b")]) == []
    assert findings(steps=[first, step("b")]) == [
        (
            "spec.steps[1].set: step `a`, which `steps.a.output` refers to, may not have ended by then; add it to "
            "`needs`, or move it before this one"
        )
    ]
    assert len(findings(steps=[first, step("b", "a"), step("c", "a", sees="b")])) == 1


def test_a_missing_step_in_needs_is_reported() -> None:
    assert findings(steps=[DO, {**DO, "name": "b", "needs": ["doo"]}]) == [
        "spec.steps[1].needs: step `doo` is not in this list of steps: do, b"
    ]


@pytest.mark.parametrize(
    ("needs", "chain"),
    [
        ({"a": ["a"]}, "`a` needs `a`"),
        ({"a": ["b"]}, "`a` needs `b` needs `a`"),
        ({"a": ["c"], "c": ["b"]}, "`a` needs `c` needs `b` needs `a`"),
    ],
)
def test_steps_that_wait_for_each_other_are_reported(needs: dict[str, list[str]], chain: str) -> None:
    steps = [{**DO, "name": name, **({"needs": needs[name]} if name in needs else {})} for name in "abc"]
    (found,) = findings(steps=steps)
    assert f"so none of them ever starts: {chain}; " in found


def test_a_long_chain_is_not_a_cycle() -> None:
    assert findings(steps=[{**DO, "name": f"s{i}"} for i in range(200)]) == []


# Blocks


@pytest.mark.parametrize(
    ("step", "where"),
    [
        ({"call": {"block": "blok"}}, "call.block"),
        ({"parallel": {"branches": [{"name": "x", "block": "blok"}]}}, "parallel.branches[0].block"),
        ({"switch": {"cases": [{"when": "${true}", "call": {"block": "blok"}}]}}, "switch.cases[0].call.block"),
        ({"activity": {"name": "work"}, "catch": [{"call": {"block": "blok"}}]}, "catch[0].call.block"),
        ({"activity": {"name": "work"}, "compensate": {"call": {"block": "blok"}}}, "compensate.call.block"),
    ],
)
def test_a_missing_block_is_reported(step: Json, where: str) -> None:
    assert findings(steps=[{"name": "x", **step}], blocks=[BLOCK]) == [
        f"spec.steps[0].{where}: block `blok` is not defined in `blocks`; defined: block"
    ]


def test_an_error_in_a_block_is_reported_with_its_path() -> None:
    block = {"name": "b", "steps": [{"name": "x", "set": {"v": "${steps.do.output + params.y + item}"}}]}
    (found,) = findings(blocks=[block])
    assert found.startswith("spec.blocks[0].steps[0].set.v: ")
    assert "unknown name `item`" in found


def test_names_are_valid_only_in_their_scope() -> None:
    loop = {"items": [1], "as": "room"}
    body = {"name": "work", "input": "${[room, index]}"}
    clause = {"as": "e", "call": {"block": "block", "input": "${[e.type, room]}"}}
    undo = {"activity": {"name": "work", "input": "${steps.x.output}"}}
    step = {"name": "x", "forEach": loop, "activity": body, "catch": [clause], "compensate": undo}
    assert findings(steps=[step], blocks=[BLOCK]) == []
    assert len(findings(steps=[{**step, "when": "${room > 1}"}], blocks=[BLOCK])) == 1
    handler = {"block": "block", "input": "${error.type}"}
    assert findings(onFailure=handler, blocks=[BLOCK]) == []
    assert len(findings(onCancel=handler, blocks=[BLOCK])) == 1


@pytest.mark.parametrize("field", ["onCancel", "onFailure", "finally"])
def test_a_handler_cannot_continue_as_new(field: str) -> None:
    blocks = [
        {"name": "outer", "steps": [{"name": "c", "call": {"block": "inner"}}]},
        {"name": "inner", "steps": [{"name": "n", "continueAsNew": {}}]},
    ]
    (found,) = findings(**{field: {"block": "outer"}, "blocks": blocks})
    assert found.startswith(f"spec.{field}: runs step `n` of block `inner`, which is `continueAsNew`")


def test_a_compensation_cannot_continue_as_new() -> None:
    blocks = [{"name": "again", "steps": [{"name": "n", "continueAsNew": {}}]}]
    (found,) = findings(steps=[{**DO, "compensate": {"call": {"block": "again"}}}], blocks=blocks)
    assert found.startswith("spec.steps[0].compensate: runs step `n`")


# Inputs


def test_an_invalid_input_schema_is_reported() -> None:
    assert findings(input={"schema": {"type": "object"}}) == []
    (found,) = findings(input={"schema": {"type": "objekt"}})
    assert found.startswith("spec.input.schema: is not a valid JSON Schema: ")


def test_a_schema_cannot_load_remote_references() -> None:
    (found,) = findings(input={"schema": {"$ref": "http://127.0.0.1:1/schema"}})
    assert "nothing is downloaded" in found


def test_an_input_is_checked_by_its_schema() -> None:
    schema = {"properties": {"guests": {"items": {"type": "string", "pattern": "^(a+)+$"}}}, "required": ["nights"]}
    spec = WorkflowSpec.parse({"activities": [WORK], "steps": [DO], "input": {"schema": schema}})
    program = compile_program(spec)
    assert program.check_input({"nights": 1, "guests": ["aa"]}) == []
    reported = [str(finding) for finding in program.check_input({"guests": ["a" * 40 + "b", 5]})]
    assert [sentence.split(":")[0] for sentence in reported] == [
        "spec.input",
        "spec.input.guests[0]",
        "spec.input.guests[1]",
    ]


def test_references_to_retry_policies_are_collected_from_everywhere() -> None:
    call = {"name": "work", "retryPolicy": {"name": "of-a-call"}}
    undo = {"activity": {"name": "work", "retryPolicy": {"name": "of-a-compensation"}}}
    child = {"workflow": {"name": "other"}, "retryPolicy": {"name": "of-a-child"}}
    spec = {
        "activities": [{**WORK, "retryPolicy": {"name": "of-an-activity"}}],
        "steps": [{"name": "do", "activity": call, "compensate": undo}, {"name": "inside", "call": {"block": "block"}}],
        "blocks": [{"name": "block", "steps": [{"name": "kid", "childWorkflow": child}]}],
    }
    found = compile_program(WorkflowSpec.parse(spec)).retry_policies
    assert found == {"of-a-call", "of-a-child", "of-a-compensation", "of-an-activity"}


def test_a_choice_of_retry_policy_is_compiled() -> None:
    assert retry_policy(RetryPolicyChoice(name="shared")) == PolicyReference("shared")
    google = RetryPolicyChoice.parse({"cloudScheduler": {"retryCount": 3, "minBackoffDuration": "3.5s"}})
    assert retry_policy(google) == RetryPolicy(
        cloud_scheduler=CloudSchedulerRetry(retry_count=3, min_backoff_duration=timedelta(seconds=3.5))
    )


def test_the_task_queue_of_a_worker_must_not_be_reserved_for_pods() -> None:
    worker = {"name": "work", "worker": {"taskQueue": "q"}, "startToCloseTimeout": "60s"}
    assert findings(activities=[worker]) == []
    worker["worker"] = {"taskQueue": "pods/tool"}
    assert findings(activities=[worker]) == [
        "spec.activities[0].worker.taskQueue: must not begin with `pods/`: use `container` to run a pod"
    ]


def test_a_definition_without_steps_is_rejected() -> None:
    assert findings(steps=[]) == ["spec.steps: must have at least one step"]


def test_a_missing_activity_is_reported_with_the_existing_ones() -> None:
    other = {**WORK, "name": "another"}
    assert findings(activities=[WORK, other], steps=[{"name": "do", "activity": {"name": "wrok"}}]) == [
        "spec.steps[0].activity.name: activity `wrok` is not defined in `activities`; defined: another, work"
    ]
    assert findings(activities=[]) == [
        "spec.steps[0].activity.name: activity `work` is not defined in `activities`; defined: none"
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
def test_a_missing_step_is_reported_with_place_and_expression(
    steps: list[Json], spec: Json, path: str, source: str
) -> None:
    assert findings(steps=steps, **spec) == [
        f"{path}: `{source or 'steps.hotl.output'}` refers to step `hotl`, which is not in this list of steps: do"
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
def test_an_expression_that_does_not_compile_is_reported_with_its_place(template: Any, path: str, want: str) -> None:
    (found,) = findings(output=template)
    assert found.startswith(f"{path}: ")
    assert want in found


def test_all_errors_are_reported_together() -> None:
    found = findings(
        activities=[{"name": "work", "worker": {"taskQueue": "pods/x"}, "startToCloseTimeout": "60s"}],
        steps=[
            {"name": "a", "activity": {"name": "wrok", "input": "${nothing}"}},
            {"name": "b", "call": {"block": "none"}},
            {"name": "c", "set": {"x": "${steps.d}"}},
        ],
    )
    assert [sentence.split(": ")[0] for sentence in found] == [
        "spec.activities[0].worker.taskQueue",
        "spec.steps[0].activity.name",
        "spec.steps[0].activity.input",
        "spec.steps[1].call.block",
        "spec.steps[2].set",
    ]


def test_the_error_as_text_is_complete() -> None:
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
    ids=[
        "the last, for the run's output",
        "none",
        "a step that is read",
        "also where only its status is",
        "all of them",
    ],
)
def test_only_outputs_of_steps_that_expressions_read_are_kept(steps: list[Json], spec: Json, want: set[str]) -> None:
    parsed = WorkflowSpec.parse({"activities": [WORK], "steps": steps, **spec})
    assert compile_program(parsed).main.kept == want


def test_the_default_retry_policy_is_that_of_temporal() -> None:
    assert retry_policy(None) == RetryPolicy()


def snake(name: str) -> str:
    """A field's Python name: `forEach` is `for_each`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)
