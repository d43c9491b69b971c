"""Operation: one imperative request and its answer."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel
from perdure.api.conditions import Conditions
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
from perdure.api.rules import Rule, cel_name, exactly_one_of, immutable, listed
from perdure.api.schedule import OverlapPolicy
from perdure.api.workflowrun import RunOptions, StepPath

ON_RUNS = ("signal", "signal_with_start", "cancel", "stop", "terminate", "reset", "retry", "complete_activity")
"""What can be asked of a WorkflowRun only, as Python names of the fields."""

ON_BOTH = ("pause", "unpause")
"""What can be asked of a WorkflowRun and of a Schedule."""

ON_SCHEDULES = ("trigger", "backfill")
"""What can be asked of a Schedule only."""

ON_DEAD_LETTERS = ("redrive",)
"""What can be asked of a DeadLetter only."""

REQUESTS = (*ON_RUNS, *ON_BOTH, *ON_SCHEDULES, *ON_DEAD_LETTERS)
"""Everything that can be asked, as Python names of the fields."""


class TargetKind(StrEnum):
    """What an Operation is about."""

    WORKFLOW_RUN = "WorkflowRun"
    """A run."""

    SCHEDULE = "Schedule"
    """A schedule."""

    DEAD_LETTER = "DeadLetter"
    """An activity that was set aside."""


class Target(SpecModel):
    """The object that the Operation is about, in the same namespace."""

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
    """Instead of `name`: the workflow id, for the run of it that is open."""


class Signal(SpecModel):
    """Sends a signal to a run. To a closed run it is an error."""

    name: Identifier
    """Name of the signal."""

    input: Json = None
    """What the signal carries, any value. Default none."""


class SignalStart(RunOptions):
    """A run to start, without its id."""

    rules = (
        Rule(
            "`workflow` must be set: what to run if no run is open",
            "has(self.workflow)",
            lambda start: start.workflow is not None,
            reason="FieldValueRequired",
        ),
    )


class SignalWithStart(SpecModel):
    """Sends a signal to the open run of a workflow id, and starts a run first if none is open."""

    name: Identifier
    """Name of the signal."""

    input: Json = None
    """What the signal carries, any value. Default none."""

    start: SignalStart
    """The run to start if none is open; its workflow id is the target's."""


class Cancel(SpecModel):
    """Asks a run to cancel itself; its handlers run. A second time changes nothing."""

    reason: Text = ""
    """Why, for people."""


class Stop(SpecModel):
    """Asks a run to stop: its open steps are cancelled, and of its handlers only `finally` runs."""

    reason: Text = ""
    """Why, for people."""


class Terminate(SpecModel):
    """Closes a run at once: no handlers run, and pods are killed."""

    reason: Text = ""
    """Why, for people."""

    details: Json = None
    """Why, for programs; any value. Default none."""


class Pause(SpecModel):
    """Pauses a run (no new step is started), one of its activities (no new attempt is started), or a schedule."""

    step: Annotated[StepPath, Field(min_length=1)] | None = None
    """Only the activity of this step, as `status.pendingActivities` calls it, such as `rooms[3]`.
    Default: the whole run."""

    reason: Text = ""
    """Why, for people."""


class Unpause(SpecModel):
    """Ends a pause."""

    step: Annotated[StepPath, Field(min_length=1)] | None = None
    """Only the activity of this step, as `status.pendingActivities` calls it. Default: the whole run."""

    reason: Text = ""
    """Why, for people."""


class ResetPoint(StrEnum):
    """A point in a history."""

    FIRST_WORKFLOW_TASK = "FirstWorkflowTask"
    """Before the first decision: everything is done again."""

    LAST_WORKFLOW_TASK = "LastWorkflowTask"
    """Before the newest decision of the steps: compensations and handlers run again, and so does work that had failed."""


class Reset(SpecModel):
    """Starts a new run from a point in the history of this one, which is terminated if it is open."""

    rules = (exactly_one_of("event_id", "to"),)

    event_id: Positive | None = None
    """Id of the event up to which the history is kept: one at which the workflow has decided something. Of another
    one the answer names the next."""

    to: ResetPoint | None = None
    """Instead of `eventId`: FirstWorkflowTask or LastWorkflowTask."""

    reapply_signals: Flag = True
    """Whether signals that came after the point are given to the new run. Default true."""

    reapply_updates: Flag = True
    """Whether updates that workers accepted after the point are given to the new run. Default true."""

    reason: Text = ""
    """Why, for people."""


