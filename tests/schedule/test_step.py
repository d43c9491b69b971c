from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.api.retrypolicy import RetryRules
from perdure.api.schedule import OverlapPolicy
from perdure.engine.retry import RetryPolicy
from perdure.language.program import retry_rules
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.status import compose
from perdure.schedule.step import next_wake
from schedule.drive import T0, Drive, M, S, rules

NAME = "nightly-20260101t00{:02}00z"


def name(minute: int) -> str:
    return NAME.format(minute)


def test_a_time_starts_a_run_named_by_it() -> None:
    drive = Drive(rules())
    drive.until(T0 + 2 * M)
    assert drive.names() == [name(1)]
    assert drive.state.last_scheduled == T0 + M
    assert drive.state.counts.actions == 1
    assert drive.state.recent[0].nominal == T0 + M


# A run is open from minute 1 on: what the policies make of minutes 2, 3 and 4, and what happens when it closes.


@pytest.mark.parametrize(
    ("policy", "meanwhile", "asked", "skipped", "waiting", "afterwards"),
    [
        (OverlapPolicy.SKIP, [1], [], 3, 0, [1]),
        (OverlapPolicy.BUFFER_ONE, [1], [], 2, 1, [1, 2]),
        (OverlapPolicy.BUFFER_ALL, [1], [], 0, 3, [1, 2]),
        (OverlapPolicy.CANCEL_OTHER, [1], [("cancel", name(1))], 2, 1, [1, 4]),
        (OverlapPolicy.TERMINATE_OTHER, [1, 2, 3, 4], [("terminate", name(1))], 0, 0, [1, 2, 3, 4]),
        (OverlapPolicy.ALLOW_ALL, [1, 2, 3, 4], [], 0, 0, [1, 2, 3, 4]),
    ],
    ids=[policy.value for policy in OverlapPolicy],
)
def test_11_12_13_overlap(  # noqa: PLR0917 (the columns of the table)
    policy: OverlapPolicy,
    meanwhile: list[int],
    asked: list[tuple[str, str]],
    skipped: int,
    waiting: int,
    afterwards: list[int],
) -> None:
    drive = Drive(rules(overlapPolicy=policy.value))
    drive.until(T0 + 4 * M)
    assert drive.minutes() == meanwhile
    assert drive.asked[:1] == asked
    assert drive.state.counts.overlap_skipped == skipped
    assert len(drive.state.buffer) == waiting
    drive.close(name(1))
    assert drive.minutes() == afterwards


@pytest.mark.parametrize("policy", [each for each in OverlapPolicy if each is not OverlapPolicy.ALLOW_ALL])
def test_what_was_started_by_allow_all_is_in_nobodys_way_and_is_not_ended(policy: OverlapPolicy) -> None:
    drive = Drive(rules(overlapPolicy=policy.value))
    drive.until(T0 + 30 * timedelta(seconds=1))
    for number in range(2):
        drive.advance(inp.Triggered(request_id=f"t{number}", overlap_policy=OverlapPolicy.ALLOW_ALL))
    triggered = drive.names()
    assert len(triggered) == 2
    drive.until(T0 + M)
    assert drive.names() == [*triggered, name(1)]
    drive.until(T0 + 2 * M)
    assert {run for _, run in drive.asked} <= {name(1)}
    assert not any(run.cancel or run.terminate for run in drive.state.running if run.name in triggered)


def test_a_failed_run_is_tried_again_beside_those_of_allow_all() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=timedelta(seconds=1)), overlapPolicy="Skip"))
    drive.until(T0 + M)
    drive.advance(inp.Triggered(request_id="t", overlap_policy=OverlapPolicy.ALLOW_ALL))
    drive.close(name(1), RunOutcome.FAILED)
    drive.until(T0 + M + timedelta(seconds=2))
    assert drive.names()[-1] == f"{name(1)}-r2"


def test_11_what_waits_goes_by_the_policy_of_now_unless_it_has_its_own() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 3 * M)
    drive.advance(inp.Triggered(request_id="own", overlap_policy=OverlapPolicy.BUFFER_ALL))
    assert len(drive.state.buffer) == 3
    drive.edit(overlapPolicy="Skip")
    drive.advance()
    assert [start.request for start in drive.state.buffer] == ["own"]
    assert drive.state.counts.overlap_skipped == 2


