"""Temporal's list filter: a small SQL. It reads no clock and calls nothing outside; a long comparison lets other tasks run.

``WorkflowType = 'Order' AND (ExecutionStatus IN ('Running', 'Failed') OR StartTime > '2026-01-01T00:00:00Z')``. The syntax has
``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``(NOT) IN``, ``(NOT) BETWEEN … AND …``, ``(NOT) STARTS_WITH``, ``IS (NOT) NULL``,
``NOT``, ``AND``, ``OR``, parentheses; and, for counting, ``GROUP BY ExecutionStatus`` at the end.

As in SQL, a comparison with a missing field is neither true nor false, and neither is its negation. A missing KeywordList or Text
counts as an empty list: ``!=`` and ``NOT IN`` match it (sqlplugin/sqlite/query_converter.go).

The number of values that one filter may compare is limited.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.archive.filters import (
    ORDERS,
    Among,
    And,
    Condition,
    InvalidQueryError,
    Missing,
    Not,
    Or,
    Ordered,
    StartsWith,
)

Lookup = Callable[[str], Any]
"""Returns the value of a run's field; None if the run has none. Raises KeyError if no run can have the field."""
Test = Callable[[Lookup], bool]
Convert = Callable[[str, Any], Any]
"""Converts a value to the type of its field. Raises InvalidQueryError if no run can have the value."""
MAX_LENGTH = 16_384
MAX_DIGITS = 100
_DURATION_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
}
_PART = re.compile(rf"(\d+(?:\.\d*)?)({'|'.join(_DURATION_UNITS)})")
_DURATION = re.compile(rf"[+-]?(?:{_PART.pattern})+")
_CLOCK = re.compile(r"(\d+):(\d{2}):(\d{2})")
MAX_COMPARED = 50_000_000
"""Values that a filter may compare."""
MAX_COMPARED_AT_ONCE = 100_000
"""Values of one run that a filter may compare."""
_TURN = 20_000
"""Values to compare before others have their turn: some milliseconds."""
_CHARACTERS = 64
"""Characters of a text that count as one value."""


class ComparisonBudget:
    """Limits how many values a filter compares, in total and before other tasks can run."""

    def __init__(self) -> None:
        self.total = 0
        self.at_once = 0
        """The number since other tasks last ran."""

    def spend(self, values: int) -> None:
        """Count values.

        Raises:
            InvalidQueryError: There are too many.
        """
        self.total += values
        self.at_once += values
        if self.total > MAX_COMPARED:
            raise InvalidQueryError(f"the filter compares more than {MAX_COMPARED:,} values; use fewer conditions")
        if self.at_once > MAX_COMPARED_AT_ONCE:
            raise InvalidQueryError(
                f"the filter compares more than {MAX_COMPARED_AT_ONCE:,} values of one run; use fewer conditions"
            )

    async def yield_turn(self) -> None:
        """Let other tasks run if it is time. Call this after each run."""
        if self.at_once >= _TURN:
            self.at_once = 0
            await asyncio.sleep(0)


class RunFields:
    """The fields of one run. Each is looked up once, and counts each time that a filter compares it."""

    def __init__(self, lookup: Lookup, budget: ComparisonBudget) -> None:
        self._lookup = lookup
        self._budget = budget
        self._known: dict[str, tuple[Any, int]] = {}

    def __getitem__(self, name: str) -> Any:
        known = self._known.get(name)
        if known is None:
            value = self._lookup(name)
            known = self._known[name] = value, _weight(value)
        self._budget.spend(known[1])
        return known[0]


