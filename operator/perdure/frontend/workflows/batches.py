"""RPCs about batches: one request to many workflows. A batch consists of Operations, one for each run.

Therefore a batch survives restarts, sends each run one request, and shows in kubectl. Each Operation describes the whole batch.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
from temporalio.api.batch.v1 import BatchOperationInfo, BatchOperationReset
from temporalio.api.common.v1 import Execution, WorkflowExecution
from temporalio.api.enums.v1 import (
    BatchOperationState,
    BatchOperationType,
    ExecutionType,
    ResetType,
)
from temporalio.api.workflowservice.v1 import (
    DescribeBatchOperationRequest,
    DescribeBatchOperationResponse,
    ListBatchOperationsRequest,
    ListBatchOperationsResponse,
    StartBatchOperationRequest,
    StartBatchOperationResponse,
    StopBatchOperationRequest,
    StopBatchOperationResponse,
)

from perdure.api import labels
from perdure.api.names import batch_operation_name, label_value
from perdure.api.stored import StoredStruct, read_annotation
from perdure.controller.directory import Entry
from perdure.frontend.errors import TOO_LARGE, invalid, not_found, precondition
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages import values
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import MAX_EVENT, MAX_ID, from_enum, to_enum
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.listing import Listing
from perdure.frontend.workflows.control import reapplied
from perdure.kube import client as kube
from perdure.kube.clock import now

MAX_RUNS = 1_000
"""Maximum number of runs in one batch."""
PAGE = 100
_AT_ONCE = 16
_TYPES = {
    "termination_operation": "TerminateWorkflow",
    "cancellation_operation": "CancelWorkflow",
    "signal_operation": "SignalWorkflow",
    "reset_operation": "ResetWorkflow",
}


class Batch(StoredStruct, frozen=True, kw_only=True):
    """The description of a batch by the client."""

    job_id: str
    type: str
    started: datetime
    total: int
    identity: str = ""
    reason: str = ""
    query: str = ""


class Batches:
    """Creates the Operations of batches, and describes their progress."""

    def __init__(self, client: kube.Client, runs: RunGateway, listing: Listing) -> None:
        self._client = client
        self._runs = runs
        self._listing = listing

    async def start_batch_operation(
        self, request: StartBatchOperationRequest, call: CallContext
    ) -> StartBatchOperationResponse:
        """Send one request to many workflows. A repeated RPC sends it only to workflows that did not get it yet."""
        kind = request.WhichOneof("operation") or ""
        if not request.job_id or len(request.job_id) > MAX_ID:
            raise invalid(f"job_id: must be set, with at most {MAX_ID} characters")
        if kind not in _TYPES:
            raise invalid(f"operation: `{kind}` is not supported in a batch; it must be one of {', '.join(_TYPES)}")
        wanted = _request(request, kind)
        entries = await self._entries(request)
        if len(entries) > MAX_RUNS:
            raise invalid(
                f"a batch can have at most {MAX_RUNS:,} workflows, but this one has {len(entries):,}: narrow it"
            )
        batch = Batch(
            job_id=request.job_id,
            type=_TYPES[kind],
            started=now(),
            total=len(entries),
            identity=getattr(request, kind).identity,
            reason=request.reason,
            query=request.visibility_query,
        )
        at_once = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(
            *(self._create_operation(entry, batch, wanted, at_once, call.principal) for entry in entries)
        )
        return StartBatchOperationResponse()

    async def _entries(self, request: StartBatchOperationRequest) -> list[Entry]:
        runs = self._runs
        named = [
            *request.executions,
            *(
                WorkflowExecution(workflow_id=each.business_id, run_id=each.run_id)
                for each in request.target_executions
            ),
        ]
        if named and request.visibility_query:
            raise invalid("visibility_query: cannot be used together with executions")
        if named:
            return [await runs.find(request.namespace, each) for each in named]
        if not request.visibility_query:
            raise invalid("visibility_query: must be set unless executions are set")
        found, query = await self._listing.find(request.namespace, request.visibility_query)
        if query.group_by:
            raise invalid("visibility_query: 'group by' clause is only supported for counting")
        entries = (runs.entry(run_id) for run_id in found)
        return [entry for entry in entries if entry is not None]

    async def _create_operation(
        self, entry: Entry, batch: Batch, request: dict[str, Any], at_once: asyncio.Semaphore, principal: str
    ) -> None:
        created_by = {labels.CREATED_BY_ANNOTATION: principal} if principal else {}
        name = batch_operation_name(batch.job_id, entry.uid)
        body = {
            "apiVersion": labels.API_VERSION,
            "kind": "Operation",
            "metadata": {
                "name": name,
                "namespace": entry.namespace,
                "labels": {labels.BATCH_LABEL: label_value(batch.job_id)},
                "annotations": {labels.BATCH_ANNOTATION: msgspec.json.encode(batch).decode(), **created_by},
            },
            "spec": {"target": {"kind": "WorkflowRun", "name": entry.name}, **request},
        }
        async with at_once:
            try:
                await self._client.create(kube.path(kube.PERDURE, entry.namespace, "operations"), body)
            except kube.AlreadyExistsError:
                url = kube.path(kube.PERDURE, entry.namespace, "operations", name)
                check_batch(await self._client.get(url), batch)
            except kube.InvalidError as error:
                raise invalid(error.message) from error
            except kube.TooLargeError as error:
                raise invalid(TOO_LARGE) from error

    async def stop_batch_operation(
        self, request: StopBatchOperationRequest, call: CallContext
    ) -> StopBatchOperationResponse:
        """Stop sending the request to further workflows. Processed requests are not undone."""
        found = await self._operations(request.namespace, request.job_id)
        if all(map(_phase, found)):
            raise not_found(f"batch operation has already ended: {request.job_id}")
        for obj in found:
            if not _phase(obj):
                url = kube.path(kube.PERDURE, request.namespace, "operations", obj["metadata"]["name"])
                await self._client.delete(url, uid=obj["metadata"]["uid"])
        return StopBatchOperationResponse()

    async def describe_batch_operation(
        self, request: DescribeBatchOperationRequest, call: CallContext
    ) -> DescribeBatchOperationResponse:
        """Describe the progress of a batch."""
        found = await self._operations(request.namespace, request.job_id)
        batch, info = _batch_of(found[0]), _info(found)
        response = DescribeBatchOperationResponse(
            operation_type=info.operation_type,
            job_id=batch.job_id,
            state=info.state,
            total_operation_count=batch.total,
            complete_operation_count=sum(_phase(obj) == "Complete" for obj in found),
            failure_operation_count=sum(_phase(obj) == "Failed" for obj in found),
            identity=batch.identity,
            reason=batch.reason,
            query=batch.query,
        )
        response.start_time.CopyFrom(info.start_time)
        if info.HasField("close_time"):
            response.close_time.CopyFrom(info.close_time)
        if not batch.query:
            response.executions.extend(
                Execution(type=ExecutionType.EXECUTION_TYPE_WORKFLOW, business_id=entry.workflow_id, run_id=entry.uid)
                for entry in sorted(self._targets(found), key=lambda each: each.workflow_id)
            )
        return response

    def _targets(self, operations: list[kube.Object]) -> list[Entry]:
        entries = (
            self._runs.named(obj["metadata"]["namespace"], obj["spec"]["target"].get("name", "")) for obj in operations
        )
        return [entry for entry in entries if entry is not None]

    async def list_batch_operations(
        self, request: ListBatchOperationsRequest, call: CallContext
    ) -> ListBatchOperationsResponse:
        """List the batches, the newest first. They are kept as long as their Operations."""
        url = kube.path(kube.PERDURE, request.namespace, "operations")
        batches: dict[str, list[kube.Object]] = {}
        async for obj in self._client.lists.each(url, labelSelector=labels.BATCH_LABEL):
            batch = read_annotation(obj, labels.BATCH_ANNOTATION, Batch)
            if batch is not None:
                batches.setdefault(batch.job_id, []).append(obj)
        infos = sorted(map(_info, batches.values()), key=lambda info: info.start_time.ToDatetime(), reverse=True)
        page, token = page_of(infos, request.next_page_token, request.page_size, PAGE)
        return ListBatchOperationsResponse(operation_info=page, next_page_token=token)

    async def _operations(self, namespace: str, job_id: str) -> list[kube.Object]:
        """The Operations of a batch; at least one."""
        url = kube.path(kube.PERDURE, namespace, "operations")
        selector = f"{labels.BATCH_LABEL}={label_value(job_id)}"
        found = await self._client.lists.all(url, labelSelector=selector) if job_id else []
        of_job = [obj for obj in found if _batch_of(obj).job_id == job_id]
        if not of_job:
            raise not_found(f"batch operation not found: {job_id}")
        return of_job


def _request(request: StartBatchOperationRequest, kind: str) -> dict[str, Any]:
    """The request to each run, in the form of an Operation.

    Raises:
        RpcError: Batches do not support the request.
    """
    reason = {"reason": request.reason} if request.reason else {}
    match kind:
        case "termination_operation":
            details = data.to_json(request.termination_operation.details.payloads)
            return {"terminate": {**reason, **({} if details is None else {"details": details})}}
        case "cancellation_operation":
            return {"cancel": reason}
        case "signal_operation":
            signal = request.signal_operation
            if not signal.signal:
                raise invalid("signal_operation.signal: must be set")
            values.name(signal.signal, "signal_operation.signal")
            if signal.header.fields:
                raise invalid("signal_operation.header: is not supported in a batch")
            kept = data.to_json(signal.input.payloads)
            return {"signal": {"name": signal.signal, **({} if kept is None else {"input": kept})}}
        case _:
            return {"reset": {**_reset(request.reset_operation), **reason}}


def _reset(requested: BatchOperationReset) -> dict[str, Any]:
    target = requested.options.WhichOneof("target") or from_enum(ResetType, requested.reset_type)
    reapply = requested.options.reset_reapply_type or requested.reset_reapply_type
    signals, updates = reapplied(reapply, requested.options.reset_reapply_exclude_types)
    reset: dict[str, Any] = {"reapplySignals": signals, **({} if updates else {"reapplyUpdates": False})}
    if requested.post_reset_operations:
        raise invalid("reset_operation.post_reset_operations: is not supported")
    match target:
        case "first_workflow_task" | "FirstWorkflowTask":
            return {**reset, "to": "FirstWorkflowTask"}
        case "last_workflow_task" | "LastWorkflowTask":
            return {**reset, "to": "LastWorkflowTask"}
        case "workflow_task_id" if 1 < requested.options.workflow_task_id <= MAX_EVENT:
            return {**reset, "eventId": requested.options.workflow_task_id - 1}
        case _:
            raise invalid(
                "reset_operation.options: must be first_workflow_task, last_workflow_task or workflow_task_id"
            )


def check_batch(operation: kube.Object, batch: Batch) -> None:
    """Check that an existing Operation belongs to the same batch, from an earlier try.

    Raises:
        RpcError: The Operation belongs to another batch.
    """
    other = _batch_of(operation)
    if (other.job_id, other.type) != (batch.job_id, batch.type):
        name = operation["metadata"]["name"]
        raise precondition(f"Operation {name} exists and does not belong to batch {batch.job_id!r}; delete it")


def _batch_of(obj: kube.Object) -> Batch:
    batch = read_annotation(obj, labels.BATCH_ANNOTATION, Batch)
    return batch or Batch(job_id="", type="", started=datetime(1970, 1, 1, tzinfo=UTC), total=0)


def _phase(obj: kube.Object) -> str:
    """The phase in which an Operation has ended; empty until then."""
    phase = (obj.get("status") or {}).get("phase", "")
    return phase if phase in {"Complete", "Failed"} else ""


def _info(operations: list[kube.Object]) -> BatchOperationInfo:
    first = min((_batch_of(obj) for obj in operations), key=lambda batch: batch.started)
    done = all(map(_phase, operations))
    info = BatchOperationInfo(
        job_id=first.job_id,
        state=to_enum(BatchOperationState, "Completed" if done else "Running"),
        operation_type=to_enum(BatchOperationType, first.type),
    )
    info.start_time.FromDatetime(first.started)
    if done:
        closed = max(datetime.fromisoformat(obj["status"]["completionTime"]) for obj in operations)
        info.close_time.FromDatetime(closed)
    return info
