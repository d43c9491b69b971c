"""WorkflowRun: one execution of a definition, with its input and what came of it."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.api.commits import COMMITS_GROW, HISTORY_GROWS, STATE_STAYS, CommitStatus
from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.conditions import Conditions
from perdure.api.durations import Duration, PositiveDuration
from perdure.api.fields import (
    Count,
    Flag,
    Identifier,
    Json,
    JsonObject,
    Large,
    Positive,
    Time,
    Uid,
    WorkflowId,
    atomic_list,
)
from perdure.api.retrypolicy import RetryPolicyChoice
from perdure.api.rules import Rule, at_least_one_of, cel_name, exactly_one_of
from perdure.api.steps import ParentClosePolicy, TaskTimeout, WorkflowIdReusePolicy, WorkflowReference
from perdure.api.workflow import WorkflowSpec

MAX_PENDING = 2000
"""Activities, timers, signals or children of one run that are open at the same time, as in Temporal."""


class WorkflowIdConflictPolicy(StrEnum):
    """What a start does when an open run has the workflow id already."""

    FAIL = "Fail"
    """The new run ends Failed, and names the open one."""

    USE_EXISTING = "UseExisting"
    """The new run ends at once, and points to the open one."""

    TERMINATE_EXISTING = "TerminateExisting"
    """The open run is terminated, and the new one starts."""


class RunOptions(SpecModel):
    """What to start, and how, but for a definition written in place."""

    workflow: WorkflowReference | None = None
    """What to run: a Workflow by `name`, or `type` and `taskQueue` of a workflow run by Temporal SDK workers.
    Resolved and kept as it is when the run starts."""

    workflow_id_reuse_policy: WorkflowIdReusePolicy = WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
    """Whether the id may be used again when only closed runs have it. Default AllowDuplicateFailedOnly."""

    input: Json = None
    """Input of the run, any value. Default: the Workflow's own default."""

    execution_timeout: Duration = timedelta(0)
    """How long the workflow may take, with all its retries and continue-as-new, such as `7d`. Default 0s: no limit."""

    run_timeout: Duration | None = None
    """How long this run may take, such as `1d`; a retry policy may start the next one. Default: `executionTimeout`."""

    task_timeout: TaskTimeout = timedelta(seconds=10)
    """How long a worker has for one workflow task before it is given to another; never fails the run. Default 10s."""

    retry_policy: RetryPolicyChoice | None = None
    """How a failed run is retried, as a new run of the same workflow id. Default: not at all."""

    start_delay: Duration = timedelta(0)
    """How long the run waits before its first step, such as `10m`. Default 0s."""

    search_attributes: Annotated[JsonObject, Field(max_length=100)] = Field(default_factory=dict)
    """What the run can be found by, by name; become labels where they fit, annotations where not. Default none."""

    start_paused: Flag = False
    """Whether the run waits for an `unpause` Operation before its first step. Default false."""

    ttl_seconds_after_finished: Count = 86_400
    """How long the closed run is kept, in seconds; then it is removed with its history. Default 86400, one day."""


class StandaloneActivity(SpecModel):
    """One activity that Temporal SDK workers do, without a workflow around it."""

    rules = (
        at_least_one_of(
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            message="`startToCloseTimeout` or `scheduleToCloseTimeout` must be set: without, a lost attempt would be "
            "waited for without end",
        ),
    )

    type: Identifier
    """Activity type, as the worker's code names it."""

    task_queue: Identifier
    """Task queue that the workers poll."""

    start_to_close_timeout: PositiveDuration | None = None
    """How long one attempt may take, such as `5m`; a longer one is retried. Default: `scheduleToCloseTimeout`."""

    schedule_to_close_timeout: PositiveDuration | None = None
    """How long all attempts and the waits between them may take, such as `1h`. Default: no limit."""

    schedule_to_start_timeout: PositiveDuration | None = None
    """How long an attempt may wait to be started, such as `10m`; never retried. Default: `scheduleToCloseTimeout`."""

    heartbeat_timeout: PositiveDuration | None = None
    """Longest gap between heartbeats, such as `30s`; a longer one ends the attempt, and it is retried.
    Default: no heartbeats are expected."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default `exponential: {}`: 1s, 2s, 4s, … up to 100s, without end."""


class WorkflowRunSpec(RunOptions):
    """What to run, and how: exactly one of `workflow`, `inline` and `activity`."""

    rules = (
        exactly_one_of("workflow", "inline", "activity"),
        Rule(
            "`retryPolicy` must be in `activity` where that is set: an activity is retried, and not its run",
            "!has(self.activity) || !has(self.retryPolicy)",
            lambda spec: spec.activity is None or spec.retry_policy is None,
        ),
    )

    workflow_id: WorkflowId | None = None
    """Id of the workflow; at most one open run in the namespace has it. Runs that follow by retry or continue-as-new
    share it. Default: the name of the WorkflowRun."""

    workflow_id_conflict_policy: WorkflowIdConflictPolicy = WorkflowIdConflictPolicy.FAIL
    """What happens when an open run has the id. Default Fail."""

    inline: WorkflowSpec | None = None
    """A definition written in place, for a run that no other run shares it with."""

    activity: StandaloneActivity | None = None
    """A standalone activity: SDK workers do it, without a workflow. `workflowId` is its activity ID then; an activity
    and a workflow may have the same ID."""


