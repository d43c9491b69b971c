"""RPCs about updates: requests that a workflow validates, accepts, and answers."""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import grpc
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.enums.v1 import WorkflowExecutionStatus
from temporalio.api.update.v1 import Outcome, UpdateRef
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    ExecuteMultiOperationResponse,
    PollWorkflowExecutionUpdateRequest,
    PollWorkflowExecutionUpdateResponse,
    StartWorkflowExecutionRequest,
    StartWorkflowExecutionResponse,
    UpdateWorkflowExecutionRequest,
    UpdateWorkflowExecutionResponse,
)

from perdure.controller.directory import Entry
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.nexus import MAX_UPDATE_CALLBACKS
from perdure.frontend import failures, given, links
from perdure.frontend import payloads as data
from perdure.frontend.callbacks import callbacks_of, to_engine
from perdure.frontend.core import Core
from perdure.frontend.errors import CompletedError, RpcError, aborted, busy, invalid, not_found, several, unavailable
from perdure.frontend.given import UnfitError
from perdure.frontend.history import update_request
from perdure.frontend.recorded_updates import outcome_of
from perdure.frontend.run_reader import View
from perdure.frontend.service.call import LONGEST_WAIT, CallContext
from perdure.frontend.service.making import StartedRun
from perdure.frontend.service.starting import Starting
from perdure.frontend.updates import MAX_IN_FLIGHT, MAX_TOTAL, Update
from perdure.runtime.callbacks import UPDATE_LOST

_TRIES = 10
"""Number of runs that an update-with-start tries if each closes before it accepts the update."""
_ADMITTED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ADMITTED
_ACCEPTED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED
_COMPLETED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED


class _MissedError(Exception):
    """The workflow, which was open or was started, has closed before it could accept the update."""


