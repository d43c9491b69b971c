"""When finished runs are due to be removed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.controller.expiry import Expiries, expiry

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


def test_dropped_runs_are_never_due() -> None:
    expiries = Expiries(SPAN)
    for number in range(6):
        assert expiries.add(str(number), NOW + timedelta(seconds=200 + 60 * number), NOW)
    expiries.drop({"0", "3", "unknown"})
    assert sorted(uid for uid, _ in expiries.due(NOW + timedelta(hours=1))) == ["1", "2", "4", "5"]


@pytest.mark.parametrize(
    ("phase", "spec", "seconds"),
    [
        ("Completed", {"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailure": 9}, 5),
        ("ContinuedAsNew", {"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailure": 9}, 5),
        ("Failed", {"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailure": 9}, 9),
        ("TimedOut", {"ttlSecondsAfterFinished": 5, "ttlSecondsAfterFailure": 0}, 0),
        ("Cancelled", {"ttlSecondsAfterFinished": 5}, 5),
        ("Terminated", {"ttlSecondsAfterFailure": 9}, 9),
        ("Completed", {"ttlSecondsAfterFailure": 9}, 60),
    ],
)
def test_the_outcome_determines_the_ttl_of_an_object(phase: str, spec: dict[str, Any], seconds: int) -> None:
    obj = {"spec": spec, "status": {"phase": phase, "completionTime": "2026-11-22T12:00:07Z"}}
    assert expiry(obj, 60) == NOW + timedelta(seconds=seconds)
