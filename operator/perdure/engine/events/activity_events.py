"""Events of activities."""

from datetime import timedelta
from typing import Any

import msgspec

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure, RetryState
from perdure.engine.retry import RetryPolicy


class ActivityTaskScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider scheduled an activity. Timeouts and retry policy are final: later edits of resources change nothing."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    task_queue: str = ""
    """The task queue that its workers poll; empty: each attempt is a pod."""
    header: Any = None
    priority: Any = None
    start_delay: timedelta | None = None
    """How long the first attempt waits; the timeouts count from its end."""


class ActivityTaskStarted(Event, frozen=True, kw_only=True):
    """The last attempt of an activity started. As in Temporal, it is written when the activity closes, for no other attempt."""

    scheduled_event_id: int
    attempt: int
    last_failure: Failure | None = None
    identity: str = ""
    """Identity of the worker that runs it."""


class ActivityTaskCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider requested the cancellation of an activity."""

    scheduled_event_id: int
    activity_id: str


class _ActivityClosed(Event, frozen=True, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    """ID of its ActivityTaskStarted; 0 if the last attempt did not start."""
    activity_id: str
    attempt: int
    identity: str = ""
    """Identity of the worker that reported it."""
    losses: int = 0
    """Number of attempts that were lost to the infrastructure, which the retry policy does not count."""


class ActivityTaskCompleted(_ActivityClosed, frozen=True, kw_only=True):
    """An activity's last attempt succeeded."""

    result: Any = None
    artifacts: dict[str, Any] = msgspec.field(default_factory=dict)
    """References to its output artifacts, by name."""
    cached: str = ""
    """Name of the CachedResult that had the result; empty if the attempt ran."""


class ActivityTaskFailed(_ActivityClosed, frozen=True, kw_only=True):
    """An activity failed permanently; `retry_state` says why it is not retried."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskTimedOut(_ActivityClosed, frozen=True, kw_only=True):
    """An activity timed out permanently."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskCanceled(_ActivityClosed, frozen=True, kw_only=True):
    """An activity was canceled on request, after it stopped or before it started."""

    details: Any = None
    latest_cancel_requested_event_id: int = 0
