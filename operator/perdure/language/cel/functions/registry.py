"""The table of functions, with the registration and the calls."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from perdure.language.cel.limits import EvaluationError, Meter
from perdure.language.cel.values import article, kind

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """One overload, declared to the type checker."""

    name: str
    takes: tuple[str, ...]
    gives: str
    member: bool


SIGNATURES: Final[list[Signature]] = []
"""The declarations for the type checker of functions that the library does not have."""
FUNCTIONS: Final[dict[str, dict[tuple[str, ...], Implementation]]] = {}
"""The implementations by name, then by the kinds of the arguments. The kind ``dyn`` stands for any."""


def implement(name: str, *overloads: str) -> Callable[[Implementation], Implementation]:
    """Register the implementation of a function that the library declares."""

    def register(implementation: Implementation) -> Implementation:
        for overload in overloads:
            FUNCTIONS.setdefault(name, {})[tuple(overload.split())] = implementation
        return implementation

    return register


def declare_member(name: str, takes: str, gives: str) -> Callable[[Implementation], Implementation]:
    """Declare and register `receiver.name(…)`."""

    def register(implementation: Implementation) -> Implementation:
        SIGNATURES.append(Signature(name, tuple(takes.split()), gives, member=True))
        return implement(name, takes)(implementation)

    return register


def declare_function(name: str, takes: str, gives: str) -> Callable[[Implementation], Implementation]:
    """Declare and register `name(…)`."""

    def register(implementation: Implementation) -> Implementation:
        SIGNATURES.append(Signature(name, tuple(takes.split()), gives, member=False))
        return implement(name, takes)(implementation)

    return register


def call(meter: Meter, name: str, arguments: Sequence[Any]) -> Any:
    """Call a function by the kinds of its arguments."""
    overloads = FUNCTIONS[name]
    kinds = tuple(map(kind, arguments))
    found = overloads.get(kinds)
    if found is None:
        for takes, implementation in overloads.items():
            if len(takes) == len(kinds) and all(a in ("dyn", b) for a, b in zip(takes, kinds, strict=True)):
                found = implementation
                break
        else:
            refuse(name, kinds)
    return found(meter, *arguments)


def plain_name(name: str) -> str:
    """Return the name in source text of an operator or function that is `_+_` or `math.@max` in the tree."""
    special = {"-_": "-", "_[_]": "[…]", "_?_:_": "? :", "math.@max": "math.greatest", "math.@min": "math.least"}
    return special.get(name) or name.replace("@", "").strip("_") or name


def refuse(name: str, kinds: Iterable[str]) -> NoReturn:
    """Report that no overload of the function takes these kinds."""
    shown = [article(each) for each in kinds]
    what = f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else "".join(shown)
    raise EvaluationError(f"`{plain_name(name)}` does not work on {what}")
