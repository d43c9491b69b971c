"""The inputs of a step of a schedule: its rules, changes of its runs, and requests of clients, such as Operations."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from perdure.api.kinds.operation import OperationSpec
from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.policies import OverlapPolicy
from perdure.engine.failures import Failure
from perdure.engine.retry import RetryPolicy
from perdure.schedule.state import Start
from perdure.schedule.times import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A Schedule's spec, with the objects that it refers to."""

    name: str
    seed: str
    """The seed of jitter: jitter is a function of the seed and the time."""
    spec: ScheduleSpec
    times_hash: str
    """Hash of the fields of the spec that determine the times (see the function `times_hash`)."""
    times: Times | None
    """None if the times in the spec are invalid."""
    retry_policy: RetryPolicy | None = None
    """The policy that `spec.retryPolicy` names or contains."""
    created: datetime
    shows_backfills: bool = True
    """Whether all operators know the progress of backfills in the state, and that a pause holds them."""

    def overlap_policy(self, start: Start) -> OverlapPolicy:
        """The overlap policy of a start: its own, or the schedule's."""
        return start.policy or self.spec.overlap_policy

    def overlaps(self, start: Start) -> bool:
        """Whether a start ignores open runs, and later starts ignore its run (AllowAll)."""
        return self.overlap_policy(start) is OverlapPolicy.ALLOW_ALL


class RunOutcome(StrEnum):
    """How a chain of runs closed: the phase of its last run."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"
    TERMINATED = "Terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClosed:
    """A run of the schedule closed, and so did every run that continued or retried it."""

    name: str
    """Name of the WorkflowRun that the schedule created."""
    outcome: RunOutcome
    time: datetime
    result: Any = None
    failure: Failure | None = None
    status_failure: dict[str, Any] | None = None
    """The failure in the form of the run's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRefused:
    """The API server rejected a run, and its creation is not retried."""

    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTaken:
    """A WorkflowRun that the schedule did not create has the name of a run."""

    name: str
    uid: str
    """UID of that WorkflowRun. The next name is derived from it, so no client can know that name in advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCreated:
    """A run was created. This input alone needs no commit."""

    name: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """A client requests a run now."""

    request_id: str
    overlap_policy: OverlapPolicy | None = None
    scheduled_time: datetime | None = None
    """The nominal time of the run; None: now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequested:
    """A client requests the runs of a range of times."""

    request_id: str
    start: datetime
    end: datetime
    overlap_policy: OverlapPolicy = OverlapPolicy.ALLOW_ALL
    max_concurrency: int | None = None
    """Maximum number of its runs that are open at the same time; None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePauseRequested:
    """A client requests a pause."""

    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleUnpauseRequested:
    """A client requests the end of a pause."""

    request_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillsCancelRequested:
    """A client requests that no further times of the backfills start runs."""

    request_id: str
    reason: str = ""


ScheduleRequest = (
    Triggered | BackfillRequested | BackfillsCancelRequested | SchedulePauseRequested | ScheduleUnpauseRequested
)
ScheduleInput = RunClosed | RunRefused | NameTaken | RunCreated | ScheduleRequest


def request_of(spec: OperationSpec, uid: str) -> ScheduleRequest:
    """Read the request of an Operation.

    Args:
        spec: The spec of an Operation whose target is a Schedule.
        uid: The UID of the Operation. It becomes the ID of the request, so that the request is processed once.

    Raises:
        ValueError: Schedules do not support the request. The API server rejects such Operations.
    """
    if spec.trigger is not None:
        return Triggered(request_id=uid, overlap_policy=spec.trigger.overlap_policy)
    if spec.backfill is not None:
        backfill = spec.backfill
        return BackfillRequested(
            request_id=uid,
            start=backfill.start_time,
            end=backfill.end_time,
            overlap_policy=backfill.overlap_policy,
            max_concurrency=backfill.max_concurrency,
        )
    if spec.cancel is not None:
        return BackfillsCancelRequested(request_id=uid, reason=spec.cancel.reason)
    if spec.pause is not None:
        return SchedulePauseRequested(request_id=uid, reason=spec.pause.reason)
    if spec.unpause is not None:
        return ScheduleUnpauseRequested(request_id=uid, reason=spec.unpause.reason)
    raise ValueError(f"a Schedule does not support `{spec.request}`")
