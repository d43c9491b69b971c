"""One step of a schedule: (spec, state, inputs, now) -> (next state, Events, answers).

    closed runs, requests ─┐
    due times             ─┼─▶ buffer ─▶ overlap policy ─▶ runs to start, cancel, terminate
    backfills             ─┘

A step has no side effects. Its state is committed first; then `effects` lists the runs to create and to stop. So a crash at any
instant neither loses nor repeats a start: before the commit the times are still due, after it the runs have names.

Each part is a module: `cursor` (changes of the spec, pauses, clocks, and due times), `runs` (runs that were created, closed, or
must be retried), `requests` (triggers, backfills, pauses), and `overlap` (the buffer). All of them write to one `draft`.

The behavior is that of Temporal (service/worker/scheduler) unless docs/schedules.md says otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from perdure.engine.inputs import Answer
from perdure.schedule import inputs as inp
from perdure.schedule.cursor import apply_changes, buffer_due
from perdure.schedule.draft import Note, ScheduleDraft
from perdure.schedule.inputs import Rules, RunCreated
from perdure.schedule.overlap import start_buffered
from perdure.schedule.requests import (
    answer_triggers,
    apply_request,
    buffer_backfills,
    update_blocked,
)
from perdure.schedule.runs import has_room_for_retry, record_closed, record_created, record_refused, rename, start_retry
from perdure.schedule.state import ScheduledRun, ScheduleState


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
    answer_triggers(draft)
    update_blocked(draft)
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
