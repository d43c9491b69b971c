"""WorkerDeployment: workers of Temporal SDKs as pods, one Deployment for each version of their code, started on demand."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, Identifier, Large, Positive, ResourceName, Time, atomic_list, set_list
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.workflow import PodTemplate
from perdure.api.models import Column, KindInfo, Resource, Scale, SpecModel, StatusModel, condition_path
from perdure.api.rules import Rule
from perdure.api.times import Duration, PositiveDuration

MAX_VERSIONS = 100
"""Maximum number of versions of a worker deployment, as in Temporal."""

BuildId = Annotated[str, Field(min_length=1, max_length=63, pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")]
"""The ID of a build. It is also the value of a label."""

Percentage = Annotated[int, Field(strict=True, ge=1, le=99, json_schema_extra={"format": "int32"})]


class RampStep(SpecModel):
    """A share of the new runs that a new version gets for a while."""

    percentage: Percentage
    """Percentage of the new runs, 1 to 99."""

    pause: PositiveDuration
    """How long the version keeps this share, such as `10m`."""


class Routing(StrEnum):
    """Who decides which version gets new runs."""

    AUTOMATIC = "Automatic"
    """The operator: a new version becomes current once its workers poll, after the ramp steps."""

    MANUAL = "Manual"
    """You, with `perdure deployment set-current` and `set-ramping`. The operator starts the workers of a new version, and
    waits."""


class WorkerVersioning(SpecModel):
    """How a new version replaces the current one."""

    routing: Routing = Routing.AUTOMATIC
    """Who decides which version gets new runs. Default: Automatic."""

    steps: Annotated[list[RampStep], atomic_list(20)] = Field(default_factory=list)
    """Shares of the new runs that a new version gets before it gets all of them, in order. Default: none; it gets all new runs as
    soon as its workers poll."""

    sunset_delay: Duration = timedelta(hours=1)
    """How long an old version is kept after the last open run on it has closed, for a rollback and for queries of closed runs.
    It has no pods in that time unless a task waits. Default: 1h."""


class WorkerDeploymentSpec(SpecModel):
    """The workers, the task queues that they poll, and how many of them run."""

    rules = (
        Rule(
            "`maxReplicas` must be at least `minReplicas`",
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",
            lambda spec: spec.max_replicas >= spec.min_replicas,
        ),
    )

    task_queues: Annotated[list[Identifier], set_list(30, min_items=1)]
    """The task queues that the workers poll. A version gets tasks once its workers have polled all of them."""

    pod_template: PodTemplate
    """The pods of the workers. A change is a new version, which runs next to the old one. The operator sets the environment
    variables `TEMPORAL_DEPLOYMENT_NAME` and `TEMPORAL_WORKER_BUILD_ID` of each container, which a worker must pass to its SDK."""

    build_id: BuildId | None = None
    """ID of the version of the code. Default: a hash of `podTemplate`. With an ID, a change of `podTemplate` alone replaces the
    pods of that version: change the ID whenever the code of workflows changes."""

    min_replicas: Count = 0
    """Minimum number of pods of the current and of the ramping version. Default: 0; the first waiting task starts a pod."""

    max_replicas: Positive = 10
    """Maximum number of pods of each version. Default: 10."""

    target_backlog: Positive = 10
    """Number of tasks that wait, for each of which a version gets another pod. Default: 10."""

    idle_timeout: PositiveDuration = timedelta(minutes=5)
    """How long a version has no task before it is scaled down to `minReplicas`. Default: 5m."""

    replicas: Count | None = None
    """Number of pods of the current and of the ramping version. If it is set, the operator does not scale these versions: set it
    yourself, or with an autoscaler that scales this object. Default: none."""

    versioning: WorkerVersioning = WorkerVersioning()
    """How a new version replaces the current one."""


class VersionPhase(StrEnum):
    """What a version of workers does."""

    STARTING = "Starting"
    """Its workers have not polled all task queues yet, so it gets no tasks."""

    INACTIVE = "Inactive"
    """Its workers have polled, and it gets no new runs yet."""

    CURRENT = "Current"
    """It gets new runs."""

    RAMPING = "Ramping"
    """It gets a share of the new runs."""

    DRAINING = "Draining"
    """It gets no new runs. Open runs are pinned to it, or it was replaced moments ago."""

    DRAINED = "Drained"
    """No open run is pinned to it. It is removed after `sunsetDelay`."""


class WorkerVersionStatus(StatusModel):
    """A version of the workers."""

    build_id: BuildId
    """ID of the build."""

    phase: VersionPhase
    """What it does."""

    deployment: ResourceName
    """Name of its Deployment."""

    replicas: Count = 0
    """Number of its pods, as the operator last set it or found it."""

    ready_replicas: Count = 0
    """Number of its pods that are ready."""

    open_runs: Count | None = None
    """Number of open runs that are pinned to it; of an old version only."""

    drained_time: Time | None = None
    """Since when no open run is pinned to it."""

    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why its pods do not start or fail."""


class WorkerDeploymentStatus(StatusModel):
    """Which version gets runs, and what its workers do."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: workers serve the task queues, or start as soon as a task waits. `RolledOut`: the version in the spec gets all new
    runs. `NewerState`: only a newer version of the operator can read the object, so this one leaves it as it is."""

    current_build_id: BuildId | None = None
    """The version that gets new runs."""

    ramping_build_id: BuildId | None = None
    """The version that gets a share of the new runs."""

    ramping_percentage: (
        Annotated[int, Field(strict=True, ge=0, le=100, json_schema_extra={"format": "int32"})] | None
    ) = None
    """Percentage of the new runs that the ramping version gets."""

    replicas: Count = 0
    """Number of pods of the current version; an autoscaler reads it."""

    ready_replicas: Count = 0
    """Number of ready pods of all versions."""

    selector: Annotated[str, Field(max_length=1024)] | None = None
    """Label selector of the pods of the current version; an autoscaler reads it."""

    versions: Annotated[list[WorkerVersionStatus], atomic_list(MAX_VERSIONS)] = Field(default_factory=list)
    """The versions that have a Deployment, the newest first."""


class WorkerDeployment(Resource):
    """Workers of Temporal SDKs: one Deployment for each version of their code, from zero pods when a task waits."""

    rules = (
        Rule(
            "`metadata.name` must have at most 63 characters and no dots: it is the name of the deployment for workers",
            "self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",
            lambda each: len(each.metadata.name) <= 63 and "." not in each.metadata.name,  # noqa: PLR2004 (a label)
        ),
    )

    info = KindInfo(
        plural="workerdeployments",
        short_name="wkd",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether workers serve the task queues"),
            Column("Reason", condition_path("Ready", "reason"), "Reason of the condition Ready"),
            Column("Current", ".status.currentBuildId", "The version that gets new runs"),
            Column("Ramping", ".status.rampingBuildId", "The version that gets a share of the new runs"),
            Column("Pods", ".status.readyReplicas", "Ready pods of all versions", "integer"),
            Column("RolledOut", condition_path("RolledOut", "reason"), "Progress of the version in the spec"),
            Column("Message", condition_path("RolledOut", "message"), "What it waits for", wide=True),
        ),
        scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    )

    kind: Literal["WorkerDeployment"] = "WorkerDeployment"
    """Always `WorkerDeployment`."""

    spec: WorkerDeploymentSpec
    """The workers, the task queues that they poll, and how many of them run."""

    status: WorkerDeploymentStatus = WorkerDeploymentStatus()
    """Which version gets runs, and what its workers do."""
