"""WorkflowLimit: how many runs, or activities of runs, may be open at the same time, or start per time, for each key."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from operator import not_
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import (
    MAX_RESOURCE_NAME,
    Count,
    FieldShape,
    Flag,
    Large,
    Positive,
    ResourceName,
    Template,
    Time,
    Uid,
    atomic_list,
)
from perdure.api.kinds.status import Conditions
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.times import DURATION_MAX_LENGTH, DURATION_PATTERN, DurationShape, PositiveDuration

MAX_HOLDERS = 500
"""Maximum number of holders of one WorkflowLimit at the same time, with all keys together."""

MAX_WAITERS = 500
"""Maximum number of waiters that the status of a WorkflowLimit lists."""

MAX_RECENT = 1_000
"""Maximum number of recent starts that the status of a WorkflowLimit with a rate lists, with all keys together."""

MAX_KEY = 253
"""Maximum length of a key."""

MAX_STEP = 253
"""Maximum length of the name of a step in the status."""

MAX_LIMITS = 10
"""Maximum number of WorkflowLimits that one run, or one activity, takes."""

MAX_SELECTED = 100
"""Maximum number of names in each list with which a WorkflowLimit selects what takes it."""

MAX_STEP_LIMITS = 3
"""Maximum number of WorkflowLimits that one step takes."""

SelectedName = Annotated[str, Field(min_length=1, max_length=1000)]
"""A type or a task queue of Temporal."""

Priority = Annotated[int, Field(strict=True, ge=-1000, le=1000, json_schema_extra={"format": "int32"})]
"""The priority of a run in the queues of WorkflowLimits; higher values go first."""


class OverflowPolicy(StrEnum):
    """What a run does if a WorkflowLimit has no room for it."""

    QUEUE = "Queue"
    """Wait in the queue."""

    FAIL = "Fail"
    """Fail with the type `LimitReached`."""

    CANCEL_RUNNING = "CancelRunning"
    """Wait in the queue, in which the newest runs of a key replace older ones: one that waits with this policy ends without
    having started. When the run is the next of its key, the operator requests the cancellation of the run that has held it the
    longest, unless that run is newer."""


class LimitUse(SpecModel):
    """A WorkflowLimit that every run of a definition takes before it starts, and holds until it has ended."""

    name: ResourceName
    """Name of a WorkflowLimit in the same namespace."""

    key: Template = ""
    """The limit applies to the runs of each key separately, such as `${input.customer}`; text with expressions, which can use
    `input` and `schedule`. Default: empty, one key for all runs."""

    wait_timeout: PositiveDuration | None = None
    """How long the run may wait, from its creation, before it fails with the type `LimitReached`; a duration such as `10m`.
    Default: no limit."""

    overflow_policy: OverflowPolicy = OverflowPolicy.QUEUE
    """How the run reacts when other runs have taken all of the capacity. Default: Queue."""


class ActivityOverflowPolicy(StrEnum):
    """What an activity or a step does if a WorkflowLimit has no room for it."""

    QUEUE = "Queue"
    """Wait in the queue."""

    FAIL = "Fail"
    """Fail with the type `LimitReached`."""


class ActivityLimit(SpecModel):
    """A WorkflowLimit that an activity takes before its first attempt, and holds until it has ended."""

    name: ResourceName
    """Name of a WorkflowLimit in the same namespace."""

    key: Template = ""
    """The limit applies to each key separately, such as `${input.customer}`; text with expressions, which can use `input` (the
    input of the activity) and `run`. Default: empty, one key for all."""

    wait_timeout: PositiveDuration | None = None
    """How long the activity may wait, from when it was scheduled, before it fails with the type `LimitReached`; a duration such
    as `10m`. Default: no limit."""

    overflow_policy: ActivityOverflowPolicy = ActivityOverflowPolicy.QUEUE
    """How the activity reacts when others have taken all of the capacity: Queue or Fail. Default: Queue."""


_WAIT = DurationShape()


class StepLimit(SpecModel):
    """A WorkflowLimit that a step takes before its block or other action begins, and holds until that has ended."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_RESOURCE_NAME)]
    """Name of a WorkflowLimit in the same namespace."""

    key: Template = ""
    """The limit applies to each key separately, such as `${item.customer}`; text with expressions. Default: empty, one key for
    all."""

    wait_timeout: (
        Annotated[
            timedelta,
            # Without a CEL rule: the API server estimates the cost of rules with all fields of all steps full.
            FieldShape(
                _WAIT.read,
                {"type": "string", "minLength": 1, "maxLength": DURATION_MAX_LENGTH, "pattern": DURATION_PATTERN},
                _WAIT.write,
            ),
        ]
        | None
    ) = None
    """How long the step may wait, from when it would begin, before it fails with the type `LimitReached`; a duration such as
    `10m`. Default: no limit."""

    overflow_policy: ActivityOverflowPolicy = ActivityOverflowPolicy.QUEUE
    """How the step reacts when others have taken all of the capacity: Queue or Fail. Default: Queue."""