def test_what_is_buffered_starts_one_after_the_other_in_order() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 4 * M)
    for minute in (1, 2, 3):
        assert drive.open == {name(minute)}
        drive.close(name(minute))
    assert drive.minutes() == [1, 2, 3, 4]


def test_14_what_is_buffered_beyond_a_thousand_is_dropped_and_counted() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll", catchupWindow="1d"))
    drive.until(T0 + M)
    drive.now = T0 + 1_100 * M
    drive.advance()
    assert len(drive.state.buffer) == 1_000
    assert drive.state.counts.buffer_dropped == 99
    assert drive.told.count("BufferDropped") >= 1


def test_skips_are_told_once_for_each_run_that_is_in_the_way() -> None:
    drive = Drive(rules())
    drive.until(T0 + 5 * M)
    drive.close(name(1))
    drive.until(T0 + 8 * M)
    assert drive.told.count("RunSkipped") == 2
    assert drive.state.counts.overlap_skipped == 6


def test_12_a_policy_takes_the_newest_of_several_that_are_due_at_once() -> None:
    for policy in ("CancelOther", "TerminateOther"):
        drive = Drive(rules(overlapPolicy=policy, catchupWindow="10m"))
        drive.advance()
        drive.now = T0 + 3 * M
        drive.advance()
        assert drive.minutes() == [3]
        assert drive.asked == []
        assert drive.state.counts.overlap_skipped == 2
        assert drive.state.counts.actions == 1


@pytest.mark.parametrize(
    ("window", "want", "missed"),
    [("1m", [5], 4), ("2m", [4, 5], 3), ("10m", [1, 2, 3, 4, 5], 0)],
)
def test_2_after_downtime_what_is_within_the_window_starts_and_the_rest_is_missed(
    window: str, want: list[int], missed: int
) -> None:
    drive = Drive(rules(catchupWindow=window, overlapPolicy="AllowAll"))
    drive.advance()
    drive.now = T0 + 5 * M + 30 * S
    drive.advance()
    assert drive.minutes() == want
    assert drive.state.counts.missed_catchup_window == missed
    assert drive.told.count("CatchupWindowMissed") == bool(missed)


@pytest.mark.parametrize(("late", "started"), [(timedelta(0), 1), (timedelta(milliseconds=1), 0)])
def test_2_the_window_counts_from_the_time_with_jitter_and_what_is_exactly_as_old_starts(
    late: timedelta, started: int
) -> None:
    drive = Drive(rules(cron=HOURLY, jitter="20m", catchupWindow="1m"))
    drive.advance()
    assert drive.rules.times is not None
    due = next(drive.rules.times.dues(T0, drive.rules.seed))
    assert due.actual > due.nominal + M
    drive.now = due.actual + M + late
    drive.advance()
    assert [run.start.nominal for run in drive.made] == [due.nominal] * started
    assert drive.state.counts.missed_catchup_window == 1 - started


def test_a_long_downtime_is_worked_off_in_many_passes() -> None:
    drive = Drive(rules(cron=["@every 1s"]))
    drive.advance()
    drive.now = T0 + timedelta(hours=3)
    drive.advance()
    assert drive.state.counts.missed_catchup_window == 3 * 3600 - 61
    assert drive.state.counts.actions == 1
    assert drive.state.cursor == drive.now
    assert drive.commits > 10


def test_2_while_paused_times_pass_uncounted_and_none_fires_afterwards() -> None:
    drive = Drive(rules(catchupWindow="1h"))
    drive.until(T0 + M)
    drive.close(name(1))
    drive.edit(paused=True, catchupWindow="1h")
    drive.until(T0 + 10 * M + 30 * S)
    assert next_wake(drive.rules, drive.state, drive.now) is None
    drive.edit(catchupWindow="1h")
    drive.until(T0 + 11 * M)
    assert drive.minutes() == [1, 11]
    assert drive.state.counts.missed_catchup_window == 0


def test_a_pause_that_ended_while_nobody_looked_fires_nothing_retroactively() -> None:
    drive = Drive(rules(paused=True, catchupWindow="1h"))
    drive.advance()
    drive.now = T0 + 10 * M
    drive.edit(catchupWindow="1h")
    drive.until(T0 + 11 * M)
    assert drive.minutes() == [11]


