"""Turns a syntax tree into closures, which evaluate an expression and charge a meter for each step.

A closure gets a frame, which holds the meter and the variables. `Builder` makes one for each node of the tree. Operators that
decide which of their operands are evaluated, and the most frequent ones, have closures of their own; all others call a function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from perdure.language.cel.functions import FUNCTIONS, call, plain_name
from perdure.language.cel.functions.strings import matches
from perdure.language.cel.limits import CompileError, EvaluationError, Meter
from perdure.language.cel.syntax import Call, Comprehension, Constant, List, Map, Name, Node, Select, spell
from perdure.language.cel.values import (
    NONE,
    TYPES,
    Optional,
    article,
    comparable,
    contains,
    equal,
    kind,
    map_key,
    short,
    sorted_keys,
)

Frame: TypeAlias = list[Any]
"""Slot 0 holds the meter, the others hold variables."""
Run: TypeAlias = Callable[[Frame], Any]
"""Evaluates a node."""
Build: TypeAlias = Callable[[Node], Run]
"""Turns a node into its closure."""
MISSING: Final = object()
"""The marker for a variable without a value."""
ABSORBED: Final = 40
"""Cost of raising and catching an error."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An error as the result of a loop: the next round may absorb it."""

    error: EvaluationError


def boolean(value: Any, operator: str) -> bool:
    """Return the value if it is true or false; otherwise raise EvaluationError."""
    if value is True or value is False:
        return bool(value)
    raise EvaluationError(f"`{operator}` works on true and false, not on {article(kind(value))}")


def present(value: Any) -> bool:
    """Whether an optional has a value; raises EvaluationError for anything else."""
    if type(value) is not Optional:
        raise EvaluationError(f"`?` needs an optional, such as input.?name, not {article(kind(value))}")
    return value.present


# Fields and items of values; errors list the existing ones


_LISTED: Final = 20
_YAML_TRUE: Final = frozenset({"y", "yes", "on"})
_YAML_FALSE: Final = frozenset({"n", "no", "off"})
"""Words that YAML 1.1 (used by kubectl) parses as booleans, even as keys."""


def no_field(where: dict[Any, Any], spelled: str, field: Any) -> EvaluationError:
    """Report a missing key, with the existing keys."""

    def describe() -> str:
        names = sorted(str(key) for key in where)
        shown = ", ".join(short(name)[1:-1] for name in names[:_LISTED])
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        tail = f"it has: {shown}{more}" if names else "it is empty"
        if str(field).lower() in _YAML_TRUE | _YAML_FALSE and {"true", "false"} & set(names):
            read = str(str(field).lower() in _YAML_TRUE).lower()
            tail += f"; YAML reads {field} without quotes as {read}: write the key as '{field}' in the manifest"
        return f"{spelled or 'the value'} has no field `{short(str(field))[1:-1]}`; {tail}"

    return EvaluationError(describe)


def get_item(value: Any, key: Any, spelled: str) -> Any:
    """`value.key` or `value[key]`; a missing key or index raises EvaluationError; `MISSING` is never returned."""
    type_name = kind(value)
    if type_name == "map":
        try:
            return value[map_key(key)]
        except KeyError:
            raise no_field(value, spelled, key) from None
    if type_name == "list":
        if isinstance(key, bool) or not isinstance(key, int | float) or key != int(key):
            raise EvaluationError(
                f"{spelled or 'the value'} is a list, whose items have numbers, not {short(str(key))}"
            )
        index = int(key)
        if 0 <= index < len(value):
            return value[index]
        raise EvaluationError(f"{spelled or 'the list'} has {len(value)} items, so item {index} does not exist")
    what = type_name if type_name == "null" else article(type_name)
    raise EvaluationError(f"{spelled or 'the value'} is {what}, so it has no field {short(str(key))}")


def find_item(value: Any, key: Any) -> Optional:
    """`value.?key` or `value[?key]`: an optional; the value may be an optional, too."""
    if type(value) is Optional:
        return find_item(value.value, key) if value.present else NONE
    type_name = kind(value)
    if type_name == "map":
        try:
            return Optional(present=True, value=value[map_key(key)])
        except (KeyError, EvaluationError):
            return NONE
    if type_name == "list" and type(key) is int:
        return Optional(present=True, value=value[key]) if 0 <= key < len(value) else NONE
    raise EvaluationError(f"{article(type_name) if type_name != 'null' else type_name} has no fields to look for")


