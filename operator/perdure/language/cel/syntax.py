"""The syntax tree of an expression."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, as its value."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a type; also `a.b` if the type checker treats it as one name."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, or `has(operand.field)` when it is a test."""

    operand: "Node"
    field: str
    test: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an operator (`_+_`) or a method, which has a target."""

    function: str
    target: "Node | None"
    arguments: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class List:
    """`[…]`; `optional` has the indices of items written with a `?`."""

    items: "tuple[Node, ...]"
    optional: frozenset[int]


@dataclass(frozen=True, slots=True)
class Map:
    """`{…}`: key, value, and whether the key has a `?`."""

    entries: "tuple[tuple[Node, Node, bool], ...]"


@dataclass(frozen=True, slots=True)
class Comprehension:
    """The expansion of macros (`all`, `map`, `cel.bind`, …): a result that is updated for each item of `over`."""

    variable: str
    over: "Node"
    result: str
    start: "Node"
    condition: "Node"
    step: "Node"
    outcome: "Node"


Node = Constant | Name | Select | Call | List | Map | Comprehension


def spell(node: Node) -> str:
    """Return the source text of a path; empty for any other node."""
    match node:
        case Name(name):
            return name if not name.startswith(("@", "__")) else ""
        case Select(operand, field, False) if spelled := spell(operand):
            return f"{spelled}.{field}"
        case Call("_[_]", None, (operand, Constant(int() | str() as index))) if spelled := spell(operand):
            return f"{spelled}[{index!r}]"
        case _:
            return ""
