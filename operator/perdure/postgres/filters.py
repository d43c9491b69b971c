"""The conditions of list filters as SQL. Values and names from users are always parameters, never a part of the text.

SQL knows three results of a condition, and so do filters. A negation is therefore translated by asking when a condition is
false: `sql_of(condition, holds=False)`. Each text that results is true or not true, so it can be used without NOT, and an index
can serve it.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from psycopg import sql
from psycopg.types.json import Jsonb

from perdure.api.phases import RunKind
from perdure.archive.filters import Among, And, Condition, Missing, Not, Or, Ordered, StartsWith
from perdure.archive.rows import microseconds

Part = tuple[sql.Composable, list[Any]]
"""A part of a statement, and its parameters."""

_COLUMNS: Final = {
    "WorkflowId": "workflow_id",
    "ActivityId": "workflow_id",
    "OperationId": "workflow_id",
    "WorkflowType": "workflow_type",
    "ActivityType": "workflow_type",
    "Operation": "workflow_type",
    "RunId": "run_id",
    "ExecutionStatus": "status",
    "StartTime": "start_time",
    "ExecutionTime": "execution_time",
    "CloseTime": "closed_at",
    "TaskQueue": "task_queue",
    "ExecutionDuration": "duration_ns",
    "HistoryLength": "history_length",
    "StateTransitionCount": "history_length",
    "HistorySizeBytes": "history_size",
    "ParentWorkflowId": "parent_workflow_id",
    "ParentRunId": "parent_run_id",
    "RootWorkflowId": "root_workflow_id",
    "RootRunId": "root_run_id",
    "FirstRunId": "first_run_id",
}
_OF_OPERATIONS: Final = {"Endpoint": "endpoint", "Service": "service", "RequestId": "request_id"}
_LONG: Final = frozenset({"workflow_id", "workflow_type"})
"""Columns of which an index has only the beginning, because its entries have a limit of 2,704 bytes."""
INDEXED: Final = 256
"""Characters of these columns in the index."""
_TIMES: Final = frozenset({"start_time", "execution_time", "closed_at"})
_NUMBERS: Final = frozenset({"duration_ns", "history_length", "history_size"})
_SIGNS: Final = {"<": sql.SQL("<"), "<=": sql.SQL("<="), ">": sql.SQL(">"), ">=": sql.SQL(">=")}
_NEVER: Final = sql.SQL("FALSE")
_ALWAYS: Final = sql.SQL("TRUE")


def sql_of(condition: Condition, kind: RunKind, *, holds: bool = True) -> Part:
    """Translate a condition.

    Args:
        condition: The condition.
        kind: The kind of the runs, which decides the names of fields.
        holds: Whether to ask when it is true; otherwise, when it is false.
    """
    match condition:
        case And():
            return _joined(condition.conditions, kind, holds=holds, every=holds)
        case Or():
            return _joined(condition.conditions, kind, holds=holds, every=not holds)
        case Not():
            return sql_of(condition.condition, kind, holds=not holds)
        case Missing():
            return _missing(condition, kind, missing=holds is not condition.negated)
        case Among() | Ordered() | StartsWith():
            return _compared(condition, kind, matches=holds is not condition.negated)
        case _:
            raise TypeError(f"no SQL for {condition!r}")


def _joined(conditions: Sequence[Condition], kind: RunKind, *, holds: bool, every: bool) -> Part:
    if not conditions:
        return (_ALWAYS if every else _NEVER), []
    parts = [sql_of(each, kind, holds=holds) for each in conditions]
    word = sql.SQL(" AND ") if every else sql.SQL(" OR ")
    text = sql.SQL("({})").format(word.join([part for part, _ in parts]))
    return text, [value for _, values in parts for value in values]


def _column(name: str, kind: RunKind) -> str | None:
    if kind is RunKind.NEXUS_OPERATION and name in _OF_OPERATIONS:
        return _OF_OPERATIONS[name]
    return _COLUMNS.get(name)


def _missing(condition: Missing, kind: RunKind, *, missing: bool) -> Part:
    column = _column(condition.name, kind)
    if column is not None:
        return sql.SQL("{} IS NULL" if missing else "{} IS NOT NULL").format(sql.Identifier(column)), []
    return sql.SQL("NOT attributes ? %s" if missing else "attributes ? %s"), [storable(condition.name)]


def _compared(condition: Among | Ordered | StartsWith, kind: RunKind, *, matches: bool) -> Part:
    column = _column(condition.name, kind)
    if column is not None:
        text, values = _of_column(condition, column)
        # If the column is NULL, both texts are.
        return (text if matches else sql.SQL("NOT ({})").format(text)), values
    text, values = _of_attribute(condition, storable(condition.name))
    if matches:
        return text, values
    if condition.optional:
        return sql.SQL("NOT ({})").format(text), values
    return sql.SQL("(attributes ? %s AND NOT ({}))").format(text), [storable(condition.name), *values]


# Columns


def _of_column(condition: Among | Ordered | StartsWith, column: str) -> Part:
    name = sql.Identifier(column)
    match condition:
        case Among():
            if column in _TIMES:
                return sql.SQL("{} = ANY(%s::timestamptz[])").format(name), [list(condition.wanted)]
            if column in _NUMBERS:
                return sql.SQL("{} = ANY(%s::numeric[])").format(name), [list(map(_exact, condition.wanted))]
            return _any_text(column, [storable(each) for each in condition.wanted])
        case Ordered():
            parts = [sql.SQL("{} {} %s").format(name, _SIGNS[sign]) for sign, _ in condition.bounds]
            values = [_parameter(column, value) for _, value in condition.bounds]
            return sql.SQL("({})").format(sql.SQL(" AND ").join(parts)), values
        case StartsWith():
            if column in _TIMES | _NUMBERS:
                return sql.SQL("({} IS NULL AND FALSE)").format(name), []
            return sql.SQL("starts_with({}, %s)").format(name), [storable(condition.prefix)]


def _any_text(column: str, wanted: Sequence[str]) -> Part:
    one = len(wanted) == 1
    name, sign = sql.Identifier(column), sql.SQL("%s" if one else "ANY(%s::text[])")
    values: list[Any] = [wanted[0] if one else list(wanted)]
    if column not in _LONG:
        return sql.SQL("{} = {}").format(name, sign), values
    begins = [each[:INDEXED] for each in wanted]
    text = sql.SQL("(left({0}, {1}) = {2} AND {0} = {2})").format(name, INDEXED, sign)
    return text, [begins[0] if one else begins, *values]


def _parameter(column: str, value: Any) -> Any:
    if column in _TIMES:
        return value
    return _exact(value) if column in _NUMBERS else storable(value)


def _exact(value: Any) -> Decimal:
    return Decimal(value)


def _as_json(number: float) -> Decimal:
    """A number with the digits that it has in JSON: those of 0.1 are not the exact value of the floating-point number."""
    return Decimal(repr(number))


def storable(value: Any) -> str:
    """A text as PostgreSQL can store it: it has neither NUL nor halves of characters, and JSON can have both.

    U+0001, which replaces NUL, is its neighbor in the order of texts.
    """
    return str(value).replace("\0", "\x01").encode("utf-8", "replace").decode()


# Search attributes, whose values are in one JSON column


def _of_attribute(condition: Among | Ordered | StartsWith, name: str) -> Part:
    match condition:
        case Among():
            return _any_attribute(name, condition.wanted)
        case Ordered():
            parts = [_ordered_attribute(name, sign, value) for sign, value in condition.bounds]
            joined = sql.SQL("({})").format(sql.SQL(" AND ").join([part for part, _ in parts]))
            return joined, [each for _, values in parts for each in values]
        case StartsWith():
            text = sql.SQL(
                "CASE jsonb_typeof(attributes -> %s) WHEN 'string' THEN starts_with(attributes ->> %s, %s)"
                " WHEN 'array' THEN EXISTS (SELECT FROM jsonb_array_elements_text(attributes -> %s) AS item"
                " WHERE starts_with(item, %s)) ELSE FALSE END"
            )
            prefix = storable(condition.prefix)
            return text, [name, name, prefix, name, prefix]


def _any_attribute(name: str, wanted: Sequence[Any]) -> Part:
    """One of several values, or a list with one of them. The index on the column finds both forms."""
    forms: list[Jsonb] = []
    for each in wanted:
        value = microseconds(each) if isinstance(each, datetime) else each
        if isinstance(value, float) and not isfinite(value):
            continue  # JSON has no such number
        value = storable(value) if isinstance(value, str) else value
        forms += [Jsonb({name: value}), Jsonb({name: [value]})]
    if not forms:
        return _NEVER, []
    return sql.SQL("({})").format(sql.SQL(" OR ").join([sql.SQL("attributes @> %s")] * len(forms))), list(forms)


def _ordered_attribute(name: str, sign: str, value: Any) -> Part:
    if isinstance(value, bool):
        text = (
            "CASE jsonb_typeof(attributes -> %s) WHEN 'boolean' THEN (attributes ->> %s)::boolean {} %s ELSE FALSE END"
        )
        return sql.SQL(text).format(_SIGNS[sign]), [name, name, value]
    if isinstance(value, (int, float, datetime)):
        number = microseconds(value) if isinstance(value, datetime) else value
        text = (
            "CASE jsonb_typeof(attributes -> %s) WHEN 'number' THEN (attributes ->> %s)::numeric {} %s ELSE FALSE END"
        )
        return sql.SQL(text).format(_SIGNS[sign]), [name, name, _as_json(number)]
    text = (
        "CASE jsonb_typeof(attributes -> %s) WHEN 'string' THEN (attributes ->> %s) COLLATE \"C\" {} %s ELSE FALSE END"
    )
    return sql.SQL(text).format(_SIGNS[sign]), [name, name, storable(value)]
