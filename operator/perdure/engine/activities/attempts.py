"""Attempts of activities: they start, send heartbeats, end, and are retried."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.engine import activity_changes
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities.activity_closing import ActivityClosing
from perdure.engine.failures import MAX_MESSAGE, Failure, FailureKind, RetryState, TimeoutType, bounded
from perdure.engine.ledger import Ledger
from perdure.engine.retired import AttemptOutcome
from perdure.engine.retry import decide_retry
from perdure.engine.state import PendingActivity

_MAX_KEPT = 4_096
"""Limits for a retried attempt: characters of the stack trace, and bytes of the details and of the cause."""
_MAX_LOGS = 32
"""Number of open activities up to which each keeps the log of its last failed attempt, which has up to 4 KiB."""
_NOT_ENOUGH_TIME = "Not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying"
"""The message of Temporal's server for every schedule-to-close timeout (timer_queue_active_task_executor.go)."""


class Attempts:
    """The attempts of the open activities during a step."""

    def __init__(self, ledger: Ledger, closing: ActivityClosing) -> None:
        """`ledger`: collects the output of the step. `closing`: closes activities that are not retried."""
        self._ledger = ledger
        self._closing = closing

    def start(self, activity: PendingActivity, time: datetime | None) -> PendingActivity:
        """Record that the attempt runs. A node's clock may be wrong: a time before scheduling or in the future is corrected."""
        if activity.started_time is None and time is not None:
            time = max(activity.scheduled_time, min(time, self._ledger.now))
            before = activity
            activity = msgspec.structs.replace(
                activity, started_time=time, waiting_reason=None, stuck=False, queued=False
            )
            state = self._ledger.state = self._ledger.state.with_activity(activity)
            self._ledger.durable |= before.stuck and not any(state.stuck())
            self._ledger.durable |= before.queued and not any(state.queued())
        return activity

    def heartbeat(self, activity: PendingActivity, read: inp.HeartbeatRead) -> None:
        """Record a heartbeat."""
        if read.time is None:
            return
        self._ledger.state = self._ledger.state.with_activity(
            msgspec.structs.replace(
                activity, last_heartbeat_time=min(read.time, self._ledger.now), heartbeat_details=read.details
            )
        )

    def fail(self, activity: PendingActivity, failure: Failure, **reporter: str) -> None:
        """Retry a failed attempt, or close its activity. `reporter` has the `identity` and `principal` of the client."""
        failure = msgspec.structs.replace(failure, message=failure.message[:MAX_MESSAGE])
        state = self._retry(activity, failure)
        if state is not RetryState.IN_PROGRESS:
            self._closing.close(activity, ev.ActivityTaskFailed, failure=failure, retry_state=state, **reporter)

    def time_out(self, activity: PendingActivity, failure: Failure) -> None:
        """Retry an attempt whose timeout has passed, or close its activity.

        As on Temporal's server, having no time left for another attempt is a schedule-to-close timeout, and the cause of a
        timeout is the failure of the previous attempt. To a Workflow, the cause of the former is how the last attempt timed out.
        """
        state, kind, cause = self._retry(activity, failure), failure.timeout_type, activity.last_failure
        if state is RetryState.IN_PROGRESS:
            return
        if state is RetryState.TIMEOUT and kind is not TimeoutType.SCHEDULE_TO_START:
            for_workers = self._ledger.state.for_clients
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE and not for_workers:
                cause = failure
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE and self._ledger.state.standalone:
                # Only the description of the activity shows how the last attempt ended, not the outcome.
                late = msgspec.structs.replace(
                    activity, last_failure=failure, last_attempt_complete_time=self._ledger.now
                )
                self._ledger.state = self._ledger.state.with_activity(late)
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE or for_workers:
                failure = activity.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE, _NOT_ENOUGH_TIME)
        self._closing.time_out(activity, failure, state, cause)

    def lose(self, activity: PendingActivity, failure: Failure) -> None:
        """Retry an attempt that was lost to the infrastructure, without counting it, within schedule-to-close."""
        delay = activity.retry_policy.interval(activity.losses + 1)
        if activity.cancel_requested:
            self._closing.close(activity, ev.ActivityTaskCanceled)  # it has stopped, as requested
        elif activity.expiration is not None and self._ledger.now + delay >= activity.expiration:
            late = msgspec.structs.replace(activity, last_failure=failure, losses=activity.losses + 1)
            timeout = late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE)
            self._closing.time_out(late, timeout, RetryState.TIMEOUT, failure)
        else:
            self._schedule_next(activity, failure, delay, losses=activity.losses + 1)

    def cancel(self, activity: PendingActivity, details: Any) -> None:
        """Close the activity of an attempt that was canceled. Without a request, it is a failure that is not retried."""
        if activity.cancel_requested:
            self._closing.close(activity, ev.ActivityTaskCanceled, details=details)
        else:
            message = "the activity ended as cancelled, but no cancellation was requested"
            self.fail(activity, Failure(kind=FailureKind.CANCELLED, message=message, details=details))

    def _retry(self, activity: PendingActivity, failure: Failure) -> RetryState:
        """Retry an attempt that failed, or return why not. An activity whose cancellation was requested is not retried.

        This follows Temporal's server (service/history/workflow/mutable_state_impl.go: RetryActivity).
        """
        if activity.cancel_requested:
            return RetryState.CANCEL_REQUESTED
        if failure.timeout_type in {TimeoutType.SCHEDULE_TO_START, TimeoutType.SCHEDULE_TO_CLOSE}:
            return RetryState.TIMEOUT
        decision = decide_retry(
            activity.retry_policy,
            failure,
            attempt=activity.tries,
            now=self._ledger.now,
            expiration=activity.expiration,
            since=activity.first_scheduled_time,
        )
        if decision.delay is not None:
            self._schedule_next(activity, failure, decision.delay, losses=activity.losses)
        return decision.state

    def _schedule_next(self, activity: PendingActivity, failure: Failure, delay: timedelta, *, losses: int) -> None:
        """Schedule the next attempt."""
        if losses > activity.losses:
            outcome = AttemptOutcome.LOST
        elif failure.kind is FailureKind.TIMEOUT:
            outcome = AttemptOutcome.TIMED_OUT
        else:
            outcome = AttemptOutcome.FAILED
        self._ledger.retire(activity, outcome, failure)
        activity = msgspec.structs.replace(activity, losses=losses)
        if activity.reset:
            activity = activity_changes.after_reset(activity)
        self._ledger.state = self._ledger.state.with_activity(
            msgspec.structs.replace(
                activity,
                attempt=activity.attempt + 1,
                scheduled_time=self._ledger.now + delay,
                started_time=None,
                last_heartbeat_time=activity.last_heartbeat_time if activity.by_worker else None,
                waiting_reason=None,
                fence="",
                identity="",
                start_recorded=False,
                last_identity=activity.identity or activity.last_identity,
                last_started_time=activity.started_time if self._ledger.state.standalone else None,
                last_attempt_complete_time=self._ledger.now,
                stuck=False,
                queued=False,
                last_failure=abridged(failure, log=len(self._ledger.state.activities) <= _MAX_LOGS),
            )
        )
        self._ledger.durable = True


def abridged(failure: Failure, *, log: bool) -> Failure:
    """Return the part of a retried attempt's failure that the state keeps.

    Temporal's server truncates it to 4 kB (common/failure/failure.go).
    """
    large = {
        name: None
        for name in ("details", "last_heartbeat_details", "encoded_attributes")
        if len(msgspec.json.encode(getattr(failure, name))) > _MAX_KEPT
    }
    trace = failure.stack_trace[:_MAX_KEPT] if failure.stack_trace else None
    cause = bounded(failure.cause, _MAX_KEPT) if failure.cause is not None else None
    return msgspec.structs.replace(
        failure, cause=cause, suppressed=(), stack_trace=trace, log=failure.log if log else None, **large
    )
