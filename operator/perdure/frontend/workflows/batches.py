"""RPCs about batches: one request to many workflows. A batch consists of Operations, one for each run.

Therefore a batch survives restarts, sends each run one request, and shows in kubectl. Each Operation describes the whole batch.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pydantic.alias_generators import to_camel
from temporalio.api.batch.v1 import (
    BatchOperationInfo,
    BatchOperationReset,
    BatchOperationResetActivities,
    BatchOperationSignal,
    BatchOperationTermination,
    BatchOperationUnpauseActivities,
    BatchOperationUpdateActivityOptions,
    BatchOperationUpdateWorkflowExecutionOptions,
)
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
from perdure.api.kinds.operation import UpdateOptions
from perdure.api.names import batch_operation_name, label_value
from perdure.api.phases import RunKind
from perdure.api.policies import ANY_TYPE
from perdure.api.stored import StoredStruct, read_annotation
from perdure.api.times import format_duration
from perdure.controller.directory import Directory, Entry
from perdure.engine.state import OpenActivityOptions
from perdure.frontend.activities.changes import RETRY_FIELDS, changed_options, snake
from perdure.frontend.deployments.rules import changes_override, override_of
from perdure.frontend.errors import TOO_LARGE, invalid, not_found, precondition
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages import values
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import MAX_EVENT, MAX_ID, from_enum, to_enum
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.lists import Listing
from perdure.frontend.workflows.control import WorkflowControl, reapplied
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.operation_requests import override_of as override_in

MAX_RUNS = 1_000
"""Maximum number of runs in one batch."""
PAGE = 100
_AT_ONCE = 16
_TYPES = {
    "termination_operation": "TerminateWorkflow",
    "cancellation_operation": "CancelWorkflow",
    "deletion_operation": "DeleteWorkflow",
    "signal_operation": "SignalWorkflow",
    "reset_operation": "ResetWorkflow",
    "update_workflow_options_operation": "UpdateWorkflowExecutionOptions",
    "unpause_activities_operation": "UnpauseActivity",
    "reset_activities_operation": "ResetActivity",
    "update_activity_options_operation": "UpdateActivityOptions",
    "cancel_activities_operation": "CancelActivity",
    "terminate_activities_operation": "TerminateActivity",
    "delete_activities_operation": "DeleteActivity",
}
"""The type of a batch by the field of its request."""
_STANDALONE = {"CancelActivity", "TerminateActivity", "DeleteActivity"}
"""Batches of standalone activities; all others are of workflows."""
_DELETIONS = {"DeleteWorkflow": "DeleteWorkflowExecution", "DeleteActivity": "DeleteActivityExecution"}
"""The RPC that deletes one run, by the type of a batch of deletions."""
_ANY = OpenActivityOptions(task_queue="any", start_to_close_timeout=timedelta(seconds=1))
"""Options that no change makes invalid, to check changes for activities that are only known later."""


class Batch(StoredStruct, frozen=True, kw_only=True):
    """The description of a batch by the client, in an annotation that is written once. Fields of newer versions are ignored."""

    job_id: str
    type: str
    started: datetime
    total: int
    identity: str = ""
    reason: str = ""
    query: str = ""
    target: str = ""
    """The ID of the workflow or activity of this Operation."""


class Batches:
    """Creates the Operations of batches, and describes their progress."""

    def __init__(
        self, client: kube.Client, directory: Directory, runs: RunGateway, listing: Listing, control: WorkflowControl
    ) -> None:
        self._client = client
        self._directory = directory
        self._runs = runs
        self._listing = listing
        self._control = control

    async def start_batch_operation(
        self, request: StartBatchOperationRequest, call: CallContext
    ) -> StartBatchOperationResponse:
        """Send one request to many workflows. A repeated RPC sends it only to workflows that did not get it yet."""
        kind = request.WhichOneof("operation") or ""
        if not request.job_id or len(request.job_id) > MAX_ID:
            raise invalid(f"job_id: must be set, with at most {MAX_ID} characters")
        if kind not in _TYPES:
            raise invalid(f"operation: `{kind}` is not supported in a batch; it must be one of {', '.join(_TYPES)}")
        if (rpc := rpc_of_batch(request)) is not None:
            await call.permit(rpc)
        wanted = run_request(request, kind)
        entries = await self._entries(request, _TYPES[kind])
        if len(entries) > MAX_RUNS:
            raise invalid(
                f"a batch can have at most {MAX_RUNS:,} workflows, but this one has {len(entries):,}: narrow it"
            )
        batch = Batch(
            job_id=request.job_id,
            type=_TYPES[kind],
            started=now(),
            total=len(entries),
            identity=getattr(getattr(request, kind), "identity", ""),
            reason=request.reason,
            query=request.visibility_query,
        )
        await self._check_overrides(entries, wanted)
        at_once = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(
            *(self._create_operation(entry, batch, wanted, at_once, call.principal) for entry in entries)
        )
        return StartBatchOperationResponse()

    async def _check_overrides(self, entries: Iterable[Entry], request: Mapping[str, Any]) -> None:
        """Check that the task queue of each run has the version of a versioning override.

        Raises:
            RpcError: A task queue does not have it.
        """
        options = request.get("updateOptions") or request.get("reset", {}).get("updateOptions") or {}
        override = override_in(UpdateOptions.model_validate(options))
        if override is not None:
            for entry in entries:
                await self._control.check_override(entry, override)

    async def _entries(self, request: StartBatchOperationRequest, batch_type: str) -> list[Entry]:
        """The runs of a batch.

        Raises:
            RpcError: A run does not exist, or the request does not say which runs it means.
        """
        runs, standalone = self._runs, batch_type in _STANDALONE
        kind = RunKind.ACTIVITY if standalone else RunKind.WORKFLOW
        named = [
            *request.executions,
            *(
                WorkflowExecution(workflow_id=each.business_id, run_id=each.run_id)
                for each in request.target_executions
            ),
        ]
        if request.executions and request.target_executions:
            raise invalid("target_executions: cannot be used together with executions")
        for index, each in enumerate(request.target_executions):
            if each.type != _execution_type(batch_type):
                raise invalid(f"target_executions[{index}].type: does not fit the operation")
        if named and request.visibility_query:
            raise invalid("visibility_query: cannot be used together with executions")
        if named and standalone:
            return [runs.find_standalone(kind, request.namespace, each.workflow_id, each.run_id) for each in named]
        if named:
            return [await runs.find(request.namespace, each) for each in named]
        if not request.visibility_query:
            raise invalid("visibility_query: must be set unless executions are set")
        found, query = await self._listing.find(request.namespace, request.visibility_query, kind)
        if query.group_by:
            raise invalid("visibility_query: 'group by' clause is only supported for counting")
        entries = (self._directory.get(run_id) for _, run_id in found)
        return [entry for entry in entries if entry is not None]

    async def _create_operation(
        self, entry: Entry, batch: Batch, request: dict[str, Any], at_once: asyncio.Semaphore, principal: str
    ) -> None:
        created_by = {labels.CREATED_BY_ANNOTATION: principal} if principal else {}
        name = batch_operation_name(batch.job_id, entry.uid)
        described = msgspec.json.encode(msgspec.structs.replace(batch, target=entry.workflow_id))
        body = {
            "apiVersion": labels.API_VERSION,
            "kind": "Operation",
            "metadata": {
                "name": name,
                "namespace": entry.namespace,
                "labels": {labels.BATCH_LABEL: label_value(batch.job_id)},
                "annotations": {labels.BATCH_ANNOTATION: described.decode(), **created_by},
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
            response.executions.extend(sorted(map(self._target, found), key=lambda each: each.business_id))
        return response

    def _target(self, operation: kube.Object) -> Execution:
        """The execution of an Operation, which may no longer exist."""
        batch = _batch_of(operation)
        name = operation["spec"]["target"].get("name", "")
        entry = self._directory.named(operation["metadata"]["namespace"], name)
        target = Execution(type=_execution_type(batch.type), business_id=batch.target)
        if entry is not None:
            target.business_id, target.run_id = entry.workflow_id, entry.uid
        return target

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


def rpc_of_batch(request: StartBatchOperationRequest) -> str | None:
    """The RPC that a client must be allowed to call for each run of a batch; None if the right to start the batch is enough."""
    return _DELETIONS.get(_TYPES.get(request.WhichOneof("operation") or "", ""))


def _execution_type(batch_type: str) -> ExecutionType.ValueType:
    if batch_type in _STANDALONE:
        return ExecutionType.EXECUTION_TYPE_ACTIVITY
    return ExecutionType.EXECUTION_TYPE_WORKFLOW


def run_request(request: StartBatchOperationRequest, kind: str) -> dict[str, Any]:
    """The request to each run, in the form of an Operation.

    Raises:
        RpcError: Batches do not support the request.
    """
    operation = getattr(request, kind)
    reason = getattr(operation, "reason", "") or request.reason
    verb, fields = _REQUESTS[kind](operation)
    return {verb: {**fields, **({"reason": reason} if reason and verb in _WITH_REASON else {})}}


_VerbAndFields = tuple[str, dict[str, Any]]
"""The field of a request in the spec of an Operation, and its value."""


def _terminate(operation: BatchOperationTermination) -> _VerbAndFields:
    details = data.to_json(operation.details.payloads)
    return "terminate", {} if details is None else {"details": details}


def _signal(signal: BatchOperationSignal) -> _VerbAndFields:
    if not signal.signal:
        raise invalid("signal_operation.signal: must be set")
    values.name(signal.signal, "signal_operation.signal")
    if signal.header.fields:
        raise invalid("signal_operation.header: is not supported in a batch")
    kept = data.to_json(signal.input.payloads)
    return "signal", {"name": signal.signal, **({} if kept is None else {"input": kept})}


def _update_options(operation: BatchOperationUpdateWorkflowExecutionOptions) -> _VerbAndFields:
    if not changes_override(operation):
        raise invalid("update_workflow_options_operation.update_mask: must name the options to change")
    return "updateOptions", _options(operation)


def _unpause_activities(operation: BatchOperationUnpauseActivities) -> _VerbAndFields:
    if operation.reset_attempts:
        return "resetActivity", {**_activities(operation), "resetHeartbeat": operation.reset_heartbeat}
    return "unpause", dict(_activities(operation))


def _reset_activities(operation: BatchOperationResetActivities) -> _VerbAndFields:
    return "resetActivity", {
        **_activities(operation),
        "resetHeartbeat": operation.reset_heartbeat,
        "keepPaused": operation.keep_paused,
        "restoreOptions": operation.restore_original_options,
    }


def _update_activities(operation: BatchOperationUpdateActivityOptions) -> _VerbAndFields:
    return "updateActivityOptions", {**_activities(operation), **_activity_changes(operation)}


def _activities(operation: Any) -> dict[str, str]:
    """The open activities that a request selects.

    Raises:
        RpcError: It selects none.
    """
    if operation.match_all:
        return {"activityType": ANY_TYPE}
    if not operation.type:
        raise invalid("activity type or match_all must be set")
    return {"activityType": values.name(operation.type, "type")}


def _activity_changes(operation: BatchOperationUpdateActivityOptions) -> dict[str, Any]:
    """The changes of the options of activities, in the form of an Operation.

    Raises:
        RpcError: An option cannot be changed like this.
    """
    paths = [snake(path) for path in operation.update_mask.paths]
    if operation.restore_original:
        if paths:
            raise invalid("restore_original: cannot be used with update_mask")
        return {"restore": True}
    if not paths:
        raise invalid("update_mask: must name the options to change, unless restore_original is set")
    if removed := {"start_to_close_timeout", "schedule_to_close_timeout"} & set(paths):
        # Whether the other timeout is set is known only for each activity.
        known = {name: timedelta(seconds=1) for name in ("start_to_close_timeout", "schedule_to_close_timeout")}
        base = msgspec.structs.replace(_ANY, **{name: known[name] for name in known if name not in removed})
    else:
        base = _ANY
    requested = operation.activity_options
    changed = changed_options(base, requested, paths)
    made: dict[str, Any] = {}
    for path in paths:
        field, _, part = path.partition(".")
        if field == "retry_policy":
            policy = changed.retry_policy
            for name in (part,) if part else RETRY_FIELDS:
                made.setdefault("retryPolicy", {})[to_camel(name)] = _in_manifest(getattr(policy, name))
        elif field == "priority":
            made["priority"] = changed.priority or {}
        else:
            made[to_camel(field)] = _in_manifest(getattr(changed, field))
    return made


def _in_manifest(value: Any) -> Any:
    """An option in a manifest: a missing duration is zero, and a decimal number is text."""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    if value is None or isinstance(value, timedelta):
        return format_duration(value or timedelta(0))
    return value


def _options(operation: Any) -> dict[str, Any]:
    """The changed options of workflows, in the form of an Operation."""
    options = operation.workflow_execution_options
    if not options.HasField("versioning_override"):
        return {}
    override = override_of(options.versioning_override)
    version = override.version
    named = {} if version is None else {"deploymentName": version.deployment_name, "buildId": version.build_id}
    return {"versioningOverride": {"behavior": override.behavior, **named}}


def _reset(requested: BatchOperationReset) -> _VerbAndFields:
    target = requested.options.WhichOneof("target") or from_enum(ResetType, requested.reset_type)
    reapply = requested.options.reset_reapply_type or requested.reset_reapply_type
    signals, updates = reapplied(reapply, requested.options.reset_reapply_exclude_types)
    reset: dict[str, Any] = {"reapplySignals": signals, **({} if updates else {"reapplyUpdates": False})}
    if target == "build_id":
        raise invalid("reset_operation.options.build_id: is not supported; use workflow_task_id or first_workflow_task")
    for each in requested.post_reset_operations:
        if each.WhichOneof("variant") != "update_workflow_options":
            raise invalid("reset_operation.post_reset_operations: only `update_workflow_options` is supported")
        if changes_override(each.update_workflow_options):  # the last change counts
            reset["updateOptions"] = _options(each.update_workflow_options)
    match target:
        case "first_workflow_task" | "FirstWorkflowTask":
            return "reset", {**reset, "to": "FirstWorkflowTask"}
        case "last_workflow_task" | "LastWorkflowTask":
            return "reset", {**reset, "to": "LastWorkflowTask"}
        case "workflow_task_id" if 1 < requested.options.workflow_task_id <= MAX_EVENT:
            return "reset", {**reset, "eventId": requested.options.workflow_task_id - 1}
        case _:
            raise invalid(
                "reset_operation.options: must be first_workflow_task, last_workflow_task or workflow_task_id"
            )


_REQUESTS: dict[str, Callable[[Any], _VerbAndFields]] = {
    "termination_operation": _terminate,
    "cancellation_operation": lambda _: ("cancel", {}),
    "deletion_operation": lambda _: ("delete", {}),
    "signal_operation": _signal,
    "reset_operation": _reset,
    "update_workflow_options_operation": _update_options,
    "unpause_activities_operation": _unpause_activities,
    "reset_activities_operation": _reset_activities,
    "update_activity_options_operation": _update_activities,
    "cancel_activities_operation": lambda _: ("cancel", {}),
    "terminate_activities_operation": lambda _: ("terminate", {}),
    "delete_activities_operation": lambda _: ("delete", {}),
}
"""Converts the request of a batch to that of its Operations."""
_WITH_REASON = {"cancel", "delete", "reset", "terminate", "unpause"}


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
