"""CEL, compiled once and evaluated under a budget.

The library cel-expr-python (cel-cpp) parses, expands macros and checks types; why the evaluator is ours, and what was
measured, is told in `perdure.language.expressions`.

So: source -> cel-cpp -> checked syntax tree (`_Decoder`) -> closures (`_Builder`) -> a value, with every step counted.
"""

import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional

from perdure.language.cel_values import (
    FUNCTIONS,
    MAX_PATTERN,
    NONE,
    SIGNATURES,
    TYPES,
    EvaluationError,
    LimitError,
    Meter,
    Optional,
    article,
    call,
    comparable,
    contains,
    equal,
    kind,
    map_key,
    plain_name,
    short,
    sorted_keys,
)

MAX_SOURCE: Final = 4_096
"""Characters of one expression. How deep it nests (32) the library bounds."""
_MAX_OPT_MAPS: Final = 4
_CACHED_PROGRAMS: Final = 1_024
_CACHED_ENVIRONMENTS: Final = 32


class CompileError(Exception):
    """The source is not a valid expression; the message says where and what to do."""


# --- the syntax tree -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Constant:
    value: Any


@dataclass(frozen=True, slots=True)
class _Name:
    name: str


@dataclass(frozen=True, slots=True)
class _Select:
    operand: "_Node"
    field: str
    test: bool


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    target: "_Node | None"
    arguments: "tuple[_Node, ...]"


@dataclass(frozen=True, slots=True)
class _List:
    items: "tuple[_Node, ...]"
    optional: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Map:
    entries: "tuple[tuple[_Node, _Node, bool], ...]"


@dataclass(frozen=True, slots=True)
class _Loop:
    variable: str
    over: "_Node"
    result: str
    start: "_Node"
    condition: "_Node"
    step: "_Node"
    outcome: "_Node"


_Node = _Constant | _Name | _Select | _Call | _List | _Map | _Loop
_Fields = dict[int, list[Any]]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGN_BIT: Final = 1 << 63


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 -- the continuation bit of the wire format
            return value, at
        shift += 7


