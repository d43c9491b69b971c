"""What a schedule remembers between two passes.

All of it is written in one commit: the times that were dealt with (`cursor`) together with the runs to start for
them (`running`). A run without a `run_id` may not have been made yet; its name is always the same, so that making it again does
no harm.
"""

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.api.schedule import OverlapPolicy, PausedBy

NAME_FORM = "%Y%m%dt%H%M%Sz"


class Start(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run to start, or one that was started."""

    nominal: datetime
    """Its nominal time; of a triggered one, the time of the request."""
    actual: datetime
    """When it was due: the same with jitter; of what was asked for, when that was."""
    policy: OverlapPolicy | None = None
    """Its own overlap policy; None: the one that the schedule has when it is its turn."""
    request: str = ""
    """ID of the request; empty if the spec caused it."""
    triggered: bool = False

    @property
    def by_time(self) -> bool:
        """Whether the spec caused it, and not a request."""
        return not self.request

    def run_name(self, schedule: str, attempt: int = 1, instead: str = "") -> str:
        """Name of the WorkflowRun: a lock, since it is always the same.

        `<schedule>-<nominal time>`; after it, a letter and a hash tell what was asked for apart (`t`: trigger, `b`: backfill).
        `-x` and `instead` follow where that name was taken by a WorkflowRun that the schedule did not create.
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


class Running(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run that is open, or about to be made."""

    name: str
    start: Start
    started: datetime
    """When that was decided."""
    run_id: str = ""
    """Of the first run of its chain; empty while it is not known to exist."""
    attempt: int = 1
    first_started: datetime | None = None
    """Of a retry: when the first attempt was started."""
    instead: str = ""
    """Part of its name where another WorkflowRun has the name that it would have."""
    renamed: int = 0
    """How many of its names were taken."""
    cancel: bool = False
    """A cancellation must be requested."""
    terminate: bool = False
    """It must be terminated."""
    overlapping: bool = False
    """It was started by AllowAll: it is in nobody's way, and no overlap policy ends it (as in temporal:
    service/worker/scheduler/workflow.go, recordAction)."""


class PendingRetry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run that has failed and is started again."""

    start: Start
    attempt: int
    due: datetime
    first_started: datetime
    instead: str = ""
    """Of the run that has failed."""


class Backfilling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A backfill that is not through yet."""

    request: str
    after: datetime
    """Times up to here were dealt with."""
    end: datetime
    policy: OverlapPolicy


class Recent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One of the last actions."""

    name: str
    started: datetime
    nominal: datetime | None = None
    run_id: str = ""
    status: str = "Running"


class Paused(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """That the schedule was paused without its spec saying so."""

    by: PausedBy
    time: datetime
    reason: str = ""


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What happened since the schedule was created."""

    actions: int = 0
    missed_catchup_window: int = 0
    overlap_skipped: int = 0
    buffer_dropped: int = 0


class AnsweredRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A request that was dealt with."""

    request: str
    ok: bool
    reason: str = ""
    message: str = ""
    result: dict[str, Any] = msgspec.field(default_factory=dict)


class Handled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A stretch in which times were really dealt with: started, skipped or dropped, not just passed by."""

    after: datetime
    until: datetime


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a schedule remembers."""

    cursor: datetime
    """Times up to here were dealt with."""
    handled_after: datetime
    """Times after this one and up to the cursor were really dealt with; some before may only have been counted as missed."""
    handled: tuple[Handled, ...] = ()
    """Other stretches in which times were really dealt with: they are not dealt with again when the clock goes back."""
    times: str = ""
    """Hash of that part of the spec which says when."""
    blocked: bool = False
    """Whether nothing was started by time when this was written: paused, out of actions, or a spec that cannot be followed."""
    skipping: bool = False
    """Whether the last time by the spec was skipped."""
    refused: str = ""
    """Why the API server refused the last run; empty once it has taken one."""
    remaining_given: int | None = None
    """`spec.remainingActions` when it was read last."""
    remaining: int | None = None
    paused: Paused | None = None
    buffer: tuple[Start, ...] = ()
    running: tuple[Running, ...] = ()
    retry: PendingRetry | None = None
    backfills: tuple[Backfilling, ...] = ()
    recent: tuple[Recent, ...] = ()
    """Oldest first."""
    counts: Counts = Counts()
    last_scheduled: datetime | None = None
    result_time: datetime | None = None
    """When the run completed that the last completion result is from."""
    closed_time: datetime | None = None
    """When the run closed that the last failure is from, or that has cleared it."""
    answered: tuple[AnsweredRequest, ...] = ()

    # In the status, but not in its `state`: they may be large, and stand there already.
    result: Any = None
    failure: dict[str, Any] | None = None

    def stored(self) -> dict[str, Any]:
        """The state as JSON, without the parts that are elsewhere in the status."""
        small: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, result=None, failure=None))
        return small


def load_state(status: dict[str, Any]) -> ScheduleState | None:
    """The state in a status; None if there is none yet.

    Raises:
        msgspec.ValidationError: It cannot be read.
    """
    stored = status.get("state")
    if not stored:
        return None
    state = msgspec.convert(stored, ScheduleState)
    return msgspec.structs.replace(state, result=status.get("lastCompletionResult"), failure=status.get("lastFailure"))