class RateUnit(StrEnum):
    """What the rate of a WorkflowLimit counts."""

    ADMISSIONS = "Admissions"
    """Each run, activity, and step, once: when it takes the limit. Retries are not counted, and pods may start later."""

    ATTEMPTS = "Attempts"
    """Each attempt of an activity in a pod, when the operator creates the pod: also retries, and those that replace a lost pod.
    Runs, steps, and activities of SDK workers are counted as with Admissions."""


class StartRate(SpecModel):
    """How many runs and activities can take a limit, or how many of their attempts can start, within a period."""

    count: Annotated[int, Field(strict=True, ge=1, le=MAX_HOLDERS, json_schema_extra={"format": "int32"})]
    """Maximum number for each key within any `period`."""

    period: PositiveDuration
    """The period, such as `1m`."""

    counts: RateUnit | None = (
        None  # a default of the CRD would be in each limit, and operators of 0.1.0 reject the field
    )
    """What is counted: Admissions, each run, activity, and step when it takes the limit; or Attempts, each attempt of an activity
    when its pod is created. Default: Admissions."""

    @property
    def counts_attempts(self) -> bool:
        """Whether each attempt of an activity in a pod counts."""
        return self.counts is RateUnit.ATTEMPTS


class LimitTakers(StrEnum):
    """What takes a WorkflowLimit without naming it."""

    RUNS = "Runs"
    """Runs, from their start until they have ended; a workflow as code from its first workflow task. Children are left out: a
    parent that holds the limit could wait for them forever."""

    ACTIVITIES = "Activities"
    """Activities in pods and of SDK workers, from their first attempt until they have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitTaker:
    """A run or an activity that may take limits without naming them."""

    kind: LimitTakers
    workflow: str = ""
    """Name of the Workflow that defines it; empty for an inline definition, and for work of SDK workers."""
    type: str = ""
    """Type of the workflow or of the activity."""
    task_queue: str = ""
    """The task queue of the workers; empty for what has none."""
    group: str = ""
    """The key if the limit applies to each Workflow separately: its name, or the type of a workflow as code."""


class LimitSelector(SpecModel):
    """The runs or activities of a namespace that take a WorkflowLimit without naming it: those that match all of the lists."""

    takers: LimitTakers = LimitTakers.RUNS
    """Runs or Activities. Default: Runs."""

    workflows: Annotated[list[ResourceName], atomic_list(MAX_SELECTED)] = Field(default_factory=list)
    """Names of the Workflows whose runs, or whose activities, take the limit. Default: empty, those of all Workflows, inline
    definitions, and workflows as code of the namespace."""

    types: Annotated[list[SelectedName], atomic_list(MAX_SELECTED)] = Field(default_factory=list)
    """Types of the workflows or activities that take the limit, such as the names of activities. The type of a run of a Workflow
    is the name of the Workflow. Default: empty, all types."""

    task_queues: Annotated[list[SelectedName], atomic_list(MAX_SELECTED)] = Field(default_factory=list)
    """Task queues of SDK workers whose workflows or activities take the limit. Default: empty, all task queues, and what has
    none."""

    per_workflow: Flag = False
    """Whether the limit applies to each Workflow separately: its name is the key, or the type of a workflow as code. Inline
    definitions share an empty key. Default: false."""

    def key(self, taker: LimitTaker) -> str | None:
        """Return the key that something takes the limit for; None if it does not take it.

        Args:
            taker: The run or the activity.
        """
        lists = ((self.workflows, taker.workflow), (self.types, taker.type), (self.task_queues, taker.task_queue))
        if taker.kind is not self.takers or any(names and name not in names for names, name in lists):
            return None
        return taker.group[:MAX_KEY] if self.per_workflow else ""


class WorkflowLimitSpec(SpecModel):
    """How many runs and activities can hold the limit, and how many can take it per time."""

    capacity: Annotated[int, Field(strict=True, ge=0, le=MAX_HOLDERS, json_schema_extra={"format": "int32"})] = 1
    """Maximum number of runs and activities of each key that hold the limit at the same time. 1 makes it a mutex; 0 lets none
    start. If you lower it, those that hold the limit continue. Default: 1."""

    rate: StartRate | None = None
    """How many runs and activities of each key can take the limit per time, or how many attempts can start. For a rate alone, set
    `capacity: 500`. Default: no limit."""

    applies_to: LimitSelector | None = None
    """The runs or activities of the namespace that take the limit without naming it, when they start. Default: only those that
    name it."""


class LimitEntry(StatusModel):
    """A run, an activity, or a step that holds the limit, or waits for it."""

    run: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the WorkflowRun."""

    run_id: Uid
    """Its run ID: the UID of the WorkflowRun."""

    event_id: Count | None = None
    """ID of the event that scheduled the activity, or asked for the limits of the step. Not set: the run itself takes it."""

    step: Annotated[str, Field(max_length=MAX_STEP)] | None = None
    """The step, shortened if it is long."""

    whole_step: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether the step holds the limit for its whole block, instead of an activity. Default: false."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""
    """The key that it takes the limit for."""

    priority: Priority = 0
    """The priority of the run; higher values go first."""

    cancels_running: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether it is a run with the `overflowPolicy` CancelRunning. Default: false."""

    replaced_by: Annotated[str, Field(max_length=253)] | None = None
    """Name of the newer run that replaces it. It never gets the limit, and ends without having started."""

    together: Annotated[Count, Field(exclude_if=not_)] = 0
    """Number of places in WorkflowLimits that it takes together, all or none. Default: 0, only this one."""

    round: Annotated[Count, Field(exclude_if=not_)] = 0
    """How often it gave places back because it could not take all of them. Default: 0."""

    attempt: Annotated[Count, Field(exclude_if=not_)] = 0
    """With a `rate` that counts attempts, and for an activity in a pod: the attempt that may start, or waits for the rate.
    Default: 0."""

    permitted: Time | None = None
    """When the rate permitted that attempt. If its pod is not created within 2 s, it waits again. Not set: it waits."""

    reserves: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether the next free place is kept for it while it waits for the others that it takes together. Default: false."""

    created: Time
    """When the run was created, or the activity was scheduled; of two with the same priority, the older one goes first."""

    since: Time
    """When it took the limit, or began to wait for it."""

    @property
    def id(self) -> str:
        """Identifies the run, or its activity, in the queue."""
        return self.run_id if self.event_id is None else f"{self.run_id}/{self.event_id}"


