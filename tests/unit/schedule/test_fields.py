from datetime import UTC, datetime

import pytest

from perdure.api.kinds.schedule import Calendar, Interval, ScheduleSpec
from perdure.schedule import calendar
from perdure.schedule.calendar import InvalidTimesError, read_field
from perdure.schedule.times import Times, read_cron


def values(kind: calendar.Field, text: str) -> list[int]:
    found = read_field(kind, text)
    return [value for value in range(found.bit_length()) if found >> value & 1]


@pytest.mark.parametrize(
    ("kind", "text", "want"),
    [
        (calendar.MINUTE, "*", list(range(60))),
        (calendar.MINUTE, "0/15", [0, 15, 30, 45]),
        (calendar.MINUTE, "50/90", [50]),
        (calendar.HOUR, "9-17/4,20", [9, 13, 17, 20]),
        (calendar.HOUR, "22-2", [0, 1, 2, 22, 23]),
        (calendar.MONTH, "Jan, apr,JULY , Sept-nov", [1, 4, 7, 9, 10, 11]),
        (calendar.MONTH, "11-2", [1, 2, 11, 12]),
        (calendar.DAY_OF_WEEK, "7", [0]),
        (calendar.DAY_OF_WEEK, "Fri-Sun", [0, 5, 6]),
        (calendar.DAY_OF_WEEK, "5-7", [0, 5, 6]),
        (calendar.DAY_OF_WEEK, "0-7", [0, 1, 2, 3, 4, 5, 6]),
        (calendar.DAY_OF_WEEK, "su,tues", [0, 2]),
        (calendar.DAY_OF_WEEK, "7-2", [0, 1, 2]),
        (calendar.DAY_OF_WEEK, "1/2", [1, 3, 5]),
        (calendar.DAY_OF_MONTH, "31-2", [1, 2, 31]),
        (calendar.YEAR, "1990-2001,2100-9999", [2000, 2001, 2100]),
        (calendar.YEAR, "1066", []),
    ],
)
def test_10_a_field_is_read_into_a_set(kind: calendar.Field, text: str, want: list[int]) -> None:
    assert values(kind, text) == want


@pytest.mark.parametrize(
    ("kind", "text", "want"),
    [
        (calendar.MINUTE, "0/0", "minute: the step in `0/0` must be a number of at least 1"),
        (calendar.HOUR, "24", "hour: `24` is not in 0 to 23"),
        (calendar.DAY_OF_WEEK, "8", "dayOfWeek: `8` is not in 0 to 7"),
        (calendar.MONTH, "Janx", "month: `Janx` is not a value, a range or a step"),
        (calendar.YEAR, "2028-2026", "year: the range `2028-2026` ends before it starts"),
        (calendar.MINUTE, "3/5/7", "minute: the step in `3/5/7` must be a number of at least 1"),
    ],
)
def test_10_an_invalid_field_is_rejected_with_its_name(kind: calendar.Field, text: str, want: str) -> None:
    with pytest.raises(InvalidTimesError) as caught:
        read_field(kind, text)
    assert str(caught.value) == want


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("0 12 * * MON-FRI", Calendar(second="0", minute="0", hour="12", day_of_week="MON-FRI")),
        (
            "5 4 * * sunday 2027 # once a week",
            Calendar(minute="5", hour="4", day_of_week="SUN", year="2027", comment="once a week"),
        ),
        ("0 0 * * su", Calendar(day_of_week="su")),
        ("*/10 5 4 ? * * 2026/2", Calendar(second="*/10", minute="5", hour="4", year="2026/2")),
        ("@daily", Calendar(hour="0", minute="0")),
        ("@hourly", Calendar(hour="*")),
        ("@weekly", Calendar(day_of_week="0")),
        ("@monthly", Calendar(day_of_month="1")),
        ("@yearly", Calendar(day_of_month="1", month="1")),
    ],
)
def test_10_a_cron_line_becomes_a_calendar(line: str, want: Calendar) -> None:
    assert read_cron(line).times == want


def test_10_every_becomes_an_interval_and_a_prefix_a_zone() -> None:
    read = read_cron("  CRON_TZ=Europe/Berlin  @every 90m/5m # often")
    assert read.times == Interval.parse({"every": "1h30m", "offset": "5m"})
    assert read.time_zone == "Europe/Berlin"
    assert read_cron("TZ=Asia/Tokyo 0 0 1 1 *").time_zone == "Asia/Tokyo"
    assert read_cron("@every 1d").times == Interval.parse({"every": "1d"})


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("* * * *", "has 4 fields"),
        ("H 0 * * *", "`H` is not supported; to spread starts, set `jitter`"),
        ("0 24 * * *", "`0 24 [*] [*] [*]`: `hour` is `24`: must be hours 0 to 23"),
        ("*/0 * * * *", "`minute`: the step in `[*]/0` must be a number of at least 1"),
        ("0 0 32 1 *", "`dayOfMonth` is `32`: must be days of the month 1 to 31"),
        ("99 0 0 1 1 * *", "second"),
        ("0 0 1 1 * 1x", "`year` is `1x`: must be years, such as"),
        ("@every 500ms", "at least 1s"),
        ("@every 1500ms", "whole seconds"),
        ("@every 5m/5m", "longer than the phase"),
        ("@every soon", "must be a duration"),
    ],
)
def test_an_invalid_cron_line_is_rejected_with_a_sentence(line: str, want: str) -> None:
    with pytest.raises(InvalidTimesError, match=want):
        read_cron(line)


