"""Inputs of runs and blocks: defaults, and the JSON Schema that they must fit.

The schemas are checked by jsonschema-rs with a regular-expression engine that cannot be made to backtrack, and nothing is
ever fetched: a ``$ref`` stays within its schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs

MAX_SCHEMA = 10_000
"""Parts of a schema, with what it refers to written out."""
MAX_SCHEMA_DEPTH = 200
"""How deep a schema may be nested, references included."""
_MOST_TOLD = 10


class SchemaError(Exception):
    """A schema that is none."""


@dataclass(frozen=True, slots=True)
class InputCheck:
    """What an input looks like."""

    default: Any = None
    validator: "jsonschema_rs.Validator | None" = None

    def complete(self, given: Any) -> Any:
        """What is given, over the default; field by field where both are objects."""
        if given is None:
            return self.default
        if isinstance(given, dict) and isinstance(self.default, dict):
            return {**self.default, **given}
        return given

    def check(self, value: Any) -> list[tuple[str, str]]:
        """Where and why a value does not fit, nothing where it does. The places are like ``.guests[0]``."""
        if self.validator is None:
            return []
        found: list[tuple[str, str]] = []
        for error in self.validator.iter_errors(value):
            if len(found) == _MOST_TOLD:
                found.append(("", "and more"))
                break
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
            found.append((where, error.message))
        return found


def input_check(schema: Mapping[str, Any] | None, default: Any) -> InputCheck:
    """Compile a schema.

    Args:
        schema: JSON Schema, draft 2020-12 where `$schema` does not say otherwise; None takes everything.
        default: Input where none is given.

    Raises:
        SchemaError: it is no schema, or refers to something outside of itself.
    """
    if schema is None:
        return InputCheck(default)
    if _Size(schema).of(schema, 0) > MAX_SCHEMA:
        raise SchemaError(
            f"written out, with what `$ref` refers to in its place, it has more than {MAX_SCHEMA:,} parts"
        )
    try:
        validator = jsonschema_rs.validator_for(
            dict(schema), pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaError(str(error).split("\n", 1)[0]) from None
    return InputCheck(default, validator)


class _Size:
    """How large a schema is with everything that it refers to written out in place: what a validation may cost goes by that."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[int, int] = {}

    def of(self, part: Any, depth: int) -> int:
        """The number of parts, or just more than are allowed. A schema that refers back to itself counts once."""
        if not isinstance(part, dict | list):
            return 0
        if depth > MAX_SCHEMA_DEPTH:
            return MAX_SCHEMA + 1
        if id(part) not in self._known:
            self._known[id(part)] = 1
            inside = list(part.values()) if isinstance(part, dict) else part
            if isinstance(part, dict) and isinstance(part.get("$ref"), str):
                inside = [*inside, self._target(part["$ref"])]
            total = 1 + sum(self.of(each, depth + 1) for each in inside)
            self._known[id(part)] = min(total, MAX_SCHEMA + 1)
        return self._known[id(part)]

    def _target(self, reference: str) -> Any:
        found: Any = self._root
        for key in reference.partition("#")[2].split("/")[1:]:
            name = key.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return found


def _refuse(uri: str) -> Any:
    raise ValueError(f"`{uri}` lies outside of the schema; nothing is fetched: put it under `$defs`")
