"""The runs of a schedule during a step: they are created, rejected, renamed, closed, and retried.

A run is rejected, or renamed if its name belongs to another WorkflowRun. The end of a run sets the last completion result or the
last failure. A failure causes a retry or a pause: `spec.retryPolicy` retries the newest scheduled run until the next time is due.
"""

import hashlib
import json

from msgspec.structs import replace

from perdure.api.kinds.schedule import MAX_BUFFER
from perdure.api.reasons import EventReason
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.payloads import size_of
from perdure.engine.retry import decide_run_retry
from perdure.schedule import inputs as inp
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.inputs import Rules, RunOutcome
from perdure.schedule.requests import pause_on_failure
from perdure.schedule.state import PendingRetry, ScheduledRun, ScheduleState

MAX_RENAMES = 5
"""How often a run is renamed because a WorkflowRun that the schedule did not create has its name."""
MAX_RESULT = 128 * 1024
"""The size limit of the last completion result as JSON, in bytes. The next run gets the result in an annotation."""
_MAX_REFUSAL = 1024
"""Length to which a message of the API server is truncated, in characters."""


def record_created(draft: ScheduleDraft, created: inp.RunCreated) -> None:
    """Record the run ID of a run that exists now."""
    draft.change_run(created.name, lambda run: replace(run, run_id=created.run_id))
    draft.change_action(created.name, run_id=created.run_id)
    draft.change(refused="")


def record_refused(draft: ScheduleDraft, name: str, message: str) -> None:
    """Drop a run that the API server rejected, and emit one Event per reason."""
    draft.change(running=tuple(run for run in draft.state.running if run.name != name))
    draft.change_action(name, status="Refused")
    # The name differs for each time, the reason does not.
    reason = message.replace(name, f"{draft.rules.name}-…")[:_MAX_REFUSAL]
    if reason != draft.state.refused:
        draft.note(EventReason.RUN_REFUSED, f"Run `{name}` was rejected: {message}", warning=True)
        draft.change(refused=reason)


def rename(draft: ScheduleDraft, conflict: inp.NameTaken) -> None:
    """Rename a run, so that its time is not lost when another client has used the name."""
    run = next((run for run in draft.state.running if run.name == conflict.name), None)
    if run is None:
        return
    if run.renamed == MAX_RENAMES:
        message = f"this name and {MAX_RENAMES} others belong to WorkflowRuns that this Schedule did not create"
        record_refused(draft, conflict.name, message)
        return
    instead = hashlib.sha256(conflict.uid.encode()).hexdigest()[:4]
    name = run.start.run_name(draft.rules.name, run.attempt, instead)
    draft.change_run(conflict.name, lambda run: replace(run, name=name, instead=instead, renamed=run.renamed + 1))
    draft.change_action(conflict.name, name=name)
    text = (
        f"WorkflowRun `{conflict.name}` exists and was not created by this Schedule; the run starts as `{name}` instead"
    )
    draft.note(EventReason.RUN_NAME_TAKEN, text, warning=True)


def record_closed(draft: ScheduleDraft, closed: inp.RunClosed) -> None:
    """Record that a run closed, if the schedule knows it as open."""
    run = next((run for run in draft.state.running if run.name == closed.name), None)
    if run is None:
        return
    draft.change(running=tuple(other for other in draft.state.running if other is not run))
    draft.change_action(closed.name, status=closed.outcome.value)
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


def plan_retry(draft: ScheduleDraft, run: ScheduledRun, closed: inp.RunClosed) -> bool:
    """Plan a retry of a run that failed, if its policy allows one; return whether it does."""
    state, times = draft.state, draft.rules.times
    newest = run.start.by_time and run.start.nominal == state.last_scheduled
    if not newest or times is None or _retries_blocked(draft) or any(start.by_time for start in state.buffer):
        return False
    first = run.first_started or run.started
    # Without remaining actions, there is no next time.
    due = next(times.dues(state.cursor, draft.rules.seed), None) if state.remaining != 0 else None
    decision = decide_run_retry(
        draft.rules.retry_policy,
        closed.failure or Failure(kind=FailureKind.SERVER),
        attempt=run.attempt,
        now=draft.now,
        expiration=due.actual if due else None,
        since=first,
    )
    if decision.state is not RetryState.IN_PROGRESS or decision.delay is None:
        return False
    retry = PendingRetry(
        start=run.start,
        attempt=run.attempt + 1,
        due=draft.now + decision.delay,
        first_started=first,
        instead=run.instead,
    )
    draft.change(retry=retry)
    text = f"Run `{closed.name}` is {closed.outcome}; the next attempt starts at {time_text(retry.due)}"
    draft.note(EventReason.RETRYING, text)
    return True


def start_retry(draft: ScheduleDraft) -> None:
    """Start the retry once its backoff is over and no other run is open. A pause drops it."""
    if _retries_blocked(draft):
        draft.change(retry=None)
    retry = draft.state.retry
    if retry is None or retry.due > draft.now or not has_room_for_retry(draft.rules, draft.state):
        return
    draft.change(retry=None)
    run = ScheduledRun(
        overlapping=draft.rules.overlaps(retry.start),
        name=retry.start.run_name(draft.rules.name, retry.attempt, retry.instead),
        start=retry.start,
        started=draft.now,
        attempt=retry.attempt,
        first_started=retry.first_started,
        instead=retry.instead,
    )
    draft.record_action(run)
    draft.change(running=(*draft.state.running, run))


def has_room_for_retry(rules: Rules, state: ScheduleState) -> bool:
    """Whether the open runs allow a retry to start."""
    if state.retry is not None and rules.overlaps(state.retry.start):
        return len(state.running) < MAX_BUFFER
    return all(run.overlapping for run in state.running)


def _retries_blocked(draft: ScheduleDraft) -> bool:
    """Whether retries are blocked. A retry is not a new action, so it does not need a remaining one."""
    return draft.rules.times is None or draft.rules.spec.paused or draft.state.paused is not None
