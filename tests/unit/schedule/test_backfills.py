"""Backfills and triggers: starts that someone has requested."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from perdure.api.kinds.schedule import ScheduleStatus
from perdure.api.policies import OverlapPolicy
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.requests import MAX_BACKFILLS
from perdure.schedule.status import compose
from perdure.schedule.step import ScheduleTransition, step
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


def test_too_many_backfills_in_progress_are_refused() -> None:
    drive = Drive(rules(cron=HOURLY))
    drive.now = T0 + 10 * M
    first = inp.BackfillRequested(request_id="b", start=T0 - 700 * H, end=T0, overlap_policy=OverlapPolicy.BUFFER_ALL)
    drive.advance(first)
    (backfill,) = drive.state.backfills
    full = msgspec.structs.replace(
        drive.state,
        backfills=tuple(msgspec.structs.replace(backfill, request=str(number)) for number in range(MAX_BACKFILLS)),
    )
    found = step(drive.rules, full, [replace(first, request_id="c")], drive.now)
    answer = found.answers["c"]
    assert (answer.ok, answer.reason) == (False, "TooManyBackfills")
    assert "1000 backfills are in progress" in answer.message
    assert found.state.backfills == full.backfills


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


def backfill(start: datetime, end: datetime, **more: Any) -> inp.BackfillRequested:
    return inp.BackfillRequested(request_id="b", start=start, end=end, **more)


def step_once(drive: Drive, *happened: inp.ScheduleInput) -> ScheduleTransition:
    """One reconciliation, as the operator does it between two looks at its requests."""
    transition = drive.decide(*happened)
    drive.commit(transition)
    drive.do()
    return transition


PAUSE = inp.SchedulePauseRequested(request_id="p")
UNPAUSE = inp.ScheduleUnpauseRequested(request_id="u")
CANCEL = inp.BackfillsCancelRequested(request_id="c", reason="wrong day")


def test_a_pause_takes_effect_between_two_groups_of_a_backfill_that_starts_all_its_runs() -> None:
    """Two days of new users: a pause waited until 288 runs had started, for 18 s."""
    drive = Drive(rules(cron=["*/5 * * * *"]))
    drive.now = T0 + timedelta(days=1, minutes=2)
    drive.advance()
    first = step_once(drive, backfill(T0, T0 + timedelta(days=1)))
    assert (len(drive.made), first.more) == (10, True)
    assert step_once(drive).more
    paused = step_once(drive, PAUSE)
    assert paused.answers["p"].message.endswith("and no further runs of the backfill in progress")
    assert (len(drive.made), paused.more) == (20, False)
    drive.close_all()
    drive.advance()
    assert len(drive.made) == 20
    (held,) = status_of(drive)["backfills"]
    assert (held["held"], held["handledUntil"]) == (True, "2026-01-01T01:35:00Z")
    drive.advance(UNPAUSE)
    assert len(drive.made) == 289
    assert drive.state.backfills == ()
    assert "backfills" not in status_of(drive)


@pytest.mark.parametrize("policy", [OverlapPolicy.BUFFER_ALL, OverlapPolicy.SKIP])
def test_a_pause_holds_the_starts_of_a_backfill_that_wait_in_the_buffer(policy: OverlapPolicy) -> None:
    drive = Drive(rules(cron=HOURLY))
    drive.now = T0 + 30 * M
    drive.advance(backfill(T0 - 9 * H, T0, overlap_policy=OverlapPolicy.BUFFER_ALL))
    drive.advance(inp.Triggered(request_id="t", overlap_policy=OverlapPolicy.BUFFER_ALL))
    assert (len(drive.made), len(drive.state.buffer)) == (1, 10)
    drive.advance(PAUSE)
    assert [start.request for start in drive.state.buffer] == ["t"]
    for _ in range(3):
        drive.close_all()
    assert len(drive.made) == 2
    drive.edit(cron=HOURLY, overlapPolicy=policy.value)  # the backfill keeps its own
    drive.advance(UNPAUSE)
    while drive.open:
        drive.close_all()
    assert [run.start.nominal for run in drive.made if run.start.request == "b"] == [
        T0 - n * H for n in range(9, -1, -1)
    ]


def test_a_failure_that_pauses_the_schedule_holds_its_backfills() -> None:
    drive = Drive(rules(cron=HOURLY, pauseOnFailure=True))
    drive.now = T0 + 30 * M
    drive.advance(backfill(T0 - 9 * H, T0, max_concurrency=2))
    drive.close(min(drive.open), RunOutcome.FAILED)
    drive.close_all()
    assert len(drive.made) == 2
    drive.advance(UNPAUSE)
    while drive.open:
        drive.close_all()
    assert len(drive.made) == 10


def test_a_backfill_that_is_requested_during_a_pause_starts_and_the_next_pause_holds_it() -> None:
    drive = Drive(rules(cron=HOURLY))
    drive.now = T0 + 30 * M
    drive.advance(PAUSE)
    drive.advance(backfill(T0 - 9 * H, T0, max_concurrency=2))
    drive.close_all()
    assert len(drive.made) == 4
    drive.advance(inp.SchedulePauseRequested(request_id="again"))
    drive.close_all()
    assert len(drive.made) == 4


def test_a_pause_in_the_spec_does_not_hold_a_backfill() -> None:
    """As on Temporal's server, whose clients pause a Schedule in its spec."""
    drive = Drive(rules(cron=HOURLY))
    drive.now = T0 + 30 * M
    drive.advance(backfill(T0 - 9 * H, T0, max_concurrency=2))
    drive.edit(cron=HOURLY, paused=True)
    while drive.open:
        drive.close_all()
    assert len(drive.made) == 10


