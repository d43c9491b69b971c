"""Requests of clients: triggers, backfills, and pauses, with the answers to them.

A trigger starts one run now. The starts of a backfill, for a past range of times, enter the buffer as it has room. With AllowAll,
they begin in small groups, and a request is processed between two of them.

A pause, by an Operation or after a failure, drops waiting scheduled starts and a pending retry, and holds the backfills until it
ends. A backfill that is requested during the pause starts its runs, as a trigger does. A pause in the spec, which is that of
Temporal's clients, does not hold backfills, as on Temporal's server.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure.api.kinds.schedule import MAX_BUFFER, PausedBy
from perdure.api.policies import OverlapPolicy
from perdure.api.reasons import ConditionReason, EventReason
from perdure.engine.inputs import Answer
from perdure.schedule import inputs as inp
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.cursor import MAX_TIMES_PER_STEP, drop_delayed, resume
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.state import Paused, PendingBackfill, Start
from perdure.schedule.times import EARLIEST, Times

STARTS_PER_STEP = 10
"""How many runs of a backfill with AllowAll begin in one step (Temporal: service/worker/scheduler, BackfillsPerIteration)."""
MAX_BACKFILLS = 1000
"""How many backfills can be in progress, so that they leave room in the status and a step stays short."""
_MAX_REASON = 1024
"""Length to which the reason of a pause is truncated, in characters."""
_INSTANT = timedelta(microseconds=1)
"""The time between a moment and the one before it."""


def apply_request(draft: ScheduleDraft, request: inp.ScheduleRequest) -> None:
    """Apply a request, or repeat the answer to one that was processed before."""
    known = next((a for a in draft.state.answered if a.request == request.request_id), None)
    if known is not None:
        draft.answers[request.request_id] = Answer(known.ok, known.reason, known.message, known.result)
        return
    match request:
        case inp.Triggered() | inp.BackfillRequested() if draft.rules.times is None:
            message = "No runs start while the spec is invalid: fix what the condition `Ready` reports"
            draft.answer(request.request_id, Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
        case inp.Triggered():
            _add_trigger(draft, request)
        case inp.BackfillRequested():
            assert draft.rules.times is not None
            _add_backfill(draft, request, draft.rules.times)
        case inp.BackfillsCancelRequested():
            _cancel_backfills(draft, request)
        case inp.SchedulePauseRequested():
            _pause(draft, request)
        case inp.ScheduleUnpauseRequested():
            _unpause(draft, request)


def _add_trigger(draft: ScheduleDraft, request: inp.Triggered) -> None:
    """Buffer the start of a trigger; `answer_triggers` answers it in the same step."""
    nominal = (request.scheduled_time or draft.now).replace(microsecond=0)
    start = Start(
        nominal=nominal, actual=draft.now, policy=request.overlap_policy, request=request.request_id, triggered=True
    )
    draft.change(buffer=(*draft.state.buffer, start))
    draft.triggered[request.request_id] = ""


def answer_triggers(draft: ScheduleDraft) -> None:
    """Answer the triggers of this step."""
    for request_id, name in draft.triggered.items():
        draft.answer(request_id, _answer_trigger(draft, request_id, name))


def _answer_trigger(draft: ScheduleDraft, request_id: str, name: str | None) -> Answer:
    if name is None:
        blocking = next(run.name for run in draft.state.running if not run.overlapping)
        message = f"No run started: `{blocking}` is open"
        return Answer(ok=False, reason=ConditionReason.OVERLAP_SKIPPED, message=message)
    if name:
        return Answer(ok=True, message=f"Run `{name}` starts", result={"workflowRun": name})
    if any(start.request == request_id for start in draft.state.buffer):
        return Answer(ok=True, message="The run starts after an earlier run has closed")
    message = "No run started: too many starts are already buffered"
    return Answer(ok=False, reason=ConditionReason.OVERLAP_SKIPPED, message=message)


def _add_backfill(draft: ScheduleDraft, request: inp.BackfillRequested, times: Times) -> None:
    """Accept a backfill, and answer the request with the number of runs that it starts."""
    if request.start < EARLIEST:
        message = f"`backfill.startTime`: {time_text(request.start)} is before {time_text(EARLIEST)}, the earliest time"
        draft.answer(request.request_id, Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
        return
    if request.start > draft.now:
        message = (
            f"`backfill.startTime`: {time_text(request.start)} is in the future; a backfill starts runs of past times"
        )
        draft.answer(request.request_id, Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
        return
    if len(draft.state.backfills) >= MAX_BACKFILLS:
        message = (
            f"{MAX_BACKFILLS} backfills are in progress: wait until some of them have started their runs, or cancel them all; "
            "one backfill can have any number of times"
        )
        draft.answer(request.request_id, Answer(ok=False, reason=ConditionReason.TOO_MANY_BACKFILLS, message=message))
        return
    after, end = request.start - _INSTANT, min(request.end, draft.now)
    backfill = PendingBackfill(
        request=request.request_id,
        after=after,
        end=end,
        policy=request.overlap_policy,
        max_concurrency=request.max_concurrency,
        start=request.start if draft.rules.shows_backfills else None,
    )
    draft.change(backfills=(*draft.state.backfills, backfill))
    draft.answer(request.request_id, Answer(ok=True, message=_announce_backfill(draft, request, times, after, end)))


def _announce_backfill(
    draft: ScheduleDraft, request: inp.BackfillRequested, times: Times, after: datetime, end: datetime
) -> str:
    try:
        count = times.count(after, end, MAX_TIMES_PER_STEP)
    except InvalidTimesError as error:  # `buffer_backfills` still starts the runs before that
        return f"Starts the runs up to the first time that cannot be computed: {error.message}"
    number = f"more than {MAX_TIMES_PER_STEP}" if count > MAX_TIMES_PER_STEP else str(count)
    message = (
        f"Starts runs for {number} {'time' if count == 1 else 'times'} from {time_text(request.start)} to {time_text(end)} "
        f"with overlap policy {request.overlap_policy}"
    )
    if request.max_concurrency is not None:
        message += f", at most {request.max_concurrency} of them at the same time"
    kept = draft.rules.spec.successful_runs_history_limit
    if count > kept:
        message += f"; only {kept} completed runs are kept (`successfulRunsHistoryLimit`)"
    return message


def buffer_backfills(draft: ScheduleDraft) -> None:
    """Buffer the starts of backfills. They get half of the buffer, and wait while the times are invalid."""
    if draft.rules.times is None:
        return
    kept = []
    for backfill in draft.state.backfills:
        if backfill.held:
            kept.append(backfill)
            continue
        starts: list[Start] = []
        try:
            left = _buffer_next(draft, draft.rules.times, backfill, starts)
        except InvalidTimesError as error:
            # It can be requested again; scheduled times may still be found.
            left = replace(backfill, after=backfill.end)
            text = f"The backfill after {time_text(backfill.after)} stopped: {error.message}"
            draft.note(EventReason.BUFFER_DROPPED, text, warning=True)
        draft.change(buffer=(*draft.state.buffer, *starts))
        kept.append(left)
        draft.more = draft.more or (bool(starts) and left.after < left.end)
    draft.change(backfills=tuple(kept))


def _buffer_next(draft: ScheduleDraft, times: Times, backfill: PendingBackfill, starts: list[Start]) -> PendingBackfill:
    """Append the next starts of a backfill to `starts`, and return the rest of it. It ends at `end` if no time is left."""
    state = draft.state
    room = min(MAX_BUFFER // 2 - len(state.buffer), MAX_TIMES_PER_STEP)
    if backfill.policy is OverlapPolicy.ALLOW_ALL and len(state.running) < MAX_BUFFER:
        room = min(room, STARTS_PER_STEP)
    if backfill.max_concurrency is not None:
        started = [*state.buffer, *(run.start for run in state.running)]
        room = min(room, backfill.max_concurrency - sum(map(backfill.is_start_of, started)))
    left = backfill
    if room <= 0:
        return left
    for nominal in times.nominal(backfill.after):
        if nominal > backfill.end:
            break
        if len(starts) >= room:
            return left
        starts.append(Start(nominal=nominal, actual=draft.now, policy=backfill.policy, request=backfill.request))
        left = replace(backfill, after=nominal)
    return replace(backfill, after=backfill.end)


def finish_backfills(draft: ScheduleDraft) -> None:
    """Remove the backfills whose starts have all begun or were skipped."""
    state = draft.state
    kept = tuple(each for each in state.backfills if each.after < each.end or any(map(each.is_start_of, state.buffer)))
    if kept != state.backfills:
        draft.change(backfills=kept)


def _hold_backfills(draft: ScheduleDraft) -> None:
    """Let the backfills wait for the end of a pause: starts that have not begun leave the buffer, and return later."""
    held, buffer = [], draft.state.buffer
    for each in draft.state.backfills:
        if each.start is None:
            held.append(each)
            continue
        waiting = [start.nominal for start in buffer if each.is_start_of(start)]
        after = min([each.after, *(nominal - _INSTANT for nominal in waiting)])
        held.append(replace(each, after=after, held=True))
        buffer = tuple(start for start in buffer if not each.is_start_of(start))
    draft.change(backfills=tuple(held), buffer=buffer)


def _cancel_backfills(draft: ScheduleDraft, request: inp.BackfillsCancelRequested) -> None:
    """Drop the starts of all backfills that have not begun. Repeating this changes nothing."""
    state = draft.state
    dropped = [start for start in state.buffer if start.request and not start.triggered]
    if not state.backfills and not dropped:
        draft.answer(request.request_id, Answer(ok=True, message="Nothing to cancel: no backfill is in progress"))
        return
    draft.change(backfills=(), buffer=tuple(start for start in state.buffer if start not in dropped))
    ranges = [f"{time_text(each.start or each.after)} to {time_text(each.end)}" for each in state.backfills]
    what = f"the backfill of {', '.join(ranges)}" if ranges else "a backfill"
    draft.note(EventReason.BACKFILL_CANCELLED, f"An Operation has cancelled {what}{_suffix(request.reason)}")
    message = f"No further runs of {what} start; its open runs continue"
    draft.answer(request.request_id, Answer(ok=True, message=message))


def _pause(draft: ScheduleDraft, request: inp.SchedulePauseRequested) -> None:
    """Pause the schedule, unless it is already paused."""
    if draft.state.paused is None:
        draft.change(paused=Paused(by=PausedBy.OPERATION, reason=request.reason, time=draft.now))
        _drop_waiting(draft)
        draft.note(EventReason.PAUSED, f"Paused by an Operation{_suffix(request.reason)}")
    _hold_backfills(draft)
    message = "No scheduled runs start until the Schedule is unpaused"
    if any(each.held for each in draft.state.backfills):
        message += ", and no further runs of the backfill in progress"
    draft.answer(request.request_id, Answer(ok=True, message=message))


def _unpause(draft: ScheduleDraft, request: inp.ScheduleUnpauseRequested) -> None:
    """End a pause that an Operation or a failure began; one in the spec remains."""
    if draft.state.paused is not None:
        draft.change(paused=None, backfills=tuple(replace(each, held=False) for each in draft.state.backfills))
        draft.note(EventReason.UNPAUSED, f"Unpaused by an Operation{_suffix(request.reason)}")
        if not draft.blocked:
            resume(draft)
    if draft.rules.spec.paused:
        message = "The Schedule is still paused by `spec.paused`: set it to false"
        answer = Answer(ok=False, reason=ConditionReason.PAUSED_BY_SPEC, message=message)
    else:
        answer = Answer(ok=True, message="Scheduled runs start again; the times during the pause are skipped")
    draft.answer(request.request_id, answer)


def pause_on_failure(draft: ScheduleDraft, closed: inp.RunClosed) -> None:
    """Pause the schedule because a run failed, if the spec says so."""
    if not draft.rules.spec.pause_on_failure or draft.state.paused is not None:
        return
    message = closed.failure.full_message if closed.failure else ""
    reason = f"run `{closed.name}` is {closed.outcome}{_suffix(message)}"
    draft.change(paused=Paused(by=PausedBy.FAILURE, reason=reason[:_MAX_REASON], time=draft.now))
    _hold_backfills(draft)
    draft.note(EventReason.PAUSED_BY_FAILURE, f"Paused because {reason}", warning=True)


def update_blocked(draft: ScheduleDraft) -> None:
    """Record whether scheduled runs start. If they no longer do, drop the waiting scheduled starts."""
    blocked = draft.blocked
    if blocked and not draft.state.blocked:
        _drop_waiting(draft)
    if blocked != draft.state.blocked:
        draft.change(blocked=blocked)


def _drop_waiting(draft: ScheduleDraft) -> None:
    draft.change(buffer=tuple(start for start in draft.state.buffer if not start.by_time), retry=None)
    drop_delayed(draft)


def _suffix(text: str) -> str:
    return f": {text}" if text else ""
