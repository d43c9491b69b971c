"""Timeouts of activities, and the time after which the start of an attempt is recorded."""

from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial

import msgspec

from perdure.engine.activities.attempts import Attempts
from perdure.engine.failures import TimeoutType
from perdure.engine.ledger import Due, Ledger
from perdure.engine.state import RECORD_START_AFTER, PendingActivity, RunState


class ActivityDeadlines:
    """The deadlines of the open activities during a step."""

    def __init__(self, ledger: Ledger, attempts: Attempts) -> None:
        """`ledger`: collects the output of the step. `attempts`: ends attempts whose timeout has passed."""
        self._ledger = ledger
        self._attempts = attempts

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
                    yield deadline, 1, key, partial(self._time_out, activity, kind)

    def _record_start(self, activity: PendingActivity) -> None:
        """Record with a commit that a worker has the attempt."""
        self._ledger.state = self._ledger.state.with_activity(msgspec.structs.replace(activity, start_recorded=True))
        self._ledger.durable = True

    def _time_out(self, seen: PendingActivity, kind: TimeoutType) -> None:
        activity = self._ledger.state.activity(seen.scheduled_event_id)
        if activity is None or activity.attempt != seen.attempt:
            return  # an earlier deadline of the same step has ended this attempt
        self._attempts.time_out(activity, activity.timeout_failure(kind))


def _start_is_unrecorded(activity: PendingActivity, now: datetime) -> bool:
    """Whether a worker has had the attempt for a while, and no commit has recorded that."""
    return (
        activity.by_worker
        and activity.started_time is not None
        and not activity.start_recorded
        and activity.started_time + RECORD_START_AFTER <= now
    )


def wake_times(state: RunState) -> Iterator[datetime]:
    """Yield when the activities of a run need its next step."""
    for activity in state.open_activities():
        if activity.by_worker and activity.started_time is not None and not activity.start_recorded:
            yield activity.started_time + RECORD_START_AFTER
        if activity.started_time is None and not state.holds_back(activity):
            yield activity.scheduled_time
        for deadline, _ in activity.deadlines():
            yield deadline