def loop_items(meter: Meter, value: Any) -> list[Any]:
    """The items of a loop: those of a list, or the keys of a map in order."""
    type_name = kind(value)
    if type_name == "list":
        return value  # type: ignore[no-any-return]
    if type_name == "map":
        return sorted_keys(meter, value)
    raise EvaluationError(
        f"{article(type_name) if type_name != 'null' else type_name} cannot be iterated; use a list or a map"
    )


# The loops of comprehensions


@dataclass(frozen=True, slots=True)
class CompiledComprehension:
    """A compiled loop: its range, the slots of item and result, and the cost of one round."""

    over: Run
    item: int
    """Slot of the item."""
    result: int
    """Slot of the result."""
    cost: int


def collect(loop: CompiledComprehension, keep: Run | None, make: Run) -> Run:
    """`map` and `filter`: append each result, instead of copying the list each time as CEL's own definition does."""
    over, item, result, cost = loop.over, loop.item, loop.result, loop.cost

    def run(frame: Frame) -> None:
        charge = frame[0].charge
        made: list[Any] = []
        for value in loop_items(frame[0], over(frame)):
            charge(cost)
            frame[item] = value
            if keep is None or boolean(keep(frame), "filter"):
                made.append(make(frame))
        frame[result] = made

    return run


def fold(loop: CompiledComprehension, condition: Run, step: Run, *, absorbs: bool) -> Run:
    """`all`, `exists`, `exists_one` and `cel.bind`, by CEL's definition."""
    over, item, result, cost = loop.over, loop.item, loop.result, loop.cost

    def run(frame: Frame) -> None:
        charge = frame[0].charge
        for value in loop_items(frame[0], over(frame)):
            charge(cost)
            frame[item] = value
            if not condition(frame):
                break
            try:
                frame[result] = step(frame)
            except EvaluationError as error:
                if not absorbs:
                    raise
                charge(ABSORBED)
                frame[result] = Raised(error.with_traceback(None))

    return run


# Operators, and functions that may not evaluate their arguments


def _index(build: Build, operand: Node, key: Node) -> Run:
    inner, at, spelled = build(operand), build(key), spell(operand)

    def index(frame: Frame) -> Any:
        value = inner(frame)
        return find_item(value, at(frame)) if type(value) is Optional else get_item(value, at(frame), spelled)

    return index


def _optional_index(build: Build, operand: Node, key: Node) -> Run:
    inner, at = build(operand), build(key)
    return lambda frame: find_item(inner(frame), at(frame))


def _optional(value: Any, function: str) -> Optional:
    """Return the operand of a function as an optional.

    Raises:
        EvaluationError: It is none.
    """
    if type(value) is not Optional:
        raise EvaluationError(f"{function}() needs an optional, such as input.?name, not {article(kind(value))}")
    return value


def _or_value(build: Build, operand: Node, other: Node) -> Run:
    inner, instead = build(operand), build(other)

    def or_value(frame: Frame) -> Any:
        value = _optional(inner(frame), "orValue")
        return value.value if value.present else instead(frame)

    return or_value


def _or_else(build: Build, operand: Node, other: Node) -> Run:
    inner, instead = build(operand), build(other)

    def or_else(frame: Frame) -> Any:
        value = _optional(inner(frame), "or")
        return value if value.present else instead(frame)

    return or_else


def _logic(operator: str, *, decides: bool) -> Callable[[Build, Node, Node], Run]:
    """`&&` and `||`: a side that determines the result takes precedence, even over an error of the other side."""

    def make(build: Build, left: Node, right: Node) -> Run:
        first, second = build(left), build(right)

        def logic(frame: Frame) -> bool:
            try:
                if boolean(first(frame), operator) is decides:
                    return decides
                failed = None
            except EvaluationError as error:
                failed = error.with_traceback(None)
            if failed is None:
                return boolean(second(frame), operator)
            # Outside of the handler: otherwise each error would hold the previous one, and raising would walk them all.
            frame[0].charge(ABSORBED)
            try:
                if boolean(second(frame), operator) is decides:
                    return decides
                raise failed
            finally:
                failed = None  # an error that a frame of its own traceback refers to would leave both to the garbage collector

        return logic

    return make


