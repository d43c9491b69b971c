"""The phases of a run."""

from enum import StrEnum


class RunPhase(StrEnum):
    """Where a run can stand, as in `perdure.api.workflowrun`, which takes long to import."""

    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TERMINATED = "Terminated"
    TIMED_OUT = "TimedOut"
    CONTINUED_AS_NEW = "ContinuedAsNew"


CLOSED = frozenset(RunPhase) - {RunPhase.PENDING, RunPhase.RUNNING, RunPhase.PAUSED}
"""The phases after which nothing more happens."""
