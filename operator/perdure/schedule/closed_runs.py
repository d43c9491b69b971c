"""Closed runs: the last completion result, the last failure, and the retry or pause that a failure causes."""

import json

from perdure.api.reasons import EventReason
from perdure.engine.opaque import size_of
from perdure.schedule import inputs as inp
from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.pausing import pause_on_failure
from perdure.schedule.recent import change_action
from perdure.schedule.retrying import plan_retry

MAX_RESULT = 128 * 1024
"""The size limit of the last completion result as JSON, in bytes. The next run gets the result in an annotation."""


def record_closed(draft: ScheduleDraft, closed: inp.RunClosed) -> None:
    """Record that a run closed, if the schedule knows it as open."""
    run = next((run for run in draft.state.running if run.name == closed.name), None)
    if run is None:
        return
    draft.change(running=tuple(other for other in draft.state.running if other is not run))
    change_action(draft, closed.name, status=closed.outcome.value)
    if closed.outcome is RunOutcome.COMPLETED:
        _keep_result(draft, closed)
    elif closed.outcome in {RunOutcome.FAILED, RunOutcome.TIMED_OUT}:
        _keep_failure(draft, closed)
        if not plan_retry(draft, run, closed):
            pause_on_failure(draft, closed)


def _keep_result(draft: ScheduleDraft, closed: inp.RunClosed) -> None:
    state = draft.state
    if closed.result is not None and (state.result_time is None or closed.time >= state.result_time):
        result = closed.result
        if size_of(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()) > MAX_RESULT:
            text = f"The output of `{closed.name}` exceeds 128 KiB and is not kept as the last completion result"
            draft.note(EventReason.PAYLOAD_TOO_LARGE, text, warning=True)
            result = None
        draft.change(result=result, result_time=closed.time)
    if state.closed_time is None or closed.time >= state.closed_time:
        draft.change(failure=None, closed_time=closed.time)


def _keep_failure(draft: ScheduleDraft, closed: inp.RunClosed) -> None:
    state = draft.state
    if state.closed_time is None or closed.time >= state.closed_time:
        failure = closed.status_failure or {"kind": "Server", "message": "unknown"}
        draft.change(failure=failure, closed_time=closed.time)
