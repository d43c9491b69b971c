"""RPCs that start workflows, or find open ones, and send them a signal or an update."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import msgspec
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowExecutionStatus, WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    ExecuteMultiOperationResponse,
    SignalWithStartWorkflowExecutionRequest,
    SignalWithStartWorkflowExecutionResponse,
    StartWorkflowExecutionRequest,
    StartWorkflowExecutionResponse,
    UpdateWorkflowExecutionRequest,
    UpdateWorkflowExecutionResponse,
)

from perdure.api import labels
from perdure.api.kinds.workflowlimit import LimitTaker, LimitTakers
from perdure.api.state_versions import CONTINUED_FAILURES
from perdure.controller.directory import Directory, Entry, Standing
from perdure.controller.limits import WorkflowLimits
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.state_versions import state_versions
from perdure.engine import inputs
from perdure.engine.failures import Failure
from perdure.engine.starts import Callback
from perdure.engine.state import WORKFLOWS_QUEUE
from perdure.frontend.deployments import rules
from perdure.frontend.deployments.rules import WorkerDeployment, override_refused
from perdure.frontend.deployments.versions import version_of
from perdure.frontend.errors import (
    CompletedError,
    RpcError,
    aborted,
    invalid,
    multi_operation_failed,
    precondition,
)
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL
from perdure.frontend.matching.queues import Kind
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.nexus import (
    callbacks_of,
    link_to_attachment,
    link_to_signal,
    link_to_start,
    request_links,
)
from perdure.frontend.messages.values import MAX_ID, UnfitError, from_enum
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.runs.starts import (
    BEGIN_SECONDS,
    FirstTasks,
    RunCreator,
    StartedRun,
    check_extras,
    cron_refused,
    durations,
    requested_run,
    run_name,
    workflow_run,
)
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.frontend.workflows.control import start_signal
from perdure.frontend.workflows.tasks import TaskDispatch
from perdure.frontend.workflows.updates import Updates, WorkflowUpdates
from perdure.kube import client as kube
from perdure.kube.clock import monotonic
from perdure.runtime.blobs import with_content
from perdure.runtime.operation_requests import StartSignal

_MAX_CARRIED = 64 * 1024
"""Size limit of a signal that is sent with the start, in bytes; the annotations of an object have room for 256 KiB."""
_CONFLICT = ("Fail", "UseExisting", "TerminateExisting")
_REUSE = ("AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate")
_TRIES = 10
"""Number of runs that update-with-start tries, if each run closes before it gets the update."""


class _MissedError(Exception):
    """The workflow closed before it got the update."""


class WorkflowStarts:
    """Creates WorkflowRuns for the requests of clients."""

    def __init__(
        self,
        *,
        directory: Directory,
        runs: RunGateway,
        served: ServedNamespaces,
        ready: Callable[[], Awaitable[None]],
        creator: RunCreator,
        first_tasks: FirstTasks,
        tasks: TaskDispatch,
        updates: Updates,
        workflow_updates: WorkflowUpdates,
        deployments: NamespaceRegistry[WorkerDeployment],
        search_attributes: SearchAttributeRegistry,
        limits: WorkflowLimits,
    ) -> None:
        self._directory = directory
        self._runs = runs
        self._served = served
        self._ready = ready
        self._creator = creator
        self._first_tasks = first_tasks
        self._tasks = tasks
        self._updates = updates
        self._workflow_updates = workflow_updates
        self._deployments = deployments
        self._search_attributes = search_attributes
        self._limits = limits

    # Start

    async def start_workflow_execution(
        self, request: StartWorkflowExecutionRequest, call: CallContext
    ) -> StartWorkflowExecutionResponse:
        """Start a workflow."""
        started_run, attached = await self._begin_or_attach(request, call)
        eager = None
        if started_run.started and self._first_tasks.is_reserved(started_run.entry.namespace, started_run.entry.name):
            try:
                eager = await self._tasks.take_now(started_run.entry, request.identity)
            finally:
                self._first_tasks.release(started_run.entry.namespace, started_run.entry.name)
        return StartWorkflowExecutionResponse(
            eager_workflow_task=eager,
            run_id=started_run.entry.uid,
            first_execution_run_id=started_run.entry.first_uid,
            started=started_run.started,
            status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
            link=link_to_attachment(started_run.entry, request.request_id)
            if attached
            else link_to_start(started_run.entry),
        )

    async def _begin_or_attach(
        self, request: StartWorkflowExecutionRequest, call: CallContext
    ) -> tuple[StartedRun, bool]:
        """Start a workflow; also return whether the request was attached to an open run instead."""
        until = monotonic() + call.within(LONGEST_CLIENT_POLL)
        while True:
            started_run = await self.begin(request, "Fail", principal=call.principal)
            options = request.on_conflict_options
            if started_run.started or not (options.attach_request_id or options.attach_completion_callbacks):
                return started_run, False
            attached = inputs.CallbacksAttached(
                request_id=request.request_id or uuid.uuid4().hex,
                callbacks=self._callbacks(request) if options.attach_completion_callbacks else (),
                identity=request.identity,
                principal=call.principal,
                links=request_links(request) if options.attach_links else None,
            )
            try:
                await self._runs.demand(started_run.entry, attached)
            except CompletedError:
                if monotonic() > until:
                    raise
                continue
            return started_run, True

    def _callbacks(self, request: Any) -> tuple[Callback, ...]:
        """The completion callbacks of a start.

        Raises:
            UnfitError: A callback is not valid.
        """
        if not getattr(request, "completion_callbacks", ()):
            return ()
        if request.task_queue.name == WORKFLOWS_QUEUE:
            raise UnfitError("completion_callbacks are not supported for Workflows, which are started by name")
        return callbacks_of(request, self._served)

    # Signal with start

    async def signal_with_start_workflow_execution(
        self, request: SignalWithStartWorkflowExecutionRequest, call: CallContext
    ) -> SignalWithStartWorkflowExecutionResponse:
        """Signal a workflow. Start it first if it is not open, or if it closes before it gets the signal."""
        if not request.signal_name:
            raise invalid("SignalName is not set on request.")
        if request.workflow_id_conflict_policy == WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_FAIL:
            raise invalid(
                "Invalid WorkflowIDConflictPolicy: WORKFLOW_ID_CONFLICT_POLICY_FAIL is not supported for this operation."
            )
        signal = start_signal(request, request.signal_input, call.principal)

        async def demand(entry: Entry) -> Entry:
            await self._runs.demand(entry, signal.request)  # changes nothing if the run started with the signal
            return entry

        meant, seconds = WorkflowExecution(workflow_id=request.workflow_id), call.within(LONGEST_CLIENT_POLL)
        until = monotonic() + seconds
        while True:
            started_run = await self.begin(request, "UseExisting", signal, principal=call.principal)
            try:
                entry = await self._runs.follow_chain(started_run.entry, meant, seconds, demand)
            except CompletedError:
                if started_run.started or monotonic() > until:
                    raise
                continue
            return SignalWithStartWorkflowExecutionResponse(
                run_id=entry.uid,
                started=started_run.started,
                first_execution_run_id=entry.first_uid,
                signal_link=link_to_signal(entry, request.request_id),
            )

    # Update with start

    async def execute_multi_operation(
        self, request: ExecuteMultiOperationRequest, call: CallContext
    ) -> ExecuteMultiOperationResponse:
        """Start a workflow or find an open one, and update it."""
        operations = request.operations
        if [o.WhichOneof("operation") for o in operations] != ["start_workflow", "update_workflow"]:
            raise invalid("Operations have to be exactly [Start, Update].")
        start, update = operations[0].start_workflow, operations[1].update_workflow
        if mistake := start_refused(start):
            raise multi_operation_failed(0, [invalid(mistake), None])
        try:
            self._workflow_updates.check(update)
            if mistake := update_refused(start, update):
                raise invalid(mistake)
        except RpcError as error:
            raise multi_operation_failed(1, [None, error]) from error
        started_run, updated = await self._start_until_updated(start, update, call)
        response = ExecuteMultiOperationResponse()
        response.responses.add().start_workflow.CopyFrom(
            StartWorkflowExecutionResponse(
                run_id=started_run.entry.uid,
                started=started_run.started,
                first_execution_run_id=started_run.entry.first_uid if started_run.started else "",
                status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
                link=link_to_start(started_run.entry) if started_run.started else None,
            )
        )
        response.responses.add().update_workflow.CopyFrom(updated)
        return response

    async def _start_until_updated(
        self, start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> tuple[StartedRun, UpdateWorkflowExecutionResponse]:
        """Start or find the workflow and update it. If the run closes first, repeat this with the next run.

        Raises:
            RpcError: The workflow cannot be started or updated, or `_TRIES` runs have closed in between.
        """
        for left in reversed(range(_TRIES)):
            try:
                return await self._start_and_update(start, update, call)
            except _MissedError as error:
                if not left:
                    raise multi_operation_failed(1, [None, aborted(str(error))]) from error
                start.request_id = (
                    uuid.uuid4().hex
                )  # a different run than the one that may have been started and closed
        raise AssertionError  # the last try returns or raises

    async def _start_and_update(
        self, start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> tuple[StartedRun, UpdateWorkflowExecutionResponse]:
        started_run = await self._attached(start.namespace, start.workflow_id, update.request.meta.update_id)
        try:
            started_run = started_run or await self.begin(start, "Fail", principal=call.principal, reserved=True)
        except RpcError as error:
            raise multi_operation_failed(0, [error, None]) from error
        try:
            return started_run, await self._workflow_updates.update(started_run.entry, update, call)
        except RpcError as error:
            # It has closed, or was deleted because its ID was in use.
            if error.code is grpc.StatusCode.NOT_FOUND:
                raise _MissedError(error.message) from error
            raise multi_operation_failed(1, [None, error]) from error
        finally:
            self._first_tasks.release(started_run.entry.namespace, started_run.entry.name)

    async def _attached(self, namespace: str, workflow_id: str, update_id: str) -> StartedRun | None:
        """Find the workflow that already has the update. Then nothing is started, regardless of the policies.

        A closed workflow is only returned if the update has completed.
        """
        await self._ready()
        entry = self._directory.newest(namespace, workflow_id)
        if entry is None or not update_id:
            return None
        try:
            view = await self._runs.view(entry)
        except RpcError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:  # it was deleted
                return None
            raise
        if view.state is None or view.state.code is None:
            return None
        record = view.state.code.updates.get(update_id)
        ended = record is not None and bool(record.completed_event_id)
        if view.state.closed:
            return StartedRun(entry, started=False) if ended else None
        known = record is not None or self._updates.get(entry.uid, update_id) is not None
        return StartedRun(entry, started=False) if known else None

    # Any of them

    async def begin(
        self,
        request: Any,
        conflict: str,
        signal: StartSignal | None = None,
        *,
        principal: str = "",
        reserved: bool = False,
    ) -> StartedRun:
        """Start a workflow, or find the open one, according to the policies.

        Args:
            request: The request to start, or to signal with start.
            conflict: The default policy for an open run with the ID.
            signal: The signal to send with the start.
            principal: The user that the API server authenticated.
            reserved: Whether to reserve the first workflow task of a new run until `FirstTasks.release` is called.

        Raises:
            RpcError: The workflow cannot be started.
        """
        reuse, conflict = id_policies(request, conflict)
        await self._ready()
        await self._runs.catch_up(request.namespace)
        name = run_name(request.workflow_id, request.request_id)
        mine = self._directory.named(request.namespace, name)
        if mine is not None and mine.workflow_id == request.workflow_id and mine.standing is not Standing.WAITING:
            return StartedRun(mine, started=True)
        if self._directory.newest(request.namespace, request.workflow_id) is not None:
            meant = WorkflowExecution(workflow_id=request.workflow_id)
            with suppress(RpcError):  # the new run waits for the next run of the chain
                await self._runs.reach(request.namespace, meant, BEGIN_SECONDS)
        known = self._directory.open_run(request.namespace, request.workflow_id)
        if known is not None and known.name != name:
            if conflict == "UseExisting":
                return StartedRun(known, started=False)
            if conflict == "Fail":
                raise await self._creator.id_in_use(known, "Workflow execution is already running.")
        if known is None:
            await self._check_reuse(request, reuse, name)
        eager = await self._may_begin_eagerly(request)
        body = await self._body(request, name, (reuse, conflict), principal, eager=eager)
        carried = msgspec.json.encode(signal).decode() if signal is not None else ""
        if carried and len(carried) <= _MAX_CARRIED:
            body["metadata"]["annotations"][labels.START_SIGNAL_ANNOTATION] = carried
            large = [*with_content(body["spec"]), *with_content(signal)]
        else:
            large = [*with_content(body["spec"])]
        return await self._creator.create(body, reserved=eager or reserved, large=large)

    async def _may_begin_eagerly(self, request: Any) -> bool:
        """Whether the client gets the first workflow task (eager start).

        It must be a worker of the version that gets the task. If no version is current, any worker may have it, as on Temporal's
        server: a versioned client would otherwise wait for an unversioned worker.
        """
        if not isinstance(request, StartWorkflowExecutionRequest) or not request.request_eager_execution:
            return False
        if request.cron_schedule or request.HasField("workflow_start_delay"):
            return False  # the first task is not due
        taker = LimitTaker(kind=LimitTakers.RUNS, type=request.workflow_type.name, task_queue=request.task_queue.name)
        if self._limits.selecting(request.namespace, taker):
            return False  # it may have to wait
        known = await self._deployments.load(request.namespace)
        target = rules.target(known, Kind.WORKFLOW, request.task_queue.name, request.workflow_id)
        version = version_of(request.eager_worker_deployment_options)
        return target in (None, version) and not request.HasField("versioning_override")

    async def _check_reuse(self, request: Any, reuse: str, name: str) -> None:
        newest = self._directory.newest(request.namespace, request.workflow_id)
        if newest is None or newest.name == name or reuse == "AllowDuplicate":
            return
        if reuse == "RejectDuplicate" or newest.phase in {"Completed", "ContinuedAsNew"}:
            raise await self._creator.id_in_use(newest, "Workflow execution already finished.")

    async def _body(
        self, request: Any, name: str, policies: tuple[str, str], principal: str, *, eager: bool
    ) -> kube.Object:
        try:
            types = await self._search_attributes.types(request.namespace)
            spec, extras = requested_run(request, types, request.namespace, allow_blob=True)
            if extras.versioning_override is not None:
                known = await self._deployments.load(request.namespace)
                if refused := override_refused(known, extras.versioning_override, request.task_queue.name):
                    raise precondition(refused)
            spec |= durations(request, {"workflow_start_delay": "startDelay"})
            extras = msgspec.structs.replace(
                extras,
                identity=values.name(request.identity, "Identity", required=False),
                last_completion_result=data.to_json(request.last_completion_result.payloads)
                if isinstance(request, StartWorkflowExecutionRequest)
                else None,
                request_id=values.name(request.request_id, "RequestId", required=False),
                continued_failure=_continued_failure(request),
                cron_schedule=request.cron_schedule,
                eager_execution_accepted=eager,
            )
            extras = msgspec.structs.replace(
                extras, completion_callbacks=self._callbacks(request), links=request_links(request)
            )
            check_extras(extras)
        except UnfitError as error:
            raise invalid(str(error)) from error
        return workflow_run(request.namespace, name, spec, extras, policies=policies, principal=principal)


def id_policies(request: Any, conflict: str) -> tuple[str, str]:
    """The policies for closed and for open runs with the ID, read as by Temporal's server (workflow_id_dedup.go)."""
    for value, what in (
        (request.workflow_id, "WorkflowId"),
        (request.workflow_type.name, "WorkflowType"),
        (request.task_queue.name, "TaskQueue"),
    ):
        if not value:
            raise invalid(f"Required field {what} is not set on request.")
        if len(value) > MAX_ID:
            raise invalid(f"{what} length exceeds limit.")
    if request.cron_schedule and request.HasField("workflow_start_delay"):
        raise invalid("CronSchedule and WorkflowStartDelay may not be used together.")
    if mistake := cron_refused(request.cron_schedule, by_name=request.task_queue.name == WORKFLOWS_QUEUE):
        raise invalid(mistake)
    requested = from_enum(WorkflowIdConflictPolicy, request.workflow_id_conflict_policy)
    reuse = from_enum(WorkflowIdReusePolicy, request.workflow_id_reuse_policy)
    if reuse == "TerminateIfRunning":
        if requested in _CONFLICT:
            raise invalid(
                "Invalid WorkflowIDReusePolicy: WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING cannot be used together "
                "with a WorkflowIDConflictPolicy"
            )
        return "AllowDuplicate", "TerminateExisting"
    if reuse == "RejectDuplicate" and requested == "TerminateExisting":
        raise invalid(
            "Invalid WorkflowIDReusePolicy: WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE cannot be used together with "
            "WorkflowIdConflictPolicy WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING"
        )
    return reuse if reuse in _REUSE else "AllowDuplicate", requested if requested in _CONFLICT else conflict


