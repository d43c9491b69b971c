"""What happens if a new run has the workflow ID of another one."""

from enum import StrEnum


class WorkflowIdReusePolicy(StrEnum):
    """Whether a new run can use the workflow ID of closed runs."""

    ALLOW_DUPLICATE_FAILED_ONLY = "AllowDuplicateFailedOnly"
    """Only if the last of them did not complete: Failed, Cancelled, Terminated or TimedOut."""

    ALLOW_DUPLICATE = "AllowDuplicate"
    """Always."""

    REJECT_DUPLICATE = "RejectDuplicate"
    """Never."""


class WorkflowIdConflictPolicy(StrEnum):
    """What happens if an open run already has the workflow ID."""

    FAIL = "Fail"
    """The new run fails; its message names the open run."""

    USE_EXISTING = "UseExisting"
    """The new run closes immediately and refers to the open run."""

    TERMINATE_EXISTING = "TerminateExisting"
    """The open run is terminated, and the new run starts."""
