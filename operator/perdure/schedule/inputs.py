"""What can happen to a schedule, and what it answers."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from perdure.api.schedule import OverlapPolicy
from perdure.engine.failures import Failure


class Outcome(StrEnum):
    """How a run has closed: the last one of its chain, by its phase."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    TERMINATED = "Terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClosed:
    """A run of the schedule has closed, with all that continued or retried it."""

    name: str
    """Of the WorkflowRun that was started."""
    outcome: Outcome
    time: datetime
    result: Any = None
    failure: Failure | None = None
    told: dict[str, Any] | None = None
    """The failure as the run's status has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRefused:
    """A run could not be made, and will not be tried again."""

    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTaken:
    """A run could not be made under its name: a WorkflowRun that the schedule did not create has it."""

    name: str
    uid: str
    """Of that WorkflowRun: the next name depends on it, so that nobody knows the name before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMade:
    """A run exists now. It is not worth a commit of its own."""

    name: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """Somebody wants a run now."""

    request_id: str
    overlap_policy: OverlapPolicy | None = None
    scheduled_time: datetime | None = None
    """The time that the run is for; None: now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequested:
    """Somebody wants the runs of a stretch of time."""

    request_id: str
    start: datetime
    end: datetime
    overlap_policy: OverlapPolicy = OverlapPolicy.ALLOW_ALL


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """Somebody wants the schedule to pause."""

    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequested:
    """Somebody wants the schedule to go on."""

    request_id: str
    reason: str = ""


Request = Triggered | BackfillRequested | PauseRequested | UnpauseRequested
ScheduleInput = RunClosed | RunRefused | NameTaken | RunMade | Request
