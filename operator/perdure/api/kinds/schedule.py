"""Schedule: when to start runs, and what to do if they overlap, fail or are missed."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, Flag, Json, JsonObject, Large, Text, Time, Uid, WorkflowId, atomic_list
from perdure.api.kinds.calendars import Calendar, CronLine, DaylightSaving, Exclusion, Interval
from perdure.api.kinds.commits import COMMIT_STAYS, STATE_STAYS, STATUS_STAYS, CommitStatus
from perdure.api.kinds.conditions import Conditions
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.workflowrun import Failure, WorkflowRunSpec
from perdure.api.labels import RESERVED_PREFIXES
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.names import MAX_SCHEDULE_NAME, MAX_WORKFLOW_ID
from perdure.api.policies import OverlapPolicy
from perdure.api.rules import Rule, at_most_one_of
from perdure.api.times import Duration, DurationShape

MAX_SPECS = 100
"""Maximum number of cron lines, intervals, calendars or exclusions of one Schedule."""

MAX_TEMPLATE_WORKFLOW_ID = MAX_WORKFLOW_ID - 40
"""Maximum length of the workflow ID in the template. The workflow IDs of runs append the nominal time and a request ID."""

MAX_BUFFER = 1000
"""Maximum number of buffered starts, and of open runs in the status."""


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


class ScheduleCounts(StatusModel):
    """Counters since the Schedule was created."""

    actions: Large = 0
    """Runs that the Schedule started."""

    missed_catchup_window: Large = 0
    """Times that passed while the operator was down and are older than `catchupWindow`."""

    overlap_skipped: Large = 0
    """Times that the Schedule skipped because an earlier run was open."""

    buffer_dropped: Large = 0
    """Times that the Schedule dropped because the buffer was full."""


class ScheduleStatus(StatusModel):
    """Observed status of a Schedule."""

    rules = (STATE_STAYS, COMMIT_STAYS)

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

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
