"""Accepted differences from a Temporal server."""

from fnmatch import fnmatchcase
from pathlib import Path

EXPLAINED = {
    "*: error.message": "Perdure words its errors itself; SDKs go by codes and details",
    "*: error.details.*.message": "the same",
    "WORKFLOW_TASK_FAILED: failure.message": "the same",
    "WORKFLOW_EXECUTION_TERMINATED: reason": "names the WorkflowRun that takes the place of the terminated one",
    "*: response.*workflow_id": "what was triggered twice for one time needs two workflow IDs",
    "*WorkflowExecutions: response.executions.*.first_run_id": "Perdure lists the runs themselves, and knows it of each",
    "*WorkflowExecutions: response.executions.*.history_*": "the same: also of those that are open",
    "*WorkflowExecutions: response.executions.*.state_transition_count": "the same",
    "UpdateActivity*Options: response.activity_options.task_queue.kind": "said also of the original options",
    "UpdateActivityOptions: response.activity_options.retry_policy.maximum_interval": "unset, it has its default",
    "DescribeWorkflowExecution: *.activity_options.retry_policy.maximum_interval": "the same",
    "UpdateActivityOptions: response.activity_options.priority": "absent if it is empty",
    "DescribeWorkflowExecution: response.pending_activities.*priority": "the same",
    "DescribeWorkflowExecution: response.pending_activities.*.expiration_time": "follows a changed timeout",
    "DescribeWorkflowExecution: response.pending_activities.*.last_failure.*": "kept when a client resets or unpauses it",
    "DescribeBatchOperation: response.complete_operation_count": "an Operation fails if there is no such activity",
    "DescribeBatchOperation: response.failure_operation_count": "the same",
    "DescribeActivityExecution: response.outcome.failure.*.identity": "names the Operation that a batch has made",
    "DescribeWorkflowExecution: *.indexed_fields.BuildIds.data": "deprecated; shows also the builds of unversioned workers",
    "WORKFLOW_TASK_COMPLETED: worker_version.build_id": "SDKs show it to code, also that of an unversioned worker",
    "DescribeWorkflowExecution: response.workflow_execution_info.versioning_info": "absent once an override is removed",
    "DescribeSchedule: response.info.running_workflows.*.run_id": "also those that others may overlap",
    "DescribeSchedule: response.info.overlap_skipped": "counts also starts that a later one replaces in the buffer",
    "DescribeSchedule: *.start_workflow.workflow_id_reuse_policy": "absent if it is the default",
    "DescribeWorkflowExecution: *.external_payload_*": "Perdure does not add up what clients store elsewhere",
    "*: event_group_markers.*": "Perdure does not keep how SDKs group events",
    "START_CHILD_WORKFLOW_EXECUTION_INITIATED: control": "a field of earlier SDKs",
    "WORKFLOW_EXECUTION_CANCEL_REQUESTED: external_workflow_execution.*": "if a parent has closed, the cause names it",
    "UpdateWorkflowExecutionOptions: error.code FAILED_PRECONDITION INVALID_ARGUMENT": "an override without a version",
    "ListNexusEndpoints: error.code INTERNAL INVALID_ARGUMENT": "a page token that is none is the client's fault",
    "ListActivityExecutions: response.executions.*.search_attributes": "present though empty: Go clients read its fields",
    "ListActivityExecutions: response.executions.*.state_transition_count": "the same",
    "ListActivityExecutions: response.executions.*.TemporalNamespaceDivision.*": "how Temporal tells apart what it lists",
    "ListNexusOperationExecutions: response.operations.*.state_transition_count": "Perdure knows it also of those that are open",
    "ListNexusOperationExecutions: response.operations.*.TemporalNamespaceDivision.*": "how Temporal tells apart what it lists",
    "ListNexusOperationExecutions: response.operations.*.search_attributes": "the same: present though empty",
    "DescribeNexusOperationExecution: *.metadata.type": "the type of a search attribute, which this scenario has not given",
    "DescribeNexusOperationExecution: *.cancellation_info.requested_time": "Temporal's server 1.32 does not set it",
    "DescribeActivityExecution: *.metadata.type": "the type of a search attribute, which this scenario has not given",
    "DescribeWorkflowExecution: response.pending_workflow_task.*": "a closed workflow has none; Temporal's keeps it",
    "*_TASK_STARTED: request_id": "the ID of a request between two of Temporal's own services",
    "*_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: namespace": "names the workflow's own namespace where the command names none",
    "UpdateSchedule: *": "a conflict token that does not match is refused, also one that is no token",
    "CreateSchedule: *": "a schedule whose workflows have no ID is refused, not each of its starts",
    "DescribeSchedule: *.start_workflow.retry_policy.*": "unset fields have their defaults; SDKs reject zeros in an update",
    "PollActivityTaskQueue: response.start_to_close_timeout": "the time that is left until the schedule-to-close timeout",
    "*NexusEndpoint: response.endpoint.created_time": "Temporal's server forgets it with the first update",
    "DescribeTaskQueue: response.effective_rate_limit.*": "named only if a client or a worker has set one",
    "WORKFLOW_EXECUTION_STARTED: prev_auto_reset_points.*": "reset points are those of one run, not of the runs before",
    "DescribeWorkflowExecution: *.auto_reset_points": "the same",
    "DescribeWorkflowExecution: *.auto_reset_points.points.*": "the same; they are removed with the run",
    "*WorkflowExecutions: response.executions.*.search_attributes": "present though empty: Go clients read its fields",
    "DescribeWorkflowExecution: *.request_id_infos.*.event_id": "Temporal gives a signal-with-start the event of the signal",
    "WORKFLOW_EXECUTION_STARTED: workflow_id": "what was triggered twice for one time needs two workflow IDs",
    "WORKFLOW_TASK_STARTED: history_size_bytes": "the size is known at an eager start too",
    "GetSystemInfo: *.server_scaled_deployments": "Kubernetes scales workers",
    "*: error.code UNKNOWN INVALID_ARGUMENT": "a page token that is none is the client's fault, not an unknown one",
    "ListWorkers: error.code (absent) INVALID_ARGUMENT": "a filter that names an unknown field is refused",
    "CountWorkers: error.code (absent) INVALID_ARGUMENT": "the same",
    "DescribeTaskQueue: response.stats_by_priority_key.*": "how busy a server is",
    "UpdateWorkflowExecution: error.*": "Perdure also serves clients that only wait until an update is admitted",
    "UpdateWorkflowExecution: response.*": "the same",
    "WORKFLOW_EXECUTION_SIGNALED: identity": "names the Operation that a batch has made",
    "WORKFLOW_EXECUTION_CANCEL_REQUESTED: identity": "the same",
    "WORKFLOW_EXECUTION_TERMINATED: identity": "the same",
    "DescribeNamespace: error.*": "a namespace that does not exist is not found, also by its ID",
    "ListNamespaces: *": "the namespaces of Kubernetes, described as by DescribeNamespace",
    "ListWorkers: response": "a filter that names an unknown field is refused; Temporal's server finds nothing with it",
    "CountWorkers: response": "the same",
    "StartBatchOperation: error.*": "a workflow that does not exist is refused at once, not counted as failed later",
    "DescribeBatchOperation: response.executions.*.run_id": "each run is asked by an Operation of its own",
    "WORKFLOW_EXECUTION_CANCEL_REQUESTED: cause": "the reason is kept also where a batch asks",
    "WORKFLOW_EXECUTION_TERMINATED: details.*": "the details that a batch gives are kept; Temporal's server drops them",
    "DeleteWorkerDeploymentVersion: error.code FAILED_PRECONDITION (absent)": "Temporal's server remembers pollers for long",
    "DeleteWorkerDeployment*: error.code (absent) FAILED_PRECONDITION": "at first an operator cannot tell which workers poll",
    "DeleteWorkerDeployment*: response": "the same, in both cases",
    "DescribeWorkerDeployment: *.drainage_info.last_c*_time": "known as soon as a version drains, not a moment later",
    "SetWorkerDeploymentRampingVersion: response.previous_*": "Temporal's server names the new ramp where that is to none",
    "GetClusterInfo: *": "describes Perdure's own store, and lists all SDKs",
    "DescribeNamespace: *.description": "Perdure says that it is a namespace of Kubernetes",
    "DescribeNamespace: *.limits.*": "the limits of Perdure, see docs/limits.md",
    "DescribeNamespace: *cluster_name": "Perdure runs in one cluster, with this name",
    "DescribeNamespace: *.custom_search_attribute_aliases.*": "columns of Temporal's database",
    "DescribeNamespace: *.reported_problems_search_attribute": "Perdure has no TemporalReportedProblems",
    "DescribeNamespace: *.workflow_update_callbacks": "Temporal's server 1.32 serves them only if a setting enables them",
    "List*WorkflowExecutions: *.indexed_fields.BuildIds.*": "deprecated; DescribeWorkflowExecution shows it",
    "DescribeWorkflowExecution: *.versioning_info.revision_number": "orders what the parts of Temporal's server know",
    "DescribeWorkflowExecution: *.versioning_info.version_transition.*": "a workflow changes its version with its workflow task",
    "ExecuteMultiOperation: response.responses.*.update_workflow.link.*": "leads to the update also if the request is repeated",
    "WORKFLOW_EXECUTION_SIGNALED: request_id": "an Operation of a batch chooses none",
    "DescribeNamespace: *.poller_autoscaling": "Perdure does not advise workers on their number of pollers",
    "DescribeNamespace: *.standalone_activity_operator_commands": "Perdure pauses and resets standalone activities too",
}
"""Patterns of fields, and why they differ on purpose."""

