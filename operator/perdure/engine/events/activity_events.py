"""Events of activities."""

from datetime import timedelta
from typing import Any

from perdure.engine.events.event import CommandEvent, Event
from perdure.engine.failures import Failure, RetryState
from perdure.engine.retry import RetryPolicy


class ActivityTaskScheduled(CommandEvent, frozen=True, kw_only=True):
    """A decider asked for an activity. Timeouts and retry policy are final here: later edits of resources change nothing."""

    activity_id: str
    activity_type: str
    input: Any = None
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    task_queue: str = ""
    """Where workers poll for it; empty: it is done by a pod."""
    header: Any = None
    priority: Any = None
    start_delay: timedelta | None = None
    """How long the first attempt waits; the timeouts count from its end."""


class ActivityTaskStarted(Event, frozen=True, kw_only=True):
    """An activity's last attempt had started. As in Temporal, written when the activity closes, and for no earlier attempt."""

    scheduled_event_id: int
    attempt: int
    last_failure: Failure | None = None
    identity: str = ""
    """Of the worker that does it."""


class ActivityTaskCancelRequested(CommandEvent, frozen=True, kw_only=True):
    """A decider asked an activity to stop."""

    scheduled_event_id: int
    activity_id: str


class _ActivityClosed(Event, frozen=True, kw_only=True):
    scheduled_event_id: int
    started_event_id: int
    """0 where the last attempt never started."""
    activity_id: str
    attempt: int
    identity: str = ""
    """Of the worker that reported it."""
    losses: int = 0
    """How many of the attempts were lost to the infrastructure: the retry policy has not counted them."""


class ActivityTaskCompleted(_ActivityClosed, frozen=True, kw_only=True):
    """An activity's last attempt succeeded."""

    result: Any = None


class ActivityTaskFailed(_ActivityClosed, frozen=True, kw_only=True):
    """An activity failed for good; `retry_state` says why it is not retried."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskTimedOut(_ActivityClosed, frozen=True, kw_only=True):
    """An activity ran into a timeout for good."""

    failure: Failure
    retry_state: RetryState


class ActivityTaskCanceled(_ActivityClosed, frozen=True, kw_only=True):
    """An activity was asked to stop, and has stopped or had not started."""

    details: Any = None
    latest_cancel_requested_event_id: int = 0
