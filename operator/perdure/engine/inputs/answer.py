"""Answers to requests."""

from dataclasses import dataclass, field
from typing import Any

from perdure.api.reasons import ConditionReason


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request has come to. It is given only once the transition is recorded."""

    ok: bool
    reason: str = ""
    """Why not, as one CamelCase word; `CLOSED` also where nothing was to be done because the run has closed; of what was done,
    what is doubtful about it."""
    message: str = ""
    """Why not, as a sentence."""
    result: dict[str, Any] = field(default_factory=dict)
    """What came of it, such as the run that a Schedule has started."""


CLOSED = ConditionReason.WORKFLOW_EXECUTION_COMPLETED
"""Reason of the answers of a run that has closed before it was asked."""

OPERATION_NOT_FOUND = "OperationNotFound"
"""Reason of the answer of a run that waits for no such Nexus operation, or not any more."""

TOO_MANY_CALLBACKS = "TooManyCallbacks"
"""Reason of the answer to a client that attaches a callback to a run with as many as it may have."""

CLOSING = ConditionReason.WORKFLOW_CLOSING
"""Reason of the answers of a run that is about to close, or has to decide once more: it is to be asked again."""
