"""Where a reset run begins."""

from enum import StrEnum


class ResetPoint(StrEnum):
    """A point in a history."""

    FIRST_WORKFLOW_TASK = "FirstWorkflowTask"
    """Before the first workflow task: everything runs again."""

    LAST_WORKFLOW_TASK = "LastWorkflowTask"
    """Before the last workflow task of the steps: compensations, handlers and failed activities run again."""