def _message(data: bytes) -> _Fields:
    """The fields of one protobuf message, by number, each with all its values."""
    fields: _Fields = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value: Any
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
            case 1:
                value, at = data[at : at + 8], at + 8
            case 2:
                length, at = _varint(data, at)
                value, at = data[at : at + length], at + length
            case other:
                raise CompileError(f"the compiler wrote an unknown wire type {other}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _text(fields: _Fields, number: int) -> str:
    found: bytes = fields.get(number, [b""])[-1]
    return found.decode("utf-8", "surrogatepass")


class _Decoder:
    """Reads `cel.expr.ParsedExpr` and `cel.expr.CheckedExpr` (cel-spec, proto/cel/expr/{syntax,checked}.proto)."""

    def __init__(self, serialized: bytes) -> None:
        envelope = _message(serialized)
        body = _message(envelope[2][-1])
        checked = _text(envelope, 1).endswith("CheckedExpr")
        self._forms: dict[int, Callable[[_Fields], _Node]] = {
            3: self._constant,
            4: self._name,
            5: self._select,
            6: self._call,
            7: self._list,
            8: self._map,
            9: self._loop,
        }
        self._references: dict[int, str] = {}
        for entry in body.get(2, []) if checked else []:
            pair = _message(entry)
            self._references[pair.get(1, [0])[-1]] = _text(_message(pair[2][-1]), 1)
        self.root = self._node(body[4 if checked else 2][-1])

    def _node(self, data: bytes) -> _Node:
        fields = _message(data)
        form = max(fields)
        identity = fields.get(2, [0])[-1]
        if form in {4, 5} and identity in self._references:
            return _Name(self._references[identity].lstrip("."))
        read = self._forms.get(form)
        if read is None:
            raise CompileError("this form of expression is not supported")
        return read(_message(fields[form][-1]))

    @staticmethod
    def _name(fields: _Fields) -> _Node:
        return _Name(_text(fields, 1).lstrip("."))

    def _select(self, fields: _Fields) -> _Node:
        return _Select(self._node(fields[1][-1]), _text(fields, 2), bool(fields.get(3, [0])[-1]))

    def _call(self, fields: _Fields) -> _Node:
        target = self._node(fields[1][-1]) if 1 in fields else None
        return _Call(_text(fields, 2), target, tuple(map(self._node, fields.get(3, []))))

    def _list(self, fields: _Fields) -> _Node:
        return _List(tuple(map(self._node, fields.get(1, []))), frozenset(_packed(fields.get(2, []))))

    def _loop(self, fields: _Fields) -> _Node:
        over, start, condition, step, outcome = (self._node(fields[number][-1]) for number in (2, 4, 5, 6, 7))
        return _Loop(_text(fields, 1), over, _text(fields, 3), start, condition, step, outcome)

    def _map(self, fields: _Fields) -> _Node:
        if 1 in fields:
            raise CompileError(f"`{_text(fields, 1)}{{…}}` makes a protobuf message; write a map: {{'key': value}}")
        entries = []
        for data in fields.get(2, []):
            entry = _message(data)
            key, item = self._node(entry[3][-1]), self._node(entry[4][-1])
            entries.append((key, item, bool(entry.get(5, [0])[-1])))
        return _Map(tuple(entries))

    @staticmethod
    def _constant(fields: _Fields) -> _Constant:
        (number, values), *_ = fields.items()
        raw = values[-1]
        match number:
            case 1:
                return _Constant(None)
            case 2:
                return _Constant(bool(raw))
            case 3:
                return _Constant(raw - (_SIGN_BIT << 1) if raw >= _SIGN_BIT else raw)
            case 4:
                raise CompileError(f"JSON has no unsigned numbers; write {raw} for {raw}u")
            case 5:
                return _Constant(struct.unpack("<d", raw)[0])
            case 6:
                return _Constant(raw.decode("utf-8", "surrogatepass"))
            case 7:
                return _Constant(raw)
            case _:
                raise CompileError("this form of constant is not supported")


def _packed(values: list[Any]) -> Iterator[int]:
    """A repeated integer, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            yield number


# --- what it reads ---------------------------------------------------------------------------------------------------

_NAMESPACES: Final = frozenset(name.split(".")[0] for name in FUNCTIONS if "." in name) | {"cel", "google"}
_RESERVED: Final = _NAMESPACES | {name for name in TYPES if "." not in name}


class _Reader:
    """Collects the free names of a tree, and which of the fields of `steps` it reads."""

    def __init__(self, tree: _Node) -> None:
        self.names: set[str] = set()
        self.steps: set[str] = set()
        self.every_step = False
        self._visit(tree, frozenset())

    def _step(self, node: _Node, bound: frozenset[str]) -> str | None:
        """The step that a node like `steps.hotel` or `steps['hotel']` names."""
        match node:
            case _Select(_Name("steps"), field, _) if "steps" not in bound:
                return field
            case _Call("_[_]" | "_[?_]" | "_?._", None, (_Name("steps"), _Constant(str(field)))) if (
                "steps" not in bound
            ):
                return field
            case _:
                return None

    def _visit(self, node: _Node, bound: frozenset[str]) -> None:
        step = self._step(node, bound)
        if step is not None:
            self.names.add("steps")
            self.steps.add(step)
        elif isinstance(node, _Name):
            if node.name not in bound:
                self.names.add(node.name)
                self.every_step |= node.name == "steps"
        elif isinstance(node, _Loop):
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
            for part in _parts(node):
                self._visit(part, bound)


def _parts(node: _Node) -> "tuple[_Node, ...]":
    """The nodes right below one that binds no names."""
    match node:
        case _Select(operand, _, _):
            return (operand,)
        case _Call(function, target, arguments):
            return arguments if target is None or _is_namespace(target, function) else (target, *arguments)
        case _List(items, _):
            return items
        case _Map(entries):
            return tuple(part for key, item, _ in entries for part in (key, item))
        case _:
            return ()


def _is_namespace(target: _Node, function: str) -> bool:
    """Whether the target of a call is only the first half of a name such as `lists.range`."""
    return isinstance(target, _Name) and (target.name in _NAMESPACES or f"{target.name}.{function}" in FUNCTIONS)


# --- closures --------------------------------------------------------------------------------------------------------

_Frame = list[Any]
_Run = Callable[[_Frame], Any]
_MISSING: Final = object()
_ABSORBED: Final = 40
"""What raising and catching an error costs."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """An error held by a loop's result: the next round may absorb it."""

    error: EvaluationError


def _spell(node: _Node) -> str:
    """The node as the user wrote it, if it is a path; else nothing."""
    match node:
        case _Name(name):
            return name if not name.startswith(("@", "__")) else ""
        case _Select(operand, field, False) if spelled := _spell(operand):
            return f"{spelled}.{field}"
        case _Call("_[_]", None, (operand, _Constant(int() | str() as index))) if spelled := _spell(operand):
            return f"{spelled}[{index!r}]"
        case _:
            return ""


_LISTED: Final = 20


def _no_field(where: dict[Any, Any], spelled: str, field: Any) -> EvaluationError:
    """A missing key, with the keys that are there."""

    def describe() -> str:
        names = sorted(str(key) for key in where)
        shown = ", ".join(short(name)[1:-1] for name in names[:_LISTED])
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        tail = f"it has: {shown}{more}" if names else "it is empty"
        return f"{spelled or 'the value'} has no field `{short(str(field))[1:-1]}`; {tail}"

    return EvaluationError(describe)


def _get(value: Any, key: Any, spelled: str) -> Any:
    """`value.key` or `value[key]`; `_MISSING` never leaves: a missing key or index is an EvaluationError."""
    found = kind(value)
    if found == "map":
        try:
            return value[map_key(key)]
        except KeyError:
            raise _no_field(value, spelled, key) from None
    if found == "list":
        if isinstance(key, bool) or not isinstance(key, int | float) or key != int(key):
            raise EvaluationError(
                f"{spelled or 'the value'} is a list, and its items go by number, not by {short(str(key))}"
            )
        index = int(key)
        if 0 <= index < len(value):
            return value[index]
        raise EvaluationError(f"{spelled or 'the list'} has {len(value)} items, so item {index} does not exist")
    what = found if found == "null" else article(found)
    raise EvaluationError(f"{spelled or 'the value'} is {what}, so it has no field {short(str(key))}")


def _look(value: Any, key: Any) -> Optional:
    """`value.?key` or `value[?key]`: an optional, also of an optional."""
    if type(value) is Optional:
        return _look(value.value, key) if value.present else NONE
    found = kind(value)
    if found == "map":
        try:
            return Optional(present=True, value=value[map_key(key)])
        except (KeyError, EvaluationError):
            return NONE
    if found == "list" and type(key) is int:
        return Optional(present=True, value=value[key]) if 0 <= key < len(value) else NONE
    raise EvaluationError(f"{article(found) if found != 'null' else found} has no fields to look for")


def _truth(value: Any, operator: str) -> bool:
    if value is True or value is False:
        return bool(value)
    raise EvaluationError(f"`{operator}` works on true and false, not on {article(kind(value))}")


def _is_true(node: _Node) -> bool:
    return isinstance(node, _Constant) and node.value is True


class _Builder:
    """Turns a tree into closures over a frame: slot 0 is the meter, the others are the variables."""

    def __init__(self) -> None:
        self.roots: dict[str, int] = {}
        self.slots = 1
        self.cost = 0
        self._bound: dict[str, int] = {}

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def build(self, node: _Node) -> _Run:
        """The closure of a node; `cost` grows by what one run of it costs."""
        self.cost += 1
        make: Callable[[Any], _Run] = getattr(self, _MAKERS[type(node)])
        return make(node)

    @staticmethod
    def _constant(node: _Constant) -> _Run:
        value = node.value
        return lambda _frame: value

    def _call(self, node: _Call) -> _Run:
        given = node.arguments if node.target is None else (node.target, *node.arguments)
        special = getattr(self, _SPECIAL.get(node.function, ""), None)
        return special(*given) if special else self._function(node.function, given)

    def _name(self, node: _Name) -> _Run:
        name = node.name
        if name in self._bound:
            slot = self._bound[name]

            def bound(frame: _Frame) -> Any:
                value = frame[slot]
                if type(value) is _Raised:
                    raise value.error.with_traceback(None)
                return value

            return bound
        if name in TYPES and name not in self.roots:
            named = TYPES[name]
            return lambda _frame: named
        if name not in self.roots:
            self.roots[name] = self._slot()
        slot = self.roots[name]

        def root(frame: _Frame) -> Any:
            value = frame[slot]
            if value is _MISSING:
                raise EvaluationError(f"`{name}` has no value here")
            return value

        return root

    def _select(self, node: _Select) -> _Run:
        field = node.field
        inner, spelled = self.build(node.operand), _spell(node.operand)
        if node.test:
            return self._has(inner, spelled, field)

        def select(frame: _Frame) -> Any:
            value = inner(frame)
            if type(value) is dict:
                try:
                    return value[field]
                except KeyError:
                    raise _no_field(value, spelled, field) from None
            if type(value) is Optional:
                return _look(value, field)
            return _get(value, field, spelled)

        return select

    @staticmethod
    def _has(inner: _Run, spelled: str, field: str) -> _Run:
        def has(frame: _Frame) -> bool:
            value = inner(frame)
            if type(value) is Optional:
                return _look(value, field).present
            if kind(value) == "map":
                return field in value
            raise EvaluationError(f"has() looks into a map, and {spelled or 'the value'} is {article(kind(value))}")

        return has

    def _index(self, operand: _Node, key: _Node) -> _Run:
        inner, at, spelled = self.build(operand), self.build(key), _spell(operand)

        def index(frame: _Frame) -> Any:
            value = inner(frame)
            return _look(value, at(frame)) if type(value) is Optional else _get(value, at(frame), spelled)

        return index

    def _optional_index(self, operand: _Node, key: _Node) -> _Run:
        inner, at = self.build(operand), self.build(key)
        return lambda frame: _look(inner(frame), at(frame))

    def _or_value(self, operand: _Node, other: _Node) -> _Run:
        inner, instead = self.build(operand), self.build(other)

        def or_value(frame: _Frame) -> Any:
            value = inner(frame)
            if type(value) is not Optional:
                raise EvaluationError(f"orValue() needs an optional, such as input.?name, not {article(kind(value))}")
            return value.value if value.present else instead(frame)

        return or_value

    def _or_else(self, operand: _Node, other: _Node) -> _Run:
        inner, instead = self.build(operand), self.build(other)

        def or_else(frame: _Frame) -> Any:
            value = inner(frame)
            if type(value) is not Optional:
                raise EvaluationError(f"or() needs an optional, such as input.?name, not {article(kind(value))}")
            return value if value.present else instead(frame)

        return or_else

    def _and(self, left: _Node, right: _Node) -> _Run:
        return self._logic(left, right, "&&", decides=False)

    def _or(self, left: _Node, right: _Node) -> _Run:
        return self._logic(left, right, "||", decides=True)

    def _logic(self, left: _Node, right: _Node, operator: str, *, decides: bool) -> _Run:
        """`&&` and `||`: the side that decides wins, also over an error of the other."""
        first, second = self.build(left), self.build(right)

        def logic(frame: _Frame) -> bool:
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

    def _not(self, operand: _Node) -> _Run:
        inner = self.build(operand)
        return lambda frame: not _truth(inner(frame), "!")

    def _not_strictly_false(self, operand: _Node) -> _Run:
        inner = self.build(operand)

        def holds(frame: _Frame) -> bool:
            try:
                return inner(frame) is not False
            except EvaluationError:
                frame[0].charge(_ABSORBED)
                return True

        return holds

    def _choose(self, condition: _Node, yes: _Node, no: _Node) -> _Run:
        asked, then, otherwise = self.build(condition), self.build(yes), self.build(no)
        return lambda frame: then(frame) if _truth(asked(frame), "? :") else otherwise(frame)

    def _equal(self, left: _Node, right: _Node) -> _Run:
        first, second = self.build(left), self.build(right)
        return lambda frame: equal(frame[0], first(frame), second(frame))

    def _unequal(self, left: _Node, right: _Node) -> _Run:
        first, second = self.build(left), self.build(right)
        return lambda frame: not equal(frame[0], first(frame), second(frame))

    def _in(self, item: _Node, where: _Node) -> _Run:
        first, second = self.build(item), self.build(where)
        return lambda frame: contains(frame[0], first(frame), second(frame))

    def _less(self, left: _Node, right: _Node) -> _Run:
        return self._compare(left, right, lambda a, b: a < b)

    def _less_or_equal(self, left: _Node, right: _Node) -> _Run:
        return self._compare(left, right, lambda a, b: a <= b)

    def _greater(self, left: _Node, right: _Node) -> _Run:
        return self._compare(left, right, lambda a, b: a > b)

    def _greater_or_equal(self, left: _Node, right: _Node) -> _Run:
        return self._compare(left, right, lambda a, b: a >= b)

    def _compare(self, left: _Node, right: _Node, decide: Callable[[Any, Any], bool]) -> _Run:
        first, second = self.build(left), self.build(right)

        def compare(frame: _Frame) -> bool:
            a, b = first(frame), second(frame)
            comparable(frame[0], a, b)
            return decide(a, b)

        return compare

    def _matches(self, text: _Node, pattern: _Node) -> _Run:
        first, second = self.build(text), self.build(pattern)
        return lambda frame: _match(frame[0], first(frame), second(frame))

    def _function(self, name: str, arguments: tuple[_Node, ...]) -> _Run:
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

    def _list(self, node: _List) -> _Run:
        items = [self.build(item) for item in node.items]
        optional = node.optional
        if not optional:
            return lambda frame: [item(frame) for item in items]

        def some(frame: _Frame) -> list[Any]:
            made = []
            for place, item in enumerate(items):
                value = item(frame)
                if place not in optional:
                    made.append(value)
                elif _present(value):
                    made.append(value.value)
            return made

        return some

    def _map(self, node: _Map) -> _Run:
        entries = [(self.build(key), self.build(item), optional) for key, item, optional in node.entries]

        def make(frame: _Frame) -> dict[Any, Any]:
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

    def _loop(self, node: _Loop) -> _Run:
        over, start = self.build(node.over), self.build(node.start)
        item, result = self._slot(), self._slot()
        outside, before = self._bound, self.cost
        self._bound = {**outside, node.variable: item, node.result: result}
        self.cost = 2
        match node:
            case _Loop(start=_List(()), step=_Call("_?_:_", None, (keep, _Call("_+_", None, (_, _List((made,)))), _))):
                run = self._collect(over, (item, result), self.build(keep), self.build(made))
            case _Loop(start=_List(()), step=_Call("_+_", None, (_, _List((made,))))):
                run = self._collect(over, (item, result), None, self.build(made))
            case _:
                steps = (self.build(node.condition), self.build(node.step))
                run = self._fold(over, (item, result), steps, absorbs=not _is_true(node.condition))
        self.cost = before
        self._bound = {**outside, node.result: result}
        outcome = self.build(node.outcome)
        self._bound = outside

        def loop(frame: _Frame) -> Any:
            frame[result] = start(frame)
            run(frame)
            return outcome(frame)

        return loop

    def _collect(self, over: _Run, slots: tuple[int, int], keep: _Run | None, make: _Run) -> _Run:
        """`map` and `filter`: what they make is appended, where CEL's own definition copies the list each time."""
        (item, result), cost = slots, self.cost

        def collect(frame: _Frame) -> None:
            charge = frame[0].charge
            made: list[Any] = []
            for value in _items(frame[0], over(frame)):
                charge(cost)
                frame[item] = value
                if keep is None or _truth(keep(frame), "filter"):
                    made.append(make(frame))
            frame[result] = made

        return collect

    def _fold(self, over: _Run, slots: tuple[int, int], steps: tuple[_Run, _Run], *, absorbs: bool) -> _Run:
        """`all`, `exists`, `exists_one` and `cel.bind`, by CEL's definition."""
        (item, result), cost = slots, self.cost
        condition, step = steps

        def fold(frame: _Frame) -> None:
            charge = frame[0].charge
            for value in _items(frame[0], over(frame)):
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
    _Constant: "_constant",
    _Name: "_name",
    _Select: "_select",
    _Call: "_call",
    _List: "_list",
    _Map: "_map",
    _Loop: "_loop",
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


def _items(meter: Meter, value: Any) -> list[Any]:
    """What a loop goes through: the items of a list, or the keys of a map in order."""
    found = kind(value)
    if found == "list":
        return value  # type: ignore[no-any-return]
    if found == "map":
        return sorted_keys(meter, value)
    raise EvaluationError(f"{article(found) if found != 'null' else found} cannot be gone through; a list or a map can")


# --- regular expressions ---------------------------------------------------------------------------------------------

_REPEAT = re.compile(r"\{(\d{1,6})(?:,(\d{0,6}))?\}")
_CLASS_WEIGHT: Final = 1_000


def _weight(pattern: str) -> int:
    """An upper estimate of the size of a compiled pattern: its length, with every counted repeat written out."""
    stack = [0]
    last = 0
    at = 0
    while at < len(pattern):
        char = pattern[at]
        repeat = _REPEAT.match(pattern, at) if char == "{" else None
        if repeat:
            last_before = last
            last *= max(int(repeat[1]), int(repeat[2] or 0), 1)
            stack[-1] += last - last_before
            at = repeat.end()
            continue
        if char == "(":
            stack.append(0)
        elif char == ")" and len(stack) > 1:
            last = stack.pop() + 2
            stack[-1] += last
        else:
            last = 1
            if char == "\\":
                at += 1
                last = _CLASS_WEIGHT if pattern[at : at + 1] in "pP" else 4
            elif char in ".[" or not char.isascii():
                last = 8
            stack[-1] += last
        at += 1
    size = sum(stack)
    return size * 2 if "(?" in pattern else size


@functools.cache
def _matcher() -> Any:
    env = cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING})
    return env.compile("text.matches(pattern)")


