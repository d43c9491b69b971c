"""Suggestions for an unknown field, or for a plain value in place of an object."""

from __future__ import annotations

import json
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

Location = tuple[int | str, ...]
"""The path of a field, as pydantic reports it."""

_ELSEWHERE: Final = {
    # CronJob, CronWorkflow
    "schedule": "cron",
    "schedules": "cron",
    "timezone": "timeZone",
    "concurrencyPolicy": "overlapPolicy",
    "startingDeadlineSeconds": "catchupWindow",
    "suspend": "paused",
    "successfulJobsHistoryLimit": "successfulRunsHistoryLimit",
    "failedJobsHistoryLimit": "failedRunsHistoryLimit",
    "jobTemplate": "workflowRunTemplate",
    "backoffLimit": "maximumAttempts",
    "workflowSpec": "workflowRunTemplate",
    # Workflows of Argo
    "activeDeadlineSeconds": "scheduleToCloseTimeout",
    "arguments": "input",
    "dependencies": "needs",
    "depends": "needs",
    "dependsOn": "needs",
    "if": "when",
    "onExit": "finally",
    "retryStrategy": "retryPolicy",
    "withItems": "forEach",
    "withParam": "forEach",
    "workflowTemplateRef": "workflow",
    "limit": "maximumAttempts",
    # Temporal
    "maxAttempts": "maximumAttempts",
    "action": "workflowRunTemplate",
    "args": "input",
    "calendar": "calendars",
    "cronExpressions": "cron",
    "cronString": "cron",
    "endAt": "endTime",
    "excludeCalendar": "exclude",
    "id": "workflowId",
    "interval": "intervals",
    "note": "notes",
    "overlap": "overlapPolicy",
    "skip": "exclude",
    "startAt": "startTime",
    "timezoneName": "timeZone",
    "timeout": "startToCloseTimeout",
    "workflowExecutionTimeout": "executionTimeout",
    "workflowRunTimeout": "runTimeout",
    "workflowTaskTimeout": "taskTimeout",
}
"""Names of fields in other systems, and ours. A suggestion applies if the object has the field."""

_MEANT: Final = ("name", "duration")
"""The fields that a plain value in place of an object probably is."""

_NEAR: Final = 0.7
"""Minimum similarity of two spellings, as difflib computes it."""

_DEPTH: Final = 2
"""How many levels deep to search for a misplaced field."""

_SHOWN: Final = 60
"""Maximum length of a value in a suggestion."""


def meant_by_field(root: type[BaseModel], location: Location) -> str:
    """Suggest a field for one that does not exist.

    Args:
        root: The model of the whole object.
        location: The path of the field.

    Returns:
        Such as ``overlapPolicy``, or ``exponential.maximumAttempts`` for a nested field; empty if none is similar.
    """
    model, name = _model_at(root, location[:-1]), str(location[-1])
    if model is None:
        return ""
    known = _fields(model)
    other = _ELSEWHERE.get(name)
    if other in known:
        return str(other)
    same = [each for each in known if each.casefold() == name.casefold()]
    below = [] if same else _below(model, [name, *([other] if other else [])])
    near = same or below or get_close_matches(name, known, 1, _NEAR)
    return near[0] if near else ""


def meant_by_value(root: type[BaseModel], location: Location, value: object) -> str:
    """Suggest an object for a plain value in its place.

    Returns:
        Such as ``sleep: {duration: 5s}``; empty if unknown.
    """
    model = _model_at(root, location)
    if model is None or not isinstance(value, str | int) or isinstance(value, bool) or len(str(value)) > _SHOWN:
        return ""
    inner = _within(model, value)
    if not inner:
        return ""
    return f"{location[-1]}: {inner}" if location and isinstance(location[-1], str) else inner


def _within(model: type[BaseModel], value: str | int) -> str:
    fields = _fields(model)
    required = [name for name, field in fields.items() if field.is_required()]
    name = required[0] if len(required) == 1 else next((each for each in _MEANT if each in fields and not required), "")
    if not name:
        return ""
    inner = _strip(fields[name].annotation)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        shown = _within(inner, value)
        return f"{{{name}: {shown}}}" if shown else ""
    return "" if get_origin(inner) in {list, dict} else f"{{{name}: {_plain(value)}}}"


def _plain(value: str | int) -> str:
    """The value as YAML inside braces."""
    text = str(value)
    return text if not set(text) & set("{}[],:#'\"\n&*!|>%@`") and text == text.strip() else json.dumps(value)


def _below(model: type[BaseModel], names: list[str]) -> list[str]:
    """The path of the only nested field with one of the names, on the nearest level."""
    level = [("", model)]
    for _ in range(_DEPTH):
        level = [(f"{path}{name}.", each) for path, found in level for name, each in _parts(found)]
        for name in names:
            found_here = [f"{path}{name}" for path, each in level if name in _fields(each)]
            if len(found_here) == 1:
                return found_here
    return []


def _parts(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in _fields(model).items():
        inner = _strip(field.annotation)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield name, inner


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by their names in manifests."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_at(root: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """The model at a path; None if it has none."""
    found: Any = root
    for part in location:
        found = _strip(found)
        if isinstance(part, int):
            found = next(iter(get_args(found)), None) if get_origin(found) in {list, tuple} else None
        elif isinstance(found, type) and issubclass(found, BaseModel):
            field = _fields(found).get(part)
            found = field.annotation if field is not None else None
        else:
            found = get_args(found)[1] if get_origin(found) is dict else None
    found = _strip(found)
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def _strip(annotation: Any) -> Any:
    """The type without annotations and without None."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in {Union, UnionType}:
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation
