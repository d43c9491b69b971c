"""Attempts that have ended."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class AttemptOutcome(StrEnum):
    """The outcome of an attempt."""

    COMPLETED = "Completed"
    CACHED = "Cached"
    """It did not run: an earlier result was used."""
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    LOST = "Lost"
    CANCELED = "Canceled"
    STOPPED = "Stopped"
    """Its run has closed."""


@dataclass(frozen=True, slots=True)
class Retired:
    """An attempt whose end this step has recorded. Its pod is no longer needed, and is stopped if it still runs."""

    scheduled_event_id: int
    attempt: int
    outcome: AttemptOutcome
    by_worker: bool = False
    """Whether it belonged to a worker, not to a pod."""
    waited: timedelta | None = None
    """How long it waited after the time when it could start; None if it has not started."""
    ran: timedelta | None = None
    """How long it ran; None if it has not started."""
