"""What happens if runs meet (one is due or starts while another is open, a parent closes, a run is reset), or if a step fails.

These are enumerations of the fields of manifests. The module needs no pydantic.
"""

from enum import StrEnum
from typing import Final


class ParentClosePolicy(StrEnum):
    """What happens to an open child when its parent closes for any reason."""

    TERMINATE = "Terminate"
    """Terminate the child."""

    REQUEST_CANCEL = "RequestCancel"
    """Request the cancellation of the child."""

    ABANDON = "Abandon"
    """Let the child continue."""


class FailurePolicy(StrEnum):
    """What a failure does to its neighbors: the other steps of a list, items of a loop, or branches of a parallel step.

    In each case, the list, loop, or parallel step fails in the end. A failure that a `catch` handles changes nothing.
    """

    CANCEL_RUNNING = "CancelRunning"
    """Cancel those that are running, and start no others."""

    FINISH_RUNNING = "FinishRunning"
    """Let those that are running finish, with their retries, and start no others."""

    CONTINUE = "Continue"
    """Continue with everything that does not need what has failed."""


ANY_TYPE: Final = "*"
"""In a request to the open activities of a run: those of all types."""


class ResetPoint(StrEnum):
    """A point in a history."""

    FIRST_WORKFLOW_TASK = "FirstWorkflowTask"
    """Before the first workflow task: everything runs again."""

    LAST_WORKFLOW_TASK = "LastWorkflowTask"
    """Before the last workflow task of the steps: compensations, handlers and failed activities run again."""


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


class CatchupPolicy(StrEnum):
    """Which of several missed times start a run."""

    ALL = "All"
    """Each of them, in order."""

    LATEST = "Latest"
    """Only the newest. The others count as missed."""


class OverlapPolicy(StrEnum):
    """What to do if a run is due while an earlier one is still open."""

    SKIP = "Skip"
    """Do not start the run."""

    BUFFER_ONE = "BufferOne"
    """Buffer one run, which starts when the earlier one has closed. Do not start the others."""

    BUFFER_ALL = "BufferAll"
    """Buffer all runs, up to 1,000, and start them one after the other."""

    CANCEL_OTHER = "CancelOther"
    """Request the cancellation of the earlier run, and start the new run when that one has closed."""

    TERMINATE_OTHER = "TerminateOther"
    """Terminate the earlier run, and start the new run immediately."""

    ALLOW_ALL = "AllowAll"
    """Start the run. Any number of runs can be open."""
