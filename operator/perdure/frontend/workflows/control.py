"""RPCs about single workflows: signal, query, cancel, terminate, pause, delete, and describe them."""

import asyncio
import uuid
from contextlib import suppress
from typing import Any

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    QueryRejectCondition,
    WorkflowExecutionStatus,
)
from temporalio.api.query.v1 import QueryRejected
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DeleteWorkflowExecutionResponse,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    PauseWorkflowExecutionRequest,
    PauseWorkflowExecutionResponse,
    QueryWorkflowRequest,
    QueryWorkflowResponse,
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
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.errors import (
    CompletedError,
    busy,
    invalid,
    not_ready,
    precondition,
    query_failed,
    too_late,
    unavailable,
)
from perdure.frontend.messages import links, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.enums import from_enum, to_enum
from perdure.frontend.messages.histories import request_of
from perdure.frontend.messages.paging import MAX_BYTES
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway, View
from perdure.frontend.runs.large_payloads import LargePayloads
from perdure.frontend.transport.call import LONGEST_WAIT, CallContext
from perdure.frontend.visibility.index import Visibility, record_of
from perdure.frontend.workflows.descriptions import (
    describe_activity,
    describe_builds,
    describe_operations,
    describe_search_attributes,
    describe_start,
    describe_state,
    describe_versioning,
)
from perdure.frontend.workflows.queries import MAX_WAITING, Queries, QueryFailedError
from perdure.frontend.workflows.query_dispatch import QueryDispatch
from perdure.frontend.workflows.querying import StepQueries
from perdure.kube import client as kube
from perdure.runtime.chains import extras_of

QUERY_SECONDS = 30.0
"""The longest wait of a query for a worker, as on Temporal's server (client/history/client.go: DefaultTimeout)."""
_TERMINATED = "terminated by user via frontend"
"""The reason of a termination if the client does not set one, as on Temporal's server."""
_MAX_FAILED_ATTEMPTS = 3
"""Consecutive failures of the workflow's code after which queries fail immediately, because no worker could answer."""


