"""Scheduled times that are due. Times within the catch-up window enter the buffer; older ones count as missed."""

from datetime import datetime

from perdure.api.reasons import EventReason
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.handled import is_handled, joined
from perdure.schedule.state import Handled, Start

MAX_TIMES_PER_STEP = 1_000
"""Times that one step processes; the next step continues with the rest."""


def buffer_due(draft: ScheduleDraft) -> None:
    """Buffer the starts that are due by time, and count those that are older than the catch-up window."""
    rules = draft.rules
    if draft.blocked or rules.times is None:
        return
    seen = missed = 0
    first_missed = last_missed = None
    due_now: list[Start] = []
    cursor, handled_after, handled = draft.state.cursor, draft.state.handled_after, draft.state.handled
    started = _started_times(draft)
    for due in rules.times.dues(cursor, rules.seed):
        if due.actual > draft.now:
            break
        if seen == MAX_TIMES_PER_STEP:
            draft.more = True
            break
        seen += 1
        before, cursor = cursor, due.nominal
        if draft.state.retry is not None and due.nominal > draft.state.retry.start.nominal:
            draft.change(retry=None)  # a retry ends when the next time is due, even if that time is skipped
        if due.nominal in started or is_handled(handled, due.nominal):
            continue
        if draft.now - due.actual > rules.spec.catchup_window:
            missed += 1
            first_missed, last_missed = first_missed or due.nominal, due.nominal
            handled = joined((*handled, Handled(after=handled_after, until=before)))
            handled_after = due.nominal
        else:
            due_now.append(Start(nominal=due.nominal, actual=due.actual))
    if not seen:
        return
    buffer = (*draft.state.buffer, *due_now)
    draft.change(cursor=cursor, handled_after=handled_after, handled=handled, buffer=buffer)
    if first_missed is not None and last_missed is not None:
        draft.count("missed_catchup_window", missed)
        text = (
            f"Missed {missed} scheduled times from {time_text(first_missed)} to {time_text(last_missed)}: "
            "they are older than `catchupWindow`"
        )
        draft.note(EventReason.CATCHUP_WINDOW_MISSED, text, warning=True)


def _started_times(draft: ScheduleDraft) -> set[datetime]:
    """The times of open and recent runs. After an edit, the spec may contain one of these times again."""
    found = {run.start.nominal for run in draft.state.running if run.start.by_time}
    for each in draft.state.recent:
        if each.nominal is not None:
            name = Start(nominal=each.nominal, actual=each.nominal).run_name(draft.rules.name)
            if each.name == name or each.name.startswith((f"{name}-r", f"{name}-x")):
                found.add(each.nominal)
    return found
