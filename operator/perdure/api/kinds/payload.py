"""Payload: a part of an input or result that is too large for the status of its run."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, Large, Positive
from perdure.api.models import Column, KindInfo, Resource, SpecModel
from perdure.api.rules import immutable

MAX_DATA = 1024 * 1024
"""Maximum number of base64 characters in one object."""


class PayloadSpec(SpecModel):
    """One part of a payload."""

    rules = (immutable("`spec` must not change: histories refer to it"),)

    hash: Annotated[str, Field(max_length=64, pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the whole payload, in hexadecimal digits."""

    size_bytes: Large
    """Size of the whole payload, in bytes."""

    part: Count
    """Number of this part; the first is 0."""

    data: Annotated[str, Field(max_length=MAX_DATA)]
    """The bytes of this part, in base64. All parts together are a `Payloads` message of Temporal's API."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored the object; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""


class Payload(Resource):
    """A part of a large payload that the history of a run refers to."""

    info = KindInfo(
        plural="payloads",
        short_name="wpl",
        columns=(
            Column("Run", ".metadata.ownerReferences[0].name", "The first owner: a run, or the first part"),
            Column("Part", ".spec.part", "Number of the part", "integer"),
            Column("Bytes", ".spec.sizeBytes", "Size of the whole payload", "integer"),
        ),
        has_status=False,
        is_record=True,
    )

    kind: Literal["Payload"] = "Payload"
    """Always `Payload`."""

    spec: PayloadSpec
    """The bytes. Immutable; the operator writes it."""
