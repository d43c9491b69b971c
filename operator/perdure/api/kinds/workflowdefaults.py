"""WorkflowDefaults: what all definitions in a namespace have in common, so that each of them does not repeat it."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Json, JsonObject, Large, QualifiedName, Reference
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.schedule import TemplateMetadata
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.workflow import PodRetention, PodTemplateMetadata
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.policies import FailurePolicy
from perdure.api.rules import Rule
from perdure.api.times import PositiveDuration

DEFAULTS_NAME = "default"
"""The name of the WorkflowDefaults of a namespace."""


class DefaultHandler(SpecModel):
    """A block of another Workflow that runs when a run fails, is cancelled, or ends."""

    workflow: QualifiedName
    """Name of a Workflow in the same namespace, or `<namespace>/<name>` of one whose `allowedNamespaces` has this namespace."""

    block: Reference
    """Name of its block."""

    input: Json = None
    """Value of `params` in the block; any value, with expressions, such as `${run.name}: ${error.message}` for `onFailure`."""

    timeout: PositiveDuration | None = None
    """Maximum time of the block. It applies even if the run has timed out. Default: 10m."""


class DefaultPodTemplate(SpecModel):
    """Fields of pods. Those that an activity sets itself take precedence."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods. Default: none."""

    spec: Annotated[JsonObject, Field(max_length=64)] | None = None
    """Fields of the spec of the pods, such as `nodeSelector` and `tolerations`. The container named `activity` stands for that of
    each activity, whatever its name is. Objects are merged, and lists of objects by `name`. Can contain expressions as in
    `container`. Default: none."""


class ActivityDefaults(SpecModel):
    """Fields of activities. Those that an activity, or the step that calls it, sets itself take precedence."""

    start_to_close_timeout: PositiveDuration | None = None
    """Maximum time of one attempt, such as `5m`. Default: `scheduleToCloseTimeout` of the activity."""

    schedule_to_close_timeout: PositiveDuration | None = None
    """Maximum time of all attempts and the waits between them, such as `1h`. Default: no limit."""

    schedule_to_start_timeout: PositiveDuration | None = None
    """Maximum time until an attempt starts, such as `10m`; never retried. Default: no limit."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default: `exponential: {}`, which waits 1s, 2s, 4s, … up to 100s, forever."""

    pod_retention: PodRetention | None = None
    """What happens to the pods of attempts that have ended. Default: the operator keeps those that succeeded for five minutes,
    and those that failed until the run is deleted."""

    pod_template: DefaultPodTemplate | None = None
    """Fields of the pods of all activities in pods. Default: none."""


class WorkflowDefaultsSpec(SpecModel):
    """Defaults of the Workflows and the runs with definitions in the namespace.

    A run takes them when it starts, and keeps them. What the run sets takes precedence over what its Workflow sets, and that over
    the defaults. Code that Temporal SDK workers run takes none.
    """

    run_metadata: TemplateMetadata | None = None
    """Labels and annotations that runs get when they start, except those that they have already. Default: none."""

    run_timeout: PositiveDuration | None = None
    """Maximum time of a run, such as `1d`, if it sets neither `runTimeout` nor `executionTimeout`. Default: no limit."""

    steps_timeout: PositiveDuration | None = None
    """Maximum time of the steps of a run, such as `1h`, after which `onFailure` and `finally` run. Default: no limit."""

    failure_policy: FailurePolicy | None = None
    """What the failure of a step does to the other steps: CancelRunning, FinishRunning or Continue. Default: CancelRunning."""

    on_failure: DefaultHandler | None = None
    """Runs when a run fails whose definition has no `onFailure`; the failure is `error` in its expressions. Default: none."""

    on_cancel: DefaultHandler | None = None
    """Runs when a run is cancelled whose definition has no `onCancel`. Default: none."""

    finally_: DefaultHandler | None = None
    """Runs last, however a run ends, unless its definition has `finally`. Default: none."""

    activities: ActivityDefaults | None = None
    """Fields of the activities of all definitions. Default: none."""


class WorkflowDefaultsStatus(StatusModel):
    """Whether runs can use the defaults."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: runs can use the defaults. If False, the message says what is wrong, and runs wait until it is fixed."""


class WorkflowDefaults(Resource):
    """What all definitions in a namespace have in common: retries, handlers, labels, timeouts and fields of pods."""

    rules = (
        Rule(
            "`metadata.name` must be `default`: a namespace has one WorkflowDefaults",
            "self.metadata.name == 'default'",
            lambda found: found.metadata.name == DEFAULTS_NAME,
        ),
    )

    info = KindInfo(
        plural="workflowdefaults",
        short_name="wdef",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether runs can use the defaults"),
            Column("Reason", condition_path("Ready", "reason"), "Reason of the condition Ready"),
            Column("On-Failure", ".spec.onFailure.workflow", "The Workflow of the failure handler", wide=True),
            Column("Message", condition_path("Ready", "message"), "What is wrong with them, and where", wide=True),
        ),
    )

    kind: Literal["WorkflowDefaults"] = "WorkflowDefaults"
    """Always `WorkflowDefaults`."""

    spec: WorkflowDefaultsSpec
    """The defaults."""

    status: WorkflowDefaultsStatus = WorkflowDefaultsStatus()
    """Whether runs can use the defaults."""
