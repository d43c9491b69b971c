"""WorkflowRun: one execution of a definition, with its input and result."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.api.fields import (
    Count,
    FieldShape,
    Flag,
    Hash,
    Identifier,
    Json,
    JsonObject,
    Large,
    Positive,
    ResourceName,
    Time,
    Uid,
    WorkflowId,
    atomic_list,
)
from perdure.api.json_values import mapping
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.status import HISTORY_GROWS, RECORD_STAYS, CommitStatus, Conditions
from perdure.api.kinds.steps import QualifiedWorkflowReference
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.kinds.workflowlimit import Priority
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.phases import PendingActivityState, Phase
from perdure.api.policies import ParentClosePolicy, WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.api.rules import Rule, at_least_one_of, exactly_one_of
from perdure.api.times import Duration, PositiveDuration

MAX_PENDING = 2000
"""Maximum number of pending activities, timers, signals or children of one run, as in Temporal."""


class RunWorkflow(QualifiedWorkflowReference):
    """The workflow of a run: a Workflow, by name, also of another namespace, or a workflow type that Temporal SDK workers run."""

    rules = (
        *QualifiedWorkflowReference.rules,
        Rule(
            "`revision` must be used with `name`",
            "!has(self.revision) || has(self.name)",
            lambda ref: ref.revision is None or ref.name is not None,
        ),
    )

    revision: ResourceName | None = None
    """Name of a WorkflowRevision of the Workflow to run. Default: the definition that the Workflow has when the run starts."""


class RunOptions(SpecModel):
    """What to start, and how, without an inline definition."""

    workflow: RunWorkflow | None = None
    """Workflow to run: a Workflow by `name`, or `type` and `taskQueue` of a workflow that Temporal SDK workers run.
    The run keeps the definition that the Workflow has when the run starts, or that of `revision`."""

    workflow_id_reuse_policy: WorkflowIdReusePolicy = WorkflowIdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
    """Whether the run can use the workflow ID of closed runs. Default: AllowDuplicateFailedOnly."""

    input: Json = None
    """Input of the run, any value; expressions in it are not evaluated. Default: the default input of the Workflow."""

    execution_timeout: Duration = timedelta(0)
    """Maximum time of the workflow, with all its retries and continue-as-new, such as `7d`. Default: 0s, no limit."""

    run_timeout: Duration | None = None
    """Maximum time of this run, such as `1d`; a retry policy can start the next one. Default: `executionTimeout`."""

    steps_timeout: PositiveDuration | None = None
    """Maximum time of the steps of this run, such as `1h`. When it has passed, the steps are cancelled, compensations,
    `onFailure` and `finally` run, and the run fails with the reason DeadlineExceeded. `runTimeout` limits handlers, too.
    Only for runs of a definition. Default: `stepsTimeout` of the definition."""

    task_timeout: PositiveDuration = timedelta(seconds=10)
    """Time that a worker has for one workflow task before another worker gets it; never fails the run. Default: 10s."""

    retry_policy: RetryPolicyChoice | None = None
    """How a failed run is retried, as a new run with the same workflow ID. Default: not retried."""

    start_delay: Duration = timedelta(0)
    """How long the run waits before its first step, such as `10m`. Default: 0s."""

    search_attributes: Annotated[JsonObject, Field(max_length=100)] = Field(default_factory=dict)
    """Search attributes of the run, by name. They become labels if they are valid label values, otherwise annotations.
    Default: none."""

    priority: Priority = 0
    """Position of the run in the queues of the WorkflowLimits that its definition takes: runs with higher values go first, then
    older ones. -1000 to 1000. Default: 0."""

    start_paused: Flag = False
    """Whether the run waits for an `unpause` Operation before its first step. Default: false."""

    ttl_seconds_after_finished: Count | None = None
    """Seconds after which the operator deletes the closed run with its history. Default: as in the `retention` of the
    WorkflowDefaults, otherwise 86400, one day."""

    ttl_seconds_after_failure: Count | None = None
    """The same for a run that has not completed: it has failed, timed out, or was cancelled or terminated.
    Default: `ttlSecondsAfterFinished`."""


class StandaloneActivity(SpecModel):
    """One activity that Temporal SDK workers run without a workflow."""

    rules = (
        at_least_one_of(
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            message="`startToCloseTimeout` or `scheduleToCloseTimeout` must be set: otherwise the run would wait for a "
            "lost attempt forever",
        ),
    )

    type: Identifier
    """Activity type, as the worker registers it."""

    task_queue: Identifier
    """Task queue that the workers poll."""

    start_to_close_timeout: PositiveDuration | None = None
    """Maximum time of one attempt, such as `5m`; a longer one is retried. Default: `scheduleToCloseTimeout`."""

    schedule_to_close_timeout: PositiveDuration | None = None
    """Maximum time of all attempts and the waits between them, such as `1h`. Default: no limit."""

    schedule_to_start_timeout: PositiveDuration | None = None
    """Maximum time until an attempt starts, such as `10m`; never retried. Default: `scheduleToCloseTimeout`."""

    heartbeat_timeout: PositiveDuration | None = None
    """Maximum time between two heartbeats, such as `30s`. If a heartbeat is late, the attempt ends and is retried.
    Default: no heartbeats are expected."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default: `exponential: {}`, which waits 1s, 2s, 4s, … up to 100s, forever."""


