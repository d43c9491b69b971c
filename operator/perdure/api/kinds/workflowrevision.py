"""WorkflowRevision: a definition as runs execute it, stored once for all of them."""

from typing import Literal

from perdure.api.fields import Hash, JsonObject, Positive, QualifiedName
from perdure.api.models import Column, KindInfo, Resource, SpecModel
from perdure.api.rules import immutable


class WorkflowRevisionSpec(SpecModel):
    """A definition, and where it came from."""

    rules = (immutable("`spec` must not change: runs execute it; change the Workflow instead"),)

    workflow: QualifiedName | None = None
    """Name of the Workflow, `<namespace>/<name>` if it is of another namespace. Not set for definitions of runs that have their
    own (`inline`)."""

    number: Positive = 1
    """Number of the revision among those of its Workflow, in the order in which they were stored."""

    definition: JsonObject
    """The definition, with everything that it copies from other Workflows (`from`)."""

    written: JsonObject | None = None
    """The definition as it was written, if it copies from other Workflows."""

    hash: Hash
    """Hash of `workflow`, `definition`, and `written`. The operator does not use a definition that does not match it."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored the object; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""


class WorkflowRevision(Resource):
    """A definition as runs execute it: immutable, and kept as long as a run refers to it."""

    info = KindInfo(
        plural="workflowrevisions",
        short_name="wfrev",
        columns=(
            Column("Workflow", ".spec.workflow", "The Workflow; none for definitions of runs that have their own"),
            Column("Revision", ".spec.number", "Number of the revision among those of its Workflow", "integer"),
            Column(
                "Unused",
                r".metadata.annotations.perdure\.dev/unused-since",
                "Since when nothing needs it; it will be deleted",
                "date",
            ),
        ),
        selectable=(".spec.workflow",),
        has_status=False,
        is_record=True,
    )

    kind: Literal["WorkflowRevision"] = "WorkflowRevision"
    """Always `WorkflowRevision`."""

    spec: WorkflowRevisionSpec
    """The definition. Immutable; the operator writes it."""