def _not(build: Build, operand: Node) -> Run:
    inner = build(operand)
    return lambda frame: not boolean(inner(frame), "!")


def _not_strictly_false(build: Build, operand: Node) -> Run:
    inner = build(operand)

    def holds(frame: Frame) -> bool:
        try:
            return inner(frame) is not False
        except EvaluationError:
            frame[0].charge(ABSORBED)
            return True

    return holds


def _conditional(build: Build, condition: Node, yes: Node, no: Node) -> Run:
    test, then, otherwise = build(condition), build(yes), build(no)
    return lambda frame: then(frame) if boolean(test(frame), "? :") else otherwise(frame)


def _equal(build: Build, left: Node, right: Node) -> Run:
    first, second = build(left), build(right)
    return lambda frame: equal(frame[0], first(frame), second(frame))


def _unequal(build: Build, left: Node, right: Node) -> Run:
    first, second = build(left), build(right)
    return lambda frame: not equal(frame[0], first(frame), second(frame))


def _in(build: Build, item: Node, container: Node) -> Run:
    first, second = build(item), build(container)
    return lambda frame: contains(frame[0], first(frame), second(frame))


def _comparison(decide: Callable[[Any, Any], bool]) -> Callable[[Build, Node, Node], Run]:
    def make(build: Build, left: Node, right: Node) -> Run:
        first, second = build(left), build(right)

        def compare(frame: Frame) -> bool:
            a, b = first(frame), second(frame)
            comparable(frame[0], a, b)
            return decide(a, b)

        return compare

    return make


def _matches(build: Build, text: Node, pattern: Node) -> Run:
    first, second = build(text), build(pattern)
    return lambda frame: matches(frame[0], first(frame), second(frame))


OPERATORS: Final[dict[str, Callable[..., Run]]] = {
    "_[_]": _index,
    "_[?_]": _optional_index,
    "_?._": _optional_index,
    "orValue": _or_value,
    "or": _or_else,
    "_&&_": _logic("&&", decides=False),
    "_||_": _logic("||", decides=True),
    "!_": _not,
    "@not_strictly_false": _not_strictly_false,
    "_?_:_": _conditional,
    "_==_": _equal,
    "_!=_": _unequal,
    "@in": _in,
    "_<_": _comparison(lambda a, b: a < b),
    "_<=_": _comparison(lambda a, b: a <= b),
    "_>_": _comparison(lambda a, b: a > b),
    "_>=_": _comparison(lambda a, b: a >= b),
    "matches": _matches,
}
"""The builders of closures, by function name in the syntax tree. Arguments: `build`, then the operands, a target first."""


# The tree


