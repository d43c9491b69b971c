"""Races between attempts: late reports of an earlier attempt never cause a second result."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptLost, HeartbeatRead
from perdure.engine.retry import RetryPolicy
from support.engine.script import T0, Drive, activity, application, seconds

# A report: the number of attempts before the due one, and its kind.
reports = st.tuples(st.integers(0, 4), st.sampled_from(["completed", "failed", "lost", "heartbeat"]))


def report(number: int, what: str, time: float) -> Any:
    of: dict[str, Any] = {"scheduled_event_id": 2, "attempt": number}
    match what:
        case "completed":
            return AttemptCompleted(**of, result=number)
        case "failed":
            return AttemptFailed(**of, failure=application(), started_time=T0)
        case "lost":
            return AttemptLost(**of, failure=Failure(kind=FailureKind.SERVER, message="gone"))
        case _:
            return HeartbeatRead(**of, time=T0 + seconds(time), details=number)


@settings(max_examples=1000)
@given(st.lists(reports, min_size=1, max_size=12), st.booleans())
def test_a_late_report_of_an_earlier_attempt_changes_nothing(reported: list[tuple[int, str]], at_once: bool) -> None:
    """1,000 races: an activity is closed once, by the attempt that is due, with that attempt's own result."""
    drive = Drive.of(activity(retry_policy=RetryPolicy(initial_interval=seconds(0.001))))
    for step, (back, what) in enumerate(reported):
        pending = drive.state.activities.get("2")
        due = pending.attempt if pending else 5
        late = report(max(due - back, 1), what, step)
        before = pending
        drive.at(step + 1, late, *([late] if at_once else []))
        after = drive.state.activities.get("2")
        if before is not None and late.attempt != before.attempt:
            assert after == before
    closings = [event for event in drive.history if isinstance(event, ev.ActivityTaskCompleted)]
    assert len(closings) <= 1
    for closing in closings:
        assert closing.result == closing.attempt
        started = drive.history[closing.started_event_id - 1]
        assert isinstance(started, ev.ActivityTaskStarted)
        assert started.attempt == closing.attempt
