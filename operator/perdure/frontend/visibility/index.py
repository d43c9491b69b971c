"""The in-memory index of runs for lists, updated with the objects that the controller reads and writes.

A namespace may have tens of thousands of finished runs, each stored in a few packed bytes. Large search attributes and memos are
not stored: they are read from the API server when a client lists the run, or filters by them.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace
from temporalio.api.activity.v1 import ActivityExecutionListInfo
from temporalio.api.common.v1 import ActivityType, Memo, SearchAttributes, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import ActivityExecutionStatus, NexusOperationExecutionStatus, WorkflowExecutionStatus
from temporalio.api.nexus.v1 import NexusOperationExecutionListInfo
from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from perdure.api.json_values import mapping, text
from perdure.api.phases import RunKind
from perdure.api.search_attributes import PREDEFINED, SYSTEM, attribute_value
from perdure.api.times import read_kubernetes_time
from perdure.controller.directory import entry_of
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.engine.versioning import ONE_TIME, PINNED, DeploymentVersion
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import to_enum
from perdure.frontend.visibility.query_language import ComparisonBudget, Filter
from perdure.kube import client as kube
from perdure.kube.client import not_newer
from perdure.runtime.chains import extras_of, parent_of

_STATUS = {"Cancelled": "Canceled", "Pending": "Running", "Paused": "Running", "": "Running"}
BUILT_IN = {**SYSTEM, **PREDEFINED}
"""The types of fields that filters can use without registration."""
OF_KIND = {
    RunKind.WORKFLOW: {},
    RunKind.ACTIVITY: dict.fromkeys(("ActivityId", "ActivityType"), "Keyword"),
    RunKind.NEXUS_OPERATION: dict.fromkeys(("OperationId", "Endpoint", "Service", "Operation", "RequestId"), "Keyword"),
}
"""The types of additional fields for filters of standalone activities and of standalone Nexus operations."""
_KEPT = 256
"""Size limit of a finished run's search attributes and memo in memory, in bytes each."""
_UNPACKABLE = 2_048
"""The assumed size of values that cannot be packed, such as numbers of more than 64 bits, in bytes."""
_MAX_NAMES = 1_000
"""Maximum number of known names of search attributes per namespace."""
_OF_RUN = 20
"""The cost of reading a record, in values that a filter compares."""


class NotInMemoryError(Exception):
    """A filter needs search attributes of a run that are not in memory."""


class VisibilityRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The fields of a run in lists."""

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
    left_out: int = 0
    """Size of the search attributes and memo that are not in memory, in bytes."""
    finds: bool = True
    """Whether the search attributes are in memory."""
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
            case _ if not self.finds:
                raise NotInMemoryError(name)
            case _:
                return attribute_field(self.search_attributes, name)

    def info(self, *, registered: bool = True) -> WorkflowExecutionInfo:
        """Convert the record to a message of Temporal's API. Search attributes have their registered or their sent types."""
        made = WorkflowExecutionInfo(
            execution=WorkflowExecution(workflow_id=self.workflow_id, run_id=self.run_id),
            type=WorkflowType(name=self.workflow_type),
            status=to_enum(WorkflowExecutionStatus, self.status),
            history_length=self.history_length,
            history_size_bytes=self.history_size,
            state_transition_count=self.history_length,
            task_queue=self.task_queue,
            first_run_id=self.first_run_id,
            root_execution=WorkflowExecution(workflow_id=self.root[0], run_id=self.root[1]),
        )
        made.start_time.FromDatetime(self.start_time)
        made.execution_time.FromDatetime(self.execution_time)
        self._set_close(made, self.execution_time)
        if self.parent[0]:
            made.parent_execution.CopyFrom(WorkflowExecution(workflow_id=self.parent[0], run_id=self.parent[1]))
            made.parent_namespace_id = self.namespace
        # Present even if empty, because Go clients read the fields without a check.
        made.memo.CopyFrom(data.memo(self.memo) or Memo())
        attributes = data.attributes(self.search_attributes, registered=registered)
        made.search_attributes.CopyFrom(attributes or SearchAttributes())
        return made

    def activity_info(self) -> ActivityExecutionListInfo:
        """Convert the record of a standalone activity to a message of Temporal's API."""
        made = ActivityExecutionListInfo(
            activity_id=self.workflow_id,
            run_id=self.run_id,
            activity_type=ActivityType(name=self.workflow_type),
            status=to_enum(ActivityExecutionStatus, self.status),
            task_queue=self.task_queue,
            state_transition_count=self.history_length,
            state_size_bytes=self.history_size,
            search_attributes=data.attributes(self.search_attributes, registered=True) or SearchAttributes(),
        )
        made.schedule_time.FromDatetime(self.start_time)
        made.execution_time.FromDatetime(self.execution_time)
        self._set_close(made, self.start_time)
        return made

    def operation_info(self) -> NexusOperationExecutionListInfo:
        """Convert the record of a standalone Nexus operation to a message of Temporal's API."""
        made = NexusOperationExecutionListInfo(
            operation_id=self.workflow_id,
            run_id=self.run_id,
            endpoint=self.endpoint,
            service=self.service,
            operation=self.workflow_type,
            status=to_enum(NexusOperationExecutionStatus, self.status),
            state_transition_count=self.history_length,
            state_size_bytes=self.history_size,
            search_attributes=data.attributes(self.search_attributes) or SearchAttributes(),
        )
        made.schedule_time.FromDatetime(self.start_time)
        self._set_close(made, self.start_time)
        return made

    def _set_close(self, made: Any, began: datetime) -> None:
        if self.close_time is not None:
            made.close_time.FromDatetime(self.close_time)
            made.execution_duration.FromTimedelta(self.close_time - began)


