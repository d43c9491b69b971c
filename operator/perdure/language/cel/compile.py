"""Compiles sources to programs, with a cache, and finds the parts of a source that read no names and always fail."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from perdure.language.cel.closures import MISSING, Builder, Frame, Run
from perdure.language.cel.functions.conversions import TIME_PARTS
from perdure.language.cel.limits import MAX_SOURCE, CompileError, EvaluationError, LimitError, Meter
from perdure.language.cel.parser import translate
from perdure.language.cel.syntax import RESERVED, Call, Comprehension, Constant, NameReader, Node, parts_of
from perdure.language.cel.values import TYPES

_MAX_OPT_MAPS: Final = 4
_CACHED_PROGRAMS: Final = 1_024


@dataclass(frozen=True, slots=True)
class CompiledExpression:
    """A compiled expression: immutable, and without the state of any evaluation."""

    source: str
    names: frozenset[str]
    """The names that the expression reads from the scope."""
    steps: frozenset[str]
    """The fields of `steps` that the expression reads by name."""
    every_step: bool
    every_signal: bool
    """Whether the expression may read any field of `steps`."""
    signals: frozenset[str]
    """The fields of `signals` that the expression reads by name."""
    _roots: tuple[tuple[str, int], ...]
    _slots: int
    _cost: int
    _run: Run

    def evaluate(self, scope: Mapping[str, Any], meter: Meter) -> Any:
        """Return the value, of a type in `values`. Raises EvaluationError or LimitError."""
        meter.charge(self._cost)
        frame: Frame = [MISSING] * self._slots
        frame[0] = meter
        for name, slot in self._roots:
            frame[slot] = scope.get(name, MISSING)
        try:
            return self._run(frame)
        except (ArithmeticError, TypeError, ValueError) as error:
            # The input has a number beyond 64 bits or a time without a zone: CEL has no such values, but must not crash.
            raise EvaluationError(f"it cannot be computed: {error}") from None


def _refuse_unknown(found: frozenset[str], known: frozenset[str], source: str) -> None:
    """Report an unknown name, and suggest a similar one."""
    for name in sorted(found - known):
        hint = ""
        if re.search(rf"[\w\]]-{re.escape(name)}\b", source):
            hint = "; write a name with a dash in brackets: steps['cool-off']"
        elif near := get_close_matches(name, sorted(known), 1):
            hint = f", did you mean `{near[0]}`"
        listed = ", ".join(sorted(known))
        raise CompileError(f"unknown name `{name}`{hint}; the available names are: {listed or 'none'}")


@functools.lru_cache(maxsize=_CACHED_PROGRAMS)
def compile_source(source: str, names: frozenset[str] | None) -> CompiledExpression:
    """Compile one expression; `names` are the names it may read, None for any."""
    if len(source) > MAX_SOURCE:
        raise CompileError(
            f"it has {len(source)} characters, but at most {MAX_SOURCE} are allowed; split it into several steps"
        )
    if len(re.findall(r"\bopt(?:Flat)?Map\b", source)) > _MAX_OPT_MAPS:
        # The macro copies its target, so each one in a chain doubles the size.
        raise CompileError(f"more than {_MAX_OPT_MAPS} optMap() in one expression; split it into several steps")
    parsed = NameReader(translate(source, frozenset(), check=False))
    for name in sorted(parsed.names & (names or frozenset()) & TYPES.keys()):
        raise CompileError(f"`{name}` is a type in CEL, so it cannot be the name of a variable; give it another name")
    free = frozenset(name for name in parsed.names if name not in RESERVED or (names and name in names))
    if names is not None:
        _refuse_unknown(free, names, source)
    tree = translate(source, free, check=True)
    builder = Builder()
    for name in sorted(free):
        builder.roots[name] = builder.slot()
    run = builder.build(tree)
    return CompiledExpression(
        source=source,
        names=free,
        steps=frozenset(parsed.steps),
        every_step=parsed.every_step,
        every_signal=parsed.every_signal,
        signals=frozenset(parsed.signals),
        _roots=tuple(builder.roots.items()),
        _slots=builder.slots,
        _cost=builder.cost,
        _run=run,
    )


CHECKED_WORK: Final = 2_000
"""Units of work for evaluating one part: a definition may have thousands of parts."""
_CACHED: Final = 1_024
_ABSORBING: Final = frozenset({"_||_", "_&&_", "@not_strictly_false"})
_ONE_OR_THE_OTHER: Final = "_?_:_"
_INSTEAD: Final = frozenset({"orValue", "or"})
_DIVIDING: Final = frozenset({"_/_", "_%_"})
_OF_TIMES: Final = frozenset({*TIME_PARTS, "strftime"})
_ANY_TIME: Final = Call("timestamp", None, (Constant(0),))


@dataclass(frozen=True, slots=True)
class Failing:
    """A part of an expression that fails whenever it is reached."""

    message: str
    certain: bool
    """Whether every evaluation reaches the part: it is not in a branch, and nothing absorbs its failure."""


@functools.lru_cache(maxsize=_CACHED)
def failing_parts(source: str) -> tuple[Failing, ...]:
    """Return the parts of an expression that always fail; none if it does not compile, which other checks report."""
    try:
        free = frozenset(NameReader(translate(source, frozenset(), check=False)).names - RESERVED)
        tree = translate(source, free, check=True)
    except CompileError:
        return ()
    return tuple(_parts(tree, certain=True))


def _parts(node: Node, *, certain: bool) -> Iterator[Failing]:
    if not _reads(node):
        message = _failure(node)
        if message is not None:
            yield Failing(message, certain)
        return
    probe = _probe(node)
    message = _failure(probe) if probe is not None else None
    if message is not None:
        yield Failing(message, certain)
        return
    for part, reached in _below(node):
        yield from _parts(part, certain=certain and reached)


def _below(node: Node) -> Iterator[tuple[Node, bool]]:
    """Yield the direct parts of a node, and whether a failure of the part always fails the node."""
    match node:
        case Comprehension():
            yield from ((node.over, True), (node.start, True), (node.condition, False), (node.step, False))
            yield node.outcome, True
        case Call(function, _, arguments) if function == _ONE_OR_THE_OTHER:
            yield from zip(arguments, (True, False, False), strict=True)
        case Call(function, _, _) if function in _ABSORBING:
            yield from ((part, False) for part in parts_of(node))
        case Call(function, _, _) if function in _INSTEAD:
            first, *others = parts_of(node)
            yield first, True
            yield from ((part, False) for part in others)
        case _:
            yield from ((part, True) for part in parts_of(node))


def _reads(node: Node) -> bool:
    return bool(NameReader(node).names - RESERVED)


def _probe(node: Node) -> Node | None:
    """Return the node with values in place of its names, if these values cannot affect the result."""
    match node:
        case Call("matches", target, (Constant(str()),)) if target is not None and _reads(target):
            return replace(node, target=Constant(""))
        case Call("matches", None, (text, Constant(str()) as pattern)) if _reads(text):
            return replace(node, arguments=(Constant(""), pattern))
        case Call(function, None, (_, Constant(0) as zero)) if function in _DIVIDING and type(zero.value) is int:
            return replace(node, arguments=(Constant(1), zero))
        case Call(function, target, arguments) if function in _OF_TIMES and arguments and target is not None:
            is_known = all(isinstance(each, Constant) and isinstance(each.value, str) for each in arguments)
            return replace(node, target=_ANY_TIME) if is_known and _reads(target) else None
        case _:
            return None


def _failure(node: Node) -> str | None:
    """Return why a node without names has no value; None if it has one, or if its evaluation exceeds the limit of work."""
    meter = Meter(CHECKED_WORK)
    try:
        builder = Builder()
        run = builder.build(node)
        frame: Frame = [MISSING] * builder.slots
        frame[0] = meter
        meter.charge(builder.cost)
        run(frame)
    except (EvaluationError, LimitError, CompileError) as error:
        return None if meter.left < 0 else str(error)
    except (ArithmeticError, TypeError, ValueError) as error:
        return f"it cannot be computed: {error}"
    return None
