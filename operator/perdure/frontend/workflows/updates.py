"""Updates: requests that a workflow validates, accepts, and answers.

Until a worker accepts an update, it exists only in memory, with its callers. The updates in memory follow the recorded ones:
those that a reset has passed to a run are admitted again, and those of a closed run end.
"""

import asyncio
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage as Stage
from temporalio.api.protocol.v1 import Message
from temporalio.api.update.v1 import Outcome, Request, UpdateRef
from temporalio.api.workflowservice.v1 import (
    PollWorkflowExecutionUpdateRequest,
    PollWorkflowExecutionUpdateResponse,
    UpdateWorkflowExecutionRequest,
    UpdateWorkflowExecutionResponse,
)

from perdure.controller.directory import Entry
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.workers import FollowedRun
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.history import decode_events
from perdure.engine.nexus import MAX_UPDATE_CALLBACKS
from perdure.engine.state import RunState
from perdure.frontend.errors import CompletedError, RpcError, busy, invalid, not_found, unavailable
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL
from perdure.frontend.messages import failures, values
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.histories import update_request
from perdure.frontend.messages.nexus import callbacks_of, callbacks_to_engine, link_to_rejection, link_to_update
from perdure.frontend.messages.payloads import payloads
from perdure.frontend.messages.values import UnfitError
from perdure.frontend.runs.gateway import LargePayloads, RunGateway, View
from perdure.frontend.runs.starts import FirstTasks
from perdure.frontend.transport.rpc import CallContext
from perdure.kube import client as kube
from perdure.runtime.callbacks import UPDATE_LOST

_ADMITTED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ADMITTED
_ACCEPTED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED
_COMPLETED = Stage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED

MAX_IN_FLIGHT = 10
MAX_TOTAL = 2_000


@dataclass(slots=True)
class Update:
    """One update."""

    update_id: str
    request: Request
    principal: str = ""
    """The user that requested it, authenticated by the API server."""
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Outcome | None = None
    aborted: bool = False
    rejected: bool = False
    sent: bool = False
    """Whether it was sent to a worker, which may have lost it."""
    callers: int = 0
    """The number of calls that wait for it."""

    def accept(self) -> None:
        """Record that a worker has accepted it."""
        self.accepted.set()

    def end(self, outcome: Outcome) -> None:
        """Set its outcome, even if the task that reports it closes the workflow."""
        self.outcome, self.aborted = outcome, False
        self.accepted.set()
        self.ended.set()

    def reject(self, outcome: Outcome) -> None:
        """Process its rejection by a worker, which is not recorded."""
        self.rejected = True
        self.end(outcome)

    def abort(self) -> None:
        """Abort it because the workflow has closed."""
        self.aborted = True
        self.accepted.set()
        self.ended.set()

    def message(self, sequencing_event_id: int) -> Message:
        """The message for a worker."""
        body = AnyMessage()
        body.Pack(self.request)
        return Message(
            id=f"{self.update_id}/request",
            protocol_instance_id=self.update_id,
            event_id=sequencing_event_id,
            body=body,
        )


