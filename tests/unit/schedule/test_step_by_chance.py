"""Schedules with random events at random times, and kills of the operator between any two steps.

Conservation: each time that was due is started, skipped, missed, dropped or waiting: none is lost, none counts twice.
"""

import os
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.api.policies import OverlapPolicy
from perdure.engine.retry import RetryPolicy
from perdure.schedule import inputs as inp
from perdure.schedule.cursor import MAX_STRETCHES, is_handled, joined
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.state import Handled
from unit.schedule.drive import T0, Drive, M, S, rules

CASES = 5_000 if os.environ.get("PERDURE_LONG") else 100
PAUSES = ("pause", "unpause")


def happen(drive: Drive, chance: Random, *, pauses: bool) -> None:
    """Apply one random event; the operator may be killed during it."""
    drive.now += chance.choice([S, 20 * S, M, 3 * M, 20 * M]) * chance.random()
    happened: list[inp.ScheduleInput] = [
        inp.RunClosed(name=name, outcome=chance.choice(list(RunOutcome)), time=drive.now, result=name)
        for name in sorted(drive.open)
        if chance.random() < 0.4
    ]
    request = f"r{chance.randrange(40)}"
    what = chance.choice(["", "", "", "", "trigger", *(PAUSES if pauses else ())])
    if what == "trigger":
        happened.append(inp.Triggered(request_id=request, overlap_policy=chance.choice([None, *OverlapPolicy])))
    elif what == "pause":
        happened.append(inp.SchedulePauseRequested(request_id=request))
    elif what == "unpause":
        happened.append(inp.ScheduleUnpauseRequested(request_id=request))
    transition = drive.decide(*happened)
    if chance.random() < 0.2:
        return  # killed before the commit: all of it is observed again
    if transition.durable:
        drive.commit(transition)
        for each in happened:
            if isinstance(each, inp.RunClosed):
                drive.open.discard(each.name)
    drive.do(chance.choice([None, None, 0, 1]))  # killed after the commit, before all runs were created


@given(st.randoms(use_true_random=False), st.sampled_from(list(OverlapPolicy)), st.sampled_from(["10s", "2m", "1h"]))
@settings(max_examples=CASES)
def test_no_time_is_skipped_or_counted_twice(chance: Random, policy: OverlapPolicy, window: str) -> None:
    drive = Drive(rules(overlapPolicy=policy.value, catchupWindow=window, jitter=chance.choice(["0s", "50s"])))
    drive.advance()
    for _ in range(40):
        happen(drive, chance, pauses=False)
    drive.do()
    drive.advance()
    state = drive.state
    seed = drive.rules.seed
    assert drive.rules.times is not None
    due = 0
    for each in drive.rules.times.dues(T0, seed):
        if each.actual > drive.now:
            break
        due += 1
    by_time = [run for run in drive.made if run.start.by_time]
    asked = len(drive.made) - len(by_time)
    waiting = sum(start.by_time for start in state.buffer)
    counts = state.counts
    assert counts.actions == len(drive.made)
    assert len({run.start.nominal for run in by_time}) == len(by_time)
    # Skips of triggers count too; there are at most as many of them as requests that started nothing.
    skipped_requests = sum(not each.ok for each in state.answered)
    dealt_with = len(by_time) + counts.missed_catchup_window + counts.overlap_skipped + counts.buffer_dropped + waiting
    assert due <= dealt_with <= due + skipped_requests + 40
    assert asked <= 40
    if policy is OverlapPolicy.ALLOW_ALL:
        assert due == len(by_time) + counts.missed_catchup_window


@given(st.randoms(use_true_random=False), st.sampled_from(list(OverlapPolicy)))
@settings(max_examples=CASES)
def test_overlap_policies_keep_their_invariants(chance: Random, policy: OverlapPolicy) -> None:
    drive = Drive(rules(overlapPolicy=policy.value, catchupWindow="10m"))
    drive.advance()
    for _ in range(40):
        happen(drive, chance, pauses=True)
        state = drive.state
        by_time = [run for run in state.running if run.start.by_time and not run.terminate]
        if policy in {
            OverlapPolicy.SKIP,
            OverlapPolicy.BUFFER_ONE,
            OverlapPolicy.BUFFER_ALL,
            OverlapPolicy.CANCEL_OTHER,
        }:
            assert len(by_time) <= 1
        if policy is OverlapPolicy.TERMINATE_OTHER:
            assert len(by_time) <= 1
        if policy in {OverlapPolicy.BUFFER_ONE, OverlapPolicy.CANCEL_OTHER}:
            assert sum(start.by_time for start in state.buffer) <= 1
        if state.paused is not None:
            assert not any(start.by_time for start in state.buffer)
    nominal = [run.start.nominal for run in drive.made if run.start.by_time]
    assert len(set(nominal)) == len(nominal)


