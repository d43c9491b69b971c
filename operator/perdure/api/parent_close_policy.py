"""What happens to the children of a run that closes."""

from enum import StrEnum


class ParentClosePolicy(StrEnum):
    """What happens to an open child when its parent closes for any reason."""

    TERMINATE = "Terminate"
    """Terminate the child."""

    REQUEST_CANCEL = "RequestCancel"
    """Request the cancellation of the child."""

    ABANDON = "Abandon"
    """Let the child continue."""