class StandaloneNexusOperation(SpecModel):
    """One Nexus operation that is called without a workflow."""

    endpoint: Identifier
    """Name of the Nexus endpoint. Its `allowedCallers` must admit the namespace of the run."""

    service: Identifier
    """Name of the Nexus service, as the worker registers it."""

    operation: Identifier
    """Name of the operation, as the worker registers it."""

    schedule_to_close_timeout: PositiveDuration | None = None
    """Maximum time of the operation with all calls of its handler, such as `1h`. Default: no limit."""

    schedule_to_start_timeout: PositiveDuration | None = None
    """Maximum time until the handler has started the operation, such as `1m`. Default: no limit."""

    start_to_close_timeout: PositiveDuration | None = None
    """Maximum time from its start to its end, if the operation is asynchronous, such as `30m`. Default: no limit."""

    headers: Annotated[dict[str, Annotated[str, Field(max_length=8_192)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Headers that the handler gets. Their names are in lower case. Default: none."""


class WorkflowRunSpec(RunOptions):
    """What to run, and how: exactly one of `workflow`, `inline`, `activity` and `nexusOperation`."""

    rules = (
        exactly_one_of("workflow", "inline", "activity", "nexus_operation"),
        Rule(
            "`stepsTimeout` must be used with `workflow.name` or `inline`: workers decide when their steps end; set `runTimeout`",
            "!has(self.stepsTimeout) || has(self.inline) || (has(self.workflow) && has(self.workflow.name))",
            lambda spec: (
                spec.steps_timeout is None
                or spec.inline is not None
                or (spec.workflow is not None and spec.workflow.name is not None)
            ),
        ),
        Rule(
            "`retryPolicy` must be in `activity` if `activity` is set: the activity is retried, not its run",
            "!has(self.activity) || !has(self.retryPolicy)",
            lambda spec: spec.activity is None or spec.retry_policy is None,
        ),
        Rule(
            "`retryPolicy` must not be set if `nexusOperation` is set: calls of the handler are retried until a timeout",
            "!has(self.nexusOperation) || !has(self.retryPolicy)",
            lambda spec: spec.nexus_operation is None or spec.retry_policy is None,
        ),
    )

    workflow_id: WorkflowId | None = None
    """Workflow ID. At most one open run in the namespace has it. Runs that a retry or continue-as-new starts keep it.
    Default: the name of the WorkflowRun."""

    workflow_id_conflict_policy: WorkflowIdConflictPolicy = WorkflowIdConflictPolicy.FAIL
    """What happens if an open run already has the workflow ID. Default: Fail."""

    inline: WorkflowSpec | None = None
    """A definition that only this run uses."""

    activity: StandaloneActivity | None = None
    """A standalone activity: SDK workers run it without a workflow. `workflowId` is its activity ID; an activity and a workflow
    can have the same ID."""

    nexus_operation: StandaloneNexusOperation | None = None
    """A standalone Nexus operation: SDK workers handle it without a workflow that calls it. `workflowId` is its operation ID."""


Failure = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A failure: `type`, `message`, `details`, `nonRetryable`, and a `cause` with the same fields."""

StepPath = Annotated[str, Field(max_length=1024)]
"""Path of a step in a run, with block and item, such as `rooms[3]`; for SDK workflows the activity ID."""


class PendingActivityStatus(StatusModel):
    """An activity that is scheduled and has not ended."""

    step: StepPath
    """Path of its step, with block and item, such as `rooms[3]`; the activity ID for SDK workflows."""

    activity: Annotated[str, Field(max_length=1000)]
    """Name of the activity; its type for SDK workflows."""

    attempt: Positive = 1
    """Number of the attempt; the first is 1."""

    state: PendingActivityState
    """State of the activity."""

    scheduled_time: Time | None = None
    """When the activity was scheduled; `scheduleToCloseTimeout` counts from this time."""

    started_time: Time | None = None
    """When the attempt started."""

    last_heartbeat_time: Time | None = None
    """When the attempt sent the last heartbeat that is recorded here; its Lease has the latest one."""

    heartbeat_details: Json = None
    """Details of the last heartbeat, which the next attempt gets."""

    last_failure: Failure | None = None
    """Failure of the previous attempt, with its causes."""

    next_attempt_time: Time | None = None
    """When the next attempt starts."""

    pod: Annotated[str, Field(max_length=253)] | None = None
    """Name of the pod that runs the attempt."""

    waiting_reason: Annotated[str, Field(max_length=1024)] | None = None
    """Why the attempt has not started, if known: its pod is refused, waits for a node or an image, …"""


class PendingTimerStatus(StatusModel):
    """A timer that has not fired: a sleep or a timeout."""

    step: StepPath
    """Path of its step; the timer ID for SDK workflows."""

    started_time: Time | None = None
    """When the timer was started."""

    fire_time: Time
    """When the timer fires."""


class AwaitedSignal(StatusModel):
    """A signal that a step waits for."""

    name: Identifier
    """Name of the signal."""

    step: StepPath
    """Path of the step that waits for it."""

    until: Time | None = None
    """When the wait times out, by its own timeout or that of an enclosing step. Not set: never."""


class PendingSignal(StatusModel):
    """A signal that was received and not consumed."""

    name: Identifier
    """Name of the signal."""

    received_time: Time
    """When the signal was received."""


class PendingChildStatus(StatusModel):
    """A child run that has not closed."""

    step: StepPath
    """Path of the step that started it; the ID of the start event for SDK workflows."""

    workflow_id: WorkflowId
    """Workflow ID of the child."""

    run_id: Uid | None = None
    """Run ID of the first run of the child. Not set before it starts."""

    workflow_run: Annotated[str, Field(max_length=253)] | None = None
    """Name of the WorkflowRun of the child."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    """What happens to the child if this run closes first."""

    started_time: Time | None = None
    """When the child started."""


class RevisionReference(StatusModel):
    """A reference to the definition that a run executes."""

    name: Annotated[str, Field(max_length=253)]
    """Name of the WorkflowRevision."""

    hash: Hash
    """Hash of its content."""


Recorded = Annotated[Any, FieldShape(lambda value: value, {"x-kubernetes-preserve-unknown-fields": True})]
"""A JSON text that only the operator writes. Earlier versions wrote the value itself."""


class History(StatusModel):
    """The event history: its latest events. HistorySegments have the earlier ones."""

    rules = (HISTORY_GROWS,)

    events: Annotated[list[Recorded], atomic_list(10_000)] = Field(default_factory=list)
    """The latest events, in order, each as a JSON text. HistorySegments have the earlier ones. `perdure history` shows all."""

    next_event_id: Large = 1
    """ID of the next event: the number of events plus one."""

    segments: Count = 0
    """Number of HistorySegments."""

    last_segment_hash: Annotated[str, Field(max_length=128)] | None = None
    """Hash of the last HistorySegment."""

    size_bytes: Large = 0
    """Size of the whole history, in bytes."""


class WorkflowRunStatus(StatusModel):
    """Observed status of a run."""

    rules = (RECORD_STAYS,)

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    phase: Phase | None = None
    """Phase of the run, derived from the conditions."""

    conditions: Conditions = Field(default_factory=list)
    """`Succeeded`: Unknown while the run is open, then True or False; `Paused`, `CancelRequested` and others."""

    run_id: Uid | None = None
    """Run ID: the UID of the WorkflowRun."""

    first_run_id: Uid | None = None
    """Run ID of the first run of the chain of retries and continue-as-new."""

    attempt: Positive | None = None
    """Number of the attempt, if the run has a retry policy; the first is 1."""

    start_time: Time | None = None
    """When the run started."""

    completion_time: Time | None = None
    """When the run closed."""

    output: Json = None
    """Output of the run, once it has completed."""

    failure: Failure | None = None
    """Why the run failed: `type`, `message`, `details`, `nonRetryable`, and `cause` with the same fields. Failed compensations
    are listed as well."""

    progress: Annotated[str, Field(max_length=32)] | None = None
    """Number of ended steps and of known steps, such as `3/7`."""

    pending_activities: Annotated[list[PendingActivityStatus], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Activities that are scheduled and have not ended."""

    pending_timers: Annotated[list[PendingTimerStatus], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Timers that have not fired."""

    pending_signals: Annotated[list[PendingSignal], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Signals that were received and not consumed. If there are very many, only the first ones."""

    awaited_signals: Annotated[list[AwaitedSignal], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Signals that steps wait for. If there are very many, only the first ones. Empty for SDK workflows."""

    pending_children: Annotated[list[PendingChildStatus], atomic_list(MAX_PENDING)] = Field(default_factory=list)
    """Child runs that have not closed."""

    revision: RevisionReference | None = None
    """The WorkflowRevision with the definition as it was when the run started. Later changes do not affect the run. Not set for
    `inline` without `from`. `perdure describe` shows its steps."""

    definition: Recorded = None
    """The same definition, as a JSON text, in runs without `revision`: of earlier versions, or where none could be stored."""

    sources: Annotated[list[JsonObject], atomic_list(100)] | None = None
    """The Workflows from which the definition has copied parts (`from`): `workflow`, its `generation`, and the names of the
    `activities` and `blocks`, each with its name in that Workflow. And what it has taken from the WorkflowDefaults:
    `workflowDefaults`, their `generation`, `fields`, and `activityFields` by activity."""

    history: History | None = None
    """The event history; HistorySegments have its earlier events."""

    state: JsonObject | None = None
    """Internal state of the run, in JSON texts. Only the operator reads and writes it."""

    commit: CommitStatus | None = None
    """The commit that wrote this status. The operator reports a status that does not match it as `StateDamaged`."""


def definition_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """The definition that a run executes; empty for code, and for a run of a Workflow that has not started.

    Args:
        run: A WorkflowRun, as decoded from the API server.
    """
    return mapping(mapping(run.get("status")).get("definition")) or mapping(mapping(run.get("spec")).get("inline"))


class WorkflowRun(Resource):
    """One execution of a workflow, with its input and result."""

    info = KindInfo(
        plural="workflowruns",
        short_name="wfr",
        initial_phase=Phase.PENDING.value,
        columns=(
            Column("Phase", ".status.phase", "Phase of the run"),
            Column("Progress", ".status.progress", "Number of ended steps and of known steps"),
            Column("Reason", condition_path("Succeeded", "reason"), "Reason of the condition Succeeded"),
            Column(
                "Awaits",
                ".status['awaitedSignals','pendingActivities','pendingChildren','pendingTimers'][?(@.step)]['name','step']",
                "The first signal that the run waits for, or the first step with an activity, a child or a timer",
            ),
            Column("Started", ".status.startTime", "How long ago the run started", "date", wide=True),
            Column("Completed", ".status.completionTime", "How long ago the run closed", "date"),
            Column(
                "Workflow", ".spec.workflow['name','type']", "The Workflow, or the workflow type of code", wide=True
            ),
            Column("Activity", ".spec.activity.type", "The type of a standalone activity", wide=True),
            Column(
                "Operation", ".spec.nexusOperation.operation", "The name of a standalone Nexus operation", wide=True
            ),
            Column("Workflow-ID", ".spec.workflowId", "The workflow ID, if it is not the name", wide=True),
            Column(
                "Schedule", r".metadata.labels.perdure\.dev/schedule", "The Schedule that started the run", wide=True
            ),
            Column("Revision", ".status.revision.name", "The WorkflowRevision that the run executes", wide=True),
            Column("Message", condition_path("Succeeded", "message"), "Message of the condition Succeeded", wide=True),
        ),
        selectable=(
            ".status.phase",
            ".spec.workflowId",
            ".spec.workflow.name",
            ".spec.workflow.type",
            ".spec.workflow.taskQueue",
            ".status.firstRunId",
            ".status.revision.name",
        ),
    )

    kind: Literal["WorkflowRun"] = "WorkflowRun"
    """Always `WorkflowRun`."""

    spec: WorkflowRunSpec
    """What to run, and how. Immutable, except `ttlSecondsAfterFinished` and `ttlSecondsAfterFailure`."""

    status: WorkflowRunStatus = WorkflowRunStatus()
    """Observed status."""

    @property
    def workflow_id(self) -> str:
        """The workflow ID: the name of the WorkflowRun if the spec has none."""
        return self.spec.workflow_id or self.metadata.name
