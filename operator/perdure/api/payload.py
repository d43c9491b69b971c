"""Payload: a part of what a workflow was given or has returned, too large for the run's status."""

from typing import Annotated, Literal

from pydantic import Field

from perdure.api.common import Column, KindInfo, Resource, SpecModel
from perdure.api.fields import Count, Large
from perdure.api.rules import immutable

MAX_DATA = 1024 * 1024
"""Characters of base64 in one object."""


class PayloadSpec(SpecModel):
    """Bytes, and what they are a part of."""

    rules = (immutable("`spec` must not change: histories refer to it"),)

    hash: Annotated[str, Field(max_length=64, pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the whole, in hexadecimal digits."""

    size_bytes: Large
    """Size of the whole, in bytes."""

    part: Count
    """Number of this part, from 0 on."""

    data: Annotated[str, Field(max_length=MAX_DATA)]
    """The bytes of this part, in base64: together, the message `Payloads` of Temporal's API."""


class Payload(Resource):
    """A part of a large payload that the history of a run refers to."""

    info = KindInfo(
        plural="payloads",
        short_name="wpl",
        columns=(
            Column("Run", ".metadata.ownerReferences[0].name", "The first owner: a run, or the first part"),
            Column("Part", ".spec.part", "Number of the part", "integer"),
            Column("Bytes", ".spec.sizeBytes", "Size of the whole", "integer"),
        ),
        has_status=False,
    )

    kind: Literal["Payload"] = "Payload"
    """Always `Payload`."""

    spec: PayloadSpec
    """The bytes. Immutable; the operator writes it."""
