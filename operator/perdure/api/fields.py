"""Types of fields: names, expressions, times, free-form JSON, lists.

Each type is an annotation that validates a value in Python as the API server does, and that has its part of the CRD
schema. It also has the bounds: the API server requires one for every field that a rule reads. `FieldShape` and `ListShape` say
how a field or a list is read and written, and its part of the schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field
from pydantic_core import core_schema

from perdure.api.names import MAX_WORKFLOW_ID
from perdure.api.times import (
    DURATION_MESSAGE,
    MILLISECOND,
    TIME_MESSAGE,
    TIME_PATTERN,
    duration_cel,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)

if TYPE_CHECKING:
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


MAX_NAME = 63
"""Maximum length of a name inside a definition; the same as that of a label value."""
MAX_RESOURCE_NAME = 253
"""Maximum length of the name of a Kubernetes object."""
MAX_EXPRESSION = 4096
"""Maximum length of an expression."""
MAX_SHORT_EXPRESSION = 256
"""Maximum length of an expression for a duration or a time."""
MAX_TIMEOUT_EXPRESSION = 100
"""Maximum length of an expression for a timeout. The API server estimates the cost of rules with all fields full, and there are
too many timeouts for a larger limit."""
MAX_TEXT = 4096
"""Maximum length of a text for people: a reason, a note, a message."""
NAME_PATTERN = "^[A-Za-z][-_A-Za-z0-9]*$"
"""A name inside a definition. Names of functions and classes in other languages are valid."""
_LIKE_A_TIME = "^[-0-9]{10}T[:.0-9]{8,18}(Z|[-+][:0-9]{5})$"
"""Less strict than `TIME_PATTERN`, and short: the cost of a rule depends on the length of its pattern."""
NAME_MESSAGE = "must be a name of letters, digits, `-` and `_` that begins with a letter, at most 63 characters"
"""Validation message for an invalid name."""
VARIABLE_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*$"
"""A name that is valid as a variable in expressions."""
RESERVED = (
    *("input", "params", "steps", "index", "signals", "vars", "run", "now", "schedule"),
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)
"""Names that expressions define, or that CEL reserves."""
_NAME_FORM = re.compile(NAME_PATTERN)
_VARIABLE_FORM = re.compile(VARIABLE_PATTERN)


def is_expression(value: object) -> bool:
    """Whether a value is one whole expression, `${…}`.

    Args:
        value: Any value of a manifest.

    Returns:
        True for a string that starts with `${` and ends with `}`.
    """
    return isinstance(value, str) and value.startswith("${") and value.endswith("}")


EXPRESSION_MESSAGE = "must be one expression in `${…}`, such as `${input.nights > 0}`"
"""Validation message for text without `${…}`."""
VARIABLE_MESSAGE = (
    "must be a variable name of letters, digits and `_` that does not begin with a digit, and not a reserved name such as "
    "`input`, `steps` or `run`"
)
"""Validation message for an invalid variable name."""
DURATION_OR_EXPRESSION_MESSAGE = DURATION_MESSAGE + ", or an expression in `${…}`"
"""Validation message for any other value."""
TIME_OR_EXPRESSION_MESSAGE = TIME_MESSAGE + ", or an expression in `${…}`"
"""Validation message for any other value."""
TIMEOUT_MESSAGE = "must be longer than `0s`, or left out"
"""Validation message for a timeout of zero."""
_EXPRESSION_CEL = "self.startsWith('${') && self.endsWith('}')"


def _read_expression(value: Any) -> str:
    if not is_expression(value):
        raise ValueError(EXPRESSION_MESSAGE)
    if len(value) > MAX_EXPRESSION:
        raise ValueError(f"must have at most {MAX_EXPRESSION} characters")
    return str(value)


def _read_time(value: Any) -> datetime:
    if isinstance(value, datetime):
        format_time(value)
        return value
    if not isinstance(value, str):
        raise ValueError(TIME_MESSAGE)  # noqa: TRY004 - pydantic's way
    return parse_time(value)


def _read_variable(value: Any) -> str:
    if not isinstance(value, str) or _VARIABLE_FORM.fullmatch(value) is None or value in RESERVED:
        raise ValueError(VARIABLE_MESSAGE)
    if len(value) > MAX_NAME:
        raise ValueError(f"must have at most {MAX_NAME} characters")
    return value


def _read_duration_or_expression(value: Any, longest: int = MAX_SHORT_EXPRESSION) -> timedelta | str:
    if is_expression(value):
        if len(value) > longest:
            raise ValueError(f"must have at most {longest} characters; compute it in an earlier step with `set`")
        return str(value)
    try:
        return value if isinstance(value, timedelta) else parse_duration(str(value))
    except ValueError as error:
        raise ValueError(DURATION_OR_EXPRESSION_MESSAGE) from error


def _read_limit_or_expression(value: Any) -> timedelta | str:
    return _read_duration_or_expression(value, MAX_TIMEOUT_EXPRESSION)


def _read_timeout_or_expression(value: Any) -> timedelta | str:
    limit = _read_limit_or_expression(value)
    if isinstance(limit, timedelta) and limit < MILLISECOND:
        raise ValueError(TIMEOUT_MESSAGE)
    return limit


def _read_time_or_expression(value: Any) -> datetime | str:
    if is_expression(value) and len(value) <= MAX_SHORT_EXPRESSION:
        return str(value)
    try:
        return _read_time(value)
    except ValueError as error:
        raise ValueError(TIME_OR_EXPRESSION_MESSAGE) from error


def _write_duration(value: timedelta | str) -> str:
    return value if isinstance(value, str) else format_duration(value)


def _write_time(value: datetime | str) -> str:
    return value if isinstance(value, str) else format_time(value)


Json = Annotated[Any, FieldShape(lambda value: value, {"x-kubernetes-preserve-unknown-fields": True, "nullable": True})]
"""Any JSON value, kept unchanged. Rules of the API server cannot read it."""
JsonObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""Any JSON object, kept unchanged."""
Flag = Annotated[bool, Field(strict=True)]
"""True or false, not a string."""
MAX_COUNT: Final = 2**31 - 1
"""The largest number of a `Count`."""
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT, json_schema_extra={"format": "int32"})]
"""A whole number of at least 0."""
Positive = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT, json_schema_extra={"format": "int32"})]
"""A whole number of at least 1."""
Large = Annotated[int, Field(strict=True, ge=0, le=2**53, json_schema_extra={"format": "int64"})]
"""A whole number of at least 0 that can exceed 32 bits, but not 2^53."""
Time = Annotated[
    datetime,
    FieldShape(
        _read_time,
        {"type": "string", "format": "date-time", "pattern": TIME_PATTERN, "maxLength": 35},
        format_time,
    ),
]
"""A point in time; the Python value has a time zone."""
Name = Annotated[
    str,
    FieldShape(
        matching(_NAME_FORM, MAX_NAME, NAME_MESSAGE),
        cel_string(MAX_NAME, (f"self.matches('{NAME_PATTERN}')", NAME_MESSAGE)),
    ),
]
"""The name of something inside a definition: a step, an activity, a block, a signal, a branch."""
PlainName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=NAME_PATTERN)]
"""The same deep inside lists, where a rule with a readable message would cost too much."""
Reference = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
"""A reference by `Name`. A condition reports whether the target exists."""
Variable = Annotated[
    str,
    FieldShape(
        _read_variable,
        cel_string(
            MAX_NAME,
            (
                f"self.matches('{VARIABLE_PATTERN}') && !(self in [{', '.join(map(repr, RESERVED))}])",
                VARIABLE_MESSAGE,
            ),
        ),
    ),
]
"""A variable name in expressions."""
ResourceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_RESOURCE_NAME,
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""The name of a Kubernetes object in the same namespace."""
NAMESPACE_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""The name of a namespace."""
QualifiedName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_NAME + 1 + MAX_RESOURCE_NAME,
        pattern=f"^({NAMESPACE_PATTERN}/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""The name of a Kubernetes object in the same namespace, or `<namespace>/<name>`."""
