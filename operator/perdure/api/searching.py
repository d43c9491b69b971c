"""Search attributes: what a run can carry to be found by. They become its labels and annotations."""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from perdure.api.depth import nests_deeper
from perdure.api.names import NAME_LIMIT

MAX_ALL: Final = 40 * 1024
"""Bytes of all values together, as Temporal's servers have it (`limit.searchAttributesTotalSize`)."""
MAX_VALUE: Final = 2_048
"""Bytes of one value, as Temporal's servers have it (`limit.searchAttributesSizeOfValue`); a run has 100 at the most."""

REGISTRY: Final = "perdure-search-attributes"
"""Name of the ConfigMap that has the registered search attributes of a namespace: their names and types."""
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
"""The fields that every run has, and the type of each."""
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
"""The types of the search attributes that every Temporal server knows."""

_MISNAMED: Final = (
    f"must be 1 to {NAME_LIMIT} letters, digits, `-`, `_` or `.`, a letter or digit first and last: it becomes a label"
)
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


class AttributeType(StrEnum):
    """The type of a registered search attribute, as Temporal calls it."""

    KEYWORD = "Keyword"
    TEXT = "Text"
    INT = "Int"
    DOUBLE = "Double"
    BOOL = "Bool"
    DATETIME = "Datetime"
    KEYWORD_LIST = "KeywordList"


def unfit(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Those that a run cannot carry, by name, and why."""
    found: dict[str, str] = {}
    size = 0
    for name, value in attributes.items():
        text = text_of(value)
        length = len((text or "").encode("utf-8", "surrogatepass"))
        if len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
            found[name] = _MISNAMED
        elif text is None:
            found[name] = "is nested too deep: make it a text"
        elif length > MAX_VALUE:
            found[name] = f"has more than {MAX_VALUE:,} bytes: what is so large belongs into the input"
        elif size + length > MAX_ALL:
            found[name] = f"is too much: all values together may have {MAX_ALL:,} bytes"
        else:
            size += length
    return found


def text_of(value: Any) -> str | None:
    """A value as text, if it can be written: text as it is, of all else its JSON."""
    if isinstance(value, str):
        return value
    return None if nests_deeper(value) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
