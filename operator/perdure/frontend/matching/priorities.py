"""Priorities of workflows and activities, stored as JSON of temporal.api.common.v1.Priority."""

from typing import Any

from temporalio.api.common.v1 import Priority

from perdure.frontend.matching.backlog import ORDINARY, Rank
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import UnfitError
from perdure.runtime.chains import inherited_priority

LONGEST_FAIRNESS_KEY = 64
"""Maximum length in bytes."""


def requested(message: Any) -> Any:
    """The priority in a request or a command as JSON; None if it has none.

    Args:
        message: A message with a field `priority`.

    Raises:
        UnfitError: The priority is not valid (the messages are Temporal's: common/priorities).
    """
    if not message.HasField("priority"):
        return None
    priority: Priority = message.priority
    if priority.priority_key < 0:
        raise UnfitError("priority key can't be negative")
    if len(priority.fairness_key.encode()) > LONGEST_FAIRNESS_KEY:
        raise UnfitError("fairness key length exceeds limit")
    if not priority.fairness_weight >= 0:
        raise UnfitError("must be greater than zero")
    return data.message_to_json(priority)


def effective(of_workflow: Any, own: Any) -> Priority:
    """The priority of an activity: each unset field comes from its workflow."""
    merged: Priority = data.message_from_json(inherited_priority(of_workflow, own) or {}, Priority)
    return merged


def rank(of_workflow: Any, own: Any = None) -> Rank:
    """The rank of a task in its queue."""
    if of_workflow is None and own is None:
        return ORDINARY
    priority = effective(of_workflow, own)
    return Rank.of(priority.priority_key, priority.fairness_key, priority.fairness_weight)
