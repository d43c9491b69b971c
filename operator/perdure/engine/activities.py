"""The open activities of a run during a step: their attempts start, send heartbeats, end, and are retried.

Pods and workers report about attempts, clients complete and change activities, and deadlines pass. Each of these starts,
retries or ends the current attempt, and an attempt that is not retried closes its activity.
"""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias, assert_never

import msgspec
from msgspec.structs import asdict, replace

from perdure.api.policies import ANY_TYPE
from perdure.api.reasons import ConditionReason
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import MAX_MESSAGE, Failure, FailureKind, RetryState, TimeoutType, bounded
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK, AttemptOutcome, Due, Ledger, activities_of, activity_named
from perdure.engine.payloads import plain
from perdure.engine.retry import decide_retry
from perdure.engine.state import RECORD_START_AFTER, OpenActivityOptions, PauseInfo, PendingActivity, RunState

ClosingActivityEvent: TypeAlias = (
    ev.ActivityTaskCompleted | ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled
)
_OUTCOMES: dict[type[ev.AnyEvent], AttemptOutcome] = {
    ev.ActivityTaskCompleted: AttemptOutcome.COMPLETED,
    ev.ActivityTaskFailed: AttemptOutcome.FAILED,
    ev.ActivityTaskTimedOut: AttemptOutcome.TIMED_OUT,
    ev.ActivityTaskCanceled: AttemptOutcome.CANCELED,
}
_NOT_STARTED = "ACTIVITY_ID_NOT_STARTED"
"""The reason that Temporal's server records if an activity is canceled before it starts (workflow_task_completed_handler.go)."""
_STARTED_BEFORE = (ev.ActivityTaskCompleted, ev.ActivityTaskFailed)
"""The closing events that Temporal's SDKs expect only after the activity has started."""
_MAX_KEPT = 4_096
"""Limits for a retried attempt: characters of the stack trace, and bytes of the details and of the cause."""
_MAX_LOGS = 32
"""Number of open activities up to which each keeps the log of its last failed attempt, which has up to 4 KiB."""
TOO_MANY_LOSSES = "TooManyLosses"
"""The type of the failure of an activity whose attempts were lost more often than its retry policy allows."""
_NOT_ENOUGH_TIME = "Not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying"
"""The message of Temporal's server for every schedule-to-close timeout (timer_queue_active_task_executor.go)."""