NamespaceChoice = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=f"^([*]|{NAMESPACE_PATTERN})$")]
"""The name of a namespace, or `*` for all of them."""
WorkflowId = Annotated[str, Field(min_length=1, max_length=MAX_WORKFLOW_ID)]
"""A workflow ID, chosen by the client."""
Identifier = Annotated[str, Field(min_length=1, max_length=MAX_WORKFLOW_ID)]
"""A type, task queue, signal or other name that code defines."""
Uid = Annotated[str, Field(max_length=128)]
"""The UID of an object, or a run ID."""
Hash = Annotated[str, Field(max_length=128, pattern="^([a-z0-9]+:)?[0-9a-f]{32,}$")]
"""A hash in hexadecimal digits, optionally with the name of its algorithm before."""
Text = Annotated[str, Field(max_length=MAX_TEXT)]
"""A text for people."""
Template = Annotated[str, Field(max_length=MAX_EXPRESSION)]
"""A text in which the value of each `${…}` replaces it."""
FailureTypeName = Annotated[str, Field(min_length=1, max_length=253)]
"""The type of a failure; exact match."""
Expression = Annotated[
    str, FieldShape(_read_expression, cel_string(MAX_EXPRESSION, (_EXPRESSION_CEL, EXPRESSION_MESSAGE)))
]
"""One whole expression, `${…}`."""
_DURATION_OR_EXPRESSION_RULE = (
    f"self.startsWith('${{') ? self.endsWith('}}') : {duration_cel()}",
    DURATION_OR_EXPRESSION_MESSAGE,
)
DurationOrExpression = Annotated[
    timedelta | str,
    FieldShape(
        _read_duration_or_expression,
        cel_string(MAX_SHORT_EXPRESSION, _DURATION_OR_EXPRESSION_RULE),
        _write_duration,
    ),
]
"""A `datetime.timedelta`, or an expression as a string."""
LimitOrExpression = Annotated[
    timedelta | str,
    FieldShape(
        _read_limit_or_expression,
        cel_string(MAX_TIMEOUT_EXPRESSION, _DURATION_OR_EXPRESSION_RULE),
        _write_duration,
    ),
]
"""The same for a timeout that can be `0s`, which means no timeout."""
TimeoutOrExpression = Annotated[
    timedelta | str,
    FieldShape(
        _read_timeout_or_expression,
        # Not only zeros and units; an expression has other characters too.
        cel_string(MAX_TIMEOUT_EXPRESSION, _DURATION_OR_EXPRESSION_RULE, ("self.matches('[^0dhms]')", TIMEOUT_MESSAGE)),
        _write_duration,
    ),
]
"""A timeout: a `datetime.timedelta` longer than `0s`, or an expression as a string."""
TimeOrExpression = Annotated[
    datetime | str,
    FieldShape(
        _read_time_or_expression,
        cel_string(
            MAX_SHORT_EXPRESSION,
            (
                f"self.startsWith('${{') ? self.endsWith('}}') : self.matches('{_LIKE_A_TIME}')",
                TIME_OR_EXPRESSION_MESSAGE,
            ),
        ),
        _write_time,
    ),
]
"""A `datetime.datetime`, or an expression as a string."""
