"""How an activity closes: the events that record its end."""

from typing import Any, TypeAlias

import msgspec

from perdure.engine import events as ev
from perdure.engine.failures import Failure, RetryState
from perdure.engine.ledger import Ledger
from perdure.engine.retired import AttemptOutcome
from perdure.engine.state import PendingActivity

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


class ActivityClosing:
    """Closes activities."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: collects the output of the step."""
        self._ledger = ledger

    def close(self, activity: PendingActivity, closing: type[ClosingActivityEvent], **attributes: Any) -> None:
        """Close an activity; an event just before records that its last attempt had started.

        Args:
            activity: The activity.
            closing: The event that closes it.
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
                **ledger.here,
            ),
            decide=True,
        )
        outcome = AttemptOutcome.CACHED if attributes.get("cached") else _OUTCOMES[closing]
        ledger.retire(activity, outcome, attributes.get("failure"))

    def time_out(self, activity: PendingActivity, failure: Failure, state: RetryState, cause: Failure | None) -> None:
        """Close an activity with a timeout."""
        details = failure.last_heartbeat_details
        failure = msgspec.structs.replace(
            failure,
            last_heartbeat_details=activity.heartbeat_details if details is None else details,
            cause=cause,
        )
        self.close(activity, ev.ActivityTaskTimedOut, failure=failure, retry_state=state)

    def cancel_unstarted(self, activity: PendingActivity) -> None:
        """Cancel an activity that has not started, without asking its worker or pod."""
        tasks = self._ledger.tasks
        attributes = {"details": _NOT_STARTED, "identity": tasks.identity} if tasks is not None else {}
        self.close(activity, ev.ActivityTaskCanceled, **attributes)

    def cancel_all_unstarted(self) -> None:
        """Cancel the activities whose cancellation was requested while they ran, in the history that a reset run began with."""
        for activity in self._ledger.state.activities.values():
            if activity.cancel_requested and activity.started_time is None:
                self.close(activity, ev.ActivityTaskCanceled)
