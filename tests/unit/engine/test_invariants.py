"""Invariants with random deciders, random events, and crashes at every step.

PERDURE_LONG=1 tries 20,000 cases instead of a few hundred, which takes some ten minutes.
"""

import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.engine import history
from perdure.engine.retry import RetryPolicy
from perdure.engine.step import next_wake
from support.engine.script import T0, Drive, Script, timer
from unit.engine.chance import Chance, World, policies

CASES = 20_000 if os.environ.get("PERDURE_LONG") else 300

LONG_ENOUGH = 3_600
"""Seconds that all cases may take."""


@pytest.mark.timeout(LONG_ENOUGH)
@settings(max_examples=CASES, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=True))
def test_after_any_inputs_the_history_is_complete_and_its_fold_is_the_state(random: Random) -> None:
    chance = Chance(random)
    world = World(chance.program())
    world.begin(chance.start(), random.choice([0, 0, 2]), paused=chance.often(0.1))
    for number in range(random.randint(0, 30)):
        wait, happened, crash = chance.moment()
        world.live(wait, happened, crash=crash)
        if number % 8 == 0:
            world.check_replay()
    world.check_replay()
    world.check_fork(random.randint(0, 50))


@given(st.lists(st.integers(0, 100), max_size=5))
def test_a_run_that_only_waits_for_time_ends_if_every_wake_up_is_processed(program: list[int]) -> None:
    drive = Drive.of(*[timer(f"t{number}", length) for number, length in enumerate(program)])
    for _ in program:
        wake = next_wake(drive.state, drive.now)
        if wake is None:
            break
        assert wake > drive.now
        drive.at((wake - T0).total_seconds())
    assert drive.state.closed
    drive.check_replay()


@given(policies, st.integers(1, 10**9))
def test_intervals_never_overflow_and_never_exceed_the_maximum(policy: RetryPolicy, attempt: int) -> None:
    assert policy.initial_interval <= policy.interval(attempt) <= 100 * policy.initial_interval
    assert policy.interval(attempt) <= policy.interval(attempt + 1)


def test_a_replay_detects_a_different_decision() -> None:
    drive = Drive.of(timer("a", 1), timer("b", 1))
    drive.at(1)
    with pytest.raises(history.NondeterminismError, match="other"):
        history.replay(drive.history, Script(timer("a", 1), timer("other", 1)))
