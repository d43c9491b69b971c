"""Types and helpers for the closures of an expression."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.syntax import Node
from perdure.language.cel.values import Optional, article, kind

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
