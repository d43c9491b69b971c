"""The state of a schedule between two steps.

It is written in one commit: the times that were handled (`cursor`) together with the runs to start for them (`running`). A run
without a `run_id` may not exist yet. Its name never changes, so creating it again does no harm.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from perdure.api.kinds.schedule import PausedBy, ScheduleStatus
from perdure.api.kinds.status import CommitStatus
from perdure.api.models import json_fields
from perdure.api.policies import OverlapPolicy
from perdure.api.state_versions import unknown_in
from perdure.api.stored import StoredStruct

NAME_FORM = "%Y%m%dt%H%M%Sz"
_FIELDS: Final = json_fields(ScheduleStatus)
_COMMIT_FIELDS: Final = json_fields(CommitStatus)


class Start(StoredStruct, frozen=True, kw_only=True):
    """The start of a run: when and why the run starts or has started."""

    nominal: datetime
    """The scheduled time of the run; for a trigger without one, the time of the request."""
    actual: datetime
    """When the run is due: the scheduled time with jitter, or the time of the request."""
    policy: OverlapPolicy | None = None
    """The overlap policy of this start; None: the policy of the schedule when the start is processed."""
    request: str = ""
    """ID of the request for the run; empty for a scheduled time."""
    triggered: bool = False

    @property
    def by_time(self) -> bool:
        """Whether the run starts at a scheduled time, and not because of a request."""
        return not self.request

    def run_name(self, schedule: str, attempt: int = 1, instead: str = "") -> str:
        """Name of the WorkflowRun. It never changes, so it acts as a lock.

        The form is `<schedule>-<nominal time>`. For requested runs, a letter (`t`: trigger, `b`: backfill) and a hash follow.
        `-x` and `instead` follow if a WorkflowRun that the schedule did not create has that name.
        """
        ending = ""
        if self.request:
            digest = hashlib.sha256(self.request.encode()).hexdigest()[:8]
            ending = f"-{'t' if self.triggered else 'b'}{digest}"
        if instead:
            ending += f"-x{instead}"
        if attempt > 1:
            ending += f"-r{attempt}"
        return f"{schedule}-{self.nominal.astimezone(UTC).strftime(NAME_FORM)}{ending}"


class ScheduledRun(StoredStruct, frozen=True, kw_only=True):
    """A run that is open, or that the schedule is about to create."""

    name: str
    start: Start
    started: datetime
    """When a step decided to start it."""
    run_id: str = ""
    """Run ID of the first run of its chain; empty until the run is known to exist."""
    attempt: int = 1
    first_started: datetime | None = None
    """For a retry: when the first attempt started."""
    instead: str = ""
    """The part of its name that makes it unique, if another WorkflowRun has the regular name."""
    renamed: int = 0
    """How often it was renamed because another WorkflowRun had its name."""
    cancel: bool = False
    """A cancellation must be requested."""
    terminate: bool = False
    """It must be terminated."""
    overlapping: bool = False
    """AllowAll started it: no other start waits for it, and no overlap policy ends it (as in temporal:
    service/worker/scheduler/workflow.go, recordAction)."""


class PendingRetry(StoredStruct, frozen=True, kw_only=True):
    """A failed run whose retry waits for its backoff."""

    start: Start
    attempt: int
    due: datetime
    first_started: datetime
    instead: str = ""
    """`instead` of the failed run."""


class PendingBackfill(StoredStruct, frozen=True, kw_only=True):
    """A backfill some of whose starts have not begun yet."""

    request: str
    after: datetime
    """The starts of times up to this one have entered the buffer, or have begun."""
    end: datetime
    policy: OverlapPolicy
    max_concurrency: int | None = None
    """Maximum number of its runs that are open at the same time; None: no limit."""
    start: datetime | None = None
    """First time to consider; None if an operator stored it that does not show backfills in the status."""
    held: bool = False
    """Whether it waits for the end of a pause that began after it. Only if `start` is set."""

    def is_start_of(self, start: Start) -> bool:
        """Whether a start is one of its starts."""
        return start.request == self.request


class Recent(StoredStruct, frozen=True, kw_only=True):
    """One of the last actions."""

    name: str
    started: datetime
    nominal: datetime | None = None
    run_id: str = ""
    status: str = "Running"


class Paused(StoredStruct, frozen=True, kw_only=True):
    """A pause by an Operation or after a failure, not by the spec."""

    by: PausedBy
    time: datetime
    reason: str = ""


class Counts(StoredStruct, frozen=True, kw_only=True):
    """Counters since the schedule was created."""

    actions: int = 0
    missed_catchup_window: int = 0
    overlap_skipped: int = 0
    buffer_dropped: int = 0


class AnsweredRequest(StoredStruct, frozen=True, kw_only=True):
    """A request that was processed."""

    request: str
    ok: bool
    reason: str = ""
    message: str = ""
    result: dict[str, Any] = msgspec.field(default_factory=dict)


class Handled(StoredStruct, frozen=True, kw_only=True):
    """A stretch whose times were handled: their runs were started, skipped or dropped. Times that only passed do not count."""

    after: datetime
    until: datetime


class ScheduleState(StoredStruct, frozen=True, kw_only=True):
    """The state of a schedule."""

    cursor: datetime
    """Times up to this one were handled."""
    handled_after: datetime
    """Times after this one and up to the cursor were handled; earlier ones may only have been counted as missed."""
    handled: tuple[Handled, ...] = ()
    """Other stretches whose times were handled: they are not handled again when the clock goes back."""
    times: str = ""
    """Hash of the fields of the spec that determine the times."""
    blocked: bool = False
    """Whether no scheduled run could start when this was written: paused, out of actions, or an invalid spec."""
    skipping: bool = False
    """Whether the last scheduled time was skipped."""
    refused: str = ""
    """Why the API server rejected the last run; empty once it has accepted one."""
    configured_remaining: int | None = msgspec.field(default=None, name="remainingGiven")
    """The value of `spec.remainingActions` that was read last."""
    remaining: int | None = None
    paused: Paused | None = None
    buffer: tuple[Start, ...] = ()
    running: tuple[ScheduledRun, ...] = ()
    retry: PendingRetry | None = None
    backfills: tuple[PendingBackfill, ...] = ()
    recent: tuple[Recent, ...] = ()
    """Oldest first."""
    counts: Counts = Counts()
    upcoming: Start | None = None
    """The next scheduled start, if jitter can delay it. After an edit, only this records when a time of the old spec is due."""
    delayed: tuple[Start, ...] = ()
    """Starts of earlier specs: jitter delays them, and their times had passed when the spec was edited."""
    last_scheduled: datetime | None = None
    result_time: datetime | None = None
    """When the run with the last completion result completed."""
    closed_time: datetime | None = None
    """When the run that set or cleared the last failure closed."""
    answered: tuple[AnsweredRequest, ...] = ()

    # These are not in `state`, because they may be large and other fields of the status have them.
    result: Any = None
    failure: dict[str, Any] | None = None

    def stored(self) -> dict[str, Any]:
        """The state as JSON, without the values that other fields of the status have."""
        data: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, result=None, failure=None))
        return data


def newer_state(status: dict[str, Any]) -> str:
    """Say what only a newer version can read in an intact status; empty if this version can read all of it."""
    for at, part, known in (("status", status, _FIELDS), ("status.commit", status.get("commit") or {}, _COMMIT_FIELDS)):
        if why := unknown_in(part, known, at):
            return why
    try:
        load_state(status)
    except msgspec.ValidationError as error:
        return f"`status.state`: {error}"
    return ""


def load_state(status: dict[str, Any]) -> ScheduleState | None:
    """Read the state from a status; None if there is none yet.

    Raises:
        msgspec.ValidationError: The state is not valid.
    """
    stored = status.get("state")
    if not stored:
        return None
    state = msgspec.convert(stored, ScheduleState)
    return msgspec.structs.replace(state, result=status.get("lastCompletionResult"), failure=status.get("lastFailure"))
