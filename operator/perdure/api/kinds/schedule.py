"""Schedule: when to start runs, and what to do if they overlap, fail or are missed.

First the times: cron lines, intervals, calendars, exclusions, and daylight saving time.
"""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import (
    Count,
    FieldShape,
    Flag,
    Json,
    JsonObject,
    Large,
    Positive,
    Text,
    Time,
    Uid,
    WorkflowId,
    atomic_list,
    cel_string,
    matching,
)
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.status import COMMIT_STAYS, STATE_STAYS, STATUS_STAYS, CommitStatus, Conditions
from perdure.api.kinds.workflowrun import Failure, WorkflowRunSpec
from perdure.api.labels import RESERVED_PREFIXES
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.names import MAX_SCHEDULE_NAME, MAX_WORKFLOW_ID
from perdure.api.policies import CatchupPolicy, OverlapPolicy
from perdure.api.rules import Rule, at_most_one_of
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

    It applies to hours of the day. A calendar for every hour, or for each second, third, or fourth one around the clock, follows
    elapsed hours, however these hours are written.
    """

    skipped: SkippedPolicy = SkippedPolicy.RUN_AFTER
    """For a time that does not exist, `RunAfter` starts a run at the first time after the gap, `Skip` starts none.
    Default: RunAfter."""

    repeated: RepeatedPolicy = RepeatedPolicy.FIRST
    """For a time that occurs twice, `First` starts one run, `Both` starts two. Default: First."""


MAX_SPECS = 100
"""Maximum number of cron lines, intervals, calendars or exclusions of one Schedule."""

MAX_TEMPLATE_WORKFLOW_ID = MAX_WORKFLOW_ID - 40
"""Maximum length of the workflow ID in the template. The workflow IDs of runs append the nominal time and a request ID."""

MAX_BUFFER = 1000
"""Maximum number of buffered starts, and of open runs in the status."""

MAX_SHOWN_BACKFILLS = 100
"""Maximum number of backfills in the status."""


def _reserved(field: str) -> Rule:
    """Forbid the prefixes of names that only the operator writes: the relations between runs, and who created them."""
    prefixes = " or ".join(f"`{prefix}`" for prefix in RESERVED_PREFIXES)
    foreign = " && ".join(f"!name.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)
    return Rule(
        f"`{field}` must not begin with {prefixes}: these prefixes are reserved for the operator",
        f"!has(self.{field}) || self.{field}.all(name, {foreign})",
        lambda metadata: not any(name.startswith(RESERVED_PREFIXES) for name in getattr(metadata, field)),
    )


class TemplateMetadata(SpecModel):
    """Labels and annotations of the runs."""

    rules = (_reserved("labels"), _reserved("annotations"))

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Labels of the runs. Default: none."""

    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65_536)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Annotations of the runs. Default: none."""


class WorkflowRunTemplate(SpecModel):
    """Template of the runs that a Schedule starts."""

    rules = (
        Rule(
            f"`workflowId` must have at most {MAX_TEMPLATE_WORKFLOW_ID} characters: the operator appends the time",
            f"!has(self.spec.workflowId) || self.spec.workflowId.size() <= {MAX_TEMPLATE_WORKFLOW_ID}",
            lambda template: len(template.spec.workflow_id or "") <= MAX_TEMPLATE_WORKFLOW_ID,
        ),
        Rule(
            "`spec.activity` must not be set: a Schedule starts workflows, not standalone activities",
            "!has(self.spec.activity)",
            lambda template: template.spec.activity is None,
        ),
        Rule(
            "`spec.nexusOperation` must not be set: a Schedule starts workflows, not standalone Nexus operations",
            "!has(self.spec.nexusOperation)",
            lambda template: template.spec.nexus_operation is None,
        ),
    )

    metadata: TemplateMetadata | None = None
    """Labels and annotations of the runs. Default: none."""

    spec: WorkflowRunSpec
    """What to run, and how, as in a WorkflowRun. The operator appends the nominal time to `workflowId`."""


class ScheduleSpec(SpecModel):
    """When to start runs, and what to do if they overlap, fail or are missed.

    Runs start at the times of `cron`, `intervals` and `calendars`. Without any of them, runs start only when an Operation
    triggers them.
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
    """Times as cron lines: `0 12 * * MON-FRI`, `@daily`, `@every 45m`, with 5 fields (minute first), 6 (year last) or 7 (second
    first, year last), optionally with `CRON_TZ=<zone>` before and `# comment` after. Day of month and day of week must both
    match, as in a calendar. A Schedule has one time zone: that of a cron line applies to all times."""

    intervals: Annotated[list[Interval], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times at fixed intervals."""

    calendars: Annotated[list[Calendar], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times by calendar and clock."""

    exclude: Annotated[list[Exclusion], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """Times at which no runs start, such as `{month: "12", dayOfMonth: "25"}` for that whole day."""

    start_time: Time | None = None
    """No runs start before this time. Default: no limit."""

    end_time: Time | None = None
    """No runs start after this time. Default: no limit."""

    jitter: Duration = timedelta(0)
    """Delays each start by a random time up to this duration, such as `5m`, but never beyond the next time. The delay is always
    the same for the same Schedule and time. Default: 0s."""

    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z0-9_+/-]+$")] | None = None
    """Time zone of cron lines and calendars, by its IANA name, such as `Europe/Berlin`. Default: UTC."""

    time_zone_data: Annotated[str, Field(min_length=1, max_length=131_072, pattern="^[A-Za-z0-9+/=]+$")] | None = None
    """Time zone of cron lines and calendars as TZif data in base64, instead of `timeZone`."""

    daylight_saving: DaylightSaving = DaylightSaving()
    """What happens when clocks are set forward or back."""

    overlap_policy: OverlapPolicy = OverlapPolicy.SKIP
    """What to do if a run is due while an earlier one is still open. Default: Skip."""

    catchup_window: Annotated[timedelta, DurationShape(at_least=timedelta(seconds=10))] = timedelta(minutes=1)
    """How late a run can start after the operator was down. The Schedule counts older times as missed. At least 10s.
    Default: 1m."""

    catchup_policy: CatchupPolicy = CatchupPolicy.ALL
    """Which of the missed times within `catchupWindow` start a run: all, in order, or only the newest, as a CronJob does. The
    others count as missed. Default: All."""

    pause_on_failure: Flag = False
    """Whether the Schedule pauses when a run fails or times out. Default: false."""

    remaining_actions: Count | None = None
    """How many more scheduled runs can start before the Schedule stops. `status.remainingActions` counts down; changing this
    field restarts the count. Default: no limit."""

    paused: Flag = False
    """Whether the Schedule is paused: no scheduled runs start. An Operation can pause it as well; see `status.paused`.
    Default: false."""

    notes: Text = ""
    """Notes about the Schedule, for people."""

    retry_policy: RetryPolicyChoice | None = None
    """How a failed run is retried, until the next time. Default: not retried."""

    successful_runs_history_limit: Annotated[int, Field(strict=True, ge=0, le=1000)] = 3
    """How many completed runs to keep, 0 to 1000; replaces `ttlSecondsAfterFinished`. Default: 3."""

    failed_runs_history_limit: Annotated[int, Field(strict=True, ge=0, le=1000)] = 1
    """How many runs to keep that closed in another way, 0 to 1000; replaces `ttlSecondsAfterFinished`. Default: 1."""

    workflow_run_template: WorkflowRunTemplate
    """Template of the runs."""


class PausedBy(StrEnum):
    """What paused a Schedule."""

    OPERATION = "Operation"
    """An Operation."""

    FAILURE = "Failure"
    """A failed run, because `pauseOnFailure` is true."""


class PausedStatus(StatusModel):
    """A pause that does not come from `spec.paused`."""

    by: PausedBy
    """What paused the Schedule: Operation or Failure."""

    reason: Text = ""
    """Reason, for people."""

    time: Time
    """When the Schedule was paused."""


class CanonicalSpec(StatusModel):
    """The times in canonical form."""

    summary: Annotated[str, Field(max_length=256)] = ""
    """Summary of the times, for the column SPEC."""

    calendars: Annotated[list[Calendar], atomic_list(2 * MAX_SPECS)] = Field(default_factory=list)
    """The calendars, including those of cron lines."""

    intervals: Annotated[list[Interval], atomic_list(2 * MAX_SPECS)] = Field(default_factory=list)
    """The intervals, including those of cron lines."""

    exclude: Annotated[list[Exclusion], atomic_list(MAX_SPECS)] = Field(default_factory=list)
    """The times at which no runs start."""

    time_zone: Annotated[str, Field(max_length=64)] = ""
    """Time zone of the calendars."""


class RecentAction(StatusModel):
    """One run that the Schedule started."""

    scheduled_time: Time | None = None
    """When the run was due, without jitter. Not set for a triggered run."""

    actual_time: Time
    """When the run started."""

    workflow_run: Annotated[str, Field(max_length=253)]
    """Name of the WorkflowRun."""

    run_id: Uid | None = None
    """Run ID."""

    status: Annotated[str, Field(max_length=32)] | None = None
    """Last observed phase of the run."""


class RunningWorkflow(StatusModel):
    """An open run of the Schedule."""

    workflow_run: Annotated[str, Field(max_length=253)]
    """Name of the WorkflowRun."""

    workflow_id: WorkflowId | None = None
    """Its workflow ID, which later runs of its chain share."""

    run_id: Uid | None = None
    """Run ID of the first run of its chain."""


class BackfillStatus(StatusModel):
    """A backfill in progress."""

    start_time: Time
    """First time to consider."""

    end_time: Time
    """Last time to consider."""

    handled_until: Time | None = None
    """Runs have started, or wait in the buffer, for the times up to this one. Not set before the first."""

    buffered: Count = 0
    """Number of its starts that wait in the buffer."""

    overlap_policy: OverlapPolicy
    """Its overlap policy."""

    max_concurrency: Positive | None = None
    """Maximum number of its runs that are open at the same time. Not set: no limit."""

    held: Flag = False
    """Whether it waits for the end of a pause."""


class ScheduleCounts(StatusModel):
    """Counters since the Schedule was created."""

    actions: Large = 0
    """Runs that the Schedule started."""

    missed_catchup_window: Large = 0
    """Times for which no run started because they are older than `catchupWindow`, or because `catchupPolicy` or a pause left them
    out."""

    overlap_skipped: Large = 0
    """Times that the Schedule skipped because an earlier run was open."""

    buffer_dropped: Large = 0
    """Times that the Schedule dropped because the buffer was full."""


class ScheduleStatus(StatusModel):
    """Observed status of a Schedule."""

    rules = (STATE_STAYS, COMMIT_STAYS)

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the spec is valid and runs can start. `Paused`: no scheduled runs start."""

    paused: PausedStatus | None = None
    """Set if an Operation or a failure paused the Schedule. An `unpause` Operation clears it."""

    spec: CanonicalSpec | None = None
    """The times in canonical form."""

    last_scheduled_time: Time | None = None
    """The last time for which a run started."""

    next_scheduled_times: Annotated[list[Time], atomic_list(10)] = Field(default_factory=list)
    """The next ten times."""

    recent_actions: Annotated[list[RecentAction], atomic_list(10)] = Field(default_factory=list)
    """The last ten runs that the Schedule started."""

    running_workflows: Annotated[list[RunningWorkflow], atomic_list(MAX_BUFFER)] = Field(default_factory=list)
    """The open runs."""

    active: Count = 0
    """Number of open runs."""

    buffer_size: Count = 0
    """Number of buffered starts, which wait for an earlier run."""

    backfills: Annotated[list[BackfillStatus], atomic_list(MAX_SHOWN_BACKFILLS)] = Field(default_factory=list)
    """The backfills in progress: some of their runs have not started yet. A `cancel` Operation ends them."""

    remaining_actions: Count | None = None
    """How many more scheduled runs can start, if that is limited."""

    last_completion_result: Json = None
    """Output of the last run that completed; `schedule.lastCompletionResult` in expressions."""

    last_failure: Failure | None = None
    """Failure of the last closed run, if it failed; `schedule.lastFailure` in expressions."""

    counts: ScheduleCounts = ScheduleCounts()
    """Counters since the Schedule was created."""

    state: JsonObject | None = None
    """Internal state of the Schedule. Only the operator reads and writes it."""

    commit: CommitStatus | None = None
    """The commit that wrote this status. The operator reports a status that does not match it as `StateDamaged`."""


class Schedule(Resource):
    """When to start runs of a workflow, and what to do if they overlap, fail or are missed."""

    rules = (
        Rule(
            f"`metadata.name` must have at most {MAX_SCHEDULE_NAME} characters: the names of runs append the time",
            f"self.metadata.name.size() <= {MAX_SCHEDULE_NAME}",
            lambda schedule: len(schedule.metadata.name) <= MAX_SCHEDULE_NAME,
        ),
        STATUS_STAYS,
    )

    info = KindInfo(
        plural="schedules",
        short_name="wsch",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether the spec is valid and runs can start"),
            Column("Reason", condition_path("Ready", "reason"), "Reason of the condition Ready", wide=True),
            Column("Spec", ".status.spec.summary", "When runs start"),
            Column("Paused", condition_path("Paused", "status"), "Whether the Schedule is paused"),
            Column("Last", ".status.lastScheduledTime", "How long ago a scheduled run last started", "date"),
            # A column of type date shows a time in the future as <invalid>.
            Column("Next", ".status.nextScheduledTimes[0]", "The next time"),
            Column("Active", ".status.active", "Number of open runs", "integer", wide=True),
            Column("Zone", ".status.spec.timeZone", "The time zone", wide=True),
            Column("Message", condition_path("Ready", "message"), "Message of the condition Ready", wide=True),
        ),
    )

    kind: Literal["Schedule"] = "Schedule"
    """Always `Schedule`."""

    spec: ScheduleSpec
    """When to start which runs."""

    status: ScheduleStatus = ScheduleStatus()
    """Observed status."""