def _match(meter: Meter, text: Any, pattern: Any) -> bool:
    """`matches`: RE2, by the library, which never backtracks; charged as if it tried every state at every character."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise EvaluationError(f"`matches` needs two strings, not {article(kind(text))} and {article(kind(pattern))}")
    if len(pattern) > MAX_PATTERN:
        raise LimitError(f"a regular expression may have {MAX_PATTERN} characters, and this one has {len(pattern)}")
    weight = _weight(pattern)
    meter.charge((len(text) + 64) * (weight + 1) // 16 + 150)
    try:
        result = _matcher().eval(data={"text": text, "pattern": pattern})
    except (RuntimeError, ValueError) as error:
        raise EvaluationError(f"`matches` cannot read this text: {short(str(error))}") from None
    if result.type() == cel.Type.ERROR:
        raise EvaluationError(f"{short(pattern)} is not a regular expression (RE2 syntax)")
    return bool(result.value())


# --- compiling -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression: immutable, and free of anything that belongs to one evaluation."""

    source: str
    names: frozenset[str]
    """The names of the scope that it reads."""
    steps: frozenset[str]
    """The fields of `steps` that it reads by name."""
    every_step: bool
    """It reads `steps` in a way that does not tell which."""
    _roots: tuple[tuple[str, int], ...]
    _slots: int
    _cost: int
    _run: _Run

    def evaluate(self, scope: Mapping[str, Any], meter: Meter) -> Any:
        """The value, in the terms of `cel_values`; raises EvaluationError or LimitError."""
        meter.charge(self._cost)
        frame: _Frame = [_MISSING] * self._slots
        frame[0] = meter
        for name, slot in self._roots:
            frame[slot] = scope.get(name, _MISSING)
        try:
            return self._run(frame)
        except (ArithmeticError, TypeError, ValueError) as error:
            # A number beyond 64 bits in the input, a time without a zone: not JSON as CEL knows it, but no crash either.
            raise EvaluationError(f"it cannot be computed: {error}") from None