@pytest.mark.parametrize(
    "change",
    [{"cron": ["*/2 * * * *"]}, {"timeZone": "Asia/Tokyo"}, {"jitter": "5s"}, {"startTime": "2020-01-01T00:00:00Z"}],
)
def test_20_an_edit_of_the_times_fires_nothing_retroactively(change: dict[str, Any]) -> None:
    drive = Drive(rules(cron=["0 0 1 1 *"], catchupWindow="1h"))
    drive.advance()
    drive.now = T0 + 10 * M + 30 * S
    drive.edit(**{"catchupWindow": "1h", **change})
    drive.advance()
    assert drive.minutes() == []
    drive.until(T0 + 12 * M + 6 * S)
    assert drive.minutes()[0] in {11, 12}


def test_an_edit_of_something_else_loses_nothing() -> None:
    drive = Drive(rules())
    drive.advance()
    drive.now = T0 + M + S
    drive.edit(notes="on the second")
    drive.advance()
    assert drive.minutes() == [1]


def test_16_pausing_drops_what_waits_by_time_and_keeps_what_was_asked_for() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 3 * M)
    drive.advance(inp.Triggered(request_id="t"))
    drive.advance(inp.SchedulePauseRequested(request_id="p", reason="migration"))
    assert [start.request for start in drive.state.buffer] == ["t"]
    drive.close(name(1))
    assert len(drive.made) == 2
    assert drive.state.paused is not None
    assert drive.state.paused.reason == "migration"


def test_16_what_a_pause_has_dropped_does_not_come_back_when_it_ends() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 3 * M)
    drive.advance(inp.SchedulePauseRequested(request_id="p"))
    drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))
    drive.close(name(1))
    assert drive.minutes() == [1]
    drive.until(T0 + 4 * M)
    assert drive.minutes() == [1, 4]


def test_pause_and_unpause_answer_and_are_done_once() -> None:
    drive = Drive(rules())
    assert drive.advance(inp.SchedulePauseRequested(request_id="p"))["p"].ok
    assert drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))["u"].ok
    # The operator that asked was killed before it noted the answer, and asks again.
    assert drive.advance(inp.SchedulePauseRequested(request_id="p"))["p"].ok
    assert drive.state.paused is None
    drive.edit(paused=True)
    answer = drive.advance(inp.ScheduleUnpauseRequested(request_id="v"))["v"]
    assert (answer.ok, answer.reason) == (False, "PausedBySpec")
    assert [each.request for each in drive.state.answered] == ["p", "u", "v"]


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


def test_15_17_actions_run_out_and_requests_do_not_use_them_up() -> None:
    drive = Drive(rules(remainingActions=2, overlapPolicy="AllowAll"))
    drive.advance(inp.Triggered(request_id="t"))
    drive.until(T0 + 5 * M)
    assert drive.minutes() == [0, 1, 2]
    assert drive.state.remaining == 0
    assert drive.told.count("OutOfActions") == 1
    drive.edit(remainingActions=1, overlapPolicy="AllowAll")
    drive.until(T0 + 7 * M)
    assert drive.minutes() == [0, 1, 2, 6]


def test_17_a_schedule_that_is_out_of_actions_stays_and_goes_on_with_new_ones() -> None:
    drive = Drive(rules(cron=["@daily"], remainingActions=1, overlapPolicy="AllowAll"))
    drive.until(T0 + timedelta(days=30))
    assert drive.names() == ["nightly-20260102t000000z"]
    assert next_wake(drive.rules, drive.state, drive.now) is None
    drive.edit(cron=["@daily"], remainingActions=2, overlapPolicy="AllowAll")
    drive.until(T0 + timedelta(days=40))
    assert drive.names()[1:] == ["nightly-20260201t000000z", "nightly-20260202t000000z"]


def test_actions_run_out_in_the_middle_of_catching_up() -> None:
    drive = Drive(rules(remainingActions=2, overlapPolicy="AllowAll", catchupWindow="1h"))
    drive.advance()
    drive.now = T0 + 5 * M
    drive.advance()
    assert drive.minutes() == [1, 2]


