import base64
import hashlib
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.reasons import ConditionReason
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.times import Times
from unit.schedule.oracle import utc


def times(**spec: Any) -> Times:
    return Times(ScheduleSpec.parse({**spec, "workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}}}))


def tzif(name: str) -> str:
    package, _, last = f"tzdata.zoneinfo.{name.replace('/', '.')}".rpartition(".")
    return base64.b64encode(resources.files(package).joinpath(last).read_bytes()).decode()


def shown(found: Times, after: datetime, count: int) -> list[str]:
    zone = ZoneInfo(found.zone.name)
    return [at.astimezone(zone).isoformat(" ", "minutes") for at in islice(found.nominal(after), count)]


@pytest.mark.parametrize(
    ("zone", "saving", "spring", "autumn"),
    [
        pytest.param(
            "Europe/Berlin",
            {},
            ["2026-03-28 02:30+01:00", "2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"],
            ["2026-10-24 02:30+02:00", "2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"],
            id="moved and once, as by default",
        ),
        pytest.param(
            "Europe/Berlin",
            {"skipped": "Skip", "repeated": "Both"},
            ["2026-03-28 02:30+01:00", "2026-03-30 02:30+02:00", "2026-03-31 02:30+02:00"],
            ["2026-10-24 02:30+02:00", "2026-10-25 02:30+02:00", "2026-10-25 02:30+01:00"],
            id="as Temporal does",
        ),
        pytest.param(
            "America/New_York",
            {},
            ["2026-03-28 02:30-04:00", "2026-03-29 02:30-04:00", "2026-03-30 02:30-04:00"],
            ["2026-10-24 02:30-04:00", "2026-10-25 02:30-04:00", "2026-10-26 02:30-04:00"],
            id="in another country on another day",
        ),
    ],
)
def test_8_half_past_two_around_both_changes_of_clocks(
    zone: str, saving: dict[str, str], spring: list[str], autumn: list[str]
) -> None:
    found = times(cron=["30 2 * * *"], timeZone=zone, daylightSaving=saving)
    assert shown(found, utc(2026, 3, 27, 12), 3) == spring
    assert shown(found, utc(2026, 10, 23, 12), 3) == autumn


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_a_year_of_half_past_two_has_one_time_for_each_day(zone: str) -> None:
    found = list(islice(times(cron=["30 2 * * *"], timeZone=zone).nominal(utc(2026, 1, 1)), 365))
    days = [at.astimezone(ZoneInfo(zone)).date() for at in found]
    assert days == [days[0] + timedelta(days=number) for number in range(365)]
    odd = [at for at in found if at.astimezone(ZoneInfo(zone)).strftime("%H:%M") != "02:30"]
    assert [at.astimezone(ZoneInfo(zone)).isoformat(" ", "minutes") for at in odd] == [
        {"Europe/Berlin": "2026-03-29 03:00+02:00", "America/New_York": "2026-03-08 03:00-04:00"}[zone]
    ]


def test_hours_by_star_or_step_are_real_hours() -> None:
    hourly = times(cron=["30 * * * *"], timeZone="Europe/Berlin")
    for day in (utc(2026, 3, 28), utc(2026, 10, 24)):
        gaps = {later - earlier for earlier, later in pairwise(islice(hourly.nominal(day), 60))}
        assert gaps == {timedelta(hours=1)}
    second = times(calendars=[{"hour": "0/2"}], timeZone="Europe/Berlin")
    assert shown(second, utc(2026, 3, 28, 23, 30), 2) == ["2026-03-29 04:00+02:00", "2026-03-29 06:00+02:00"]


def test_times_within_a_gap_happen_once_after_it() -> None:
    found = times(cron=["0,15,30 2 * * *", "0 3 * * *"], timeZone="Europe/Berlin")
    assert shown(found, utc(2026, 3, 28, 12), 2) == ["2026-03-29 03:00+02:00", "2026-03-30 02:00+02:00"]


def test_a_shifted_time_is_excluded_by_its_original_and_its_new_time() -> None:
    for hour in ("2", "3"):
        found = times(cron=["30 2 * * *"], exclude=[{"hour": hour}], timeZone="Europe/Berlin")
        assert "2026-03-29 03:00+02:00" not in shown(found, utc(2026, 3, 27), 3)


def test_5_start_and_end_are_inclusive() -> None:
    found = times(cron=["0 * * * *"], startTime="2026-01-01T05:00:00Z", endTime="2026-01-01T07:00:00Z")
    assert [at.hour for at in found.nominal(utc(2020, 1, 1))] == [5, 6, 7]
    later = times(cron=["0 * * * *"], startTime="2026-01-01T05:00:00.5Z", endTime="2026-01-01T06:59:59.9Z")
    assert [at.hour for at in later.nominal(utc(2020, 1, 1))] == [6]


def test_6_intervals_count_from_the_epoch_in_every_zone() -> None:
    found = times(intervals=[{"every": "6h", "offset": "5h"}], timeZone="Asia/Kolkata")
    assert [at.hour for at in islice(found.nominal(utc(2026, 1, 1)), 4)] == [5, 11, 17, 23]
    weekly = next(times(intervals=[{"every": "7d"}]).nominal(utc(2026, 1, 1)))
    assert weekly.timestamp() % (7 * 86_400) == 0


def test_7_both_days_of_a_cron_line_must_match() -> None:
    fridays = times(cron=["0 0 13 * 5"])
    assert [at.month for at in islice(fridays.nominal(utc(2026, 1, 1)), 3)] == [2, 3, 11]


def test_exclusions_can_cover_whole_days_and_everything() -> None:
    found = times(cron=["0 12 * * *"], exclude=[{"month": "12", "dayOfMonth": "25"}, {"dayOfWeek": "Sat,Sun"}])
    days = [at.day for at in islice(found.nominal(utc(2026, 12, 23)), 4)]
    assert days == [23, 24, 28, 29]
    assert not list(times(cron=["* * * * *"], exclude=[{}]).nominal(utc(2026, 1, 1)))
    assert not list(times(cron=["0 12 * * *"], exclude=[{"hour": "0-11/1"}, {"hour": "12"}]).nominal(utc(2026, 1, 1)))
    half = times(cron=["* * * * *"], exclude=[{"minute": "0/2"}, {"minute": "1/2", "month": "1-11"}])
    assert next(half.nominal(utc(2026, 1, 1))) == utc(2026, 12, 1, 0, 1)


def test_exclusions_that_together_cover_an_interval_are_an_error() -> None:
    found = times(intervals=[{"every": "1s"}], exclude=[{"second": "0/2"}, {"second": "1/2"}])
    with pytest.raises(InvalidTimesError, match="exclude whole hours or days"):
        next(found.nominal(utc(2026, 1, 1)))


def test_the_search_for_a_time_that_never_comes_ends() -> None:
    assert not list(times(cron=["0 0 30 2 *"]).nominal(utc(2026, 1, 1)))
    assert not list(times(calendars=[{"year": "1999"}]).nominal(utc(2026, 1, 1)))
    assert not list(times().nominal(utc(2026, 1, 1)))


def test_a_leap_day_on_a_given_weekday_is_found() -> None:
    found = times(calendars=[{"month": "2", "dayOfMonth": "29", "dayOfWeek": "Mon"}], timeZone="Europe/Berlin")
    assert [at.year for at in found.nominal(utc(2024, 3, 1))] == [2044, 2072]


def test_a_zone_as_data_is_like_the_zone_by_name() -> None:
    named = times(cron=["30 2 * * *"], timeZone="Europe/Berlin")
    data = times(cron=["30 2 * * *"], timeZoneData=tzif("Europe/Berlin"))
    assert list(islice(data.nominal(utc(2026, 1, 1)), 400)) == list(islice(named.nominal(utc(2026, 1, 1)), 400))
    assert data.canonical().time_zone == "embedded"


@pytest.mark.parametrize(
    ("spec", "reason", "want"),
    [
        ({"timeZone": "Europe/Berlim"}, "UnknownTimeZone", "did you mean `Europe/Berlin`"),
        ({"timeZone": "europe/berlin"}, "UnknownTimeZone", "did you mean `Europe/Berlin`"),
        ({"timeZone": "../../etc/passwd"[-9:]}, "UnknownTimeZone", "does not exist"),
        ({"timeZone": "America"}, "UnknownTimeZone", "does not exist"),
        ({"timeZoneData": "AAAA"}, "UnknownTimeZone", "spec.timeZoneData: is not TZif data"),
        ({"timeZoneData": base64.b64encode(b"TZif2" + bytes(200)).decode()}, "UnknownTimeZone", "is not TZif data"),
        ({"cron": ["TZ=Asia/Tokyo 0 0 * * *"], "timeZone": "UTC"}, "InvalidSpec", "one time zone, but there are"),
        (
            {"cron": ["TZ=UTC 0 0 * * *", "TZ=Mars/Base 0 0 * * *"]},
            "InvalidSpec",
            r"^spec.cron\[1\]: a Schedule has one",
        ),
        (
            {"cron": ["TZ=Mars/Base 0 0 * * *"]},
            "UnknownTimeZone",
            r"^spec.cron\[0\]: time zone `Mars/Base` does not exist",
        ),
        (
            {"cron": ["0 2 * * *", "0 25 * * *"]},
            "InvalidSpec",
            r"^spec.cron\[1\]: `0 25 .*`hour` is `25`: must be hours 0 to 23",
        ),
        ({"intervals": [{"every": "1500ms"}]}, "InvalidSpec", r"spec.intervals\[0\]: .*whole seconds"),
        ({"calendars": [{"month": "Janx"}]}, "InvalidSpec", r"spec.calendars\[0\].month: `Janx`"),
    ],
)
def test_an_invalid_spec_has_a_reason(spec: dict[str, Any], reason: str, want: str) -> None:
    with pytest.raises(InvalidTimesError, match=want) as caught:
        times(**spec)
    assert caught.value.reason == ConditionReason(reason)


def test_4_jitter_is_the_same_each_time_and_never_reaches_the_next_time() -> None:
    found = times(cron=["* * * * *"], jitter="10m")
    dues = list(islice(found.dues(utc(2026, 1, 1), "default/nightly"), 500))
    assert dues == list(islice(found.dues(utc(2026, 1, 1), "default/nightly"), 500))
    assert all(due.nominal <= due.actual < following.nominal for due, following in pairwise(dues))
    later = [(due.actual - due.nominal).total_seconds() for due in dues]
    assert 25 < sum(later) / len(later) < 35
    assert len(set(later)) > 450
    other = list(islice(found.dues(utc(2026, 1, 1), "default/weekly"), 500))
    assert [due.actual for due in other] != [due.actual for due in dues]
    assert [due.nominal for due in other] == [due.nominal for due in dues]
    # A search that starts later finds the same.
    assert list(islice(found.dues(dues[9].nominal, "default/nightly"), 10)) == dues[10:20]


def test_5_jitter_of_a_last_time_is_bounded_by_itself() -> None:
    found = times(cron=["0 0 1 1 *"], endTime="2027-01-01T00:00:00Z", jitter="1h")
    (due,) = found.dues(utc(2026, 6, 1), "a/b")
    assert timedelta(0) < due.actual - due.nominal < timedelta(hours=1), "it may come after the end"


def test_the_summary_omits_comments_but_no_part_of_a_field() -> None:
    found = times(cron=["0 0 * * MON#1  # first Monday", "0 6 * * *"])
    assert found.canonical().summary == "0 0 * * MON#1; 0 6 * * *"


def test_the_summary_is_cut() -> None:
    found = times(calendars=[{"hour": "1"}] * 100)
    assert len(found.canonical().summary) == 256
    assert times().canonical().summary == "when triggered"
    assert times(intervals=[{"every": "6h", "offset": "5h"}]).canonical().summary == "every 6h + 5h"
    assert times(calendars=[{"second": "5", "hour": "1, 2"}]).canonical().summary == "5 0 1,2 * * * *"


def test_the_hash_of_jitter_never_changes() -> None:
    found = times(cron=["0 0 * * *"], jitter="1h")
    due = next(found.dues(utc(2026, 1, 1), "default/nightly"))
    number = int.from_bytes(hashlib.sha256(b"default/nightly/1767312000").digest()[:8], "big")
    assert due.actual == datetime(2026, 1, 2, tzinfo=UTC) + timedelta(milliseconds=number * 3_600_000 >> 64)


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_a_search_can_start_at_any_instant(year: int) -> None:
    noon = times(cron=["0 12 * * *"], timeZone="America/New_York")
    found = next(noon.nominal(datetime(year, 1, 1, tzinfo=UTC)), None)
    assert found == (None if year == 9999 else utc(2000, 1, 1, 17))


def test_the_newest_time_up_to_an_instant() -> None:
    mondays = times(cron=["0 12 * * MON"])
    day = timedelta(days=1)
    assert mondays.latest(utc(2026, 1, 5, 12), day) == utc(2026, 1, 5, 12)
    assert mondays.latest(utc(2026, 1, 11, 12), 7 * day) == utc(2026, 1, 5, 12)
    assert mondays.latest(utc(2026, 1, 11, 12), day) is None
    assert mondays.latest(utc(2026, 1, 20), 365 * day) == utc(2026, 1, 19, 12)
    assert mondays.latest(utc(9999, 12, 31), day) is None
    assert mondays.previous(utc(9999, 12, 31)) is None


def test_all_steps_of_the_search_for_the_previous_time_share_one_budget() -> None:
    years = "2000-2023,2025-2047,2049-2100"
    hours = [{"hour": str(hour), "minute": "*", "second": "*", "year": years} for hour in range(24)]
    days = [{"year": "2024,2048", "month": "2-12"}, {"year": "2024,2048", "month": "1", "dayOfMonth": "2-31"}]
    rare = times(intervals=[{"every": "86400s"}], exclude=[*hours, *days])
    assert next(rare.nominal(utc(2026, 6, 1))) == utc(2048, 1, 1)
    with pytest.raises(InvalidTimesError, match="more than 10000 times in a row are excluded"):
        rare.previous(utc(2026, 6, 1))


EVERY_SECOND = [{"hour": "*", "minute": "*", "second": str(second)} for second in range(10)]


def test_exclusions_that_cover_everything_together_leave_nothing() -> None:
    found = times(calendars=EVERY_SECOND, exclude=[{"minute": str(minute)} for minute in range(60)])
    assert list(found.nominal(utc(2026, 1, 1))) == []


def test_exclusions_that_cover_some_days_together_leave_the_others() -> None:
    days = {"month": "1-11", "dayOfMonth": "1-30"}
    found = times(calendars=EVERY_SECOND, exclude=[{**days, "minute": "0-40"}, {"month": "1-11", "minute": "41-59"}])
    at = [utc(2026, 1, 31), utc(2026, 1, 31, 23, 40) + timedelta(seconds=9), utc(2026, 3, 31)]
    assert next(found.nominal(utc(2026, 1, 1))) == at[0]
    assert next(found.nominal(at[1])) == at[2]


def test_a_time_that_is_left_after_forty_years_is_found() -> None:
    found = times(calendars=[{"hour": "*"}], exclude=[{"hour": "0-11"}, {"hour": "12-23", "year": "2026-2065"}])
    assert next(found.nominal(utc(2026, 2, 1))) == utc(2066, 1, 1, 12)


@pytest.mark.parametrize(
    "exclude",
    [
        [{"dayOfMonth": str(day)} for day in range(1, 32)],
        [{"minute": str(minute), "dayOfMonth": days} for minute in range(50) for days in ("1-15", "16-31")],
    ],
    ids=["whole days", "parts of days"],
)
def test_a_search_among_exclusions_is_limited_by_its_cost(exclude: list[dict[str, str]]) -> None:
    many = [{"hour": "*", "minute": "0-49", "second": str(second % 60)} for second in range(100)]
    with pytest.raises(InvalidTimesError, match="takes too long"):
        list(times(calendars=many, exclude=exclude).nominal(utc(2026, 1, 1)))


@pytest.mark.parametrize(
    "spec",
    [
        {"cron": ["30 0-11 * * *", "30 12-23 * * *"]},
        {"calendars": [{"hour": "0-4,6-23", "minute": "30"}]},
    ],
    ids=["two lines", "without an hour"],
)
def test_each_calendar_decides_for_itself_whether_it_follows_elapsed_hours(spec: dict[str, Any]) -> None:
    """As docs/schedules.md says: the repeated 02:30 is left out, though all lines together have every hour."""
    found = [*islice(times(timeZone="Europe/Berlin", **spec).nominal(datetime(2026, 10, 25, 0, tzinfo=UTC)), 2)]
    assert [time.hour for time in found] == [0, 2]


@pytest.mark.parametrize("hours", ["*", "0-23", "*/1", "0-11,12-23", "0/2,1/2"])
def test_the_set_of_hours_decides_whether_a_calendar_follows_elapsed_hours(hours: str) -> None:
    """systemd#8647: spelled as 0-23, the hour that clocks repeat was left out."""
    every_ten_minutes = times(cron=[f"*/10 {hours} * * *"], timeZone="Europe/Berlin")
    found = islice(every_ten_minutes.nominal(datetime(2026, 10, 24, 22, tzinfo=UTC)), 60)
    gaps = {later - time for time, later in pairwise(found)}
    assert gaps == {timedelta(minutes=10)}