_CONFIG: Final = "stdlib:\n  exclude_functions:\n" + "".join(
    f'    - name: "{name}"\n' for name in ("_+_", "_-_", "_*_", "_/_", "uint")
)


def _type_of(name: str) -> Any:
    """The library's type for a kind."""
    if name == "optional":
        return cel.Type.AbstractType("optional_type", [cel.Type.DYN])
    return cel.Type.List(cel.Type.DYN) if name == "list" else getattr(cel.Type, name.upper())


def _declarations() -> list[Any]:
    """Our functions, as the type checker wants to hear of them."""
    overloads: dict[str, list[Any]] = {}
    for signature in SIGNATURES:
        overloads.setdefault(signature.name, []).append(
            cel.Overload(
                f"{signature.name}({','.join(signature.takes)})",
                return_type=_type_of(signature.gives),
                parameters=[_type_of(each) for each in signature.takes],
                is_member=signature.member,
            )
        )
    return [cel.FunctionDecl(name, each) for name, each in overloads.items()]


@functools.lru_cache(maxsize=_CACHED_ENVIRONMENTS)
def _environment(names: frozenset[str]) -> Any:
    """A checker in which these names, and no others, are known."""
    return cel.NewEnv(
        config=cel.NewEnvConfigFromYaml(_CONFIG),
        variables=dict.fromkeys(sorted(names), cel.Type.DYN),
        extensions=[ext_math.ExtMath(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()],
        functions=_declarations(),
    )


_PLACE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)")
_OVERLOAD = re.compile(r"found no matching overload for '([^']*)' applied to '([^']*)'")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_RECURSION = re.compile(r"recursion (?:depth|limit)")


