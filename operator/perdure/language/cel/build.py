"""Turns a syntax tree into closures, which charge a meter for each step."""

from typing import Any, assert_never

from perdure.language.cel.closures import MISSING, Frame, Raised, Run, present
from perdure.language.cel.comparison import map_key
from perdure.language.cel.comprehensions import CompiledComprehension, collect, fold
from perdure.language.cel.errors import CompileError, EvaluationError
from perdure.language.cel.formats import short
from perdure.language.cel.functions import FUNCTIONS, call, plain_name
from perdure.language.cel.lookup import find_item, get_item, no_field
from perdure.language.cel.operator_closures import OPERATORS
from perdure.language.cel.syntax import Call, Comprehension, Constant, List, Map, Name, Node, Select, spell
from perdure.language.cel.values import TYPES, Optional, article, kind


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

    def build(self, node: Node) -> Run:  # noqa: PLR0911 (one return for each form)
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
        given = tuple(self.build(argument) for argument in arguments)
        self.cost += 2
        if len(given) == 1:
            (only,) = given
            return lambda frame: call(frame[0], name, (only(frame),))
        if len(given) == 2:  # noqa: PLR2004 -- the common case, unrolled
            first, second = given
            return lambda frame: call(frame[0], name, (first(frame), second(frame)))
        return lambda frame: call(frame[0], name, [each(frame) for each in given])

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
