"""Operators and functions that decide which of their arguments are evaluated, and the most frequent ones, as closures."""

from collections.abc import Callable
from typing import Any, Final

from perdure.language.cel.closures import ABSORBED, Build, Frame, Run, boolean
from perdure.language.cel.comparison import comparable, contains, equal
from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.lookup import find_item, get_item
from perdure.language.cel.patterns import matches
from perdure.language.cel.syntax import Node, spell
from perdure.language.cel.values import Optional, article, kind


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
