"""Nexus operations: RPCs about standalone ones, and the description of the open operations of workflows.

The rules, messages, and limits of standalone operations are Temporal's (chasm/lib/nexusoperation).
"""

import functools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.enums.v1 import (
    NexusOperationCancellationState,
    NexusOperationExecutionStatus,
    NexusOperationIdConflictPolicy,
    NexusOperationIdReusePolicy,
    NexusOperationWaitStage,
    PendingNexusOperationState,
)
from temporalio.api.failure.v1 import Failure as ProtoFailure
from temporalio.api.nexus.v1 import NexusOperationExecutionInfo
from temporalio.api.workflow.v1 import PendingNexusOperationInfo
from temporalio.api.workflowservice.v1 import (
    DeleteNexusOperationExecutionRequest,
    DeleteNexusOperationExecutionResponse,
    DescribeNexusOperationExecutionRequest,
    DescribeNexusOperationExecutionResponse,
    PollNexusOperationExecutionRequest,
    PollNexusOperationExecutionResponse,
    RequestCancelNexusOperationExecutionRequest,
    RequestCancelNexusOperationExecutionResponse,
    StartNexusOperationExecutionRequest,
    StartNexusOperationExecutionResponse,
    TerminateNexusOperationExecutionRequest,
    TerminateNexusOperationExecutionResponse,
)

from perdure.api.phases import RunKind
from perdure.archive.records import record_of
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.starts import StartExtras
from perdure.engine.state import HandlerCalls, PendingOperation, RunState
from perdure.frontend.errors import invalid, not_found
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.nexus import links_from_json, links_to_json, lowered_headers
from perdure.frontend.messages.values import UnfitError, to_enum
from perdure.frontend.nexus.endpoints import Endpoint, EndpointRegistry
from perdure.frontend.runs.gateway import LargePayloads, RunGateway, View, check_length
from perdure.frontend.runs.starts import RunCreator, StartedRun, check_extras, durations, input_of, search_attributes
from perdure.frontend.standalone import StandaloneRuns, check_metadata, id_policies, not_started, token_of
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import VisibilityRecord
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import extras_of

_TIMEOUTS = {
    "schedule_to_close_timeout": "scheduleToCloseTimeout",
    "schedule_to_start_timeout": "scheduleToStartTimeout",
    "start_to_close_timeout": "startToCloseTimeout",
}
"""Fields of Temporal's messages, and the matching fields of a spec."""
_MAX_REASON = 1_000
_STARTED, _CLOSED = (
    NexusOperationWaitStage.NEXUS_OPERATION_WAIT_STAGE_STARTED,
    NexusOperationWaitStage.NEXUS_OPERATION_WAIT_STAGE_CLOSED,
)
_STAGES = {
    NexusOperationWaitStage.NEXUS_OPERATION_WAIT_STAGE_UNSPECIFIED: _CLOSED,
    _STARTED: _STARTED,
    _CLOSED: _CLOSED,
}

_BY_HANDLER = (ev.NexusOperationCompleted, ev.NexusOperationFailed, ev.NexusOperationCanceled)
_ENDED = (*_BY_HANDLER, ev.NexusOperationTimedOut)