def _explain(error: Exception) -> CompileError:
    """The library's first complaint, in a sentence."""
    text = str(error)
    if not isinstance(error, RuntimeError):
        return CompileError("it holds characters that are not Unicode text")
    if _RECURSION.search(text):
        return CompileError(
            "it is nested too deep (32 levels, and every + in a chain is one); join a list of texts, or use steps of kind `set`"
        )
    place = _PLACE.search(text)
    line, column, message = (int(place[1]), int(place[2]), place[3]) if place else (0, 0, text.splitlines()[0])
    at = f" at column {column}" if line == 1 else f" at line {line}, column {column}" if line > 1 else ""
    if found := _OVERLOAD.search(message):
        message = f"`{plain_name(found[1])}` does not work on {found[2]}"
    elif message.startswith("Syntax error"):
        message = message.split(" expecting ")[0].replace("Syntax error: ", "it does not parse: ")
    elif found := _UNDECLARED.search(message):
        message = f"there is no function or name `{found[1]}`"
    return CompileError(f"{message[:300]}{at}")


def _translate(source: str, names: frozenset[str], *, check: bool) -> _Node:
    try:
        return _Decoder(_environment(names).compile(source, disable_check=not check).serialize()).root
    except (RuntimeError, ValueError, TypeError) as error:
        raise _explain(error) from None


