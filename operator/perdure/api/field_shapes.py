"""Shapes of fields and lists: how they are read and written, and their parts of the CRD schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import core_schema

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


@dataclass(frozen=True, slots=True, eq=False)
class FieldShape:
    """How a type of field is read and written in Python, and its part of the CRD schema."""

    read: Callable[[Any], Any]
    """Converts the value of a manifest or a caller to the Python value; raises ValueError with a message."""

    schema: dict[str, Any]
    """Part of the CRD schema."""

    write: Callable[[Any], str] | None = None
    """Converts the Python value to the value in a manifest; None if both are the same."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        writer = None
        if self.write is not None:
            writer = core_schema.plain_serializer_function_ser_schema(self.write, when_used="json-unless-none")
        return core_schema.no_info_plain_validator_function(self.read, serialization=writer)

    def __get_pydantic_json_schema__(
        self, _schema: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self.schema)


@dataclass(frozen=True, slots=True, eq=False)
class ListShape:
    """Bounds of a list, and how the API server merges it."""

    kind: Literal["atomic", "set", "map"]
    """`atomic`: replaced as a whole; `set`: unique items; `map`: items with a key."""

    max_items: int
    """Maximum number of items."""

    key: str | None = None
    """The field, in manifests, that is the key of the items of a `map`."""

    min_items: int = 0
    """Minimum number of items."""

    def check(self, items: list[Any]) -> list[Any]:
        """Check the number of items and that they are unique.

        Args:
            items: The list, whose items are valid.

        Returns:
            The same list.

        Raises:
            ValueError: There are too many or too few items, or one is repeated.
        """
        if len(items) > self.max_items:
            raise ValueError(f"must have at most {self.max_items} items")
        if len(items) < self.min_items:
            raise ValueError(f"must have at least {self.min_items} items")
        if self.kind != "atomic":
            keys = [item if self.key is None else getattr(item, self.key) for item in items]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"must have unique {self.key or 'item'}s, but has {key!r} twice")
        return items

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        result = handler.resolve_ref_schema(handler(schema))
        result["maxItems"] = self.max_items
        if self.min_items:
            result["minItems"] = self.min_items
        result["x-kubernetes-list-type"] = self.kind
        if self.key is not None:
            result["x-kubernetes-list-map-keys"] = [self.key]
        return result


def atomic_list(max_items: int, *, min_items: int = 0) -> ListShape:
    """Annotate a list that is replaced as a whole.

    Args:
        max_items: Maximum number of items.
        min_items: Minimum number of items.

    Returns:
        Metadata for `typing.Annotated`.
    """
    return ListShape("atomic", max_items, min_items=min_items)


def set_list(max_items: int, *, min_items: int = 0) -> ListShape:
    """Annotate a list of unique scalars.

    Args:
        max_items: Maximum number of items.
        min_items: Minimum number of items.

    Returns:
        Metadata for `typing.Annotated`.
    """
    return ListShape("set", max_items, min_items=min_items)


def map_list(key: str, max_items: int, *, min_items: int = 0) -> ListShape:
    """Annotate a list whose items have a key.

    Args:
        key: The field that is the key.
        max_items: Maximum number of items.
        min_items: Minimum number of items.

    Returns:
        Metadata for `typing.Annotated`.
    """
    return ListShape("map", max_items, key, min_items)


def matching(pattern: re.Pattern[str], max_length: int, message: str) -> Callable[[Any], str]:
    """Create the reader of a string with a pattern.

    Args:
        pattern: The pattern of the whole string.
        max_length: Maximum length.
        message: Validation message for a string that does not match.

    Returns:
        A function for `FieldShape.read`.
    """

    def read(value: Any) -> str:
        if not isinstance(value, str) or not value or pattern.fullmatch(value) is None:
            raise ValueError(message)
        if len(value) > max_length:
            raise ValueError(f"must have at most {max_length} characters")
        return value

    return read


def cel_string(max_length: int, *rules: tuple[str, str]) -> dict[str, Any]:
    """Create the CRD schema of a string that CEL rules validate, so that errors have a readable message.

    Args:
        max_length: Maximum length.
        rules: CEL expressions on `self`, each with its message.

    Returns:
        The schema.
    """
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": max_length,
        "x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules],
    }