class Updates:
    """The updates of all runs, by run ID and update ID."""

    def __init__(self) -> None:
        self._of_run: dict[str, dict[str, Update]] = {}

    def get(self, run_id: str, update_id: str) -> Update | None:
        """An update that callers wait for."""
        return self._of_run.get(run_id, {}).get(update_id)

    def admit(self, run_id: str, update_id: str, request: Request, principal: str = "") -> Update:
        """Add an update, or return the existing one."""
        return self._of_run.setdefault(run_id, {}).setdefault(update_id, Update(update_id, request, principal))

    @contextmanager
    def awaited(self, run_id: str, update: Update) -> Iterator[None]:
        """Keep an update within the block. Unless a worker accepts it, the last waiting call removes it.

        Otherwise clients could fill the memory with updates for workflows without a worker.
        """
        update.callers += 1
        try:
            yield
        finally:
            update.callers -= 1
            if not update.callers and not update.accepted.is_set():
                self.forget(run_id, update.update_id)

    def undecided(self, run_id: str) -> list[Update]:
        """The updates that no worker has accepted or rejected yet."""
        return [update for update in self._of_run.get(run_id, {}).values() if not update.accepted.is_set()]

    def open(self, run_id: str) -> list[Update]:
        """The updates of a run without an outcome."""
        return [update for update in self._of_run.get(run_id, {}).values() if not update.ended.is_set()]

    def abort(self, run_id: str) -> None:
        """Abort the updates of a deleted run."""
        for update in self._of_run.pop(run_id, {}).values():
            if not update.ended.is_set():
                update.abort()

    def leave(self, run_id: str) -> None:
        """End the waiting calls of a run that another operator owns now; they are sent there."""
        self._of_run.pop(run_id, None)

    def forget(self, run_id: str, update_id: str) -> None:
        """Drop an update whose outcome is recorded, or that no call waits for."""
        known = self._of_run.get(run_id, {})
        known.pop(update_id, None)
        if not known:
            self._of_run.pop(run_id, None)


class RecordedUpdates:
    """Admits the updates that a run has recorded, and ends those of a closed run."""

    def __init__(self, runs: RunGateway, updates: Updates, payloads: LargePayloads) -> None:
        self._updates = updates
        self._runs = runs
        self._payloads = payloads
        self._tasks: set[asyncio.Task[None]] = set()

    async def readmit(self, view: View) -> None:
        """Admit the updates that a reset has passed to a run, and no worker has accepted or rejected."""
        code, run_id = view.state.code if view.state is not None else None, view.entry.uid
        admitted = code.admitted if code else {}
        wanted = {name: event_id for name, event_id in admitted.items() if self._updates.get(run_id, name) is None}
        for event in await self._runs.history(view, min(wanted.values())) if wanted else ():
            if isinstance(event, ev.WorkflowExecutionUpdateAdmitted) and event.update_id in wanted:
                request = await self._payloads.build(view.entry.namespace, partial(update_request, event))
                self._updates.admit(run_id, event.update_id, request, event.principal)

    def closed(self, run: FollowedRun, state: RunState) -> None:
        """Answer the updates of a closed run: accepted ones without an outcome fail."""
        records = state.code.updates if state.code else {}
        for update in self._updates.open(run.ref.uid):
            record = records.get(update.update_id)
            if record is None:
                update.abort()
            elif record.completed_event_id:
                event = next((e for e in _tail_of(run) if e.event_id == record.completed_event_id), None)
                if isinstance(event, ev.WorkflowExecutionUpdateCompleted):
                    self._spawn(self._end_update(run.ref.namespace, update, event))
            else:
                update.end(Outcome(failure=failures.to_proto(UPDATE_LOST)))

    async def _end_update(self, namespace: str, update: Update, event: ev.WorkflowExecutionUpdateCompleted) -> None:
        """Pass the outcome of an update to its callers. If it cannot be read now, clients retry."""
        try:
            update.end(await self._payloads.build(namespace, lambda: outcome_of(event)))
        except (RpcError, kube.RequestError):
            update.abort()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="end of an update")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tail_of(run: FollowedRun) -> tuple[ev.AnyEvent, ...]:
    """The end of the history of a run that this process owns."""
    return decode_events(run.record.status["history"]["events"])


def outcome_of(event: ev.WorkflowExecutionUpdateCompleted) -> Outcome:
    """The outcome of an update."""
    if event.failure is not None:
        return Outcome(failure=failures.to_proto(event.failure))
    outcome = Outcome()
    outcome.success.SetInParent()
    found = payloads(event.result)
    if found is not None:
        outcome.success.CopyFrom(found)
    return outcome


