"""Scenarios set every field of requests and cover a success and an error of every RPC, except those listed here."""

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase

from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.workflowservice import v1 as workflowservice

from fidelity.inventory import settable
from fidelity.recording import NAMES, REQUESTS, recorded
from perdure.frontend.transport.rpc import UNSERVED


def _plan(module: str, scenario: str) -> str:
    """Why no scenario sets a field yet: recording needs Temporal's server. It names the scenario that will, and its module."""
    return f"to be recorded in scenarios/{module}: {scenario}"


UNSET = {
    "*.cause=*": "a worker says why a task has failed, and servers hand it on; one cause stands for all",
    "*.resource_id": "routes requests between proxies; Perdure ignores it",
    "*.poller_group_id": "the same",
    "*time_skipping_config": "Perdure does not skip time",
    "common.TimeSkippingConfig.*": "the same",
    "common.FastForwardConfig.*": "the same",
    "*.worker_control_task_queue": "Perdure has no task queues that control workers",
    "taskqueue.TaskQueue.kind=TASK_QUEUE_KIND_WORKER_COMMANDS": "the same",
    "*PauseWorkflowExecutionRequest.*": "switched off in the server that is recorded",
    "UnpauseWorkflowExecutionRequest.*": "the same",
    "common.WorkerVersionCapabilities.*": "an earlier form of worker versioning, which Perdure does not support",
    "common.WorkerVersionStamp.use_versioning": "the same",
    "deployment.Deployment.*": "the same",
    "taskqueue.TaskQueueVersionSelection.*": "the same",
    "*.use_workflow_build_id": "the same",
    "schedule.SchedulePolicies.keep_original_workflow_id": "refused: two runs with one ID could not be told apart",
    "UpdateScheduleRequest.memo": "Temporal's server refuses it unless schedules are stored in another way",
    "nexus.EndpointTarget*.*": "Perdure calls no Nexus services outside the cluster",
    "common.Callback.Internal.data": "used between Temporal's own services",
    "common.Callback.internal": "the same",
    "nexusoperation.OnConflictOptions.*": "Temporal's server 1.32 takes no notice of it",
    "StartNexusOperationExecutionRequest.*": "refused: nobody is called when a standalone operation ends",
    "*.initiator=*": "only Temporal's server itself continues a workflow for a retry or a cron schedule",
    "*.initial_versioning_behavior=*": _plan("versioning.py", "versions_inherited: by a ramp to all workers"),
    "*.request_eager_execution": _plan("activities.py", "eager_activities: in the answer to the workflow task"),
    "*propagated_nexus_serialization_context": _plan("nexus.py", "handlers_of_activities, handlers_of_updates"),
    "common.Callback.*nexus_handler": "the server that is recorded calls no handlers by their task queue",
    "common.Callback.NexusHandler.*": "the same",
    "*.attach_completion_callbacks": _plan("nexus.py", "handlers_of_one_workflow"),
    "protocol.Message.*": _plan("workflow_requests.py", "update_messages: event IDs and command indexes"),
    "update.Request.*": _plan("workflow_requests.py", "update_callbacks"),
    "workflow.WorkflowExecutionOptions.priority": "refused: the priority of a running workflow cannot be changed",
    "batch.BatchOperationSignal.header": "refused: signals of a batch carry no headers",
    "common.ResetOptions.build_id": "refused: a workflow is not reset to the work of one build",
    "UpdateNamespaceRequest.namespace": _plan("system.py", "namespace_retention"),
    "UpdateNamespaceRequest.config": _plan("system.py", "namespace_retention"),
    "namespace.NamespaceConfig.workflow_execution_retention_ttl": _plan("system.py", "namespace_retention"),
    "UpdateNamespaceRequest.*": "refused: apart from its retention, a namespace belongs to Kubernetes",
    "namespace.*": "the same",
    "replication.*": "the same",
}
"""Patterns of fields that no scenario sets, and why; the first that fits counts."""
UNANSWERED = {
    **dict.fromkeys(
        ("GetClusterInfo: error", "GetSystemInfo: error", "GetSearchAttributes: error"), "there is nothing to refuse"
    ),
    **dict.fromkeys(
        ("GetSearchAttributes: response", "ListSearchAttributes: response", "ListNamespaces: error"),
        "lists what other scenarios have added as well",
    ),
    **dict.fromkeys(
        (f"{rpc}WorkflowExecution: {kind}" for rpc in ("Pause", "Unpause") for kind in ("response", "error")),
        "switched off in the server that is recorded",
    ),
    "PollNexusTaskQueue: response": "Temporal's server adds headers of HTTP, and a token of its own",
    "StopBatchOperation: response": "a batch may end before it can be stopped: how fast it is decides",
    **dict.fromkeys(("UpdateNamespace: response", "UpdateNamespace: error"), _plan("system.py", "namespace_retention")),
}
"""RPCs that no scenario sees succeed (``response``) or fail (``error``), and why."""


def served() -> list[str]:
    names = {name.removesuffix("Request") for api in (workflowservice, operatorservice) for name in vars(api)}
    return sorted(
        name
        for name in names - set(UNSERVED)
        if any(hasattr(api, f"{name}Request") for api in (workflowservice, operatorservice))
    )


def gaps() -> Iterator[str]:
    """The fields that no scenario sets."""
    requests = [
        getattr(module, f"{rpc}Request").DESCRIPTOR
        for rpc in served()
        for module in (workflowservice, operatorservice)
        if hasattr(module, f"{rpc}Request")
    ]
    by_scenario = json.loads(REQUESTS.read_text())
    yield from sorted(settable(requests) - {field for fields in by_scenario.values() for field in fields})


def test_each_field_of_a_request_is_set_by_a_scenario_or_listed_with_a_reason() -> None:
    reasons = {field: next((pattern for pattern in UNSET if fnmatchcase(field, pattern)), "") for field in gaps()}
    assert [field for field, pattern in reasons.items() if not pattern] == []
    assert [pattern for pattern in UNSET if pattern not in reasons.values()] == []


def test_each_rpc_has_recorded_successes_and_errors_or_a_listed_reason() -> None:
    covered = {(step["rpc"], kind) for name in NAMES for step in recorded(name) for kind in step}
    missing = {f"{rpc}: {kind}" for rpc in served() for kind in ("response", "error") if (rpc, kind) not in covered}
    assert sorted(missing) == sorted(UNANSWERED)
