"""Rules on several fields, defined once for the API server (CEL) and for Python.

A model lists its rules in the class variable `rules`. The base model evaluates them after validation, and the CRD generator
writes them as `x-kubernetes-validations`, so that `kubectl apply` and `perdure lint` report the same message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Callable

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]
"""How the API server classifies a violated rule."""

CEL_KEYWORDS = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
"""Words that CEL reserves; a rule writes a field of such a name as `__name__`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One validation rule of an object."""

    message: str
    """Validation message: a sentence with `must` that names the fields."""

    cel: str
    """The rule for the API server: a CEL expression on `self` (and `oldSelf`)."""

    holds: Callable[[Any], bool] | None = None
    """The same rule in Python, given the model. None for transition rules."""

    reason: Reason | None = None
    """How the API server classifies a violation; None means `FieldValueInvalid`."""

    field_path: str | None = None
    """The field for which the API server reports a violation, relative to the object, such as `.container`."""

    def as_validation(self) -> dict[str, str]:
        """Return the entry of `x-kubernetes-validations`."""
        entry = {"rule": self.cel, "message": self.message}
        if self.reason is not None:
            entry["reason"] = self.reason
        if self.field_path is not None:
            entry["fieldPath"] = self.field_path
        return entry


def json_name(field: str) -> str:
    """Return the name of a field in manifests.

    Args:
        field: The Python name, such as `start_to_close_timeout` or `return_`.

    Returns:
        The camelCase name, such as `startToCloseTimeout` or `return`.
    """
    return to_camel(field.rstrip("_"))


def cel_name(field: str) -> str:
    """Return the name of a field in CEL rules.

    Args:
        field: The Python name.

    Returns:
        The camelCase name, escaped if CEL reserves it: `__return__`.
    """
    name = json_name(field)
    return f"__{name}__" if name in CEL_KEYWORDS else name


def exactly_one_of(*fields: str, message: str | None = None) -> Rule:
    """Require that exactly one of several fields is set.

    Args:
        fields: Python names of the fields.
        message: The validation message; by default it lists the fields.

    Returns:
        The rule.
    """
    return _count_of(fields, message or f"must have exactly one of {listed(fields)}", "== 1", lambda count: count == 1)


def at_most_one_of(*fields: str, message: str | None = None) -> Rule:
    """Require that at most one of several fields is set.

    Args:
        fields: Python names of the fields.
        message: The validation message; by default it lists the fields.

    Returns:
        The rule.
    """
    return _count_of(fields, message or f"must have at most one of {listed(fields)}", "<= 1", lambda count: count <= 1)


def _count_of(fields: tuple[str, ...], message: str, comparison: str, is_valid: Callable[[int], bool]) -> Rule:
    """Limit how many of several fields are set, by a comparison in CEL and the same one in Python."""
    return Rule(
        message,
        " + ".join(f"(has(self.{cel_name(field)}) ? 1 : 0)" for field in fields) + f" {comparison}",
        lambda model: is_valid(sum(getattr(model, field) is not None for field in fields)),
    )


def at_least_one_of(*fields: str, message: str) -> Rule:
    """Require that at least one of several fields is set.

    Args:
        fields: Python names of the fields.
        message: The validation message.

    Returns:
        The rule.
    """
    return Rule(
        message,
        " || ".join(f"has(self.{cel_name(field)})" for field in fields),
        lambda model: any(getattr(model, field) is not None for field in fields),
    )


def listed(fields: tuple[str, ...]) -> str:
    """List fields in a sentence: `` `a`, `b` and `c` ``.

    Args:
        fields: Python names of the fields.

    Returns:
        Their names in manifests, in back-quotes.
    """
    names = [f"`{json_name(field)}`" for field in fields]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def immutable(message: str) -> Rule:
    """Forbid changes of an object.

    Args:
        message: The validation message, which says what to do instead.

    Returns:
        A transition rule, which only the API server evaluates.
    """
    return Rule(message, "self == oldSelf", reason="FieldValueForbidden")
