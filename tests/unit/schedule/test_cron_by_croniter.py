"""Cron lines mean what croniter says, where both define them, and days that depend on the month are those of the calendar.

Left out, as the two differ on purpose: `5-5` (for croniter, every value), steps of a range that goes round, `31W` in a shorter
month, years before 2000 or after 2099, names that are not three letters, `LW`, `L-2`, `FRIL`, and lists with `15W`.

PERDURE_LONG=1 tries ten times as many.
"""

import os
import random
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice

import pytest
from croniter import CroniterBadDateError, croniter

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.schedule.calendar import SHORTEST, read_days
from perdure.schedule.times import FURTHEST, Times

LINES = 4_000 if os.environ.get("PERDURE_LONG") else 400
COUNT = 6
START = datetime(2000, 1, 1, tzinfo=UTC)
MONTHS = ["JAN", "feb", "Mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["SUN", "mon", "Tue", "wed", "thu", "fri", "sat"]
MACROS = ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"]


def item(chance: random.Random, low: int, high: int, names: list[str]) -> str:
    """A value, a range or a step, in numbers or names."""

    def write(value: int) -> str:
        return names[value - low] if value - low < len(names) and chance.random() < 0.5 else str(value)

    first, last = sorted(chance.sample(range(low, high + 1), 2))
    step = chance.randint(1, min(high, 100))
    ways = ["*", f"*/{step}", write(first), f"{first}/{step}", f"{write(first)}-{write(last)}"]
    ways += [f"{write(first)}-{write(last)}/{step}", f"{write(last)}-{write(first)}"]
    if low == 2000:
        ways = [ways[0], ways[2], *ways[3:6]]  # `*/7` starts in another year, and a range of years does not wrap
    elif (first, last) == (0, 7):
        ways = ways[:4]  # Sunday to Sunday
    return chance.choice(ways)


def field(chance: random.Random, low: int, high: int, names: list[str] | None = None) -> str:
    return ",".join(item(chance, low, high, names or []) for _ in range(chance.choice([1, 1, 2, 3])))


def day_of_month(chance: random.Random) -> str:
    day = chance.randint(1, SHORTEST)
    return chance.choice(["*", "?", "L", f"{day},L", f"{day}W", field(chance, 1, 31)])


def day_of_week(chance: random.Random) -> str:
    numbered = ",".join(f"{chance.choice([*range(7), *WEEKDAYS])}#{chance.randint(1, 5)}" for _ in range(2))
    return chance.choice(["*", "?", numbered, f"L{chance.randint(0, 6)}", field(chance, 0, 7, WEEKDAYS)])


def cron(chance: random.Random) -> str:
    if chance.random() < 0.02:
        return chance.choice(MACROS)
    words = [field(chance, 0, 59), field(chance, 0, 23), day_of_month(chance), field(chance, 1, 12, MONTHS)]
    words.append(day_of_week(chance))
    if chance.random() < 0.5:
        words = [field(chance, 0, 59), *words, chance.choice(["*", item(chance, 2000, 2099, [])])]
    return " ".join(words)


def by_croniter(line: str, start: datetime) -> list[datetime]:
    """The first times after `start`, within 40 years."""
    reference = croniter(line, start, day_or=False, second_at_beginning=True)
    found: list[datetime] = []
    while len(found) < COUNT:
        before = found[-1] if found else start
        try:
            at = reference.get_next(datetime)
        except CroniterBadDateError:
            break
        if at > before + FURTHEST:
            break
        found.append(at)
    return found


def test_10_a_cron_line_has_the_times_that_croniter_finds() -> None:
    chance = random.Random(10)
    some = 0
    for _ in range(LINES):
        line, start = cron(chance), START + timedelta(seconds=chance.randrange(55 * 366 * 86_400))
        times = Times(
            ScheduleSpec.parse({"cron": [line], "workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}}})
        )
        found = list(islice(times.nominal(start), COUNT))
        assert found == by_croniter(line, start), (line, start)
        some += bool(found)
    assert some > LINES // 2


read = cache(read_days)


def nearest(working: list[int], day: int) -> int:
    return min(working, key=lambda each: abs(each - day))


@pytest.mark.parametrize("year", range(2000, 2028))
def test_10_days_that_depend_on_the_month_are_those_of_the_calendar(year: int) -> None:
    for month in range(1, 13):
        first, length = monthrange(year, month)
        weekdays = {day: (first + day) % 7 for day in range(1, length + 1)}  # Sunday is 0
        working = [day for day, weekday in weekdays.items() if 1 <= weekday <= 5]
        want: dict[tuple[str, str], list[int]] = {("LW", "*"): [working[-1]], ("L", "*"): [length]}
        want |= {(f"L-{before}", "*"): [length - before] for before in range(SHORTEST)}
        want |= {(f"{day}W", "*"): [nearest(working, day)] if day <= length else [] for day in range(1, 32)}
        for weekday in range(7):
            days = [day for day in weekdays if weekdays[day] == weekday]
            want[("*", f"{weekday}L")] = days[-1:]
            want |= {("*", f"{weekday}#{number}"): days[number - 1 : number] for number in range(1, 6)}
        for fields, days in want.items():
            bits = read(*fields)[(first + 1) % 7][length - SHORTEST]
            assert [day for day in range(1, length + 1) if bits >> day & 1] == days, (fields, year, month)
