"""Requests of clients to complete, change, reset, or pause open activities."""

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.engine import activity_changes
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities.activity_closing import ActivityClosing
from perdure.engine.activities.attempts import Attempts
from perdure.engine.inputs import Answer
from perdure.engine.ledger import OK, Ledger
from perdure.engine.recording import activity_named
from perdure.engine.state import PauseInfo, PendingActivity


class ActivityRequests:
    """Processes requests about activities. Their answers report errors."""

    def __init__(self, ledger: Ledger, attempts: Attempts, closing: ActivityClosing) -> None:
        """`ledger`: collects the output of the step. `attempts`, `closing`: change the activities."""
        self._ledger = ledger
        self._attempts = attempts
        self._closing = closing

    def change(self, request: inp.ActivityReset | inp.OptionsChanged) -> Answer:
        """Change an open activity, which the history does not record."""
        activity = activity_named(self._ledger.state, request.activity_id)
        if activity is None:
            return _not_open(request.activity_id)
        if isinstance(request, inp.ActivityReset):
            changed = activity_changes.reset(activity, request, self._ledger.now)
        elif not activity.by_worker:
            message = f"activity `{request.activity_id}` runs in pods: change its options in the Workflow"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        else:
            changed = activity_changes.with_options(activity, request.options)
        self._keep(changed)
        return OK

    def complete(self, request: inp.ActivityAnswered) -> Answer:
        """Complete, fail or cancel an activity in place of its worker or pod."""
        activity = activity_named(self._ledger.state, request.activity_id)
        if activity is None:
            return _not_open(request.activity_id)
        if request.cancelled:
            if not activity.cancel_requested:
                message = f"no cancellation of activity `{request.activity_id}` was requested; complete it with a failure instead"
                return Answer(ok=False, reason=ConditionReason.CANCEL_NOT_REQUESTED, message=message)
            self._closing.close(activity, ev.ActivityTaskCanceled, details=request.result, principal=request.principal)
        elif request.failure is not None:
            self._attempts.fail(activity, request.failure, principal=request.principal)
        elif activity.takes_limits:
            message = f"`{request.activity_id}` waits for WorkflowLimits, and completes when it holds them; raise their capacity"
            return Answer(ok=False, reason=ConditionReason.NOT_SUPPORTED, message=message)
        else:
            self._closing.close(activity, ev.ActivityTaskCompleted, result=request.result, principal=request.principal)
        return OK

    def pause(self, activity_id: str, request: inp.PauseRequested | inp.UnpauseRequested) -> Answer:
        """Pause or unpause an activity, which the history does not record."""
        pause = isinstance(request, inp.PauseRequested)
        activity = activity_named(self._ledger.state, activity_id)
        if activity is None:
            return _not_open(activity_id)
        if activity.paused is not pause:
            info = PauseInfo(reason=request.reason, identity=request.identity, time=self._ledger.now)
            self._keep(msgspec.structs.replace(activity, paused=pause, pause=info if pause else None))
        return OK

    def _keep(self, activity: PendingActivity) -> None:
        self._ledger.state = self._ledger.state.with_activity(activity)
        self._ledger.durable = True


def _not_open(activity_id: str) -> Answer:
    return Answer(ok=False, reason=ConditionReason.ACTIVITY_NOT_FOUND, message=f"no activity `{activity_id}` is open")
