"""Search attributes of runs, which become their labels and annotations."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from perdure.api.json_values import mapping, nests_deeper
from perdure.api.labels import SEARCH_PREFIX
from perdure.api.names import NAME_LIMIT, label_value

MAX_ALL: Final = 40 * 1024
"""Maximum size of all values together in bytes, as in Temporal's server (`limit.searchAttributesTotalSize`)."""
MAX_VALUE: Final = 2_048
"""Maximum size of one value in bytes, as in Temporal's server (`limit.searchAttributesSizeOfValue`)."""

REGISTRY: Final = "perdure-search-attributes"
"""Name of the ConfigMap with the names and types of the registered search attributes of a namespace."""
SYSTEM: Final = {
    "WorkflowId": "Keyword",
    "WorkflowType": "Keyword",
    "RunId": "Keyword",
    "ExecutionStatus": "Keyword",
    "StartTime": "Datetime",
    "CloseTime": "Datetime",
    "ExecutionTime": "Datetime",
    "ExecutionDuration": "Int",
    "HistoryLength": "Int",
    "HistorySizeBytes": "Int",
    "StateTransitionCount": "Int",
    "TaskQueue": "Keyword",
    "ParentWorkflowId": "Keyword",
    "ParentRunId": "Keyword",
    "RootWorkflowId": "Keyword",
    "RootRunId": "Keyword",
    "FirstRunId": "Keyword",
}
"""The search attributes of every run, and their types."""
PREDEFINED: Final = {
    "TemporalChangeVersion": "KeywordList",
    "TemporalScheduledStartTime": "Datetime",
    "TemporalScheduledById": "Keyword",
    "TemporalSchedulePaused": "Bool",
    "BuildIds": "KeywordList",
    "BinaryChecksums": "KeywordList",
    "BatcherNamespace": "Keyword",
    "BatcherUser": "Keyword",
    "TemporalNamespaceDivision": "Keyword",
    "TemporalPauseInfo": "KeywordList",
    "TemporalReportedProblems": "KeywordList",
    "TemporalWorkerDeployment": "Keyword",
    "TemporalWorkerDeploymentVersion": "Keyword",
    "TemporalWorkflowVersioningBehavior": "Keyword",
}
"""The search attributes that every Temporal server registers, and their types."""

_MISNAMED: Final = (
    f"must be 1 to {NAME_LIMIT} letters, digits, `-`, `_` or `.` that begin and end with a letter or digit: "
    "it becomes a label"
)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


class AttributeType(StrEnum):
    """The type of a registered search attribute, as in Temporal."""

    KEYWORD = "Keyword"
    TEXT = "Text"
    INT = "Int"
    DOUBLE = "Double"
    BOOL = "Bool"
    DATETIME = "Datetime"
    KEYWORD_LIST = "KeywordList"


def unfit(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the invalid search attributes by name, with a message each."""
    found: dict[str, str] = {}
    size = 0
    for name, value in attributes.items():
        text = text_of(value)
        length = len((text or "").encode("utf-8", "surrogatepass"))
        if len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
            found[name] = _MISNAMED
        elif text is None:
            found[name] = "is nested too deeply: make it a string"
        elif length > MAX_VALUE:
            found[name] = f"has more than {MAX_VALUE:,} bytes: put large values into the input"
        elif size + length > MAX_ALL:
            found[name] = f"is too large: all values together must have at most {MAX_ALL:,} bytes"
        else:
            size += length
    return found


def search_attributes_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search attributes of a run by name, with their current values: code may have changed those of the spec.

    Args:
        run: A WorkflowRun, with the values of its status.
    """
    code = mapping(mapping(mapping(run.get("status")).get("state")).get("code"))
    if code:
        found = mapping(code.get("searchAttributes"))
    else:
        found = {**_marked(mapping(run.get("metadata"))), **mapping(mapping(run.get("spec")).get("searchAttributes"))}
    return {name: attribute_value(value) for name, value in found.items() if value is not None}


def _marked(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The search attributes in the labels and annotations of a run, where values other than strings are JSON."""
    marks = {**mapping(metadata.get("annotations")), **mapping(metadata.get("labels"))}
    return {
        name.removeprefix(SEARCH_PREFIX): _listed(value)
        for name, value in marks.items()
        if name.startswith(SEARCH_PREFIX)
    }


def _listed(text: Any) -> Any:
    """The list in a JSON text; any other text is returned unchanged."""
    if isinstance(text, str) and text.startswith("["):
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text


def attribute_value(value: Any) -> Any:
    """The value of a search attribute that is stored with its type."""
    return value["value"] if isinstance(value, Mapping) and {"type", "value"} <= value.keys() else value


def attribute_type(value: Any, name: str = "") -> str:
    """The type of a search attribute, with Temporal's name; `name` matters only for predefined attributes."""
    if name in PREDEFINED:
        return PREDEFINED[name]
    match value:
        case {"type": str() as kind, "value": _}:
            return kind
        case bool():
            return "Bool"
        case int():
            return "Int"
        case float():
            return "Double"
        case list():
            return "KeywordList"
        case _:
            return "Keyword"


def attribute_time(value: Any) -> datetime | None:
    """The time in a Datetime attribute."""
    try:
        return datetime.fromisoformat(str(attribute_value(value)))
    except ValueError:
        return None


def attribute_field(attributes: Mapping[str, Any], name: str) -> Any:
    """The value of a search attribute for filters; None if it does not have the right type."""
    value = attributes.get(name)
    if value is not None and attribute_type(value, name) == "Datetime":
        found = attribute_time(value)
        return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
    if attribute_type(value) == "Double":
        try:
            return float(attribute_value(value))
        except (TypeError, ValueError, OverflowError):
            return None
    return attribute_value(value)


def text_of(value: Any) -> str | None:
    """Convert a value to a string: a string stays the same, other values become JSON; None if the value nests too deep."""
    if isinstance(value, str):
        return value
    return None if nests_deeper(value) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def search_marks(attributes: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return labels and annotations for search attributes: a label if the value fits, otherwise an annotation.

    Values other than text are written as JSON. Invalid attributes are omitted, so searches still find the run by the others.
    """
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    wrong = unfit(attributes)
    for name, value in attributes.items():
        text = text_of(value)
        if name not in wrong and text is not None:
            (labels if label_value(text) == text else annotations)[f"{SEARCH_PREFIX}{name}"] = text
    return labels, annotations