class Builder:
    """Turns nodes into closures over one frame."""

    def __init__(self) -> None:
        self.roots: dict[str, int] = {}
        """Slots of the variables that the expression reads."""
        self.slots = 1
        """Size of the frame."""
        self.cost = 0
        """Cost of one evaluation, without its loops."""
        self._bound: dict[str, int] = {}

    def slot(self) -> int:
        """Reserve a slot of the frame."""
        self.slots += 1
        return self.slots - 1

    def build(self, node: Node) -> Run:
        """Return the closure of a node, and add the cost of its evaluation to `cost`."""
        self.cost += 1
        match node:
            case Constant(value):
                return lambda _frame: value
            case Name(name):
                return self._name(name)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case List():
                return self._list(node)
            case Map():
                return self._map(node)
            case Comprehension():
                return self._loop(node)
            case _:
                assert_never(node)

    def _call(self, node: Call) -> Run:
        arguments = node.arguments if node.target is None else (node.target, *node.arguments)
        operator = OPERATORS.get(node.function)
        return operator(self.build, *arguments) if operator else self._function(node.function, arguments)

    def _function(self, name: str, arguments: tuple[Node, ...]) -> Run:
        if name not in FUNCTIONS:
            raise CompileError(f"the function `{plain_name(name)}` is not available")
        built = tuple(self.build(argument) for argument in arguments)
        self.cost += 2
        if len(built) == 1:
            (only,) = built
            return lambda frame: call(frame[0], name, (only(frame),))
        if len(built) == 2:  # noqa: PLR2004 -- the common case, unrolled
            first, second = built
            return lambda frame: call(frame[0], name, (first(frame), second(frame)))
        return lambda frame: call(frame[0], name, [each(frame) for each in built])

    def _name(self, name: str) -> Run:
        if name in self._bound:
            return _bound_variable(self._bound[name])
        if name in TYPES and name not in self.roots:
            named = TYPES[name]
            return lambda _frame: named
        if name not in self.roots:
            self.roots[name] = self.slot()
        slot = self.roots[name]

        def root(frame: Frame) -> Any:
            value = frame[slot]
            if value is MISSING:
                raise EvaluationError(f"`{name}` has no value here")
            return value

        return root

    def _select(self, node: Select) -> Run:
        field = node.field
        inner, spelled = self.build(node.operand), spell(node.operand)
        if node.test:
            return _has(inner, spelled, field)

        def select(frame: Frame) -> Any:
            value = inner(frame)
            if type(value) is dict:
                try:
                    return value[field]
                except KeyError:
                    raise no_field(value, spelled, field) from None
            if type(value) is Optional:
                return find_item(value, field)
            return get_item(value, field, spelled)

        return select

    def _list(self, node: List) -> Run:
        items = [self.build(item) for item in node.items]
        optional = node.optional
        if not optional:
            return lambda frame: [item(frame) for item in items]

        def make(frame: Frame) -> list[Any]:
            made = []
            for place, item in enumerate(items):
                value = item(frame)
                if place not in optional:
                    made.append(value)
                elif present(value):
                    made.append(value.value)
            return made

        return make

    def _map(self, node: Map) -> Run:
        entries = [(self.build(key), self.build(item), optional) for key, item, optional in node.entries]

        def make(frame: Frame) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key, item, optional in entries:
                name = map_key(key(frame))
                if name in made:
                    raise EvaluationError(f"the key {short(str(name))} occurs twice in one map")
                value = item(frame)
                if not optional:
                    made[name] = value
                elif present(value):
                    made[name] = value.value
            return made

        return make

    def _loop(self, node: Comprehension) -> Run:
        over, start = self.build(node.over), self.build(node.start)
        item, result = self.slot(), self.slot()
        outside, before = self._bound, self.cost
        self._bound = {**outside, node.variable: item, node.result: result}
        self.cost = 2
        run = self._rounds(node, over, (item, result))
        self.cost = before
        self._bound = {**outside, node.result: result}
        outcome = self.build(node.outcome)
        self._bound = outside

        def loop(frame: Frame) -> Any:
            frame[result] = start(frame)
            run(frame)
            return outcome(frame)

        return loop

    def _rounds(self, node: Comprehension, over: Run, slots: tuple[int, int]) -> Run:
        """Return the closure that runs a loop; `map` and `filter` are recognized by their expansion."""
        match node:
            case Comprehension(
                start=List(()), step=Call("_?_:_", None, (keep, Call("_+_", None, (_, List((made,)))), _))
            ):
                kept, make = self.build(keep), self.build(made)
                return collect(CompiledComprehension(over, *slots, self.cost), kept, make)
            case Comprehension(start=List(()), step=Call("_+_", None, (_, List((made,))))):
                make = self.build(made)
                return collect(CompiledComprehension(over, *slots, self.cost), None, make)
            case _:
                condition, step = self.build(node.condition), self.build(node.step)
                return fold(
                    CompiledComprehension(over, *slots, self.cost),
                    condition,
                    step,
                    absorbs=not _is_true(node.condition),
                )


def _bound_variable(slot: int) -> Run:
    def bound(frame: Frame) -> Any:
        value = frame[slot]
        if type(value) is Raised:
            raise value.error.with_traceback(None)
        return value

    return bound


def _has(inner: Run, spelled: str, field: str) -> Run:
    def has(frame: Frame) -> bool:
        value = inner(frame)
        if type(value) is Optional:
            return find_item(value, field).present
        if kind(value) == "map":
            return field in value
        raise EvaluationError(f"has() requires a map, but {spelled or 'the value'} is {article(kind(value))}")

    return has


def _is_true(node: Node) -> bool:
    return isinstance(node, Constant) and node.value is True
