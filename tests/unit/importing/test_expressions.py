"""Conditions and expressions of Argo are translated with the same meaning."""

import pytest

from perdure.importing.expressions import UntranslatableError, condition, expression, member, template
from perdure.language.expressions import compile_condition, compile_template


def resolve(path: tuple[str, ...]) -> str:
    if path[:2] != ("inputs", "parameters"):
        raise UntranslatableError(f"`{'.'.join(path)}` has no counterpart")
    made = "input"
    for each in path[2:]:
        made = member(made, each)
    return made


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("{{inputs.parameters.coin}} == heads", {"coin": "heads"}, True),
        ("{{inputs.parameters.coin}} == heads", {"coin": "tails"}, False),
        ("'{{inputs.parameters.coin}}' != \"heads\"", {"coin": "tails"}, True),
        ("{{inputs.parameters.the-count}} > 5", {"the-count": "10"}, True),
        ("{{inputs.parameters.count}} >= 10", {"count": 9}, False),
        ("{{inputs.parameters.count}} == 5", {"count": "5"}, True),
        ("{{inputs.parameters.flag}} == true", {"flag": "true"}, True),
        ("{{inputs.parameters.flag}} == true", {"flag": False}, False),
        ("{{inputs.parameters.flag}}", {"flag": "true"}, True),
        ("!({{inputs.parameters.flag}} == true)", {"flag": "true"}, False),
        ("{{inputs.parameters.coin}} =~ 'he'", {"coin": "heads"}, True),
        ("{{inputs.parameters.coin}} !~ he", {"coin": "heads"}, False),
        ("{{inputs.parameters.a}} in ('x', 'y')", {"a": "y"}, True),
        (
            "{{inputs.parameters.a}} == x && ({{inputs.parameters.b}} == y || {{inputs.parameters.b}} == z)",
            {"a": "x", "b": "z"},
            True,
        ),
        ("'pre-{{inputs.parameters.a}}' == 'pre-x'", {"a": "x"}, True),
        ("{{=inputs.parameters.coin == 'heads'}}", {"coin": "heads"}, True),
        ("'{{inputs.parameters.list}}' != 'P'", {"list": ["p", "q"]}, True),
        ("'{{inputs.parameters.list}}' == '[1,2]'", {"list": [1, 2]}, True),
        ("'{{inputs.parameters.list}}' == '[1,2]'", {"list": "[1,2]"}, True),
        ("{{inputs.parameters.list}} == 7", {"list": {"k": 7}}, False),
        ("'{{inputs.parameters.x}}' == ''", {"x": None}, True),
        ("'{{inputs.parameters.x}}' != 'null'", {"x": ""}, True),
        ("'{{inputs.parameters.x}}' == '12345678901234567890'", {"x": "12345678901234567890"}, True),
        ("'{{inputs.parameters.x}}' == '1.50'", {"x": 1.5}, False),
        ("{{inputs.parameters.x}} != 1.5", {"x": 1.5}, False),
        ("{{=inputs.parameters.x == 'a' ? 'b' : 'c'}} == b", {"x": "a"}, True),
        ("7 / 2 > 3", {}, True),
        ("{{inputs.parameters.n}} / 2 == 2.5", {"n": "5"}, True),
        ("{{inputs.parameters.n}} % 2 == 0", {"n": "4"}, True),
        ("{{inputs.parameters.n}} % 2 == 0", {"n": 5}, False),
        ("{{inputs.parameters.n}} + 1 == 3 && {{inputs.parameters.n}} * 2 - 1 >= 3", {"n": "2"}, True),
        ("{{inputs.parameters.x}} + 'b' == 'ab'", {"x": "a"}, True),
        ("-{{inputs.parameters.n}} < 0", {"n": "2"}, True),
        ("{{=asInt(inputs.parameters.n) % 2 == 0}}", {"n": "4"}, True),
        ("{{=inputs.parameters['the-n'] == '4' and not (inputs.parameters.b == 'x')}}", {"the-n": 4, "b": "y"}, True),
    ],
)
def test_a_condition_keeps_its_meaning(text: str, values: dict[str, object], expected: bool) -> None:
    made = condition(text, resolve)
    assert compile_condition("${" + made + "}", names={"input"}).evaluate({"input": values}) is expected


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("asInt(inputs.parameters.x) * 2 + 1", "3", 7),
        ("asFloat(inputs.parameters.x) / 2", "3", "1.5"),
        ("asInt(inputs.parameters.x) / 2", "7", "3.5"),
        ("8 / asInt(inputs.parameters.x)", "2", "4"),
        ("1 / 2", None, "0.5"),
        ("asFloat(inputs.parameters.x) + asInt(inputs.parameters.x)", "1", "2"),
        ("asFloat(inputs.parameters.x) == 2 && asFloat(inputs.parameters.x) < 3", "2", True),
        ("-asInt(inputs.parameters.x)", "3", "-3"),
        ("asInt(inputs.parameters.x) > 1 ? asInt(inputs.parameters.x) / 4 : 0", "2", "0.5"),
        ("asInt(inputs.parameters.x) - 1", "3", 2),
        ("asInt(inputs.parameters.x) > 2 ? 'many' : 'few'", "3", "many"),
        ("jsonpath(inputs.parameters.x, '$.a.b[1]')", {"a": {"b": [1, 2]}}, 2),
        ("jsonpath(inputs.parameters.x, '$.a[*].b')", {"a": [{"b": 1}, {"b": 2}]}, [1, 2]),
        ("jsonpath(inputs.parameters.x, '$.a[1:].b[0]')", {"a": [{"b": [1]}, {"b": [2]}, {"b": [3]}]}, [2, 3]),
        ("jsonpath(inputs.parameters.x, '$[0:1]')", [1, 2], [1]),
        ("jsonpath(inputs.parameters.x, '$[?(@.n==\"b\")].v')", [{"n": "a", "v": 1}, {"n": "b", "v": 2}], [2]),
        ("jsonpath(inputs.parameters.x, '$[?(@.v>1 && @.v<=2)].v')", [{"v": 1}, {"v": 2}, {"v": 3}], [2]),
        ("filter(inputs.parameters.x, {# > 1})", [1, 2, 3], [2, 3]),
        ("map(inputs.parameters.x, {#.name})", [{"name": "a"}], ["a"]),
        ("sprig.upper(inputs.parameters.x)", "a", "A"),
        ("sprig.replace('a', 'b', inputs.parameters.x)", "banana", "bbnbnb"),
        ("sprig.hasPrefix('a', inputs.parameters.x) && sprig.contains('c', inputs.parameters.x)", "abc", True),
        ("sprig.join('-', sprig.splitList(',', inputs.parameters.x))", "a,b", "a-b"),
        ("sprig.add(inputs.parameters.x, 2, '3') * sprig.max(1, 2)", "1", 12),
        ("sprig.mod(sprig.sub(inputs.parameters.x, 1), sprig.min(4, 9))", 8, 3),
        ("sprig.last(inputs.parameters.x) - sprig.first(inputs.parameters.x)", [1, 5, 9], 8),
        ("sprig.date('2006-01-02 15:04:05', inputs.parameters.x)", "2026-11-26T07:08:09Z", "2026-11-26 07:08:09"),
        ("sprig.date('2006', inputs.parameters.x)", "2026-11-26T07:08:09Z", "2026"),
        ("sprig.b64enc(inputs.parameters.x)", "hello", "aGVsbG8="),
        ("inputs.parameters.x ?? 'none'", None, "none"),
        ("toJson(inputs.parameters.x)", [1], [1]),
        ("string(inputs.parameters.x) + '!'", 3, "3!"),
        ("len(inputs.parameters.x)", [1, 2], 2),
    ],
)
def test_an_expression_keeps_its_value(text: str, value: object, expected: object) -> None:
    made = expression(text, resolve)
    assert compile_template("${" + made + "}", names={"input"}).evaluate({"input": {"x": value}}) == expected


@pytest.mark.parametrize(
    "text",
    [
        "sprig.randAlpha(5)",
        "sprig.trim()",
        "sprig.date('Jan 2', inputs.parameters.x)",
        "inputs.parameters.x[",
        "let x = 1; x",
        "inputs.other",
        "jsonpath(inputs.parameters.x, '$..a')",
        "jsonpath(inputs.parameters.x, '$.a[*].b[*]')",
        "a b",
    ],
)
def test_expressions_without_a_counterpart_are_rejected(text: str) -> None:
    with pytest.raises(UntranslatableError):
        expression(text, resolve)


def test_a_text_with_tags_becomes_a_text_with_expressions() -> None:
    made = template("{{inputs.parameters.a}} of ${HOME}, {{ inputs.parameters.b-c }}", resolve)
    assert made == "${input.a} of $${HOME}, ${input['b-c']}"


def test_braces_of_other_programs_are_kept() -> None:
    assert template("{{.Name}}", resolve, lambda content: content.startswith("inputs")) == "{{.Name}}"