class StandaloneNexusOperations:
    """Starts, describes, and stops standalone Nexus operations."""

    def __init__(
        self,
        runs: RunGateway,
        creator: RunCreator,
        payloads: LargePayloads,
        endpoints: EndpointRegistry,
        search_attributes: SearchAttributeRegistry,
    ) -> None:
        self._runs = runs
        self._payloads = payloads
        self._endpoints = endpoints
        self._search_attributes = search_attributes
        self._standalone = StandaloneRuns(runs, creator, RunKind.NEXUS_OPERATION, max_reason=_MAX_REASON)

    # Starting

    async def start_nexus_operation_execution(
        self, request: StartNexusOperationExecutionRequest, call: CallContext
    ) -> StartNexusOperationExecutionResponse:
        """Start a standalone Nexus operation, or find it open."""
        started_run = await self._begin(request, call.principal)
        return StartNexusOperationExecutionResponse(run_id=started_run.entry.uid, started=started_run.started)

    async def _begin(self, request: StartNexusOperationExecutionRequest, principal: str) -> StartedRun:
        _check(request)
        policies = id_policies(request, NexusOperationIdReusePolicy, NexusOperationIdConflictPolicy)
        types = await self._search_attributes.types(request.namespace)
        spec, extras = _requested(request, await self._endpoint(request), types)
        return await self._standalone.start(request, spec, extras, policies, principal)

    async def _endpoint(self, request: StartNexusOperationExecutionRequest) -> Endpoint:
        """Find the endpoint of a start. An endpoint that does not admit the namespace counts as missing."""
        found = (await self._endpoints.all()).get(request.endpoint)
        if found is None:
            raise not_found(f"could not find Nexus endpoint by name: {request.endpoint[:200]}")
        if not found.admits(request.namespace):
            raise not_found(
                f"could not find Nexus endpoint by name: {request.endpoint[:200]} does not admit namespace "
                f"{request.namespace}; an administrator can add it to the endpoint's allowed callers"
            )
        return found

    # Following

    async def poll_nexus_operation_execution(
        self, request: PollNexusOperationExecutionRequest, call: CallContext
    ) -> PollNexusOperationExecutionResponse:
        """Wait until an operation has started or closed; the response is empty if it does not in time."""
        stage = _STAGES.get(request.wait_stage)
        if stage is None:
            raise invalid(f"unsupported wait_stage: {request.wait_stage}")
        runs = self._runs
        entry = self._standalone.find(request)

        def reached() -> bool:
            state = runs.state(entry.uid)
            operation = operation_of(state) if state is not None else None
            has_started = operation is not None and operation.started_time is not None
            return runs.is_closed(entry.uid) or (has_started and stage == _STARTED)

        if not await runs.changes.wait_until(entry.uid, reached, call.within(LONGEST_POLL)):
            return PollNexusOperationExecutionResponse()
        view = await runs.view(entry)
        if view.state is None:
            raise not_started(entry)
        operation = operation_of(view.state)
        response = PollNexusOperationExecutionResponse(
            run_id=entry.uid,
            wait_stage=_CLOSED if view.state.closed else _STARTED,
            operation_token=operation.operation_token if operation is not None else "",
        )
        if view.state.closed:
            await self._add_outcome(response, view)
        return response

    async def describe_nexus_operation_execution(
        self, request: DescribeNexusOperationExecutionRequest, call: CallContext
    ) -> DescribeNexusOperationExecutionResponse:
        """Describe an operation; with a token, wait for a change, and return an empty response if there is none in time."""
        if request.long_poll_token and not request.run_id:
            raise invalid("run_id is required when long_poll_token is provided")
        found = await self._standalone.once_changed(request, call, functools.partial(self._described, request))
        return found or DescribeNexusOperationExecutionResponse()

    async def _described(
        self, request: DescribeNexusOperationExecutionRequest, view: View
    ) -> DescribeNexusOperationExecutionResponse:
        if view.state is None:
            raise not_started(view.entry)
        history = await self._runs.history(view)
        info = described(view.object, record_of(view.object, VisibilityRecord), view.state, history, now())
        response = DescribeNexusOperationExecutionResponse(run_id=view.entry.uid, info=info)
        info.ClearField("execution_duration")  # which always changes
        response.long_poll_token = token_of(view.entry.uid, info)
        payload = view.object["spec"].get("input")
        if request.include_input and payload is not None:
            response.input.CopyFrom(data.one_payload(payload))
        if request.include_outcome and view.state.closed:
            await self._add_outcome(response, view)
        return response

    async def _add_outcome(self, response: Any, view: View) -> None:
        history = await self._runs.history(view)
        outcome = await self._payloads.build(view.entry.namespace, lambda: outcome_of(history))
        field = response.result if isinstance(outcome, Payload) else response.failure
        field.CopyFrom(outcome)

    # Stopping

    async def request_cancel_nexus_operation_execution(
        self, request: RequestCancelNexusOperationExecutionRequest, call: CallContext
    ) -> RequestCancelNexusOperationExecutionResponse:
        """Request the handler to cancel an operation, once the operation has started."""
        await self._standalone.cancel(request, call)
        return RequestCancelNexusOperationExecutionResponse()

    async def terminate_nexus_operation_execution(
        self, request: TerminateNexusOperationExecutionRequest, call: CallContext
    ) -> TerminateNexusOperationExecutionResponse:
        """Stop waiting for an operation without notifying its handler."""
        await self._standalone.terminate(request, call)
        return TerminateNexusOperationExecutionResponse()

    async def delete_nexus_operation_execution(
        self, request: DeleteNexusOperationExecutionRequest, call: CallContext
    ) -> DeleteNexusOperationExecutionResponse:
        """Remove an operation with its history. This stops an open operation."""
        await self._standalone.delete(request)
        return DeleteNexusOperationExecutionResponse()


