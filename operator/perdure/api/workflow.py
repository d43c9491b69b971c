"""Workflow: a reusable definition of activities and steps."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.conditions import Conditions
from perdure.api.durations import PositiveDuration
from perdure.api.fields import (
    FailureTypeName,
    Flag,
    Identifier,
    Json,
    JsonObject,
    Large,
    Name,
    Reference,
    atomic_list,
    map_list,
    set_list,
)
from perdure.api.retrypolicy import RetryPolicyChoice
from perdure.api.rules import Rule, at_least_one_of, exactly_one_of
from perdure.api.steps import MAX_BLOCK_STEPS, MAX_STEPS, Step

MAX_ACTIVITIES = 200
"""Activities of one definition."""

MAX_BLOCKS = 100
"""Blocks of one definition."""


class Container(SpecModel):
    """A container as Kubernetes knows it (core/v1 Container), kept as it is given.

    Whether Kubernetes takes it is asked with a dry-run when the Workflow is applied; the condition `Ready` tells.
    """

    model_config = ConfigDict(extra="allow")

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Container image. All other fields of a Kubernetes container are allowed too: `command`, `args`, `env`,
    `resources`, `volumeMounts` and so on. `image`, `args` and the values of `env` may hold expressions over `input`
    (the input of the activity), `run` and `attempt`."""


class PodSpec(SpecModel):
    """The spec of a pod as Kubernetes knows it (core/v1 PodSpec), kept as it is given."""

    model_config = ConfigDict(extra="allow")

    containers: Annotated[list[JsonObject], atomic_list(32, min_items=1)]
    """The containers; the first one is the activity. They may hold expressions as in `container`. All other fields of a
    Kubernetes pod spec are allowed too: `volumes`, `nodeSelector`, `serviceAccountName` and so on."""


class PodTemplateMetadata(SpecModel):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Labels of the pods. Default none."""

    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65_536)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Annotations of the pods. Default none."""


class PodTemplate(SpecModel):
    """A pod as Kubernetes knows it (core/v1 PodTemplateSpec)."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods. Default none."""

    spec: PodSpec
    """The spec of the pods; the first container is the activity. Kept as it is given, and checked with a dry-run when
    the Workflow is applied; the condition `Ready` tells."""


class Worker(SpecModel):
    """A long-running Temporal SDK worker that does the activity; no pod is made for an attempt."""

    type: Identifier | None = None
    """Activity type, as the worker's code names it. Default: the name of the activity."""

    task_queue: Identifier
    """Task queue that the worker polls."""


class FailureType(SpecModel):
    """Gives the failure of a container a type, by its exit code."""

    exit_codes: Annotated[list[Annotated[int, Field(strict=True, ge=1, le=255)]], set_list(255, min_items=1)]
    """Exit codes of the container, 1 to 255."""

    type: FailureTypeName
    """Type of the failure, which `catch` and retry policies compare."""

    non_retryable: Flag = False
    """Whether retry policies leave the failure alone. Default false."""


class ResultSize(StrEnum):
    """How large the result of an activity may be, which decides how it comes back."""

    SMALL = "Small"
    """Up to 4 KiB, through the termination message: no token, no API call."""

    LARGE = "Large"
    """Up to 256 KiB, through the Lease of the attempt."""


class Retention(StrEnum):
    """What becomes of a pod whose attempt has ended."""

    DELETE = "Delete"
    """It is deleted as soon as its outcome is recorded."""

    EXPIRE = "Expire"
    """It stays for a few minutes, for its log, and is deleted then. The operator's settings say for how long."""

    KEEP = "Keep"
    """It stays, for its log, until its run is deleted."""


class PodRetention(SpecModel):
    """What becomes of the pods of attempts that have ended."""

    on_success: Retention = Retention.EXPIRE
    """Of attempts that succeeded: Delete, Expire or Keep. Default Expire."""

    on_failure: Retention = Retention.KEEP
    """Of attempts that failed, or were lost while their pod still exists: Delete, Expire or Keep. Default Keep. Pods that
    had to be stopped are deleted in any case."""


class Sidecar(SpecModel):
    """A container beside the activity's that heartbeats, hands the result over and passes on cancellation, through files.

    So any image can do what otherwise takes a library and a token: the activity's own container has neither.
    """

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """An image with Python and `perdure.activity`. Default: the operator's own."""

    auto_heartbeat: Flag = False
    """Whether it heartbeats for as long as the activity's container runs, without being asked to. Default false."""

    resources: JsonObject | None = None
    """Resources of the container, as in a pod. Default: requests of 5m CPU and 24Mi memory."""


