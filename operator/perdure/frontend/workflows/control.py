"""RPCs that change workflows: signal, cancel, terminate, pause, unpause, reset, delete, and change their options."""

import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType, ResetReapplyType
from temporalio.api.workflow.v1 import VersioningOverride as ProtoOverride
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DeleteWorkflowExecutionResponse,
    PauseWorkflowExecutionRequest,
    PauseWorkflowExecutionResponse,
    RequestCancelWorkflowExecutionRequest,
    RequestCancelWorkflowExecutionResponse,
    ResetWorkflowExecutionRequest,
    ResetWorkflowExecutionResponse,
    SignalWorkflowExecutionRequest,
    SignalWorkflowExecutionResponse,
    TerminateWorkflowExecutionRequest,
    TerminateWorkflowExecutionResponse,
    UnpauseWorkflowExecutionRequest,
    UnpauseWorkflowExecutionResponse,
    UpdateWorkflowExecutionOptionsRequest,
    UpdateWorkflowExecutionOptionsResponse,
)

from perdure.api.kinds.operation import Reset
from perdure.api.phases import RunKind
from perdure.controller.directory import Entry
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.errors import NotYetError, RefusedError, when_ready
from perdure.controller.runs.resets import reset
from perdure.controller.workflows.definitions import Definitions
from perdure.engine import inputs
from perdure.engine.versioning import PINNED, VersioningOverride
from perdure.frontend.deployments.rules import WorkerDeployment, changes_override, override_of, override_refused
from perdure.frontend.errors import CompletedError, invalid, precondition, unavailable
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages import values
from perdure.frontend.messages.histories import versioning_override
from perdure.frontend.messages.nexus import link_to_signal, links_to_json
from perdure.frontend.messages.values import MAX_EVENT
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import Visibility
from perdure.kube import client as kube
from perdure.runtime.operation_requests import StartSignal

_BEGIN_SECONDS = 20.0
"""How long a reset waits for the start of the new run, in seconds."""
_NO_SIGNALS = ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL
_NO_UPDATES = ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE
_WITHOUT_UPDATES = (ResetReapplyType.RESET_REAPPLY_TYPE_NONE, ResetReapplyType.RESET_REAPPLY_TYPE_SIGNAL)
_TERMINATED = "terminated by user via frontend"
"""The reason of a termination if the client does not set one, as on Temporal's server."""


