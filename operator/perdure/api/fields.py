"""Types of fields: names, expressions, times, free-form JSON, lists.

Each is an annotation that reads a value the same way in Python as the API server does, and that knows its own part of
the CRD schema. Bounds stand here too, since the API server wants a bound on everything that a rule looks at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic_core import core_schema

from perdure.api.durations import (
    DURATION_MESSAGE,
    MILLISECOND,
    duration_cel,
    format_duration,
    parse_duration,
)
from perdure.api.names import MAX_WORKFLOW_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

MAX_NAME = 63
"""Characters of a name inside a definition; the same as a label value."""

MAX_RESOURCE_NAME = 253
"""Characters of the name of a Kubernetes object."""

MAX_EXPRESSION = 4096
"""Characters of an expression."""

MAX_SHORT_EXPRESSION = 256
"""Characters of an expression that stands for a duration or a time."""

MAX_TIMEOUT_EXPRESSION = 100
"""Characters of an expression that gives a timeout. There are so many of those fields that the API server, which reckons what
its rules may cost with all of them full, has no room for more."""

MAX_TEXT = 4096
"""Characters of a text for people: a reason, a note, a message."""

TIME_PATTERN = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
"""RFC 3339 with an offset."""

TIME_MESSAGE = "must be a time as RFC 3339 writes it, with its offset, such as `2026-12-24T18:00:00Z`"
"""The sentence a person sees who wrote something else."""

NAME_PATTERN = "^[A-Za-z][-_A-Za-z0-9]*$"
"""A name inside a definition: also names of functions and classes in other languages fit."""

_LIKE_A_TIME = "^[-0-9]{10}T[:.0-9]{8,18}(Z|[-+][:0-9]{5})$"
"""Looser than `TIME_PATTERN`, and short: the cost of a rule goes by the length of its pattern."""

NAME_MESSAGE = "must be a name: letters, digits, `-` and `_`, from a letter on, at most 63 characters"
"""The sentence a person sees who wrote something else."""

VARIABLE_PATTERN = "^[A-Za-z_][A-Za-z0-9_]*$"
"""A name that expressions can use as it is."""

RESERVED = (
    *("input", "params", "steps", "index", "signals", "vars", "run", "now", "schedule"),
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)
"""Names that expressions know already, or that CEL keeps for itself."""

_TIME_FORM = re.compile(TIME_PATTERN)
_NAME_FORM = re.compile(NAME_PATTERN)
_VARIABLE_FORM = re.compile(VARIABLE_PATTERN)


def is_expression(value: object) -> bool:
    """Tell whether a value is one whole expression, `${…}`.

    Args:
        value: Any value of a manifest.

    Returns:
        True for a string that starts with `${` and ends with `}`.
    """
    return isinstance(value, str) and value.startswith("${") and value.endswith("}")


def parse_time(text: str) -> datetime:
    """Read a time such as `2026-12-24T18:00:00Z`.

    Args:
        text: RFC 3339, with an offset.

    Returns:
        The time in UTC, to the microsecond.

    Raises:
        ValueError: The text has another form; the message says which one is accepted.
    """
    if _TIME_FORM.fullmatch(text) is None:
        raise ValueError(TIME_MESSAGE)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(TIME_MESSAGE) from error


def format_time(value: datetime) -> str:
    """Write a time as RFC 3339 in UTC.

    Args:
        value: A time that knows its zone.

    Returns:
        For instance `2026-12-24T18:00:00Z`; with six fractional digits where it has any.

    Raises:
        ValueError: The time does not know its zone.
    """
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} must have a time zone")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, eq=False)
class FieldShape:
    """How one kind of field is read and written in Python, and its part of the CRD schema."""

    read: Callable[[Any], Any]
    """Turns what a manifest or a caller gives into the Python value; raises ValueError with a sentence."""

    schema: dict[str, Any]
    """The part of the CRD schema."""

    write: Callable[[Any], str] | None = None
    """Turns the Python value into what a manifest says; None where that is the same."""

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
    """How a list is bounded, and how the API server merges it."""

    kind: Literal["atomic", "set", "map"]
    """`atomic`: replaced as a whole; `set`: each item once; `map`: items are known by a field."""

    max_items: int
    """How many items there may be."""

    key: str | None = None
    """The field, in manifests, by which the items of a `map` are known."""

    min_items: int = 0
    """How many items there must be."""

    def check(self, items: list[Any]) -> list[Any]:
        """Check the number of items and that none is there twice.

        Args:
            items: The list as validated so far.

        Returns:
            The same list.

        Raises:
            ValueError: There are too many or too few, or one is there twice.
        """
        if len(items) > self.max_items:
            raise ValueError(f"must have at most {self.max_items} items")
        if len(items) < self.min_items:
            raise ValueError(f"must have at least {self.min_items} items")
        if self.kind != "atomic":
            keys = [item if self.key is None else getattr(item, self.key) for item in items]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"must have each {self.key or 'item'} once, but {key!r} is there twice")
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
        max_items: How many items there may be.
        min_items: How many items there must be.

    Returns:
        Metadata for `typing.Annotated`.
    """
    return ListShape("atomic", max_items, min_items=min_items)


def set_list(max_items: int, *, min_items: int = 0) -> ListShape:
    """Annotate a list of scalars in which each stands once.

    Args:
        max_items: How many items there may be.
        min_items: How many items there must be.

    Returns:
        Metadata for `typing.Annotated`.
    """
    return ListShape("set", max_items, min_items=min_items)


def map_list(key: str, max_items: int, *, min_items: int = 0) -> ListShape:
    """Annotate a list whose items are known by one of their fields.

    Args:
        key: That field.
        max_items: How many items there may be.
        min_items: How many items there must be.

    Returns:
        Metadata for `typing.Annotated`.
    """
    return ListShape("map", max_items, key, min_items)


