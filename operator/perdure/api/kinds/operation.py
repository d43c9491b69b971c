"""Operation: one imperative request and its result."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import (
    Count,
    FailureTypeName,
    Flag,
    Identifier,
    Json,
    Large,
    Positive,
    ResourceName,
    Text,
    Time,
    Uid,
    WorkflowId,
    atomic_list,
)
from perdure.api.kinds.retrypolicy import COEFFICIENT_PATTERN
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.workflowrun import RunOptions, StepPath
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel
from perdure.api.phases import OperationPhase
from perdure.api.policies import OverlapPolicy, ResetPoint
from perdure.api.rules import Rule, at_most_one_of, cel_name, exactly_one_of, immutable, listed
from perdure.api.times import Duration, PositiveDuration

ON_RUNS = (
    "signal",
    "signal_with_start",
    "stop",
    "terminate",
    "reset",
    "retry",
    "delete",
    "complete_activity",
    "reset_activity",
    "update_activity_options",
    "update_options",
)
"""Requests that only a WorkflowRun supports, as Python names of the fields."""

ON_BOTH = ("cancel", "pause", "unpause")
"""Requests that a WorkflowRun and a Schedule support."""

ON_SCHEDULES = ("trigger", "backfill")
"""Requests that only a Schedule supports."""

ON_DEAD_LETTERS = ("redrive",)
"""Requests that only a DeadLetter supports."""

REQUESTS = (*ON_RUNS, *ON_BOTH, *ON_SCHEDULES, *ON_DEAD_LETTERS)
"""All requests, as Python names of the fields."""


class TargetKind(StrEnum):
    """Kind of the target of an Operation."""

    WORKFLOW_RUN = "WorkflowRun"
    """A run."""

    SCHEDULE = "Schedule"
    """A Schedule."""

    DEAD_LETTER = "DeadLetter"
    """An activity that finally failed."""


class Target(SpecModel):
    """The object that the Operation applies to, in the same namespace."""

    rules = (
        exactly_one_of("name", "workflow_id"),
        Rule(
            "`workflowId` must be used with `kind: WorkflowRun` only",
            "!has(self.workflowId) || self.kind == 'WorkflowRun'",
            lambda target: target.workflow_id is None or target.kind is TargetKind.WORKFLOW_RUN,
        ),
    )

    kind: TargetKind
    """Kind of the object."""

    name: ResourceName | None = None
    """Name of the object."""

    workflow_id: WorkflowId | None = None
    """Instead of `name`: the workflow ID of an open run."""


class Signal(SpecModel):
    """Sends a signal to a run. Fails if the run is closed."""

    name: Identifier
    """Name of the signal."""

    input: Json = None
    """Input of the signal, any value. Default: none."""


class SignalStart(RunOptions):
    """A run to start, without a workflow ID."""

    rules = (
        Rule(
            "`workflow` must be set: the workflow to start if no run is open",
            "has(self.workflow)",
            lambda start: start.workflow is not None,
            reason="FieldValueRequired",
        ),
        Rule(
            "`workflow.name` must be a Workflow in the same namespace: only definitions, runs and Schedules refer to others",
            "!has(self.workflow) || !has(self.workflow.name) || !self.workflow.name.contains('/')",
            lambda start: start.workflow is None or "/" not in (start.workflow.name or ""),
        ),
    )


class SignalWithStart(SpecModel):
    """Sends a signal to the open run with a workflow ID, and starts a run first if none is open."""

    name: Identifier
    """Name of the signal."""

    input: Json = None
    """Input of the signal, any value. Default: none."""

    start: SignalStart
    """The run to start if none is open. Its workflow ID is that of the target."""


class Cancel(SpecModel):
    """Requests the cancellation of a run, whose handlers run, or cancels the backfills of a Schedule.

    No further runs of the backfills start, and open ones continue. A second request changes nothing.
    """

    reason: Text = ""
    """Reason, for people."""


class Stop(SpecModel):
    """Stops a run: its open steps are cancelled, and only the handler `finally` runs."""

    reason: Text = ""
    """Reason, for people."""


class Terminate(SpecModel):
    """Closes a run immediately: no handlers run, and its pods are deleted."""

    reason: Text = ""
    """Reason, for people."""

    details: Json = None
    """Reason, for programs; any value. Default: none."""


class Delete(SpecModel):
    """Deletes a run with its history. An open run is stopped first, as by `terminate`.

    Only users who can delete WorkflowRuns can create such an Operation.
    """

    reason: Text = ""
    """Reason, for people."""


class Pause(SpecModel):
    """Pauses a run (no new steps start), some of its activities (no new attempts start), or a Schedule."""

    rules = (at_most_one_of("step", "activity_type"),)

    step: Annotated[StepPath, Field(min_length=1)] | None = None
    """Only the activity of this step, as in `status.pendingActivities`, such as `rooms[3]`.
    Default: the whole run."""

    activity_type: Identifier | None = None
    """Only the open activities of this type; `*`: those of all types. Default: the whole run."""

    reason: Text = ""
    """Reason, for people."""


class Unpause(SpecModel):
    """Ends a pause."""

    rules = (at_most_one_of("step", "activity_type"),)

    step: Annotated[StepPath, Field(min_length=1)] | None = None
    """Only the activity of this step, as in `status.pendingActivities`. Default: the whole run."""

    activity_type: Identifier | None = None
    """Only the open activities of this type; `*`: those of all types. Default: the whole run."""

    reason: Text = ""
    """Reason, for people."""


class VersioningBehavior(StrEnum):
    """How a workflow as code changes to a new version of its workers."""

    PINNED = "Pinned"
    """It stays with one version."""

    AUTO_UPGRADE = "AutoUpgrade"
    """It moves to the current version of the deployment."""

    ONE_TIME = "OneTime"
    """It moves to one version, and keeps the behavior that its workers report."""


class VersioningOverride(SpecModel):
    """The versioning of a workflow as code, in place of what its workers report."""

    rules = (
        Rule(
            "`deploymentName` and `buildId` must be set, unless `behavior` is `AutoUpgrade`",
            "(self.behavior == 'AutoUpgrade') != (has(self.deploymentName) && has(self.buildId))",
            lambda override: (
                (override.behavior is VersioningBehavior.AUTO_UPGRADE)
                != (override.deployment_name is not None and override.build_id is not None)
            ),
        ),
    )

    behavior: VersioningBehavior
    """Pinned, AutoUpgrade, or OneTime."""

    deployment_name: Identifier | None = None
    """Name of the worker deployment."""

    build_id: Identifier | None = None
    """Build ID of the version."""


class UpdateOptions(SpecModel):
    """Changes the options of a workflow as code, which are its versioning override."""

    versioning_override: VersioningOverride | None = None
    """The new override. Default: the override is removed."""


class Reset(SpecModel):
    """Starts a new run from a point in the history of a run, which is terminated if it is open."""

    rules = (exactly_one_of("event_id", "to"),)

    event_id: Positive | None = None
    """ID of the last event to keep: one at which the workflow made a decision. For any other event, the Operation fails and
    names the nearest ones."""

    to: ResetPoint | None = None
    """Instead of `eventId`: FirstWorkflowTask or LastWorkflowTask."""

    reapply_signals: Flag = True
    """Whether the new run gets the signals that arrived after the point. Default: true."""

    reapply_updates: Flag = True
    """Whether the new run gets the updates that workers accepted after the point. Default: true."""

    update_options: UpdateOptions | None = None
    """Changes the options of the new run. Default: those of the old run."""

    reason: Text = ""
    """Reason, for people."""


class Retry(SpecModel):
    """Starts a new run that runs the failed steps of a closed run again, and keeps the results of the others."""

    from_: Annotated[list[Annotated[StepPath, Field(min_length=1)]], atomic_list(100)] = Field(default_factory=list)
    """Steps to run again as well, with all steps that follow, such as `charge` or `rooms[3]`. Default: none."""

    reapply_signals: Flag = True
    """Whether the new run gets the signals that arrived after the first step that runs again. Default: true."""

    reason: Text = ""
    """Reason, for people."""


class ActivityResult(SpecModel):
    """The result of an activity."""

    output: Json = None
    """Output of the activity, any value. Default: none."""


class ActivityFailure(SpecModel):
    """The failure of an activity."""

    type: FailureTypeName = "Failed"
    """Type of the failure, which `catch` and retry policies match. Default: Failed."""

    message: Text = ""
    """Message of the failure."""

    details: Json = None
    """Details of the failure, for programs; any value. Default: none."""

    non_retryable: Flag = False
    """Whether retry policies must not retry the failure. Default: false."""


class ActivityCancellation(SpecModel):
    """The confirmation that an activity was cancelled on request."""

    details: Json = None
    """Details, such as the progress; any value. Default: none."""


class CompleteActivity(SpecModel):
    """Completes a pending activity from outside. Set exactly one of `result`, `failure` and `cancelled`."""

    rules = (exactly_one_of("result", "failure", "cancelled"),)

    step: Annotated[StepPath, Field(min_length=1)]
    """The step of the activity, as in `status.pendingActivities`, such as `rooms[3]`; the activity ID for SDK workflows."""

    result: ActivityResult | None = None
    """The activity succeeded."""

    failure: ActivityFailure | None = None
    """The attempt failed. The retry policy of the activity applies."""

    cancelled: ActivityCancellation | None = None
    """The activity was cancelled."""


class ResetActivity(SpecModel):
    """Restarts the attempts of pending activities at 1. A retry that is due later starts immediately."""

    rules = (exactly_one_of("step", "activity_type"),)

    step: Annotated[StepPath, Field(min_length=1)] | None = None
    """The step of the activity, as in `status.pendingActivities`, such as `rooms[3]`; the activity ID for SDK workflows."""

    activity_type: Identifier | None = None
    """Instead of `step`: all pending activities of this type; `*`: those of all types."""

    reset_heartbeat: Flag = False
    """Whether the next attempt starts without the details of the last heartbeat. Default: false."""

    keep_paused: Flag = False
    """Whether a paused activity stays paused. Default: false."""

    restore_options: Flag = False
    """Whether the activity gets back the options from its workflow. Default: false."""


class RetryPolicyChanges(SpecModel):
    """Changes of a retry policy."""

    rules = (
        Rule(
            "`backoffCoefficient` must be at least 1: otherwise each wait would be shorter than the previous one",
            "!has(self.backoffCoefficient) || double(self.backoffCoefficient) >= 1.0",
            lambda policy: policy.backoff_coefficient is None or float(policy.backoff_coefficient) >= 1,
        ),
    )

    initial_interval: PositiveDuration | None = None
    """Delay before the first retry. Default: unchanged."""

    backoff_coefficient: Annotated[str, Field(min_length=1, max_length=16, pattern=COEFFICIENT_PATTERN)] | None = None
    """Factor between two waits: a decimal number of at least 1, as a string. Default: unchanged."""

    maximum_interval: Duration | None = None
    """Longest delay; `0s`: 100 times the initial one. Default: unchanged."""

    maximum_attempts: Count | None = None
    """Maximum number of attempts; 0: unlimited. Default: unchanged."""


class UpdateActivityOptions(SpecModel):
    """Changes the options of pending activities that SDK workers run. What is not set stays as it is."""

    rules = (exactly_one_of("step", "activity_type"),)

    step: Annotated[StepPath, Field(min_length=1)] | None = None
    """The step of the activity, as in `status.pendingActivities`; the activity ID for SDK workflows."""

    activity_type: Identifier | None = None
    """Instead of `step`: all pending activities of this type; `*`: those of all types."""

    restore: Flag = False
    """Whether the activities get back the options from their workflow, instead of the changes below. Default: false."""

    task_queue: Identifier | None = None
    """The task queue that their workers poll. Default: unchanged."""

    schedule_to_close_timeout: Duration | None = None
    """`0s`: none. Default: unchanged."""

    schedule_to_start_timeout: Duration | None = None
    """`0s`: none. Default: unchanged."""

    start_to_close_timeout: Duration | None = None
    """`0s`: none. Default: unchanged."""

    heartbeat_timeout: Duration | None = None
    """`0s`: none. Default: unchanged."""

    retry_policy: RetryPolicyChanges | None = None
    """Changes of the retry policy. Default: unchanged."""

    priority: Json = None
    """The priority, as JSON of `temporal.api.common.v1.Priority`. Default: unchanged."""


class Trigger(SpecModel):
    """Starts a run of a Schedule now, even if the Schedule is paused."""

    overlap_policy: OverlapPolicy | None = None
    """What to do if an earlier run is still open. Default: the policy of the Schedule."""


class Backfill(SpecModel):
    """Starts the runs of a Schedule for all times between two points in time."""

    rules = (
        Rule(
            "`endTime` must not be before `startTime`",
            "self.startTime <= self.endTime",
            lambda backfill: backfill.start_time <= backfill.end_time,
        ),
    )

    start_time: Time
    """First time to consider."""

    end_time: Time
    """Last time to consider."""

    overlap_policy: OverlapPolicy = OverlapPolicy.ALLOW_ALL
    """What to do if several runs are due: AllowAll starts them at the same time, BufferAll one after the other.
    Default: AllowAll."""

    max_concurrency: Positive | None = None
    """Maximum number of runs of this backfill that are open at the same time; the next one starts when one closes.
    Default: no limit."""


class Redrive(SpecModel):
    """Runs the activity of a DeadLetter again, with the same input."""


def _target_rule(kind: TargetKind, requests: tuple[str, ...]) -> Rule:
    return Rule(
        f"`target.kind` must be `{kind}` for {listed(requests)}",
        f"self.target.kind == '{kind}' || !("
        + " || ".join(f"has(self.{cel_name(request)})" for request in requests)
        + ")",
        lambda spec: spec.target.kind is kind or all(getattr(spec, request) is None for request in requests),
    )


class OperationSpec(SpecModel):
    """The target and exactly one request."""

    rules = (
        exactly_one_of(*REQUESTS),
        _target_rule(TargetKind.WORKFLOW_RUN, ON_RUNS),
        _target_rule(TargetKind.SCHEDULE, ON_SCHEDULES),
        _target_rule(TargetKind.DEAD_LETTER, ON_DEAD_LETTERS),
        Rule(
            f"`target.kind` must be `WorkflowRun` or `Schedule` for {listed(ON_BOTH)}",
            f"self.target.kind != 'DeadLetter' || !({' || '.join(f'has(self.{request})' for request in ON_BOTH)})",
            lambda spec: (
                spec.target.kind is not TargetKind.DEAD_LETTER
                or all(getattr(spec, request) is None for request in ON_BOTH)
            ),
        ),
        Rule(
            "`step` must be used with `target.kind: WorkflowRun` only, as `activityType`: a Schedule has no steps",
            "self.target.kind == 'WorkflowRun' || "
            "(!(has(self.pause) && (has(self.pause.step) || has(self.pause.activityType))) && "
            "!(has(self.unpause) && (has(self.unpause.step) || has(self.unpause.activityType))))",
            lambda spec: (
                spec.target.kind is TargetKind.WORKFLOW_RUN
                or all(
                    pause is None or (pause.step is None and pause.activity_type is None)
                    for pause in (spec.pause, spec.unpause)
                )
            ),
        ),
        Rule(
            "`target.workflowId` must be set for `signalWithStart`, which may have to start the run",
            "!has(self.signalWithStart) || has(self.target.workflowId)",
            lambda spec: spec.signal_with_start is None or spec.target.workflow_id is not None,
        ),
        immutable("`spec` must not change: an Operation runs once; create another one"),
    )

    target: Target
    """The object that the Operation applies to, in the same namespace."""

    signal: Signal | None = None
    """Sends a signal to a run."""

    signal_with_start: SignalWithStart | None = None
    """Sends a signal to the open run with a workflow ID, and starts a run first if none is open."""

    cancel: Cancel | None = None
    """Requests the cancellation of a run, or cancels the backfills of a Schedule."""

    stop: Stop | None = None
    """Stops a run: only the handler `finally` runs."""

    terminate: Terminate | None = None
    """Closes a run immediately."""

    pause: Pause | None = None
    """Pauses a run, one of its activities, or a Schedule."""

    unpause: Unpause | None = None
    """Ends a pause."""

    reset: Reset | None = None
    """Starts a new run from a point in the history of a run."""

    retry: Retry | None = None
    """Starts a new run that runs the failed steps of a closed run again."""

    delete: Delete | None = None
    """Deletes a run with its history."""

    complete_activity: CompleteActivity | None = None
    """Completes a pending activity from outside."""

    reset_activity: ResetActivity | None = None
    """Restarts the attempts of pending activities at 1."""

    update_activity_options: UpdateActivityOptions | None = None
    """Changes the options of pending activities that SDK workers run."""

    update_options: UpdateOptions | None = None
    """Changes the versioning override of a workflow as code."""

    trigger: Trigger | None = None
    """Starts a run of a Schedule now."""

    backfill: Backfill | None = None
    """Starts the runs of a Schedule for a range of time."""

    redrive: Redrive | None = None
    """Runs the activity of a DeadLetter again."""

    ttl_seconds_after_finished: Count = 3600
    """Seconds after which the operator deletes the finished Operation. Default: 3600, one hour."""

    @property
    def request(self) -> str:
        """The request: the Python name of the one field that is set, such as `signal_with_start`."""
        return next(request for request in REQUESTS if getattr(self, request) is not None)


class OperationStatus(StatusModel):
    """Observed status of an Operation."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    phase: OperationPhase | None = None
    """Phase of the Operation: Running, Complete or Failed; derived from the conditions."""

    verb: Annotated[str, Field(max_length=64)] | None = None
    """The request, such as `signal`: the name of the field in the spec."""

    arrival: Large | None = None
    """Position in the order of creation. The Operations of one target run in this order."""

    workflow_run: ResourceName | None = None
    """Name of the target run. Recorded before the request, so that a restart cannot change the target."""

    run_id: Uid | None = None
    """Run ID of the target run: the UID of the WorkflowRun."""

    start_time: Time | None = None
    """When the operator started the Operation."""

    conditions: Conditions = Field(default_factory=list)
    """`Complete`: the target has recorded the request. `Failed`: the request failed; the message says why. `NewerState`: the
    request waits, because only a newer version of the operator can read the Operation."""

    result: Json = None
    """Result, for programs: the target run, and for `signalWithStart` whether the Operation started it. For a reset or a
    retry, the new run; recorded when it is created."""

    completion_time: Time | None = None
    """When the Operation completed or failed."""


class Operation(Resource):
    """One imperative request and its result: signal, cancel, terminate, pause, reset, trigger, backfill and others.

    An Operation runs once and reports the result in its conditions.
    """

    info = KindInfo(
        plural="operations",
        short_name="wop",
        columns=(
            Column("Verb", ".status.verb", "The request"),
            Column("Target", ".spec.target.kind", "Kind of the target", wide=True),
            Column("Name", ".spec.target.name", "Name of the target"),
            Column("Workflow-ID", ".spec.target.workflowId", "Workflow ID of the target"),
            Column("Run", ".status.workflowRun", "Name of the target run", wide=True),
            Column("Phase", ".status.phase", "Running, Complete or Failed"),
            Column("Reason", '.status.conditions[?(@.status=="True")].reason', "Reason of the condition"),
            Column("Message", '.status.conditions[?(@.status=="True")].message', "Message of the condition", wide=True),
        ),
        selectable=(".spec.target.kind", ".spec.target.name", ".spec.target.workflowId", ".status.phase"),
    )

    kind: Literal["Operation"] = "Operation"
    """Always `Operation`."""

    spec: OperationSpec
    """The target and the request. Immutable."""

    status: OperationStatus = OperationStatus()
    """Observed status."""