def _check(request: StartNexusOperationExecutionRequest) -> None:
    """Check the required fields of a start.

    Raises:
        RpcError: A required field is missing.
    """
    for field in ("operation_id", "endpoint", "service", "operation"):
        value = getattr(request, field)
        if not value:
            raise invalid(f"{field} is required")
        check_length(value, field)
    check_length(request.request_id, "request_id")
    if request.completion_callbacks:
        raise invalid("completion_callbacks are not supported for standalone Nexus operations")
    check_metadata(request)


def _requested(
    request: StartNexusOperationExecutionRequest, endpoint: Endpoint, types: dict[str, str]
) -> tuple[dict[str, Any], StartExtras]:
    """Build the spec of the WorkflowRun of a standalone Nexus operation, and its other parts.

    Raises:
        UnfitError: The request is not valid.
    """
    operation: dict[str, Any] = {
        "endpoint": request.endpoint,
        "service": request.service,
        "operation": request.operation,
    }
    operation |= durations(request, _TIMEOUTS)
    headers = lowered_headers(request.nexus_header, "nexus_header")
    if headers:
        operation["headers"] = headers
    spec: dict[str, Any] = {"workflowId": request.operation_id, "nexusOperation": operation}
    if request.HasField("input"):
        try:
            spec["input"] = input_of([request.input], by_name=False)
        except UnfitError:
            raise UnfitError("input exceeds size limit") from None
    spec |= search_attributes(request, types, request.namespace)
    extras = StartExtras(
        identity=request.identity,
        user_metadata=data.user_metadata_to_json(request.user_metadata),
        request_id=request.request_id,
        links=links_to_json(request.links),
        endpoint_id=endpoint.id,
        handler_namespace=endpoint.namespace,
    )
    check_extras(extras)
    return spec, extras


def operation_of(state: RunState) -> PendingOperation | None:
    """The operation of a run that is a standalone Nexus operation; None before it is scheduled."""
    return next(iter((*state.operations.values(), *state.left_operations.values())), None)


def outcome_of(history: Sequence[ev.AnyEvent]) -> Payload | ProtoFailure:
    """The outcome of a closed standalone Nexus operation.

    Args:
        history: Its events, or the last events of a long history.
    """
    closing = history[-1]
    if isinstance(closing, ev.WorkflowExecutionTerminated):
        made = ProtoFailure(message=closing.reason)
        made.terminated_failure_info.identity = closing.identity
        return made
    ended = _end(history)
    if isinstance(ended, ev.NexusOperationCompleted):
        if ended.result is None:
            return data.null_payload()
        return data.one_payload(ended.result)
    # The history says whose operation it was; here, that is known.
    failure = ended.failure.cause or ended.failure if ended is not None else ev.failure_of(closing)
    return failures.to_proto(failure or Failure(kind=FailureKind.SERVER, message="the outcome was not kept"))


def _end(
    history: Sequence[ev.AnyEvent],
) -> (
    ev.NexusOperationCompleted | ev.NexusOperationFailed | ev.NexusOperationCanceled | ev.NexusOperationTimedOut | None
):
    return next((event for event in reversed(history) if isinstance(event, _ENDED)), None)


def described(
    run: kube.Object, record: VisibilityRecord, state: RunState, history: Sequence[ev.AnyEvent], now: datetime
) -> NexusOperationExecutionInfo:
    """Describe a standalone Nexus operation.

    Args:
        run: The WorkflowRun of the operation.
        record: The record of the run in lists.
        state: The state of the run, which has begun.
        history: The events of the run.
        now: The time.
    """
    extras, operation = extras_of(run), operation_of(state)
    made = NexusOperationExecutionInfo(
        operation_id=record.workflow_id,
        run_id=record.run_id,
        endpoint=record.endpoint,
        service=record.service,
        operation=record.workflow_type,
        status=to_enum(NexusOperationExecutionStatus, record.status),
        identity=extras.identity,
        user_metadata=data.user_metadata(extras.user_metadata),
        search_attributes=data.attributes(record.search_attributes) or SearchAttributes(),
        state_transition_count=record.history_length,
        state_size_bytes=record.history_size,
    )
    made.schedule_time.FromDatetime(state.start_time)
    made.execution_duration.FromTimedelta((state.close_time or now) - state.start_time)
    values.set_time(made, "close_time", state.close_time)
    if operation is None:
        return made
    made.request_id, made.operation_token = operation.request_id, operation.operation_token
    made.nexus_header.update(operation.header)
    for name in _TIMEOUTS:
        if (length := getattr(operation, name)) is not None:
            getattr(made, name).FromTimedelta(length)
    if operation.schedule_to_close_timeout is not None:
        made.expiration_time.FromDatetime(operation.scheduled_time + operation.schedule_to_close_timeout)
    _describe_calls(made, operation, state, history, now)
    _describe_cancellation(made, operation, history, now)
    for event in history:
        if isinstance(event, ev.NexusOperationStarted | ev.NexusOperationCompleted):
            made.links.extend(links_from_json(event.links))
    return made


