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
    "*Nexus*": _plan(
        "nexus.py", "nexus_tasks: a handler that answers, fails, and is asked to cancel; pages of endpoints"
    ),
    "nexus.*": _plan("nexus.py", "nexus_tasks: the answers and failures of its handler"),
    "*propagated_nexus_serialization_context": _plan("nexus.py", "nexus_context: a handler that starts a workflow"),
    "common.Callback*.*": _plan("nexus.py", "completion_callbacks; the server needs an allowed address"),
    "*completion_callbacks": _plan("nexus.py", "completion_callbacks"),
    "update.Request.*": _plan(
        "workflow_requests.py", "update_callbacks; the server needs `history.enableUpdateCallbacks`"
    ),
    "*Activity*Request.*": _plan(
        "activities.py", "activity_changes: by type and all, with jitter and restore; standalone.py: by run ID"
    ),
    "activity.ActivityOptions.*": _plan("activities.py", "activity_options: each option, and its restore"),
    "batch.*": _plan("batching.py", "batch_activities, batch_deletes, batch_options, as in tests/rpc/test_batches.py"),
    "StartBatchOperationRequest.*": _plan("batching.py", "the same"),
    "common.Execution.*": _plan("batching.py", "batch_standalone: activities by their executions"),
    "command.*": _plan("closing.py", "continue_as_new_options; children.py: child_options; tasks.py: event groups"),
    "common.ResetOptions.*": _plan("batching.py", "batch_reset_points; Perdure refuses `build_id`"),
    "workflow.*": _plan("versioning.py", "one_time_override; starting.py: changed_priority"),
    "schedule.*": _plan("scheduling.py", "schedule_overlaps: each policy of triggers and backfills"),
    "filter.*": _plan("listing.py", "closed_by_status: one workflow for each status"),
    "sdk.EventGroupMarker*": _plan("tasks.py", "event_groups"),
    "common.OnConflictOptions.*": _plan("starting.py", "attached_starts: links and request IDs of a second start"),
    "nexusoperation.OnConflictOptions.*": "Temporal's server 1.32 takes no notice of it",
    "common.Payload.*": _plan("starting.py", "external_payloads: sizes that a client reports"),
    "CountWorkersRequest.include_system_workers": _plan("system.py", "workers_of_the_system"),
    "ListWorkersRequest.include_system_workers": _plan("system.py", "workers_of_the_system"),
    "DescribeNamespaceRequest.weak_consistency": _plan("system.py", "namespaces: a second, cached read"),
    "ListNamespacesRequest.next_page_token": _plan("system.py", "namespaces: pages of one, of two namespaces"),
    "PollWorkflowTaskQueueRequest.worker_instance_key": _plan(
        "tasks.py", "keyed_workers: a worker that then shuts down"
    ),
    "RespondWorkflowTask*Request*": _plan("tasks.py", "keyed_workers, paged_completions, discarded_speculative_tasks"),
    "SetWorkerDeploymentRampingVersionRequest.ignore_missing_task_queues": _plan(
        "versioning.py", "ramp_without_task_queue"
    ),
    "ShutdownWorkerRequest.*": _plan("tasks.py", "keyed_workers: of a worker that polls for Nexus tasks"),
    "SignalWithStartWorkflowExecutionRequest.*": _plan("starting.py", "signal_with_start_options"),
    "StartWorkflowExecutionRequest.*": _plan(
        "starting.py", "start_options: what a cron run passes on, and eager starts"
    ),
    "deployment.WorkerDeploymentOptions.*": _plan("versioning.py", "unversioned_worker_of_a_deployment"),
    "protocol.Message.*": _plan("workflow_requests.py", "update_messages: event IDs and command indexes"),
    "query.WorkflowQueryResult.failure": _plan("workflow_requests.py", "failed_query_with_a_task"),
    "taskqueue.TaskQueueMetadata.*": _plan("activities.py", "limited_by_workers: what DescribeTaskQueue says then"),
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
    **dict.fromkeys(
        (
            "CountActivityExecutions: error",
            "DeleteActivityExecution: response",
            "ResetActivityExecution: error",
            "UnpauseActivityExecution: error",
        ),
        _plan("standalone.py", "standalone_refused: a filter that cannot be read, and activities that have ended"),
    ),
    **dict.fromkeys(
        ("ResetActivity: error", "UnpauseActivity: error", "UpdateActivityOptions: error"),
        _plan("activities.py", "activity_changes_refused"),
    ),
    "RespondActivityTaskCanceledById: response": _plan("activities.py", "cancelled_by_id"),
    **dict.fromkeys(
        ("PollNexusTaskQueue: response", "RespondNexusTaskFailed: error"), _plan("nexus.py", "nexus_tasks")
    ),
    **dict.fromkeys(("RecordWorkerHeartbeat: error", "ShutdownWorker: error"), _plan("tasks.py", "keyed_workers")),
    "ResetStickyTaskQueue: error": _plan("tasks.py", "sticky_queue_of_nothing"),
    "StopBatchOperation: response": _plan("batching.py", "batch_stopped: one that is slowed by its rate"),
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