class RecentStart(StatusModel):
    """When a run or an activity took a limit with a rate, or when an attempt was permitted to start."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""
    """The key that it took the limit for."""

    time: Time
    """When it took the limit, or was permitted to start."""


class WorkflowLimitStatus(StatusModel):
    """Who holds the limit, and who waits for it."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the limit is valid, and can be taken."""

    held: Count = 0
    """Number of runs and activities that hold the limit."""

    waiting: Count = 0
    """Number of runs and activities that wait for it and are listed here."""

    holders: Annotated[list[LimitEntry], atomic_list(MAX_HOLDERS)] = Field(default_factory=list)
    """The runs and activities that hold the limit. One is removed when it has ended and none of its pods runs any more."""

    waiters: Annotated[list[LimitEntry], atomic_list(MAX_WAITERS)] = Field(default_factory=list)
    """The first runs and activities that wait for the limit, in the order in which they get it."""

    recent: Annotated[list[RecentStart], atomic_list(MAX_RECENT)] = Field(default_factory=list)
    """What counted during the last period of the `rate`, as of the last time that something counted."""


class WorkflowLimit(Resource):
    """How many runs, or activities, of a namespace may be open at the same time: a semaphore or a mutex, for all or each key."""

    info = KindInfo(
        plural="workflowlimits",
        short_name="wlim",
        columns=(
            Column("Capacity", ".spec.capacity", "Maximum number of holders of each key", "integer"),
            Column("Held", ".status.held", "Number of runs and activities that hold it", "integer"),
            Column("Waiting", ".status.waiting", "Number of runs and activities that wait for it", "integer"),
            Column("Ready", condition_path("Ready", "status"), "Whether it can be taken"),
            Column("Message", condition_path("Ready", "message"), "What is wrong with it", wide=True),
        ),
    )

    kind: Literal["WorkflowLimit"] = "WorkflowLimit"
    """Always `WorkflowLimit`."""

    spec: WorkflowLimitSpec = WorkflowLimitSpec()
    """How many runs and activities can hold the limit."""

    status: WorkflowLimitStatus = WorkflowLimitStatus()
    """Who holds the limit, and who waits for it."""
