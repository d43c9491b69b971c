"""The in-memory index of runs for lists, updated with the objects that the controller reads and writes.

A namespace may have tens of thousands of finished runs, each stored in a few packed bytes. Large search attributes and memos are
not stored: they are read from the API server when a client lists the run, or filters by them.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace
from temporalio.api.activity.v1 import ActivityExecutionListInfo
from temporalio.api.common.v1 import ActivityType, Memo, SearchAttributes, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import ActivityExecutionStatus, NexusOperationExecutionStatus, WorkflowExecutionStatus
from temporalio.api.nexus.v1 import NexusOperationExecutionListInfo
from temporalio.api.workflow.v1 import WorkflowExecutionInfo

from perdure.api.phases import RunKind
from perdure.api.search_attributes import PREDEFINED, SYSTEM, attribute_field, attribute_type
from perdure.archive.records import RunRecord, record_of
from perdure.archive.rows import Position
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.engine.versioning import PINNED, DeploymentVersion
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import to_enum
from perdure.frontend.visibility.query_language import ComparisonBudget, Filter
from perdure.kube import client as kube
from perdure.kube.client import not_newer

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


class VisibilityRecord(RunRecord, frozen=True, kw_only=True, array_like=True):
    """The fields of a run in lists."""

    left_out: int = 0
    """Size of the search attributes and memo that are not in memory, in bytes."""
    finds: bool = True
    """Whether the search attributes are in memory."""

    def attribute(self, name: str) -> Any:
        """The value of a search attribute for filters; None if the run does not have it.

        Raises:
            NotInMemoryError: The search attributes of the run are not in memory.
        """
        if not self.finds:
            raise NotInMemoryError(name)
        return super().attribute(name)

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
        record = record_of(obj, VisibilityRecord)
        if record.has_started:
            self._started.pop(uid, None)
        types = self._types.setdefault(namespace, {})
        for name, value in record.search_attributes.items():
            if len(types) < _MAX_NAMES:
                types.setdefault(name, attribute_type(value, name))
        if record.task_queue not in {"", WORKFLOWS_QUEUE}:
            self._coded.setdefault(namespace, set()).update(record.search_attributes.keys() & types.keys())
        self._records.setdefault(namespace, {})[uid] = _packed(record) if record.close_time else record

    def pack(self, namespace: str, run_id: str) -> None:
        """Pack the record of an open run that does not change for a while. Those pinned to a version are counted often."""
        records = self._records.get(namespace, {})
        record = records.get(run_id)
        if isinstance(record, VisibilityRecord) and not _is_pinned(record):
            records[run_id] = _packed(record)

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
            if _is_pinned(record):
                name, _, build = str(attribute_field(attributes, "TemporalWorkerDeploymentVersion")).partition(":")
                found[DeploymentVersion(deployment_name=name, build_id=build)] += 1
        return found

    async def find(
        self, namespace: str, query: Filter, kind: RunKind = RunKind.WORKFLOW
    ) -> tuple[list[Position], list[str]]:
        """Find the runs of a kind that match a filter.

        A run that was rejected because its workflow ID is in use is left out.

        Returns:
            The positions of matching runs, the newest first, and the IDs of runs whose search attributes must be read to decide.
        """
        found: list[Position] = []
        unread: list[str] = []
        async for record in self.records(namespace, self.run_ids(namespace), query.budget):
            if record.kind is not kind or not (record.has_started or record.run_id in self._started):
                continue
            try:
                if query.test(record.field):
                    found.append((record.start_time, record.run_id))
            except NotInMemoryError:
                unread.append(record.run_id)
        return sorted(found, reverse=True), unread

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

    def run_ids(self, namespace: str) -> list[str]:
        """The IDs of the runs of a namespace."""
        return list(self._records.get(namespace, ()))

    def attribute_types(self, namespace: str) -> dict[str, str]:
        """The types of the search attributes of a namespace's runs, by name."""
        return dict(self._types.get(namespace, {}))

    def coded_types(self, namespace: str) -> dict[str, str]:
        """The types of the search attributes of a namespace's runs of Temporal SDK workers, by name."""
        names = self._coded.get(namespace, set()) - BUILT_IN.keys()
        return {name: kind for name, kind in self._types.get(namespace, {}).items() if name in names}


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(VisibilityRecord)


def _is_pinned(record: VisibilityRecord) -> bool:
    return bool(attribute_field(record.search_attributes, "TemporalWorkflowVersioningBehavior") == PINNED)


def _packed(record: VisibilityRecord) -> bytes:
    """Pack the record of a finished or hibernated run, without large or redundant fields."""
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
