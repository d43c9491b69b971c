"""What may differ from a Temporal server."""

from fnmatch import fnmatchcase
from pathlib import Path

EXPLAINED = {
    "*: error.message": "Perdure words its errors itself; SDKs go by codes and details",
    "*: error.details.*.message": "the same",
    "WORKFLOW_TASK_FAILED: failure.message": "the same",
    "WORKFLOW_EXECUTION_TERMINATED: reason": "names the WorkflowRun that takes the place of the terminated one",
    "*: response.*workflow_id": "what was triggered twice for one time needs two workflow IDs",
    "ListWorkflowExecutions: response.executions.*.first_run_id": "Perdure lists the runs themselves, and knows it of each",
    "ListWorkflowExecutions: response.executions.*.history_*": "the same: also of those that are open",
    "ListWorkflowExecutions: response.executions.*.state_transition_count": "the same",
    "UpdateActivityExecutionOptions: response.activity_options.task_queue.kind": "said also of the original options",
    "ListActivityExecutions: response.executions.*.state_transition_count": "the same",
    "ListActivityExecutions: response.executions.*.TemporalNamespaceDivision.*": "how Temporal tells apart what it lists",
    "DescribeActivityExecution: *.metadata.type": "the type of a search attribute, which this scenario has not given",
    "DescribeWorkflowExecution: response.pending_workflow_task.*": "a closed workflow has none; Temporal's keeps it",
    "*_TASK_STARTED: request_id": "the ID of a request between two of Temporal's own services",
    "*_EXTERNAL_WORKFLOW_EXECUTION_INITIATED: namespace": "names the workflow's own namespace where the command names none",
    "UpdateSchedule: *": "a conflict token that does not match is refused, also one that is no token",
    "CreateSchedule: *": "a schedule whose workflows have no ID is refused, not each of its starts",
    "PollActivityTaskQueue: response.start_to_close_timeout": "the time that is left until the schedule-to-close timeout",
    "*NexusEndpoint: response.endpoint.created_time": "Temporal's server forgets it with the first update",
    "DescribeTaskQueue: response.effective_rate_limit.*": "Perdure limits no rates",
}
"""Patterns of fields, and why they differ on purpose."""

LIST = Path(__file__).parent / "open.txt"
OPEN = frozenset(LIST.read_text().splitlines())
"""Fields that still differ though they should not; ``--record`` writes the list again."""


def is_explained(field: str) -> bool:
    """Whether a field differs on purpose."""
    return any(fnmatchcase(field, pattern) for pattern in EXPLAINED)
