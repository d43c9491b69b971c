"""ArtifactSet: the artifacts that the attempts of one run have uploaded, and what needs them."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Positive, ResourceName, Time, Uid, map_list, set_list
from perdure.api.models import Column, KindInfo, Resource, SpecModel

MAX_HOLDERS = 5_000
"""Maximum number of objects that need the artifacts of one run."""

MAX_STORES = 100
"""Maximum number of artifact stores of one run."""


class HolderKind(StrEnum):
    """The kind of an object that needs artifacts."""

    WORKFLOW_RUN = "WorkflowRun"
    """The run itself, or another one whose history refers to its artifacts."""

    DEAD_LETTER = "DeadLetter"
    """A DeadLetter whose input refers to its artifacts."""

    CACHED_RESULT = "CachedResult"
    """A CachedResult that refers to its artifacts."""


class ArtifactHolder(SpecModel):
    """An object that needs the artifacts."""

    kind: HolderKind
    """WorkflowRun, DeadLetter or CachedResult."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the object."""

    uid: Uid
    """UID of the object."""


class ArtifactSetSpec(SpecModel):
    """The artifacts of a run, and what needs them."""

    run_id: Uid
    """UID of the run whose attempts have uploaded the artifacts; their keys contain it."""

    stores: Annotated[list[ResourceName], set_list(MAX_STORES)]
    """The Secrets of the artifact stores that may have some of them."""

    holders: Annotated[list[ArtifactHolder], map_list("uid", MAX_HOLDERS)]
    """The objects that need the artifacts. When none of them exists, the operator deletes the artifacts."""

    deleting_since: Time | None = None
    """When the operator found that nothing needs the artifacts. Not set before."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored the object; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""


class ArtifactSet(Resource):
    """The artifacts that the attempts of one run have uploaded. It exists until they are deleted from their store."""

    info = KindInfo(
        plural="artifactsets",
        short_name="arts",
        columns=(
            Column("Run", ".metadata.labels.perdure\\.dev/run", "The run whose attempts have uploaded the artifacts"),
            Column("Stores", ".spec.stores", "The Secrets of their artifact stores"),
            Column("Deleting", ".spec.deletingSince", "Since when nothing needs them", "date"),
        ),
        has_status=False,
        is_record=True,
    )

    kind: Literal["ArtifactSet"] = "ArtifactSet"
    """Always `ArtifactSet`."""

    spec: ArtifactSetSpec
    """The artifacts, and what needs them. The operator writes it. If you delete an ArtifactSet, its artifacts stay in their
    store."""
