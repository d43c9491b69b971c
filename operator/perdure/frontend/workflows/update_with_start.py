"""The RPC that starts a workflow or finds an open one, and updates it."""

import uuid

import grpc
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    ExecuteMultiOperationResponse,
    StartWorkflowExecutionRequest,
    StartWorkflowExecutionResponse,
    UpdateWorkflowExecutionRequest,
    UpdateWorkflowExecutionResponse,
)

from perdure.frontend.errors import RpcError, aborted, invalid, multi_operation_failed
from perdure.frontend.messages.nexus import link_to_start
from perdure.frontend.runs.creation import FirstTasks, StartedRun
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.workflows.starts import WorkflowStarts
from perdure.frontend.workflows.updates import Updates, WorkflowUpdates

_TRIES = 10
"""Number of runs that update-with-start tries, if each run closes before it gets the update."""


class _MissedError(Exception):
    """The workflow closed before it got the update."""


class UpdateWithStart:
    """Starts workflows or finds open ones, and updates them."""

    def __init__(
        self,
        runs: RunGateway,
        updates: Updates,
        first_tasks: FirstTasks,
        starts: WorkflowStarts,
        workflow_updates: WorkflowUpdates,
    ) -> None:
        self._runs = runs
        self._updates = updates
        self._first_tasks = first_tasks
        self._starts = starts
        self._workflow_updates = workflow_updates

    async def execute_multi_operation(
        self, request: ExecuteMultiOperationRequest, call: CallContext
    ) -> ExecuteMultiOperationResponse:
        """Start a workflow or find an open one, and update it."""
        operations = request.operations
        if [o.WhichOneof("operation") for o in operations] != ["start_workflow", "update_workflow"]:
            raise invalid("Operations have to be exactly [Start, Update].")
        start, update = operations[0].start_workflow, operations[1].update_workflow
        if mistake := _start_refused(start):
            raise multi_operation_failed(0, [invalid(mistake), None])
        try:
            self._workflow_updates.check(update)
            if mistake := _update_refused(start, update):
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
            started_run = started_run or await self._starts.begin(
                start, "Fail", principal=call.principal, reserved=True
            )
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
        await self._runs.ready()
        entry = self._runs.newest(namespace, workflow_id)
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


def _start_refused(start: StartWorkflowExecutionRequest) -> str:
    """Why a valid start cannot be part of update-with-start; empty if it can."""
    if start.cron_schedule:
        return "CronSchedule is not allowed."
    if start.request_eager_execution:
        return "RequestEagerExecution is not supported."
    delay = start.workflow_start_delay
    if (delay.seconds, delay.nanos) > (0, 0):
        return "WorkflowStartDelay is not supported."
    return ""


def _update_refused(start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest) -> str:
    """Why a valid update cannot be part of update-with-start; empty if it can."""
    if update.first_execution_run_id:
        return "FirstExecutionRunId is not allowed."
    if update.workflow_execution.run_id:
        return "RunId is not allowed."
    if update.workflow_execution.workflow_id != start.workflow_id:
        return "WorkflowId is not consistent with previous operation(s)."
    return ""
