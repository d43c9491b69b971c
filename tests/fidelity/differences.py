"""What may differ from a Temporal server."""

from fnmatch import fnmatchcase
from pathlib import Path

EXPLAINED = {
    "*: error.message": "Perdure words its errors itself; SDKs go by codes and details",
    "*: error.details.*.message": "the same",
    "WORKFLOW_TASK_FAILED: failure.message": "the same",
    "WORKFLOW_EXECUTION_TERMINATED: reason": "names the WorkflowRun that takes the place of the terminated one",
    "*: response.*workflow_id": "what was triggered twice for one time needs two workflow IDs",
    "DescribeTaskQueue: response.effective_rate_limit.*": "Perdure limits no rates",
}
"""Patterns of fields, and why they differ on purpose."""

LIST = Path(__file__).parent / "open.txt"
OPEN = frozenset(LIST.read_text().splitlines())
"""Fields that still differ though they should not; ``--record`` writes the list again."""


def is_explained(field: str) -> bool:
    """Whether a field differs on purpose."""
    return any(fnmatchcase(field, pattern) for pattern in EXPLAINED)
