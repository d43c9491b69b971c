from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure.api.policies import OverlapPolicy
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.status import compose
from perdure.schedule.step import next_wake
from unit.schedule.drive import HOURLY, T0, Drive, M, S, name, rules


def test_a_time_starts_a_run_that_is_named_after_it() -> None:
    drive = Drive(rules())
    drive.until(T0 + 2 * M)
    assert drive.names() == [name(1)]
    assert drive.state.last_scheduled == T0 + M
    assert drive.state.counts.actions == 1
    assert drive.state.recent[0].nominal == T0 + M


# A run is open from minute 1 on: the effect of each policy on minutes 2, 3 and 4, and on its close.


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
def test_11_12_13_overlap_policies(
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
def test_runs_of_allow_all_block_no_others_and_are_not_ended(policy: OverlapPolicy) -> None:
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


def test_11_buffered_starts_use_the_current_policy_unless_they_have_their_own() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 3 * M)
    drive.advance(inp.Triggered(request_id="own", overlap_policy=OverlapPolicy.BUFFER_ALL))
    assert len(drive.state.buffer) == 3
    drive.edit(overlapPolicy="Skip")
    drive.advance()
    assert [start.request for start in drive.state.buffer] == ["own"]
    assert drive.state.counts.overlap_skipped == 2


def test_buffered_starts_happen_one_after_the_other_in_order() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 4 * M)
    for minute in (1, 2, 3):
        assert drive.open == {name(minute)}
        drive.close(name(minute))
    assert drive.minutes() == [1, 2, 3, 4]


def test_14_buffered_starts_beyond_a_thousand_are_dropped_and_counted() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll", catchupWindow="1d"))
    drive.until(T0 + M)
    drive.now = T0 + 1_100 * M
    drive.advance()
    assert len(drive.state.buffer) == 1_000
    assert drive.state.counts.buffer_dropped == 99
    assert drive.reported.count("BufferDropped") >= 1


def test_skips_are_reported_once_for_each_open_run() -> None:
    drive = Drive(rules())
    drive.until(T0 + 5 * M)
    drive.close(name(1))
    drive.until(T0 + 8 * M)
    assert drive.reported.count("RunSkipped") == 2
    assert drive.state.counts.overlap_skipped == 6


def test_12_a_policy_uses_the_newest_of_several_due_times() -> None:
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
def test_2_after_downtime_times_within_the_window_start_and_others_are_missed(
    window: str, want: list[int], missed: int
) -> None:
    drive = Drive(rules(catchupWindow=window, overlapPolicy="AllowAll"))
    drive.advance()
    drive.now = T0 + 5 * M + 30 * S
    drive.advance()
    assert drive.minutes() == want
    assert drive.state.counts.missed_catchup_window == missed
    assert drive.reported.count("CatchupWindowMissed") == bool(missed)


@pytest.mark.parametrize(("late", "started"), [(timedelta(0), 1), (timedelta(milliseconds=1), 0)])
def test_2_the_window_counts_from_the_time_with_jitter_and_includes_its_end(late: timedelta, started: int) -> None:
    drive = Drive(rules(cron=HOURLY, jitter="20m", catchupWindow="1m"))
    drive.advance()
    assert drive.rules.times is not None
    due = next(drive.rules.times.dues(T0, drive.rules.seed))
    assert due.actual > due.nominal + M
    drive.now = due.actual + M + late
    drive.advance()
    assert [run.start.nominal for run in drive.made] == [due.nominal] * started
    assert drive.state.counts.missed_catchup_window == 1 - started


def test_a_long_downtime_is_processed_in_many_steps() -> None:
    drive = Drive(rules(cron=["@every 1s"]))
    drive.advance()
    drive.now = T0 + timedelta(hours=3)
    drive.advance()
    assert drive.state.counts.missed_catchup_window == 3 * 3600 - 61
    assert drive.state.counts.actions == 1
    assert drive.state.cursor == drive.now
    assert drive.commits > 10


def test_2_times_during_a_pause_are_neither_counted_nor_started_later() -> None:
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


def test_a_pause_that_ended_unobserved_starts_nothing_retroactively() -> None:
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
def test_20_an_edit_of_the_times_starts_nothing_retroactively(change: dict[str, Any]) -> None:
    drive = Drive(rules(cron=["0 0 1 1 *"], catchupWindow="1h"))
    drive.advance()
    drive.now = T0 + 10 * M + 30 * S
    drive.edit(**{"catchupWindow": "1h", **change})
    drive.advance()
    assert drive.minutes() == []
    drive.until(T0 + 12 * M + 6 * S)
    assert drive.minutes()[0] in {11, 12}


