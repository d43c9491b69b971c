"""One step of a schedule: (spec, state, inputs, now) -> (next state, Events, answers).

    closed runs, requests ─┐
    due times             ─┼─▶ buffer ─▶ overlap policy ─▶ runs to start, cancel, terminate
    backfills             ─┘

A step has no side effects. Its state is committed first; then `effects` lists the runs to create and to stop. So a crash at any
instant neither loses nor repeats a start: before the commit the times are still due, after it the runs have names.

This module has what happens to the runs: they are created, rejected, renamed if their name belongs to another WorkflowRun,
closed, and retried. The end of a run sets the last completion result or the last failure. A failure causes a retry or a pause:
`spec.retryPolicy` retries the newest scheduled run until the next time is due.

The other parts are modules: `cursor` (changes of the spec, pauses, clocks, and due times), `requests` (triggers, backfills,
pauses), and `overlap` (the buffer). All of them write to one `draft`.

The behavior is that of Temporal (service/worker/scheduler) unless docs/schedules.md says otherwise.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from perdure.api.kinds.schedule import MAX_BUFFER
from perdure.api.reasons import EventReason
from perdure.engine.failures import Failure, FailureKind, RetryState
from perdure.engine.inputs import Answer
from perdure.engine.payloads import size_of
from perdure.engine.retry import decide_run_retry
from perdure.schedule import inputs as inp
from perdure.schedule.cursor import apply_changes, buffer_due, find_upcoming
from perdure.schedule.draft import Note, ScheduleDraft, time_text
from perdure.schedule.inputs import Rules, RunCreated, RunOutcome
from perdure.schedule.overlap import start_buffered
from perdure.schedule.requests import (
    answer_triggers,
    apply_request,
    buffer_backfills,
    finish_backfills,
    pause_on_failure,
    update_blocked,
)
from perdure.schedule.state import PendingRetry, ScheduledRun, ScheduleState


@dataclass(frozen=True, slots=True)
class ScheduleTransition:
    """The result of a step."""

    state: ScheduleState
    notes: tuple[Note, ...] = ()
    answers: dict[str, Answer] = field(default_factory=dict)
    durable: bool = True
    """Whether the state must be committed: it changed by more than the run IDs of created runs."""
    more: bool = False
    """Whether the step reached its limit, and the next step must follow immediately."""


def step(
    rules: Rules, state: ScheduleState | None, inputs: Sequence[inp.ScheduleInput], now: datetime
) -> ScheduleTransition:
    """Advance a schedule to `now`.

    Args:
        rules: The Schedule's spec.
        state: The committed state; None for a new schedule.
        inputs: The inputs since the last step.
        now: The time.

    Raises:
        InvalidTimesError: The search for the next time does not end.
    """
    draft = ScheduleDraft(rules, state, now)
    apply_changes(draft)
    closed = [each for each in inputs if isinstance(each, inp.RunClosed)]
    for each in sorted(closed, key=lambda run: (run.time, run.name)):
        record_closed(draft, each)
    for other in inputs:
        if not isinstance(other, inp.RunClosed):
            _apply(draft, other)
    buffer_due(draft)
    buffer_backfills(draft)
    start_retry(draft)
    start_buffered(draft)
    finish_backfills(draft)
    answer_triggers(draft)
    update_blocked(draft)
    find_upcoming(draft)
    return ScheduleTransition(
        draft.state,
        tuple(draft.notes),
        draft.answers,
        durable=state is None or _without_run_ids(state) != _without_run_ids(draft.state),
        more=draft.more,
    )


def _apply(draft: ScheduleDraft, each: RunCreated | inp.RunRefused | inp.NameTaken | inp.ScheduleRequest) -> None:
    match each:
        case RunCreated():
            record_created(draft, each)
        case inp.RunRefused(name=name, message=message):
            record_refused(draft, name, message)
        case inp.NameTaken():
            rename(draft, each)
        case _:
            apply_request(draft, each)


def _without_run_ids(state: ScheduleState) -> ScheduleState:
    return replace(
        state,
        running=tuple(replace(run, run_id="") for run in state.running),
        recent=tuple(replace(each, run_id="") for each in state.recent),
    )


def next_wake(rules: Rules, state: ScheduleState, now: datetime) -> datetime | None:
    """When the next step is due; None if only an input can cause one.

    Raises:
        InvalidTimesError: The search for the next time does not end.
    """
    wakes = []
    if state.retry is not None:
        wakes.append(max(state.retry.due, now) if has_room_for_retry(rules, state) else None)
    if not state.blocked:
        wakes.extend(start.actual for start in state.delayed)
    if rules.times is not None and not state.blocked:
        due = next(rules.times.dues(state.cursor, rules.seed), None)
        wakes.append(due.actual if due else None)
    return min(filter(None, wakes), default=None)


@dataclass(frozen=True, slots=True)
class StartRun:
    """Create a run, or record why it cannot be created."""

    run: ScheduledRun


@dataclass(frozen=True, slots=True)
class StopRun:
    """Request every open run of a chain to stop, because another run replaces it."""

    run: ScheduledRun


Effect = StartRun | StopRun


def effects(state: ScheduleState) -> list[Effect]:
    """The effects of a state, in order. Each can be applied any number of times."""
    starts: list[Effect] = [StartRun(run) for run in state.running if not run.run_id]
    stops: list[Effect] = [StopRun(run) for run in state.running if run.cancel or run.terminate]
    return [*starts, *stops]


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
