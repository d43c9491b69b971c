"""Backfills: requests to start the runs of a past range of times. Their starts enter the buffer as it has room."""

from datetime import datetime, timedelta
from itertools import islice, takewhile

from msgspec.structs import replace

from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.schedule import MAX_BUFFER
from perdure.engine.inputs import Answer
from perdure.schedule import inputs as inp
from perdure.schedule.catchup import MAX_TIMES_PER_STEP
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.errors import InvalidTimesError
from perdure.schedule.state import Backfilling, Start
from perdure.schedule.times import EARLIEST, Times


def add_backfill(draft: ScheduleDraft, request: inp.BackfillRequested, times: Times) -> None:
    """Accept a backfill, and answer the request with the number of runs that it starts."""
    if request.start < EARLIEST:
        message = f"`backfill.startTime`: {time_text(request.start)} is before {time_text(EARLIEST)}, the earliest time"
        draft.answer(request.request_id, Answer(ok=False, reason=ConditionReason.INVALID_SPEC, message=message))
        return
    after, end = request.start - timedelta(microseconds=1), min(request.end, draft.now)
    backfill = Backfilling(request=request.request_id, after=after, end=end, policy=request.overlap_policy)
    draft.change(backfills=(*draft.state.backfills, backfill))
    draft.answer(request.request_id, Answer(ok=True, message=_announce(draft, request, times, after, end)))


def _announce(
    draft: ScheduleDraft, request: inp.BackfillRequested, times: Times, after: datetime, end: datetime
) -> str:
    upcoming = takewhile(lambda time: time <= end, times.nominal(after))
    try:
        count = sum(1 for _ in islice(upcoming, MAX_TIMES_PER_STEP + 1))
    except InvalidTimesError as error:  # `buffer_backfills` still starts the runs before that
        return f"Starts the runs up to the first time that cannot be computed: {error.message}"
    number = f"more than {MAX_TIMES_PER_STEP}" if count > MAX_TIMES_PER_STEP else str(count)
    message = (
        f"Starts runs for {number} times from {time_text(request.start)} to {time_text(end)} "
        f"with overlap policy {request.overlap_policy}"
    )
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
        starts: list[Start] = []
        try:
            left = _continue(draft, draft.rules.times, backfill, starts)
        except InvalidTimesError as error:
            left = None  # it can be requested again; scheduled times may still be found
            text = f"The backfill after {time_text(backfill.after)} stopped: {error.message}"
            draft.note(EventReason.BUFFER_DROPPED, text, warning=True)
        draft.change(buffer=(*draft.state.buffer, *starts))
        if left is not None:
            kept.append(left)
            draft.more = draft.more or bool(starts)
    draft.change(backfills=tuple(kept))


def _continue(draft: ScheduleDraft, times: Times, backfill: Backfilling, starts: list[Start]) -> Backfilling | None:
    """Append the next starts of a backfill to `starts`, and return the rest of it."""
    room = min(MAX_BUFFER // 2 - len(draft.state.buffer), MAX_TIMES_PER_STEP)
    left = backfill
    for nominal in times.nominal(backfill.after):
        if nominal > backfill.end:
            return None
        if len(starts) >= room:
            return left
        starts.append(Start(nominal=nominal, actual=draft.now, policy=backfill.policy, request=backfill.request))
        left = replace(backfill, after=nominal)
    return None