def test_an_edit_of_other_fields_skips_no_time() -> None:
    drive = Drive(rules())
    drive.advance()
    drive.now = T0 + M + S
    drive.edit(notes="on the second")
    drive.advance()
    assert drive.minutes() == [1]


def test_16_a_pause_drops_scheduled_starts_that_wait_and_keeps_requested_ones() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 3 * M)
    drive.advance(inp.Triggered(request_id="t"))
    drive.advance(inp.SchedulePauseRequested(request_id="p", reason="migration"))
    assert [start.request for start in drive.state.buffer] == ["t"]
    drive.close(name(1))
    assert len(drive.made) == 2
    assert drive.state.paused is not None
    assert drive.state.paused.reason == "migration"


def test_16_starts_dropped_by_a_pause_do_not_happen_when_it_ends() -> None:
    drive = Drive(rules(overlapPolicy="BufferAll"))
    drive.until(T0 + 3 * M)
    drive.advance(inp.SchedulePauseRequested(request_id="p"))
    drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))
    drive.close(name(1))
    assert drive.minutes() == [1]
    drive.until(T0 + 4 * M)
    assert drive.minutes() == [1, 4]


def test_pause_and_unpause_are_answered_and_applied_once() -> None:
    drive = Drive(rules())
    assert drive.advance(inp.SchedulePauseRequested(request_id="p"))["p"].ok
    assert drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))["u"].ok
    # The operator was killed before it recorded the answer, and repeats its request.
    assert drive.advance(inp.SchedulePauseRequested(request_id="p"))["p"].ok
    assert drive.state.paused is None
    drive.edit(paused=True)
    answer = drive.advance(inp.ScheduleUnpauseRequested(request_id="v"))["v"]
    assert (answer.ok, answer.reason) == (False, "PausedBySpec")
    assert [each.request for each in drive.state.answered] == ["p", "u", "v"]


def test_15_17_actions_run_out_and_requests_do_not_use_them_up() -> None:
    drive = Drive(rules(remainingActions=2, overlapPolicy="AllowAll"))
    drive.advance(inp.Triggered(request_id="t"))
    drive.until(T0 + 5 * M)
    assert drive.minutes() == [0, 1, 2]
    assert drive.state.remaining == 0
    assert drive.reported.count("OutOfActions") == 1
    drive.edit(remainingActions=1, overlapPolicy="AllowAll")
    drive.until(T0 + 7 * M)
    assert drive.minutes() == [0, 1, 2, 6]


def test_17_a_schedule_without_actions_is_kept_and_continues_with_new_ones() -> None:
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


def test_19_the_last_completion_result_is_that_of_the_run_that_completed_last() -> None:
    """A (1..7), B (2..4) and C (3..5) overlap: each run gets the result of the last completed run at its start."""
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


def test_19_a_failure_is_passed_on_until_a_success_clears_it() -> None:
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


def test_a_result_that_is_too_large_to_pass_on_is_reported() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    drive.close(name(1), result="x" * 200_000)
    assert drive.state.result is None
    assert "PayloadTooLarge" in drive.reported


def test_3_a_run_that_cannot_be_created_is_reported_and_dropped() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    drive.advance(inp.RunRefused(name=name(1), message="spec.workflow: must be set"))
    assert drive.state.running == ()
    assert drive.state.recent[0].status == "Refused"
    assert "RunRefused" in drive.reported


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
    assert "RunNameTaken" in drive.reported
    assert run.name in drive.open
    # It is not started again when times are searched again, and another report about the old name changes nothing.
    drive.edit(cron=["* * * * *"], catchupWindow="1h")
    drive.advance(inp.NameTaken(name=name(1), uid="foreign"))
    assert [each.name for each in drive.state.running] == [run.name]
    drive.close(run.name)
    assert drive.state.recent[0].status == "Completed"


def test_a_run_without_a_free_name_is_rejected() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    names = []
    while drive.state.running:
        [run] = drive.state.running
        names.append(run.name)
        drive.advance(inp.NameTaken(name=run.name, uid=f"foreign-{len(names)}"))
    assert len(set(names)) == 6
    assert drive.state.recent[0].status == "Refused"
    assert "RunRefused" in drive.reported


