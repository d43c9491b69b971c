"""What was observed of an attempt that a pod makes."""

from dataclasses import dataclass
from datetime import datetime
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
    worth_telling: bool = False
    """Whether it is to be told at once: it may be so for long, and nothing else tells of it."""


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
