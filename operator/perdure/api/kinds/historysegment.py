"""HistorySegment: a sealed piece of a run's event history."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, Hash, JsonObject, Large, Positive, atomic_list
from perdure.api.kinds.deadletter import RunReference
from perdure.api.models import Column, KindInfo, Resource, SpecModel
from perdure.api.rules import Rule, immutable


class HistorySegmentSpec(SpecModel):
    """Events of a run, in order, and the hash of the previous segment."""

    rules = (
        immutable("`spec` must not change: it is the record of what happened"),
        Rule(
            "`lastEventId` must not be less than `firstEventId`",
            "self.firstEventId <= self.lastEventId",
            lambda segment: segment.first_event_id <= segment.last_event_id,
        ),
    )

    workflow_run: RunReference
    """The run that the events belong to."""

    index: Count
    """Number of the segment; the first is 0."""

    first_event_id: Annotated[Large, Field(ge=1)]
    """ID of the first event."""

    last_event_id: Annotated[Large, Field(ge=1)]
    """ID of the last event."""

    events: Annotated[list[JsonObject], atomic_list(10_000, min_items=1)]
    """The events, in order, without gaps."""

    size_bytes: Large = 0
    """Size of the events, in bytes."""

    previous_hash: Hash | None = None
    """Hash of the previous segment. Not set in the first one."""

    hash: Hash
    """Hash of the events and of `previousHash`."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored the object; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""


class HistorySegment(Resource):
    """A sealed, immutable piece of a run's event history."""

    info = KindInfo(
        plural="historysegments",
        short_name="hseg",
        columns=(
            Column("Run", ".spec.workflowRun.name", "The run that the events belong to"),
            Column("Index", ".spec.index", "Number of the segment", "integer"),
            Column("First", ".spec.firstEventId", "ID of the first event", "integer"),
            Column("Last", ".spec.lastEventId", "ID of the last event", "integer"),
            Column("Bytes", ".spec.sizeBytes", "Size of the events", "integer"),
            Column("Hash", ".spec.hash", "Hash of the segment", wide=True),
        ),
        selectable=(".spec.workflowRun.name", ".spec.workflowRun.workflowId", ".spec.workflowRun.runId"),
        has_status=False,
        is_record=True,
    )

    kind: Literal["HistorySegment"] = "HistorySegment"
    """Always `HistorySegment`."""

    spec: HistorySegmentSpec
    """The events. Immutable; the operator writes it."""
