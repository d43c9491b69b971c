"""Finds the names that an expression reads: the free names of its tree."""

from typing import Final

from perdure.language.cel.functions import FUNCTIONS
from perdure.language.cel.syntax import Call, Comprehension, Constant, List, Map, Name, Node, Select
from perdure.language.cel.values import TYPES

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
            for part, seen in (
                (node.over, bound),
                (node.start, bound),
                (node.condition, inside),
                (node.step, inside),
                (node.outcome, bound | {node.result}),
            ):
                self._visit(part, seen)
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
