"""CachedResult: the result of an activity that later runs can use."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Json, JsonObject, Positive, Time
from perdure.api.kinds.deadletter import RunReference
from perdure.api.kinds.workflow import MAX_CACHE_KEY
from perdure.api.kinds.workflowrun import StepPath
from perdure.api.models import Column, KindInfo, Resource, SpecModel
from perdure.api.rules import immutable


class CachedResultSpec(SpecModel):
    """A result, and which activities can use it until when."""

    rules = (immutable("`spec` must not change: runs that used the result refer to it; delete the object instead"),)

    activity: Annotated[str, Field(max_length=1000)]
    """Name of the activity."""

    definition_hash: Annotated[str, Field(max_length=64, pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the work of the activity. Only activities with the same work use the result."""

    key: Annotated[str, Field(min_length=1, max_length=MAX_CACHE_KEY)]
    """Value of the `key` of the activity's `cache`."""

    result: Json = None
    """The result."""

    artifacts: JsonObject = Field(default_factory=dict)
    """References to the output artifacts, by name. Default: none."""

    workflow_run: RunReference
    """The run that computed the result."""

    step: StepPath
    """Path of its step, with block and item, such as `rooms[3]`."""

    completed_time: Time
    """When the activity completed."""

    expiry_time: Time
    """When the operator deletes the result."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored the object; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""


class CachedResult(Resource):
    """The result of an activity with `cache`, which later runs use instead of running it again."""

    info = KindInfo(
        plural="cachedresults",
        short_name="cres",
        columns=(
            Column("Activity", ".spec.activity", "Name of the activity"),
            Column("Key", ".spec.key", "Value of the key"),
            Column("Run", ".spec.workflowRun.name", "The run that computed the result"),
            Column("Expires", ".spec.expiryTime", "When the operator deletes it"),
        ),
        has_status=False,
        is_record=True,
    )

    kind: Literal["CachedResult"] = "CachedResult"
    """Always `CachedResult`."""

    spec: CachedResultSpec
    """The result. Immutable; the operator writes it. Delete the object to have the activity run again."""
