"""The syntax tree of an expression, and the names that it reads: the free names of the tree."""

from dataclasses import dataclass
from typing import Any, Final

from perdure.language.cel.functions import FUNCTIONS
from perdure.language.cel.values import TYPES


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


# The names


_NAMESPACES: Final = frozenset(name.split(".")[0] for name in FUNCTIONS if "." in name) | {"cel", "google"}
RESERVED: Final = _NAMESPACES | {name for name in TYPES if "." not in name}


class NameReader:
    """Collects the free names of a tree, and its reads of fields of `steps` and `signals`."""

    def __init__(self, tree: Node) -> None:
        self.names: set[str] = set()
        self.steps: set[str] = set()
        self.signals: set[str] = set()
        self.every_step = False
        self.every_signal = False
        self._visit(tree, frozenset())

    @staticmethod
    def _field(node: Node, bound: frozenset[str]) -> tuple[str, str] | None:
        """Return the field that a node such as `steps.hotel` or `signals['approved']` reads."""
        match node:
            case Select(Name("steps" | "signals" as root), field, _) if root not in bound:
                return root, field
            case Call("_[_]" | "_[?_]" | "_?._", None, (Name("steps" | "signals" as root), Constant(str(field)))):
                return None if root in bound else (root, field)
            case _:
                return None

    def _visit(self, node: Node, bound: frozenset[str]) -> None:
        found = self._field(node, bound)
        if found is not None:
            self.names.add(found[0])
            (self.steps if found[0] == "steps" else self.signals).add(found[1])
        elif isinstance(node, Name):
            if node.name not in bound:
                self.names.add(node.name)
                self.every_step |= node.name == "steps"
                self.every_signal |= node.name == "signals"
        elif isinstance(node, Comprehension):
            inside = bound | {node.variable, node.result}
            for part, scope in (
                (node.over, bound),
                (node.start, bound),
                (node.condition, inside),
                (node.step, inside),
                (node.outcome, bound | {node.result}),
            ):
                self._visit(part, scope)
        else:
            for part in parts_of(node):
                self._visit(part, bound)


def parts_of(node: Node) -> "tuple[Node, ...]":
    """Yield the direct children of a node that binds no names."""
    match node:
        case Select(operand, _, _):
            return (operand,)
        case Call(function, target, arguments):
            return arguments if target is None or _is_namespace(target, function) else (target, *arguments)
        case List(items, _):
            return items
        case Map(entries):
            return tuple(part for key, item, _ in entries for part in (key, item))
        case _:
            return ()


def _is_namespace(target: Node, function: str) -> bool:
    """Whether the target of a call is only the first half of a name such as `lists.range`."""
    return isinstance(target, Name) and (target.name in _NAMESPACES or f"{target.name}.{function}" in FUNCTIONS)
