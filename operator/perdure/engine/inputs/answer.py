"""Answers to requests."""

from dataclasses import dataclass, field
from typing import Any

from perdure.api.reasons import ConditionReason


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request. The client gets it only after the transition is committed."""

    ok: bool
    reason: str = ""
    """Why the request failed, as one CamelCase word; `CLOSED` also if nothing had to be done because the run has closed. After a
    success, a warning."""
    message: str = ""
    """Why the request failed, as a sentence."""
    result: dict[str, Any] = field(default_factory=dict)
    """Details, such as the run that a Schedule started."""


CLOSED = ConditionReason.WORKFLOW_EXECUTION_COMPLETED
"""The reason in answers of a run that has already closed."""

OPERATION_NOT_FOUND = "OperationNotFound"
"""The reason in the answer of a run without this open Nexus operation."""

TOO_MANY_CALLBACKS = "TooManyCallbacks"
"""The reason in the answer of a run that already has the maximum number of callbacks."""

CLOSING = ConditionReason.WORKFLOW_CLOSING
"""The reason in answers of a run that is about to close or must decide once more: the client must retry."""
