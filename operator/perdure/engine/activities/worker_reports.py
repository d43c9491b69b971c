"""Reports of workers about the attempts that they run."""

from typing import assert_never

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities.activity_closing import ActivityClosing
from perdure.engine.activities.attempts import Attempts
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK, Ledger
from perdure.engine.opaque import plain
from perdure.engine.state import PendingActivity


class WorkerReports:
    """Processes the reports of workers."""

    def __init__(self, ledger: Ledger, attempts: Attempts, closing: ActivityClosing) -> None:
        """`ledger`: collects the output of the step. `attempts`, `closing`: change the activities."""
        self._ledger = ledger
        self._attempts = attempts
        self._closing = closing

    def handle(self, item: inp.ActivityInput) -> Answer:  # noqa: PLR0911 (one return for each case)
        """Process a report."""
        activity = self._current(item)
        if activity is None:
            return _not_found("activity task not found, or it has ended")
        if not activity.by_worker:
            message = (
                f"activity `{activity.activity_id}` runs in a pod, and only that pod reports its result and heartbeats: to "
                "complete it from outside, use an Operation with `completeActivity`"
            )
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        if isinstance(item, inp.ActivityTaken):
            return self._take(activity, item)
        if item.fence and item.fence != activity.fence and activity.started_time is not None:
            return _not_found("the attempt was handed out to another worker")
        match item:
            case inp.ActivityReturned():
                return self._requeue(activity)
            case inp.ActivityBeat():
                return self._heartbeat(self._attempts.start(activity, self._ledger.now), item)
            case inp.ActivityReported():
                return self._end(self._attempts.start(activity, self._ledger.now), item)
            case _:
                assert_never(item)

    def _current(self, item: inp.ActivityInput) -> PendingActivity | None:
        """The activity, if it is open and the report is about its current attempt."""
        activity = self._ledger.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return None
        return activity if self._ledger.open() else None

    def _take(self, activity: PendingActivity, item: inp.ActivityTaken) -> Answer:
        if activity.started_time is not None or not self._ledger.state.may_start(activity, self._ledger.now):
            return _not_found("the attempt cannot start now")
        once = activity.retry_policy.maximum_attempts == 1
        started = msgspec.structs.replace(
            activity, started_time=self._ledger.now, fence=item.fence, identity=item.identity, start_recorded=once
        )
        self._ledger.state = self._ledger.state.with_activity(started)
        self._ledger.durable |= once
        return OK

    def _requeue(self, activity: PendingActivity) -> Answer:
        returned = msgspec.structs.replace(activity, started_time=None, fence="", identity="", start_recorded=False)
        self._ledger.state = self._ledger.state.with_activity(returned)
        self._ledger.durable = True  # a commit may have recorded that a worker has it
        return OK

    def _heartbeat(self, activity: PendingActivity, item: inp.ActivityBeat) -> Answer:
        read = inp.HeartbeatRead(
            scheduled_event_id=item.scheduled_event_id,
            attempt=item.attempt,
            time=self._ledger.now,
            details=item.details,
        )
        self._attempts.heartbeat(self._with_heartbeat(activity), read)
        return OK

    def _end(self, activity: PendingActivity, report: inp.ActivityReported) -> Answer:
        """Process a worker's report that an attempt has ended."""
        if report.heartbeat_details is not None:
            activity = msgspec.structs.replace(activity, heartbeat_details=report.heartbeat_details)
            activity = msgspec.structs.replace(self._with_heartbeat(activity), last_heartbeat_time=self._ledger.now)
            self._ledger.state = self._ledger.state.with_activity(activity)
        if report.cancelled and not activity.cancel_requested:
            message = "no cancellation of the activity was requested"
            return Answer(ok=False, reason=ConditionReason.CANCEL_NOT_REQUESTED, message=message)
        reporter = {"identity": report.identity, "principal": report.principal}
        if report.cancelled:
            self._closing.close(activity, ev.ActivityTaskCanceled, details=report.result, **reporter)
        elif report.failure is not None:
            self._attempts.fail(activity, report.failure, **reporter)
        else:
            result = report.result if self._ledger.state.for_clients else plain(report.result)
            self._closing.close(activity, ev.ActivityTaskCompleted, result=result, **reporter)
        return OK

    def _with_heartbeat(self, activity: PendingActivity) -> PendingActivity:
        """Count a heartbeat, if the activity is standalone."""
        return msgspec.structs.replace(activity, heartbeats=activity.heartbeats + self._ledger.state.standalone)


def _not_found(message: str) -> Answer:
    return Answer(ok=False, reason=ConditionReason.ACTIVITY_NOT_FOUND, message=message)