class Phase(StrEnum):
    """Where a run stands, in one word; derived from the conditions."""

    PENDING = "Pending"
    """Not started yet: it waits for its start delay, its turn, or a definition."""

    RUNNING = "Running"
    """Started and still open."""

    PAUSED = "Paused"
    """Open, but no new step is started."""

    COMPLETED = "Completed"
    """Closed successfully."""

    FAILED = "Failed"
    """Closed by a failure."""

    CANCELLED = "Cancelled"
    """Closed because it was asked to, after its handlers ran."""

    TERMINATED = "Terminated"
    """Closed by force, without handlers."""

    TIMED_OUT = "TimedOut"
    """Closed because it took too long."""

    CONTINUED_AS_NEW = "ContinuedAsNew"
    """Closed, and continued by the next run of the same workflow id."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will happen to the run."""
        return self not in (Phase.PENDING, Phase.RUNNING, Phase.PAUSED)


class PendingActivityState(StrEnum):
    """What an open activity is doing."""

    SCHEDULED = "Scheduled"
    """An attempt waits to be started."""

    STARTED = "Started"
    """An attempt is running."""

    BACKING_OFF = "BackingOff"
    """An attempt failed; the next one waits for its time."""

    CIRCUIT_OPEN = "CircuitOpen"
    """The next attempt waits for the circuit breaker of its retry policy."""

    CANCEL_REQUESTED = "CancelRequested"
    """An attempt is running and was told to stop."""

    PAUSED = "Paused"
    """No attempt is started until the activity is unpaused."""


Failure = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A failure: `type`, `message`, `details`, `nonRetryable`, and a `cause` of the same shape, and so on down."""

StepPath = Annotated[str, Field(max_length=1024)]
"""Where in a run: the name of a step, with block and item such as `rooms[3]`; for SDK workflows the activity's id."""


class PendingActivity(StatusModel):
    """An activity that is scheduled and not closed yet."""

    step: StepPath
    """The step that it belongs to, with block and item, such as `rooms[3]`; the activity id for SDK workflows."""

    activity: Annotated[str, Field(max_length=1000)]
    """Name of the activity; its type for SDK workflows."""

    attempt: Positive = 1
    """Number of the attempt, from 1 on."""

    state: PendingActivityState
    """What it is doing."""

    scheduled_time: Time | None = None
    """When the activity was scheduled; `scheduleToCloseTimeout` counts from here."""

    started_time: Time | None = None
    """When the attempt started."""

    last_heartbeat_time: Time | None = None
    """When the attempt sent its last heartbeat that is known here; its Lease knows the newest."""

    heartbeat_details: Json = None
    """What the last heartbeat said; the next attempt gets it."""

    last_failure: Failure | None = None
    """The failure of the attempt before, with its causes."""

    next_attempt_time: Time | None = None
    """When the next attempt is due."""

    pod: Annotated[str, Field(max_length=253)] | None = None
    """Name of the pod that does the attempt."""

    waiting_reason: Annotated[str, Field(max_length=1024)] | None = None
    """Why the attempt has not started, as far as is known here: its pod is refused, waits for a node or an image, …"""


class PendingTimer(StatusModel):
    """A timer that has not fired yet: a sleep, or the timeout of something."""

    step: StepPath
    """The step that it belongs to; the timer id for SDK workflows."""

    started_time: Time | None = None
    """When the timer was started."""

    fire_time: Time
    """When the timer fires."""


class AwaitedSignal(StatusModel):
    """A signal that a step waits for."""

    name: Identifier
    """Name of the signal."""

    step: StepPath
    """The step that waits for it."""

    until: Time | None = None
    """When the wait times out: by its own timeout, or that of a step that it is in. None: never."""


class PendingSignal(StatusModel):
    """A signal that was received and is not consumed yet."""

    name: Identifier
    """Name of the signal."""

    received_time: Time
    """When it was received."""


