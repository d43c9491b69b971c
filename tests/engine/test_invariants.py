"""Random programs, random outcomes, crashes at every pass: what must hold whatever happens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.script import T0, Drive, Script, activity, application, seconds, timer
from perdure.engine import events as ev
from perdure.engine import history
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import (
    AttemptCompleted,
    AttemptFailed,
    AttemptInput,
    AttemptLost,
    AttemptStarted,
    HeartbeatRead,
)
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import State, beside_history_removed
from perdure.engine.step import next_wake, step

lengths = st.integers(1, 50).map(seconds)
maybe = st.one_of(st.none(), lengths)
policies = st.builds(
    RetryPolicy,
    initial_interval=lengths,
    maximum_attempts=st.integers(0, 4),
    non_retryable_error_types=st.sampled_from([(), ("Declined",)]),
)
programs = st.lists(
    st.one_of(
        st.builds(lambda policy, s2c, s2s, beat: ("activity", policy, s2c, s2s, beat), policies, maybe, maybe, maybe),
        st.builds(lambda length: ("timer", length), st.integers(0, 100)),
    ),
    max_size=5,
)
outcomes = st.lists(
    st.tuples(
        st.sampled_from(["started", "completed", "failed", "lost", "beat", "nothing"]),
        st.integers(-1, 1),  # which attempt, relative to the one that is open: -1 and 1 are stale or made up
        st.floats(0, 60),
        st.booleans(),  # crash afterwards: go on from what was stored
    ),
    max_size=40,
)


def build(program: list[Any]) -> list[Any]:
    commands: list[Any] = []
    for index, entry in enumerate(program):
        if entry[0] == "timer":
            commands.append(timer(f"t{index}", entry[1]))
        else:
            _, policy, s2c, s2s, beat = entry
            commands.append(
                activity(
                    f"a{index}",
                    retry_policy=policy,
                    schedule_to_close_timeout=s2c,
                    schedule_to_start_timeout=s2s,
                    heartbeat_timeout=beat,
                )
            )
    return commands


def as_input(kind: str, state: State, shift: int, drive: Drive) -> list[AttemptInput]:
    if kind == "nothing" or not state.activities:
        return []
    a = next(iter(state.activities.values()))
    which = {"scheduled_event_id": a.scheduled_event_id, "attempt": a.attempt + shift}
    match kind:
        case "started":
            return [AttemptStarted(time=drive.now, **which)]
        case "completed":
            return [AttemptCompleted(result=drive.now.isoformat(), **which)]
        case "failed":
            return [AttemptFailed(failure=application(), **which)]
        case "lost":
            return [AttemptLost(failure=Failure(kind=FailureKind.SERVER, message="gone"), **which)]
        case _:
            return [HeartbeatRead(time=drive.now - seconds(3), details=[1], **which)]


def check(drive: Drive) -> None:
    ids = [event.event_id for event in drive.history]
    assert ids == list(range(1, len(ids) + 1))
    closings = [event for event in drive.history if isinstance(event, ev.CLOSING)]
    assert len(closings) == (1 if drive.state.closed else 0)
    assert not closings or drive.history[-1] is closings[0]
    replayed = history.replay(drive.history, Script(*drive.script.commands))
    assert replayed == beside_history_removed(drive.state)


@given(programs, outcomes, st.one_of(st.none(), st.integers(1, 300)))
def test_history_is_gap_free_closes_once_and_folds_to_the_state(
    program: list[Any], happenings: list[Any], run_timeout: int | None
) -> None:
    options = {} if run_timeout is None else {"workflow_run_timeout": seconds(run_timeout)}
    drive = Drive.of(*build(program), **options)
    offset = 0.0
    for kind, shift, wait, crash in happenings:
        offset += wait
        inputs = as_input(kind, drive.state, shift, drive)
        stale = shift != 0 and kind != "nothing"
        drive.now = T0 + seconds(offset)
        if stale:
            without = step(drive.state, (), drive.now, drive.script)
            assert step(drive.state, inputs, drive.now, drive.script).events == without.events
        transition = drive.at(offset, *inputs)
        if crash:
            # What was not durable is lost with the process; what was, comes back from plain JSON.
            stored = history.encode(transition.state)
            assert history.decode_state(stored) == transition.state
        check(drive)
    recorded = history.decode_events(history.encode(drive.history))
    assert list(recorded) == drive.history


@given(programs, outcomes)
def test_following_every_wake_ends_every_run_that_only_waits_for_time(
    program: list[Any], happenings: list[Any]
) -> None:
    drive = Drive.of(*[c for c in build(program) if c.__class__.__name__ == "StartTimer"])
    for _ in happenings:
        wake = next_wake(drive.state, drive.now)
        if wake is None:
            break
        assert wake > drive.now
        drive.at((wake - T0).total_seconds())
    assert drive.state.closed or len(happenings) < len(program)
    check(drive)


@given(policies, st.integers(1, 10**9))
def test_intervals_never_overflow_and_never_exceed_the_maximum(policy: RetryPolicy, attempt: int) -> None:
    assert policy.initial_interval <= policy.interval(attempt) <= 100 * policy.initial_interval
    assert policy.interval(attempt) <= policy.interval(attempt + 1)


def test_a_replay_tells_a_different_decision() -> None:
    drive = Drive.of(timer("a", 1), timer("b", 1))
    drive.at(1)
    with pytest.raises(history.NondeterminismError, match="other"):
        history.replay(drive.history, Script(timer("a", 1), timer("other", 1)))