def attribute_field(attributes: Mapping[str, Any], name: str) -> Any:
    """The value of a search attribute for filters; None if it does not have the right type."""
    value = attributes.get(name)
    if value is not None and data.attribute_type(value, name) == "Datetime":
        found = data.attribute_time(value)
        return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
    if data.attribute_type(value) == "Double":
        try:
            return float(attribute_value(value))
        except (TypeError, ValueError, OverflowError):
            return None
    return attribute_value(value)


def status_named(phase: str) -> str:
    """Temporal's name for a phase of a run."""
    return _STATUS.get(phase, phase)


def record_of(obj: kube.Object) -> VisibilityRecord:
    """Build the record of a run. Fields that a damaged `status.state` does not show are missing."""
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    entry, parent, extras = entry_of(obj), parent_of(obj), extras_of(obj)
    state = mapping(status.get("state"))
    code = mapping(state.get("code"))
    activity = only_activity(state)
    operation = mapping(spec.get("nexusOperation"))
    reference = spec.get("workflow") or spec.get("activity") or {}
    times = (state.get("startTime"), status.get("startTime"), meta.get("creationTimestamp"))
    started = next(filter(None, map(read_kubernetes_time, times)))
    kept = status.get("history") or {}
    phase = status.get("phase", "")
    rests = entry.kind is RunKind.ACTIVITY and phase == "Paused" and not activity.get("startedTime")
    default_root = (
        (extras.root_workflow_id, extras.root_run_id) if extras.root_workflow_id else (entry.workflow_id, entry.uid)
    )
    return VisibilityRecord(
        namespace=entry.namespace,
        run_id=entry.uid,
        workflow_id=entry.workflow_id,
        workflow_type=text(code.get("workflowType")) or _type_of(spec) or meta["name"],
        status=phase if rests else status_named(phase),
        start_time=started,
        execution_time=read_kubernetes_time(state.get("firstDecisionTime") or activity.get("firstScheduledTime"))
        or started,
        close_time=read_kubernetes_time(state.get("closeTime")) or read_kubernetes_time(status.get("completionTime")),
        task_queue=text(code.get("taskQueue"))
        or reference.get("taskQueue")
        or (WORKFLOWS_QUEUE if entry.kind is RunKind.WORKFLOW else ""),
        history_length=kept.get("nextEventId", 1) - 1,
        history_size=kept.get("sizeBytes", 0),
        parent=(parent.workflow_id, parent.run_id) if parent else ("", ""),
        root=(parent.workflow_id, parent.run_id) if parent and not extras.root_workflow_id else default_root,
        first_run_id=entry.first_uid,
        search_attributes={
            **mapping(code.get("searchAttributes")),
            **versioning_attributes(mapping(code.get("versioning"))),
        }
        if code
        else spec.get("searchAttributes") or {},
        memo=mapping(code.get("memo")) if code else extras.memo or {},
        version=meta.get("resourceVersion", ""),
        refused=entry.refused,
        kind=entry.kind,
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


class Visibility:
    """All runs that clients can list."""

    def __init__(self) -> None:
        self._records: dict[str, dict[str, VisibilityRecord | bytes]] = {}
        """The records by namespace and run ID. Finished runs are packed."""
        self._types: dict[str, dict[str, str]] = {}
        """The types of the search attributes of runs, by namespace and name."""
        self._coded: dict[str, set[str]] = {}
        """The names of search attributes of runs of Temporal SDK workers, by namespace."""
        self._started: dict[str, datetime] = {}
        """The start times of runs whose start is not recorded yet, by run ID."""

    def started(self, run_id: str, time: datetime) -> None:
        """Add a run whose start is not recorded yet.

        The creation time of its object has whole seconds, which is too coarse to tell which of two runs is newer.
        """
        self._started[run_id] = time

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a run."""
        namespace, uid = obj["metadata"]["namespace"], obj["metadata"]["uid"]
        known = self.get(namespace, uid)
        if known is not None and not_newer(obj["metadata"].get("resourceVersion", ""), known.version):
            return
        record = record_of(obj)
        if record.has_started:
            self._started.pop(uid, None)
        types = self._types.setdefault(namespace, {})
        for name, value in record.search_attributes.items():
            if len(types) < _MAX_NAMES:
                types.setdefault(name, data.attribute_type(value, name))
        if record.task_queue not in {"", WORKFLOWS_QUEUE}:
            self._coded.setdefault(namespace, set()).update(record.search_attributes.keys() & types.keys())
        self._records.setdefault(namespace, {})[uid] = _packed(record) if record.close_time else record

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a run."""
        namespace, uid = obj["metadata"]["namespace"], obj["metadata"]["uid"]
        self._started.pop(uid, None)
        records = self._records.get(namespace, {})
        records.pop(uid, None)
        if not records:
            self._records.pop(namespace, None)
            self._types.pop(namespace, None)
            self._coded.pop(namespace, None)

    def get(self, namespace: str, run_id: str) -> VisibilityRecord | None:
        """Return the record of a run."""
        known = self._records.get(namespace, {}).get(run_id)
        if isinstance(known, bytes):
            return _unpacked(namespace, run_id, known)
        started = self._started.get(run_id)
        if known is None or started is None:
            return known
        return msgspec.structs.replace(known, start_time=started, execution_time=started)

    def pinned(self, namespace: str) -> Counter[DeploymentVersion]:
        """How many open runs of a namespace are pinned to each version, by their recorded state."""
        found: Counter[DeploymentVersion] = Counter()
        for record in self._records.get(namespace, {}).values():
            if isinstance(record, bytes):
                continue
            attributes = record.search_attributes
            if attribute_field(attributes, "TemporalWorkflowVersioningBehavior") == PINNED:
                name, _, build = str(attribute_field(attributes, "TemporalWorkerDeploymentVersion")).partition(":")
                found[DeploymentVersion(deployment_name=name, build_id=build)] += 1
        return found

    async def find(
        self, namespace: str, query: Filter, kind: RunKind = RunKind.WORKFLOW
    ) -> tuple[list[str], list[str]]:
        """Find the runs of a kind that match a filter.

        A run that was rejected because its workflow ID is in use is left out.

        Returns:
            The IDs of matching runs, the newest first, and the IDs of runs whose search attributes must be read to decide.
        """
        found: list[tuple[datetime, str]] = []
        unread: list[str] = []
        async for record in self.records(namespace, list(self._records.get(namespace, ())), query.budget):
            if record.kind is not kind or not (record.has_started or record.run_id in self._started):
                continue
            try:
                if query.test(record.field):
                    found.append((record.start_time, record.run_id))
            except NotInMemoryError:
                unread.append(record.run_id)
        return self.sorted(found), unread

    async def records(
        self, namespace: str, run_ids: Iterable[str], budget: ComparisonBudget
    ) -> AsyncIterator[VisibilityRecord]:
        """The records of runs, without runs that were deleted. Others have their turn in between."""
        for run_id in run_ids:
            budget.spend(_OF_RUN)
            record = self.get(namespace, run_id)
            if record is not None:
                yield record
            await budget.yield_turn()

    @staticmethod
    def sorted(found: Iterable[tuple[datetime, str]]) -> list[str]:
        """Sort run IDs by start time and ID, the newest first."""
        return [run_id for _, run_id in sorted(found, reverse=True)]

    def attribute_types(self, namespace: str) -> dict[str, str]:
        """The types of the search attributes of a namespace's runs, by name."""
        return dict(self._types.get(namespace, {}))

    def coded_types(self, namespace: str) -> dict[str, str]:
        """The types of the search attributes of a namespace's runs of Temporal SDK workers, by name."""
        names = self._coded.get(namespace, set()) - BUILT_IN.keys()
        return {name: kind for name, kind in self._types.get(namespace, {}).items() if name in names}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(VisibilityRecord)


def _packed(record: VisibilityRecord) -> bytes:
    """Pack the record of a finished run, without large or redundant fields."""
    run_id = record.run_id
    finding, memo = _size(record.search_attributes), _size(record.memo)
    return _ENCODER.encode(
        replace(
            record,
            namespace="",
            run_id="",
            first_run_id="" if record.first_run_id == run_id else record.first_run_id,
            root=("", "") if record.root == (record.workflow_id, run_id) else record.root,
            search_attributes=record.search_attributes if finding <= _KEPT else {},
            memo=record.memo if memo <= _KEPT else {},
            left_out=(finding if finding > _KEPT else 0) + (memo if memo > _KEPT else 0),
            finds=finding <= _KEPT,
        )
    )


def _size(value: dict[str, Any]) -> int:
    """The packed size of a value in bytes; a large number if it cannot be packed."""
    try:
        return len(_ENCODER.encode(value))
    except (OverflowError, RecursionError, TypeError, ValueError):
        return _UNPACKABLE


def _unpacked(namespace: str, run_id: str, packed: bytes) -> VisibilityRecord:
    record = _DECODER.decode(packed)
    return replace(
        record,
        namespace=namespace,
        run_id=run_id,
        first_run_id=record.first_run_id or run_id,
        root=record.root if record.root[1] else (record.workflow_id, run_id),
    )


def is_known(name: str, custom: Mapping[str, str]) -> bool:
    """Whether a filter may use a field."""
    return name in BUILT_IN or name in custom
