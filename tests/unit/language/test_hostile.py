"""Hostile expressions: each is stopped after a bounded amount of work, and its run fails with the reason.

Work is counted, so that these hold on every machine; how long it takes is printed by `tests/bench/test_hostile_expressions.py`.
"""

import json
import re
from typing import Any

import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine.events import WorkflowExecutionStarted
from perdure.language.cel import Meter
from perdure.language.cel.limits import BUDGET
from perdure.language.checks import check
from perdure.language.expressions import ExpressionError, compile_template
from perdure.language.schemas import MAX_SCHEMA, InputSchemaError, input_check
from perdure.language.step_failures import EXPRESSION_ERROR
from support.hostile import ATTACKS, HOSTILE, WORK
from unit.language.execution.play import Play


class Counting(Meter):
    """Counts the granted work, which is the work done."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        super().__init__()
        self.done = 0

    def charge(self, units: int) -> None:
        assert units >= 0
        super().charge(units)
        self.done += units


@pytest.mark.parametrize(("expression", "want"), [pytest.param(*case[1:], id=case[0]) for case in ATTACKS])
def test_a_hostile_expression_stays_within_the_budget(expression: str, want: str) -> None:
    meter = Counting()
    with pytest.raises(ExpressionError) as caught:
        compile_template(f"${{{expression}}}").evaluate(HOSTILE, meter)
    assert meter.done <= BUDGET
    assert (meter.left < 0) == (want == WORK)
    assert want in caught.value.message


ALONE = [
    ("three loops", "lists.range(3000).map(a, lists.range(3000).map(b, lists.range(3000).map(c, a + b + c)))"),
    ("a text that doubles", "cel.bind(a, input.s + input.s, cel.bind(b, a + a, cel.bind(c, b + b, size(c + c))))"),
    ("a regular expression in a loop", "lists.range(30000).map(x, input.s.matches('(a|b)*c'))"),
    ("a value of exponential size", "cel.bind(a, [input.s, input.s], cel.bind(b, [a, a], [b, b, b, b]))"),
]


@pytest.mark.parametrize("expression", [pytest.param(each[1], id=each[0]) for each in ALONE])
@pytest.mark.parametrize("where", ["set", "when", "items"])
def test_a_hostile_expression_fails_the_run_with_step_and_reason(expression: str, where: str) -> None:
    source = json.dumps("${" + expression + "}")
    step = {
        "set": f"{{name: evil, set: {{v: {source}}}}}",
        "when": f"{{name: evil, when: {source}, set: {{v: 1}}}}",
        "items": f"{{name: evil, forEach: {{items: {source}}}, set: {{v: 1}}}}",
    }[where]
    play = Play(f"steps: [{step}]", {"s": "a" * 100_000})
    assert play.failure.type == EXPRESSION_ERROR
    assert play.failure.message.startswith("step `evil`: spec.steps[0].")
    assert len(play.failure.message) < 1_000


def test_a_decision_with_many_hostile_steps_is_bounded() -> None:
    """200 steps that each use up their budget are not one decision, but one after the other."""
    dear = "${lists.range(20000).map(x, x * 2).size()}"
    steps = [{"name": f"s{i}", "needs": [], "set": {"v": dear}} for i in range(20)]
    play = Play(json.dumps({"steps": steps}), begin=False)
    play.happens(
        WorkflowExecutionStarted,
        workflow_type="t",
        workflow_id="order",
        original_execution_run_id="uid-1",
        first_execution_run_id="uid-1",
    )
    assert play.closed
    assert play.splits >= 5


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_that_doubles_with_each_reference_is_rejected(keyword: str) -> None:
    twice: dict[str, Any] = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(30)
    }
    with pytest.raises(InputSchemaError, match=f"more than {MAX_SCHEMA:,} parts"):
        input_check({"$defs": {**twice, "d30": {"type": "string"}}, "$ref": "#/$defs/d0"}, None)


def test_a_schema_can_refer_to_itself() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "integer"}}}
    assert input_check(tree, None).check({"left": {"n": 1}, "right": {"left": {"n": "x"}}})[0][0] == ".right.left.n"


def _within(**more: Any) -> dict[str, Any]:
    """A schema that refers to itself for `a`, with further keywords that distinguish it."""
    return {"properties": {"a": {"$ref": "#"}}, **more}


def _nested(levels: int, *, lists: bool = False) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return value


BRANCHING: list[tuple[str, dict[str, Any]]] = [
    ("allOf", {"allOf": [_within(maxProperties=1), _within(maxProperties=2)]}),
    ("anyOf", {"anyOf": [_within(required=["y"]), _within(required=["z"])]}),
    ("oneOf", {"oneOf": [_within(required=["y"]), _within(required=["z"])]}),
    ("if", {"if": _within(), "then": _within(maxProperties=1), "else": _within(required=["z"])}),
    ("not", {"allOf": [{"not": _within(required=["z"])}, {"not": _within(required=["y"])}]}),
    ("patterns", {**_within(), "patternProperties": {"^a": {"$ref": "#"}}}),
    ("items", {"allOf": [{"items": {"$ref": "#"}, "maxItems": number} for number in (1, 2)]}),
    ("contains", {"allOf": [{"contains": {"$ref": "#"}}, {"contains": {"$ref": "#"}, "maxItems": 2}]}),
    ("unevaluated", {"anyOf": [_within(maxProperties=1), _within(maxProperties=2)], "unevaluatedProperties": False}),
    (
        "an older draft",
        {"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [_within(), _within(minItems=2)]},
    ),
    (
        "two that refer to each other",
        {
            "$defs": {
                "n": {"allOf": [{"properties": {"a": {"$ref": f"#/$defs/{name}"}}} for name in ("m", "n")]},
                "m": {"allOf": [{"properties": {"a": {"$ref": f"#/$defs/{name}"}}} for name in ("n", "m")]},
            },
            "$ref": "#/$defs/n",
        },
    ),
]


@pytest.mark.parametrize("schema", [pytest.param(each[1], id=each[0]) for each in BRANCHING])
def test_a_schema_that_branches_into_itself_takes_no_exponential_work(schema: dict[str, Any]) -> None:
    """In a value of 90 levels, there are more ways through each of them than anybody could go."""
    checked = input_check({"minProperties": 1, **schema}, None)
    for lists in (False, True):
        for _, message in checked.check(_nested(90, lists=lists)):
            assert "does not match its schema. The field is unknown" in message
        assert all("The field is unknown" not in message for _, message in checked.check(_nested(2, lists=lists)))


def test_a_branching_schema_names_the_place_within_the_limit_of_work() -> None:
    leaf = {"type": "integer"}
    node = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "required": ["left", "right"]}
    checked = input_check({"anyOf": [leaf, {"type": "object", **node}]}, None)
    assert checked.check({"left": 1, "right": {"left": 2, "right": 3}}) == []
    (found,) = checked.check({"left": 1, "right": {"left": 2, "right": "x"}})
    assert "is not valid under any of the schemas" in found[1]


def test_the_first_mismatch_of_a_large_input_is_reported() -> None:
    checked = input_check({"properties": {"ids": {"items": {"type": "string"}}}}, None)
    assert checked.check({"ids": ["x"] * 40_000}) == []
    assert checked.check({"ids": [*["x"] * 30_000, *range(30_000)]}) == [(".ids[30000]", '0 is not of type "string"')]


DEAR: list[tuple[str, dict[str, Any], Any]] = [
    ("alternatives", {"items": {"anyOf": [{"const": number} for number in range(2_000)]}}, list(range(60_000))),
    ("choices", {"items": {"enum": [{"a": number} for number in range(2_000)]}}, [{"a": 1_999}] * 18_000),
    ("states", {"pattern": "[ab]*a[ab]{2000}c"}, "ab" * 100_000),
    ("states of many", {"patternProperties": {f"[ab]*a[ab]{{50}}{n}": {} for n in range(100)}}, {"ab" * 50_000: 1}),
]


@pytest.mark.parametrize(("schema", "value"), [pytest.param(*each[1:], id=each[0]) for each in DEAR])
def test_an_input_too_large_for_its_schema_is_rejected_without_validation(schema: dict[str, Any], value: Any) -> None:
    ((where, message),) = input_check(schema, None).check(value)
    assert where == ""
    assert "it is too large for its schema" in message
    assert "Make the input smaller, or the schema simpler" in message


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ({"$ref": "other.json"}, "put the schema under `$defs`"),
        ({"$ref": "#/$defs/none"}, "`$defs` does not exist"),
        ({"$dynamicAnchor": "n", "items": {"$dynamicRef": "#n"}}, "use `$ref`"),
        ({"$defs": {"a": {"$id": "a", "items": {"$ref": "#"}}}, "$ref": "#/$defs/a"}, "remove it"),
    ],
)
def test_references_in_a_schema_are_resolved_or_rejected(schema: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InputSchemaError, match=re.escape(remedy)):
        input_check(schema, None)


def test_checking_a_hostile_constant_is_bounded() -> None:
    when = "${lists.range(1000).map(a, lists.range(1000).map(b, a * b)).size() > 0}"
    steps = [{"name": f"s{i}", "when": when, "sleep": {"duration": "1s"}} for i in range(5)]
    assert check(WorkflowSpec.parse({"steps": steps})).findings == ()
