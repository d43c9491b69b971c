"""Templates: JSON values whose strings may contain CEL expressions in ``${…}``.

cel-expr-python (cel-cpp) parses and type-checks an expression in 16 us; cel-python takes 130 us, and does not support `cel.bind`,
`split`, or optionals. Our own evaluator runs the compiled expression (3 us for a condition, the same as cel-cpp), because the
evaluator of cel-cpp iterates over maps in a different order in each process and does not bound a single step (200 calls of
replace() on a payload blocked the interpreter for 1.9 s). docs/expressions.md has the figures; the worst of about fifty attacks
on our evaluator takes 75 ms.

A template is compiled once. Its value depends on the scope alone: no clock, no I/O, the same value on every machine, and at
most `cel.limits.BUDGET` units of work for the whole template.
"""

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from perdure.language.cel import (
    MAX_DEPTH,
    CompiledExpression,
    CompileError,
    EvaluationError,
    LimitError,
    Meter,
    article,
    compile_source,
    format_duration,
    format_timestamp,
    kind,
)

_SHOWN: Final = 120
"""Maximum characters of an expression in messages."""


class ExpressionError(Exception):
    """An expression does not compile, or has no value for this scope."""

    def __init__(self, expression: str, path: str, message: str) -> None:
        super().__init__(expression, path, message)
        self.expression = expression
        """The CEL source, without ``${`` and ``}``."""
        self.path = path
        """Path of the expression in the value: ``input.items[0]``."""
        self.message = message
        """The problem, and how to fix it."""

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}${{{_clip(self.expression)}}}: {self.message}"


