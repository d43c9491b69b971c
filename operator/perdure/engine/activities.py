"""Open activities, in a pass: what workers, pods and clients say of their attempts, and what follows from it."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any, assert_never

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine import changing
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.failures import MAX_MESSAGE, Failure, FailureKind, RetryState, TimeoutType, bounded
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK, Due, Ledger
from perdure.engine.opaque import plain
from perdure.engine.recording import activity_named
from perdure.engine.retired import AttemptOutcome
from perdure.engine.retry import decide_retry
from perdure.engine.state import RECORD_START_AFTER, PendingActivity, RunState

_MAX_KEPT = 4_096
"""Characters of a stack trace, bytes of details and of a cause, that are kept of an attempt while others follow."""
_LOGS_KEPT = 32
"""Open activities up to which each keeps the end of the log of its last failed attempt: they are 4 KiB each."""
_OUTCOMES: dict[type[ev.AnyEvent], AttemptOutcome] = {
    ev.ActivityTaskCompleted: AttemptOutcome.COMPLETED,
    ev.ActivityTaskFailed: AttemptOutcome.FAILED,
    ev.ActivityTaskTimedOut: AttemptOutcome.TIMED_OUT,
    ev.ActivityTaskCanceled: AttemptOutcome.CANCELED,
}


_NOT_ENOUGH_TIME = "Not enough time to schedule next retry before activity ScheduleToClose timeout, giving up retrying"
"""What Temporal's server says of every schedule-to-close timeout (timer_queue_active_task_executor.go)."""
_NOT_STARTED = "ACTIVITY_ID_NOT_STARTED"
"""What Temporal's server says of an activity that is canceled before it has started (workflow_task_completed_handler.go)."""
_STARTED_BEFORE = (ev.ActivityTaskCompleted, ev.ActivityTaskFailed)
"""What Temporal's SDKs expect of an activity that has started only."""


def no_activity(activity_id: str) -> Answer:
    """The answer to whoever names an activity that is not open."""
    return _not_found(f"no activity `{activity_id}` is open")


def _not_found(message: str) -> Answer:
    return Answer(ok=False, reason=ConditionReason.ACTIVITY_NOT_FOUND, message=message)


