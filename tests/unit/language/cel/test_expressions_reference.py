"""Expressions compared to another implementation of CEL, cel-cpp."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.language.cel import format_duration
from perdure.language.expressions import ExpressionError, compile_template

_REFERENCE = cel.NewEnv(
    variables={"input": cel.Type.DYN},
    extensions=[
        *(ext_math.ExtMath(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()),
        *(ext_strings.ExtStrings(), ext_encoders.ExtEncoders()),
    ],
)


def reference(expression: str, data: Any) -> Any:
    """The result of cel-cpp: a JSON value, or 'error'."""
    try:
        result = _REFERENCE.compile(expression).eval(data={"input": data})
    except RuntimeError:
        return "error"
    if result.type() == cel.Type.ERROR:
        return "error"
    value = result.plain_value()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return format_duration(value) if isinstance(value, timedelta) else value


def ours(expression: str, data: Any) -> Any:
    try:
        return compile_template(f"${{{expression}}}").evaluate({"input": data})
    except ExpressionError:
        return "error"


DATA = {"a": 1, "b": 2.5, "s": "héllo", "l": [1, 2, 3], "m": {"x": 1}, "t": True, "n": None}


AGREED = r"""
1 + 2 * 3 - 4 / 2 % 3
-(-5) % 3
-7 / 2
7 % -3
1.5 * 2.0 / 0.5
-input.b
1 - -1
9223372036854775807 + 1
-9223372036854775808 / -1
-(-9223372036854775808)
1 / 0
1 % 0
1 == 1.0
1 == '1'
null == false
[1, 2] == [1.0, 2.0]
{'a': 1} == {'a': 1.0}
1 != 2
true == 1
[true] == [1]
'a' < 'b'
1 < 1.5
2.5 >= 2
true > false
'é' > 'z'
'' < 'a'
false && (1 / 0 == 1)
(1 / 0 == 1) && false
(1 / 0 == 1) || true
(1 / 0 == 1) || false
[1, 0].exists(x, 1 / x == 1)
[0, 1].exists(x, 1 / x == 1)
[0].exists(x, 1 / x == 1)
[0, 1].all(x, 1 / x == 2)
[0, 1].all(x, 1 / x == 1)
[1, 2, 2].exists_one(x, x == 2)
[].all(x, x)
[0, 1].map(x, 1 / x)
[1, 2].map(x, [3].map(y, x * y))
[1, 2, 3].filter(x, x > 1)
[1, 2].map(x, x > 1, x * 2)
[[1], [2]].map(x, x.map(y, y + 1))
[1].map(input, input + 1)
has(input.a)
has(input.q)
has(input.m.x)
has(input.m.q)
has(input.a.b)
input.q
input.l[1]
input.l[3]
input.l[-1]
input.l[1.0]
input['s']
input.m['q']
input.n == null
input.a.b
2 in input.l
2.0 in input.l
'x' in input.m
'2' in input.l
input.t ? 1 : 2
input.a ? 1 : 2
size(input.s)
input.l.size()
size('')
size({'a': 1})
size(b'abc')
input.s + '!'
input.s.contains('ll')
input.s.startsWith('hé')
input.s.endsWith('')
input.s.matches('^h.l+o$')
'ab'.matches('b')
input.s.charAt(1)
input.s.charAt(5)
input.s.charAt(6)
input.s.indexOf('l')
input.s.indexOf('l', 3)
input.s.indexOf('z')
input.s.indexOf('')
input.s.lastIndexOf('l')
input.s.lastIndexOf('l', 2)
input.s.lastIndexOf('')
'abc'.indexOf('a', 9)
'a b'.split(' ')
'abc'.split('')
'abc'.split('', 2)
'a,b,c'.split(',', 2)
'a,b'.split(',', 0)
'a,b'.split(',', 1)
''.split(',')
'abab'.replace('a', 'x')
'abab'.replace('a', 'x', 1)
'abab'.replace('a', 'x', 0)
'ab'.replace('', '-')
input.s.substring(1)
input.s.substring(1, 3)
input.s.substring(3, 1)
input.s.substring(9)
' a '.trim()
'ÄBc'.lowerAscii()
'äbC'.upperAscii()
'abc'.reverse()
['a', 'b'].join()
['a', 'b'].join('-')
[].join(',')
strings.quote('a\n"b')
'%s %s %s'.format([1, 'a', true])
'%d %x %o %b'.format([10, 255, 8, 5])
'%.3f'.format([2.5])
'%s'.format([[1, 'a', null]])
'%s'.format([{'a': 1}])
'%s'.format([1.5])
'%%'.format([])
'%s'.format([])
'%X'.format(['hi'])
'%s'.format([duration('90s')])
'%e'.format([1234.5])
string(1)
string(1.5)
string(2.0)
string(1e100)
string(true)
string(duration('90.5s'))
string(timestamp('2026-01-01T00:00:00.5Z'))
int('12')
int('x')
int(2.9)
int(-2.9)
int(1e30)
double('1.5')
double('1e3')
double(3)
double('x')
bool('true')
bool('T')
bool('0')
timestamp('2026-01-31T10:00:00+01:00')
timestamp(0)
int(timestamp('2026-01-01T00:00:00Z'))
timestamp('2026-13-01T00:00:00Z')
timestamp('2026-01-01')
duration('1h30m')
duration('-1.5s')
duration('1')
duration('0')
duration('10ms') + duration('1us')
duration('1h') > duration('59m')
timestamp('2026-03-01T00:00:00Z') - duration('24h')
timestamp(10) - timestamp(70)
timestamp(5) > timestamp(4)
timestamp('2026-03-05T06:07:08.009Z').getFullYear()
timestamp('2026-03-05T06:07:08.009Z').getMonth()
timestamp('2026-03-05T06:07:08.009Z').getDate()
timestamp('2026-03-05T06:07:08.009Z').getDayOfMonth()
timestamp('2026-03-05T06:07:08.009Z').getDayOfWeek()
timestamp('2026-03-05T06:07:08.009Z').getDayOfYear()
timestamp('2026-03-05T06:07:08.009Z').getHours()
timestamp('2026-03-05T06:07:08.009Z').getMinutes()
timestamp('2026-03-05T06:07:08.009Z').getSeconds()
timestamp('2026-03-05T06:07:08.009Z').getMilliseconds()
timestamp('2026-03-05T23:00:00Z').getDate('+02:00')
timestamp('2026-03-05T23:00:00Z').getHours('-03:30')
duration('-3723.5s').getHours()
duration('-3723.5s').getMinutes()
duration('-3723.5s').getSeconds()
duration('-3723.5s').getMilliseconds()
math.greatest(1, 3, 2)
math.least(1.5, 1)
math.greatest([1, 4])
math.ceil(1.2)
math.floor(-1.2)
math.round(2.5)
math.round(-2.5)
math.trunc(-1.9)
math.abs(-3)
math.sign(-2.5)
math.sqrt(9.0)
math.isNaN(0.0 / 0.0)
math.isInf(1.0 / 0.0)
math.isFinite(1.0)
math.bitAnd(6, 3)
math.bitOr(6, 3)
math.bitXor(6, 3)
math.bitNot(5)
math.bitShiftLeft(1, 63)
math.bitShiftRight(-8, 1)
math.bitShiftLeft(1, 64)
math.bitShiftLeft(1, -1)
math.round(0.49999999999999994)
math.sign(0)
input.?q.orValue(3)
input.?a.orValue(3)
input.?q.?z.hasValue()
optional.of(1) == optional.of(1)
optional.none().orValue(2)
[?input.?q, 1]
{?'z': input.?q}
input.?m.x.value()
input.l[?9].hasValue()
input.?a.optMap(v, v + 1).value()
input.?q.optFlatMap(v, optional.of(v)).hasValue()
cel.bind(v, 2, v * v)
optional.ofNonZeroValue(0).hasValue()
optional.ofNonZeroValue([1]).hasValue()
optional.none().value()
type(1) == int
type(1.0) == double
type('a') == string
type(null) == null_type
type([]) == list
type({}) == map
type(type(1)) == type
type(true) == bool
dyn(1) == 1.0
{1: 'a'}[1]
{1: 'a'}[dyn(1.0)]
dyn(1) == 1.0
dyn(1) == '1'
dyn(null) == false
dyn([1, 2]) == [1.0, 2.0]
dyn({'a': 1}) == {'a': 1.0}
dyn(true) == 1
dyn([true]) == [1]
dyn(1) < 1.5
dyn(2.5) >= 2
b'abc' == bytes('abc')
string(b'abc')
base64.encode(b'abc')
string(base64.decode('YWJj'))
[1] + [2]
base64.decode('!!')
dyn('a') + dyn(1)
dyn('a') < dyn(1)
!dyn(1)
-dyn('a')
dyn([1]) + dyn('a')
size(dyn(1))
dyn(true) && dyn(1)
dyn(1).map(x, x)
'\u00e9' == 'é'
"""


@pytest.mark.parametrize("expression", AGREED.strip().splitlines())
def test_results_agree_with_cel_cpp(expression: str) -> None:
    want, got = reference(expression, DATA), ours(expression, DATA)
    assert got == want
    assert type(got) is type(want)


_NUMBERS = st.one_of(
    st.integers(-5, 5).map(str), st.sampled_from(["input.a", "input.l[0]", "size(input.s)", "(1 / 0)"])
)
_BOOLS = st.sampled_from(["true", "false", "input.t", "(1 / 0 == 1)", "has(input.q)"])


def _deeper(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    def combine(operator: str, left: str, right: str) -> str:
        return (
            f"[1, 2].{operator}(v, {left} + v > {right})"
            if operator in {"all", "exists"}
            else f"({left} {operator} {right})"
        )

    number = st.tuples(*[inner.map(lambda pair: pair[0])] * 2)
    boolean = st.tuples(*[inner.map(lambda pair: pair[1])] * 2)
    return st.tuples(
        st.builds(lambda op, pair: combine(op, *pair), st.sampled_from("+-*/%"), number),
        st.one_of(
            st.builds(
                lambda op, pair: combine(op, *pair), st.sampled_from(["<", "==", ">=", "!=", "all", "exists"]), number
            ),
            st.builds(lambda op, pair: combine(op, *pair), st.sampled_from(["&&", "||", "==", "!="]), boolean),
            st.builds(lambda pair, test: f"({test} ? {pair[0]} : {pair[1]})", boolean, inner.map(lambda pair: pair[1])),
        ),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.tuples(_NUMBERS, _BOOLS), _deeper, max_leaves=6))
def test_any_arithmetic_and_logic_agrees_with_cel_cpp(pair: tuple[str, str]) -> None:
    for expression in pair:
        assert ours(expression, DATA) == reference(expression, DATA), expression