class Activity(SpecModel):
    """One kind of work: what does it, how long it may take, how failures are retried."""

    rules = (
        exactly_one_of("container", "pod_template", "worker"),
        at_least_one_of(
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            message="`startToCloseTimeout` or `scheduleToCloseTimeout` must be set: without, a lost attempt would be "
            "waited for without end",
        ),
        Rule(
            "`sidecar` must be used with `container` or `podTemplate`: a worker has no pod of its own",
            "!has(self.sidecar) || !has(self.worker)",
            lambda activity: activity.sidecar is None or activity.worker is None,
        ),
    )

    name: Name
    """Name of the activity; steps refer to it."""

    start_to_close_timeout: PositiveDuration | None = None
    """How long one attempt may take, such as `5m`; a longer one is stopped and retried.
    Default: `scheduleToCloseTimeout`."""

    schedule_to_close_timeout: PositiveDuration | None = None
    """How long all attempts and the waits between them may take, such as `1h`. Default: no limit."""

    schedule_to_start_timeout: PositiveDuration | None = None
    """How long an attempt may wait to be started, such as `10m`; never retried. Default: no limit."""

    heartbeat_timeout: PositiveDuration | None = None
    """Longest gap between heartbeats, such as `30s`; makes the activity cancellable. A longer gap ends the attempt,
    and it is retried. Default: no heartbeats are expected."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default `exponential: {}`: 1s, 2s, 4s, … up to 100s, without end."""

    pod_retention: PodRetention | None = None
    """What becomes of the pods of attempts that have ended. Default: those that succeeded are kept for five minutes,
    those that failed until the run is deleted."""

    result_size: ResultSize = ResultSize.SMALL
    """How large the result of a pod may be. Default Small."""

    container: Container | None = None
    """A container that does the work, in a pod of its own for each attempt."""

    pod_template: PodTemplate | None = None
    """A whole pod that does the work, one for each attempt; its first container is the activity."""

    sidecar: Sidecar | None = None
    """Gives any image heartbeats, large results and cancellation through files. Default: none."""

    worker: Worker | None = None
    """A long-running Temporal SDK worker that does the work."""

    failure_types: Annotated[list[FailureType], atomic_list(50)] = Field(default_factory=list)
    """Gives failures a type by exit code: the first entry that fits is taken. Default: by the error that the container
    reports."""


class InputSpec(SpecModel):
    """What an input looks like."""

    schema_: JsonObject | None = None
    """JSON Schema that the input must fit; checked before the run starts. Default: everything fits."""

    default: Json = None
    """Input where none is given; if both are objects, its fields are the defaults of single fields. Default none."""


class Block(SpecModel):
    """A named sub-flow with parameters, steps and an output of its own."""

    name: Name
    """Name of the block; steps call it."""

    params: InputSpec | None = None
    """What the `input` of a call looks like, which is `params` in expressions of the block."""

    steps: Annotated[list[Step], map_list("name", MAX_BLOCK_STEPS)]
    """The steps, run in order where `needs` does not say otherwise. A block may call itself, to a limited depth."""

    output: Json = None
    """Output of the block; any value, with expressions. Default: the output of the last step."""


class Handler(SpecModel):
    """A block that runs when something happened to the run."""

    block: Reference
    """Name of the block."""

    input: Json = None
    """What the block knows as `params`; any value, with expressions."""

    timeout: PositiveDuration = timedelta(minutes=10)
    """How long the block may take; a time budget of its own, also when the run's is used up. Default 10m."""


class WorkflowSpec(SpecModel):
    """A definition: activities and steps."""

    input: InputSpec | None = None
    """What the input of a run looks like. Default: any value."""

    activities: Annotated[list[Activity], map_list("name", MAX_ACTIVITIES)] = Field(default_factory=list)
    """The kinds of work that steps refer to."""

    steps: Annotated[list[Step], map_list("name", MAX_STEPS)] = Field(default_factory=list)
    """The steps, run in order where `needs` does not say otherwise."""

    blocks: Annotated[list[Block], map_list("name", MAX_BLOCKS)] = Field(default_factory=list)
    """Named sub-flows that steps call."""

    on_cancel: Handler | None = None
    """Runs when the run is cancelled, in a scope that the cancellation does not reach."""

    on_failure: Handler | None = None
    """Runs when the run fails; the failure is `error` in its expressions."""

    finally_: Handler | None = None
    """Runs at last, however the run ends, unless it is terminated."""

    output: Json = None
    """Output of a run; any value, with expressions. Default: the output of the last step."""

    def block(self, name: str) -> Block | None:
        """Find a block.

        Args:
            name: Its name.

        Returns:
            The block, or None where there is none of that name.
        """
        return next((block for block in self.blocks if block.name == name), None)

    def activity(self, name: str) -> Activity | None:
        """Find an activity.

        Args:
            name: Its name.

        Returns:
            The activity, or None where there is none of that name.
        """
        return next((activity for activity in self.activities if activity.name == name), None)


class WorkflowStatus(StatusModel):
    """What the operator found out about a definition."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status is about."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the definition can be run. If False, the message tells what is wrong and where."""


class Workflow(Resource):
    """A reusable definition: activities and steps. WorkflowRuns run it."""

    info = KindInfo(
        plural="workflows",
        short_name="pwf",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether the definition can be run"),
            Column("Reason", condition_path("Ready", "reason"), "Why it can be run, or not"),
            Column("Message", condition_path("Ready", "message"), "What is wrong with it, and where", wide=True),
        ),
    )

    kind: Literal["Workflow"] = "Workflow"
    """Always `Workflow`."""

    spec: WorkflowSpec
    """Activities and steps."""

    status: WorkflowStatus = WorkflowStatus()
    """What the operator found out."""