def test_15_a_trigger_runs_beside_a_pause_and_names_its_run() -> None:
    drive = Drive(rules(paused=True))
    drive.now = T0 + 90 * S
    answer = drive.advance(inp.Triggered(request_id="abc"))["abc"]
    (only,) = drive.names()
    assert answer.ok
    assert answer.result == {"workflowRun": only}
    assert only.startswith("nightly-20260101t000130z-t")
    assert drive.state.recent[0].nominal is None
    again = drive.advance(inp.Triggered(request_id="abc"))["abc"]
    assert again == answer
    assert len(drive.made) == 1


def test_a_trigger_goes_by_the_overlap_policy_unless_it_has_its_own() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    skipped = drive.advance(inp.Triggered(request_id="a"))["a"]
    assert (skipped.ok, skipped.reason) == (False, "OverlapSkipped")
    assert name(1) in skipped.message
    assert drive.advance(inp.Triggered(request_id="b", overlap_policy=OverlapPolicy.ALLOW_ALL))["b"].ok
    waits = drive.advance(inp.Triggered(request_id="c", overlap_policy=OverlapPolicy.BUFFER_ALL))["c"]
    assert waits.ok
    assert "earlier run" in waits.message


def test_14_a_backfill_starts_every_time_of_it_at_once() -> None:
    drive = Drive(rules(cron=["0 * * * *"], paused=True))
    drive.now = T0 + timedelta(days=1)
    asked = inp.BackfillRequested(request_id="b", start=T0 - timedelta(hours=3), end=T0)
    answer = drive.advance(asked)["b"]
    assert answer.ok
    assert "4 times" in answer.message
    assert "`successfulRunsHistoryLimit`" in answer.message
    assert [run.start.nominal.hour for run in drive.made] == [21, 22, 23, 0]
    assert all("-b" in name for name in drive.names())
    assert drive.state.last_scheduled is None
    drive.advance(asked)
    assert len(drive.made) == 4


def test_a_backfill_with_a_buffer_runs_one_after_the_other() -> None:
    drive = Drive(rules(cron=["0 * * * *"]))
    drive.now = T0 + 10 * M
    drive.advance(
        inp.BackfillRequested(
            request_id="b", start=T0 - timedelta(hours=30), end=T0, overlap_policy=OverlapPolicy.BUFFER_ALL
        )
    )
    for _ in range(30):
        (only,) = drive.open
        drive.close(only)
    assert len(drive.made) == 31
    assert not drive.state.backfills


def test_14_a_large_backfill_waits_for_room() -> None:
    drive = Drive(rules(cron=["* * * * *"], paused=True))
    drive.now = T0 + timedelta(days=3)
    answer = drive.advance(inp.BackfillRequested(request_id="b", start=T0, end=T0 + 3_000 * M))["b"]
    assert "more than 1000 times" in answer.message
    assert len(drive.made) == 1_000
    assert drive.state.counts.buffer_dropped == 0
    while drive.open:
        drive.close_all()
    assert len(drive.made) == 3_001


def test_a_backfill_never_goes_beyond_now() -> None:
    drive = Drive(rules(cron=["0 * * * *"], paused=True))
    drive.now = T0 + timedelta(hours=2)
    drive.advance(inp.BackfillRequested(request_id="b", start=T0, end=T0 + timedelta(hours=9)))
    assert len(drive.made) == 3


def test_a_backfill_from_the_beginning_of_time_is_refused() -> None:
    drive = Drive(rules())
    asked = inp.BackfillRequested(request_id="b", start=datetime(1, 1, 1, tzinfo=UTC), end=T0)
    answer = drive.advance(asked)["b"]
    assert (answer.ok, answer.reason) == (False, "InvalidSpec")
    assert "1970" in answer.message
    assert drive.state.backfills == ()


def test_a_backfill_waits_while_the_times_cannot_be_followed() -> None:
    drive = Drive(rules(cron=HOURLY))
    drive.until(T0 + 10 * M)
    drive.advance(
        inp.BackfillRequested(request_id="b", start=T0 - 600 * H, end=T0, overlap_policy=OverlapPolicy.BUFFER_ALL)
    )
    good, drive.rules = drive.rules, replace(drive.rules, times=None)
    drive.advance()
    drive.rules = good
    while drive.open:
        drive.close_all()
    assert len(drive.made) == 601


