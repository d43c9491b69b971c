"""Determine the shard of an RPC, which the member of the fleet that owns the shard handles. Pure."""

from collections.abc import Callable
from typing import Any, Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.api.names import schedule_name
from perdure.controller.fleet.shards import shard_of
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.offers import queue_shard
from perdure.frontend.messages.tokens import ActivityToken, NexusToken, QueryToken, Token, WorkflowTaskToken, unpack

EVERYWHERE: Final = frozenset({"RecordWorkerHeartbeat", "ShutdownWorker"})
"""RPCs for all members, because any of them may have tasks for the worker."""
SETTINGS: Final = frozenset(
    {
        "AddSearchAttributes",
        "CreateNexusEndpoint",
        "DeleteNexusEndpoint",
        "DeleteWorkerDeployment",
        "DeleteWorkerDeploymentVersion",
        "RemoveSearchAttributes",
        "SetWorkerDeploymentCurrentVersion",
        "SetWorkerDeploymentManager",
        "SetWorkerDeploymentRampingVersion",
        "UpdateNexusEndpoint",
        "UpdateTaskQueueConfig",
        "UpdateWorkerDeploymentVersionMetadata",
    }
)
"""RPCs that change a ConfigMap that each member caches."""
_QUEUES: Final = frozenset(
    {"DescribeTaskQueue", "PollActivityTaskQueue", "PollNexusTaskQueue", "PollWorkflowTaskQueue"}
)
"""RPCs about a task queue."""
_EXECUTIONS: Final = ("execution", "workflow_execution")
_NAMES: Final = ("workflow_id", "activity_id", "operation_id")
"""Fields with a workflow ID or an equivalent ID, in order of precedence."""


def shard_of_rpc(rpc: str, request: Any, workflow_of: Callable[[str], str]) -> int | None:
    """The shard of the run, Schedule, or task queue of an RPC. None if any member can handle the RPC.

    Args:
        rpc: The name of the RPC.
        request: The request.
        workflow_of: Returns the workflow ID of a run, by run ID; empty if the run is unknown.
    """
    fields = request.DESCRIPTOR.fields_by_name
    if rpc in EVERYWHERE or rpc in SETTINGS or "namespace" not in fields:
        return None
    namespace: str = request.namespace
    if "task_token" in fields:
        return _of_token(request.task_token, namespace, workflow_of)
    if rpc in _QUEUES:
        return queue_shard(namespace, _queue(request.task_queue))
    named = _named(rpc, request, workflow_of)
    return shard_of(namespace, named) if named else None


def _named(rpc: str, request: Any, workflow_of: Callable[[str], str]) -> str:
    """The workflow ID of an RPC's run, or the name of its Schedule; empty if it has neither."""
    fields = request.DESCRIPTOR.fields_by_name
    if rpc == "ExecuteMultiOperation":
        return request.operations[0].start_workflow.workflow_id if request.operations else ""
    if "schedule_id" in fields:
        return schedule_name(request.schedule_id)
    if "update_ref" in fields:
        return _of_execution(request.update_ref.workflow_execution, workflow_of)
    for field in _EXECUTIONS:
        if field in fields:
            return _of_execution(getattr(request, field), workflow_of)
    return next((getattr(request, field) for field in _NAMES if field in fields and getattr(request, field)), "")


def _queue(named: TaskQueue) -> str:
    """The task queue of a worker; for a sticky queue, the normal queue that it belongs to."""
    sticky = named.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY
    return named.normal_name if sticky and named.normal_name else named.name


def _of_execution(execution: WorkflowExecution, workflow_of: Callable[[str], str]) -> str:
    return execution.workflow_id or workflow_of(execution.run_id)


def _of_token(raw: bytes, namespace: str, workflow_of: Callable[[str], str]) -> int | None:
    try:
        token: Token = unpack(raw, (WorkflowTaskToken, ActivityToken, QueryToken, NexusToken), namespace)
    except RpcError:
        return None  # the member that handles it rejects it
    if isinstance(token, NexusToken):
        return token.shard
    named = token.workflow_id or workflow_of(token.run_id)
    return shard_of(namespace, named) if named else None
