"""Backfills and triggers: starts that someone has requested."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from perdure.api.policies import OverlapPolicy
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from unit.schedule.drive import HOURLY, T0, Drive, H, M, S, name, rules


def test_15_a_trigger_starts_a_run_during_a_pause_and_names_it() -> None:
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


def test_a_trigger_uses_the_overlap_policy_unless_it_has_its_own() -> None:
    drive = Drive(rules())
    drive.until(T0 + M)
    skipped = drive.advance(inp.Triggered(request_id="a"))["a"]
    assert (skipped.ok, skipped.reason) == (False, "OverlapSkipped")
    assert name(1) in skipped.message
    assert drive.advance(inp.Triggered(request_id="b", overlap_policy=OverlapPolicy.ALLOW_ALL))["b"].ok
    waits = drive.advance(inp.Triggered(request_id="c", overlap_policy=OverlapPolicy.BUFFER_ALL))["c"]
    assert waits.ok
    assert "earlier run" in waits.message


def test_14_a_backfill_starts_all_its_times_immediately() -> None:
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


def test_a_backfill_with_a_buffer_starts_one_run_after_the_other() -> None:
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


def test_a_backfill_never_includes_the_future() -> None:
    drive = Drive(rules(cron=["0 * * * *"], paused=True))
    drive.now = T0 + timedelta(hours=2)
    drive.advance(inp.BackfillRequested(request_id="b", start=T0, end=T0 + timedelta(hours=9)))
    assert len(drive.made) == 3


def test_a_backfill_that_starts_in_the_future_is_rejected() -> None:
    drive = Drive(rules(cron=["0 * * * *"]))
    later = T0 + timedelta(days=1)
    answer = drive.advance(inp.BackfillRequested(request_id="b", start=later, end=later + H))["b"]
    assert (answer.ok, answer.reason) == (False, "InvalidSpec")
    assert "is in the future" in answer.message
    assert drive.state.backfills == ()


def test_a_backfill_of_too_many_times_is_rejected() -> None:
    drive = Drive(rules())
    asked = inp.BackfillRequested(request_id="b", start=datetime(1, 1, 1, tzinfo=UTC), end=T0)
    answer = drive.advance(asked)["b"]
    assert (answer.ok, answer.reason) == (False, "InvalidSpec")
    assert "1970" in answer.message
    assert drive.state.backfills == ()


def test_a_backfill_waits_while_the_spec_is_invalid() -> None:
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


def test_12_a_triggered_run_is_not_cancelled_with_the_others() -> None:
    drive = Drive(rules(overlapPolicy="CancelOther"))
    drive.until(T0 + M)
    drive.now = T0 + 2 * M
    drive.advance(inp.Triggered(request_id="r", overlap_policy=OverlapPolicy.ALLOW_ALL))
    assert [(run.start.by_time, run.cancel) for run in drive.state.running] == [(True, True), (False, False)]
    assert [start.nominal for start in drive.state.buffer] == [T0 + 2 * M]


def test_a_backfill_with_a_too_long_search_is_rejected_and_blocks_nothing() -> None:
    drive = Drive(
        rules(cron=[], intervals=[{"every": "1s"}], exclude=[{"second": "0-59/2"}, {"second": "1-59/2"}], paused=True)
    )
    drive.now = T0 + timedelta(days=1)
    answer = drive.advance(inp.BackfillRequested(request_id="b", start=T0, end=T0 + timedelta(hours=9)))["b"]
    assert answer.ok
    assert "times in a row are excluded" in answer.message
    assert not drive.state.backfills


def test_a_backfill_has_at_most_its_maximum_concurrency_of_open_runs() -> None:
    """As `--parallel` of `argo cron backfill` and `max_active_runs` of Airflow."""
    drive = Drive(rules(cron=["0 * * * *"], overlapPolicy="AllowAll"))
    drive.now = T0 + 10 * M
    answer = drive.advance(
        inp.BackfillRequested(request_id="b", start=T0 - timedelta(hours=9), end=T0, max_concurrency=3)
    )["b"]
    assert "10 times" in answer.message
    assert "at most 3 of them at the same time" in answer.message
    started = 3
    while drive.open:
        assert len(drive.open) <= 3
        assert len(drive.made) == started
        drive.status = dict(drive.status)  # what survives a crash
        drive.close(min(drive.open), RunOutcome.FAILED)
        started = min(started + 1, 10)
    assert [run.start.nominal for run in drive.made] == [T0 - timedelta(hours=9 - hour) for hour in range(10)]
    assert drive.state.backfills == ()


def test_the_limit_of_a_backfill_counts_only_its_own_runs() -> None:
    drive = Drive(rules(cron=["0 * * * *"], overlapPolicy="AllowAll"))
    drive.now = T0 + 10 * M
    drive.advance(
        inp.BackfillRequested(request_id="a", start=T0 - timedelta(hours=3), end=T0, max_concurrency=1),
        inp.BackfillRequested(request_id="b", start=T0 - timedelta(hours=3), end=T0, max_concurrency=2),
    )
    assert sorted(run.start.request for run in drive.made) == ["a", "b", "b"]


def test_a_start_that_waited_for_longer_than_the_catchup_window_starts() -> None:
    """As the scheduler that Temporal's server uses by default (temporal: service/worker/scheduler, startWorkflow).

    The newer one (chasm/lib/scheduler, processBuffer) drops the start; see docs/from-temporal.md.
    """
    drive = Drive(rules(cron=["0 * * * *"], overlapPolicy="BufferAll", catchupWindow="10s"))
    drive.until(T0 + 3 * H)
    assert len(drive.made) == 1
    for _ in range(3):
        drive.now += 2 * M
        drive.close(min(drive.open))
    assert [run.start.nominal for run in drive.made] == [T0 + hour * H for hour in (1, 2, 3)]
    assert drive.state.counts.missed_catchup_window == 0
