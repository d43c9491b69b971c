"""Finds the paths that an expression reads, such as `input.guest.name`, and those whose existence it tests."""

import functools
from dataclasses import dataclass
from typing import Final

from perdure.language.cel import CompileError, parse
from perdure.language.cel.references import parts_of
from perdure.language.cel.syntax import Call, Comprehension, Constant, Name, Node, Select

Path = tuple[str | int, ...]
"""A root, followed by fields and indices."""

_CACHED: Final = 1_024
_OPTIONAL: Final = frozenset({"_?._", "_[?_]"})


@dataclass(frozen=True, slots=True)
class Reads:
    """The paths of one expression."""

    paths: frozenset[Path] = frozenset()
    """The paths that the expression reads, up to the first computed key or index."""
    guarded: frozenset[Path] = frozenset()
    """The paths whose existence the expression tests with `has()`, `in`, or an optional."""
    tested: frozenset[str] = frozenset()
    """The paths within `has()`, as they are written."""
    bound: frozenset[str] = frozenset()
    """The loop variables of the expression."""
    doubles: bool = False
    """Whether the expression contains a number with a fraction."""
    alone: Path | None = None
    """The path, if the whole expression is one."""


@functools.lru_cache(maxsize=_CACHED)
def reads_of(source: str) -> Reads:
    """Find the paths that an expression reads; none if it is not valid."""
    try:
        tree = parse(source)
    except CompileError:
        return Reads()
    reader = _PathReader(tree)
    return Reads(
        frozenset(reader.paths),
        frozenset(reader.guarded),
        frozenset(reader.tested),
        frozenset(reader.bound),
        reader.doubles,
        _path(tree, frozenset()),
    )


class _PathReader:
    def __init__(self, tree: Node) -> None:
        self.paths: set[Path] = set()
        self.guarded: set[Path] = set()
        self.tested: set[str] = set()
        self.bound: set[str] = set()
        self.doubles = False
        self._visit(tree, frozenset())

    def _visit(self, node: Node, bound: frozenset[str]) -> None:
        path = _path(node, bound)
        if path is not None:
            self.paths.add(path)
            return
        match node:
            case Constant(value):
                self.doubles |= isinstance(value, float)
            case Select(operand, field, test):
                self._below(operand, field, bound, guard=test)
            case Call(function, None, (operand, Constant(str(field)))) if function in _OPTIONAL:
                self._below(operand, field, bound, guard=True)
            case Call("@in", None, (Constant(str(field)), where)):
                self._below(where, field, bound, guard=True)
            case Comprehension():
                self._loop(node, bound)
            case _:
                for part in parts_of(node):
                    self._visit(part, bound)

    def _loop(self, node: Comprehension, bound: frozenset[str]) -> None:
        self.bound |= {node.variable, node.result}
        self._visit(node.over, bound)
        self._visit(node.start, bound)
        for part in (node.condition, node.step, node.outcome):
            self._visit(part, bound | {node.variable, node.result})

    def _below(self, operand: Node, field: str, bound: frozenset[str], *, guard: bool) -> None:
        """Visit a field of a value that is not a path, or a field that is tested."""
        path = _path(operand, bound)
        if path is not None and guard:
            self.guarded.add((*path, field))
            self.tested.add(".".join(map(str, (*path, field))))
        self._visit(operand, bound)


def _path(node: Node, bound: frozenset[str]) -> Path | None:
    match node:
        case Name(name):
            return None if name in bound or name.startswith(("@", "__")) else (name,)
        case Select(operand, field, False):
            inner = _path(operand, bound)
            return None if inner is None else (*inner, field)
        case Call("_[_]", None, (operand, Constant(str() | int() as key))) if not isinstance(key, bool):
            inner = _path(operand, bound)
            return None if inner is None else (*inner, key)
        case _:
            return None
