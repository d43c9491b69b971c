"""Convert start requests of clients to the spec and the annotations of a WorkflowRun."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import orjson
from temporalio.api.common.v1 import Payload

from perdure.api.fields import MAX_RESOURCE_NAME
from perdure.api.json_values import MAX_DEPTH, nests_deeper
from perdure.api.times import nearest_duration
from perdure.engine.cron import cron_mistake
from perdure.engine.payloads import plain
from perdure.engine.starts import StartExtras
from perdure.engine.state import PODS_QUEUE, WORKFLOWS_QUEUE
from perdure.frontend.deployments.overrides import override_of
from perdure.frontend.matching.dispatch import requested_priority
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import UnfitError, check_size, duration, name, retry_policy
from perdure.kube.clock import now
from perdure.runtime.blobs import Room
from perdure.runtime.chains import retry_policy_json

_RESERVED_QUEUES = "/_sys/"
"""Prefix of a Temporal server's own task queues (common/tqid)."""

_MAX_EXTRAS = 128 * 1024
"""Bytes: the API server takes 256 KiB of annotations; of those are search attributes, and signals that pass to the next run."""
_NO_JSON = "Input: cannot be passed on as JSON"
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
TIMEOUTS = (
    ("workflow_execution_timeout", "executionTimeout"),
    ("workflow_run_timeout", "runTimeout"),
    ("workflow_task_timeout", "taskTimeout"),
)
"""Fields of Temporal's messages, and the matching fields of a spec."""


def requested_run(
    start: Any, types: Mapping[str, str], namespace: str, *, allow_blob: bool = False
) -> tuple[dict[str, Any], StartExtras]:
    """Build the spec of the WorkflowRun that a client requests, and its other parts.

    Args:
        start: A NewWorkflowExecutionInfo, or a request to start that has the same fields.
        types: The types of the registered search attributes, by name.
        namespace: The namespace.
        allow_blob: Whether a large input may be a blob, which needs a run as its owner.

    Raises:
        UnfitError: The request is not valid.
    """
    queue, workflow_type = start.task_queue.name, start.workflow_type.name
    by_name = queue == WORKFLOWS_QUEUE
    kept = input_of(start.input.payloads, by_name=by_name, allow_blob=allow_blob and not by_name)
    spec: dict[str, Any] = {"workflowId": start.workflow_id}
    if by_name:
        spec["workflow"], kept = {"name": workflow_named(workflow_type)}, plain(kept)
    else:
        spec["workflow"] = {"type": workflow_type, "taskQueue": queue_of_code(queue)}
    if kept is not None:
        spec["input"] = kept
    for field, ours in TIMEOUTS:
        length = duration(start, field)
        if length:
            spec[ours] = nearest_duration(length)
    if start.HasField("retry_policy"):
        spec["retryPolicy"] = retry_policy_json(retry_policy(start.retry_policy))
    found_by = data.attributes_to_json(start.search_attributes.indexed_fields, types, namespace)
    if found_by:
        spec["searchAttributes"] = found_by
    extras = StartExtras(
        header=data.header_to_json(start),
        memo=data.memo_to_json(start.memo),
        user_metadata=data.user_metadata_to_json(start.user_metadata) if start.HasField("user_metadata") else None,
        priority=requested_priority(start),
        versioning_override=override_of(start.versioning_override) if start.HasField("versioning_override") else None,
    )
    if by_name and extras.versioning_override is not None:
        raise UnfitError("VersioningOverride is not supported for Workflows, which are started by name")
    check_extras(extras)
    return spec, extras


def _check_json(payload: Payload) -> None:
    """Reject a payload that claims to be JSON but cannot be stored as JSON."""
    if not payload.metadata.get("encoding", b"").startswith(b"json/"):
        return
    try:
        value = orjson.loads(payload.data)
    except orjson.JSONDecodeError as error:
        raise UnfitError(f"{_NO_JSON}: {error}") from None
    if nests_deeper(value):
        raise UnfitError(f"{_NO_JSON}: it nests more than {MAX_DEPTH} levels deep")


def input_of(payloads: Sequence[Payload], *, by_name: bool, allow_blob: bool = False, room: Room | None = None) -> Any:
    """Convert the input of a run to its stored form.

    Args:
        payloads: The payloads of the input.
        by_name: Whether the run is one of a Workflow, which reads the input as JSON.
        allow_blob: Whether the input may be a blob.
        room: The space in the status of the starting run; None: only for this input.

    Raises:
        UnfitError: The input is not valid for a run.
    """
    kept = data.to_json(payloads, allow_blob=allow_blob, room=room)
    if by_name:
        for payload in payloads:
            _check_json(payload)
    try:
        size = len(orjson.dumps(plain(kept) if by_name else kept))
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise UnfitError(f"{_NO_JSON}: {error}") from None
    check_size(size)
    return kept


def cron_refused(schedule: str, *, by_name: bool) -> str:
    """Why a run cannot have a cron schedule; empty if it can, or has none.

    Args:
        schedule: The cron schedule.
        by_name: Whether the run is one of a Workflow, which only Schedules start repeatedly.
    """
    if schedule and by_name:
        return "CronSchedule is not supported for Workflows; create a Schedule that starts the Workflow."
    return cron_mistake(schedule, now())


def check_extras(extras: StartExtras) -> None:
    """Check that the annotations of a run are not too large.

    Raises:
        UnfitError: They are too large.
    """
    check_size(len(msgspec.json.encode(extras)), _MAX_EXTRAS, "Header and memo")


def queue_of_code(queue: str) -> str:
    """Read the task queue of a workflow for SDK workers; empty if there is none.

    Raises:
        UnfitError: No worker polls this task queue for workflows.
    """
    if queue.startswith(_RESERVED_QUEUES):
        raise UnfitError(f"task queue name cannot start with reserved prefix {_RESERVED_QUEUES}")
    if queue == WORKFLOWS_QUEUE or queue.startswith(PODS_QUEUE):
        raise UnfitError(f"TaskQueue: no worker polls {queue[:63]!r} for workflows")
    return name(queue, "TaskQueue", required=False)


def workflow_named(named: str) -> str:
    """Check and return the name of a Workflow.

    Raises:
        UnfitError: The name is not valid.
    """
    if len(named) > MAX_RESOURCE_NAME or not _RESOURCE.fullmatch(named):
        message = f"WorkflowType: the task queue `{WORKFLOWS_QUEUE}` runs Workflows by name, but {named!r} is not a valid name"
        raise UnfitError(message)
    return named
