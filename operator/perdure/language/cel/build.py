"""The syntax tree as closures, which count every step that they take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from perdure.language.cel.comparison import comparable, contains, equal, map_key
from perdure.language.cel.errors import CompileError, EvaluationError
from perdure.language.cel.formats import short
from perdure.language.cel.functions import FUNCTIONS, call, plain_name
from perdure.language.cel.lookup import find_item, get_item, loop_items, no_field
from perdure.language.cel.patterns import matches
from perdure.language.cel.syntax import Call, Comprehension, Constant, List, Map, Name, Node, Select, spell
from perdure.language.cel.values import TYPES, Optional, article, kind

Frame = list[Any]
Run = Callable[[Frame], Any]
MISSING: Final = object()
_ABSORBED: Final = 40
"""What raising and catching an error costs."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """An error held by a loop's result: the next round may absorb it."""

    error: EvaluationError


def _truth(value: Any, operator: str) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvaluationError(f"`{operator}` works on true and false, not on {article(kind(value))}")


def _is_true(node: Node) -> bool:
    return isinstance(node, Constant) and node.value is True


class Builder:
    """Turns a tree into closures over a frame: slot 0 is the meter, the others are the variables."""

    def __init__(self) -> None:
        self.roots: dict[str, int] = {}
        self.slots = 1
        self.cost = 0
        self._bound: dict[str, int] = {}

    def slot(self) -> int:
        """A new place in the frame."""
        self.slots += 1
        return self.slots - 1

    def build(self, node: Node) -> Run:
        """The closure of a node; `cost` grows by what one run of it costs."""
        self.cost += 1
        make: Callable[[Any], Run] = getattr(self, _MAKERS[type(node)])
        return make(node)

    @staticmethod
    def _constant(node: Constant) -> Run:
        value = node.value
        return lambda _frame: value

    def _call(self, node: Call) -> Run:
        given = node.arguments if node.target is None else (node.target, *node.arguments)
        special = getattr(self, _SPECIAL.get(node.function, ""), None)
        return special(*given) if special else self._function(node.function, given)

    def _name(self, node: Name) -> Run:
        name = node.name
        if name in self._bound:
            slot = self._bound[name]

            def bound(frame: Frame) -> Any:
                value = frame[slot]
                if type(value) is _Raised:
                    raise value.error.with_traceback(None)
                return value

            return bound
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
            return self._has(inner, spelled, field)

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

    @staticmethod
    def _has(inner: Run, spelled: str, field: str) -> Run:
        def has(frame: Frame) -> bool:
            value = inner(frame)
            if type(value) is Optional:
                return find_item(value, field).present
            if kind(value) == "map":
                return field in value
            raise EvaluationError(f"has() looks into a map, and {spelled or 'the value'} is {article(kind(value))}")

        return has

    def _index(self, operand: Node, key: Node) -> Run:
        inner, at, spelled = self.build(operand), self.build(key), spell(operand)

        def index(frame: Frame) -> Any:
            value = inner(frame)
            return find_item(value, at(frame)) if type(value) is Optional else get_item(value, at(frame), spelled)

        return index

    def _optional_index(self, operand: Node, key: Node) -> Run:
        inner, at = self.build(operand), self.build(key)
        return lambda frame: find_item(inner(frame), at(frame))

    def _or_value(self, operand: Node, other: Node) -> Run:
        inner, instead = self.build(operand), self.build(other)

        def or_value(frame: Frame) -> Any:
            value = inner(frame)
            if type(value) is not Optional:
                raise EvaluationError(f"orValue() needs an optional, such as input.?name, not {article(kind(value))}")
            return value.value if value.present else instead(frame)

        return or_value

    def _or_else(self, operand: Node, other: Node) -> Run:
        inner, instead = self.build(operand), self.build(other)

        def or_else(frame: Frame) -> Any:
            value = inner(frame)
            if type(value) is not Optional:
                raise EvaluationError(f"or() needs an optional, such as input.?name, not {article(kind(value))}")
            return value if value.present else instead(frame)

        return or_else

    def _and(self, left: Node, right: Node) -> Run:
        return self._logic(left, right, "&&", decides=False)

    def _or(self, left: Node, right: Node) -> Run:
        return self._logic(left, right, "||", decides=True)

    def _logic(self, left: Node, right: Node, operator: str, *, decides: bool) -> Run:
        """`&&` and `||`: the side that decides wins, also over an error of the other."""
        first, second = self.build(left), self.build(right)

        def logic(frame: Frame) -> bool:
            try:
                if _truth(first(frame), operator) is decides:
                    return decides
                failed = None
            except EvaluationError as error:
                failed = error.with_traceback(None)
            if failed is None:
                return _truth(second(frame), operator)
            # Outside of the handler, or each error would hold the one before it, and raising would walk them all.
            frame[0].charge(_ABSORBED)
            try:
                if _truth(second(frame), operator) is decides:
                    return decides
                raise failed
            finally:
                failed = None  # an error that is held by a frame it has passed keeps both for the garbage collector

        return logic

    def _not(self, operand: Node) -> Run:
        inner = self.build(operand)
        return lambda frame: not _truth(inner(frame), "!")

    def _not_strictly_false(self, operand: Node) -> Run:
        inner = self.build(operand)

        def holds(frame: Frame) -> bool:
            try:
                return inner(frame) is not False
            except EvaluationError:
                frame[0].charge(_ABSORBED)
                return True

        return holds

    def _choose(self, condition: Node, yes: Node, no: Node) -> Run:
        asked, then, otherwise = self.build(condition), self.build(yes), self.build(no)
        return lambda frame: then(frame) if _truth(asked(frame), "? :") else otherwise(frame)

    def _equal(self, left: Node, right: Node) -> Run:
        first, second = self.build(left), self.build(right)
        return lambda frame: equal(frame[0], first(frame), second(frame))

    def _unequal(self, left: Node, right: Node) -> Run:
        first, second = self.build(left), self.build(right)
        return lambda frame: not equal(frame[0], first(frame), second(frame))

    def _in(self, item: Node, where: Node) -> Run:
        first, second = self.build(item), self.build(where)
        return lambda frame: contains(frame[0], first(frame), second(frame))

    def _less(self, left: Node, right: Node) -> Run:
        return self._compare(left, right, lambda a, b: a < b)

    def _less_or_equal(self, left: Node, right: Node) -> Run:
        return self._compare(left, right, lambda a, b: a <= b)

    def _greater(self, left: Node, right: Node) -> Run:
        return self._compare(left, right, lambda a, b: a > b)

    def _greater_or_equal(self, left: Node, right: Node) -> Run:
        return self._compare(left, right, lambda a, b: a >= b)

    def _compare(self, left: Node, right: Node, decide: Callable[[Any, Any], bool]) -> Run:
        first, second = self.build(left), self.build(right)

        def compare(frame: Frame) -> bool:
            a, b = first(frame), second(frame)
            comparable(frame[0], a, b)
            return decide(a, b)

        return compare

    def _matches(self, text: Node, pattern: Node) -> Run:
        first, second = self.build(text), self.build(pattern)
        return lambda frame: matches(frame[0], first(frame), second(frame))

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

    def _list(self, node: List) -> Run:
        items = [self.build(item) for item in node.items]
        optional = node.optional
        if not optional:
            return lambda frame: [item(frame) for item in items]

        def some(frame: Frame) -> list[Any]:
            made = []
            for place, item in enumerate(items):
                value = item(frame)
                if place not in optional:
                    made.append(value)
                elif _present(value):
                    made.append(value.value)
            return made

        return some

    def _map(self, node: Map) -> Run:
        entries = [(self.build(key), self.build(item), optional) for key, item, optional in node.entries]

        def make(frame: Frame) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key, item, optional in entries:
                name = map_key(key(frame))
                if name in made:
                    raise EvaluationError(f"the key {short(str(name))} stands twice in one map")
                value = item(frame)
                if not optional:
                    made[name] = value
                elif _present(value):
                    made[name] = value.value
            return made

        return make

    def _loop(self, node: Comprehension) -> Run:
        over, start = self.build(node.over), self.build(node.start)
        item, result = self.slot(), self.slot()
        outside, before = self._bound, self.cost
        self._bound = {**outside, node.variable: item, node.result: result}
        self.cost = 2
        match node:
            case Comprehension(
                start=List(()), step=Call("_?_:_", None, (keep, Call("_+_", None, (_, List((made,)))), _))
            ):
                run = self._collect(over, (item, result), self.build(keep), self.build(made))
            case Comprehension(start=List(()), step=Call("_+_", None, (_, List((made,))))):
                run = self._collect(over, (item, result), None, self.build(made))
            case _:
                steps = (self.build(node.condition), self.build(node.step))
                run = self._fold(over, (item, result), steps, absorbs=not _is_true(node.condition))
        self.cost = before
        self._bound = {**outside, node.result: result}
        outcome = self.build(node.outcome)
        self._bound = outside

        def loop(frame: Frame) -> Any:
            frame[result] = start(frame)
            run(frame)
            return outcome(frame)

        return loop

    def _collect(self, over: Run, slots: tuple[int, int], keep: Run | None, make: Run) -> Run:
        """`map` and `filter`: what they make is appended, where CEL's own definition copies the list each time."""
        (item, result), cost = slots, self.cost

        def collect(frame: Frame) -> None:
            charge = frame[0].charge
            made: list[Any] = []
            for value in loop_items(frame[0], over(frame)):
                charge(cost)
                frame[item] = value
                if keep is None or _truth(keep(frame), "filter"):
                    made.append(make(frame))
            frame[result] = made

        return collect

    def _fold(self, over: Run, slots: tuple[int, int], steps: tuple[Run, Run], *, absorbs: bool) -> Run:
        """`all`, `exists`, `exists_one` and `cel.bind`, by CEL's definition."""
        (item, result), cost = slots, self.cost
        condition, step = steps

        def fold(frame: Frame) -> None:
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
                    charge(_ABSORBED)
                    frame[result] = _Raised(error.with_traceback(None))

        return fold


_MAKERS: Final[dict[type, str]] = {
    Constant: "_constant",
    Name: "_name",
    Select: "_select",
    Call: "_call",
    List: "_list",
    Map: "_map",
    Comprehension: "_loop",
}

_SPECIAL: Final = {
    "_[_]": "_index",
    "_[?_]": "_optional_index",
    "_?._": "_optional_index",
    "orValue": "_or_value",
    "or": "_or_else",
    "_&&_": "_and",
    "_||_": "_or",
    "!_": "_not",
    "@not_strictly_false": "_not_strictly_false",
    "_?_:_": "_choose",
    "_==_": "_equal",
    "_!=_": "_unequal",
    "@in": "_in",
    "_<_": "_less",
    "_<=_": "_less_or_equal",
    "_>_": "_greater",
    "_>=_": "_greater_or_equal",
    "matches": "_matches",
}
"""The functions that the builder knows itself: those that decide which argument is looked at, and the hottest ones."""


def _present(value: Any) -> bool:
    if type(value) is not Optional:
        raise EvaluationError(f"`?` needs an optional, such as input.?name, not {article(kind(value))}")
    return value.present