class Retry(SpecModel):
    """Starts a new run that does again what failed in this one, which is closed, and keeps what succeeded."""

    from_: Annotated[list[Annotated[StepPath, Field(min_length=1)]], atomic_list(100)] = Field(default_factory=list)
    """Steps that are done again too, with all that comes after them, such as `charge` or `rooms[3]`. Default none."""

    reapply_signals: Flag = True
    """Whether signals that came after the point from which it is done again are given to the new run. Default true."""

    reason: Text = ""
    """Why, for people."""


class ActivityResult(SpecModel):
    """The result of an activity."""

    output: Json = None
    """Output of the activity, any value. Default none."""


class ActivityFailure(SpecModel):
    """The failure of an activity."""

    type: FailureTypeName = "Failed"
    """Type of the failure, which `catch` and retry policies compare. Default Failed."""

    message: Text = ""
    """What went wrong, for people."""

    details: Json = None
    """What went wrong, for programs; any value. Default none."""

    non_retryable: Flag = False
    """Whether retry policies leave the failure alone. Default false."""


class ActivityCancellation(SpecModel):
    """That an activity was cancelled, as it was asked to."""

    details: Json = None
    """How far it came, any value. Default none."""


class CompleteActivity(SpecModel):
    """Answers for an open activity, in place of what does it: exactly one of `result`, `failure` and `cancelled`."""

    rules = (exactly_one_of("result", "failure", "cancelled"),)

    step: Annotated[StepPath, Field(min_length=1)]
    """The step of the activity, as `status.pendingActivities` calls it, such as `rooms[3]`; the activity id for SDK
    workflows."""

    result: ActivityResult | None = None
    """The activity succeeded."""

    failure: ActivityFailure | None = None
    """The attempt failed; it is retried by the activity's policy."""

    cancelled: ActivityCancellation | None = None
    """The activity was cancelled."""


class Trigger(SpecModel):
    """Starts a run of a schedule now, also while it is paused."""

    overlap_policy: OverlapPolicy | None = None
    """What to do when an earlier run is still open. Default: the schedule's own policy."""


class Backfill(SpecModel):
    """Starts the runs of all times between two instants, as if it were then."""

    rules = (
        Rule(
            "`endTime` must not be before `startTime`",
            "self.startTime <= self.endTime",
            lambda backfill: backfill.start_time <= backfill.end_time,
        ),
    )

    start_time: Time
    """The first instant."""

    end_time: Time
    """The last instant."""

    overlap_policy: OverlapPolicy = OverlapPolicy.ALLOW_ALL
    """What to do when several runs are due: AllowAll starts them at once, BufferAll one after the other.
    Default AllowAll."""


class Redrive(SpecModel):
    """Runs an activity that was set aside again, with the same input."""


def _asked_of(kind: TargetKind, requests: tuple[str, ...]) -> Rule:
    return Rule(
        f"`target.kind` must be `{kind}`: {listed(requests)} can be asked of nothing else"
        if len(requests) > 1
        else f"`target.kind` must be `{kind}` for {listed(requests)}",
        f"self.target.kind == '{kind}' || !("
        + " || ".join(f"has(self.{cel_name(request)})" for request in requests)
        + ")",
        lambda spec: spec.target.kind is kind or all(getattr(spec, request) is None for request in requests),
    )


