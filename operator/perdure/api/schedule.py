"""Schedule: when to start runs, and what to do when they overlap, fail or were missed."""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.conditions import Conditions
from perdure.api.durations import Duration, DurationShape, not_longer_cel
from perdure.api.fields import (
    Count,
    FieldShape,
    Flag,
    Json,
    JsonObject,
    Large,
    Text,
    Time,
    Uid,
    WorkflowId,
    atomic_list,
    cel_string,
    matching,
)
from perdure.api.retrypolicy import RetryPolicyChoice
from perdure.api.rules import Rule, at_most_one_of
from perdure.api.workflowrun import Failure, WorkflowRunSpec

MAX_SPECS = 100
"""Cron lines, intervals, calendars or exclusions of one schedule."""

MAX_SCHEDULE_NAME = 220
"""Characters of the name of a schedule: the nominal time is added to it to name a run."""

MAX_BUFFER = 1000
"""Starts that wait for an earlier run, and runs that are watched at the same time."""

CRON_PATTERN = (
    "^[ \\t]*((CRON_)?TZ=[^ \\t]+[ \\t]+)?"
    "(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|@every[ \\t]+[^ \\t#]+|([^ \\t@#]+[ \\t]+){4,6}[^ \\t@#]+)"
    "[ \\t]*(#.*)?$"
)
"""The shape of a cron line; what its fields mean is told by the condition `Ready`."""

CRON_MESSAGE = (
    "must be a cron line: 5 to 7 fields such as `0 12 * * MON-FRI`, or `@daily`, or `@every 45m`; "
    "a zone may stand before it, as in `CRON_TZ=Europe/Berlin 30 2 * * *`"
)
"""The sentence a person sees who wrote something else."""

_MONTHS = (
    "(?i:jan[a-z]*|feb[a-z]*|mar[a-z]*|apr[a-z]*|may|june?|july?|aug[a-z]*|sep[a-z]*|oct[a-z]*|nov[a-z]*|dec[a-z]*)"
)
_WEEKDAYS = "(?i:su[a-z]*|mo[a-z]*|tu[a-z]*|we[a-z]*|th[a-z]*|fr[a-z]*|sa[a-z]*)"


def _calendar_field(value: str, message: str, max_length: int = 256) -> FieldShape:
    item = f"([*]|({value})(-({value}))?)(/[0-9]{{1,4}})?"
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
        "0?[1-9]|[12][0-9]|3[01]", "must be days of the month 1 to 31, such as `1`, `1-7`, `1,15`, `1/7` or `*`"
    ),
]
"""Days of the month of a calendar."""

