"""The record of a run: what lists show of it, and what filters compare. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec

from perdure.api.json_values import mapping, text
from perdure.api.phases import RunKind, kind_of
from perdure.api.reasons import ConditionReason
from perdure.api.search_attributes import attribute_field
from perdure.api.times import read_kubernetes_time
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.engine.versioning import ONE_TIME, PINNED
from perdure.runtime.attempts import KubeObject
from perdure.runtime.chains import extras_of, first_run_id, parent_of

_ALREADY_STARTED: Final = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED.value
_STATUS: Final = {"Cancelled": "Canceled", "Pending": "Running", "Paused": "Running", "": "Running"}


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The fields of a run that lists show and filters use."""

    namespace: str
    run_id: str
    workflow_id: str
    workflow_type: str
    status: str
    start_time: datetime
    execution_time: datetime
    close_time: datetime | None
    task_queue: str
    history_length: int
    history_size: int
    parent: tuple[str, str]
    root: tuple[str, str]
    first_run_id: str
    search_attributes: dict[str, Any]
    memo: dict[str, Any]
    version: str
    refused: bool = False
    """Whether it did not start because its workflow ID was in use."""
    kind: RunKind = RunKind.WORKFLOW
    """The kind of the run, and of its ID and type."""
    endpoint: str = ""
    """The endpoint of a standalone Nexus operation; the next fields are for these operations, too."""
    service: str = ""
    request_id: str = ""

    @property
    def has_started(self) -> bool:
        """Whether the run has begun. A rejected run is not visible to Temporal's clients."""
        return not self.refused and bool(self.history_length or self.close_time)

    def field(self, name: str) -> Any:
        """The value of a field for filters."""
        match name:
            case "WorkflowId" | "ActivityId" | "OperationId":
                return self.workflow_id
            case "WorkflowType" | "ActivityType" | "Operation":
                return self.workflow_type
            case "Endpoint" | "Service" | "RequestId" if self.kind is RunKind.NEXUS_OPERATION:
                return {"Endpoint": self.endpoint, "Service": self.service, "RequestId": self.request_id}[name]
            case "RunId":
                return self.run_id
            case "ExecutionStatus":
                return self.status
            case "StartTime":
                return self.start_time
            case "ExecutionTime":
                return self.execution_time
            case "CloseTime":
                return self.close_time
            case "TaskQueue":
                return self.task_queue
            case "ExecutionDuration":
                return (self.close_time - self.start_time).total_seconds() * 1e9 if self.close_time else None
            case "HistoryLength":
                return self.history_length if self.close_time else None
            case "HistorySizeBytes":
                return self.history_size if self.close_time else None
            case "StateTransitionCount":
                return self.history_length
            case "ParentWorkflowId":
                return self.parent[0] or None
            case "ParentRunId":
                return self.parent[1] or None
            case "RootWorkflowId":
                return self.root[0]
            case "RootRunId":
                return self.root[1]
            case "FirstRunId":
                return self.first_run_id
            case _:
                return self.attribute(name)

    def attribute(self, name: str) -> Any:
        """The value of a search attribute for filters; None if the run does not have it."""
        return attribute_field(self.search_attributes, name)


_Record = TypeVar("_Record", bound=RunRecord)


def status_named(phase: str) -> str:
    """Temporal's name for a phase of a run."""
    return _STATUS.get(phase, phase)


def phase_named(status: str) -> str:
    """The phase of a closed run with one of Temporal's statuses."""
    return {"Canceled": "Cancelled"}.get(status, status)


def was_refused(status: Mapping[str, Any]) -> bool:
    """Whether a run with this status never started because its workflow ID was in use."""
    return any(mapping(each).get("reason") == _ALREADY_STARTED for each in status.get("conditions") or ())