def start_refused(start: StartWorkflowExecutionRequest) -> str:
    """Why a valid start cannot be part of update-with-start; empty if it can."""
    if start.cron_schedule:
        return "CronSchedule is not allowed."
    if start.request_eager_execution:
        return "RequestEagerExecution is not supported."
    delay = start.workflow_start_delay
    if (delay.seconds, delay.nanos) > (0, 0):
        return "WorkflowStartDelay is not supported."
    return ""


def update_refused(start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest) -> str:
    """Why a valid update cannot be part of update-with-start; empty if it can."""
    if update.first_execution_run_id:
        return "FirstExecutionRunId is not allowed."
    if update.workflow_execution.run_id:
        return "RunId is not allowed."
    if update.workflow_execution.workflow_id != start.workflow_id:
        return "WorkflowId is not consistent with previous operation(s)."
    return ""


def _continued_failure(request: Any) -> Failure | None:
    """The failure of an earlier run that a start passes on.

    Raises:
        RpcError: FAILED_PRECONDITION if an operator of the fleet could not read it.
    """
    if not isinstance(request, StartWorkflowExecutionRequest) or not request.HasField("continued_failure"):
        return None
    if (writes := state_versions().writes) < CONTINUED_FAILURES:
        raise precondition(
            f"`continued_failure` requires state version {CONTINUED_FAILURES}, and during the upgrade, operators write {writes}: "
            "wait for its end, or finish it with `perdure fleet --finish-upgrade`"
        )
    return failures.to_json(request.continued_failure)