def matching(pattern: re.Pattern[str], max_length: int, message: str) -> Callable[[Any], str]:
    """Make the reader of a string that has a form.

    Args:
        pattern: The form of the whole string.
        max_length: How many characters there may be.
        message: The sentence for who wrote something else.

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
    """Make the CRD schema of a string that CEL rules check, so that a mistake is told in words.

    Args:
        max_length: How many characters there may be.
        rules: CEL expressions over `self`, each with its sentence.

    Returns:
        The schema.
    """
    return {
        "type": "string",
        "minLength": 1,
        "maxLength": max_length,
        "x-kubernetes-validations": [{"rule": rule, "message": message} for rule, message in rules],
    }


EXPRESSION_MESSAGE = "must be one expression in `${…}`, such as `${input.nights > 0}`"
"""The sentence a person sees who left the `${…}` out."""

VARIABLE_MESSAGE = (
    "must be a name that expressions can use: letters, digits and `_`, not from a digit on, and none of those they "
    "know already, such as `input`, `steps` or `run`"
)
"""The sentence a person sees who chose another name."""

DURATION_OR_EXPRESSION_MESSAGE = DURATION_MESSAGE + ", or an expression in `${…}`"
"""The sentence a person sees who wrote neither."""

TIME_OR_EXPRESSION_MESSAGE = TIME_MESSAGE + ", or an expression in `${…}`"
"""The sentence a person sees who wrote neither."""

TIMEOUT_MESSAGE = "must be longer than `0s`; leave the field out for its default"
"""The sentence a person sees who wrote a timeout of zero."""

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
            raise ValueError(f"must have at most {longest} characters; compute it in a step before, with `set`")
        return str(value)
    try:
        return value if isinstance(value, timedelta) else parse_duration(str(value))
    except ValueError as error:
        raise ValueError(DURATION_OR_EXPRESSION_MESSAGE) from error


def _read_limit_or_expression(value: Any) -> timedelta | str:
    return _read_duration_or_expression(value, MAX_TIMEOUT_EXPRESSION)


def _read_timeout_or_expression(value: Any) -> timedelta | str:
    given = _read_limit_or_expression(value)
    if isinstance(given, timedelta) and given < MILLISECOND:
        raise ValueError(TIMEOUT_MESSAGE)
    return given


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
"""Any JSON value, kept as it is. Rules of the API server cannot look into it."""

JsonObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""Any JSON object, kept as it is."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false, not a word for it."""

Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"})]
"""A whole number from 0 on."""

Positive = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1, json_schema_extra={"format": "int32"})]
"""A whole number from 1 on."""

Large = Annotated[int, Field(strict=True, ge=0, le=2**53, json_schema_extra={"format": "int64"})]
"""A whole number from 0 on that may not fit into 32 bits, but into every JSON reader."""

Time = Annotated[
    datetime,
    FieldShape(
        _read_time,
        {"type": "string", "format": "date-time", "pattern": TIME_PATTERN, "maxLength": 35},
        format_time,
    ),
]
"""A point in time; the Python value knows its zone."""

Name = Annotated[
    str,
    FieldShape(
        matching(_NAME_FORM, MAX_NAME, NAME_MESSAGE),
        cel_string(MAX_NAME, (f"self.matches('{NAME_PATTERN}')", NAME_MESSAGE)),
    ),
]
"""The name of something inside a definition: a step, an activity, a block, a signal, a branch."""

PlainName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=NAME_PATTERN)]
"""The same deep inside lists, where a rule that tells the mistake in words would cost too much."""

Reference = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
"""Refers to something by its `Name`; whether it exists is told by a condition."""

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
"""A name that expressions use as it is."""

ResourceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_RESOURCE_NAME,
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]
"""The name of a Kubernetes object in the same namespace."""

WorkflowId = Annotated[str, Field(min_length=1, max_length=MAX_WORKFLOW_ID)]
"""The id of a workflow, chosen by who starts it."""

Identifier = Annotated[str, Field(min_length=1, max_length=MAX_WORKFLOW_ID)]
"""A type, task queue, signal or other name whose form a program elsewhere decides."""

Uid = Annotated[str, Field(max_length=128)]
"""The UID of an object, or of a run."""

Text = Annotated[str, Field(max_length=MAX_TEXT)]
"""A text for people."""

Template = Annotated[str, Field(max_length=MAX_EXPRESSION)]
"""A text in which every `${…}` is replaced by its value."""

FailureTypeName = Annotated[str, Field(min_length=1, max_length=253)]
"""The type of a failure, compared as it is."""

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
"""A `datetime.timedelta`, or a string that is an expression which gives one."""

LimitOrExpression = Annotated[
    timedelta | str,
    FieldShape(
        _read_limit_or_expression,
        cel_string(MAX_TIMEOUT_EXPRESSION, _DURATION_OR_EXPRESSION_RULE),
        _write_duration,
    ),
]
"""The same for a timeout that may be `0s`, which is none."""

TimeoutOrExpression = Annotated[
    timedelta | str,
    FieldShape(
        _read_timeout_or_expression,
        # Not zeros and units alone; an expression has other characters too.
        cel_string(MAX_TIMEOUT_EXPRESSION, _DURATION_OR_EXPRESSION_RULE, ("self.matches('[^0dhms]')", TIMEOUT_MESSAGE)),
        _write_duration,
    ),
]
"""A timeout: a `datetime.timedelta` longer than `0s`, or a string that is an expression which gives one."""

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
"""A `datetime.datetime`, or a string that is an expression which gives one."""
