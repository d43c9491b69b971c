"""Runs that clients ask for: what of it stands in the spec of a WorkflowRun, and what beside it."""

from collections.abc import Mapping
from typing import Any

from perdure.api.durations import format_duration
from perdure.engine.opaque import plain
from perdure.engine.starts import StartExtras
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend import payloads as data
from perdure.frontend.commands import retry_policy
from perdure.runtime.chains import retry_policy_json

TIMEOUTS = (
    ("workflow_execution_timeout", "executionTimeout"),
    ("workflow_run_timeout", "runTimeout"),
    ("workflow_task_timeout", "taskTimeout"),
)
"""Fields of Temporal's messages, and those of a spec."""


def run_asked_for(asked: Any, types: Mapping[str, str]) -> tuple[dict[str, Any], StartExtras]:
    """The spec of a WorkflowRun, and what there is beside it.

    Args:
        asked: A NewWorkflowExecutionInfo, or a request to start that has the same fields.
        types: The search attributes that are known, and the type of each.

    Raises:
        ValueError: it cannot be started so.
    """
    queue, workflow_type = asked.task_queue.name, asked.workflow_type.name
    given = data.to_json(asked.input.payloads)
    spec: dict[str, Any] = {"workflow": {"type": workflow_type, "taskQueue": queue}, "workflowId": asked.workflow_id}
    if queue == WORKFLOWS_QUEUE:
        spec["workflow"], given = {"name": workflow_type}, plain(given)
    if given is not None:
        spec["input"] = given
    for field, ours in TIMEOUTS:
        length = getattr(asked, field).ToTimedelta()
        if length:
            spec[ours] = format_duration(length)
    if asked.HasField("retry_policy"):
        spec["retryPolicy"] = retry_policy_json(retry_policy(asked.retry_policy))
    found_by = data.attributes_to_json(asked.search_attributes.indexed_fields, types)
    if found_by:
        spec["searchAttributes"] = found_by
    extras = StartExtras(
        header=data.fields_to_json(asked.header.fields),
        memo=data.fields_to_json(asked.memo.fields),
        user_metadata=data.user_metadata_to_json(asked.user_metadata) if asked.HasField("user_metadata") else None,
        priority=data.message_to_json(asked.priority) if asked.HasField("priority") else None,
    )
    return spec, extras
