"""Schedule: when to start runs, and what to do when they overlap, fail or were missed."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.calendars import Calendar, CronLine, DaylightSaving, Exclusion, Interval
from perdure.api.commits import COMMITS_GROW, STATE_STAYS, CommitStatus
from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.conditions import Conditions
from perdure.api.durations import Duration, DurationShape
from perdure.api.fields import (
    Count,
    Flag,
    Json,
    JsonObject,
    Large,
    Text,
    Time,
    Uid,
    WorkflowId,
    atomic_list,
)
from perdure.api.labels import RESERVED_PREFIXES
from perdure.api.names import MAX_WORKFLOW_ID
from perdure.api.retrypolicy import RetryPolicyChoice
from perdure.api.rules import Rule, at_most_one_of
from perdure.api.workflowrun import Failure, WorkflowRunSpec

MAX_SPECS = 100
"""Cron lines, intervals, calendars or exclusions of one schedule."""

MAX_SCHEDULE_NAME = 220
"""Characters of the name of a schedule: the nominal time is added to it to name a run."""

MAX_TEMPLATE_WORKFLOW_ID = MAX_WORKFLOW_ID - 40
"""Characters of the workflow id of a schedule's runs: the nominal time is added to it, and what tells a request apart."""

MAX_BUFFER = 1000
"""Starts that wait for an earlier run, and runs that are watched at the same time."""


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


def _foreign(field: str) -> Rule:
    """Only the operator says what runs are to each other, and who has made them: nobody writes that by way of the operator."""
    prefixes = " or ".join(f"`{prefix}`" for prefix in RESERVED_PREFIXES)
    foreign = " && ".join(f"!name.startsWith('{prefix}')" for prefix in RESERVED_PREFIXES)
    return Rule(
        f"`{field}` must not begin with {prefixes}: those are the operator's own",
        f"!has(self.{field}) || self.{field}.all(name, {foreign})",
        lambda metadata: not any(name.startswith(RESERVED_PREFIXES) for name in getattr(metadata, field)),
    )


class TemplateMetadata(SpecModel):
    """Labels and annotations of the runs."""

    rules = (_foreign("labels"), _foreign("annotations"))

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

    rules = (
        Rule(
            f"`workflowId` must have at most {MAX_TEMPLATE_WORKFLOW_ID} characters: the time is added to it",
            f"!has(self.spec.workflowId) || self.spec.workflowId.size() <= {MAX_TEMPLATE_WORKFLOW_ID}",
            lambda template: len(template.spec.workflow_id or "") <= MAX_TEMPLATE_WORKFLOW_ID,
        ),
        Rule(
            "`spec.activity` must not be set: a Schedule starts workflows, not standalone activities",
            "!has(self.spec.activity)",
            lambda template: template.spec.activity is None,
        ),
    )

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
    must both match, as in a calendar. A schedule has one zone: a zone before a line is that of everything."""

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
    """How many completed runs are kept, 0 to 1000, instead of those that `ttlSecondsAfterFinished` would keep. Default 3."""

    failed_runs_history_limit: Annotated[int, Field(strict=True, ge=0, le=1000)] = 1
    """How many runs are kept that closed in another way, 0 to 1000, instead of those that `ttlSecondsAfterFinished` would
    keep. Default 1."""

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

    commit: CommitStatus | None = None
    """The commit that has written this status. The operator reports a status that does not match it as `StateDamaged`."""


class Schedule(Resource):
    """When to start runs of a workflow, and what to do when they overlap, fail or were missed."""

    rules = (
        Rule(
            f"`metadata.name` must have at most {MAX_SCHEDULE_NAME} characters: the time is added to it to name a run",
            f"self.metadata.name.size() <= {MAX_SCHEDULE_NAME}",
            lambda schedule: len(schedule.metadata.name) <= MAX_SCHEDULE_NAME,
        ),
        STATE_STAYS,
        COMMITS_GROW,
    )

    info = KindInfo(
        plural="schedules",
        short_name="wsch",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether the spec can be followed"),
            Column("Reason", condition_path("Ready", "reason"), "Why it can be followed, or not"),
            Column("Spec", ".status.spec.summary", "When runs are started"),
            Column("Paused", condition_path("Paused", "status"), "Whether nothing is started by time"),
            Column("Last", ".status.lastScheduledTime", "How long ago a run was started by time", "date"),
            # A column of type date shows a time to come as <invalid>.
            Column("Next", ".status.nextScheduledTimes[0]", "The next time"),
            Column("Active", ".status.active", "How many runs are open", "integer"),
            Column("Zone", ".status.spec.timeZone", "The time zone", wide=True),
            Column("Message", condition_path("Ready", "message"), "What is to know about it", wide=True),
        ),
    )

    kind: Literal["Schedule"] = "Schedule"
    """Always `Schedule`."""

    spec: ScheduleSpec
    """When to start what."""

    status: ScheduleStatus = ScheduleStatus()
    """What the schedule did, and will do next."""
