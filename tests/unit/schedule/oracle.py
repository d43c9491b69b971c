"""An independent computation of a schedule's times: check each rule for every minute of a stretch of time.

It shares no code with what it checks: zones are asked by `zoneinfo` for one instant at a time, specs are made together with the
sets that they stand for.
"""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = ["Jan", "February", "mar", "Apr", "MAY", "June", "July", "august", "Sept", "Oct", "nov", "Dec"]
WEEKDAYS = ["Sun", "Mon", "tue", "Wednesday", "Thu", "fri", "SATUR"]
BOUNDS = {
    "year": (2000, 2100),
    "month": (1, 12),
    "dayOfMonth": (1, 31),
    "dayOfWeek": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
DEFAULTS = {"hour": "0", "minute": "0", "second": "0"}


@dataclass(frozen=True)
class Wall:
    """The wall time at the beginning of a minute."""

    at: datetime
    shown: datetime
    again: bool
    skipped: tuple[datetime, ...]
    """The minutes that are left out right before it."""


@cache
def walk(zone: str, start: datetime, days: int) -> tuple[Wall, ...]:
    """Every minute from `start` on."""
    info, found = ZoneInfo(zone), []
    before = (start - MINUTE).astimezone(info).replace(tzinfo=None)
    for number in range(days * 1440):
        at = start + number * MINUTE
        local = at.astimezone(info)
        shown = local.replace(tzinfo=None, fold=0)
        skipped, minute = [], before + MINUTE
        while minute < shown:
            skipped.append(minute)
            minute += MINUTE
        found.append(Wall(at, shown, again=bool(local.fold), skipped=tuple(skipped)))
        before = shown
    return tuple(found)


@dataclass
class Fields:
    """A calendar: its text and its values."""

    text: dict[str, str]
    values: dict[str, set[int]]

    def minute(self, shown: datetime) -> bool:
        weekday = (shown.weekday() + 1) % 7
        return (
            shown.minute in self.values["minute"]
            and shown.hour in self.values["hour"]
            and shown.day in self.values["dayOfMonth"]
            and shown.month in self.values["month"]
            and weekday in self.values["dayOfWeek"]
            and shown.year in self.values["year"]
        )

    @property
    def seconds(self) -> set[int]:
        return self.values["second"]

    @property
    def real(self) -> bool:
        hours = sorted(self.values["hour"])
        gaps = {later - hour for hour, later in zip(hours, [*hours[1:], hours[0] + 24], strict=True)}
        return len(gaps) == 1 and max(gaps) <= 4


def item(chance: random.Random, name: str) -> tuple[str, set[int]]:
    low, high = BOUNDS[name]
    near = {"year": (2010, 2027)}.get(name, (low, high))
    first = chance.randint(*near)
    last = chance.randint(first, high)
    if name == "second":  # some seconds of a day suffice
        last, high = first + min(2, last - first), min(high, first + 20)
    step = chance.randint(1, 9)
    written = {"month": [*" ", *MONTHS], "dayOfWeek": WEEKDAYS}.get(name)

    def write(value: int) -> str:
        return written[value] if written and chance.random() < 0.5 else str(value)

    match chance.randrange(6):
        case 0 if name != "second":
            return "*", set(range(low, high + 1))
        case 1 if name != "second":
            return f"*/{step}", set(range(low, high + 1, step))
        case 2 if name != "second":
            return f"{write(first)}/{step}", set(range(first, high + 1, step))
        case 3:
            return f"{write(first)}-{write(last)}", set(range(first, last + 1))
        case 4:
            return f"{write(first)}-{write(last)}/{step}", set(range(first, last + 1, step))
        case _:
            return write(first), {first}


def fields(chance: random.Random, *, exclusion: bool = False) -> Fields:
    text: dict[str, str] = {}
    values: dict[str, set[int]] = {}
    for name, (low, high) in BOUNDS.items():
        rare = name in {"year", "month", "dayOfMonth", "dayOfWeek"}
        if chance.random() < (0.75 if rare or exclusion else 0.25):
            default = set(range(low, high + 1)) if exclusion or name not in DEFAULTS else {0}
            values[name] = default
            continue
        items = [item(chance, name) for _ in range(chance.choice([1, 1, 2, 3]))]
        text[name] = ",".join(each for each, _ in items)
        values[name] = set().union(*(found for _, found in items))
    return Fields(text, values)


@dataclass
class Spec:
    """A random spec and its meaning."""

    calendars: list[Fields]
    exclude: list[Fields]
    intervals: list[tuple[int, int]]
    skipped: str
    repeated: str

    def json(self, zone: str, end: datetime | None = None) -> dict[str, Any]:
        return {
            "endTime": end and end.isoformat(),
            "calendars": [each.text for each in self.calendars],
            "exclude": [each.text for each in self.exclude],
            "intervals": [{"every": written(every), "offset": written(offset)} for every, offset in self.intervals],
            "timeZone": zone,
            "daylightSaving": {"skipped": self.skipped, "repeated": self.repeated},
            "workflowRunTemplate": {"spec": {"workflow": {"name": "none"}}},
        }


def spec(chance: random.Random) -> Spec:
    return Spec(
        calendars=[fields(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))],
        exclude=[fields(chance, exclusion=True) for _ in range(chance.choice([0, 0, 1, 2]))],
        intervals=[
            (every := chance.choice([1800, 3600, 5400, 7777, 86_400, 100_000]), chance.randrange(every))
            for _ in range(chance.choice([0, 0, 0, 1]))
        ],
        skipped=chance.choice(["RunAfter", "Skip"]),
        repeated=chance.choice(["First", "Both"]),
    )


def brute_force(wanted: Spec, minutes: tuple[Wall, ...]) -> list[datetime]:
    """Each instant at which something is due."""
    found: set[datetime] = set()
    for wall in minutes:
        found.update(wall.at + timedelta(seconds=second) for second in due_in(wanted, wall))
        if wall.skipped and wanted.skipped == "RunAfter" and moved(wanted, wall):
            found.add(wall.at)
    return sorted(found)


def free(wanted: Spec, shown: datetime, second: int) -> bool:
    return not any(second in each.seconds and each.minute(shown) for each in wanted.exclude)


def due_in(wanted: Spec, wall: Wall) -> set[int]:
    """The seconds of a minute at which something is due."""
    found: set[int] = set()
    for each in wanted.calendars:
        if each.minute(wall.shown) and (each.real or wanted.repeated == "Both" or not wall.again):
            found |= each.seconds
    for every, offset in wanted.intervals:
        found.update(range(-(int(wall.at.timestamp()) - offset) % every, 60, every))
    return {second for second in found if free(wanted, wall.shown, second)}


def moved(wanted: Spec, wall: Wall) -> bool:
    """Whether something was due in the minutes that are left out before a minute, and counts at its beginning."""
    return free(wanted, wall.shown, 0) and any(
        free(wanted, minute, second)
        for each in wanted.calendars
        if not each.real
        for minute in wall.skipped
        if each.minute(minute)
        for second in each.seconds
    )


def written(seconds: int) -> str:
    return f"{seconds // 3600}h{seconds % 3600}s"


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]
