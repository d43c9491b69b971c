"""Observations of the pod of an attempt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from perdure.engine.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """The container of the attempt has been running since `time`."""

    scheduled_event_id: int
    attempt: int
    time: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWaiting:
    """The attempt has not started. The status and the message of a timeout show the reason."""

    scheduled_event_id: int
    attempt: int
    reason: str
    stuck: bool = False
    """Whether the user probably must act, so that the condition of the run must show it."""
    queued: bool = False
    """Whether it waits for its turn in a WorkflowLimit."""
    commit_now: bool = False
    """Whether to commit the reason immediately, because it may last and nothing else shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRead:
    """The Lease of the attempt was read just now: its last heartbeat with details.

    A heartbeat timeout fires only after such a read: heartbeats are not watched, but read when they are due.
    """

    scheduled_event_id: int
    attempt: int
    time: datetime | None
    """`renewTime` of the Lease; None if the pod has sent no heartbeat, or if the Lease does not exist."""
    details: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCompleted:
    """The attempt provably succeeded, or an earlier result takes its place."""

    scheduled_event_id: int
    attempt: int
    result: Any = None
    artifacts: Mapping[str, Any] = field(default_factory=dict)
    """References to its output artifacts, by name."""
    cached: str = ""
    """Name of the CachedResult that has the result, if the attempt did not run."""
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The attempt itself failed, and the retry policy counts it."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLost:
    """The infrastructure lost the pod of the attempt. It is retried, and the retry policy does not count it."""

    scheduled_event_id: int
    attempt: int
    failure: Failure
    started_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCancelled:
    """The attempt was canceled on request."""

    scheduled_event_id: int
    attempt: int
    details: Any = None
    started_time: datetime | None = None


AttemptInput: TypeAlias = (
    AttemptStarted | AttemptWaiting | HeartbeatRead | AttemptCompleted | AttemptFailed | AttemptLost | AttemptCancelled
)