class WorkflowControl:
    """Handles requests to single workflows."""

    def __init__(
        self,
        *,
        client: kube.Client,
        definitions: Definitions,
        open_runs: WorkflowRuns,
        runs: RunGateway,
        visibility: Visibility,
        deployments: NamespaceRegistry[WorkerDeployment],
    ) -> None:
        self._client = client
        self._definitions = definitions
        self._open_runs = open_runs
        self._runs = runs
        self._visibility = visibility
        self._deployments = deployments

    async def signal_workflow_execution(
        self, request: SignalWorkflowExecutionRequest, call: CallContext
    ) -> SignalWorkflowExecutionResponse:
        """Signal a workflow."""
        if not request.signal_name:
            raise invalid("SignalName is not set on request.")
        if len(request.signal_name) > values.MAX_ID:
            raise invalid("SignalName length exceeds limit.")
        signal = start_signal(request, request.input, call.principal)
        answer = await self._demand(request, call, signal.request)
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
        runs, seconds = self._runs, call.within(LONGEST_CLIENT_POLL)
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
        runs, execution, seconds = self._runs, request.workflow_execution, call.within(LONGEST_CLIENT_POLL)
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
        """Remove a run with its history, also from the archive. This stops an open run."""
        namespace, execution = request.namespace, request.workflow_execution
        find = partial(self._runs.find, namespace, execution)
        await self._runs.delete_everywhere(RunKind.WORKFLOW, namespace, execution, find)
        return DeleteWorkflowExecutionResponse()

    # Reset

    async def reset_workflow_execution(
        self, request: ResetWorkflowExecutionRequest, call: CallContext
    ) -> ResetWorkflowExecutionResponse:
        """Start a new run from a point in a workflow's history: before the event that ended a workflow task."""
        if request.workflow_task_finish_event_id > MAX_EVENT:
            raise invalid("WorkflowTaskFinishEventId: no history has that many events")
        overrides = tuple(_overrides(request))
        entry = await self._runs.find(request.namespace, request.workflow_execution)
        if request.workflow_task_finish_event_id <= 1:
            raise invalid("WorkflowTaskFinishEventId must be > 1.")
        signals, updates = reapplied(request.reset_reapply_type, request.reset_reapply_exclude_types)
        wanted = Reset(
            event_id=request.workflow_task_finish_event_id - 1,
            reapply_signals=signals,
            reapply_updates=updates,
            reason=request.reason,
        )
        for override in overrides:
            await self.check_override(entry, override)
        view = await self._runs.view(entry)
        attempt = partial(
            reset,
            self._client,
            self._definitions,
            view.object,
            wanted,
            request_id=request.request_id or uuid.uuid4().hex,
            overrides=overrides,
            identity=request.identity,
            principal=call.principal,
        )
        try:
            made = await when_ready(attempt, seconds=call.within(LONGEST_CLIENT_POLL))
        except NotYetError as error:
            raise unavailable("the definition of the workflow is being compiled; retry later") from error
        except RefusedError as error:
            raise invalid(f"WorkflowTaskFinishEventId: {error.message}") from error
        self._open_runs.add_created(made.object)
        await self._wait_until_begun(made.run_id)
        return ResetWorkflowExecutionResponse(run_id=made.run_id)

    async def _wait_until_begun(self, run_id: str) -> None:
        """Wait until the new run has begun, after which the old run has closed."""
        runs = self._runs

        def has_begun() -> bool:
            return runs.state(run_id) is not None or runs.is_closed(run_id)

        if not await runs.changes.wait_until(run_id, has_begun, _BEGIN_SECONDS):
            raise unavailable("the new run has not started yet; the operator keeps trying")

    # Options

    async def update_workflow_execution_options(
        self, request: UpdateWorkflowExecutionOptionsRequest, call: CallContext
    ) -> UpdateWorkflowExecutionOptionsResponse:
        """Set or remove the versioning override of a workflow."""
        is_changed = changes_override(request)
        entry = await self._runs.reach(request.namespace, request.workflow_execution, call.within(LONGEST_CLIENT_POLL))
        options = request.workflow_execution_options
        override = (
            await self._override(entry, options.versioning_override)
            if options.HasField("versioning_override")
            else None
        )
        response = UpdateWorkflowExecutionOptionsResponse()
        if is_changed:
            await self.check_override(entry, override)
            changed = inputs.OverrideChanged(
                request_id=uuid.uuid4().hex, override=override, identity=request.identity, principal=call.principal
            )
            await self._runs.demand(entry, changed)
        state = (await self._runs.view(entry)).state
        code = state.code if state is not None else None
        if code is not None and code.versioning.override is not None:
            found = versioning_override(code.versioning.override)
            response.workflow_execution_options.versioning_override.CopyFrom(found)
        return response

    async def _override(self, entry: Entry, override: ProtoOverride) -> VersioningOverride:
        """Read a versioning override. A pinned override without a version keeps the version of a pinned workflow."""
        if override.pinned.behavior and not override.pinned.HasField("version"):
            state = (await self._runs.view(entry)).state
            pinned_to = state.code.versioning.pinned_to if state is not None and state.code is not None else None
            if pinned_to is None:
                raise precondition("pinned override: name a version, because the workflow is not pinned to any yet")
            return VersioningOverride(behavior=PINNED, version=pinned_to)
        return override_of(override)

    async def check_override(self, entry: Entry, override: VersioningOverride | None) -> None:
        """Check that the task queue of a run has the version of an override.

        Raises:
            RpcError: It does not have it.
        """
        record = self._visibility.get(entry.namespace, entry.uid)
        queue = record.task_queue if record is not None else ""
        if refused := override_refused(await self._deployments.load(entry.namespace), override, queue):
            raise precondition(refused)


def reapplied(kind: int, excluded: Collection[int]) -> tuple[bool, bool]:
    """Whether the new run of a reset gets the later signals, and whether it gets the later updates.

    Args:
        kind: The requested ResetReapplyType.
        excluded: The requested values of ResetReapplyExcludeType.
    """
    signals = kind != ResetReapplyType.RESET_REAPPLY_TYPE_NONE and _NO_SIGNALS not in excluded
    return signals, kind not in _WITHOUT_UPDATES and _NO_UPDATES not in excluded


def _overrides(request: ResetWorkflowExecutionRequest) -> Iterator[VersioningOverride | None]:
    """The changes of the versioning override after the reset. As on Temporal's server, no other operations can follow it.

    Raises:
        RpcError: An operation does not change the versioning override.
        UnfitError: An operation is not valid.
    """
    for each in request.post_reset_operations:
        if each.WhichOneof("variant") != "update_workflow_options":
            raise invalid("post_reset_operations: only `update_workflow_options` is supported")
        update = each.update_workflow_options
        if changes_override(update):
            options = update.workflow_execution_options
            yield override_of(options.versioning_override) if options.HasField("versioning_override") else None


def start_signal(request: Any, payloads: Payloads, principal: str) -> StartSignal:
    """The signal of a request to signal, or to signal with start.

    Args:
        request: The request.
        payloads: The input of the signal.
        principal: The user that the API server authenticated.

    Raises:
        UnfitError: The input or the header is not valid.
    """
    return StartSignal(
        request_id=request.request_id or uuid.uuid4().hex,
        signal_name=request.signal_name,
        input=data.to_json(payloads.payloads, allow_blob=True),
        identity=request.identity,
        principal=principal,
        header=data.header_to_json(request),
        client_request_id=request.request_id,
        links=links_to_json(request.links),
    )
