"""Finds the parts of an expression that read no names and always fail."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from perdure.language.cel.closures import MISSING, Builder, Frame
from perdure.language.cel.errors import CompileError, EvaluationError, LimitError
from perdure.language.cel.limits import Meter
from perdure.language.cel.parser import translate
from perdure.language.cel.syntax import RESERVED, Call, Comprehension, Constant, NameReader, Node, parts_of

CHECKED_WORK: Final = 2_000
"""Units of work for evaluating one part: a definition may have thousands of parts."""
_CACHED: Final = 1_024
_ABSORBING: Final = frozenset({"_||_", "_&&_", "@not_strictly_false"})
_ONE_OR_THE_OTHER: Final = "_?_:_"
_INSTEAD: Final = frozenset({"orValue", "or"})
_DIVIDING: Final = frozenset({"_/_", "_%_"})


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
