"""The cursor: the time up to which the schedule has processed its times, the changes that move it, and the times that are due.

The cursor moves to now when the times in the spec change, when a pause ends, and when the schedule gets new actions: no run
starts retroactively. It moves back when the clock goes back. Times that were only counted as missed while the clock was ahead
are then due again; handled times are not.

A clock that jumps neither repeats nor loses starts. While a clock is ahead, future times may be counted as missed, or pass while
the schedule starts nothing. They still come later. So the newest time that was examined is not enough: the state keeps the
stretches in which times were handled.

Times that are due and within the catch-up window enter the buffer; older ones count as missed.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from perdure.api.reasons import EventReason
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.state import Handled, Start

MAX_TIMES_PER_STEP = 1_000
"""Times that one step processes; the next step continues with the rest."""
MAX_STRETCHES = 10
"""How many stretches are kept. Beyond that, the oldest two are merged, and the times between them count as handled."""


def apply_changes(draft: ScheduleDraft) -> None:
    """Update the cursor and the remaining actions after changes of the spec, a pause, or the clock."""
    rules, state, times = draft.rules, draft.state, draft.rules.times_hash
    if state.remaining_given != rules.spec.remaining_actions:
        draft.change(remaining_given=rules.spec.remaining_actions, remaining=rules.spec.remaining_actions)
    if state.times != times:
        skip_to_now(draft)
        draft.change(times=times, handled=())  # the handled stretches belong to the previous times
    elif state.blocked and not draft.blocked:
        skip_to_now(draft)
    if draft.now < draft.state.cursor and draft.state.handled_after > draft.now:
        # Some future times were counted as missed while the clock was ahead: they become due again.
        _move(draft, _before_next_due(draft))


def skip_to_now(draft: ScheduleDraft) -> None:
    """Skip all times up to now, without starting runs for them."""
    _move(draft, draft.now)
    draft.change(blocked=draft.blocked)


def _move(draft: ScheduleDraft, cursor: datetime) -> None:
    """Move the cursor, and keep the stretch that was handled before."""
    state = draft.state
    known = Handled(after=state.handled_after, until=state.cursor)
    draft.change(cursor=cursor, handled_after=cursor, handled=joined((*state.handled, known)))


def _before_next_due(draft: ScheduleDraft) -> datetime:
    """Now, or the second before a nominal time that has passed but, because of jitter, is due only after now."""
    rules, now = draft.rules, draft.now
    if rules.times is None or not rules.spec.jitter:
        return now
    nominal = rules.times.latest(now, rules.spec.jitter)
    due = next(rules.times.dues(nominal - timedelta(seconds=1), rules.seed), None) if nominal else None
    return due.nominal - timedelta(seconds=1) if due and due.nominal <= now < due.actual else now


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


def joined(stretches: Iterable[Handled]) -> tuple[Handled, ...]:
    """Sort stretches, merge those that touch, drop empty ones, and keep at most `MAX_STRETCHES`."""
    found: list[Handled] = []
    for each in sorted(stretches, key=lambda stretch: stretch.after):
        if each.after >= each.until:
            continue
        if found and each.after <= found[-1].until:
            found[-1] = Handled(after=found[-1].after, until=max(found[-1].until, each.until))
        else:
            found.append(each)
    while len(found) > MAX_STRETCHES:
        found[:2] = [Handled(after=found[0].after, until=found[1].until)]
    return tuple(found)


def is_handled(stretches: Iterable[Handled], nominal: datetime) -> bool:
    """Whether a time lies in one of the stretches."""
    return any(stretch.after < nominal <= stretch.until for stretch in stretches)
