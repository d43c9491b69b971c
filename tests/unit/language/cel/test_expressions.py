"""Expressions: results and errors for users, and limits for attackers."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.language.cel import compile_source, format_duration, parse_duration
from perdure.language.expressions import ExpressionError, References, compile_condition, compile_template
from unit.language.cel.evaluation import SCOPE, evaluate, refusal

# --- templates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param("plain $text {} }", "plain $text {} }", id="a string without an expression is itself"),
        pytest.param("${input.nights}", 3, id="a whole-string expression keeps its type"),
        pytest.param("${input.rooms[1]}", {"name": "b", "beds": 2}, id="also when it is a map"),
        pytest.param("${input.guest}: ${input.nights} nights", "Ann: 3 nights", id="text takes values in"),
        pytest.param(" ${input.nights}", " 3", id="a space makes it text"),
        pytest.param(
            "${input.price} ${input.vip} ${input.note} ${input.rooms[0]}",
            '1.5 false null {"beds":1,"name":"a"}',
            id="values other than strings are written as JSON",
        ),
        pytest.param("${now}/${wait}", "2026-01-31T09:00:00Z/90s", id="times and durations have their text forms"),
        pytest.param("${now}", "2026-01-31T09:00:00Z", id="also on their own"),
        pytest.param("$${input.nights}", "${input.nights}", id="two dollars make a literal"),
        pytest.param("a $${x} ${input.nights} $${", "a ${x} 3 ${", id="literal and expression together"),
        pytest.param("${'}' + \"}\" + '\\'}'}", "}}'}", id="braces in strings do not close it"),
        pytest.param("${r'\\d}' + '}'}", "\\d}}", id="raw strings end where CEL ends them"),
        pytest.param("${ {'a': {'b': 1}}.a.b }", 1, id="maps have braces too"),
        pytest.param("${'''it's }'''}", "it's }", id="long strings"),
        pytest.param("${1 // a comment }\n + 2}", 3, id="comments may hold a brace"),
        pytest.param(
            {"a": ["${input.nights}", {"b": "${input.guest}!"}], "c": None, "$${k}": 1.0},
            {"a": [3, {"b": "Ann!"}], "c": None, "${k}": 1.0},
            id="any JSON value is a template",
        ),
    ],
)
def test_templates_are_evaluated(value: Any, want: Any) -> None:
    got = compile_template(value, names=SCOPE).evaluate(SCOPE)
    assert got == want
    assert type(got) is type(want)


def test_errors_in_sources_and_references_are_reported() -> None:
    template = compile_template({"a": "${input.x + steps.hotel.output}", "b": "-${steps['cool-off'].output}-${now}"})
    assert template.sources == ("input.x + steps.hotel.output", "steps['cool-off'].output", "now")
    assert template.references == References(
        roots=frozenset({"input", "steps", "now"}), steps=frozenset({"hotel", "cool-off"}), every_step=False
    )


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param("1 + 1", References(), id="nothing"),
        pytest.param("has(steps.a.output)", References(frozenset({"steps"}), frozenset({"a"})), id="in has()"),
        pytest.param("steps.?a.output", References(frozenset({"steps"}), frozenset({"a"})), id="optional field"),
        pytest.param("steps[?'a'].x", References(frozenset({"steps"}), frozenset({"a"})), id="optional index"),
        pytest.param("steps[n].x", References(frozenset({"steps", "n"}), every_step=True), id="a computed step"),
        pytest.param("steps.map(s, s)", References(frozenset({"steps"}), every_step=True), id="all of them"),
        pytest.param(
            "[1].map(steps, steps + item)", References(frozenset({"item"})), id="a bound name is no reference"
        ),
        pytest.param("lists.range(3).map(i, math.abs(i))", References(), id="namespaces are no references"),
        pytest.param(
            "type(x) == google.protobuf.Timestamp", References(frozenset({"x"})), id="types are no references"
        ),
    ],
)
def test_references_are_collected(expression: str, want: References) -> None:
    assert compile_template(f"${{{expression}}}").references == want


def test_a_type_cannot_be_the_name_of_a_variable() -> None:
    with pytest.raises(ExpressionError, match="`list` is a type"):
        compile_template("${list[0]}", names={"list"})
    assert compile_template("${type(x) == list}", names={"x"}).evaluate({"x": []}) is True


def test_the_result_is_a_copy() -> None:
    template = compile_template({"x": "${input}", "y": [1]})
    first = template.evaluate(SCOPE)
    first["x"]["rooms"].clear()
    first["y"].clear()
    assert template.evaluate(SCOPE) == {"x": SCOPE["input"], "y": [1]}


def test_an_expression_is_compiled_once() -> None:
    first, second = (compile_source("input.nights * 7", frozenset({"input", "now"})) for _ in range(2))
    assert first is second


# --- conditions ------------------------------------------------------------------------------------------------------


def test_conditions_are_evaluated() -> None:
    assert compile_condition("${input.nights > 2}").evaluate(SCOPE) is True
    for value in ("true", "${true} ", "${true}${true}"):
        with pytest.raises(ExpressionError, match="one expression"):
            compile_condition(value)
    with pytest.raises(ExpressionError, match="this gives an int") as caught:
        compile_condition("${input.nights}", path="steps[0].when").evaluate(SCOPE)
    assert (caught.value.expression, caught.value.path) == ("input.nights", "steps[0].when")


# --- the language ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("input.price * 2", 3.0),
        ("input.nights * 2", 6),
        ("2 * input.price + input.nights", 6.0),
        ("1 + 2.5", 3.5),
        ("size(input.rooms) / 4.0", 0.5),
        ("input.nights * 2 * 1.5", 9.0),
        ("input.nights == 3.0 && input.nights < 3.5", True),
        ("3.0", 3.0),
        ("math.round(2.5) + math.ceil(input.nights)", 6.0),
        ("input.map(key, key)", ["guest", "nights", "note", "price", "rooms", "vip"]),
        ("{'b': 1, 'a': 2}.map(key, key)", ["a", "b"]),
        ("input.rooms.filter(r, r.beds > 1).map(r, r.name)", ["b"]),
        ("input.rooms.map(r, r.beds > 1, r.name + '!')", ["b!"]),
        ("input.rooms.exists(r, r.nope == 1 || r.name == 'b')", True),
        ("input.rooms.exists_one(r, r.beds == 2)", True),
        ("input.rooms.all(r, has(r.name) && !has(r.nope))", True),
        ("input.?nope.orValue('none')", "none"),
        ("input.?rooms[1].name.orValue('')", "b"),
        ("input.rooms[?7].optMap(r, r.name).orValue('?')", "?"),
        ("input.?guest.optMap(g, g + '!').value()", "Ann!"),
        ("[?input.?nope, ?input.?guest]", ["Ann"]),
        ("{?'a': input.?nope, 'b': 1}", {"b": 1}),
        ("optional.none().or(optional.of(2)).hasValue()", True),
        ("optional.ofNonZeroValue('').hasValue()", False),
        ("cel.bind(n, input.nights, n * n)", 9),
        ("now + duration('1h30m') > timestamp('2026-01-31T10:29:59Z')", True),
        ("timestamp('2026-01-31T10:00:00+01:00') == now", True),
        ("now - timestamp('2026-01-30T09:00:00Z')", "86400s"),
        ("now + wait", "2026-01-31T09:01:30Z"),
        ("duration('30d') + wait", "2592090s"),
        ("duration('1.5s')", "1.500s"),
        ("now.getHours('+02:00') + now.getDayOfWeek()", 17),
        (
            "now.strftime('%Y-%m-%dT%H:%M:%S week %V of %G, day %j, %u, 100%%')",
            "2026-01-31T09:00:00 week 05 of 2026, day 031, 6, 100%",
        ),
        (
            "timestamp('2026-03-31T22:30:00.25Z').strftime('%F %T.%f %y %z', '+02:00')",
            "2026-04-01 00:30:00.250000 26 +0200",
        ),
        ("timestamp('0987-01-01T00:00:00Z').strftime('%Y %s')", "0987 -31020451200"),
        ("steps.hotel.startTime <= now", True),
        ("lists.range(4).reverse()", [3, 2, 1, 0]),
        ("[3, 1, 2].sort() + [[1], [2, [3]]].flatten(5) + [1, 1.0, true, 1].distinct()", [1, 2, 3, 1, 2, 3, 1, True]),
        ("[1, 2, 3, 4].slice(1, 3)", [2, 3]),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("['a', 'b'].join('-').upperAscii()", "A-B"),
        ("'banana'.replace('a', 'o', 2) + 'Bananas'.substring(1, 3) + 'x'.charAt(0)", "bononaanx"),
        ("'banana'.lastIndexOf('a') + 'banana'.indexOf('n', 3)", 9),
        ("' x '.trim() + strings.quote('a\"')", 'x"a\\""'),
        ("'order-42'.matches('^order-[0-9]+$')", True),
        ("base64.encode(bytes('hi')) + string(base64.decode('aGk='))", "aGk=hi"),
        ("{1: 'one', 2: 'two'}[input.nights - 1]", "two"),
        ("type(input.nights) == int && type(now) == google.protobuf.Timestamp", True),
        ("9223372036854775807", 2**63 - 1),
        ("-7 / 2 * 10 + -7 % 3", -31),
        ("math.greatest(1, 2.5, input.nights) + math.least([4, 5])", 7),
        ("input.note == null ? 'no note' : input.note", "no note"),
        ("input.nights in [1, 2, 3] && 'guest' in input && !(7 in [1, 'x'])", True),
    ],
)
def test_expressions_are_evaluated(expression: str, want: Any) -> None:
    got = evaluate(expression)
    assert got == want
    assert type(got) is type(want)


def test_format_writes_lists_and_maps_in_order() -> None:
    assert (
        evaluate("'%s has %d rooms, %.2f each, %s %%'.format([input.guest, 2, input.price, input.rooms])")
        == "Ann has 2 rooms, 1.50 each, [{beds: 1, name: a}, {beds: 2, name: b}] %"
    )


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("input.nigths", "input has no field `nigths`; it has: guest, nights, note, price, rooms, vip"),
        ("input.rooms[0].bed", "input.rooms[0] has no field `bed`; it has: beds, name"),
        ("{}.a", "the value has no field `a`; it is empty"),
        ("{'false': 3}.n", "`n`; it has: false; YAML reads n without quotes as false: write the key as 'n' in the"),
        ("input.rooms[5]", "input.rooms has 2 items, so item 5 does not exist"),
        ("input.rooms.name", "is a list, whose items have numbers"),
        ("input.note.text", "input.note is null, so it has no field 'text'"),
        ("input.guest.name", "input.guest is a string, so it has no field 'name'"),
        ("inputs.nights", "unknown name `inputs`, did you mean `input`"),
        ("zzz", "the available names are: input, now, steps, wait"),
        ("steps.cool-off.output", "in brackets: steps['cool-off']"),
        ("1 +", "does not parse"),
        ("", "it is empty"),
        ("nope(1)", "unknown function or name `nope`"),
        ("'a' * 2", "`*` does not work on (string, int)"),
        ("input.guest * 2", "`*` does not work on a string and an int"),
        ("input.guest + 1", "`+` does not work on a string and an int"),
        ("input.guest < 1", "a string cannot be compared with an int"),
        ("input.rooms < input.rooms", "a list has no order"),
        ("input.guest && true", "`&&` works on true and false, not on a string"),
        ("1 / 0", "division by zero"),
        ("input.nights % 0", "division by zero"),
        ("9223372036854775807 + 1", "does not fit a 64-bit integer"),
        ("int('x')", "'x' is not a whole number"),
        ("timestamp('yesterday')", "write it as RFC 3339"),
        ("duration('soon')", "write it like 90s"),
        ("now.getHours('Europe/Berlin')", "an offset such as '+02:00'"),
        ("now.strftime('%A')", "`strftime` has no clause '%A'; use %Y %m %d"),
        ("now.strftime('%')", "`strftime` has no clause '%'"),
        ("now.strftime('%F', 'Europe/Berlin')", "an offset such as '+02:00'"),
        ("now.strftime(lists.range(300).map(i, 'x').join(''))", "more than 256 characters"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1h')", "outside the years 1 to 9999"),
        ("'(('.matches('((')", "is not a regular expression"),
        ("optional.none().value()", "orValue()"),
        ("['a', 1].join()", "map it with string()"),
        ("['a', 1].sort()", "a string cannot be compared with an int"),
        ("'abc'.charAt(9)", "position 9 does not exist"),
        ("1u", "write 1 for 1u"),
        ("uint(1)", "unknown function or name `uint`"),
        ("google.protobuf.Duration{seconds: 1}", "write a map"),
        ("{true: 1}", "a bool cannot be the key of a map"),
        ("{'a': 1, 'a': 2}", "occurs twice"),
        ("[1].map(x, y)", "unknown name `y`"),
        ("1.0 / 0.0", "not a finite number"),
        ("0.0 / 0.0", "not a finite number"),
        ("b'x'", "base64.encode()"),
        ("type(1)", "compare it instead"),
        ("input.?guest", "orValue("),
        ("{1: 'a'}", "keys of JSON are strings; use string(1)"),
        ("'" + "x" * 4096 + "'", "4096 are allowed"),
        ("+".join(["1"] * 100), "nested too deeply"),
        ("(" * 500 + "1" + ")" * 500, "nested too deeply"),
        ("optional.of(1)" + ".optMap(a, a)" * 5 + ".value()", "more than 4 optMap()"),
    ],
)
def test_errors_have_a_cause_and_a_remedy(expression: str, want: str) -> None:
    error = refusal(f"${{{expression}}}")
    assert want in error.message
    assert error.expression == expression
    assert error.path == "spec"
    assert len(str(error)) < 1_000


@pytest.mark.parametrize(
    ("value", "want_path", "want"),
    [
        ({"items": [1, "${input.nope}"]}, "spec.items[1]", "no field `nope`"),
        ({"items": [{"a": "x ${1 +}"}]}, "spec.items[0].a", "does not parse"),
        ("never ends ${input.a", "spec", "closing } is missing"),
        ({"${input.guest}": 1}, "spec", "keys of a map are not computed"),
        (["${1}"] * 257, "spec[256]", "more than 256 expressions"),
    ],
)
def test_errors_have_the_path(value: Any, want_path: str, want: str) -> None:
    error = refusal(value)
    assert error.path == want_path
    assert want in error.message


def test_a_name_that_is_allowed_but_absent_is_an_error_of_the_evaluation() -> None:
    template = compile_template("${error.type}", names={"error"})
    with pytest.raises(ExpressionError, match="`error` has no value here"):
        template.evaluate({})


def test_numbers_that_json_allows_and_cel_does_not_cause_no_crash() -> None:
    assert evaluate("big", big=10**30) == 10**30
    assert "64-bit" in refusal("big + 1", big=10**30).message
    assert "cannot be computed" in refusal("big * 1.5", big=10**400).message
    assert "zone" in refusal("t", t=datetime(2026, 1, 1)).message  # noqa: DTZ001 -- that is the case


# --- properties ------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=6),
    max_leaves=30,
)


def same(left: Any, right: Any) -> bool:
    """Equality that distinguishes 1, 1.0 and true."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_json_round_trips_unchanged(value: Any) -> None:
    for template, want in (("${input}", value), ({"a": ["${[input]}"]}, {"a": [[value]]})):
        assert same(compile_template(template).evaluate({"input": value}), want)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_json_can_be_inserted_into_text(value: Any) -> None:
    text = compile_template("<${input}>").evaluate({"input": value})[1:-1]
    assert text == value if isinstance(value, str) else same(json.loads(text), value)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_json_without_expressions_is_its_own_template(value: Any) -> None:
    if "${" in json.dumps(value):
        return
    assert same(compile_template(value).evaluate({}), value)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="${}'\"\\ar/+1.?[]()\n ", max_size=40))
def test_any_text_compiles_or_is_an_expression_error(text: str) -> None:
    try:
        compile_template(text, names={"a", "r"}).evaluate({"a": 1, "r": "x"})
    except ExpressionError as error:
        assert error.message  # noqa: PT017 -- either outcome is right


@settings(max_examples=100, deadline=None)
@given(st.integers(-(10**15), 10**15))
def test_durations_survive_their_text(micros: int) -> None:
    length = timedelta(microseconds=micros)
    assert parse_duration(format_duration(length)) == length


def test_the_insertion_order_of_a_map_does_not_matter() -> None:
    forwards = {f"k{index}": index for index in range(50)}
    backwards = dict(reversed(forwards.items()))
    for expression in ("${m.map(k, m[k])}", "${m}!", "${'%s'.format([m])}", "${m.filter(k, m[k] > 25)}"):
        template = compile_template(expression)
        assert template.evaluate({"m": forwards}) == template.evaluate({"m": backwards})
