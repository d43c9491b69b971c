"""Inputs of runs and blocks: completes defaults, and validates inputs with a JSON Schema.

jsonschema-rs validates the inputs with a regular-expression engine that never backtracks. Nothing is fetched: a ``$ref`` stays
within its schema. The maximum cost of a check is known in advance (`schemas`).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

from perdure.language.schemas import Cost, InputSchemaError

_MAX_ERRORS = 10


_TOO_COSTLY = (
    "cannot be checked: it is too large for its schema, of which {parts} may apply to each value. Make the input smaller, "
    "or the schema simpler: fewer branches of `anyOf` and `oneOf`, shorter `pattern`"
)
_UNLOCATED = (
    "does not match its schema. The field is unknown, because the schema has too many branches for an input of this size: "
    "try a smaller input, or use `if` and `then` in place of `anyOf` and `oneOf`"
)


class UncheckedError(Exception):
    """The errors of a value cannot be found; the message has the reason and the fix."""


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The default and the schema of an input."""

    default: Any = None
    validator: "jsonschema_rs.Validator | None" = None
    cost: Cost | None = None

    def complete(self, given: Any) -> Any:
        """Complete a value by the default; field by field if both are objects."""
        if given is None:
            return self.default
        if isinstance(given, dict) and isinstance(self.default, dict):
            return {**self.default, **given}
        return given

    def check(self, value: Any) -> list[tuple[str, str]]:
        """Return the path and the reason of each error; empty if the value is valid. Paths are like ``.guests[0]``."""
        found: list[tuple[str, str]] = []
        try:
            for error in self.errors(value):
                if len(found) == _MAX_ERRORS:
                    found.append(("", "and more"))
                    break
                where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
                found.append((where, error.message))
        except UncheckedError as error:
            return [("", str(error))]
        return found

    def errors(self, value: Any) -> "Iterable[jsonschema_rs.ValidationError]":
        """Return the errors; of a large value, only the first.

        Raises:
            UncheckedError: Finding the errors takes too much work.
        """
        if self.validator is None or self.cost is None:
            return []
        length = len(json.dumps(value))
        if not self.cost.affordable(value, length):
            raise UncheckedError(_TOO_COSTLY.format(parts=f"{self.cost.parts:,} parts"))
        if self.validator.is_valid(value):
            return []
        if self.cost.all_reasons(value, length):
            return self.validator.iter_errors(value)
        if self.cost.first_reason():
            try:
                self.validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [error]
        raise UncheckedError(_UNLOCATED)


def input_check(schema: Mapping[str, Any] | None, default: Any) -> InputCheck:
    """Compile a schema.

    Args:
        schema: JSON Schema, draft 2020-12 unless `$schema` names another; None accepts everything.
        default: The default input.

    Raises:
        SchemaError: The schema is not valid, or has a `$ref` to another document.
    """
    if schema is None:
        return InputCheck(default)
    cost = Cost(schema)
    try:
        validator = jsonschema_rs.validator_for(
            dict(schema), pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise InputSchemaError(str(error).split("\n", 1)[0]) from None
    return InputCheck(default, validator, cost)


def _refuse(uri: str) -> Any:
    raise ValueError(f"`{uri}` lies outside of the schema; nothing is fetched: put it under `$defs`")