class Workflows:
    """Handles requests to single workflows."""

    def __init__(
        self,
        *,
        runs: RunGateway,
        deployments: NamespaceRegistry[WorkerDeployment],
        payloads: LargePayloads,
        queries: Queries,
        query_dispatch: QueryDispatch,
        steps: StepQueries,
        visibility: Visibility,
    ) -> None:
        self._runs = runs
        self._deployments = deployments
        self._payloads = payloads
        self._queries = queries
        self._query_dispatch = query_dispatch
        self._steps = steps
        self._visibility = visibility

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
            input=data.to_json(request.input.payloads, apart=True),
            identity=request.identity,
            principal=call.principal,
            header=data.header_to_json(request),
            client_request_id=request.request_id,
            links=links.to_json(request.links),
        )
        answer = await self._demand(request, call, signal)
        return SignalWorkflowExecutionResponse(link=links.to_signal(answer, request.request_id))

    async def request_cancel_workflow_execution(
        self, request: RequestCancelWorkflowExecutionRequest, call: CallContext
    ) -> RequestCancelWorkflowExecutionResponse:
        """Request the cancellation of a workflow. This does nothing for a closed workflow."""
        cancel = inputs.CancelRequested(
            request_id=request.request_id or uuid.uuid4().hex,
            reason=request.reason,
            identity=request.identity,
            principal=call.principal,
            links=links.to_json(request.links),
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
            links=links.to_json(request.links),
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
        await runs.along(entry, execution, seconds, lambda open_: runs.demand(open_, wanted))

    async def _demand(self, request: Any, call: CallContext, wanted: inputs.Request) -> Entry:
        """Pass a request to the open run of a workflow, and return the run.

        A request with the first run of a chain goes to the chain's open run, regardless of its run ID (Temporal:
        service/history/api/terminateworkflow, requestcancelworkflow).
        """
        runs, execution, seconds = self._runs, request.workflow_execution, call.within(LONGEST_WAIT)
        first = getattr(request, "first_execution_run_id", "")
        if first:
            execution = WorkflowExecution(workflow_id=execution.workflow_id)

        async def demand(entry: Entry) -> Entry:
            await runs.demand(entry, wanted)
            return entry

        entry = await runs.reach(request.namespace, execution, seconds, first_run_id=first)
        return await runs.along(entry, execution, seconds, demand)

    async def delete_workflow_execution(
        self, request: DeleteWorkflowExecutionRequest, call: CallContext
    ) -> DeleteWorkflowExecutionResponse:
        """Remove a run with its history. This stops an open run."""
        del call
        entry = await self._runs.find(request.namespace, request.workflow_execution)
        url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
        await self._runs.client.delete(url, uid=entry.uid)
        return DeleteWorkflowExecutionResponse()

    # Queries

    async def query_workflow(self, request: QueryWorkflowRequest, call: CallContext) -> QueryWorkflowResponse:
        """Query a workflow, open or closed."""
        if not request.query.query_type:
            raise invalid("WorkflowQuery is not set on request.")
        seconds = call.within(LONGEST_WAIT)
        entry = await self._runs.reach(request.namespace, request.execution, seconds)
        if not await self._runs.has_started(entry.uid, seconds):
            raise unavailable("the workflow has not started yet")
        view = await self._runs.view(entry)
        rejected = _rejected(request, view)
        if rejected is not None:
            return QueryWorkflowResponse(query_rejected=rejected)
        if view.state is None:
            raise unavailable("the workflow has not started yet")
        code = view.state.code
        if code is None:
            return await self._steps.answer(request, view, view.state)
        if view.state.closed and not code.previous_started_event_id:
            raise not_ready("Workflow execution closed before WorkflowTaskStarted event")
        if code.task is not None and code.task.attempt >= _MAX_FAILED_ATTEMPTS:
            raise precondition("Cannot query workflow due to Workflow Task in failed state.")
        await self._deployments.load(entry.namespace)  # now, so that nothing intervenes between count and addition
        if len(self._queries.attached(entry.uid)) >= MAX_WAITING:
            raise busy(
                "consistent query buffer is full, this may be caused by too many queries and workflow not responding"
            )
        return QueryWorkflowResponse(query_result=await self._ask(entry, request, call))

    async def _ask(self, entry: Entry, request: QueryWorkflowRequest, call: CallContext) -> Payloads:
        query = self._queries.add(entry.uid, request.query)
        try:
            self._query_dispatch.dispatch(entry, query)
            async with asyncio.timeout(call.within(QUERY_SECONDS)):
                return await query.answer
        except QueryFailedError as error:
            raise query_failed(error.failure) from error
        except TimeoutError:
            record = self._visibility.get(entry.namespace, entry.uid)
            queue = record.task_queue if record is not None else ""
            raise too_late(f"query timed out: no worker of task queue {queue!r} has answered") from None
        finally:
            query.answer.cancel()
            self._queries.drop(entry.uid, query.query_id)

    # Describing

    async def describe_workflow_execution(
        self, request: DescribeWorkflowExecutionRequest, call: CallContext
    ) -> DescribeWorkflowExecutionResponse:
        """Describe a workflow: everything except its history."""
        entry = await self._runs.reach(request.namespace, request.execution, call.within(LONGEST_WAIT))
        view = await self._runs.view(entry)
        response = DescribeWorkflowExecutionResponse(
            workflow_execution_info=record_of(view.object).info(registered=False)
        )
        if view.state is None:
            return response
        task = view.state.code.task if view.state.code is not None else None
        if task is not None and task.scheduled_event_id and task.started_time is not None:
            response.workflow_execution_info.history_length += 1  # its unwritten WorkflowTaskStarted
        history = await self._runs.history(view)
        describe_start(response, history[0], extras_of(view.object))
        describe_builds(response, history, self._payloads.historian(entry.namespace), entry.uid)
        describe_state(response, view.state)
        if view.state.code is not None:
            describe_search_attributes(response, history, view.state.code.versioning)
            describe_versioning(response, view.state.code.versioning)
        pending = list(view.state.left_activities.values() or view.state.open_activities())
        activities = await self._payloads.whole(
            entry.namespace, lambda: list(map(describe_activity, pending)), MAX_BYTES
        )
        response.pending_activities.extend(activities)
        describe_operations(response, view.state)
        request_id = extras_of(view.object).request_id
        if not request_id and isinstance(history[0], ev.WorkflowExecutionStarted) and history[0].parent is not None:
            request_id = f"{history[0].parent.run_id}:{history[0].parent.initiated_event_id}:0"
        info = response.workflow_extended_info.request_id_infos[request_id or request_of(entry.uid)]
        info.event_type, info.event_id = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, 1
        for event in history:
            if found := _request_of(event):
                info = response.workflow_extended_info.request_id_infos[found[0]]
                info.event_type, info.event_id = found[1], event.event_id
        if isinstance(history[-1], ev.WorkflowExecutionTerminated) and history[-1].reset_run:
            reset = self._runs.run_id_of(entry.namespace, history[-1].reset_run)
            response.workflow_extended_info.reset_run_id = reset
        return response


def _rejected(request: QueryWorkflowRequest, view: View) -> QueryRejected | None:
    status = record_of(view.object).status
    condition = from_enum(QueryRejectCondition, request.query_reject_condition)
    unwanted = (condition == "NotOpen" and status != "Running") or (
        condition == "NotCompletedCleanly" and status not in {"Running", "Completed"}
    )
    return QueryRejected(status=to_enum(WorkflowExecutionStatus, status)) if unwanted else None


def _request_of(event: ev.AnyEvent) -> "tuple[str, EventType.ValueType] | None":
    """The ID of the request that led to an event, and the type of the event; None if none is recorded."""
    match event:
        case ev.WorkflowExecutionOptionsUpdated() if event.attached_request_id:
            return event.attached_request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED
        case ev.WorkflowExecutionUpdateAdmitted() if event.request_id:
            return event.request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED
        case ev.WorkflowExecutionUpdateAccepted() if event.request_id:
            return event.request_id, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
        case _:
            return None
