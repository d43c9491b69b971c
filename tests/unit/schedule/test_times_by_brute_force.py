"""The times of thousands of random specs are those that a walk through every minute finds.

PERDURE_LONG=1 tries ten times as many.
"""

import os
import random
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.schedule.times import Times
from unit.schedule.oracle import brute_force, spec, utc, walk

CASES = 1_500 if os.environ.get("PERDURE_LONG") else 150
DAYS = 1
ODD = {
    "Lord Howe, half an hour back": ("Australia/Lord_Howe", utc(2026, 4, 4, 3)),
    "Lord Howe, half an hour forward": ("Australia/Lord_Howe", utc(2026, 10, 3, 3)),
    "Apia, a day left out": ("Pacific/Apia", utc(2011, 12, 29, 20)),
    "Casablanca, before Ramadan": ("Africa/Casablanca", utc(2026, 2, 14, 14)),
    "Casablanca, after Ramadan": ("Africa/Casablanca", utc(2026, 3, 21, 14)),
    "Troll, two hours forward": ("Antarctica/Troll", utc(2026, 3, 28, 12)),
    "Troll, two hours back": ("Antarctica/Troll", utc(2026, 10, 24, 12)),
    "Sao Paulo, no midnight": ("America/Sao_Paulo", utc(2017, 10, 14, 16)),
    "Sao Paulo, two midnights": ("America/Sao_Paulo", utc(2018, 2, 17, 14)),
    "Dublin, where winter is the exception": ("Europe/Dublin", utc(2026, 10, 24, 12)),
    "Berlin forward": ("Europe/Berlin", utc(2026, 3, 28, 12)),
    "New York back": ("America/New_York", utc(2026, 10, 31, 18)),
    "Pyongyang, half an hour forward": ("Asia/Pyongyang", utc(2018, 5, 4, 3)),
    "UTC": ("UTC", utc(2027, 12, 31, 12)),
}


@pytest.mark.parametrize("name", ODD)
def test_times_around_an_odd_change_of_clocks_are_those_of_brute_force(name: str) -> None:
    zone, start = ODD[name]
    minutes = walk(zone, start, DAYS)
    assert zone == "UTC" or any(wall.again or wall.skipped for wall in minutes)
    end = start + timedelta(days=DAYS)
    chance = random.Random(name)
    some = 0
    for _ in range(CASES):
        wanted = spec(chance)
        times = Times(ScheduleSpec.parse(wanted.json(zone, end - timedelta(seconds=1))))
        found = list(times.nominal(start - timedelta(microseconds=1)))
        assert found == brute_force(wanted, minutes), wanted
        some += bool(found)
        if found:
            # A search from any instant in between continues in the same way.
            after = start + chance.random() * (end - start)
            assert next(times.nominal(after), None) == next((at for at in found if at > after), None)
    assert some > CASES // 10


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Pacific/Apia", "UTC"])
def test_days_of_many_years_are_those_of_the_calendar(zone: str) -> None:
    info, chance = ZoneInfo(zone), random.Random(zone)
    for _ in range(25):
        wanted = spec(chance)
        wanted.calendars, wanted.exclude, wanted.intervals = wanted.calendars[:1], [], []
        only = wanted.calendars[0]
        hour = chance.randint(4, 22)
        for field in ("hour", "minute", "second"):
            only.text.pop(field, None)
            only.values[field] = {0}
        only.text["hour"], only.values["hour"] = str(hour), {hour}
        start, end = utc(2012, 1, 2), utc(2025, 9, 1)
        found = Times(ScheduleSpec.parse(wanted.json(zone, end))).nominal(start)
        first = utc(2012, 1, 1, hour).replace(tzinfo=None)
        want = [
            shown.replace(tzinfo=info).astimezone(UTC)
            for shown in (first + timedelta(days=day) for day in range(5_000))
            if only.minute(shown)
        ]
        assert list(found) == [at for at in want if start < at <= end]