class PendingChild(StatusModel):
    """A child run that has not closed yet."""

    step: StepPath
    """The step that started it; the id of the start event for SDK workflows."""

    workflow_id: WorkflowId
    """Workflow id of the child."""

    run_id: Uid | None = None
    """Id of the child's first run; none before it has started."""

    workflow_run: Annotated[str, Field(max_length=253)] | None = None
    """Name of the child's WorkflowRun."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    """What becomes of the child when this run closes first."""

    started_time: Time | None = None
    """When the child started."""


class History(StatusModel):
    """The event history: its open tail, and how much was sealed into HistorySegments."""

    events: Annotated[list[JsonObject], atomic_list(10_000)] = Field(default_factory=list)
    """The newest events, in order; the ones before them are in HistorySegments."""

    next_event_id: Large = 1
    """Id that the next event gets; one more than the number of events so far."""

    segments: Count = 0
    """How many HistorySegments were sealed."""

    last_segment_hash: Annotated[str, Field(max_length=128)] | None = None
    """Hash of the newest HistorySegment, which ties it to this run."""

    size_bytes: Large = 0
    """Size of the whole history, in bytes."""


class WorkflowRunStatus(StatusModel):
    """What became of the run so far."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status is about."""

    phase: Phase | None = None
    """Where the run stands, in one word; derived from the conditions."""

    conditions: Conditions = Field(default_factory=list)
    """`Succeeded`: Unknown while the run is open, then True or False; `Paused`, `CancelRequested` and others."""

    run_id: Uid | None = None
    """Id of this run: the UID of the WorkflowRun."""

    first_run_id: Uid | None = None
    """Id of the first run of the chain that retries and continue-as-new make."""

    attempt: Positive | None = None
    """Number of the attempt, from 1 on, where the run has a retry policy."""

    start_time: Time | None = None
    """When the run started."""

    completion_time: Time | None = None
    """When the run closed."""

    output: Json = None
    """Output of the run, once it completed."""

    failure: Failure | None = None
    """Why the run failed: `type`, `message`, `details`, `nonRetryable`, and `cause` with the same fields, down to the
    first cause. A failed compensation is listed as well."""

    progress: Annotated[str, Field(max_length=32)] | None = None
    """How many steps ended, of how many known: `3/7`."""

    pending_activities: Annotated[list[PendingActivity], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Activities that are scheduled and not closed yet."""

    pending_timers: Annotated[list[PendingTimer], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Timers that have not fired yet."""

    pending_signals: Annotated[list[PendingSignal], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Signals that were received and are not consumed yet; the first of them where there are very many."""

    awaited_signals: Annotated[list[AwaitedSignal], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Signals that steps wait for; the first of them where there are very many. None for SDK workflows."""

    pending_children: Annotated[list[PendingChild], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Child runs that have not closed yet."""

    definition: JsonObject | None = None
    """The Workflow as it was when the run started: later changes of it do not reach the run. None for `inline`."""

    history: History | None = None
    """The event history, as far as it is kept here."""

    state: JsonObject | None = None
    """What the engine remembers between two events: compact, and for the operator only."""

    commit: CommitStatus | None = None
    """The commit that has written this status. The operator reports a status that does not match it as `StateDamaged`."""


def _unchanged_cel(spec: type[SpecModel], but: tuple[str, ...]) -> str:
    # The type checker of CEL does not know fields of free-form JSON, such as `input`; at run time they are there. It also
    # takes the size of whatever `dyn` gives for unbounded, but a list of known length for just that.
    def fields(of: str) -> str:
        return ", ".join(f"dyn({of}.spec).?{cel_name(field)}" for field in spec.model_fields if field not in but)

    return f"[{fields('self')}] == [{fields('oldSelf')}]"


class WorkflowRun(Resource):
    """One execution of a workflow, with its input and what came of it."""

    rules = (
        Rule(
            "`spec` must not change, but for `ttlSecondsAfterFinished`: create another WorkflowRun, or ask for what you "
            "want with an Operation",
            _unchanged_cel(WorkflowRunSpec, but=("ttl_seconds_after_finished",)),
            reason="FieldValueForbidden",
            field_path=".spec",
        ),
        STATE_STAYS,
        COMMITS_GROW,
        HISTORY_GROWS,
    )

    info = KindInfo(
        plural="workflowruns",
        short_name="wfr",
        columns=(
            Column("Phase", ".status.phase", "Where the run stands"),
            Column("Progress", ".status.progress", "How many steps ended, of how many known"),
            Column("Reason", condition_path("Succeeded", "reason"), "Why it stands there"),
            Column("Awaits", ".status.awaitedSignals[0].name", "The signal that it waits for; the first of several"),
            Column("Started", ".status.startTime", "How long ago the run started", "date", wide=True),
            Column("Completed", ".status.completionTime", "How long ago the run closed", "date"),
            Column(
                "Workflow", ".spec.workflow['name','type']", "The Workflow that it runs, or the type of code", wide=True
            ),
            Column("Activity", ".spec.activity.type", "The type of a standalone activity", wide=True),
            Column("Workflow-ID", ".spec.workflowId", "Its workflow id, where that is not its name", wide=True),
            Column(
                "Schedule", r".metadata.labels.perdure\.dev/schedule", "The Schedule that started the run", wide=True
            ),
            Column("Message", condition_path("Succeeded", "message"), "What is to know about it", wide=True),
        ),
        selectable=(
            ".status.phase",
            ".spec.workflowId",
            ".spec.workflow.name",
            ".spec.workflow.type",
            ".spec.workflow.taskQueue",
            ".status.firstRunId",
        ),
    )

    kind: Literal["WorkflowRun"] = "WorkflowRun"
    """Always `WorkflowRun`."""

    spec: WorkflowRunSpec
    """What to run, and how. Immutable, but for `ttlSecondsAfterFinished`."""

    status: WorkflowRunStatus = WorkflowRunStatus()
    """What became of the run so far."""

    @property
    def workflow_id(self) -> str:
        """The workflow id, which is the name where the spec gives none."""
        return self.spec.workflow_id or self.metadata.name
