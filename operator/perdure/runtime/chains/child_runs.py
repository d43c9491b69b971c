"""The WorkflowRuns of children."""

from typing import Any

import msgspec

from perdure.api import labels
from perdure.api.names import child_name, label_value
from perdure.engine.starts import StartExtras
from perdure.engine.state import PendingChild
from perdure.engine.versioning import UNVERSIONED, Versioning
from perdure.runtime.attempts import KubeObject, RunRef
from perdure.runtime.chains.run_annotations import Parent, parent_of
from perdure.runtime.chains.run_objects import run_object, spec_of


def inherited_priority(inherited: Any, own: Any) -> Any:
    """A priority, as JSON, with inherited values for those that it does not set; None for no priority."""
    return {**(inherited or {}), **(own or {})} or None


def child_run(
    parent: RunRef,
    child: PendingChild,
    depth: int = 1,
    priority: Any = None,
    versioning: Versioning = UNVERSIONED,
) -> KubeObject:
    """Build the WorkflowRun of a child to start. Its name is a lock.

    If the parent close policy is Terminate, the parent owns the child, so the child is also deleted with it.

    Args:
        parent: The run that starts the child.
        child: The child.
        depth: Number of ancestors of the child.
        priority: Priority of the parent, as JSON; the child inherits the values that it does not set.
        versioning: Versioning of the parent; the child inherits a pinned version.
    """
    assert child.start is not None
    tie = Parent(
        name=parent.name,
        workflow_id=parent.workflow_id,
        run_id=parent.uid,
        initiated_event_id=child.initiated_event_id,
        parent_close_policy=child.parent_close_policy,
        depth=depth,
    )
    name = child_name(parent.name, child.initiated_event_id)
    extras = child.start.extras
    if priority:
        extras = extras or StartExtras()
        extras = msgspec.structs.replace(extras, priority=inherited_priority(priority, extras.priority))
    if child.start.task_queue and versioning != UNVERSIONED:
        extras = msgspec.structs.replace(
            extras or StartExtras(),
            inherited_pinned_version=versioning.inherited,
            inherited_auto_upgrade_info=versioning.inherited_upgrade(),
            versioning_override=versioning.inherited_override,
        )
    return run_object(parent.namespace, name, spec_of(child.start), tie, None, extras=extras)


def adopted(child: KubeObject, parent: RunRef) -> KubeObject:
    """The merge patch of the metadata that gives a child a new parent, after a reset of the old one.

    Args:
        child: The WorkflowRun of the child, with its previous parent.
        parent: The new parent.
    """
    before = parent_of(child)
    assert before is not None
    meta = child["metadata"]
    # A newer version may have added fields, which stay.
    tie = {
        **msgspec.json.decode(meta["annotations"][labels.PARENT_ANNOTATION]),
        "name": parent.name,
        "runId": parent.uid,
    }
    owners = [
        {**o, "name": parent.name, "uid": parent.uid} if o["uid"] == before.run_id else o
        for o in meta.get("ownerReferences") or ()
    ]
    changed: dict[str, Any] = {
        "resourceVersion": meta["resourceVersion"],
        "annotations": {labels.PARENT_ANNOTATION: msgspec.json.encode(tie).decode()},
        "labels": {labels.PARENT_RUN_LABEL: label_value(parent.name), labels.PARENT_RUN_ID_LABEL: parent.uid},
    }
    if owners:
        changed["ownerReferences"] = owners
    return {"metadata": changed}


def is_child(obj: KubeObject, parent: RunRef, child: PendingChild) -> bool:
    """Whether a WorkflowRun is this child, or a later run of its chain."""
    tie = parent_of(obj)
    return tie is not None and (tie.run_id, tie.initiated_event_id) == (parent.uid, child.initiated_event_id)
