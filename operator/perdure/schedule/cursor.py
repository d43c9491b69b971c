"""The cursor: the time up to which the schedule has processed its times, the changes that move it, and the times that are due.

The cursor moves to now when the times in the spec change, when a pause ends, and when the schedule gets new actions: no run
starts retroactively. A time that has passed, but whose start jitter delays, is not in the past: its run starts after an edit, at
the end of a pause, and with new actions; a pause that begins in between drops it with an Event (kubernetes#130838).

The cursor moves back when the clock goes back. Times that were only counted as missed while the clock was ahead are then due
again; handled times are not.

A clock that jumps neither repeats nor loses starts. While a clock is ahead, future times may be counted as missed, or pass while
the schedule starts nothing. They still come later. So the newest time that was examined is not enough: the state keeps the
stretches in which times were handled.

Times that are due and within the catch-up window enter the buffer; older ones count as missed. With `catchupPolicy: Latest`, so
do all but the newest.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from perdure.api.policies import CatchupPolicy
from perdure.api.reasons import EventReason
from perdure.schedule.draft import ScheduleDraft, time_text
from perdure.schedule.state import Handled, Start

MAX_TIMES_PER_STEP = 1_000
"""Times that one step processes; the next step continues with the rest."""
MAX_STRETCHES = 10
"""How many stretches are kept. Beyond that, the oldest two are merged, and the times between them count as handled."""
_TOO_OLD = "they are older than `catchupWindow`"


def apply_changes(draft: ScheduleDraft) -> None:
    """Update the cursor and the remaining actions after changes of the spec, a pause, or the clock."""
    rules, state, times = draft.rules, draft.state, draft.rules.times_hash
    if state.configured_remaining != rules.spec.remaining_actions:
        draft.change(configured_remaining=rules.spec.remaining_actions, remaining=rules.spec.remaining_actions)
    if state.times != times:
        _keep_delayed(draft)
        _move(draft, draft.now)
        draft.change(times=times, handled=())  # the handled stretches belong to the previous times
    elif state.blocked and not draft.blocked:
        resume(draft)
    if draft.now < draft.state.cursor and draft.state.handled_after > draft.now:
        # Some future times were counted as missed while the clock was ahead: they become due again.
        _move(draft, _before_next_due(draft))


def _keep_delayed(draft: ScheduleDraft) -> None:
    """Keep the start that jitter delays, because the new spec may not have its time."""
    state = draft.state
    start = state.upcoming
    if start is not None and state.cursor < start.nominal <= draft.now and not state.blocked:
        draft.change(delayed=(*state.delayed, start))
    draft.change(upcoming=None)


def drop_delayed(draft: ScheduleDraft) -> None:
    """Count the starts that jitter delays as missed, because no scheduled run starts from now on."""
    state = draft.state
    upcoming = state.upcoming
    dropped = [*state.delayed]
    if upcoming is not None and state.cursor < upcoming.nominal <= draft.now:
        dropped.append(upcoming)
        _move(draft, upcoming.nominal)  # it only passed: if the clock goes back, it is due again
    draft.change(delayed=(), upcoming=None)
    if dropped:
        draft.count("missed_catchup_window", len(dropped))
        times = ", ".join(time_text(start.nominal) for start in dropped)
        draft.note(
            EventReason.CATCHUP_WINDOW_MISSED,
            f"No run starts for {times}: scheduled runs were stopped while `jitter` delayed the start",
            warning=True,
        )


def find_upcoming(draft: ScheduleDraft) -> None:
    """Record the next start if jitter can delay it."""
    rules = draft.rules
    upcoming = None
    if rules.times is not None and rules.spec.jitter and not draft.state.blocked:
        due = next(rules.times.dues(draft.state.cursor, rules.seed), None)
        upcoming = Start(nominal=due.nominal, actual=due.actual) if due is not None else None
    if upcoming != draft.state.upcoming:
        draft.change(upcoming=upcoming)


def resume(draft: ScheduleDraft) -> None:
    """Skip the times that passed while no scheduled run could start, except for one whose start jitter delays."""
    _move(draft, max(_before_next_due(draft), min(draft.state.cursor, draft.now)))


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
    read = missed = 0
    first_missed = last_missed = None
    cursor, handled_after, handled = draft.state.cursor, draft.state.handled_after, draft.state.handled
    started = _started_times(draft)
    due_now = _take_delayed(draft, started)
    for due in rules.times.dues(cursor, rules.seed):
        if due.actual > draft.now:
            break
        if read == MAX_TIMES_PER_STEP:
            draft.more = True
            break
        read += 1
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
    due_now = _latest(draft, due_now)
    if not read and not due_now:
        return
    buffer = (*draft.state.buffer, *due_now)
    draft.change(cursor=cursor, handled_after=handled_after, handled=handled, buffer=buffer)
    if first_missed is not None and last_missed is not None:
        _count_missed(draft, missed, first_missed, last_missed, _TOO_OLD)


def _take_delayed(draft: ScheduleDraft, started: set[datetime]) -> list[Start]:
    """Take the delayed starts of earlier specs that are due now, and add them to the started times."""
    due = [start for start in draft.state.delayed if start.actual <= draft.now]
    if due:
        draft.change(delayed=tuple(start for start in draft.state.delayed if start not in due))
    fresh = [start for start in due if start.nominal not in started]
    started |= {start.nominal for start in fresh}
    kept = [start for start in fresh if draft.now - start.actual <= draft.rules.spec.catchup_window]
    for late in [start for start in fresh if start not in kept]:
        _count_missed(draft, 1, late.nominal, late.nominal, _TOO_OLD)
    return kept


def _count_missed(draft: ScheduleDraft, count: int, first: datetime, last: datetime, why: str) -> None:
    draft.count("missed_catchup_window", count)
    text = f"Missed {count} scheduled times from {time_text(first)} to {time_text(last)}: {why}"
    draft.note(EventReason.CATCHUP_WINDOW_MISSED, text, warning=True)


def _latest(draft: ScheduleDraft, due: list[Start]) -> list[Start]:
    """With `catchupPolicy: Latest`, keep only the newest of several starts, and count the others."""
    if draft.rules.spec.catchup_policy is not CatchupPolicy.LATEST:
        return due
    kept = [] if draft.more else due[-1:]  # if times are left, a newer one is due
    missed = due[: len(due) - len(kept)]
    if missed:
        why = "with `catchupPolicy: Latest`, only the newest one starts"
        _count_missed(draft, len(missed), missed[0].nominal, missed[-1].nominal, why)
    return kept


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