def abridged(failure: Failure, *, log: bool) -> Failure:
    """What is kept of the failure of an attempt that another one follows: it stands in the state, and is to stay small.

    Temporal's server cuts it to 4 kB (common/failure/failure.go).
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


def _is_to_be_recorded(activity: PendingActivity, now: datetime) -> bool:
    """Whether a worker has the attempt for so long that a commit is to say so."""
    return (
        activity.by_worker
        and activity.started_time is not None
        and not activity.start_recorded
        and activity.started_time + RECORD_START_AFTER <= now
    )


class ActivityPass:
    """The part of a pass that deals with activities."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: what the pass writes in."""
        self._ledger = ledger

    def take_report(self, item: inp.ActivityInput) -> Answer:  # noqa: PLR0911 (one for each case)
        """What a worker says of an attempt."""
        activity = self._ledger.state.activity(item.scheduled_event_id)
        ended = self._ledger.state.code.ended_activities() if self._ledger.state.code else ()
        if (
            not self._ledger.open()
            or activity is None
            or activity.attempt != item.attempt
            or item.scheduled_event_id in ended
        ):
            return _not_found("activity task not found, or it has ended")
        if not activity.by_worker:
            message = (
                f"activity `{activity.activity_id}` runs in a pod, and only that pod reports its result and heartbeats: use an "
                "Operation with `completeActivity` to answer for it"
            )
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if isinstance(item, inp.ActivityTaken):
            if activity.started_time is not None or not self._ledger.state.may_start(activity, self._ledger.now):
                return _not_found("the attempt is not to be started")
            once = activity.retry_policy.maximum_attempts == 1
            started = msgspec.structs.replace(
                activity, started_time=self._ledger.now, fence=item.fence, identity=item.identity, start_recorded=once
            )
            self._ledger.state = self._ledger.state.with_activity(started)
            self._ledger.durable |= once
            return OK
        if item.fence and item.fence != activity.fence and activity.started_time is not None:
            return _not_found("the attempt was handed out to another worker")
        if isinstance(item, inp.ActivityReturned):
            returned = msgspec.structs.replace(activity, started_time=None, fence="", identity="", start_recorded=False)
            self._ledger.state = self._ledger.state.with_activity(returned)
            self._ledger.durable = True  # whatever was recorded meanwhile may say that a worker has it
            return OK
        if isinstance(item, inp.ActivityBeat):
            beat = inp.HeartbeatRead(
                scheduled_event_id=item.scheduled_event_id,
                attempt=item.attempt,
                time=self._ledger.now,
                details=item.details,
            )
            self.heartbeat(self._counted(self.started(activity, self._ledger.now)), beat)
            return OK
        return self.reported(self.started(activity, self._ledger.now), item)

    def reported(self, activity: PendingActivity, report: inp.ActivityReported) -> Answer:
        """What a worker says that an attempt has come to."""
        if report.heartbeat_details is not None:
            activity = msgspec.structs.replace(activity, heartbeat_details=report.heartbeat_details)
            if activity.by_worker:
                activity = msgspec.structs.replace(self._counted(activity), last_heartbeat_time=self._ledger.now)
                self._ledger.state = self._ledger.state.with_activity(activity)
        if report.cancelled and not activity.cancel_requested:
            message = "the activity was not asked to cancel itself"
            return Answer(ok=False, reason=ConditionReason.CANCEL_NOT_REQUESTED, message=message)
        who = {"identity": report.identity, "principal": report.principal}
        if report.cancelled:
            self.ended(activity, ev.ActivityTaskCanceled, details=report.result, **who)
        elif report.failure is not None:
            self.failed(activity, report.failure, **who)
        else:
            result = report.result if self._ledger.state.for_clients else plain(report.result)
            self.ended(activity, ev.ActivityTaskCompleted, result=result, **who)
        return OK

    def _counted(self, activity: PendingActivity) -> PendingActivity:
        """A standalone activity with one more heartbeat."""
        return msgspec.structs.replace(activity, heartbeats=activity.heartbeats + self._ledger.state.standalone)

    def take_attempt(self, item: inp.AttemptInput) -> None:
        """What a pod tells of an attempt."""
        activity = self._ledger.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return  # stale: the fence
        match item:
            case inp.AttemptStarted():
                self.started(activity, item.time)
            case inp.AttemptWaiting():
                # The first that is stuck is told in the run's condition, and so is that none is any more.
                self._ledger.durable |= item.stuck and not any(self._ledger.state.stuck())
                stuck = activity.stuck or item.stuck
                waiting = msgspec.structs.replace(activity, waiting_reason=item.reason, stuck=stuck)
                self._ledger.state = self._ledger.state.with_activity(waiting)
                self._ledger.durable |= item.worth_telling
            case inp.HeartbeatRead():
                self.heartbeat(activity, item)
            case inp.AttemptCompleted():
                activity = self.started(activity, item.started_time or self._ledger.now)
                self.ended(activity, ev.ActivityTaskCompleted, result=item.result)
            case inp.AttemptFailed():
                activity = self.started(activity, item.started_time)
                if item.failure.kind is FailureKind.TIMEOUT:
                    self.timed_out(activity, item.failure)
                else:
                    self.failed(activity, item.failure)
            case inp.AttemptLost():
                self.lost(self.started(activity, item.started_time), item.failure)
            case inp.AttemptCancelled():
                self.cancelled(self.started(activity, item.started_time), item.details)
            case _:
                assert_never(item)

    def started(self, activity: PendingActivity, time: datetime | None) -> PendingActivity:
        """Note that the attempt runs. A node's clock may be off: the time is held between scheduling and now."""
        if activity.started_time is None and time is not None:
            time = max(activity.scheduled_time, min(time, self._ledger.now))
            was_stuck = activity.stuck
            activity = msgspec.structs.replace(activity, started_time=time, waiting_reason=None, stuck=False)
            self._ledger.state = self._ledger.state.with_activity(activity)
            self._ledger.durable |= was_stuck and not any(self._ledger.state.stuck())
        return activity

    def heartbeat(self, activity: PendingActivity, read: inp.HeartbeatRead) -> None:
        """Note a heartbeat."""
        if read.time is None:
            return
        self._ledger.state = self._ledger.state.with_activity(
            msgspec.structs.replace(
                activity, last_heartbeat_time=min(read.time, self._ledger.now), heartbeat_details=read.details
            )
        )

    def failed(self, activity: PendingActivity, failure: Failure, **who: str) -> None:
        """The attempt failed: retry it, or close the activity.

        `who` has reported it: `identity` and `principal`.
        """
        failure = msgspec.structs.replace(failure, message=failure.message[:MAX_MESSAGE])
        state = self.retried(activity, failure)
        if state is not RetryState.IN_PROGRESS:
            self.ended(activity, ev.ActivityTaskFailed, failure=failure, retry_state=state, **who)

    def timed_out(self, activity: PendingActivity, failure: Failure) -> None:
        """A timeout has passed: retry the attempt, or close the activity.

        As on Temporal's server, having no time left for another attempt is a schedule-to-close timeout, and the cause of a
        timeout is the failure of the attempt before. To a Workflow, the cause of the former is how the last attempt timed out.
        """
        state, kind, cause = self.retried(activity, failure), failure.timeout_type, activity.last_failure
        if state is RetryState.IN_PROGRESS:
            return
        if state is RetryState.TIMEOUT and kind is not TimeoutType.SCHEDULE_TO_START:
            coded = self._ledger.state.for_clients
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE and not coded:
                cause = failure
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE and self._ledger.state.standalone:
                # The outcome does not say how the last attempt has ended; whoever describes the activity does.
                late = msgspec.structs.replace(
                    activity, last_failure=failure, last_attempt_complete_time=self._ledger.now
                )
                self._ledger.state = self._ledger.state.with_activity(late)
            if kind is not TimeoutType.SCHEDULE_TO_CLOSE or coded:
                failure = activity.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE, _NOT_ENOUGH_TIME)
        self.give_up(activity, failure, state, cause)

    def retried(self, activity: PendingActivity, failure: Failure) -> RetryState:
        """Retry an attempt that failed, or say why not. An activity whose cancellation was requested is not retried.

        As Temporal's server (service/history/workflow/mutable_state_impl.go: RetryActivity).
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
            self.again(activity, failure, decision.delay, losses=activity.losses)
        return decision.state

    def lost(self, activity: PendingActivity, failure: Failure) -> None:
        """The attempt's pod was lost: try again without counting it, within schedule-to-close."""
        delay = activity.retry_policy.interval(activity.losses + 1)
        if activity.cancel_requested:
            self.ended(activity, ev.ActivityTaskCanceled)  # it has stopped, which is what was asked for
        elif activity.expiration is not None and self._ledger.now + delay >= activity.expiration:
            late = msgspec.structs.replace(activity, last_failure=failure, losses=activity.losses + 1)
            self.give_up(late, late.timeout_failure(TimeoutType.SCHEDULE_TO_CLOSE), RetryState.TIMEOUT, failure)
        else:
            self.again(activity, failure, delay, losses=activity.losses + 1)

    def cancelled(self, activity: PendingActivity, details: Any) -> None:
        """The attempt says that it was cancelled. Where nobody has asked for that, it is a failure like others, but final."""
        if activity.cancel_requested:
            self.ended(activity, ev.ActivityTaskCanceled, details=details)
        else:
            message = "the activity has cancelled itself"
            self.failed(activity, Failure(kind=FailureKind.CANCELLED, message=message, details=details))

    def canceled_unstarted(self, activity: PendingActivity) -> None:
        """End an activity that has not started, and whose cancellation was requested: nobody has to be asked."""
        said = (
            {"details": _NOT_STARTED, "identity": self._ledger.tasks.identity} if self._ledger.tasks is not None else {}
        )
        self.ended(activity, ev.ActivityTaskCanceled, **said)

    def cancel_unstarted(self) -> None:
        """End the activities that were asked to stop while they ran, in a history that this one was forked from."""
        for activity in self._ledger.state.activities.values():
            if activity.cancel_requested and activity.started_time is None:
                self.ended(activity, ev.ActivityTaskCanceled)

    def again(self, activity: PendingActivity, failure: Failure, delay: timedelta, *, losses: int) -> None:
        """Let another attempt begin after a while."""
        outcome = (
            AttemptOutcome.LOST
            if losses > activity.losses
            else AttemptOutcome.TIMED_OUT
            if failure.kind is FailureKind.TIMEOUT
            else AttemptOutcome.FAILED
        )
        self._ledger.retire(activity, outcome, failure)
        activity = msgspec.structs.replace(activity, losses=losses)
        if activity.reset:
            activity = changing.after_reset(activity)
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
                last_failure=abridged(failure, log=len(self._ledger.state.activities) <= _LOGS_KEPT),
            )
        )
        self._ledger.durable = True

    def give_up(self, activity: PendingActivity, failure: Failure, state: RetryState, cause: Failure | None) -> None:
        """Close the activity with a timeout."""
        details = failure.last_heartbeat_details
        failure = msgspec.structs.replace(
            failure,
            last_heartbeat_details=activity.heartbeat_details if details is None else details,
            cause=cause,
        )
        self.ended(activity, ev.ActivityTaskTimedOut, failure=failure, retry_state=state)

    def ended(
        self,
        activity: PendingActivity,
        closing: type[
            ev.ActivityTaskCompleted | ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled
        ],
        **attributes: Any,
    ) -> None:
        """Close the activity; that its last attempt had started is written just before."""
        started_event_id = 0
        if closing is ev.ActivityTaskCanceled:
            attributes["latest_cancel_requested_event_id"] = activity.cancel_requested_event_id
        if self._ledger.tasks is not None:
            self._ledger.tasks.make_normal()
        started_time = activity.started_time
        if self._ledger.state.for_clients and closing in _STARTED_BEFORE:
            started_time = (
                started_time or self._ledger.now
            )  # as whoever answers for it by its id; workers know no other order
        if started_time is not None:
            started_event_id = self._ledger.state.next_event_id
            self._ledger.emit(
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
        self._ledger.emit(
            closing(
                scheduled_event_id=activity.scheduled_event_id,
                started_event_id=started_event_id,
                activity_id=activity.activity_id,
                attempt=activity.attempt,
                losses=activity.losses,
                **attributes,
                **self._ledger.here,
            ),
            decide=True,
        )
        self._ledger.retire(activity, _OUTCOMES[closing], attributes.get("failure"))

    def record_start(self, activity: PendingActivity) -> None:
        """Have a commit say that a worker has the attempt."""
        self._ledger.state = self._ledger.state.with_activity(msgspec.structs.replace(activity, start_recorded=True))
        self._ledger.durable = True

    def activity_timed_out(self, seen: PendingActivity, kind: TimeoutType) -> None:
        """A deadline of an activity has come."""
        activity = self._ledger.state.activity(seen.scheduled_event_id)
        if activity is None or activity.attempt != seen.attempt:
            return  # an earlier deadline of the same pass has ended this attempt
        self.timed_out(activity, activity.timeout_failure(kind))

    # Deadlines

    def due(self, checked: Collection[tuple[int, int]]) -> Iterator[Due]:
        """The deadlines of activities that have come.

        Args:
            checked: The attempts whose Leases were read, by scheduled event ID and number: only they can be silent.
        """
        ended = self._ledger.state.code.ended_activities() if self._ledger.state.code else ()
        for activity in self._ledger.state.activities.values():
            if activity.scheduled_event_id in ended:
                continue
            if _is_to_be_recorded(activity, self._ledger.now):
                self.record_start(activity)
            for place, (deadline, kind) in enumerate(activity.deadlines()):
                attempt = activity.scheduled_event_id, activity.attempt
                unread = kind is TimeoutType.HEARTBEAT and attempt not in checked and not activity.by_worker
                if deadline <= self._ledger.now and not unread:
                    key = f"{activity.scheduled_event_id}/{place}"
                    yield deadline, 1, key, partial(self.activity_timed_out, activity, kind)

    # Requests

    def activity_changed(self, request: inp.ActivityReset | inp.OptionsChanged) -> Answer:
        """Change an open activity, which the history does not tell."""
        activity = activity_named(self._ledger.state, request.activity_id)
        if activity is None:
            return no_activity(request.activity_id)
        if isinstance(request, inp.ActivityReset):
            changed = changing.reset(activity, request, self._ledger.now)
        elif not activity.by_worker:
            message = f"activity `{request.activity_id}` is done by pods: its options stand in the Workflow"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        else:
            changed = changing.with_options(activity, request.options)
        self._ledger.state = self._ledger.state.with_activity(changed)
        self._ledger.durable = True
        return OK

    def activity_answered(self, answered: inp.ActivityAnswered) -> Answer:
        """Somebody answers in place of whoever does the activity."""
        activity = activity_named(self._ledger.state, answered.activity_id)
        if activity is None:
            return no_activity(answered.activity_id)
        if answered.cancelled:
            if not activity.cancel_requested:
                message = (
                    f"activity `{answered.activity_id}` was not asked to cancel itself; answer with a failure instead"
                )
                return Answer(ok=False, reason=ConditionReason.CANCEL_NOT_REQUESTED, message=message)
            self.ended(activity, ev.ActivityTaskCanceled, details=answered.result, principal=answered.principal)
        elif answered.failure is not None:
            self.failed(activity, answered.failure, principal=answered.principal)
        else:
            self.ended(activity, ev.ActivityTaskCompleted, result=answered.result, principal=answered.principal)
        return OK


def moments(state: RunState) -> Iterator[datetime]:
    """When the activities of a run need to be looked at."""
    for activity in state.activities.values():
        if activity.by_worker and activity.started_time is not None and not activity.start_recorded:
            yield activity.started_time + RECORD_START_AFTER
        if activity.started_time is None and not state.holds_back(activity):
            yield activity.scheduled_time
        for deadline, _ in activity.deadlines():
            yield deadline
