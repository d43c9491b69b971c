"""DeadLetter: an activity that failed for good and was set aside, to be re-driven."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.common import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.conditions import Conditions
from perdure.api.fields import Count, Json, JsonObject, Large, Time, Uid, WorkflowId
from perdure.api.rules import immutable
from perdure.api.workflowrun import Failure, StepPath


class RunReference(SpecModel):
    """The run that something belongs to."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the WorkflowRun."""

    workflow_id: WorkflowId
    """Its workflow id."""

    run_id: Uid
    """Its run id: the UID of the WorkflowRun."""


class DeadLetterSpec(SpecModel):
    """What failed, and why."""

    rules = (immutable("`spec` must not change: it is the record of what failed; use an Operation to re-drive it"),)

    workflow_run: RunReference
    """The run that the activity belongs to."""

    step: StepPath
    """The step that it belongs to, with block and item, such as `rooms[3]`."""

    activity: Annotated[str, Field(max_length=1000)]
    """Name of the activity."""

    definition: JsonObject | None = None
    """The activity as it was resolved when it was scheduled: what does it, timeouts, retry policy."""

    input: Json = None
    """Input of the activity; a re-drive gives it the same."""

    failure: Failure
    """Why the last attempt failed, with its causes."""

    attempts: Count
    """How many attempts there were."""

    retry_state: Annotated[str, Field(max_length=64)] | None = None
    """Why it was not tried again, such as NonRetryableFailure, MaximumAttemptsReached or Timeout."""

    scheduled_time: Time | None = None
    """When the activity was scheduled."""

    failed_time: Time
    """When it failed for good."""


class DeadLetterStatus(StatusModel):
    """What came of re-driving it."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status is about."""

    conditions: Conditions = Field(default_factory=list)
    """`Redriven`: Unknown while it runs again, True when it succeeded, False when it failed again."""

    redrives: Count = 0
    """How often it was re-driven."""

    last_redrive_time: Time | None = None
    """When it was re-driven last."""

    output: Json = None
    """Output of the re-drive that succeeded."""

    failure: Failure | None = None
    """Failure of the last re-drive, with its causes."""

    state: JsonObject | None = None
    """What the engine remembers of a re-drive that is under way: compact, and for the operator only."""


class DeadLetter(Resource):
    """An activity that failed for good and was set aside with its input and error, to be re-driven."""

    info = KindInfo(
        plural="deadletters",
        short_name="dlt",
        columns=(
            Column("Run", ".spec.workflowRun.name", "The run that the activity belongs to"),
            Column("Step", ".spec.step", "The step that it belongs to"),
            Column("Activity", ".spec.activity", "The activity"),
            Column("Attempts", ".spec.attempts", "How many attempts there were", "integer"),
            Column("Redriven", condition_path("Redriven", "status"), "Whether a re-drive succeeded"),
            Column("Message", ".spec.failure.message", "Why it failed", wide=True),
        ),
        selectable=(".spec.workflowRun.name", ".spec.workflowRun.workflowId", ".spec.activity"),
    )

    kind: Literal["DeadLetter"] = "DeadLetter"
    """Always `DeadLetter`."""

    spec: DeadLetterSpec
    """What failed, and why. Immutable; the operator writes it."""

    status: DeadLetterStatus = DeadLetterStatus()
    """What came of re-driving it."""