class Activities:
    """The open activities of a run during a step."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: collects the output of the step."""
        self._ledger = ledger

    # Observations of pods

    def observe(self, item: inp.AttemptInput) -> None:
        """Process an observation of the pod of an attempt."""
        activity = self._ledger.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return  # stale: the fence
        match item:
            case inp.AttemptStarted():
                self._start(activity, item.time)
            case inp.AttemptWaiting():
                self._wait(activity, item)
            case inp.HeartbeatRead():
                self._heartbeat(activity, item)
            case inp.AttemptCompleted():
                activity = self._start(activity, item.started_time or self._ledger.now)
                attributes: dict[str, Any] = {
                    "result": item.result,
                    "artifacts": dict(item.artifacts),
                    "cached": item.cached,
                }
                self._close(activity, ev.ActivityTaskCompleted, **attributes)
            case inp.AttemptFailed():
                activity = self._start(activity, item.started_time)
                if item.failure.kind is FailureKind.TIMEOUT:
                    self._time_out(activity, item.failure)
                else:
                    self._fail(activity, item.failure)
            case inp.AttemptLost():
                self._lose(self._start(activity, item.started_time), item.failure)
            case inp.AttemptCancelled():
                self._cancel(self._start(activity, item.started_time), item.details)
            case _:
                assert_never(item)

    def _wait(self, activity: PendingActivity, item: inp.AttemptWaiting) -> None:
        """Record why an attempt has not started. The run's condition shows whether any attempt is stuck or queued."""
        self._ledger.durable |= item.stuck and not any(self._ledger.state.stuck())
        stuck = (activity.stuck or item.stuck) and not item.queued
        waiting = replace(activity, waiting_reason=item.reason, stuck=stuck, queued=item.queued)
        self._ledger.state = self._ledger.state.with_activity(waiting)
        self._ledger.durable |= activity.queued and not any(self._ledger.state.queued())
        self._ledger.durable |= item.commit_now

    # Reports of workers

    def report(self, item: inp.ActivityInput) -> Answer:
        """Process a report of a worker about an attempt that it runs."""
        activity = self._current(item)
        if activity is None:
            return _not_found("activity task not found, or it has ended")
        if not activity.by_worker:
            message = (
                f"activity `{activity.activity_id}` runs in a pod, and only that pod reports its result and heartbeats: to "
                "complete it from outside, use an Operation with `completeActivity`"
            )
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if isinstance(item, inp.ActivityDispatched):
            return self._take(activity, item)
        if item.fence and item.fence != activity.fence and activity.started_time is not None:
            return _not_found("the attempt was handed out to another worker")
        match item:
            case inp.ActivityReturned():
                return self._requeue(activity)
            case inp.ActivityHeartbeat():
                return self._heartbeat_by_worker(self._start(activity, self._ledger.now), item)
            case inp.ActivityReported():
                return self._end(self._start(activity, self._ledger.now), item)
            case _:
                assert_never(item)

    def _current(self, item: inp.ActivityInput) -> PendingActivity | None:
        """The activity, if it is open and the report is about its current attempt."""
        activity = self._ledger.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return None
        return activity if self._ledger.open() else None

    def _take(self, activity: PendingActivity, item: inp.ActivityDispatched) -> Answer:
        if activity.started_time is not None or not self._ledger.state.may_start(activity, self._ledger.now):
            return _not_found("the attempt cannot start now")
        once = activity.retry_policy.maximum_attempts == 1
        started = replace(
            activity, started_time=self._ledger.now, fence=item.fence, identity=item.identity, start_recorded=once
        )
        self._ledger.state = self._ledger.state.with_activity(started)
        self._ledger.durable |= once
        return OK

    def _requeue(self, activity: PendingActivity) -> Answer:
        returned = replace(activity, started_time=None, fence="", identity="", start_recorded=False)
        self._ledger.state = self._ledger.state.with_activity(returned)
        self._ledger.durable = True  # a commit may have recorded that a worker has it
        return OK

    def _heartbeat_by_worker(self, activity: PendingActivity, item: inp.ActivityHeartbeat) -> Answer:
        read = inp.HeartbeatRead(
            scheduled_event_id=item.scheduled_event_id,
            attempt=item.attempt,
            time=self._ledger.now,
            details=item.details,
        )
        self._heartbeat(self._with_heartbeat(activity), read)
        return OK

    def _end(self, activity: PendingActivity, report: inp.ActivityReported) -> Answer:
        """Process a worker's report that an attempt has ended."""
        if report.heartbeat_details is not None:
            activity = replace(activity, heartbeat_details=report.heartbeat_details)
            activity = replace(self._with_heartbeat(activity), last_heartbeat_time=self._ledger.now)
            self._ledger.state = self._ledger.state.with_activity(activity)
        if report.cancelled and not activity.cancel_requested:
            message = "no cancellation of the activity was requested"
            return Answer(ok=False, reason=ConditionReason.CANCEL_NOT_REQUESTED, message=message)
        reporter = {"identity": report.identity, "principal": report.principal}
        if report.cancelled:
            self._close(activity, ev.ActivityTaskCanceled, details=report.result, **reporter)
        elif report.failure is not None:
            self._fail(activity, report.failure, **reporter)
        else:
            result = report.result if self._ledger.state.for_clients else plain(report.result)
            self._close(activity, ev.ActivityTaskCompleted, result=result, **reporter)
        return OK

    def _with_heartbeat(self, activity: PendingActivity) -> PendingActivity:
        """Count a heartbeat, if the activity is standalone."""
        return replace(activity, heartbeats=activity.heartbeats + self._ledger.state.standalone)

    # Requests of clients

    def complete(self, request: inp.ActivityAnswered) -> Answer:
        """Complete, fail or cancel an activity in place of its worker or pod."""
        activity = activity_named(self._ledger.state, request.activity_id)
        if activity is None:
            return _not_open(request.activity_id)
        if request.cancelled:
            if not activity.cancel_requested:
                message = f"no cancellation of activity `{request.activity_id}` was requested; complete it with a failure instead"
                return Answer(ok=False, reason=ConditionReason.CANCEL_NOT_REQUESTED, message=message)
            self._close(activity, ev.ActivityTaskCanceled, details=request.result, principal=request.principal)
        elif request.failure is not None:
            self._fail(activity, request.failure, principal=request.principal)
        elif activity.takes_limits:
            message = f"`{request.activity_id}` waits for WorkflowLimits, and completes when it holds them; raise their capacity"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        elif activity.awaits_service:
            message = f"`{request.activity_id}` waits for a service, and completes when that is ready"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        else:
            self._close(activity, ev.ActivityTaskCompleted, result=request.result, principal=request.principal)
        return OK

    def change(self, request: inp.ActivityReset | inp.OptionsChanged) -> Answer:
        """Change open activities, which the history does not record: all that the request names, or none."""
        found = activities_of(self._ledger.state, request.activity_id, request.activity_type)
        if not found:
            return _none_open(request.activity_id, request.activity_type)
        changed = []
        for activity in found:
            if isinstance(request, inp.ActivityReset):
                changed.append(_reset(activity, request, self._ledger.now))
                continue
            if not activity.by_worker:
                message = f"activity `{activity.activity_id}` runs in pods: change its options in the Workflow"
                return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
            options = request.options
            if isinstance(options, inp.OptionChanges):
                options = options.apply(options_of(activity))
                if options.schedule_to_close_timeout is None and options.start_to_close_timeout is None:
                    message = (
                        f"activity `{activity.activity_id}` needs `scheduleToCloseTimeout` or `startToCloseTimeout`"
                    )
                    return Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message)
            changed.append(with_options(activity, options and completed(options)))
        for activity in changed:
            self._keep(activity)
        return OK

    def pause(self, activity_id: str | None, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause activities, which the history does not record: one by its ID, or all of the type in the request."""
        pause = isinstance(request, inp.PauseRequested)
        found = activities_of(self._ledger.state, activity_id, request.activity_type)
        if not found:
            return _none_open(activity_id, request.activity_type)
        info = PauseInfo(reason=request.reason, identity=request.identity, time=self._ledger.now) if pause else None
        for activity in found:
            if activity.paused is not pause:
                self._keep(replace(activity, paused=pause, pause=info))
        return OK

    def _keep(self, activity: PendingActivity) -> None:
        self._ledger.state = self._ledger.state.with_activity(activity)
        self._ledger.durable = True

    # Deadlines

    def due(self, checked: Collection[tuple[int, int]]) -> Iterator[Due]:
        """Yield the timeouts that have passed.

        Args:
            checked: The attempts whose Leases were read, by scheduled event ID and number: only their heartbeats can time out.
        """
        state = self._ledger.state
        for activity in state.open_activities():
            if _start_is_unrecorded(activity, self._ledger.now):
                self._record_start(activity)
            for place, (deadline, kind) in enumerate(activity.deadlines()):
                attempt = activity.scheduled_event_id, activity.attempt
                unread = kind is TimeoutType.HEARTBEAT and attempt not in checked and not activity.by_worker
                if deadline <= self._ledger.now and not unread:
                    key = f"{activity.scheduled_event_id}/{place}"
                    yield deadline, 1, key, partial(self._end_by_deadline, activity, kind)

    def _record_start(self, activity: PendingActivity) -> None:
        """Record with a commit that a worker has the attempt."""
        self._ledger.state = self._ledger.state.with_activity(replace(activity, start_recorded=True))
        self._ledger.durable = True

    def _end_by_deadline(self, due: PendingActivity, kind: TimeoutType) -> None:
        activity = self._ledger.state.activity(due.scheduled_event_id)
        if activity is None or activity.attempt != due.attempt:
            return  # an earlier deadline of the same step has ended this attempt
        self._time_out(activity, activity.timeout_failure(kind))

    # Attempts

    def _start(self, activity: PendingActivity, time: datetime | None) -> PendingActivity:
        """Record that the attempt runs. A node's clock may be wrong: a time before scheduling or in the future is corrected."""
        if activity.started_time is None and time is not None:
            time = max(activity.scheduled_time, min(time, self._ledger.now))
            before = activity
            activity = replace(activity, started_time=time, waiting_reason=None, stuck=False, queued=False)
            state = self._ledger.state = self._ledger.state.with_activity(activity)
            self._ledger.durable |= before.stuck and not any(state.stuck())
            self._ledger.durable |= before.queued and not any(state.queued())
        return activity

    def _heartbeat(self, activity: PendingActivity, read: inp.HeartbeatRead) -> None:
        """Record a heartbeat."""
        if read.time is None:
            return
        self._ledger.state = self._ledger.state.with_activity(
            replace(activity, last_heartbeat_time=min(read.time, self._ledger.now), heartbeat_details=read.details)
        )

    def _fail(self, activity: PendingActivity, failure: Failure, **reporter: str) -> None:
        """Retry a failed attempt, or close its activity. `reporter` has the `identity` and `principal` of the client."""
        failure = replace(failure, message=failure.message[:MAX_MESSAGE])
        state = self._retry(activity, failure)
        if state is not RetryState.IN_PROGRESS:
            self._close(activity, ev.ActivityTaskFailed, failure=failure, retry_state=state, **reporter)

    def _time_out(self, activity: PendingActivity, failure: Failure) -> None:
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
                late = replace(activity, last_failure=failure, last_attempt_complete_time=self._ledger.now)
                self._ledger.state = self._ledger.state.with_activity(late)
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE or for_workers:
                failure = activity.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE, _NOT_ENOUGH_TIME)
        self._close_timed_out(activity, failure, state, cause)

    def _lose(self, activity: PendingActivity, failure: Failure) -> None:
        """Retry an attempt that was lost to the infrastructure, without counting it, within schedule-to-close."""
        delay = activity.retry_policy.interval(activity.losses + 1)
        if activity.cancel_requested:
            self._close(activity, ev.ActivityTaskCanceled)  # it has stopped, as requested
        elif activity.expiration is not None and self._ledger.now + delay >= activity.expiration:
            late = replace(activity, last_failure=failure, losses=activity.losses + 1)
            timeout = late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE)
            self._close_timed_out(late, timeout, RetryState.TIMEOUT, failure)
        elif (maximum := activity.retry_policy.maximum_losses) is not None and activity.losses >= maximum:
            late = replace(activity, losses=activity.losses + 1)
            state = RetryState.MAXIMUM_ATTEMPTS_REACHED
            attributes = {"failure": too_many_losses(late.losses, failure), "retry_state": state}
            self._close(late, ev.ActivityTaskFailed, AttemptOutcome.LOST, **attributes)
        else:
            self._schedule_next(activity, failure, delay, losses=activity.losses + 1)

    def _cancel(self, activity: PendingActivity, details: Any) -> None:
        """Close the activity of an attempt that was canceled. Without a request, it is a failure that is not retried."""
        if activity.cancel_requested:
            self._close(activity, ev.ActivityTaskCanceled, details=details)
        else:
            message = "the activity ended as cancelled, but no cancellation was requested"
            self._fail(activity, Failure(kind=FailureKind.CANCELLED, message=message, details=details))

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
        activity = replace(activity, losses=losses)
        if activity.reset:
            activity = _after_reset(activity)
        self._ledger.state = self._ledger.state.with_activity(
            replace(
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

    # The end of an activity

    def cancel_unstarted(self, activity: PendingActivity) -> None:
        """Cancel an activity that has not started, without a request to its worker or pod."""
        tasks = self._ledger.tasks
        attributes = {"details": _NOT_STARTED, "identity": tasks.identity} if tasks is not None else {}
        self._close(activity, ev.ActivityTaskCanceled, **attributes)

    def cancel_all_unstarted(self) -> None:
        """Cancel the activities whose cancellation was requested while they ran, in the history that a reset run began with."""
        for activity in self._ledger.state.activities.values():
            if activity.cancel_requested and activity.started_time is None:
                self._close(activity, ev.ActivityTaskCanceled)

    def _close(
        self,
        activity: PendingActivity,
        closing: type[ClosingActivityEvent],
        outcome: AttemptOutcome | None = None,
        /,
        **attributes: Any,
    ) -> None:
        """Close an activity; an event just before records that its last attempt had started.

        Args:
            activity: The activity.
            closing: The event that closes it.
            outcome: The outcome of its last attempt; None: that of the activity.
            attributes: Additional attributes of that event.
        """
        ledger = self._ledger
        started_event_id = 0
        if closing is ev.ActivityTaskCanceled:
            attributes["latest_cancel_requested_event_id"] = activity.cancel_requested_event_id
        if ledger.tasks is not None:
            ledger.tasks.convert_speculative()
        started_time = activity.started_time
        if ledger.state.for_clients and closing in _STARTED_BEFORE:
            started_time = started_time or ledger.now  # a client may complete an unstarted activity by ID
        if started_time is not None:
            started_event_id = ledger.state.next_event_id
            ledger.emit(
                ev.ActivityTaskStarted(
                    event_id=started_event_id,
                    event_time=started_time,
                    scheduled_event_id=activity.scheduled_event_id,
                    attempt=activity.attempt,
                    last_failure=activity.last_failure,
                    identity=activity.identity,
                ),
                decide=False,
            )
        ledger.emit(
            closing(
                scheduled_event_id=activity.scheduled_event_id,
                started_event_id=started_event_id,
                activity_id=activity.activity_id,
                attempt=activity.attempt,
                losses=activity.losses,
                **attributes,
                **ledger.position,
            ),
            decide=True,
        )
        if outcome is None:
            outcome = AttemptOutcome.CACHED if attributes.get("cached") else _OUTCOMES[closing]
        ledger.retire(activity, outcome, attributes.get("failure"))

    def _close_timed_out(
        self, activity: PendingActivity, failure: Failure, state: RetryState, cause: Failure | None
    ) -> None:
        """Close an activity with a timeout."""
        details = failure.last_heartbeat_details
        failure = replace(
            failure,
            last_heartbeat_details=activity.heartbeat_details if details is None else details,
            cause=cause,
        )
        self._close(activity, ev.ActivityTaskTimedOut, failure=failure, retry_state=state)


def too_many_losses(losses: int, last: Failure) -> Failure:
    """Return the failure of an activity whose attempts were lost more often than its retry policy allows.

    Args:
        losses: The number of lost attempts.
        last: Why the last one was lost.
    """
    times = "one attempt was" if losses == 1 else f"{losses} attempts were"
    message = f"{times} lost to the infrastructure, more than `maximumLosses` allows; the last one: {last.message}"
    return Failure(
        kind=FailureKind.APPLICATION,
        type=TOO_MANY_LOSSES,
        message=message[:MAX_MESSAGE],
        non_retryable=True,
        cause=last,
    )


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
    return replace(failure, cause=cause, suppressed=(), stack_trace=trace, log=failure.log if log else None, **large)


def _not_found(message: str) -> Answer:
    return Answer(ok=False, reason=ConditionReason.ACTIVITY_NOT_FOUND, message=message)


def _not_open(activity_id: str) -> Answer:
    return Answer(ok=False, reason=ConditionReason.ACTIVITY_NOT_FOUND, message=f"no activity `{activity_id}` is open")


def _none_open(activity_id: str | None, activity_type: str | None) -> Answer:
    if activity_id is not None:
        return _not_open(activity_id)
    message = "no activity is open" if activity_type == ANY_TYPE else f"no activity of type `{activity_type}` is open"
    return Answer(ok=False, reason=ConditionReason.ACTIVITY_NOT_FOUND, message=message)


def _start_is_unrecorded(activity: PendingActivity, now: datetime) -> bool:
    """Whether a worker has had the attempt for a while, and no commit has recorded that."""
    return (
        activity.by_worker
        and activity.started_time is not None
        and not activity.start_recorded
        and activity.started_time + RECORD_START_AFTER <= now
    )


# Changes by clients. As on Temporal's server (service/history/workflow/activity.go), no event records them.


def options_of(activity: PendingActivity) -> OpenActivityOptions:
    """The current options of an activity."""
    return OpenActivityOptions(**{name: getattr(activity, name) for name in OpenActivityOptions.__struct_fields__})


def completed(options: OpenActivityOptions) -> OpenActivityOptions:
    """Changed options with the timeouts that follow from the others, as Temporal's server completes them.

    Args:
        options: Options with a schedule-to-close or a start-to-close timeout.
    """
    total = options.schedule_to_close_timeout
    start, close = (
        min(filter(None, (length, total)), default=None)
        for length in (options.schedule_to_start_timeout, options.start_to_close_timeout)
    )
    beat = min(filter(None, (options.heartbeat_timeout, close))) if options.heartbeat_timeout else None
    return msgspec.structs.replace(
        options, schedule_to_start_timeout=start, start_to_close_timeout=close, heartbeat_timeout=beat
    )


def with_options(activity: PendingActivity, options: OpenActivityOptions | None) -> PendingActivity:
    """Return an activity with other options; None: with the options of its ActivityTaskScheduled."""
    original = activity.original or options_of(activity)
    if options is None or options == original:
        return replace(activity, **asdict(original), original=None)
    return replace(activity, **asdict(options), original=original)


def _reset(activity: PendingActivity, request: inp.ActivityReset, now: datetime) -> PendingActivity:
    """Return an activity whose attempts are counted from scratch: the current attempt becomes the first."""
    if request.restore:
        activity = with_options(activity, None)
    if not request.keep_paused:
        activity = replace(activity, paused=False, pause=None)
    activity = replace(activity, uncounted=activity.attempt - 1, losses=0)
    if activity.started_time is not None:
        return replace(activity, reset=True, forgets_heartbeat=request.heartbeat)
    if request.heartbeat:
        activity = _without_heartbeat(activity)
    return replace(activity, scheduled_time=min(activity.scheduled_time, now))


def _after_reset(activity: PendingActivity) -> PendingActivity:
    """Return the state for the next attempt of an activity that was reset while an attempt ran."""
    if activity.forgets_heartbeat:
        activity = _without_heartbeat(activity)
    return replace(activity, reset=False, forgets_heartbeat=False)


def _without_heartbeat(activity: PendingActivity) -> PendingActivity:
    return replace(activity, heartbeat_details=None, last_heartbeat_time=None)


def wake_times(state: RunState) -> Iterator[datetime]:
    """Yield when the activities of a run need its next step."""
    for activity in state.open_activities():
        if activity.by_worker and activity.started_time is not None and not activity.start_recorded:
            yield activity.started_time + RECORD_START_AFTER
        if activity.started_time is None and not state.is_paused(activity):
            yield activity.scheduled_time
        for deadline, _ in activity.deadlines():
            yield deadline