@pytest.mark.parametrize("policy", [OverlapPolicy.ALLOW_ALL, OverlapPolicy.BUFFER_ALL])
def test_a_cancelled_backfill_starts_no_further_runs(policy: OverlapPolicy) -> None:
    drive = Drive(rules(cron=HOURLY))
    drive.now = T0 + 30 * M
    drive.advance()
    step_once(drive, backfill(T0 - 99 * H, T0, overlap_policy=policy))
    step_once(drive, inp.Triggered(request_id="t", overlap_policy=OverlapPolicy.BUFFER_ALL))
    started = len([run for run in drive.made if run.start.request == "b"])
    cancelled = drive.advance(CANCEL)["c"]
    assert cancelled.ok
    assert "2025-12-27T21:00:00Z to 2026-01-01T00:00:00Z" in cancelled.message
    assert drive.reported.count("BackfillCancelled") == 1
    assert drive.state.backfills == ()
    while drive.open:
        drive.close_all()
    assert len([run for run in drive.made if run.start.request == "b"]) == started
    assert len([run for run in drive.made if run.start.request == "t"]) == 1
    assert "no backfill is in progress" in drive.advance(replace(CANCEL, request_id="d"))["d"].message


def test_the_status_shows_a_backfill_in_progress() -> None:
    drive = Drive(rules(cron=HOURLY))
    drive.now = T0 + 30 * M
    drive.advance(backfill(T0 - 9 * H, T0, overlap_policy=OverlapPolicy.BUFFER_ALL))
    drive.close_all()
    want = {
        "startTime": "2025-12-31T15:00:00Z",
        "endTime": "2026-01-01T00:00:00Z",
        "handledUntil": "2026-01-01T00:00:00Z",
        "buffered": 8,
        "overlapPolicy": "BufferAll",
    }
    assert status_of(drive)["backfills"] == [want]
    ScheduleStatus.parse(status_of(drive))


def test_next_to_operators_of_an_earlier_release_a_backfill_is_stored_as_they_know_it() -> None:
    drive = Drive(replace(rules(cron=HOURLY), shows_backfills=False))
    drive.now = T0 + 30 * M
    drive.advance(backfill(T0 - 9 * H, T0, max_concurrency=2))
    drive.advance(PAUSE)
    assert drive.status["state"]["backfills"][0].keys() == {"request", "after", "end", "policy", "maxConcurrency"}
    assert "backfills" not in status_of(drive)
    drive.rules = replace(drive.rules, shows_backfills=True)
    while drive.open:
        drive.close_all()
    assert len(drive.made) == 10


def status_of(drive: Drive) -> dict[str, Any]:
    return compose({}, drive.rules, drive.state, problem=None, generation=1, now=drive.now)
