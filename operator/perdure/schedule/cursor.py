"""The cursor: the time up to which the schedule has processed its times, and the changes that move it.

The cursor moves to now when the times in the spec change, when a pause ends, and when the schedule gets new actions: no run
starts retroactively. It moves back when the clock goes back. Times that were only counted as missed while the clock was ahead
are then due again; handled times are not.
"""

from datetime import datetime, timedelta

from perdure.schedule.draft import ScheduleDraft
from perdure.schedule.handled import joined
from perdure.schedule.state import Handled


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
