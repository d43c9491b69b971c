"""Retries of failed runs: the newest scheduled run is retried by `spec.retryPolicy` until the next time is due."""

from perdure.api.reasons import EventReason
from perdure.api.schedule import MAX_BUFFER
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.retry import decide_run_retry
from perdure.schedule import inputs as inp
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.recent import record_action
from perdure.schedule.rules import Rules
from perdure.schedule.state import PendingRetry, Running, ScheduleState


def plan_retry(draft: ScheduleDraft, run: Running, closed: inp.RunClosed) -> bool:
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
    run = Running(
        overlapping=draft.rules.overlaps(retry.start),
        name=retry.start.run_name(draft.rules.name, retry.attempt, retry.instead),
        start=retry.start,
        started=draft.now,
        attempt=retry.attempt,
        first_started=retry.first_started,
        instead=retry.instead,
    )
    record_action(draft, run)
    draft.change(running=(*draft.state.running, run))


def has_room_for_retry(rules: Rules, state: ScheduleState) -> bool:
    """Whether the open runs allow a retry to start."""
    if state.retry is not None and rules.overlaps(state.retry.start):
        return len(state.running) < MAX_BUFFER
    return all(run.overlapping for run in state.running)


def _retries_blocked(draft: ScheduleDraft) -> bool:
    """Whether retries are blocked. A retry is not a new action, so it does not need a remaining one."""
    return draft.rules.times is None or draft.rules.spec.paused or draft.state.paused is not None
