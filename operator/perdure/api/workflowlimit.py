"""WorkflowLimit: how many runs may be open at the same time, for all of them together or for each key."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.conditions import Conditions
from perdure.api.durations import PositiveDuration
from perdure.api.field_shapes import atomic_list
from perdure.api.fields import Count, Large, ResourceName, Template, Time, Uid

MAX_HOLDERS = 500
"""Maximum number of runs that hold one WorkflowLimit at the same time, with all keys together."""

MAX_WAITERS = 500
"""Maximum number of waiting runs that the status of a WorkflowLimit lists."""

MAX_KEY = 253
"""Maximum length of a key."""

MAX_LIMITS = 10
"""Maximum number of WorkflowLimits that one run takes."""

Priority = Annotated[int, Field(strict=True, ge=-1000, le=1000, json_schema_extra={"format": "int32"})]
"""The priority of a run in the queues of WorkflowLimits; higher values go first."""


class OverflowPolicy(StrEnum):
    """What a run does if a WorkflowLimit has no room for it."""

    QUEUE = "Queue"
    """Wait in the queue."""

    FAIL = "Fail"
    """Fail with the type `LimitReached`."""

    CANCEL_RUNNING = "CancelRunning"
    """Wait in the queue. When the run is the next of its key, the operator requests the cancellation of the run that has held the
    limit the longest, unless that run is newer."""


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


class WorkflowLimitSpec(SpecModel):
    """How many runs can hold the limit."""

    capacity: Annotated[int, Field(strict=True, ge=0, le=MAX_HOLDERS, json_schema_extra={"format": "int32"})] = 1
    """Maximum number of runs of each key that hold the limit at the same time. 1 makes it a mutex; 0 lets no further run start.
    If you lower it, runs that hold the limit continue. Default: 1."""


class LimitEntry(StatusModel):
    """A run that holds the limit, or waits for it."""

    run: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the WorkflowRun."""

    run_id: Uid
    """Its run ID: the UID of the WorkflowRun."""

    key: Annotated[str, Field(max_length=MAX_KEY)] = ""
    """The key that it takes the limit for."""

    priority: Priority = 0
    """Its priority; runs with higher values go first."""

    created: Time
    """When the run was created; of two runs with the same priority, the older one goes first."""

    since: Time
    """When the run took the limit, or began to wait for it."""


class WorkflowLimitStatus(StatusModel):
    """Who holds the limit, and who waits for it."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the limit is valid, and runs can take it."""

    held: Count = 0
    """Number of runs that hold the limit."""

    waiting: Count = 0
    """Number of runs that wait for it and are listed here."""

    holders: Annotated[list[LimitEntry], atomic_list(MAX_HOLDERS)] = Field(default_factory=list)
    """The runs that hold the limit. A run is removed when it has ended and none of its pods runs any more."""

    waiters: Annotated[list[LimitEntry], atomic_list(MAX_WAITERS)] = Field(default_factory=list)
    """The first runs that wait for the limit, in the order in which they get it."""


class WorkflowLimit(Resource):
    """How many runs of a namespace may be open at the same time: a semaphore, or a mutex, for all runs or for each key."""

    info = KindInfo(
        plural="workflowlimits",
        short_name="wlim",
        columns=(
            Column("Capacity", ".spec.capacity", "Maximum number of runs of each key", "integer"),
            Column("Held", ".status.held", "Number of runs that hold it", "integer"),
            Column("Waiting", ".status.waiting", "Number of runs that wait for it", "integer"),
            Column("Ready", condition_path("Ready", "status"), "Whether runs can take it"),
            Column("Message", condition_path("Ready", "message"), "What is wrong with it", wide=True),
        ),
    )

    kind: Literal["WorkflowLimit"] = "WorkflowLimit"
    """Always `WorkflowLimit`."""

    spec: WorkflowLimitSpec = WorkflowLimitSpec()
    """How many runs can hold the limit."""

    status: WorkflowLimitStatus = WorkflowLimitStatus()
    """Who holds the limit, and who waits for it."""