def test_the_same_refusal_is_reported_once() -> None:
    drive = Drive(rules())
    for minute in range(1, 4):
        drive.until(T0 + minute * M)
        drive.advance(inp.RunRefused(name=name(minute), message=f"WorkflowRun {name(minute)} is invalid: labels"))
    assert drive.reported.count("RunRefused") == 1
    assert [each.status for each in drive.state.recent] == ["Refused"] * 3
    status = compose({}, drive.rules, drive.state, problem=None, generation=1, now=drive.now)
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RunRefused")
    assert "is invalid: labels" in ready["message"]
    assert name(3) not in ready["message"]
    drive.until(T0 + 4 * M)
    drive.advance(inp.RunCreated(name=name(4), run_id="u-4"))
    assert drive.state.refused == ""
    drive.until(T0 + 5 * M)
    drive.advance(inp.RunRefused(name=name(5), message="a policy refuses it"))
    assert drive.reported.count("RunRefused") == 2


def test_the_creation_of_a_run_alone_needs_no_commit() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    transition = drive.decide(inp.RunCreated(name=name(1), run_id="u"))
    assert not transition.durable
    assert transition.state.running[0].run_id == "u"


def test_an_invalid_spec_starts_nothing_until_it_is_fixed() -> None:
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


# --- Starts that jitter delays (kubernetes#130838) ---------------------------------------------------------------------


def delayed() -> tuple[Drive, datetime, datetime]:
    """An hourly schedule with jitter, in the middle between a time and its start; the schedule, the time, and its start."""
    drive = Drive(rules(cron=HOURLY, jitter="20m"))
    assert drive.rules.times is not None
    due = next(drive.rules.times.dues(T0, drive.rules.seed))
    drive.advance()
    drive.now = due.nominal + (due.actual - due.nominal) / 2
    return drive, due.nominal, due.actual


@pytest.mark.parametrize(
    "change",
    [{"timeZone": "Asia/Kolkata", "jitter": "20m"}, {"jitter": "1m"}, {}, {"cron": ["30 4 * * *"]}],
    ids=["zone", "less jitter", "no jitter", "other times"],
)
def test_a_delayed_start_survives_an_edit_of_the_times(change: dict[str, Any]) -> None:
    drive, nominal, actual = delayed()
    drive.edit(**{"cron": HOURLY, **change})
    drive.advance()
    assert next_wake(drive.rules, drive.state, drive.now) == actual
    drive.edit(cron=["15 3 * * *"])
    drive.until(actual - S)
    assert drive.made == []
    drive.until(actual + S)
    assert [run.start.nominal for run in drive.made] == [nominal]
    assert drive.state.delayed == ()


def test_a_delayed_start_that_an_outage_delays_further_is_missed_after_the_window() -> None:
    drive, _, actual = delayed()
    drive.edit(cron=["30 4 * * *"], catchupWindow="1m")
    drive.advance()
    drive.now = actual + M + S
    drive.advance()
    assert drive.made == []
    assert drive.state.counts.missed_catchup_window == 1


def test_a_delayed_start_survives_a_raised_limit_and_the_end_of_a_pause() -> None:
    for before, after in (({"remainingActions": 0}, {"remainingActions": 5}), ({"paused": True}, {})):
        drive, nominal, actual = delayed()
        between, drive.now, drive.status = drive.now, T0, {}
        drive.edit(cron=HOURLY, jitter="20m", **before)
        drive.advance()
        drive.now = between
        drive.edit(cron=HOURLY, jitter="20m", **after)
        drive.until(actual + S)
        assert [run.start.nominal for run in drive.made] == [nominal]


@pytest.mark.parametrize("by", ["spec", "operation", "edit"])
def test_a_pause_drops_a_delayed_start_with_an_event(by: str) -> None:
    drive, nominal, actual = delayed()
    if by == "operation":
        drive.advance(inp.SchedulePauseRequested(request_id="p"))
    else:
        drive.edit(cron=HOURLY if by == "spec" else ["30 4 * * *"], jitter="20m", paused=True)
        drive.advance()
    assert drive.state.counts.missed_catchup_window == 1
    assert "CatchupWindowMissed" in drive.reported
    drive.now += (actual - drive.now) / 2
    if by == "operation":
        drive.advance(inp.ScheduleUnpauseRequested(request_id="u"))
    drive.edit(cron=HOURLY, jitter="20m")
    drive.until(nominal + timedelta(minutes=59))
    assert drive.made == []
    assert drive.state.counts.missed_catchup_window == 1


# --- Catch-up policy (kestra#3000) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [1, 30, 2_500])
def test_with_the_policy_latest_only_the_newest_missed_time_starts(minutes: int) -> None:
    drive = Drive(rules(catchupWindow="10d", catchupPolicy="Latest", overlapPolicy="AllowAll"))
    drive.advance()
    drive.now = T0 + minutes * M + S
    drive.advance()
    assert [run.start.nominal for run in drive.made] == [T0 + minutes * M]
    assert drive.state.counts.missed_catchup_window == minutes - 1
    assert ("CatchupWindowMissed" in drive.reported) is (minutes > 1)