def test_19_the_last_completion_result_goes_by_when_runs_completed() -> None:
    """A (1..7), B (2..4) and C (3..5) overlap: each run is given what had completed last when it started."""
    drive = Drive(rules(overlapPolicy="AllowAll"))
    drive.until(T0 + 4 * M - S)
    drive.close(name(2), result="B")
    drive.until(T0 + 5 * M - S)
    drive.close(name(3), result="C")
    drive.until(T0 + 7 * M - S)
    drive.close(name(1), result="A")
    drive.until(T0 + 8 * M)
    results = {minute: drive.handed[name(minute)][0] for minute in range(1, 9)}
    assert results == {1: None, 2: None, 3: None, 4: "B", 5: "C", 6: "C", 7: "A", 8: "A"}


def test_results_that_are_seen_late_do_not_replace_newer_ones() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * M)
    drive.close(name(2), result="new", at=T0 + 2 * M)
    drive.close(name(1), result="old", at=T0 + 90 * S)
    assert drive.state.result == "new"


def test_19_a_failure_is_handed_on_until_a_success_clears_it() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    drive.close(name(1), result="first")
    drive.until(T0 + 2 * M)
    drive.close(name(2), RunOutcome.FAILED, message="no disk")
    drive.until(T0 + 3 * M)
    drive.close(name(3))
    drive.until(T0 + 4 * M)
    assert drive.handed[name(3)] == ("first", {"kind": "Application", "message": "no disk"})
    assert drive.handed[name(4)] == ("first", None)


def test_a_result_that_is_too_large_to_hand_on_is_told() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    drive.close(name(1), result="x" * 200_000)
    assert drive.state.result is None
    assert "PayloadTooLarge" in drive.told


def test_a_failed_run_is_started_again_by_the_retry_policy() -> None:
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
    assert drive.state.retry is None  # it would begin after the next time
    drive.edit(RetryPolicy(initial_interval=40 * S))
    drive.until(T0 + 2 * M)
    drive.close(name(2), RunOutcome.FAILED)
    assert drive.state.retry is not None
    drive.now = T0 + 3 * M  # the operator was away
    drive.advance()
    assert drive.state.retry is None or drive.minutes() == [1, 2, 2]