def _describe_calls(
    info: NexusOperationExecutionInfo,
    operation: PendingOperation,
    state: RunState,
    history: Sequence[ev.AnyEvent],
    now: datetime,
) -> None:
    """Describe the calls that start the operation, including a call that has not failed."""
    time, calls = state.close_time or now, operation.calls
    set_calls(info, calls, time)
    if operation.started_time is None and calls.due <= time:
        info.attempt = calls.attempt
    if not state.closed:
        info.state = state_of(operation, now)
        return
    info.ClearField("next_attempt_schedule_time")
    ended = _end(history)
    if ended is None or isinstance(ended, ev.NexusOperationCompleted) or operation.started_time is not None:
        return
    if not isinstance(ended, ev.NexusOperationTimedOut) or calls.due <= time:  # a call was due, or its answer has come
        info.last_attempt_complete_time.FromDatetime(ended.event_time)
        info.last_attempt_failure.CopyFrom(failures.to_proto(ended.failure.cause or ended.failure))


def _describe_cancellation(
    made: NexusOperationExecutionInfo, operation: PendingOperation, history: Sequence[ev.AnyEvent], now: datetime
) -> None:
    requested = next((event for event in history if isinstance(event, ev.WorkflowExecutionCancelRequested)), None)
    if requested is None:
        return
    info, cancellation = made.cancellation_info, operation.cancellation
    info.requested_time.FromDatetime(requested.event_time)
    info.reason = requested.cause
    set_cancellation(info, operation, now)
    calls = cancellation.calls if cancellation is not None else None
    if cancellation is not None and calls is not None and not cancellation.state and calls.due <= now:
        info.attempt = calls.attempt


# Open operations, of workflows and standalone ones


def pending_operation(operation: PendingOperation, now: datetime) -> PendingNexusOperationInfo:
    """Describe an operation that a workflow waits for."""
    made = PendingNexusOperationInfo(
        endpoint=operation.endpoint,
        service=operation.service,
        operation=operation.operation,
        operation_id=operation.operation_token,
        operation_token=operation.operation_token,
        scheduled_event_id=operation.scheduled_event_id,
        state=state_of(operation, now),
    )
    set_calls(made, operation.calls, now)
    values.set_time(made, "scheduled_time", operation.scheduled_time)
    for name in _TIMEOUTS:
        if (length := getattr(operation, name)) is not None:
            getattr(made, name).FromTimedelta(length)
    if operation.cancellation is not None:
        set_cancellation(made.cancellation_info, operation, now)
        values.set_time(made.cancellation_info, "requested_time", operation.cancellation.requested_time)
    return made


def state_of(operation: PendingOperation, now: datetime) -> "PendingNexusOperationState.ValueType":
    """The state of an open operation."""
    calling = "BackingOff" if operation.calls.due > now else "Scheduled"
    found: PendingNexusOperationState.ValueType = to_enum(
        PendingNexusOperationState, "Started" if operation.started_time else calling
    )
    return found


def set_cancellation(info: Any, operation: PendingOperation, now: datetime) -> None:
    """Describe the cancellation of an operation and the calls of its handler."""
    cancellation = operation.cancellation
    if cancellation is None:
        return
    state = cancellation.state
    if cancellation.calls is not None:
        state = state or ("BackingOff" if cancellation.calls.due > now else "Scheduled")
        set_calls(info, cancellation.calls, now)
    info.state = to_enum(NexusOperationCancellationState, state)


def set_calls(info: Any, calls: HandlerCalls, now: datetime) -> None:
    """Describe the calls of a handler."""
    info.attempt = calls.attempts
    values.set_time(info, "last_attempt_complete_time", calls.last_attempt_complete_time)
    if calls.last_failure is not None:
        info.last_attempt_failure.CopyFrom(failures.to_proto(calls.last_failure))
    if calls.due > now:
        values.set_time(info, "next_attempt_schedule_time", calls.due)
