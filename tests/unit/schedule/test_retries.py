"""Runs of a Schedule that fail are started again, and failures pause the Schedule."""

from datetime import timedelta
from typing import Any

import pytest

from perdure.api.kinds.retrypolicy import RetryRules
from perdure.api.policies import OverlapPolicy
from perdure.engine.retry import RetryPolicy
from perdure.language.program import retry_rules
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from unit.schedule.drive import HOURLY, T0, Drive, H, M, S, name, rules


def test_with_allow_all_a_failed_run_is_retried_next_to_the_others() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=timedelta(seconds=1)), overlapPolicy="Skip"))
    drive.until(T0 + M)
    drive.advance(inp.Triggered(request_id="t", overlap_policy=OverlapPolicy.ALLOW_ALL))
    drive.close(name(1), RunOutcome.FAILED)
    drive.until(T0 + M + timedelta(seconds=2))
    assert drive.names()[-1] == f"{name(1)}-r2"


@pytest.mark.parametrize(
    ("outcome", "paused"),
    [
        (RunOutcome.FAILED, True),
        (RunOutcome.TIMED_OUT, True),
        (RunOutcome.CANCELLED, False),
        (RunOutcome.TERMINATED, False),
        (RunOutcome.COMPLETED, False),
    ],
)
def test_18_a_failure_pauses_and_a_cancellation_does_not(outcome: RunOutcome, paused: bool) -> None:
    drive = Drive(rules(pauseOnFailure=True))
    drive.until(T0 + M)
    drive.close(name(1), outcome)
    assert (drive.state.paused is not None) == paused
    drive.until(T0 + 3 * M)
    assert len(drive.made) == (1 if paused else 2)
    if drive.state.paused:
        assert drive.state.paused.reason == f"run `{name(1)}` is {outcome}: Bug: boom"


def test_the_retry_policy_starts_a_failed_run_again() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=5 * S, maximum_attempts=3), pauseOnFailure=True))
    drive.until(T0 + M)
    drive.close(name(1), RunOutcome.FAILED)
    assert drive.state.paused is None
    drive.until(T0 + M + 6 * S)
    drive.close(f"{name(1)}-r2", RunOutcome.FAILED)
    drive.until(T0 + M + 20 * S)
    drive.close(f"{name(1)}-r3", RunOutcome.FAILED)
    assert drive.names() == [name(1), f"{name(1)}-r2", f"{name(1)}-r3"]
    assert drive.state.paused is not None
    assert drive.state.counts.actions == 1
    assert [each.name for each in drive.state.recent] == [f"{name(1)}-r3"]


def test_retries_end_when_the_next_time_comes() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=70 * S), pauseOnFailure=False))
    drive.until(T0 + M)
    drive.close(name(1), RunOutcome.FAILED)
    assert drive.state.retry is None  # it would start after the next time
    drive.edit(RetryPolicy(initial_interval=40 * S))
    drive.until(T0 + 2 * M)
    drive.close(name(2), RunOutcome.FAILED)
    assert drive.state.retry is not None
    drive.now = T0 + 3 * M  # the operator was away
    drive.advance()
    assert drive.state.retry is None or drive.minutes() == [1, 2, 2]


def test_a_due_time_drops_a_waiting_retry() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=40 * S), overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * M)
    drive.close(name(1), RunOutcome.FAILED)
    assert drive.state.retry is None  # not the newest
    drive.close(name(2), RunOutcome.FAILED)
    assert drive.state.retry is not None


AGAIN = RetryPolicy(initial_interval=M, maximum_attempts=5)


def failed(policy: RetryPolicy = AGAIN, **spec: Any) -> Drive:
    """An hourly schedule whose first run has failed and waits to be started again."""
    drive = Drive(rules(policy, **{"cron": HOURLY, **spec}))
    drive.until(T0 + H)
    drive.now += 5 * S
    drive.close(drive.names()[0], RunOutcome.FAILED)
    assert drive.state.retry is not None
    return drive


@pytest.mark.parametrize("spec", [{}, {"remainingActions": 1}])
def test_a_pause_drops_a_waiting_retry(spec: dict[str, Any]) -> None:
    drive = failed(**spec)
    drive.advance(inp.SchedulePauseRequested(request_id="p"))
    drive.until(T0 + H + 30 * M)
    assert len(drive.made) == 1
    assert drive.state.retry is None