class WorkflowUpdates:
    """Delivers updates to workflows, and waits for their outcomes."""

    def __init__(
        self,
        *,
        runs: RunGateway,
        updates: Updates,
        recorded_updates: RecordedUpdates,
        payloads: LargePayloads,
        first_tasks: FirstTasks,
        served: ServedNamespaces,
    ) -> None:
        self._served = served
        self._runs = runs
        self._updates = updates
        self._recorded_updates = recorded_updates
        self._payloads = payloads
        self._first_tasks = first_tasks

    async def update_workflow_execution(
        self, request: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> UpdateWorkflowExecutionResponse:
        """Send an update to a workflow. A repeated ID finds the same update."""
        self.check(request)
        entry = await self._runs.reach(
            request.namespace,
            request.workflow_execution,
            call.within(LONGEST_CLIENT_POLL),
            first_run_id=request.first_execution_run_id,
        )
        return await self.update(entry, request, call)

    def check(self, request: UpdateWorkflowExecutionRequest) -> None:
        """Check that an update with its completion callbacks is valid for any workflow.

        Raises:
            RpcError: The update is not valid.
        """
        check_update(request)
        wanted = request.request
        if wanted.completion_callbacks and not wanted.request_id:
            raise invalid("request.request_id: is required when completion_callbacks are set")
        try:
            callbacks_of(wanted, self._served, MAX_UPDATE_CALLBACKS)
        except UnfitError as error:
            raise invalid(str(error)) from error

    async def update(
        self, entry: Entry, request: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> UpdateWorkflowExecutionResponse:
        """Send an update to an open workflow, or to the next run of its chain."""
        if not request.request.meta.update_id:
            request.request.meta.update_id = uuid.uuid4().hex
        seconds = call.within(LONGEST_CLIENT_POLL)
        return await self._runs.follow_chain(
            entry, request.workflow_execution, seconds, lambda open_: self._update_run(open_, request, call)
        )

    async def _update_run(
        self, entry: Entry, request: UpdateWorkflowExecutionRequest, call: CallContext
    ) -> UpdateWorkflowExecutionResponse:
        if not await self._runs.has_started(entry.uid, call.within(LONGEST_CLIENT_POLL)):
            raise unavailable("the workflow has not started yet")
        update_id = request.request.meta.update_id
        known = await self._known(entry, update_id)
        is_new = known is None
        if known is None:
            known = await self._admit(entry, request, call.principal)
        self._first_tasks.release(entry.namespace, entry.name)
        with self._updates.awaited(entry.uid, known):
            if is_new:
                await self._request_task(entry, known)
            elif request.request.completion_callbacks:
                await self._attach(entry, known, request, call.principal)
            stage = await self._wait(known, request.wait_policy.lifecycle_stage or _ACCEPTED)
        if known.aborted:
            self._updates.forget(entry.uid, update_id)
            raise CompletedError
        link = None
        if known.rejected:
            link = link_to_rejection(entry)
        elif known.accepted.is_set():
            link = link_to_update(entry, request.request.request_id)
        return UpdateWorkflowExecutionResponse(
            update_ref=_reference(entry, update_id), outcome=known.outcome or None, stage=stage, link=link
        )

    async def _attach(
        self, entry: Entry, known: Update, request: UpdateWorkflowExecutionRequest, principal: str
    ) -> None:
        """Attach the completion callbacks of this request to an update that another request created.

        A completed update needs no callbacks, because its outcome is in the response.
        """
        wanted = request.request
        await self._wait(known, _ACCEPTED)
        if wanted.request_id == known.request.request_id or known.ended.is_set() or not known.accepted.is_set():
            return
        attached = inputs.CallbacksAttached(
            request_id=wanted.request_id,
            callbacks=callbacks_to_engine(wanted.completion_callbacks),
            update_id=known.update_id,
            principal=principal,
        )
        await self._runs.demand(entry, attached)

    async def _known(self, entry: Entry, update_id: str) -> Update | None:
        """Find an existing update, in memory or recorded."""
        waiting = self._updates.get(entry.uid, update_id)
        if waiting is not None:
            return waiting
        view = await self._runs.view(entry)
        record = view.state.code.updates.get(update_id) if view.state is not None and view.state.code else None
        if record is None:
            await self._recorded_updates.readmit(view)
            return self._updates.get(entry.uid, update_id)
        events = await self._runs.history(view, record.accepted_event_id)
        accepted = next(e for e in events if e.event_id == record.accepted_event_id)
        assert isinstance(accepted, ev.WorkflowExecutionUpdateAccepted)
        wanted = await self._payloads.build(entry.namespace, lambda: update_request(accepted))
        update = self._updates.admit(entry.uid, update_id, wanted)
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
            update.end(await self._payloads.build(view.entry.namespace, partial(outcome_of, event)))
        elif view.state is not None and view.state.closed:
            update.end(Outcome(failure=failures.to_proto(UPDATE_LOST)))
        if update.ended.is_set():
            self._updates.forget(view.entry.uid, update.update_id)

    async def _admit(self, entry: Entry, request: UpdateWorkflowExecutionRequest, principal: str) -> Update:
        view = await self._runs.view(entry)
        if view.state is not None and view.state.closed and view.state.code is None:
            raise CompletedError
        if view.state is None or view.state.code is None:
            raise invalid("a run of a Workflow has no update handlers: send it a signal instead")
        if view.state.closed:
            raise CompletedError
        if len(self._updates.open(entry.uid)) >= MAX_IN_FLIGHT:
            raise busy(f"limit on number of concurrent in-flight updates has been reached ({MAX_IN_FLIGHT})")
        if len(view.state.code.updates) >= MAX_TOTAL:
            message = f"The limit on total number of distinct updates in this workflow has been reached ({MAX_TOTAL}). "
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, message)
        return self._updates.admit(entry.uid, request.request.meta.update_id, request.request, principal)

    async def _request_task(self, entry: Entry, update: Update) -> None:
        """Request a workflow task for a new update."""
        try:
            await self._runs.demand(entry, inputs.TaskRequested(request_id=uuid.uuid4().hex))
        except RpcError:
            update.abort()
            self._updates.forget(entry.uid, update.update_id)
            raise

    async def _wait(self, update: Update, stage: int) -> Any:
        """Wait for a stage, and return the reached stage. As on Temporal's server, a missed deadline is an error."""
        if stage > _ADMITTED:
            event = update.ended if stage >= _COMPLETED else update.accepted
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_CLIENT_POLL):
                    await event.wait()
        if update.ended.is_set():
            return _COMPLETED
        return _ACCEPTED if update.accepted.is_set() else _ADMITTED

    async def poll_workflow_execution_update(
        self, request: PollWorkflowExecutionUpdateRequest, call: CallContext
    ) -> PollWorkflowExecutionUpdateResponse:
        """Wait for the outcome of an update."""
        entry = await self._runs.find(request.namespace, request.update_ref.workflow_execution)
        update = await self._known(entry, request.update_ref.update_id)
        if update is None:
            raise not_found(f"update {request.update_ref.update_id!r} not found")
        with self._updates.awaited(entry.uid, update):
            stage = await self._wait(update, request.wait_policy.lifecycle_stage)
        if update.aborted:
            raise CompletedError
        return PollWorkflowExecutionUpdateResponse(
            outcome=update.outcome or None,
            stage=stage,
            update_ref=_reference(entry, update.update_id),
        )


def check_update(request: UpdateWorkflowExecutionRequest) -> None:
    """Check that an update is valid for any workflow.

    Raises:
        RpcError: The update is not valid.
    """
    wanted = request.request
    if not wanted.input.name:
        raise invalid("Update name is not set on request.")
    try:
        values.name(wanted.input.name, "Update name")
        values.name(wanted.meta.update_id, "UpdateId", required=False)
        data.to_json(wanted.input.args.payloads, allow_blob=True)
        data.header_to_json(wanted.input)
    except UnfitError as error:
        raise invalid(str(error)) from error
    if request.wait_policy.lifecycle_stage not in Stage.values():
        raise invalid("wait_policy.lifecycle_stage: unknown stage")


def _reference(entry: Entry, update_id: str) -> UpdateRef:
    return UpdateRef(
        workflow_execution=WorkflowExecution(workflow_id=entry.workflow_id, run_id=entry.uid), update_id=update_id
    )