def _refuse_unknown(found: frozenset[str], known: frozenset[str], source: str) -> None:
    """Say which name is not known, and what the user may have meant."""
    for name in sorted(found - known):
        hint = ""
        if re.search(rf"[\w\]]-{re.escape(name)}\b", source):
            hint = "; a name with a dash is written in brackets: steps['cool-off']"
        elif near := get_close_matches(name, sorted(known), 1):
            hint = f", did you mean `{near[0]}`"
        listed = ", ".join(sorted(known))
        raise CompileError(f"unknown name `{name}`{hint}; the names here are: {listed or 'none'}")


@functools.lru_cache(maxsize=_CACHED_PROGRAMS)
def compile_source(source: str, names: frozenset[str] | None) -> Program:
    """Compile one expression; `names` are the names it may read, None for any."""
    if len(source) > MAX_SOURCE:
        raise CompileError(
            f"it has {len(source)} characters, and {MAX_SOURCE} are allowed; split it into several steps"
        )
    if len(re.findall(r"\bopt(?:Flat)?Map\b", source)) > _MAX_OPT_MAPS:
        # The macro copies what stands before it, so that a chain of them doubles with each.
        raise CompileError(f"more than {_MAX_OPT_MAPS} optMap() in one expression; split it into several steps")
    parsed = _Reader(_translate(source, frozenset(), check=False))
    for name in sorted(parsed.names & (names or frozenset()) & TYPES.keys()):
        raise CompileError(f"`{name}` is a type in CEL, so it cannot be the name of a variable; give it another name")
    free = frozenset(name for name in parsed.names if name not in _RESERVED or (names and name in names))
    if names is not None:
        _refuse_unknown(free, names, source)
    tree = _translate(source, free, check=True)
    builder = _Builder()
    for name in sorted(free):
        builder.roots[name] = builder._slot()  # noqa: SLF001 -- one room
    run = builder.build(tree)
    return Program(
        source=source,
        names=free,
        steps=frozenset(parsed.steps),
        every_step=parsed.every_step,
        _roots=tuple(builder.roots.items()),
        _slots=builder.slots,
        _cost=builder.cost,
        _run=run,
    )