DayOfWeek = Annotated[
    str,
    _calendar_field(
        f"0?[0-7]|{_WEEKDAYS}",
        "must be days of the week 0 to 7 or their names (Sunday is 0 and 7), such as `1-5`, `Mon-Fri`, `Sat,Sun` or `*`",
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
"""One line of cron."""


class OverlapPolicy(StrEnum):
    """What to do when a run is due while an earlier one is still open."""

    SKIP = "Skip"
    """It is not started."""

    BUFFER_ONE = "BufferOne"
    """The first one that is due waits, and starts when the earlier one has closed; others are not started."""

    BUFFER_ALL = "BufferAll"
    """All wait and start one after the other, up to 1,000."""

    CANCEL_OTHER = "CancelOther"
    """The earlier one is asked to cancel itself; when it has closed, the new one starts."""

    TERMINATE_OTHER = "TerminateOther"
    """The earlier one is terminated, and the new one starts at once."""

    ALLOW_ALL = "AllowAll"
    """It starts; any number may be open."""


class SkippedPolicy(StrEnum):
    """What to do about a time that does not exist, because clocks are set forward."""

    RUN_AFTER = "RunAfter"
    """It counts as the first instant after the gap."""

    SKIP = "Skip"
    """It is passed over, as Temporal does."""


class RepeatedPolicy(StrEnum):
    """What to do about a time that occurs twice, because clocks are set back."""

    FIRST = "First"
    """The first one counts."""

    BOTH = "Both"
    """Both count."""


class Interval(SpecModel):
    """Times at a fixed distance, counted from the Unix epoch (1970-01-01T00:00:00Z)."""

    rules = (
        Rule(
            "`offset` must be shorter than `every`",
            not_longer_cel("self.offset", "self.every", strictly=True),
            lambda interval: interval.offset < interval.every,
        ),
    )

    every: Annotated[timedelta, DurationShape(at_least=timedelta(seconds=1))]
    """Distance between two times, such as `6h`; whole seconds, at least 1s."""

    offset: Duration = timedelta(0)
    """By how much the times are later than the multiples of `every`, such as `5h`. Default 0s."""


class Calendar(SpecModel):
    """Times by the calendar and the clock of the schedule's zone; all fields must match.

    Each field is a list with commas of values, ranges (`9-17`) and steps (`0/15`, `1-31/7`), or `*`.
    """

    year: Year = "*"
    """Years, such as `2026` or `2026-2028`. Default `*`."""

    month: Month = "*"
    """Months, 1 to 12 or names, such as `Jan,Apr,Jul,Oct`. Default `*`."""

    day_of_month: DayOfMonth = "*"
    """Days of the month, 1 to 31, such as `1,15`. Default `*`."""

    day_of_week: DayOfWeek = "*"
    """Days of the week, 0 to 7 (Sunday is both) or names, such as `Mon-Fri`. Default `*`."""

    hour: Hour = "0"
    """Hours, 0 to 23, such as `9-17`. Default 0."""

    minute: Sixtieth = "0"
    """Minutes, 0 to 59, such as `0/15`. Default 0."""

    second: Sixtieth = "0"
    """Seconds, 0 to 59. Default 0."""

    comment: Text = ""
    """What these times are, for people."""


class Exclusion(Calendar):
    """Times at which nothing is started. Fields that are left out match everything, so that a date is a whole day."""

    hour: Hour = "*"
    """Hours, 0 to 23, such as `9-17`. Default `*`: the whole day."""

    minute: Sixtieth = "*"
    """Minutes, 0 to 59. Default `*`: the whole hour."""

    second: Sixtieth = "*"
    """Seconds, 0 to 59. Default `*`: the whole minute."""


class DaylightSaving(SpecModel):
    """What happens on the days on which clocks are set forward or back.

    It concerns times whose hour is fixed; a calendar whose hour is `*` or has a step follows the real hours.
    """

    skipped: SkippedPolicy = SkippedPolicy.RUN_AFTER
    """A time that does not exist: `RunAfter` starts at the first instant after the gap, `Skip` not at all.
    Default RunAfter."""

    repeated: RepeatedPolicy = RepeatedPolicy.FIRST
    """A time that occurs twice: `First` starts once, `Both` twice. Default First."""


class TemplateMetadata(SpecModel):
    """Labels and annotations of the runs."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Labels of the runs. Default none."""

    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65_536)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Annotations of the runs. Default none."""


class WorkflowRunTemplate(SpecModel):
    """The runs that a schedule starts."""

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the runs. Default none."""

    spec: WorkflowRunSpec
    """What to run, and how, as in a WorkflowRun. A `workflowId` gets the nominal time added."""


class ScheduleSpec(SpecModel):
    """When to start runs, and what to do when they overlap, fail or were missed.

    The times of `cron`, `intervals` and `calendars` are put together; with none of them, runs start only when an
    Operation triggers them.
    """

    rules = (
        at_most_one_of("time_zone", "time_zone_data"),
        Rule(
            "`endTime` must not be before `startTime`",
            "!has(self.startTime) || !has(self.endTime) || self.startTime <= self.endTime",
            lambda spec: spec.start_time is None or spec.end_time is None or spec.start_time <= spec.end_time,
        ),
    )

    cron: Annotated[list[CronLine], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times as cron lines: `0 12 * * MON-FRI`, `@daily`, `@every 45m`, with 5 fields (minute first), 6 (year last) or 7
    (second first, year last), and perhaps `CRON_TZ=<zone>` before and `# comment` after. Day of month and day of week
    must both match, as in a calendar."""

    intervals: Annotated[list[Interval], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times at fixed distances."""

    calendars: Annotated[list[Calendar], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times by the calendar and the clock."""

    exclude: Annotated[list[Exclusion], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times at which nothing is started, such as `{month: "12", dayOfMonth: "25"}` for the whole of that day."""

    start_time: Time | None = None
    """The first instant at which something may start. Default: no such limit."""

    end_time: Time | None = None
    """The last instant at which something may start. Default: no such limit."""

    jitter: Duration = timedelta(0)
    """Starts are spread: each is up to this much later, but never later than the next time; always the same for the
    same schedule and time. Such as `5m`. Default 0s."""

    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z0-9_+/-]+$")] | None = None
    """Zone of cron lines and calendars, by its IANA name, such as `Europe/Berlin`. Default UTC."""

    time_zone_data: Annotated[str, Field(min_length=1, max_length=131_072, pattern="^[A-Za-z0-9+/=]+$")] | None = None
    """Zone of cron lines and calendars as TZif data in base64, instead of `timeZone`."""

    daylight_saving: DaylightSaving = DaylightSaving()
    """What happens on the days on which clocks are set forward or back."""

    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    """What to do when a run is due while an earlier one is still open. Default Skip."""

    catchup_window: Annotated[timedelta, DurationShape(at_least=timedelta(seconds=10))] = timedelta(minutes=1)
    """How late a run may still be started, after the operator was down; what is older is counted as missed.
    At least 10s. Default 1m."""

    pause_on_failure: Flag = False
    """Whether the schedule pauses when a run Failed or TimedOut. Default false."""

    remaining_actions: Count | None = None
    """How many more runs may be started by time; then the schedule stops. Counted down in `status.remainingActions`;
    changing it starts the count anew. Default: without limit."""

    paused: Flag = False
    """Whether nothing is started by time. Default false. An Operation can pause as well, see `status.paused`."""

    notes: Text = ""
    """Why the schedule is as it is, for people."""

    retry_policy: RetryPolicyChoice | None = None
    """How a failed run is started again, until its next time comes. Default: not at all."""

    successful_runs_history_limit: Annotated[int, Field(strict=True, ge=0, le=1000)] = 3
    """How many completed runs are kept, 0 to 1000. Default 3."""

    failed_runs_history_limit: Annotated[int, Field(strict=True, ge=0, le=1000)] = 1
    """How many runs are kept that closed in another way, 0 to 1000. Default 1."""

    workflow_run_template: WorkflowRunTemplate
    """The runs that are started."""


class PausedBy(StrEnum):
    """Who paused a schedule."""

    OPERATION = "Operation"
    """An Operation asked for it."""

    FAILURE = "Failure"
    """A run failed, and `pauseOnFailure` is set."""


class PausedStatus(StatusModel):
    """That the schedule was paused without its spec saying so."""

    by: PausedBy
    """Who paused it: Operation or Failure."""

    reason: Text = ""
    """Why it was paused, for people."""

    time: Time
    """When it was paused."""


class CanonicalSpec(StatusModel):
    """Everything given, in one form."""

    summary: Annotated[str, Field(max_length=256)] = ""
    """The times in a few words, for the column SPEC."""

    calendars: Annotated[list[Calendar], atomic_list(2 * MAX_SPECS)] = Field(default_factory=list)
    """The calendars, also those that cron lines became."""

    intervals: Annotated[list[Interval], atomic_list(2 * MAX_SPECS)] = Field(default_factory=list)
    """The intervals, also those that cron lines became."""

    exclude: Annotated[list[Exclusion], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """The times at which nothing is started."""

    time_zone: Annotated[str, Field(max_length=64)] = ""
    """The zone of the calendars."""


class RecentAction(StatusModel):
    """One run that the schedule started."""

    scheduled_time: Time | None = None
    """The time it was due, without jitter; none for a triggered one."""

    actual_time: Time
    """When it was started."""

    workflow_run: Annotated[str, Field(max_length=253)]
    """Name of the WorkflowRun."""

    run_id: Uid | None = None
    """Id of the run."""

    status: Annotated[str, Field(max_length=32)] | None = None
    """The run's phase when the schedule looked last."""


class RunningWorkflow(StatusModel):
    """A run of the schedule that is open."""

    workflow_run: Annotated[str, Field(max_length=253)]
    """Name of the WorkflowRun that was started."""

    workflow_id: WorkflowId | None = None
    """Its workflow id, which later runs of its chain share."""

    run_id: Uid | None = None
    """Id of the run; of the first one of its chain."""


class ScheduleCounts(StatusModel):
    """What happened since the schedule was created."""

    actions: Large = 0
    """Runs that were started."""

    missed_catchup_window: Large = 0
    """Times that passed while the operator was down, and were too old when it came back."""

    overlap_skipped: Large = 0
    """Times that were skipped because an earlier run was open."""

    buffer_dropped: Large = 0
    """Times that were dropped because too many waited already."""


class ScheduleStatus(StatusModel):
    """What the schedule did, and will do next."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status is about."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the spec can be followed. `Paused`: nothing is started by time."""

    paused: PausedStatus | None = None
    """Set when an Operation or a failure paused the schedule; an `unpause` Operation clears it."""

    spec: CanonicalSpec | None = None
    """Everything given, in one form."""

    last_scheduled_time: Time | None = None
    """The newest time that was processed and led to a start."""

    next_scheduled_times: Annotated[list[Time], atomic_list(10)] = Field(default_factory=list)
    """The next ten times."""

    recent_actions: Annotated[list[RecentAction], atomic_list(10)] = Field(default_factory=list)
    """The last ten runs that were started."""

    running_workflows: Annotated[list[RunningWorkflow], atomic_list(MAX_BUFFER)] = Field(default_factory=list)
    """The runs that are open."""

    active: Count = 0
    """How many runs are open."""

    buffer_size: Count = 0
    """How many starts wait for an earlier run."""

    remaining_actions: Count | None = None
    """How many more runs may be started by time, where that is limited."""

    last_completion_result: Json = None
    """Output of the run that completed last; `schedule.lastCompletionResult` in expressions."""

    last_failure: Failure | None = None
    """Failure of the run that closed last, if it failed; `schedule.lastFailure` in expressions."""

    counts: ScheduleCounts = ScheduleCounts()
    """What happened since the schedule was created."""

    state: JsonObject | None = None
    """What the schedule remembers between two times: compact, and for the operator only."""


class Schedule(Resource):
    """When to start runs of a workflow, and what to do when they overlap, fail or were missed."""

    rules = (
        Rule(
            f"`metadata.name` must have at most {MAX_SCHEDULE_NAME} characters: the time is added to it to name a run",
            f"self.metadata.name.size() <= {MAX_SCHEDULE_NAME}",
            lambda schedule: len(schedule.metadata.name) <= MAX_SCHEDULE_NAME,
        ),
    )

    info = KindInfo(
        plural="schedules",
        short_name="wsch",
        columns=(
            Column("Spec", ".status.spec.summary", "When runs are started"),
            Column("Zone", ".status.spec.timeZone", "The time zone"),
            Column("Paused", condition_path("Paused", "status"), "Whether nothing is started by time"),
            Column("Last", ".status.lastScheduledTime", "How long ago a run was started by time", "date"),
            # A column of type date shows a time to come as <invalid>.
            Column("Next", ".status.nextScheduledTimes[0]", "The next time"),
            Column("Active", ".status.active", "How many runs are open", "integer"),
            Column("Message", condition_path("Ready", "message"), "What is to know about it", wide=True),
        ),
    )

    kind: Literal["Schedule"] = "Schedule"
    """Always `Schedule`."""

    spec: ScheduleSpec
    """When to start what."""

    status: ScheduleStatus = ScheduleStatus()
    """What the schedule did, and will do next."""