class OperationSpec(SpecModel):
    """Who is asked, and what: exactly one request."""

    rules = (
        exactly_one_of(*REQUESTS),
        _asked_of(TargetKind.WORKFLOW_RUN, ON_RUNS),
        _asked_of(TargetKind.SCHEDULE, ON_SCHEDULES),
        _asked_of(TargetKind.DEAD_LETTER, ON_DEAD_LETTERS),
        Rule(
            "`target.kind` must be `WorkflowRun` or `Schedule` for `pause` and `unpause`",
            "self.target.kind != 'DeadLetter' || !(has(self.pause) || has(self.unpause))",
            lambda spec: (
                spec.target.kind is not TargetKind.DEAD_LETTER or (spec.pause is None and spec.unpause is None)
            ),
        ),
        Rule(
            "`step` must be used with `target.kind: WorkflowRun` only: a schedule has no steps",
            "self.target.kind == 'WorkflowRun' || "
            "(!(has(self.pause) && has(self.pause.step)) && !(has(self.unpause) && has(self.unpause.step)))",
            lambda spec: (
                spec.target.kind is TargetKind.WORKFLOW_RUN
                or all(pause is None or pause.step is None for pause in (spec.pause, spec.unpause))
            ),
        ),
        Rule(
            "`target.workflowId` must be set for `signalWithStart`: there may be no run yet that has a name",
            "!has(self.signalWithStart) || has(self.target.workflowId)",
            lambda spec: spec.signal_with_start is None or spec.target.workflow_id is not None,
        ),
        immutable("`spec` must not change: an Operation is done once; create another one instead"),
    )

    target: Target
    """The object that the Operation is about, in the same namespace."""

    signal: Signal | None = None
    """Sends a signal to a run."""

    signal_with_start: SignalWithStart | None = None
    """Sends a signal to the open run of a workflow id, and starts a run first if none is open."""

    cancel: Cancel | None = None
    """Asks a run to cancel itself."""

    stop: Stop | None = None
    """Asks a run to stop: only `finally` runs."""

    terminate: Terminate | None = None
    """Closes a run at once."""

    pause: Pause | None = None
    """Pauses a run, one of its activities, or a schedule."""

    unpause: Unpause | None = None
    """Ends a pause."""

    reset: Reset | None = None
    """Starts a new run from a point in the history of a run."""

    retry: Retry | None = None
    """Starts a new run that does again what failed in a closed one."""

    complete_activity: CompleteActivity | None = None
    """Answers for an open activity."""

    trigger: Trigger | None = None
    """Starts a run of a schedule now."""

    backfill: Backfill | None = None
    """Starts the runs of a schedule for a time that has passed."""

    redrive: Redrive | None = None
    """Runs an activity that was set aside again."""

    ttl_seconds_after_finished: Count = 3600
    """How long the Operation is kept after it was done, in seconds. Default 3600, one hour."""

    @property
    def request(self) -> str:
        """What is asked: the Python name of the one field that says it, such as `signal_with_start`."""
        return next(request for request in REQUESTS if getattr(self, request) is not None)


class OperationPhase(StrEnum):
    """Where an Operation stands, in one word; absent until the operator has seen it."""

    RUNNING = "Running"
    """It was accepted, and waits for its target to record it."""

    COMPLETE = "Complete"
    """It was done."""

    FAILED = "Failed"
    """It could not be done, and will not be tried again."""


class OperationStatus(StatusModel):
    """The answer."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status is about."""

    phase: OperationPhase | None = None
    """Where the Operation stands: Running, Complete or Failed; derived from the conditions."""

    verb: Annotated[str, Field(max_length=64)] | None = None
    """What is asked, in one word, such as `signal`: the name of the field of the spec."""

    arrival: Large | None = None
    """Its place in the order in which Operations were made; those of one target are done in this order."""

    workflow_run: ResourceName | None = None
    """Name of the run that is asked; noted before it is asked, so that no other run is asked after a restart."""

    run_id: Uid | None = None
    """Id of that run: the UID of the WorkflowRun."""

    start_time: Time | None = None
    """When the operator took it up."""

    conditions: Conditions = Field(default_factory=list)
    """`Complete`: it was done. `Failed`: it could not be done; the message tells why."""

    result: Json = None
    """What came of it, for programs: the run that was asked, and for `signalWithStart` whether it was started for it."""

    completion_time: Time | None = None
    """When it was done or failed."""


class Operation(Resource):
    """One imperative request and its answer: signal, cancel, terminate, pause, reset, trigger, backfill and others.

    It is done once, and answers in its conditions.
    """

    info = KindInfo(
        plural="operations",
        short_name="wop",
        columns=(
            Column("Verb", ".status.verb", "What is asked"),
            Column("Target", ".spec.target.kind", "What kind of object it is about"),
            Column("Name", ".spec.target.name", "The name of that object"),
            Column("Workflow-ID", ".spec.target.workflowId", "The workflow id that it is about"),
            Column("Run", ".status.workflowRun", "The run that is asked", wide=True),
            Column("Phase", ".status.phase", "Running; Complete or Failed, once it was done"),
            Column("Reason", '.status.conditions[?(@.status=="True")].reason', "Why it is in that state"),
            Column("Message", '.status.conditions[?(@.status=="True")].message', "What is to know about it", wide=True),
        ),
        selectable=(".spec.target.kind", ".spec.target.name", ".spec.target.workflowId", ".status.phase"),
    )

    kind: Literal["Operation"] = "Operation"
    """Always `Operation`."""

    spec: OperationSpec
    """Who is asked, and what. Immutable."""

    status: OperationStatus = OperationStatus()
    """The answer."""
