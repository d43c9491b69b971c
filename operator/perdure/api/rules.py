"""Rules that join several fields, told once for the API server (CEL) and for Python.

A model lists its rules in the class variable `rules`. The base model asks each one after validation, and the CRD
generator writes each one as `x-kubernetes-validations`, so that `kubectl apply` and `perdure lint` say the same
sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from collections.abc import Callable

Reason = Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"]
"""How the API server classifies a broken rule."""

CEL_KEYWORDS = frozenset(
    {
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    }
)
"""Words that CEL reserves; a field of such a name is written `__name__` in a rule."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule about an object."""

    message: str
    """What a person reads when the rule is broken: a sentence with `must` that names the fields."""

    cel: str
    """The rule for the API server: a CEL expression over `self` (and `oldSelf`)."""

    holds: Callable[[Any], bool] | None = None
    """The same rule for Python: given the model, whether it holds. None for rules about changes."""

    reason: Reason | None = None
    """How the API server classifies the failure; None is its own `FieldValueInvalid`."""

    field_path: str | None = None
    """The field that the failure is reported at, relative to the object, such as `.container`."""

    def as_validation(self) -> dict[str, str]:
        """Give the entry of `x-kubernetes-validations`.

        Returns:
            The rule as the CRD schema spells it.
        """
        entry = {"rule": self.cel, "message": self.message}
        if self.reason is not None:
            entry["reason"] = self.reason
        if self.field_path is not None:
            entry["fieldPath"] = self.field_path
        return entry


def json_name(field: str) -> str:
    """Give the name that a field has in manifests.

    Args:
        field: The Python name, such as `start_to_close_timeout` or `return_`.

    Returns:
        The camelCase name, such as `startToCloseTimeout` or `return`.
    """
    return to_camel(field.rstrip("_"))


def cel_name(field: str) -> str:
    """Give the name that a field has in CEL rules.

    Args:
        field: The Python name.

    Returns:
        The camelCase name, escaped where CEL reserves the word: `__return__`.
    """
    name = json_name(field)
    return f"__{name}__" if name in CEL_KEYWORDS else name


def exactly_one_of(*fields: str, message: str | None = None) -> Rule:
    """Say that one of several fields is set, and no other of them.

    Args:
        fields: Python names of the fields.
        message: The sentence for people; by default it lists the fields.

    Returns:
        The rule.
    """
    return Rule(
        message or f"must have exactly one of {listed(fields)}",
        " + ".join(f"(has(self.{cel_name(field)}) ? 1 : 0)" for field in fields) + " == 1",
        lambda model: sum(getattr(model, field) is not None for field in fields) == 1,
    )


def at_most_one_of(*fields: str, message: str | None = None) -> Rule:
    """Say that at most one of several fields is set.

    Args:
        fields: Python names of the fields.
        message: The sentence for people; by default it lists the fields.

    Returns:
        The rule.
    """
    return Rule(
        message or f"must have at most one of {listed(fields)}",
        " + ".join(f"(has(self.{cel_name(field)}) ? 1 : 0)" for field in fields) + " <= 1",
        lambda model: sum(getattr(model, field) is not None for field in fields) <= 1,
    )


def at_least_one_of(*fields: str, message: str) -> Rule:
    """Say that at least one of several fields is set.

    Args:
        fields: Python names of the fields.
        message: The sentence for people.

    Returns:
        The rule.
    """
    return Rule(
        message,
        " || ".join(f"has(self.{cel_name(field)})" for field in fields),
        lambda model: any(getattr(model, field) is not None for field in fields),
    )


def listed(fields: tuple[str, ...]) -> str:
    """Name fields in a sentence: `` `a`, `b` and `c` ``.

    Args:
        fields: Python names of the fields.

    Returns:
        Their names in manifests, in back-quotes.
    """
    names = [f"`{json_name(field)}`" for field in fields]
    return ", ".join(names[:-1]) + " and " + names[-1]


def immutable(message: str) -> Rule:
    """Say that an object never changes.

    Args:
        message: The sentence for people; it tells what to do instead.

    Returns:
        A rule about changes, which only the API server can ask.
    """
    return Rule(message, "self == oldSelf", reason="FieldValueForbidden")
