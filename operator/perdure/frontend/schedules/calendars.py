"""Convert the times of schedules between Temporal's messages and the fields of a Schedule. Pure."""

import base64
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from temporalio.api.schedule.v1 import (
    CalendarSpec,
    IntervalSpec,
    Range,
    ScheduleSpec,
    StructuredCalendarSpec,
)

from perdure.api.kinds import schedule as kind
from perdure.api.kinds.schedule import Calendar
from perdure.api.times import format_duration, format_time
from perdure.frontend.messages.values import UnfitError, duration, timestamp
from perdure.schedule.calendar import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    YEAR,
    Field,
    InvalidTimesError,
    depends_on_month,
    read_field,
)
from perdure.schedule.times import Times

_SECOND = timedelta(seconds=1)
_FIELDS: tuple[tuple[str, Field, str], ...] = (
    ("second", SECOND, "0"),
    ("minute", MINUTE, "0"),
    ("hour", HOUR, "0"),
    ("day_of_month", DAY_OF_MONTH, "*"),
    ("month", MONTH, "*"),
    ("day_of_week", DAY_OF_WEEK, "*"),
    ("year", YEAR, "*"),
)
"""Fields of Temporal's calendars, their ranges, and their defaults in a CalendarSpec."""

TIMES = (
    "cron",
    "intervals",
    "calendars",
    "exclude",
    "startTime",
    "endTime",
    "jitter",
    "timeZone",
    "timeZoneData",
)
"""Fields of a Schedule's spec that define its times."""


def to_times(spec: ScheduleSpec) -> dict[str, Any]:
    """The fields of a Schedule's spec that define its times.

    Raises:
        ValueError: A Schedule cannot express the times; the message names the field.
    """
    times: dict[str, Any] = {
        "cron": list(spec.cron_string),
        "intervals": [_interval(each, index) for index, each in enumerate(spec.interval)],
        "calendars": [
            *_all_structured(spec.structured_calendar, "structured_calendar"),
            *_all_written(spec.calendar),
        ],
        "exclude": [
            *_all_structured(spec.exclude_structured_calendar, "exclude_structured_calendar"),
            *_all_written(spec.exclude_calendar),
        ],
        "timeZone": spec.timezone_name,
        "timeZoneData": base64.b64encode(spec.timezone_data).decode(),
    }
    start, end, jitter = timestamp(spec, "start_time"), timestamp(spec, "end_time"), duration(spec, "jitter")
    if start is not None:
        times["startTime"] = format_time(start)
    if end is not None:
        times["endTime"] = format_time(end)
    if jitter:
        times["jitter"] = format_duration(jitter)
    return {field: value for field, value in times.items() if value}


