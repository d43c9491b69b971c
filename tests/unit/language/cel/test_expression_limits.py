"""Expressions that would take too long or too much memory."""

import time
from typing import Any

import pytest

from perdure.language.expressions import MAX_RESULT, ExpressionError, compile_template
from support.hostile import ATTACKS, HOSTILE, SOURCES, WORK, deep_value
from unit.language.cel.evaluation import SCOPE


@pytest.mark.parametrize(("expression", "want"), [pytest.param(*case[1:], id=case[0]) for case in ATTACKS])
def test_hostile_expressions_end_with_a_clear_error(expression: str, want: str) -> None:
    template = compile_template(f"${{{expression}}}")
    started = time.perf_counter()  # printed, never decided by
    with pytest.raises(ExpressionError) as caught:
        template.evaluate(HOSTILE)
    print(f"{(time.perf_counter() - started) * 1_000:.1f} ms")
    assert want in caught.value.message
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "expression",
    [
        "zeros",
        "strs.map(k, k + '-x').join(',').size()",
        "objs.filter(o, o.id > 4000 && o.name == 'n').map(o, o.id).size()",
        "objs.map(o, o.?a.?b.orValue(o.id)).size()",
        "ints.map(x, x * 2).size()",
        "ints.exists(x, x == 39999)",
        "ints.map(x, 0 - x).slice(0, 20000).sort().size()",
        "strs.distinct().size()",
        "39999 in ints && 'k19999' in strs && 'k19999' in dict",
        "wide.contains('x') || s.endsWith('a')",
        "size(s + '') == 262000",
        "dict.map(k, dict[k]).size()",
        "ab.matches('abba')",
    ],
)
def test_legitimate_expressions_on_large_inputs_are_within_the_limits(expression: str) -> None:
    template = compile_template(f"${{{expression}}}")
    started = time.perf_counter()
    template.evaluate(HOSTILE)
    print(f"{(time.perf_counter() - started) * 1_000:.1f} ms")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: ascii(source[:20]))
def test_compiling_is_bounded(source: str) -> None:
    started = time.perf_counter()
    try:
        compile_template(f"${{{source}}}")
    except ExpressionError as error:
        assert len(str(error)) < 1_000  # noqa: PT017 -- either outcome is right
    print(f"{(time.perf_counter() - started) * 1_000:.1f} ms")


def test_one_budget_applies_to_the_whole_template() -> None:
    dear = "${ints.map(x, x * 2).size()}"
    assert compile_template([dear]).evaluate(HOSTILE) == [40_000]
    with pytest.raises(ExpressionError, match=WORK):
        compile_template([dear] * 5).evaluate(HOSTILE)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(["${zeros}", "${zeros}"], id="two results"),
        pytest.param("${s}${s}", id="text of two results"),
        pytest.param("x" * 200_000 + "${s}", id="text and a result"),
        pytest.param(["x" * MAX_RESULT], id="a literal"),
        pytest.param(["\0" * 50_000 + "${1}"], id="characters that JSON escapes"),
    ],
)
def test_the_total_size_of_the_result_is_limited(value: Any) -> None:
    with pytest.raises(ExpressionError, match="bytes of JSON"):
        compile_template(value).evaluate(HOSTILE)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * (MAX_RESULT - 2), id="one text"),
        pytest.param([0] * 131_071, id="digits"),
        pytest.param([[]] * 87_000, id="empty lists"),
        pytest.param([deep_value(14)] * 3, id="lists of lists"),
        pytest.param([{"": 0}] * 37_000, id="small maps"),
        pytest.param({f"{index:05x}": 0 for index in range(26_000)}, id="a large map"),
        pytest.param(["é"] * 52_000, id="short texts"),
    ],
)
def test_any_payload_of_the_full_size_passes(value: Any) -> None:
    assert compile_template("${input}").evaluate({"input": value}) == value
    assert compile_template("${{'a': input.a}.a}").evaluate({"input": {"a": value}}) == value


def test_the_nesting_of_a_template_is_limited() -> None:
    with pytest.raises(ExpressionError, match="nested more than 100 deep"):
        compile_template(_nest_once(5_000))


def _nest_once(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.bench
def test_cost_of_compiling_and_evaluating() -> None:
    started = time.perf_counter()
    for index in range(200):
        compile_template(f"${{input.a{index} > 3 && input.guest == 'x'}}", names=("input", "steps"))
    print(f"compile {(time.perf_counter() - started) / 200 * 1e6:.0f} us")
    template = compile_template({"guest": "${input.guest}", "text": "Room for ${input.guest}: ${input.nights} nights"})
    started = time.perf_counter()
    for _ in range(2_000):
        template.evaluate(SCOPE)
    print(f"evaluate {(time.perf_counter() - started) / 2_000 * 1e6:.1f} us")
