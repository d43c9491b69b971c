"""Which times were really dealt with: what keeps a clock that jumps about from doubling or losing them.

Where the clock was ahead, times were counted as missed, or passed by while nothing was started, that come after all. So it is not
enough to know the newest time that was looked at: the stretches in which times were dealt with are kept.
"""

from collections.abc import Iterable
from datetime import datetime

from perdure.schedule.state import Handled

MOST_STRETCHES = 10
"""Stretches that are kept. Of more, the oldest are put together: what lies between them counts as dealt with then."""


def joined(stretches: Iterable[Handled]) -> tuple[Handled, ...]:
    """Put stretches in order; those that touch become one, empty ones are left out, and at most `MOST_STRETCHES` are kept."""
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