def _weight(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_weight, value))
    return 1 + len(value) // _CHARACTERS if isinstance(value, str) else 1


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<quoted>`[^`]+`)
    | (?P<word>[A-Za-z_][A-Za-z0-9_.-]*)
    | (?P<sign>!=|<>|<=|>=|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter."""

    test: Test
    condition: Condition
    group_by: str = ""
    names: frozenset[str] = frozenset()
    """The fields in the filter."""
    budget: ComparisonBudget = field(default_factory=ComparisonBudget)
    """The number of values that the filter has compared."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


def _as_written(_: str, value: Any) -> Any:
    return value


def parse(text: str, convert: Convert = _as_written, lists: Collection[str] = ()) -> Filter:
    """Parse a filter. An empty filter matches every run.

    Args:
        text: The filter.
        convert: Checks its values.
        lists: The fields that are lists or texts.

    Raises:
        InvalidQueryError: The filter is not valid, or uses an unsupported feature.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidQueryError(f"the query is longer than {MAX_LENGTH} characters")
    return _Parser(_tokens(text), convert, lists).query()


def quoted(text: str) -> str:
    """Quote a text for a filter."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise InvalidQueryError(f"syntax error near {text[at : at + 20].strip()!r}")
        found.append(_Token(match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return found


class _Parser:
    def __init__(self, tokens: Sequence[_Token], convert: Convert, lists: Collection[str]) -> None:
        self._tokens = tokens
        self._convert = convert
        self._lists = lists
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def query(self) -> Filter:
        condition: Condition = And(())
        if self._peek() not in {"", "ORDER", "GROUP"}:
            condition = self._or()
        group = ""
        if self._accept("GROUP"):
            self._expect("BY")
            group = self._name()
            if group != "ExecutionStatus":
                raise InvalidQueryError(f"'group by' clause is only supported for ExecutionStatus, not for {group}")
        if self._peek() == "ORDER":
            raise InvalidQueryError("'order by' clause is not supported: the newest runs come first")
        if self._at < len(self._tokens):
            raise InvalidQueryError(f"syntax error near {self._tokens[self._at].text!r}")
        budget = ComparisonBudget()
        return Filter(
            lambda run: bool(condition.holds(RunFields(run, budget))),
            condition,
            group,
            frozenset(self._names),
            budget,
        )

    def _peek(self) -> str:
        return self._tokens[self._at].keyword if self._at < len(self._tokens) else ""

    def _accept(self, keyword: str) -> bool:
        if self._peek() != keyword:
            return False
        self._at += 1
        return True

    def _expect(self, keyword: str) -> None:
        if not self._accept(keyword):
            raise InvalidQueryError(f"expected {keyword!r} near {self._peek() or 'the end'!r}")

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise InvalidQueryError("the query ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _name(self) -> str:
        token = self._next()
        if token.kind not in {"word", "quoted"}:
            raise InvalidQueryError(f"expected the name of a field, not {token.text!r}")
        return token.text.strip("`")

    def _or(self) -> Condition:
        conditions = [self._and()]
        while self._accept("OR"):
            conditions.append(self._and())
        conditions = _combined(conditions, negated=False)
        return conditions[0] if len(conditions) == 1 else Or(tuple(conditions))

    def _and(self) -> Condition:
        conditions = [self._not()]
        while self._accept("AND"):
            conditions.append(self._not())
        conditions = _combined(conditions, negated=True)
        return conditions[0] if len(conditions) == 1 else And(tuple(conditions))

    def _not(self) -> Condition:
        negated = False
        while self._accept("NOT"):
            negated = not negated
        condition = self._operand()
        return Not(condition) if negated else condition

    def _operand(self) -> Condition:
        if self._accept("("):
            self._depth += 1
            if self._depth > 50:  # noqa: PLR2004
                raise InvalidQueryError("parentheses are nested too deeply")
            condition = self._or()
            self._expect(")")
            self._depth -= 1
            return condition
        return self._comparison()

    def _comparison(self) -> Condition:
        name = self._name()
        self._names.add(name)
        if self._accept("IS"):
            negated = self._accept("NOT")
            self._expect("NULL")
            return Missing(name, negated=negated)
        negated = self._accept("NOT")
        optional = name in self._lists
        sign = self._next().keyword
        if sign in {"=", "!=", "<>", "IN"}:
            values = self._values(name) if sign == "IN" else [self._value(name)]
            return Among(name, values, optional=optional, negated=negated is not (sign in {"!=", "<>"}))
        return self._predicate(name, sign, optional=optional, negated=negated)

    def _values(self, name: str) -> list[Any]:
        self._expect("(")
        values = [self._value(name)]
        while self._accept(","):
            values.append(self._value(name))
        self._expect(")")
        return values

    def _predicate(self, name: str, sign: str, *, optional: bool, negated: bool) -> Condition:
        match sign:
            case "BETWEEN":
                low = self._value(name)
                self._expect("AND")
                bounds = (">=", low), ("<=", self._value(name))
                return Ordered(name, bounds, optional=optional, negated=negated)
            case "STARTS_WITH":
                prefix = self._value(name)
                if not isinstance(prefix, str):
                    raise InvalidQueryError("STARTS_WITH takes a text")
                return StartsWith(name, prefix, optional=optional, negated=negated)
            case _ if sign in ORDERS:
                return Ordered(name, ((sign, self._value(name)),), optional=optional, negated=negated)
            case _:
                raise InvalidQueryError(f"operator {sign!r} is not supported for {name}")

    def _value(self, name: str) -> Any:
        return self._convert(name, self._literal())

    def _literal(self) -> Any:
        token = self._next()
        match token.kind:
            case "text":
                return _unquoted(token.text)
            case "number":
                return _number(token.text)
            case "word" if token.keyword in {"TRUE", "FALSE"}:
                return token.keyword == "TRUE"
            case _:
                raise InvalidQueryError(f"expected a value, not {token.text!r}; write strings in quotes")


def _combined(conditions: Sequence[Condition], *, negated: bool) -> list[Condition]:
    """Combine the conditions for the values of one field: `=` joined by OR are IN, `!=` joined by AND are NOT IN."""
    among: dict[str, list[Among]] = {}
    others: list[Condition] = []
    for each in conditions:
        if isinstance(each, Among) and each.negated is negated:
            among.setdefault(each.name, []).append(each)
        else:
            others.append(each)
    return [
        *(
            Among(name, [value for each in same for value in each.wanted], optional=same[0].optional, negated=negated)
            for name, same in among.items()
        ),
        *others,
    ]


def _number(text: str) -> float | int:
    if any(c in text for c in ".eE"):
        return float(text)
    if len(text) > MAX_DIGITS:
        raise InvalidQueryError(f"the number {text[:20]}… has more than {MAX_DIGITS} digits")
    return int(text)


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    if text[0] == "'":
        inner = inner.replace("''", "'")
    return re.sub(r"\\(.)", r"\1", inner)


def nanoseconds(text: str) -> int | None:
    """Parse a duration like Temporal's server in filters: nanoseconds, `1h30m`, `2d` or `hh:mm:ss`; None if it is invalid."""
    if len(text) > MAX_DIGITS:
        return None
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = map(int, clock.groups())
        return (hours * 3_600 + minutes * 60 + seconds) * 10**9
    if not _DURATION.fullmatch(text):
        return None
    total = sum(float(number) * _DURATION_UNITS[unit] for number, unit in _PART.findall(text))
    return round(-total if text.startswith("-") else total)
