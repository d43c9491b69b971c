"""The times of intervals with exclusions are those that a walk through all times of the interval finds."""

import random
from datetime import timedelta
from typing import Any

import pytest

from perdure.api.kinds.schedule import Calendar, ScheduleSpec
from perdure.schedule.calendar import Matcher
from perdure.schedule.times import Times, named_zone
from unit.schedule.oracle import utc

DAYS = 4
EPOCH = utc(1970, 1, 1)
PLACES = {
    "UTC": utc(2027, 12, 31),
    "Europe/Berlin": utc(2026, 3, 28),
    "America/New_York": utc(2026, 10, 31),
    "Australia/Lord_Howe": utc(2026, 4, 4),
    "Pacific/Apia": utc(2011, 12, 29),
}


def exclusions(chance: random.Random) -> list[dict[str, str]]:
    days: list[dict[str, str]] = [{}, {"dayOfWeek": "SAT,SUN"}, {"dayOfMonth": "29-31"}, {"month": "3,10-12"}]
    times = [
        {"second": "0-59", "minute": "0-59", "hour": "*"},
        {"second": "0-59", "minute": "0-59", "hour": "0-1,3-22"},
        {"second": "0-59/7", "minute": "0-59", "hour": "*"},
        {"second": "0-58", "minute": "0-59", "hour": "*"},
        {"second": "0-59", "minute": "0-58", "hour": "*"},
        {"second": "0-59", "minute": "0-59", "hour": "2"},
    ]
    return [chance.choice(days) | chance.choice(times) for _ in range(chance.randint(1, 3))]


def walked(every: int, offset: int, zone: str, matchers: list[Matcher], first: int) -> list[int]:
    place, found = named_zone(zone), []
    for at in range(first + (offset - first) % every, first + DAYS * 86_400, every):
        wall = place.wall(at)
        if not any(matcher.matches(wall) for matcher in matchers):
            found.append(at)
    return found


@pytest.mark.parametrize("zone", PLACES)
def test_times_of_intervals_are_those_that_a_walk_finds(zone: str) -> None:
    chance, first = random.Random(zone), int((PLACES[zone] - EPOCH).total_seconds())
    for _ in range(12):
        every = chance.choice([61, 600, 3_600, 7_000, 86_400, 100_000])
        offset, exclude = chance.randrange(every), exclusions(chance)
        spec: dict[str, Any] = {
            "intervals": [{"every": f"{every}s", "offset": f"{offset}s"}],
            "timeZone": zone,
            "exclude": exclude,
            "endTime": (PLACES[zone] + timedelta(days=DAYS) - timedelta(seconds=1)).isoformat(),
            "workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}},
        }
        times = Times(ScheduleSpec.parse(spec)).nominal(PLACES[zone] - timedelta(seconds=1))
        found = [int((at - EPOCH).total_seconds()) for at in times]
        matchers = [Matcher.of(Calendar.parse(each)) for each in exclude]
        assert found == walked(every, offset, zone, matchers, first), (spec, "differs")
