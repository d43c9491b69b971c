"""When finished runs are due to be removed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from perdure.controller.expiry import Expiries

NOW = datetime(2026, 11, 22, 12, 0, 7, tzinfo=UTC)
SPAN = 60.0


@given(st.lists(st.floats(-1_000, 100_000), max_size=30))
def test_each_expiry_is_due_before_its_time_and_at_most_once(seconds: list[float]) -> None:
    expiries = Expiries(SPAN)
    waiting = {}
    for number, each in enumerate(seconds):
        when = NOW + timedelta(seconds=each)
        if expiries.add(str(number), when, NOW):
            waiting[str(number)] = when
        else:
            assert each <= 2 * SPAN
    now = NOW
    while waiting:
        now += timedelta(seconds=SPAN)
        for uid, when in expiries.due(now):
            assert abs(waiting.pop(uid) - when) < timedelta(milliseconds=1)
            assert when >= now + timedelta(seconds=SPAN)
        assert all(when > now + timedelta(seconds=2 * SPAN) for when in waiting.values())
    assert expiries.due(now + timedelta(days=10)) == []