def record_of(obj: KubeObject, form: type[_Record]) -> _Record:
    """Build the record of a run. Fields that a damaged `status.state` does not show are missing.

    Args:
        obj: The WorkflowRun, with the values of its status.
        form: The class of the record.
    """
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    uid, workflow_id = meta["uid"], str(spec.get("workflowId") or meta["name"])
    kind, parent, extras = kind_of(spec), parent_of(obj), extras_of(obj)
    state = mapping(status.get("state"))
    code = mapping(state.get("code"))
    activity = only_activity(state)
    operation = mapping(spec.get("nexusOperation"))
    reference = spec.get("workflow") or spec.get("activity") or {}
    times = (state.get("startTime"), status.get("startTime"), meta.get("creationTimestamp"))
    started = next(filter(None, map(read_kubernetes_time, times)))
    kept = status.get("history") or {}
    phase = status.get("phase", "")
    rests = kind is RunKind.ACTIVITY and phase == "Paused" and not activity.get("startedTime")
    default_root = (extras.root_workflow_id, extras.root_run_id) if extras.root_workflow_id else (workflow_id, uid)
    return form(
        namespace=meta["namespace"],
        run_id=uid,
        workflow_id=workflow_id,
        workflow_type=text(code.get("workflowType")) or _type_of(spec) or meta["name"],
        status=phase if rests else status_named(phase),
        start_time=started,
        execution_time=read_kubernetes_time(state.get("firstDecisionTime") or activity.get("firstScheduledTime"))
        or started,
        close_time=read_kubernetes_time(state.get("closeTime")) or read_kubernetes_time(status.get("completionTime")),
        task_queue=text(code.get("taskQueue"))
        or reference.get("taskQueue")
        or (WORKFLOWS_QUEUE if kind is RunKind.WORKFLOW else ""),
        history_length=kept.get("nextEventId", 1) - 1,
        history_size=kept.get("sizeBytes", 0),
        parent=(parent.workflow_id, parent.run_id) if parent else ("", ""),
        root=(parent.workflow_id, parent.run_id) if parent and not extras.root_workflow_id else default_root,
        first_run_id=first_run_id(obj),
        search_attributes={
            **mapping(code.get("searchAttributes")),
            **versioning_attributes(mapping(code.get("versioning"))),
        }
        if code
        else spec.get("searchAttributes") or {},
        memo=mapping(code.get("memo")) if code else extras.memo or {},
        version=meta.get("resourceVersion", ""),
        refused=was_refused(status),
        kind=kind,
        endpoint=text(operation.get("endpoint")),
        service=text(operation.get("service")),
        request_id=text(_only(state, "operations", "leftOperations").get("requestId")),
    )


def versioning_attributes(versioning: Mapping[str, Any]) -> dict[str, Any]:
    """The search attributes of the versioning of a run, from its recorded state."""
    override, version = mapping(versioning.get("override")), mapping(versioning.get("version"))
    if override.get("version"):
        version = mapping(override["version"])
    behavior = text(override.get("behavior") or versioning.get("behavior"))
    name, build = text(version.get("deploymentName")), text(version.get("buildId"))
    attributes = {
        "TemporalWorkerDeployment": name,
        "TemporalWorkerDeploymentVersion": f"{name}:{build}" if name else "",
        "TemporalWorkflowVersioningBehavior": PINNED if behavior == ONE_TIME else behavior,
    }
    return {key: {"type": "Keyword", "value": value} for key, value in attributes.items() if value}


def only_activity(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The activity in the recorded state of a standalone activity; empty for any other run."""
    return _only(state, "activities", "leftActivities")


def _only(state: Mapping[str, Any], open_: str, left: str) -> Mapping[str, Any]:
    """The activity or the operation in the recorded state of a standalone run; empty for any other run."""
    if not state.get("standalone"):
        return {}
    return mapping(next(iter((*mapping(state.get(open_)).values(), *mapping(state.get(left)).values())), None))


def _type_of(spec: Mapping[str, Any]) -> str:
    """The workflow type in the spec of a run; empty if the definition is inline."""
    reference = spec.get("workflow") or spec.get("activity") or {}
    return str(
        reference.get("type") or reference.get("name") or mapping(spec.get("nexusOperation")).get("operation") or ""
    )
