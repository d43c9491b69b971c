"""WorkflowDefaults: what all definitions in a namespace have in common, so that each of them does not repeat it."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, Json, JsonObject, Large, QualifiedName, Reference, map_list
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.schedule import TemplateMetadata
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.workflow import PodRetention, PodTemplateMetadata
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.names import DEFAULTS_NAME
from perdure.api.policies import FailurePolicy
from perdure.api.rules import Rule
from perdure.api.times import PositiveDuration


class DefaultHandler(SpecModel):
    """A block of another Workflow that runs when a run fails, is cancelled, or ends."""

    workflow: QualifiedName
    """Name of a Workflow in the same namespace, or `<namespace>/<name>` of one whose `allowedNamespaces` has this namespace."""

    block: Reference
    """Name of its block."""

    input: Json = None
    """Value of `params` in the block; any value, with expressions, such as `${error.failure.message}` for `onFailure`."""

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


MAX_RETENTIONS = 200
"""Maximum number of Workflows with a retention of their own in a namespace."""


class WorkflowRetention(SpecModel):
    """How long the closed runs of one Workflow are kept. A time that it does not set is that of the namespace."""

    name: Annotated[str, Field(min_length=1, max_length=1000)]
    """Name of the Workflow, as runs refer to it, or the workflow type of code. It need not exist."""

    ttl_seconds_after_finished: Count | None = None
    """Seconds after which the operator deletes a closed run. Default: that of the namespace."""

    ttl_seconds_after_failure: Count | None = None
    """The same for a run that has not completed. Default: `ttlSecondsAfterFinished` here, otherwise that of the namespace."""

    successful_runs_history_limit: Count | None = None
    """How many completed runs of this Workflow to keep. Default: they count as those of the namespace."""

    failed_runs_history_limit: Count | None = None
    """How many runs of this Workflow to keep that closed in another way. Default: they count as those of the namespace."""


class RunRetention(SpecModel):
    """How long closed runs are kept: until their time is over, or newer ones have reached a limit, whichever comes first."""

    ttl_seconds_after_finished: Count | None = None
    """Seconds after which the operator deletes a closed run with its history, if the run itself does not set them.
    Default: 86400, one day."""

    ttl_seconds_after_failure: Count | None = None
    """The same for a run that has not completed: it has failed, timed out, or was cancelled or terminated.
    Default: `ttlSecondsAfterFinished`."""

    successful_runs_history_limit: Count | None = None
    """How many completed runs to keep, of all Workflows together. Default: no limit but that of the installation."""

    failed_runs_history_limit: Count | None = None
    """How many runs to keep that closed in another way. Default: no limit but that of the installation."""

    workflows: Annotated[list[WorkflowRetention], map_list("name", MAX_RETENTIONS)] = Field(default_factory=list)
    """Workflows whose runs are kept differently. Default: none."""


class WorkflowDefaultsSpec(SpecModel):
    """Defaults of the Workflows and the runs with definitions in the namespace.

    A run takes them when it starts, and keeps them. What the run sets takes precedence over what its Workflow sets, and that over
    the defaults. Code that Temporal SDK workers run takes only `retention`, which follows each change also for existing runs.
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

    retention: RunRetention | None = None
    """How long closed runs are kept, also those of code, and those that exist already. The runs of a Schedule are kept by its own
    history limits. Default: one day."""


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
            Column(
                "TTL",
                ".spec.retention.ttlSecondsAfterFinished",
                "Seconds for which closed runs are kept; empty: a day",
                "integer",
                wide=True,
            ),
            Column("Message", condition_path("Ready", "message"), "What is wrong with them, and where", wide=True),
        ),
    )

    kind: Literal["WorkflowDefaults"] = "WorkflowDefaults"
    """Always `WorkflowDefaults`."""

    spec: WorkflowDefaultsSpec
    """The defaults."""

    status: WorkflowDefaultsStatus = WorkflowDefaultsStatus()
    """Whether runs can use the defaults."""
