"""A Schedule whose clock jumps forward and back."""

from perdure.schedule import inputs as inp
from unit.schedule.drive import HOURLY, T0, Drive, H, M, S, rules


def test_a_clock_that_jumps_forward_and_back_skips_and_repeats_no_time() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll"))
    drive.until(T0 + 2 * M)
    drive.now = T0 + 60 * M  # an hour ahead
    drive.advance()
    assert drive.minutes() == [1, 2, 59, 60]
    drive.until(T0 + 61 * M)
    drive.now = T0 + 2 * M + 30 * S  # and back
    drive.until(T0 + 65 * M)
    assert sorted(drive.minutes()) == list(range(1, 66))


def test_a_clock_that_only_goes_back_repeats_no_time() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll"))
    drive.until(T0 + 10 * M)
    drive.now = T0 + 3 * M
    drive.until(T0 + 12 * M)
    assert drive.minutes() == list(range(1, 13))


def test_a_pause_while_the_clock_was_ahead_repeats_no_time() -> None:
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


def test_an_edit_while_the_clock_was_ahead_repeats_no_time() -> None:
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


def test_a_clock_that_was_ahead_twice_repeats_no_time() -> None:
    drive = Drive(rules(overlapPolicy="AllowAll", catchupWindow="10m"))
    drive.until(T0 + M)
    for ahead in (5, 300):
        drive.now = T0 + ahead * M
        drive.advance()
    drive.close_all()
    drive.now = T0 + M + S
    drive.until(T0 + 12 * M)
    assert sorted(drive.minutes()) == [*range(1, 13), *range(290, 301)]


def test_a_clock_that_goes_back_before_a_start_with_jitter_does_not_skip_it() -> None:
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