def test_a_time_that_starts_drops_a_retry_that_waits() -> None:
    drive = Drive(rules(RetryPolicy(initial_interval=40 * S), overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * M)
    drive.close(name(1), RunOutcome.FAILED)
    assert drive.state.retry is None  # not the newest
    drive.close(name(2), RunOutcome.FAILED)
    assert drive.state.retry is not None


HOURLY = ["0 * * * *"]
H = timedelta(hours=1)
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
def test_a_pause_drops_a_retry_that_waits(spec: dict[str, Any]) -> None:
    drive = failed(**spec)
    drive.advance(inp.SchedulePauseRequested(request_id="p"))
    drive.until(T0 + H + 30 * M)
    assert len(drive.made) == 1
    assert drive.state.retry is None


def test_a_pause_that_ends_in_the_same_pass_drops_a_retry_that_waits() -> None:
    drive = failed()
    drive.advance(inp.SchedulePauseRequested(request_id="p"), inp.ScheduleUnpauseRequested(request_id="u"))
    drive.until(T0 + H + 30 * M)
    assert len(drive.made) == 1


@pytest.mark.parametrize("spec", [{"cron": HOURLY}, {"cron": ["5 * * * *"]}])
def test_an_edit_that_pauses_drops_a_retry_that_waits(spec: dict[str, Any]) -> None:
    drive = failed()
    drive.edit(AGAIN, **spec, paused=True)
    drive.until(T0 + H + 30 * M)
    assert len(drive.made) == 1
    assert drive.state.retry is None


def test_the_last_action_is_retried_although_none_is_left() -> None:
    drive = failed(remainingActions=1)
    drive.until(T0 + 3 * H)
    assert drive.names()[1:] == [f"{drive.names()[0]}-r2"]


def test_with_allow_all_a_retry_starts_beside_others() -> None:
    drive = Drive(rules(AGAIN, cron=HOURLY, overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * H)
    drive.close(drive.names()[1], RunOutcome.FAILED)
    drive.until(T0 + 2 * H + 30 * M)
    assert len(drive.open) == 2
    assert drive.made[-1].started == T0 + 2 * H + M


def test_a_retry_that_is_late_leaves_its_place_to_the_next_time() -> None:
    drive = Drive(rules(AGAIN, cron=HOURLY))
    drive.until(T0 + H)
    drive.now = T0 + 2 * H - 2 * M
    drive.close(drive.names()[0], RunOutcome.FAILED)
    drive.now = T0 + 2 * H + 10 * S  # the operator was away in between
    drive.advance()
    assert [run.start.nominal for run in drive.made] == [T0 + H, T0 + 2 * H]
    assert drive.state.counts.overlap_skipped == 0


def test_a_time_that_is_skipped_ends_a_retry_that_waits() -> None:
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
    given = {"minBackoffDuration": "10s", "maxBackoffDuration": "10s", **policy}
    drive = Drive(rules(retry_rules(RetryRules.parse({"cloudScheduler": given})), cron=["0 * * * *"]))
    drive.now = T0 + timedelta(hours=1)
    drive.advance()
    while drive.open:
        drive.close(next(iter(drive.open)), RunOutcome.FAILED)
        drive.now += 10 * S
        drive.advance()
    assert len(drive.made) - 1 == want


def test_3_a_run_that_cannot_be_made_is_told_and_let_go() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    drive.advance(inp.RunRefused(name=name(1), message="spec.workflow: must be set"))
    assert drive.state.running == ()
    assert drive.state.recent[0].status == "Refused"
    assert "RunRefused" in drive.told


def test_a_run_whose_name_is_taken_gets_another_name() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    drive.open.clear()  # the object of that name is not the schedule's
    drive.advance(inp.NameTaken(name=name(1), uid="foreign"))
    [run] = drive.state.running
    assert run.name.startswith(f"{name(1)}-x")
    assert run.start.nominal == T0 + M
    assert drive.state.recent[0].name == run.name
    assert drive.state.counts.actions == 1
    assert "RunNameTaken" in drive.told
    assert run.name in drive.open
    # It is not started once more when times are looked at again, and what is known of the old name changes nothing.
    drive.edit(cron=["* * * * *"], catchupWindow="1h")
    drive.advance(inp.NameTaken(name=name(1), uid="foreign"))
    assert [each.name for each in drive.state.running] == [run.name]
    drive.close(run.name)
    assert drive.state.recent[0].status == "Completed"


def test_a_run_whose_names_are_all_taken_is_refused() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    names = []
    while drive.state.running:
        [run] = drive.state.running
        names.append(run.name)
        drive.advance(inp.NameTaken(name=run.name, uid=f"foreign-{len(names)}"))
    assert len(set(names)) == 6
    assert drive.state.recent[0].status == "Refused"
    assert "RunRefused" in drive.told


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


def test_the_same_refusal_is_reported_once() -> None:
    drive = Drive(rules())
    for minute in range(1, 4):
        drive.until(T0 + minute * M)
        drive.advance(inp.RunRefused(name=name(minute), message=f"WorkflowRun {name(minute)} is invalid: labels"))
    assert drive.told.count("RunRefused") == 1
    assert [each.status for each in drive.state.recent] == ["Refused"] * 3
    status = compose({}, drive.rules, drive.state, problem=None, generation=1, now=drive.now)
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RunRefused")
    assert "is invalid: labels" in ready["message"]
    assert name(3) not in ready["message"]
    drive.until(T0 + 4 * M)
    drive.advance(inp.RunMade(name=name(4), run_id="u-4"))
    assert drive.state.refused == ""
    drive.until(T0 + 5 * M)
    drive.advance(inp.RunRefused(name=name(5), message="a policy refuses it"))
    assert drive.told.count("RunRefused") == 2


def test_that_a_run_was_made_is_worth_no_commit_of_its_own() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    transition = drive.decide(inp.RunMade(name=name(1), run_id="u"))
    assert not transition.durable
    assert transition.state.running[0].run_id == "u"


def test_a_clock_that_jumps_forward_and_back_loses_and_doubles_nothing() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * M)
    drive.now = T0 + 60 * M  # an hour ahead
    drive.advance()
    assert drive.minutes() == [1, 2, 59, 60]
    drive.until(T0 + 61 * M)
    drive.now = T0 + 2 * M + 30 * S  # and back
    drive.until(T0 + 65 * M)
    assert sorted(drive.minutes()) == list(range(1, 66))


def test_a_clock_that_only_goes_back_doubles_nothing() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll"))
    drive.until(T0 + 10 * M)
    drive.now = T0 + 3 * M
    drive.until(T0 + 12 * M)
    assert drive.minutes() == list(range(1, 13))


def test_a_pause_while_the_clock_was_ahead_doubles_nothing() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll", catchupWindow="1h"))
    drive.until(T0 + M)
    drive.now = T0 + 5 * M
    drive.advance()
    drive.now = T0 + 6 * M
    drive.advance(inp.SchedulePauseRequested(request_id="p"))
    drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))
    drive.close_all()
    drive.now = T0 + M + S
    drive.until(T0 + 8 * M)
    assert drive.minutes() == list(range(1, 9))


