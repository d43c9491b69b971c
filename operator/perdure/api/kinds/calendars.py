"""Times of a Schedule: cron lines, intervals, calendars, exclusions, and daylight saving time."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from perdure.api.fields import FieldShape, Text, cel_string, matching
from perdure.api.models import SpecModel
from perdure.api.rules import Rule
from perdure.api.times import Duration, DurationShape, not_longer_cel

CRON_PATTERN = (
    "^[ \\t]*((CRON_)?TZ=[^ \\t]+[ \\t]+)?"
    "(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|@every[ \\t]+[^ \\t#]+|([^ \\t@#][^ \\t@]*[ \\t]+){4,6}"
    "[^ \\t@#][^ \\t@]*)([ \\t]+#.*|[ \\t]*)$"
)
"""Pattern of a cron line. The condition `Ready` reports invalid fields."""

CRON_MESSAGE = (
    "must be a cron line: 5 to 7 fields such as `0 12 * * MON-FRI`, or `@daily`, or `@every 45m`; "
    "a time zone can precede it, as in `CRON_TZ=Europe/Berlin 30 2 * * *`"
)
"""Validation message for an invalid cron line."""

_MONTHS = (
    "(?i:jan[a-z]*|feb[a-z]*|mar[a-z]*|apr[a-z]*|may|june?|july?|aug[a-z]*|sep[a-z]*|oct[a-z]*|nov[a-z]*|dec[a-z]*)"
)
_WEEKDAYS = "(?i:su[a-z]*|mo[a-z]*|tu[a-z]*|we[a-z]*|th[a-z]*|fr[a-z]*|sa[a-z]*)"


def _calendar_field(value: str, message: str, *, special: str = "", suffix: str = "") -> FieldShape:
    """A list of values, ranges and steps; `special` are further items, `suffix` can follow a value instead of a range."""
    max_length = 256
    item = f"([*]|{special}({value})(-({value}){suffix})?)(/[0-9]{{1,4}})?"
    pattern = f"^ *{item} *(, *{item} *)*$"
    return FieldShape(
        matching(re.compile(pattern), max_length, message),
        cel_string(max_length, (f"self.matches('{pattern}')", message)),
    )


Year = Annotated[str, _calendar_field("[0-9]{4}", "must be years, such as `2026`, `2026-2028`, `2026/2` or `*`")]
"""Years of a calendar."""

Month = Annotated[
    str,
    _calendar_field(
        f"0?[1-9]|1[0-2]|{_MONTHS}",
        "must be months 1 to 12 or their names, such as `1`, `1-6`, `Jan,Apr`, `1/3` or `*`",
    ),
]
"""Months of a calendar."""

DayOfMonth = Annotated[
    str,
    _calendar_field(
        "0?[1-9]|[12][0-9]|3[01]",
        "must be days of the month 1 to 31, such as `1`, `1-7`, `1,15`, `1/7` or `*`; `L` is the last day, `LW` the last "
        "working day, `15W` the working day nearest to the 15th",
        special="L(W|-[12]?[0-9])?|",
        suffix="|W",
    ),
]
"""Days of the month of a calendar."""

DayOfWeek = Annotated[
    str,
    _calendar_field(
        f"0?[0-7]|{_WEEKDAYS}",
        "must be days of the week 0 to 7 or their names (Sunday is 0 and 7), such as `1-5`, `Mon-Fri`, `Sat,Sun` or `*`; "
        "`Mon#1` is the first Monday, `FriL` the last Friday",
        suffix="|#[1-5]|L",
    ),
]
"""Days of the week of a calendar."""

Hour = Annotated[
    str,
    _calendar_field("[01]?[0-9]|2[0-3]", "must be hours 0 to 23, such as `12`, `9-17`, `8,20`, `0/6` or `*`"),
]
"""Hours of a calendar."""

Sixtieth = Annotated[
    str, _calendar_field("[0-5]?[0-9]", "must be numbers 0 to 59, such as `30`, `0-10`, `0,30`, `0/15` or `*`")
]
"""Minutes or seconds of a calendar."""

CronLine = Annotated[
    str,
    FieldShape(
        matching(re.compile(CRON_PATTERN), 512, CRON_MESSAGE),
        cel_string(512, ("self.matches('" + CRON_PATTERN.replace("\\t", "\\\\t") + "')", CRON_MESSAGE)),
    ),
]
"""A cron line."""


class SkippedPolicy(StrEnum):
    """What to do if a time does not exist because clocks are set forward."""

    RUN_AFTER = "RunAfter"
    """Use the first time after the gap."""

    SKIP = "Skip"
    """Skip the time, as Temporal does."""


class RepeatedPolicy(StrEnum):
    """What to do if a time occurs twice because clocks are set back."""

    FIRST = "First"
    """Use the first one."""

    BOTH = "Both"
    """Use both."""


class Interval(SpecModel):
    """Times at a fixed interval, counted from the Unix epoch (1970-01-01T00:00:00Z)."""

    rules = (
        Rule(
            "`offset` must be shorter than `every`",
            not_longer_cel("self.offset", "self.every", strictly=True),
            lambda interval: interval.offset < interval.every,
        ),
    )

    every: Annotated[timedelta, DurationShape(at_least=timedelta(seconds=1))]
    """Interval between two times, such as `6h`; whole seconds, at least 1s."""

    offset: Duration = timedelta(0)
    """Offset of the times from the multiples of `every`, such as `5h`. Default: 0s."""


class Calendar(SpecModel):
    """Times by calendar and clock in the time zone of the Schedule. All fields must match.

    Each field is a comma-separated list of values, ranges (`9-17`) and steps (`0/15`, `1-31/7`), or `*`.
    """

    year: Year = "*"
    """Years, such as `2026` or `2026-2028`. Default: `*`."""

    month: Month = "*"
    """Months, 1 to 12 or names, such as `Jan,Apr,Jul,Oct`. Default: `*`."""

    day_of_month: DayOfMonth = "*"
    """Days of the month, 1 to 31, such as `1,15`; `L` is the last day, `L-2` two days before it, `LW` the last working
    day (Monday to Friday), `15W` the working day nearest to the 15th. Default: `*`."""

    day_of_week: DayOfWeek = "*"
    """Days of the week, 0 to 7 (Sunday is both) or names, such as `Mon-Fri`; `Mon#1` is the first Monday of the month,
    `FriL` the last Friday. Default: `*`."""

    hour: Hour = "0"
    """Hours, 0 to 23, such as `9-17`. Default: 0."""

    minute: Sixtieth = "0"
    """Minutes, 0 to 59, such as `0/15`. Default: 0."""

    second: Sixtieth = "0"
    """Seconds, 0 to 59. Default: 0."""

    comment: Text = ""
    """Description of these times, for people."""


class Exclusion(Calendar):
    """Times at which no runs start. Omitted fields match everything, so that a date is a whole day."""

    hour: Hour = "*"
    """Hours, 0 to 23, such as `9-17`. Default: `*`, the whole day."""

    minute: Sixtieth = "*"
    """Minutes, 0 to 59. Default: `*`, the whole hour."""

    second: Sixtieth = "*"
    """Seconds, 0 to 59. Default: `*`, the whole minute."""


class DaylightSaving(SpecModel):
    """What happens when clocks are set forward or back.

    It applies to times with a fixed hour. A calendar whose hour is `*` or has a step follows elapsed hours.
    """

    skipped: SkippedPolicy = SkippedPolicy.RUN_AFTER
    """For a time that does not exist, `RunAfter` starts a run at the first time after the gap, `Skip` starts none.
    Default: RunAfter."""

    repeated: RepeatedPolicy = RepeatedPolicy.FIRST
    """For a time that occurs twice, `First` starts one run, `Both` starts two. Default: First."""