def test_the_canonical_form_means_the_same() -> None:
    template = {"spec": {"workflow": {"name": "none"}}}
    parsed = ScheduleSpec.parse(
        {
            "cron": ["CRON_TZ=Europe/Berlin 30 2,14 * * MON-FRI # work", "@every 7h/5m"],
            "intervals": [{"every": "5h"}],
            "calendars": [{"hour": "*/5", "minute": "10-20/5"}],
            "exclude": [{"dayOfWeek": "Wed"}],
            "workflowRunTemplate": template,
        }
    )
    times = Times(parsed)
    canonical = times.canonical()
    assert canonical.time_zone == "Europe/Berlin"
    assert canonical.summary == "CRON_TZ=Europe/Berlin 30 2,14 * * MON-FRI; @every 7h/5m; every 5h; 10-20/5 */5 * * *"
    again = Times(
        ScheduleSpec.parse(
            {
                **{key: value for key, value in canonical.dump().items() if key != "summary"},
                "workflowRunTemplate": template,
            }
        )
    )
    start = datetime(2026, 3, 1, tzinfo=UTC)
    assert [at for at, _ in zip(again.nominal(start), range(300), strict=False)] == [
        at for at, _ in zip(times.nominal(start), range(300), strict=False)
    ]


def firsts(spec: dict[str, object], year: int = 2026, count: int = 12) -> list[str]:
    fields = {"timeZone": "UTC", "workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}}, **spec}
    times = Times(ScheduleSpec.parse(fields)).nominal(datetime(year - 1, 12, 31, 23, 59, 59, tzinfo=UTC))
    return [time.strftime("%m-%d") for _, time in zip(range(count), times, strict=False)]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("0 0 L * *", ["01-31", "02-28", "03-31", "04-30"]),
        ("0 0 L-2 * *", ["01-29", "02-26", "03-29", "04-28"]),
        ("0 0 LW * *", ["01-30", "02-27", "03-31", "04-30", "05-29"]),
        ("0 0 15W * *", ["01-15", "02-16", "03-16", "04-15", "05-15"]),
        ("0 0 1W * *", ["01-01", "02-02", "03-02", "04-01", "05-01"]),
        ("0 0 31W * *", ["01-30", "03-31", "05-29"]),
        ("0 0 * * MON#1", ["01-05", "02-02", "03-02", "04-06"]),
        ("0 0 * * 5#5", ["01-30", "05-29", "07-31"]),
        ("0 0 * * FRIL", ["01-30", "02-27", "03-27", "04-24"]),
        ("0 0 * * L5", ["01-30", "02-27", "03-27", "04-24"]),
        ("0 0 * * 7L", ["01-25", "02-22", "03-29", "04-26"]),
        ("0 0 1,L 2 *", ["02-01", "02-28"]),
        ("0 0 13 * FRI#2", ["02-13", "03-13", "11-13"]),
        ("0 0 L * * # month-end", ["01-31", "02-28"]),
    ],
)
def test_10_a_cron_line_names_days_that_depend_on_the_month(line: str, want: list[str]) -> None:
    assert firsts({"cron": [line]}, count=len(want)) == want


def test_10_calendars_and_exclusions_can_name_days_that_depend_on_the_month() -> None:
    assert firsts({"calendars": [{"dayOfMonth": "L", "month": "Feb"}]}, 2028, 1) == ["02-29"]
    assert firsts({"calendars": [{"dayOfWeek": "Mon#1,FriL"}]}, count=4) == ["01-05", "01-30", "02-02", "02-27"]
    left = firsts({"cron": ["0 0 * * *"], "exclude": [{"dayOfMonth": "LW"}]}, count=59)
    assert ("01-30" in left, "01-31" in left, "02-27" in left, len(left)) == (False, True, False, 59)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("0 0 32W * *", "`dayOfMonth` is `32W`: must be days of the month 1 to 31"),
        ("0 0 L-28 * *", "`L-28` is more than 27 days before the last day of a month"),
        ("0 0 MON#1 * *", "`dayOfMonth` is `MON#1`: must be days of the month"),
        ("0 0 * * LW", "`dayOfWeek` is `LW`: must be days of the week"),
        ("0 0 * * MON#6", "`dayOfWeek` is `MON#6`: must be days of the week"),
        ("H/15 0 * * *", "set `jitter`"),
        ("0 0 W * *", "`dayOfMonth` is `W`: must be days of the month"),
        ("0 0 * * MON-FRI#1", "`dayOfWeek` is `MON-FRI#1`: must be days of the week"),
    ],
)
def test_10_other_forms_are_rejected_with_the_correct_form(line: str, want: str) -> None:
    with pytest.raises(InvalidTimesError) as caught:
        read_cron(line)
    assert want in str(caught.value)