def test_an_edit_while_the_clock_was_ahead_doubles_nothing() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll", catchupWindow="1h"))
    drive.until(T0 + M)
    drive.now = T0 + 5 * M
    drive.advance()
    drive.edit(cron=["* * * * *", "30 1 * * *"], overlapPolicy="AllowAll", catchupWindow="1h")
    drive.advance()
    drive.close_all()
    drive.now = T0 + M + S
    drive.until(T0 + 8 * M)
    assert drive.minutes() == list(range(1, 9))


def test_a_clock_that_was_ahead_twice_doubles_nothing() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll", catchupWindow="10m"))
    drive.until(T0 + M)
    for ahead in (5, 300):
        drive.now = T0 + ahead * M
        drive.advance()
    drive.close_all()
    drive.now = T0 + M + S
    drive.until(T0 + 12 * M)
    assert sorted(drive.minutes()) == [*range(1, 13), *range(290, 301)]


def test_a_clock_that_comes_back_before_a_start_is_due_with_jitter_does_not_lose_it() -> None:
    drive = Drive(rules(cron=HOURLY, jitter="50m"))
    drive.advance()
    assert drive.rules.times is not None
    due = next(drive.rules.times.dues(T0, drive.rules.seed))
    assert due.actual > due.nominal + 2 * M
    drive.now = T0 + 5 * H - M
    drive.advance()
    drive.now = due.nominal + M
    drive.advance()
    drive.until(due.actual)
    assert [run.start.nominal for run in drive.made] == [due.nominal]


def test_what_cannot_be_followed_starts_nothing_until_it_is_mended() -> None:
    drive = Drive(replace(rules(), times=None))
    drive.until(T0 + 10 * M)
    for request in (
        inp.Triggered(request_id="t"),
        inp.BackfillRequested(request_id="b", start=T0, end=T0 + M),
    ):
        answer = drive.advance(request)[request.request_id]
        assert (answer.ok, answer.reason) == (False, "InvalidSpec")
    assert drive.advance(inp.SchedulePauseRequested(request_id="p"))["p"].ok
    assert drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))["u"].ok
    drive.edit()
    drive.until(T0 + 11 * M)
    assert drive.minutes() == [11]
    assert drive.advance(inp.Triggered(request_id="again", overlap_policy=OverlapPolicy.ALLOW_ALL))["again"].ok


def test_12_a_run_triggered_beside_others_stays_when_those_are_cancelled() -> None:
    drive = Drive(rules(overlapPolicy="CancelOther"))
    drive.until(T0 + M)
    drive.now = T0 + 2 * M
    drive.advance(inp.Triggered(request_id="r", overlap_policy=OverlapPolicy.ALLOW_ALL))
    assert [(run.start.by_time, run.cancel) for run in drive.state.running] == [(True, True), (False, False)]
    assert [start.nominal for start in drive.state.buffer] == [T0 + 2 * M]


def test_a_backfill_whose_search_does_not_end_is_answered_and_keeps_nothing_else() -> None:
    drive = Drive(
        rules(cron=[], intervals=[{"every": "1s"}], exclude=[{"second": "0-59/2"}, {"second": "1-59/2"}], paused=True)
    )
    drive.now = T0 + timedelta(days=1)
    answer = drive.advance(inp.BackfillRequested(request_id="b", start=T0, end=T0 + timedelta(hours=9)))["b"]
    assert answer.ok
    assert "times in a row are excluded" in answer.message
    assert not drive.state.backfills
