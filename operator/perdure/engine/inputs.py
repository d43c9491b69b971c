"""Inputs: what can happen to a run from outside. The controller observes them; `step` turns them into events.

An input about an attempt names the attempt. One that names another than the current attempt is stale and changes nothing:
this is the fence that keeps a superseded pod from reporting.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from perdure.engine.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The attempt's container runs since `time`."""

    scheduled_event_id: int
    attempt: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWaiting:
    """The attempt has not started, and this is why: for people, and for the message of a timeout."""

    scheduled_event_id: int
    attempt: int
    reason: str
    stuck: bool = False
    """It does not look as if that would pass by itself: the run's condition is to say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRead:
    """The attempt's Lease was read just now: its last heartbeat, and the details that came with it.

    Only such a reading lets a heartbeat timeout fire: heartbeats are not watched, they are looked up when due.
    """

    scheduled_event_id: int
    attempt: int
    time: datetime | None
    """`renewTime` of the Lease; None where the pod has not heartbeat yet, or the Lease is gone."""
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCompleted:
    """The attempt succeeded, with proof."""

    scheduled_event_id: int
    attempt: int
    result: Any = None
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt failed by its own doing: it counts against the retry policy."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The attempt's pod was lost to the infrastructure: retried without using up an attempt of the retry policy."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The attempt was told to stop, and has stopped."""

    scheduled_event_id: int
    attempt: int
    details: Any = None
    started_time: datetime | None = None


AttemptInput: TypeAlias = (
    AttemptStarted | AttemptWaiting | HeartbeatRead | AttemptCompleted | AttemptFailed | AttemptLost | AttemptCancelled
)


# What somebody asks of the run. A request that was recorded is not recorded again: its id stays in the state until
# `RequestForgotten` says that whoever asked has had the answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequested:
    """Somebody tells the run something."""

    request_id: str
    signal_name: str
    input: Any = None
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody asks the run to cancel itself."""

    request_id: str
    reason: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequested:
    """Somebody stops the run."""

    request_id: str
    reason: str = ""
    details: Any = None
    identity: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that goes on from a point in its past; empty where none does."""
    reset_event_id: int = 0
    """That point: what the run was to others up to there, that one is from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """Somebody wants nothing new to begin: in the whole run, or no new attempt of one activity."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequested:
    """Somebody ends a pause."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityAnswered:
    """Somebody answers for an open activity, in place of its pod: with a result, a failure, or that it was cancelled."""

    request_id: str
    activity_id: str
    result: Any = None
    """Its output; where it was cancelled, how far it came."""
    failure: Failure | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForgotten:
    """Whoever asked has had the answer, and will not ask again."""

    request_id: str


Request: TypeAlias = (
    SignalRequested | CancelRequested | TerminateRequested | PauseRequested | UnpauseRequested | ActivityAnswered
)


# What became of what the run has asked others for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStarted:
    """The child's first run has started."""

    initiated_event_id: int
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStartFailed:
    """The child could not be started."""

    initiated_event_id: int
    failure: Failure


class ChildOutcome(StrEnum):
    """How a child closed."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIMED_OUT = "TimedOut"
    TERMINATED = "Terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildClosed:
    """The last run of the child's chain has closed."""

    initiated_event_id: int
    run_id: str
    outcome: ChildOutcome
    result: Any = None
    failure: Failure | None = None
    """Why, where it failed; for a terminated one the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalDone:
    """The other run has recorded the signal or the request to cancel; or could not, and `failure` says why."""

    initiated_event_id: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoreDone:
    """Something that was left to be done after a commit is done, and need not be remembered: see `State.chores`."""

    chore: str


RunInput: TypeAlias = (
    AttemptInput | Request | RequestForgotten | ChildStarted | ChildStartFailed | ChildClosed | ExternalDone | ChoreDone
)
