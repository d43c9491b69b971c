"""DeadLetter: an activity that finally failed and can be re-driven."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, Json, JsonObject, Large, Positive, Time, Uid, WorkflowId
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.workflowrun import Failure, StepPath
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.rules import immutable


class RunReference(SpecModel):
    """Reference to a run."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the WorkflowRun."""

    workflow_id: WorkflowId
    """Its workflow ID."""

    run_id: Uid
    """Its run ID: the UID of the WorkflowRun."""


class DeadLetterSpec(SpecModel):
    """What failed, and why."""

    rules = (immutable("`spec` must not change: it is the record of what failed; use an Operation to re-drive it"),)

    workflow_run: RunReference
    """The run that the activity belongs to."""

    step: StepPath
    """Path of its step, with block and item, such as `rooms[3]`."""

    activity: Annotated[str, Field(max_length=1000)]
    """Name of the activity."""

    definition: JsonObject | None = None
    """The activity as resolved when it was scheduled: container or worker, timeouts, retry policy."""

    input: Json = None
    """Input of the activity. A re-drive uses the same input."""

    failure: Failure
    """Why the last attempt failed, with its causes."""

    attempts: Count
    """Number of attempts."""

    retry_state: Annotated[str, Field(max_length=64)] | None = None
    """Why there was no further attempt, such as NonRetryableFailure, MaximumAttemptsReached or Timeout."""

    scheduled_time: Time | None = None
    """When the activity was scheduled."""

    failed_time: Time
    """When the activity finally failed."""


class DeadLetterStatus(StatusModel):
    """Observed status of a DeadLetter."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    conditions: Conditions = Field(default_factory=list)
    """`Redriven`: Unknown while the activity runs again, True once it succeeded, False if it failed again."""

    redrives: Count = 0
    """Number of re-drives."""

    last_redrive_time: Time | None = None
    """When the last re-drive started."""

    output: Json = None
    """Output of the successful re-drive."""

    failure: Failure | None = None
    """Failure of the last re-drive, with its causes."""

    state: JsonObject | None = None
    """Internal state of the current re-drive. Only the operator reads and writes it."""


class DeadLetter(Resource):
    """An activity that finally failed, with its input and failure, so that you can re-drive it."""

    info = KindInfo(
        plural="deadletters",
        short_name="dlt",
        columns=(
            Column("Run", ".spec.workflowRun.name", "The run that the activity belongs to"),
            Column("Step", ".spec.step", "The step of the activity"),
            Column("Activity", ".spec.activity", "The activity", wide=True),
            Column("Attempts", ".spec.attempts", "Number of attempts", "integer"),
            Column("Redriven", condition_path("Redriven", "status"), "Whether a re-drive succeeded"),
            Column("Message", ".spec.failure.message", "Why the activity failed", wide=True),
        ),
        selectable=(".spec.workflowRun.name", ".spec.workflowRun.workflowId", ".spec.activity"),
        is_record=True,
    )

    kind: Literal["DeadLetter"] = "DeadLetter"
    """Always `DeadLetter`."""

    spec: DeadLetterSpec
    """What failed, and why. Immutable; the operator writes it."""

    status: DeadLetterStatus = DeadLetterStatus()
    """Observed status."""