class Updating:
    """Delivers updates to workflows, and waits for their outcomes."""

    def __init__(self, core: Core, starting: Starting) -> None:
        self._core = core
        self._starting = starting

    async def update_workflow_execution(
        self, request: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> UpdateWorkflowExecutionResponse:
        """Send an update to a workflow; a repeated ID finds the same update."""
        self._check(request)
        entry = await self._core.runs.finder.reach(
            request.namespace,
            request.workflow_execution,
            call.within(LONGEST_WAIT),
            first_run_id=request.first_execution_run_id,
        )
        return await self._update(entry, request, call)

    def _check(self, request: UpdateWorkflowExecutionRequest) -> None:
        """Check that an update is valid for any workflow.

        Raises:
            RpcError: it cannot.
        """
        check_update(request)
        asked = request.request
        if asked.completion_callbacks and not asked.request_id:
            raise invalid("request.request_id: is required when completion_callbacks are set")
        try:
            callbacks_of(asked, self._core.runs.manager.served, MAX_UPDATE_CALLBACKS)
        except UnfitError as error:
            raise invalid(str(error)) from error

    async def _update(
        self, entry: Entry, request: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> UpdateWorkflowExecutionResponse:
        if not request.request.meta.update_id:
            request.request.meta.update_id = uuid.uuid4().hex
        seconds = call.within(LONGEST_WAIT)
        return await self._core.runs.finder.along(
            entry, request.workflow_execution, seconds, lambda open_: self._update_run(open_, request, call)
        )

    async def _update_run(
        self, entry: Entry, request: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> UpdateWorkflowExecutionResponse:
        if not await self._core.runs.finder.has_begun(entry.uid, call.within(LONGEST_WAIT)):
            raise unavailable("the workflow has not begun yet")
        update_id = request.request.meta.update_id
        known = await self._known(entry, update_id)
        is_new = known is None
        if known is None:
            known = await self._admit(entry, request, call.principal)
        self._core.first_tasks.release(entry.namespace, entry.name)
        with self._core.updates.awaited(entry.uid, known):
            if is_new:
                await self._want_task(entry, known)
            elif request.request.completion_callbacks:
                await self._attach(entry, known, request, call.principal)
            stage = await self._wait(known, request.wait_policy.lifecycle_stage or _ACCEPTED)
        if known.aborted:
            self._core.updates.forget(entry.uid, update_id)
            raise CompletedError
        link = None
        if known.rejected:
            link = links.to_rejection(entry)
        elif known.accepted.is_set():
            link = links.to_update(entry, request.request.request_id)
        return UpdateWorkflowExecutionResponse(
            update_ref=_reference(entry, update_id), outcome=known.outcome or None, stage=stage, link=link
        )

    async def _attach(
        self, entry: Entry, known: Update, request: UpdateWorkflowExecutionRequest, principal: str
    ) -> None:
        """Attach the completion callbacks of this request to an update that another request has made.

        An update that has ended needs none: its outcome is in the response.
        """
        asked = request.request
        await self._wait(known, _ACCEPTED)
        if asked.request_id == known.request.request_id or known.ended.is_set() or not known.accepted.is_set():
            return
        attached = inputs.CallbacksAttached(
            request_id=asked.request_id,
            callbacks=to_engine(asked.completion_callbacks),
            update_id=known.update_id,
            principal=principal,
        )
        await self._core.runs.demand(entry, attached)

    async def _known(self, entry: Entry, update_id: str) -> Update | None:
        """An existing update, in memory or recorded."""
        waiting = self._core.updates.get(entry.uid, update_id)
        if waiting is not None:
            return waiting
        view = await self._core.runs.reader.view(entry)
        record = view.state.code.updates.get(update_id) if view.state is not None and view.state.code else None
        if record is None:
            await self._core.recorded_updates.readmit(view)
            return self._core.updates.get(entry.uid, update_id)
        events = await self._core.runs.reader.history(view, record.accepted_event_id)
        accepted = next(e for e in events if e.event_id == record.accepted_event_id)
        assert isinstance(accepted, ev.WorkflowExecutionUpdateAccepted)
        asked = await self._core.payloads.whole(entry.namespace, lambda: update_request(accepted))
        update = self._core.updates.admit(entry.uid, update_id, asked)
        update.accept()
        await self._recorded(update, view, events, record.completed_event_id)
        return update

    async def _recorded(
        self, update: Update, view: View, events: Sequence[ev.AnyEvent], completed_event_id: int
    ) -> None:
        """Build the response from the recorded outcome of an update."""
        if completed_event_id:
            event = next(e for e in events if e.event_id == completed_event_id)
            assert isinstance(event, ev.WorkflowExecutionUpdateCompleted)
            update.end(await self._core.payloads.whole(view.entry.namespace, partial(outcome_of, event)))
        elif view.state is not None and view.state.closed:
            update.end(Outcome(failure=failures.to_proto(UPDATE_LOST)))
        if update.ended.is_set():
            self._core.updates.forget(view.entry.uid, update.update_id)

    async def _admit(self, entry: Entry, request: UpdateWorkflowExecutionRequest, principal: str) -> Update:
        view = await self._core.runs.reader.view(entry)
        if view.state is not None and view.state.closed and view.state.code is None:
            raise CompletedError
        if view.state is None or view.state.code is None:
            raise invalid("a WorkflowRun that runs a Workflow has no update handlers: signal it")
        if view.state.closed:
            raise CompletedError
        if self._core.updates.in_flight(entry.uid) >= MAX_IN_FLIGHT:
            raise busy(f"limit on number of concurrent in-flight updates has been reached ({MAX_IN_FLIGHT})")
        if len(view.state.code.updates) >= MAX_TOTAL:
            message = f"The limit on total number of distinct updates in this workflow has been reached ({MAX_TOTAL}). "
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, message)
        return self._core.updates.admit(entry.uid, request.request.meta.update_id, request.request, principal)

    async def _want_task(self, entry: Entry, update: Update) -> None:
        """Request a workflow task for a new update."""
        try:
            await self._core.runs.demand(entry, inputs.TaskWanted(request_id=uuid.uuid4().hex))
        except RpcError:
            update.abort()
            self._core.updates.forget(entry.uid, update.update_id)
            raise

    async def _wait(self, update: Update, wanted: int) -> Any:
        """Wait for a stage, and return the one reached. As on Temporal's server, a missed deadline is an error."""
        if wanted > _ADMITTED:
            event = update.ended if wanted >= _COMPLETED else update.accepted
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await event.wait()
        if update.ended.is_set():
            return _COMPLETED
        return _ACCEPTED if update.accepted.is_set() else _ADMITTED

    async def poll_workflow_execution_update(
        self, request: PollWorkflowExecutionUpdateRequest, call: CallContext
    ) -> PollWorkflowExecutionUpdateResponse:
        """Wait for the outcome of an update."""
        del call
        entry = self._core.runs.finder.entry(request.namespace, request.update_ref.workflow_execution)
        update = await self._known(entry, request.update_ref.update_id)
        if update is None:
            raise not_found(f"update {request.update_ref.update_id!r} not found")
        with self._core.updates.awaited(entry.uid, update):
            stage = await self._wait(update, request.wait_policy.lifecycle_stage)
        if update.aborted:
            raise CompletedError
        return PollWorkflowExecutionUpdateResponse(
            outcome=update.outcome or None,
            stage=stage,
            update_ref=_reference(entry, update.update_id),
        )

    # Update with start

    async def execute_multi_operation(
        self, request: ExecuteMultiOperationRequest, call: CallContext
    ) -> ExecuteMultiOperationResponse:
        """Start a workflow, or find the open one, and update it."""
        operations = request.operations
        if [o.WhichOneof("operation") for o in operations] != ["start_workflow", "update_workflow"]:
            raise invalid("Operations have to be exactly [Start, Update].")
        start, update = operations[0].start_workflow, operations[1].update_workflow
        if mistake := _start_refused(start):
            raise several(0, [invalid(mistake), None])
        try:
            self._check(update)
            if mistake := _update_refused(start, update):
                raise invalid(mistake)
        except RpcError as error:
            raise several(1, [None, error]) from error
        begun, updated = await self._start_until_updated(start, update, call)
        response = ExecuteMultiOperationResponse()
        response.responses.add().start_workflow.CopyFrom(
            StartWorkflowExecutionResponse(
                run_id=begun.entry.uid,
                started=begun.started,
                first_execution_run_id=begun.entry.first_uid if begun.started else "",
                status=WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING,
                link=links.to_start(begun.entry) if begun.started else None,
            )
        )
        response.responses.add().update_workflow.CopyFrom(updated)
        return response

    async def _start_until_updated(
        self, start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> tuple[StartedRun, UpdateWorkflowExecutionResponse]:
        """Start or find the workflow and update it; if it closes first, retry with the next run.

        Raises:
            RpcError: It cannot be started or updated; or `_TRIES` runs have closed in between.
        """
        for left in reversed(range(_TRIES)):
            try:
                return await self._start_and_update(start, update, call)
            except _MissedError as error:
                if not left:
                    raise several(1, [None, aborted(str(error))]) from error
                start.request_id = (
                    uuid.uuid4().hex
                )  # another run than the one that may have been started, and has closed
        raise AssertionError  # the last try returns or raises

    async def _start_and_update(
        self, start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> tuple[StartedRun, UpdateWorkflowExecutionResponse]:
        begun = await self._attached(start.namespace, start.workflow_id, update.request.meta.update_id)
        try:
            begun = begun or await self._starting.begin(start, "Fail", principal=call.principal, reserved=True)
        except RpcError as error:
            raise several(0, [error, None]) from error
        try:
            return begun, await self._update(begun.entry, update, call)
        except RpcError as error:
            # It has closed or, as it had waited for its id in vain, is gone.
            if error.code is grpc.StatusCode.NOT_FOUND:
                raise _MissedError(error.message) from error
            raise several(1, [None, error]) from error
        finally:
            self._core.first_tasks.release(begun.entry.namespace, begun.entry.name)

    async def _attached(self, namespace: str, workflow_id: str, update_id: str) -> StartedRun | None:
        """The workflow that already has the update: then nothing is started, regardless of the policies.

        One that has closed counts only if the update has come to its end there.
        """
        await self._core.runs.manager.first_lists.wait()
        entry = self._core.runs.manager.directory.newest(namespace, workflow_id)
        if entry is None or not update_id:
            return None
        try:
            view = await self._core.runs.reader.view(entry)
        except RpcError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:  # it has gone meanwhile
                return None
            raise
        if view.state is None or view.state.code is None:
            return None
        record = view.state.code.updates.get(update_id)
        ended = record is not None and bool(record.completed_event_id)
        if view.state.closed:
            return StartedRun(entry, started=False) if ended else None
        known = record is not None or self._core.updates.get(entry.uid, update_id) is not None
        return StartedRun(entry, started=False) if known else None


def _start_refused(start: StartWorkflowExecutionRequest) -> str:
    """Why a start that is valid alone cannot be part of update-with-start; empty if it can."""
    if start.cron_schedule:
        return "CronSchedule is not allowed."
    if start.request_eager_execution:
        return "RequestEagerExecution is not supported."
    if start.workflow_start_delay.ToTimedelta() > timedelta(0):
        return "WorkflowStartDelay is not supported."
    return ""


def _update_refused(start: StartWorkflowExecutionRequest, update: UpdateWorkflowExecutionRequest) -> str:
    """Why an update that is valid alone cannot be part of update-with-start; empty if it can."""
    if update.first_execution_run_id:
        return "FirstExecutionRunId is not allowed."
    if update.workflow_execution.run_id:
        return "RunId is not allowed."
    if update.workflow_execution.workflow_id != start.workflow_id:
        return "WorkflowId is not consistent with previous operation(s)."
    return ""


def check_update(request: UpdateWorkflowExecutionRequest) -> None:
    """Check that an update is valid for any workflow.

    Raises:
        RpcError: it cannot.
    """
    asked = request.request
    if not asked.input.name:
        raise invalid("Update name is not set on request.")
    try:
        given.name(asked.input.name, "Update name")
        given.name(asked.meta.update_id, "UpdateId", required=False)
        data.to_json(asked.input.args.payloads, apart=True)
        data.header_to_json(asked.input)
    except UnfitError as error:
        raise invalid(str(error)) from error
    if request.wait_policy.lifecycle_stage not in Stage.values():
        raise invalid("wait_policy.lifecycle_stage: is none that there is")


def _reference(entry: Entry, update_id: str) -> UpdateRef:
    return UpdateRef(
        workflow_execution=WorkflowExecution(workflow_id=entry.workflow_id, run_id=entry.uid), update_id=update_id
    )
