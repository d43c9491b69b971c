"""The phases of a run."""

from enum import StrEnum


class RunPhase(StrEnum):
    """The phases of a run, as in `perdure.api.kinds.workflowrun`, which is slow to import."""

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
"""The phases of closed runs."""
