"""The times that a schedule has handled, so that a clock that jumps neither repeats nor loses starts.

While a clock is ahead, future times may be counted as missed, or pass while the schedule starts nothing. They still come later.
So the newest time that was examined is not enough: the state keeps the stretches in which times were handled.
"""

from collections.abc import Iterable
from datetime import datetime

from perdure.schedule.state import Handled

MOST_STRETCHES = 10
"""How many stretches are kept. Beyond that, the oldest two are merged, and the times between them count as handled."""


def joined(stretches: Iterable[Handled]) -> tuple[Handled, ...]:
    """Sort stretches, merge those that touch, drop empty ones, and keep at most `MOST_STRETCHES`."""
    found: list[Handled] = []
    for each in sorted(stretches, key=lambda stretch: stretch.after):
        if each.after >= each.until:
            continue
        if found and each.after <= found[-1].until:
            found[-1] = Handled(after=found[-1].after, until=max(found[-1].until, each.until))
        else:
            found.append(each)
    while len(found) > MOST_STRETCHES:
        found[:2] = [Handled(after=found[0].after, until=found[1].until)]
    return tuple(found)


def is_handled(stretches: Iterable[Handled], nominal: datetime) -> bool:
    """Whether a time lies in one of the stretches."""
    return any(stretch.after < nominal <= stretch.until for stretch in stretches)
