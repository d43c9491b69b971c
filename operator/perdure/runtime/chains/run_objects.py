"""Builds the WorkflowRuns that the operator creates."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.api import labels
from perdure.api.lenient import mapping
from perdure.api.names import label_value
from perdure.api.policies import ParentClosePolicy
from perdure.api.times import nearest_duration
from perdure.engine.opaque import plain
from perdure.engine.starts import StartExtras, WorkflowStart
from perdure.engine.state import RunStatus
from perdure.runtime.attempts import KubeObject
from perdure.runtime.chains.policy_fields import retry_policy_json
from perdure.runtime.chains.run_annotations import Continuation, Parent


def run_object(  # noqa: PLR0917 (the parts of one object)
    namespace: str,
    name: str,
    spec: dict[str, Any],
    parent: Parent | None,
    continues: Continuation | None,
    own_labels: Mapping[str, str] | None = None,
    *,
    extras: StartExtras | None = None,
) -> KubeObject:
    """A WorkflowRun with the annotations, labels and owners of its relations."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": dict(own_labels or {}),
        "annotations": {},
    }
    if parent is not None:
        metadata["labels"][labels.PARENT_RUN_LABEL] = label_value(parent.name)
        metadata["labels"][labels.PARENT_RUN_ID_LABEL] = parent.run_id
        metadata["annotations"][labels.PARENT_ANNOTATION] = msgspec.json.encode(parent).decode()
        if parent.parent_close_policy is ParentClosePolicy.TERMINATE:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": "WorkflowRun",
                    "name": parent.name,
                    "uid": parent.run_id,
                    "blockOwnerDeletion": False,
                }
            ]
    if extras is not None and extras != StartExtras():
        metadata["annotations"][labels.START_ANNOTATION] = msgspec.json.encode(extras).decode()
    if continues is not None:
        metadata["annotations"][labels.CONTINUES_ANNOTATION] = msgspec.json.encode(continues).decode()
    return {"apiVersion": labels.API_VERSION, "kind": "WorkflowRun", "metadata": metadata, "spec": spec}


def spec_of(start: WorkflowStart) -> dict[str, Any]:
    """The spec of a WorkflowRun for a requested start."""
    workflow: dict[str, Any] = {"name": start.workflow_type}
    if start.task_queue:
        workflow = {"type": start.workflow_type, "taskQueue": start.task_queue}
    spec: dict[str, Any] = {
        "workflow": workflow,
        "workflowId": start.workflow_id,
        "workflowIdReusePolicy": start.workflow_id_reuse_policy,
        "input": start.input if start.task_queue else plain(start.input),
        "searchAttributes": start.search_attributes,
        "retryPolicy": retry_policy_json(start.retry_policy) if start.retry_policy else None,
    }
    for field, length in (
        ("executionTimeout", start.workflow_execution_timeout),
        ("runTimeout", start.workflow_run_timeout),
        ("taskTimeout", start.workflow_task_timeout),
    ):
        spec[field] = nearest_duration(length) if length else None
    return {key: value for key, value in spec.items() if value not in (None, {})}


def same_spec(run: KubeObject) -> dict[str, Any]:
    """The spec of a run, for the next run of its workflow ID."""
    spec = {**run["spec"], "workflowId": run["spec"].get("workflowId") or run["metadata"]["name"]}
    spec.pop("startDelay", None)
    spec.pop("startPaused", None)
    return spec


def same_labels(run: KubeObject) -> dict[str, str]:
    """Return the labels of a run for the next run of its chain."""
    found = run["metadata"].get("labels") or {}
    return {key: value for key, value in found.items() if key != labels.PARENT_RUN_ID_LABEL}


_OWNERS = frozenset({"Schedule", "DeadLetter"})

_OF_OWNERS = (labels.SCHEDULED_BY_ANNOTATION, labels.DEAD_LETTER_ANNOTATION, labels.REQUEST_ANNOTATION)


def with_owners(successor: KubeObject, run: KubeObject) -> KubeObject:
    """The successor, owned by the Schedule or the DeadLetter that owns the previous run."""
    meta, new = run["metadata"], successor["metadata"]
    before = meta.get("annotations") or {}
    new["annotations"] |= {key: before[key] for key in _OF_OWNERS if key in before}
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("kind") in _OWNERS]
    if owners:
        new["ownerReferences"] = [*(new.get("ownerReferences") or ()), *owners]
    return successor


def is_open(status: Mapping[str, Any]) -> bool:
    """Whether a run with this status is open, or has not started."""
    recorded: object = mapping(status.get("state")).get("status", RunStatus.RUNNING)
    return recorded == RunStatus.RUNNING