def _interval(spec: IntervalSpec, index: int) -> dict[str, str]:
    # Fractions of seconds are ignored (Temporal: service/worker/scheduler/spec.go).
    try:
        every, phase = (duration(spec, field) // _SECOND * _SECOND for field in ("interval", "phase"))
    except UnfitError as error:
        raise UnfitError(f"schedule.spec.interval[{index}]: {error}") from None
    if every < _SECOND:
        raise ValueError(f"schedule.spec.interval[{index}].interval: must be at least a second")
    if not timedelta(0) <= phase < every:
        raise ValueError(f"schedule.spec.interval[{index}].phase: must be at least zero, and less than the interval")
    written = {"every": format_duration(every)}
    if phase:
        written["offset"] = format_duration(phase)
    return written


def _all_written(specs: Iterable[CalendarSpec]) -> list[dict[str, str]]:
    found = []
    for spec in specs:
        written = {_ours(field): getattr(spec, field) or default for field, _, default in _FIELDS}
        found.append({**written, **({"comment": spec.comment} if spec.comment else {})})
    return found


def _all_structured(specs: Iterable[StructuredCalendarSpec], name: str) -> list[dict[str, str]]:
    found = []
    for index, spec in enumerate(specs):
        written = {"comment": spec.comment} if spec.comment else {}
        for field, allowed, _ in _FIELDS:
            ranges = getattr(spec, field)
            if not ranges and allowed is not YEAR:
                message = "is empty and matches nothing; set the values to match"
                raise ValueError(f"schedule.spec.{name}[{index}].{field}: {message}")
            written[_ours(field)] = ",".join(_range(each, allowed) for each in ranges) or "*"
        found.append(written)
    return found


def _ours(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def _range(proto: Range, allowed: Field) -> str:
    end, step = max(proto.start, proto.end), proto.step or 1
    if (proto.start, end, step) == (allowed.low, allowed.high, 1) and allowed is not YEAR:
        return "*"
    if step > 1:
        return f"{proto.start}-{end}/{step}"  # always with its end: without one, a step extends to the last value
    return str(proto.start) if end == proto.start else f"{proto.start}-{end}"


# From a Schedule


def from_times(spec: kind.ScheduleSpec) -> ScheduleSpec:
    """Convert the times of a Schedule like Temporal's server: cron lines become the equivalent calendars."""
    made = ScheduleSpec(
        timezone_name=spec.time_zone or "",
        timezone_data=base64.b64decode(spec.time_zone_data) if spec.time_zone_data else b"",
    )
    try:
        times = Times(spec)
        calendars, intervals = times.calendars, times.intervals
        if times.zone.name not in {"", "UTC"}:
            made.timezone_name = times.zone.name
    except InvalidTimesError:
        calendars, intervals = list(spec.calendars), list(spec.intervals)
        made.cron_string.extend(spec.cron)
    _put_calendars(made, calendars, spec.exclude)
    for interval in intervals:
        message = made.interval.add()
        message.interval.FromTimedelta(interval.every)
        if interval.offset:
            message.phase.FromTimedelta(interval.offset)
    if spec.start_time is not None:
        made.start_time.FromDatetime(spec.start_time)
    if spec.end_time is not None:
        made.end_time.FromDatetime(spec.end_time)
    if spec.jitter:
        made.jitter.FromTimedelta(spec.jitter)
    return made


def _put_calendars(spec: ScheduleSpec, calendars: Iterable[Calendar], exclude: Iterable[Calendar]) -> None:
    for each in calendars:
        if _depends_on_month(each):
            spec.calendar.append(_written(each))
        else:
            spec.structured_calendar.append(_structured(each))
    for each in exclude:
        if _depends_on_month(each):
            spec.exclude_calendar.append(_written(each))
        else:
            spec.exclude_structured_calendar.append(_structured(each))


def _depends_on_month(calendar: Calendar) -> bool:
    """Whether a calendar has days such as `L` or `MON#1`, which ranges of numbers cannot express."""
    return any(map(depends_on_month, f"{calendar.day_of_month},{calendar.day_of_week}".split(",")))


def _written(calendar: Calendar) -> CalendarSpec:
    """Convert a calendar to Temporal's older format with text fields, so that an update sends it back unchanged."""
    return CalendarSpec(comment=calendar.comment, **{field: getattr(calendar, field) for field, _, _ in _FIELDS})


def _structured(calendar: Calendar) -> StructuredCalendarSpec:
    made = StructuredCalendarSpec(comment=calendar.comment)
    for field, allowed, _ in _FIELDS:
        text = getattr(calendar, field)
        if allowed is not YEAR or text != "*":
            getattr(made, field).extend(_ranges(text, allowed))
    return made


def _ranges(text: str, allowed: Field) -> list[Range]:
    """The ranges of a field. A range that wraps around becomes single values."""
    try:
        return [each for item in text.split(",") for each in _item(item.strip(), allowed)]
    except InvalidTimesError:
        return []


def _item(item: str, allowed: Field) -> list[Range]:
    values, slash, step = item.partition("/")
    first, dash, last = values.partition("-")
    if values == "*":
        start, end = allowed.low, allowed.high
    else:
        start = _value(first, allowed)
        end = _value(last, allowed) if dash else allowed.high if slash else start
    if start <= end:
        return [Range(start=start, end=end, step=int(step or 1))]
    bits = read_field(allowed, item)
    return [Range(start=v, end=v, step=1) for v in range(allowed.low, allowed.high + 1) if bits >> v & 1]


def _value(text: str, allowed: Field) -> int:
    text = text.strip()
    return int(text) if text.isdecimal() else read_field(allowed, text).bit_length() - 1
