"""RPCs that signal, cancel, terminate, pause, unpause, and delete workflows."""

import uuid
from contextlib import suppress
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DeleteWorkflowExecutionResponse,
    PauseWorkflowExecutionRequest,
    PauseWorkflowExecutionResponse,
    RequestCancelWorkflowExecutionRequest,
    RequestCancelWorkflowExecutionResponse,
    SignalWorkflowExecutionRequest,
    SignalWorkflowExecutionResponse,
    TerminateWorkflowExecutionRequest,
    TerminateWorkflowExecutionResponse,
    UnpauseWorkflowExecutionRequest,
    UnpauseWorkflowExecutionResponse,
)

from perdure.controller.directory import Entry
from perdure.engine import inputs
from perdure.frontend.errors import (
    CompletedError,
    invalid,
    precondition,
)
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages import values
from perdure.frontend.messages.nexus import link_to_signal, links_to_json
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import LONGEST_WAIT, CallContext
from perdure.kube import client as kube

_TERMINATED = "terminated by user via frontend"
"""The reason of a termination if the client does not set one, as on Temporal's server."""


class WorkflowControl:
    """Handles requests to single workflows."""

    def __init__(self, runs: RunGateway) -> None:
        self._runs = runs

    async def signal_workflow_execution(
        self, request: SignalWorkflowExecutionRequest, call: CallContext
    ) -> SignalWorkflowExecutionResponse:
        """Signal a workflow."""
        if not request.signal_name:
            raise invalid("SignalName is not set on request.")
        if len(request.signal_name) > values.MAX_ID:
            raise invalid("SignalName length exceeds limit.")
        signal = inputs.SignalRequested(
            request_id=request.request_id or uuid.uuid4().hex,
            signal_name=request.signal_name,
            input=data.to_json(request.input.payloads, allow_blob=True),
            identity=request.identity,
            principal=call.principal,
            header=data.header_to_json(request),
            client_request_id=request.request_id,
            links=links_to_json(request.links),
        )
        answer = await self._demand(request, call, signal)
        return SignalWorkflowExecutionResponse(link=link_to_signal(answer, request.request_id))

    async def request_cancel_workflow_execution(
        self, request: RequestCancelWorkflowExecutionRequest, call: CallContext
    ) -> RequestCancelWorkflowExecutionResponse:
        """Request the cancellation of a workflow. This does nothing for a closed workflow."""
        cancel = inputs.CancelRequested(
            request_id=request.request_id or uuid.uuid4().hex,
            reason=request.reason,
            identity=request.identity,
            principal=call.principal,
            links=links_to_json(request.links),
        )
        with suppress(CompletedError):
            await self._demand(request, call, cancel)
        return RequestCancelWorkflowExecutionResponse()

    async def terminate_workflow_execution(
        self, request: TerminateWorkflowExecutionRequest, call: CallContext
    ) -> TerminateWorkflowExecutionResponse:
        """Stop a workflow."""
        stop = inputs.TerminateRequested(
            request_id=uuid.uuid4().hex,
            reason=request.reason or _TERMINATED,
            details=data.to_json(request.details.payloads),
            identity=request.identity,
            principal=call.principal,
            links=links_to_json(request.links),
        )
        await self._demand(request, call, stop)
        return TerminateWorkflowExecutionResponse()

    async def pause_workflow_execution(
        self, request: PauseWorkflowExecutionRequest, call: CallContext
    ) -> PauseWorkflowExecutionResponse:
        """Stop new workflow tasks and new attempts of activities."""
        await self._switch(request, call, inputs.PauseRequested)
        return PauseWorkflowExecutionResponse()

    async def unpause_workflow_execution(
        self, request: UnpauseWorkflowExecutionRequest, call: CallContext
    ) -> UnpauseWorkflowExecutionResponse:
        """Let a paused workflow continue."""
        await self._switch(request, call, inputs.UnpauseRequested)
        return UnpauseWorkflowExecutionResponse()

    async def _switch(
        self,
        request: PauseWorkflowExecutionRequest | UnpauseWorkflowExecutionRequest,
        call: CallContext,
        kind: type[inputs.PauseRequested | inputs.UnpauseRequested],
    ) -> None:
        """Pause or unpause a workflow.

        A request that would change nothing is rejected, unless it is a repeated request (Temporal: service/history/api).
        """
        wanted = kind(
            request_id=request.request_id or uuid.uuid4().hex,
            reason=request.reason,
            identity=request.identity or call.principal,
            principal=call.principal,
        )
        runs, seconds = self._runs, call.within(LONGEST_WAIT)
        execution = WorkflowExecution(workflow_id=request.workflow_id, run_id=request.run_id)
        entry = await runs.reach(request.namespace, execution, seconds)
        state = (await runs.view(entry)).state
        pauses = kind is inputs.PauseRequested
        if state and not state.closed and wanted.request_id not in state.requests and bool(state.paused) is pauses:
            raise precondition("workflow is already paused." if pauses else "workflow is not paused.")
        await runs.follow_chain(entry, execution, seconds, lambda open_: runs.demand(open_, wanted))

    async def _demand(self, request: Any, call: CallContext, requested: inputs.Request) -> Entry:
        """Pass a request to the open run of a workflow, and return the run.

        A request with the first run of a chain goes to the chain's open run, regardless of its run ID (Temporal:
        service/history/api/terminateworkflow, requestcancelworkflow).
        """
        runs, execution, seconds = self._runs, request.workflow_execution, call.within(LONGEST_WAIT)
        first = getattr(request, "first_execution_run_id", "")
        if first:
            execution = WorkflowExecution(workflow_id=execution.workflow_id)

        async def demand(entry: Entry) -> Entry:
            await runs.demand(entry, requested)
            return entry

        entry = await runs.reach(request.namespace, execution, seconds, first_run_id=first)
        return await runs.follow_chain(entry, execution, seconds, demand)

    async def delete_workflow_execution(
        self, request: DeleteWorkflowExecutionRequest, call: CallContext
    ) -> DeleteWorkflowExecutionResponse:
        """Remove a run with its history. This stops an open run."""
        del call
        entry = await self._runs.find(request.namespace, request.workflow_execution)
        url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
        await self._runs.client.delete(url, uid=entry.uid)
        return DeleteWorkflowExecutionResponse()