LIST = Path(__file__).parent / "open.txt"
OPEN = frozenset(LIST.read_text().splitlines())
"""Fields that still differ though they should not; ``--record`` writes the list again."""
PLANS = {
    "*versioning_override.auto_upgrade": "the command that starts a child has an override, which its run gets: a field of "
    "StartChildWorkflowExecution and of its event, and the start extras of the child",
    "WORKFLOW_EXECUTION_STARTED: declined_target_version_upgrade.*": "a run that is continued as new on its pinned version "
    "records the current version and its revision number; Perdure counts no revisions (docs/temporal-compatibility.md)",
    "WORKFLOW_TASK_STARTED: target_worker_deployment_version_changed": "the same: a declined version is not announced again",
    "WORKFLOW_EXECUTION_STARTED: inherited_auto_upgrade_info.*": "a pinned run that is continued as new to upgrade passes no "
    "version on; in Perdure, the routing of its first task starts from that version",
    "WORKFLOW_EXECUTION_STARTED: first_workflow_task_backoff": "a run that was continued within a second waits: the scenario "
    "has to wait for that second on both servers",
}
"""Patterns of the fields in `open.txt`, and what each needs."""


def is_explained(field: str) -> bool:
    """Whether a field differs on purpose."""
    return any(fnmatchcase(field, pattern) for pattern in EXPLAINED)
