"""An activity that has not closed."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from perdure.api.durations import show_duration
from perdure.api.stored_struct import StoredStruct
from perdure.engine.activity_options import OpenActivityOptions
from perdure.engine.failures import Failure, FailureKind, TimeoutType
from perdure.engine.retry import RetryPolicy
from perdure.engine.state.deadlines import deadline_after

PODS_QUEUE = "pods/"
"""Prefix of a task queue whose activities run in pods; the name of their Workflow follows."""

TAKE_LIMITS = "perdure.dev/limits"
"""The type of an activity that only takes the WorkflowLimits of a step. It completes without a pod when it holds all of them."""

RECORD_START_AFTER = timedelta(seconds=2)
"""How long a worker has an attempt before its start is recorded, so that a restart of the operator does not deliver it again.
Shorter attempts need no separate write."""


class PauseInfo(StoredStruct, frozen=True, kw_only=True):
    """Who paused a run or an activity, when, and why."""

    reason: str = ""
    identity: str = ""
    time: datetime | None = None
    """None in states of earlier versions."""


class ScheduledActivity(StoredStruct, frozen=True, kw_only=True):
    """The part of an open activity that the history records."""

    scheduled_event_id: int
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
    first_scheduled_time: datetime
    cancel_requested: bool = False
    """Whether the decider has requested the cancellation, so that the activity is no longer retried."""
    cancel_requested_event_id: int = 0
    """The event that records the request; 0 also if an older version has recorded it."""


class PendingActivity(ScheduledActivity, frozen=True, kw_only=True):
    """An activity that has not closed, with the status of its attempts, which no event records until it closes.

    The stored state holds the fields of both classes side by side.
    """

    attempt: int = 1
    """Number of the attempt that runs, or that starts at `scheduled_time`."""
    scheduled_time: datetime
    """When this attempt may start: in the future during a backoff."""
    losses: int = 0
    """Number of earlier attempts that were lost to the infrastructure: the retry policy does not count them."""
    uncounted: int = 0
    """Number of earlier attempts, lost ones included, that the retry policy does not count because of a reset."""
    reset: bool = False
    """Whether it was reset during an attempt, which now counts as the first. The next heartbeat's response tells the worker."""
    forgets_heartbeat: bool = False
    """With `reset`: the next attempt gets no heartbeat details."""
    original: OpenActivityOptions | None = None
    """The options that the history records, if a client has changed them."""
    started_time: datetime | None = None
    last_started_time: datetime | None = None
    """When the previous attempt started; only of a standalone activity."""
    last_heartbeat_time: datetime | None = None
    heartbeats: int = 0
    """Number of heartbeats of workers in all attempts; only of a standalone activity."""
    heartbeat_details: Any = None
    last_failure: Failure | None = None
    waiting_reason: str | None = None
    """Why the attempt had not started when it was last observed."""
    stuck: bool = False
    """Whether the attempt has been blocked for a while."""
    queued: bool = False
    """Whether the attempt waits for its turn in a WorkflowLimit."""
    paused: bool = False
    """Whether the activity is paused, so that no further attempt starts."""
    pause: PauseInfo | None = None
    """Who paused it, when and why; None unless it is paused, and in states of earlier versions."""
    fence: str = ""
    """Identifies the valid delivery of the attempt to a worker."""
    identity: str = ""
    """The worker that has the attempt."""
    start_recorded: bool = False
    """Whether a commit has recorded that a worker has the attempt."""
    last_identity: str = ""
    """The worker that had the previous attempt."""
    last_attempt_complete_time: datetime | None = None
    """When the previous attempt ended."""

    @property
    def tries(self) -> int:
        """The number of the attempt as the retry policy counts it."""
        return self.attempt - self.losses - self.uncounted

    @property
    def expiration(self) -> datetime | None:
        """When schedule-to-close ends."""
        return deadline_after(self.first_scheduled_time, self.schedule_to_close_timeout)

    @property
    def start_deadline(self) -> datetime | None:
        """When schedule-to-start ends; None once the attempt has started."""
        return None if self.started_time else deadline_after(self.scheduled_time, self.schedule_to_start_timeout)

    @property
    def close_deadline(self) -> datetime | None:
        """When start-to-close ends; None until the attempt has started."""
        return deadline_after(self.started_time, self.start_to_close_timeout)

    @property
    def heartbeat_deadline(self) -> datetime | None:
        """When the next heartbeat is due after the last known one; None until the attempt has started."""
        if self.started_time is None:
            return None
        return deadline_after(
            max(self.started_time, self.last_heartbeat_time or self.started_time), self.heartbeat_timeout
        )

    @property
    def by_worker(self) -> bool:
        """Whether workers that poll a task queue run it, instead of pods."""
        return bool(self.task_queue) and not self.task_queue.startswith(PODS_QUEUE)

    @property
    def takes_limits(self) -> bool:
        """Whether it only takes the WorkflowLimits of a step, and has neither a pod nor a worker."""
        return self.activity_type == TAKE_LIMITS and not self.task_queue

    def deadlines(self) -> Iterator[tuple[datetime, TimeoutType]]:
        """Yield every deadline; of equal ones, the first counts.

        The order is that of Temporal's server (service/history/workflow/timer_sequence.go), except that schedule-to-close comes
        before start-to-close: there an attempt starts a moment after it was scheduled, here an eager one at the same time.
        """
        for deadline, kind in (
            (self.start_deadline, TimeoutType.SCHEDULE_TO_START),
            (self.expiration, TimeoutType.SCHEDULE_TO_CLOSE),
            (self.close_deadline, TimeoutType.START_TO_CLOSE),
            (self.heartbeat_deadline, TimeoutType.HEARTBEAT),
        ):
            if deadline is not None:
                yield deadline, kind

    def timeout_failure(self, kind: TimeoutType, message: str | None = None) -> Failure:
        """The failure of a timeout of this activity, without a cause."""
        limit = {
            TimeoutType.SCHEDULE_TO_CLOSE: self.schedule_to_close_timeout,
            TimeoutType.SCHEDULE_TO_START: self.schedule_to_start_timeout,
            TimeoutType.START_TO_CLOSE: self.start_to_close_timeout,
            TimeoutType.HEARTBEAT: self.heartbeat_timeout,
        }[kind]
        return Failure(
            kind=FailureKind.TIMEOUT,
            message=(
                message or f"activity {kind} timeout" if self.task_queue else timeout_message(kind, limit, message)
            )
            + (f": the attempt has not started: {self.waiting_reason}" if self.waiting_reason else ""),
            timeout_type=kind,
        )


def timeout_message(kind: TimeoutType, limit: timedelta | None, message: str | None = None) -> str:
    """The message of an activity timeout: that of Temporal's server, followed by the length of the timeout.

    Args:
        kind: The timeout.
        limit: The length of the timeout.
        message: The message of Temporal's server, if it has a longer one.

    Returns:
        For example, `activity StartToClose timeout after 10s`.
    """
    text = message or f"activity {kind} timeout"
    if limit is None:
        return text
    return f"{text} (the timeout is {show_duration(limit)})" if message else f"{text} after {show_duration(limit)}"