def _clip(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


MAX_EXPRESSIONS: Final = 256
"""Maximum number of expressions in one template."""
MAX_RESULT: Final = 262_144
"""Maximum bytes of the value of a template, as JSON."""


@dataclass(frozen=True, slots=True)
class References:
    """The names that a template reads."""

    roots: frozenset[str] = frozenset()
    """Names of the scope: ``input``, ``steps``, …"""
    steps: frozenset[str] = frozenset()
    """The steps that the template reads by name."""
    every_step: bool = False
    """Whether the template may read any step."""
    signals: frozenset[str] = frozenset()
    """The signals that the template reads by name."""
    every_signal: bool = False
    """Whether the template may read any signal."""


@dataclass(frozen=True, slots=True)
class _Expression:
    """A whole-string expression: its value keeps its type."""

    program: CompiledExpression
    path: str


@dataclass(frozen=True, slots=True)
class _Text:
    """Text with expressions in it."""

    parts: tuple[str | _Expression, ...]
    path: str


@dataclass(frozen=True, slots=True)
class _Literal:
    """A constant scalar."""

    value: Any


@dataclass(frozen=True, slots=True)
class _ListOf:
    items: "tuple[_Part, ...]"


@dataclass(frozen=True, slots=True)
class _MapOf:
    entries: "tuple[tuple[str, _Part], ...]"


_Part = _Expression | _Text | _Literal | _ListOf | _MapOf


class Template:
    """A JSON value whose strings may contain ``${…}``: compiled once, immutable."""

    __slots__ = ("_condition", "_part", "_path", "is_expression", "places", "references", "sources")

    sources: tuple[str, ...]
    """The CEL sources of its expressions, in order."""
    places: tuple[tuple[str, str], ...]
    """The path and the source of each expression."""
    is_expression: bool
    """Whether the value is a single expression."""
    references: References
    """The names that the template reads."""

    def __init__(self, part: _Part, path: str, *, condition: bool = False) -> None:
        self._part = part
        self._path = path
        self._condition = condition
        found = tuple(_expressions(part))
        programs = tuple(expression.program for expression in found)
        self.places = tuple((expression.path, expression.program.source) for expression in found)
        self.sources = tuple(program.source for program in programs)
        self.is_expression = isinstance(part, _Expression)
        self.references = References(
            roots=frozenset[str]().union(*(program.names for program in programs)),
            steps=frozenset[str]().union(*(program.steps for program in programs)),
            every_step=any(program.every_step for program in programs),
            signals=frozenset[str]().union(*(program.signals for program in programs)),
            every_signal=any(program.every_signal for program in programs),
        )

    def __repr__(self) -> str:
        return f"Template(sources={self.sources!r})"

    @property
    def path(self) -> str:
        """The path of the value in its manifest."""
        return self._path

    @property
    def pieces(self) -> tuple[str | None, ...]:
        """The pieces of a text: literal text, and None for each expression."""
        parts = self._part.parts if isinstance(self._part, _Text) else (self._part,)
        known = (part.value if isinstance(part, _Literal) else part for part in parts)
        return tuple(piece if isinstance(piece, str) else None for piece in known)

    def evaluate(
        self, scope: Mapping[str, Any], meter: Meter | None = None, write: Callable[[Any], str] | None = None
    ) -> Any:
        """The value as JSON, with every expression replaced by its value; raises ExpressionError.

        Args:
            scope: The values of the names.
            meter: Charged for the work; None gives the template the whole `cel.limits.BUDGET`.
            write: Writes out the value of an expression as text, also of one that is the whole string. Without it, such
                a value keeps its type.
        """
        made = _Evaluation(scope, meter or Meter(), write)
        try:
            value = made.part(self._part)
            made.finish(value)
        except _TooLargeError:
            raise ExpressionError("", self._path, _TOO_LARGE) from None
        if self._condition and not isinstance(value, bool):
            raise ExpressionError(
                self.sources[0],
                self._path,
                f"a condition must give true or false, and this gives {article(kind(value))}; compare it with something",
            )
        return value


def compile_template(value: Any, *, path: str = "", names: Collection[str] | None = None) -> Template:
    """Compile a JSON value.

    Args:
        value: The value. A string that is one ``${…}`` becomes the expression's value with its type; in longer text the
            value is written out; ``$${`` is a literal ``${``. The keys of maps are never computed.
        path: Path of the value, for messages.
        names: The names that expressions may read; None for any.

    Raises:
        ExpressionError: An expression does not parse or type-check, reads an unknown name, or is too long.
    """
    return Template(_TemplateCompiler(names).part(value, path, 0), path)


def compile_condition(value: str, *, path: str = "", names: Collection[str] | None = None) -> Template:
    """Compile a string that must be a single ``${…}`` with a boolean value."""
    part = _TemplateCompiler(names).part(value, path, 0)
    if not isinstance(part, _Expression):
        raise ExpressionError(
            str(value), path, "a condition must be one expression and nothing else, such as ${input.nights > 0}"
        )
    return Template(part, path, condition=True)


# --- compiling -------------------------------------------------------------------------------------------------------


class _TemplateCompiler:
    """Walks a value and compiles its strings."""

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = None if names is None else frozenset(names)
        self._count = 0

    def part(self, value: Any, path: str, depth: int) -> _Part:
        if depth > MAX_DEPTH:
            raise ExpressionError("", path, f"the value is nested more than {MAX_DEPTH} deep")
        match value:
            case str():
                return self._string(value, path)
            case list() | tuple():
                return _ListOf(
                    tuple(self.part(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
                )
            case dict():
                return _MapOf(
                    tuple(
                        (self._key(key, path), self.part(item, f"{path}.{key}" if path else str(key), depth + 1))
                        for key, item in value.items()
                    )
                )
            case _:
                return _Literal(value)

    @staticmethod
    def _key(key: str, path: str) -> str:
        if "${" in key.replace("$${", ""):
            raise ExpressionError(
                key, path, "the keys of a map are not computed; make the map in one expression: ${ {input.key: 1} }"
            )
        return key.replace("$${", "${")

    def _string(self, text: str, path: str) -> _Part:
        if "${" not in text:
            return _Literal(text)
        parts = [
            piece if isinstance(piece, str) else self._expression(piece.source, path) for piece in _split(text, path)
        ]
        if len(parts) == 1:
            only = parts[0]
            return _Literal(only) if isinstance(only, str) else only
        return _Text(tuple(parts), path)

    def _expression(self, source: str, path: str) -> _Expression:
        self._count += 1
        if self._count > MAX_EXPRESSIONS:
            raise ExpressionError(
                source, path, f"more than {MAX_EXPRESSIONS} expressions in one value; use several steps"
            )
        if not source.strip():
            raise ExpressionError(source, path, "it is empty; write $${ for a literal ${")
        try:
            return _Expression(compile_source(source, self._names), path)
        except CompileError as error:
            raise ExpressionError(source, path, str(error)) from None


def _expressions(part: _Part) -> Iterator[_Expression]:
    match part:
        case _Expression():
            yield part
        case _Text(parts, _):
            yield from (piece for piece in parts if isinstance(piece, _Expression))
        case _ListOf(items):
            for item in items:
                yield from _expressions(item)
        case _MapOf(entries):
            for _, item in entries:
                yield from _expressions(item)
        case _Literal():
            pass


# --- expressions in texts --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    """The text between the braces."""

    source: str


def _split(text: str, path: str) -> Iterator[str | _Source]:
    """Split a string into literal pieces and expressions."""
    literal: list[str] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            literal.append(text[at : start - 1] + "${")
            at = start + 2
            continue
        literal.append(text[at:start])
        if any(literal):
            yield "".join(literal)
        literal = []
        end = _closing(text, start + 2)
        if end < 0:
            raise ExpressionError(text[start + 2 :], path, "the closing } is missing; write $${ for a literal ${")
        yield _Source(text[start + 2 : end])
        at = end + 1
    literal.append(text[at:])
    if any(literal):
        yield "".join(literal)


def sources_in(text: str) -> Iterator[str]:
    """Yield the text between the braces of each complete ``${…}`` of a text, except after ``$${``."""
    at = 0
    while (start := text.find("${", at)) >= 0:
        at = start + 2
        if start and text[start - 1] == "$":
            continue
        end = _closing(text, at)
        if end >= 0:
            yield text[at:end]
            at = end + 1


def _closing(text: str, at: int) -> int:
    """Return the end of the expression that begins at `at`: the first } outside of braces, strings, and comments."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "'\"":
            at = _string_end(text, at)
            continue
        if text.startswith("//", at):
            at = text.find("\n", at)
            if at < 0:
                return -1
        elif char == "{":
            depth += 1
        elif char == "}":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    return -1


def _string_end(text: str, at: int) -> int:
    """The position after the string that begins at `at`; the end of the text if it never ends."""
    raw = text[at - 1 : at] in {"r", "R"} or text[at - 2 : at].lower() in {"rb", "br"}
    quote = text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]
    at += len(quote)
    while at < len(text):
        if text[at] == "\\" and not raw:
            at += 2
        elif text.startswith(quote, at):
            return at + len(quote)
        else:
            at += 1
    return len(text)


# --- evaluating ------------------------------------------------------------------------------------------------------


class _TooLargeError(Exception):
    """The result exceeds `MAX_RESULT`."""


class _Evaluation:
    """One evaluation: the scope, the budget of work, and the size of the result so far."""

    def __init__(self, scope: Mapping[str, Any], meter: Meter, write: Callable[[Any], str] | None) -> None:
        self._scope = scope
        self._meter = meter
        self._write = write
        self._size = 0

    def part(self, part: _Part) -> Any:
        match part:
            case _Literal(value):
                self._grow(len(value) if isinstance(value, str) else 4)
                return value
            case _Expression():
                return self._value(part) if self._write is None else self._text(part)
            case _Text(parts, _):
                self._grow(sum(len(piece) for piece in parts if isinstance(piece, str)) + 2)
                return "".join(piece if isinstance(piece, str) else self._text(piece) for piece in parts)
            case _ListOf(items):
                self._grow(len(items) + 1)
                return [self.part(item) for item in items]
            case _MapOf(entries):
                self._grow(sum(len(key) + 4 for key, _ in entries) + 1)
                return {key: self.part(item) for key, item in entries}

    def finish(self, value: Any) -> None:
        """Reject a result whose JSON is too large; only a result near the limit is encoded to measure it."""
        escaped = 6  # a character of text takes at most six bytes of JSON
        if self._size * escaped > MAX_RESULT and len(_json(value).encode("utf-8", "surrogatepass")) > MAX_RESULT:
            raise _TooLargeError

    def _value(self, expression: _Expression) -> Any:
        program = expression.program
        try:
            return self._plain(program.evaluate(self._scope, self._meter), 0)
        except (EvaluationError, LimitError) as error:
            raise ExpressionError(program.source, expression.path, str(error)) from None
        except _TooLargeError:
            raise ExpressionError(program.source, expression.path, _TOO_LARGE) from None

    def _text(self, expression: _Expression) -> str:
        before = self._size
        value = self._value(expression)
        text = (self._write or format_text)(value)
        self._size = before
        try:
            self._grow(len(text))
        except _TooLargeError:
            raise ExpressionError(expression.program.source, expression.path, _TOO_LARGE) from None
        return text

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_RESULT:
            raise _TooLargeError

    def _plain(self, value: Any, depth: int) -> Any:
        """Convert a value of CEL to new JSON."""
        form = type(value)
        if form is list:
            return self._list(value, depth)
        if form is dict:
            return self._map(value, depth)
        type_name = kind(value)
        if type_name in _SCALAR_SIZES:
            self._meter.charge(2)
            self._grow(_SCALAR_SIZES[type_name] + (len(value) if type_name == "string" else 0))
            return value
        if type_name == "list":
            return self._list(value, depth)
        return self._map(value, depth) if type_name == "map" else self._other(type_name, value)

    def _list(self, values: Collection[Any], depth: int) -> list[Any]:
        """Convert a list. A result can have a hundred thousand values, so the most frequent types are handled here."""
        if depth >= MAX_DEPTH:
            raise LimitError(_TOO_DEEP)
        self._meter.charge(4 + len(values))
        made: list[Any] = []
        size = max(len(values) + 1, 2)
        for value in values:
            form = type(value)
            if form is str:
                size += len(value) + 2
                made.append(value)
            elif form is int or form is bool or value is None:
                size += 1
                made.append(value)
            else:
                made.append(self._plain(value, depth + 1))
        self._grow(size)
        return made

    def _map(self, entries: dict[Any, Any], depth: int) -> dict[str, Any]:
        """Convert a map in the same way."""
        if depth >= MAX_DEPTH:
            raise LimitError(_TOO_DEEP)
        self._meter.charge(4 + 4 * len(entries))
        made: dict[str, Any] = {}
        size = max(len(entries) * 2 + 1, 2)
        for key, value in entries.items():
            if not isinstance(key, str):
                raise EvaluationError(
                    f"the result has a map with the key {key!r}, and keys of JSON are strings; use string({key!r})"
                )
            size += len(key) + 2
            form = type(value)
            if form is str:
                size += len(value) + 2
                made[key] = value
            elif form is int or form is bool or value is None:
                size += 1
                made[key] = value
            else:
                made[key] = self._plain(value, depth + 1)
        self._grow(size)
        return made

    def _other(self, found: str, value: Any) -> Any:
        """Convert a value without a JSON type, or raise an error with the reason why it cannot be converted."""
        self._meter.charge(20)
        match found:
            case "double" if math.isfinite(value):
                self._grow(3)
                return value
            case "timestamp" | "duration":
                text = format_timestamp(value) if found == "timestamp" else format_duration(value)
                self._grow(len(text) + 2)
                return text
            case _:
                raise EvaluationError(_REMEDIES[found])


_SCALAR_SIZES: Final = {"null": 4, "bool": 4, "int": 1, "string": 2}
"""The minimum size of a scalar in JSON; a string adds its characters."""
_TOO_LARGE: Final = (
    f"the result is more than {MAX_RESULT} bytes of JSON; keep large data elsewhere and pass a reference to it"
)
_TOO_DEEP: Final = f"the result is nested more than {MAX_DEPTH} deep"
_REMEDIES: Final = {
    "double": "the result is not a finite number, which JSON cannot represent; test for it with math.isFinite()",
    "bytes": "the result is bytes, which JSON does not support; use string() for text, base64.encode() for anything else",
    "type": "the result is a type, which JSON does not support; compare it instead: type(input.x) == string",
    "optional": "the result is an optional; say what to use when it is empty: input.?name.orValue('nobody')",
}


def format_text(value: Any) -> str:
    """Format a value within longer text: text unchanged, everything else as JSON."""
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    """JSON with sorted keys, so that its text does not depend on the order of a map."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