def test_a_pause_that_ends_in_the_same_step_drops_a_waiting_retry() -> None:
    drive = failed()
    drive.advance(inp.SchedulePauseRequested(request_id="p"), inp.ScheduleUnpauseRequested(request_id="u"))
    drive.until(T0 + H + 30 * M)
    assert len(drive.made) == 1


@pytest.mark.parametrize("spec", [{"cron": HOURLY}, {"cron": ["5 * * * *"]}])
def test_an_edit_that_pauses_drops_a_waiting_retry(spec: dict[str, Any]) -> None:
    drive = failed()
    drive.edit(AGAIN, **spec, paused=True)
    drive.until(T0 + H + 30 * M)
    assert len(drive.made) == 1
    assert drive.state.retry is None


def test_the_last_action_is_retried_without_remaining_actions() -> None:
    drive = failed(remainingActions=1)
    drive.until(T0 + 3 * H)
    assert drive.names()[1:] == [f"{drive.names()[0]}-r2"]


def test_with_allow_all_a_retry_starts_next_to_open_runs() -> None:
    drive = Drive(rules(AGAIN, cron=HOURLY, overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * H)
    drive.close(drive.names()[1], RunOutcome.FAILED)
    drive.until(T0 + 2 * H + 30 * M)
    assert len(drive.open) == 2
    assert drive.made[-1].started == T0 + 2 * H + M


def test_a_late_retry_yields_to_the_next_time() -> None:
    drive = Drive(rules(AGAIN, cron=HOURLY))
    drive.until(T0 + H)
    drive.now = T0 + 2 * H - 2 * M
    drive.close(drive.names()[0], RunOutcome.FAILED)
    drive.now = T0 + 2 * H + 10 * S  # the operator was away in between
    drive.advance()
    assert [run.start.nominal for run in drive.made] == [T0 + H, T0 + 2 * H]
    assert drive.state.counts.overlap_skipped == 0


def test_a_skipped_time_ends_a_waiting_retry() -> None:
    drive = failed()
    drive.advance(inp.Triggered(request_id="t"))
    (triggered,) = drive.open
    drive.until(T0 + 2 * H + 10 * M)
    assert drive.state.counts.overlap_skipped == 1
    drive.close(triggered)
    drive.until(T0 + 2 * H + 20 * M)
    assert len(drive.made) == 2


def test_a_retry_waits_while_a_thousand_runs_are_open() -> None:
    drive = failed(overlapPolicy="AllowAll")
    drive.advance(inp.BackfillRequested(request_id="b", start=T0 - 1_200 * H, end=T0))
    drive.until(T0 + H + 30 * M)
    assert len(drive.open) == 1_000
    drive.close(min(drive.open))
    assert len(drive.open) == 1_000


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ({}, 0),
        ({"retryCount": 3}, 3),
        ({"maxRetryDuration": "100s"}, 5),
        ({"maxRetryDuration": "25s"}, 2),
        ({"retryCount": 2, "maxRetryDuration": "35s"}, 3),
        ({"retryCount": 5, "maxRetryDuration": "1s"}, 5),
    ],
)
def test_cloud_scheduler_retries(policy: dict[str, Any], want: int) -> None:
    backoff = {"minBackoffDuration": "10s", "maxBackoffDuration": "10s", **policy}
    drive = Drive(rules(retry_rules(RetryRules.parse({"cloudScheduler": backoff})), cron=["0 * * * *"]))
    drive.now = T0 + timedelta(hours=1)
    drive.advance()
    while drive.open:
        drive.close(next(iter(drive.open)), RunOutcome.FAILED)
        drive.now += 10 * S
        drive.advance()
    assert len(drive.made) - 1 == want


def test_a_retry_of_a_run_with_another_name_keeps_it() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=S, maximum_attempts=3), cron=["0 * * * *"]))
    drive.until(T0 + 60 * M)
    drive.advance(inp.NameTaken(name=name(60), uid="foreign"))
    [first] = drive.state.running
    drive.close(first.name, RunOutcome.FAILED)
    drive.now += S
    drive.advance()
    [second] = drive.state.running
    assert second.name == f"{first.name}-r2"
    assert [each.name for each in drive.state.recent] == [second.name]