@given(st.randoms(use_true_random=False), st.sampled_from(["0s", "50s"]), st.booleans())
@settings(max_examples=CASES)
def test_each_time_starts_once_with_a_clock_that_jumps(chance: Random, jitter: str, pauses: bool) -> None:
    """The clock may jump, but is right in the end. From then on, each time starts exactly once."""
    drive = Drive(rules(overlapPolicy="AllowAll", catchupWindow="3m", jitter=jitter))
    real = T0
    for number in range(20):
        real += M * chance.random() * 2
        wrong = timedelta(minutes=chance.uniform(-30, 30)) if chance.random() < 0.3 else timedelta(0)
        drive.now = max(T0, real + wrong)
        drive.advance()
        if chance.random() < 0.5:
            drive.close_all()
        if pauses and chance.random() < 0.2:
            drive.advance(inp.SchedulePauseRequested(request_id=f"p{number}"))
            drive.advance(inp.ScheduleUnpauseRequested(request_id=f"u{number}"))
    drive.now = real
    drive.advance()
    while drive.now < real + 40 * M:
        drive.now += 50 * S
        drive.advance()
        drive.close_all()
    started = sorted((run.start.nominal - T0) // M for run in drive.made)
    assert len(set(started)) == len(started)
    assert set(range((real - T0) // M + 1, (real + 40 * M - T0) // M)) <= set(started)


def test_times_are_processed_in_ranges_that_do_not_overlap() -> None:
    at = [T0 + number * M for number in range(100)]
    assert joined(
        [Handled(after=at[5], until=at[6]), Handled(after=at[1], until=at[3]), Handled(after=at[2], until=at[5])]
    ) == (Handled(after=at[1], until=at[6]),)
    assert joined([Handled(after=at[5], until=at[5])]) == ()
    many = joined(Handled(after=at[number], until=at[number + 1]) for number in range(0, 90, 2))
    assert len(many) == MAX_STRETCHES
    assert many[0].after == at[0]
    assert all(is_handled(many, at[number]) for number in range(1, 90, 2))


@given(st.randoms(use_true_random=False), st.sampled_from(list(OverlapPolicy)))
@settings(max_examples=CASES)
def test_retries_wait_for_their_time_and_respect_pauses(chance: Random, policy: OverlapPolicy) -> None:
    """A failed run is retried, but never while paused and never after the next time was due."""
    again = RetryPolicy(initial_interval=chance.choice([5 * S, 40 * S]), maximum_attempts=4)
    remaining = chance.choice([None, 1, 3])
    drive = Drive(rules(again, overlapPolicy=policy.value, remainingActions=remaining))
    drive.advance()
    edited = T0
    for _ in range(40):
        before = drive.state
        happen(drive, chance, pauses=True)
        state = drive.state
        begun = [run for run in state.running if run.attempt > 1 and run not in before.running]
        assert not (begun and (drive.rules.spec.paused or before.paused is not None))
        for run in begun:
            assert run.start.nominal == before.last_scheduled
            assert drive.rules.times is not None
            if remaining is None and edited < run.start.nominal:
                assert run.started < next(drive.rules.times.nominal(run.start.nominal))
        if chance.random() < 0.1:
            paused = chance.choice([True, False])
            cron = chance.choice(["* * * * *", "*/2 * * * *"]) if paused else drive.rules.spec.cron[0]
            edited = drive.now
            drive.edit(again, cron=[cron], overlapPolicy=policy.value, remainingActions=remaining, paused=paused)
    names = drive.names()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("policy", list(OverlapPolicy))
def test_the_same_step_twice_decides_the_same(policy: OverlapPolicy) -> None:
    drive = Drive(rules(overlapPolicy=policy.value))
    drive.until(T0 + 3 * M)
    drive.now += M
    assert drive.decide() == drive.decide()
