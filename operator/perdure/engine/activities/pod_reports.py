"""Observations of the pods of attempts."""

from typing import Any, assert_never

import msgspec

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities.activity_closing import ActivityClosing
from perdure.engine.activities.attempts import Attempts
from perdure.engine.failures import FailureKind
from perdure.engine.ledger import Ledger
from perdure.engine.state import PendingActivity


class PodReports:
    """Processes observations of pods."""

    def __init__(self, ledger: Ledger, attempts: Attempts, closing: ActivityClosing) -> None:
        """`ledger`: collects the output of the step. `attempts`, `closing`: change the activities."""
        self._ledger = ledger
        self._attempts = attempts
        self._closing = closing

    def handle(self, item: inp.AttemptInput) -> None:
        """Process an observation."""
        activity = self._ledger.state.activity(item.scheduled_event_id)
        if activity is None or activity.attempt != item.attempt:
            return  # stale: the fence
        match item:
            case inp.AttemptStarted():
                self._attempts.start(activity, item.time)
            case inp.AttemptWaiting():
                self._wait(activity, item)
            case inp.HeartbeatRead():
                self._attempts.heartbeat(activity, item)
            case inp.AttemptCompleted():
                activity = self._attempts.start(activity, item.started_time or self._ledger.now)
                given: dict[str, Any] = {
                    "result": item.result,
                    "artifacts": dict(item.artifacts),
                    "cached": item.cached,
                }
                self._closing.close(activity, ev.ActivityTaskCompleted, **given)
            case inp.AttemptFailed():
                activity = self._attempts.start(activity, item.started_time)
                if item.failure.kind is FailureKind.TIMEOUT:
                    self._attempts.time_out(activity, item.failure)
                else:
                    self._attempts.fail(activity, item.failure)
            case inp.AttemptLost():
                self._attempts.lose(self._attempts.start(activity, item.started_time), item.failure)
            case inp.AttemptCancelled():
                self._attempts.cancel(self._attempts.start(activity, item.started_time), item.details)
            case _:
                assert_never(item)

    def _wait(self, activity: PendingActivity, item: inp.AttemptWaiting) -> None:
        """Record why an attempt has not started. The run's condition shows whether any attempt is stuck or queued."""
        self._ledger.durable |= item.stuck and not any(self._ledger.state.stuck())
        stuck = (activity.stuck or item.stuck) and not item.queued
        waiting = msgspec.structs.replace(activity, waiting_reason=item.reason, stuck=stuck, queued=item.queued)
        self._ledger.state = self._ledger.state.with_activity(waiting)
        self._ledger.durable |= activity.queued and not any(self._ledger.state.queued())
        self._ledger.durable |= item.commit_now
