"""Runs, for the frontend: found by workflow id and run id, asked, and waited for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from temporalio.api.common.v1 import WorkflowExecution

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.manager import Manager
from perdure.controller.payloads.payload_store import Saved
from perdure.controller.reconcile.record import encoded
from perdure.controller.runs.history_segments import past_of
from perdure.controller.runs.run import Run
from perdure.controller.runs.run_status import DamagedStateError, message_of, stored_state
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.inputs import Answer
from perdure.engine.opaque import referred_to
from perdure.engine.state import RunState
from perdure.frontend import given
from perdure.frontend.errors import (
    CompletedError,
    RpcError,
    busy,
    damaged,
    invalid,
    not_found,
    precondition,
    unavailable,
)
from perdure.kube import client as kube
from perdure.runtime.blobs import Reference, owner, reference_in, with_content
from perdure.runtime.kinds import RunKind

NOT_FOUND = "workflow not found for ID: {}"
NO_ACTIVITY = "activity not found for ID: {}"
NO_OPERATION = "nexus operation not found for ID: {}"
_NOT_FOUND = {
    RunKind.WORKFLOW: NOT_FOUND,
    RunKind.ACTIVITY: NO_ACTIVITY,
    RunKind.NEXUS_OPERATION: NO_OPERATION,
}
_DAMAGED = ConditionReason.STATE_DAMAGED.value
_RECORDED_WITHIN = 20.0
"""How long a client waits until the start of a workflow is recorded."""
_Told = TypeVar("_Told")


@dataclass(frozen=True, slots=True)
class View:
    """A run as it is recorded."""

    entry: Entry
    object: kube.Object
    state: RunState | None
    """None before it has begun."""
    start: Sequence[ev.AnyEvent] = ()
    """The whole history of a run whose start is not recorded yet; only workers see that."""

    @property
    def tail(self) -> list[kube.Object]:
        """The end of the history, as JSON: what is not sealed yet."""
        found: list[kube.Object] = ((self.object.get("status") or {}).get("history") or {}).get("events") or []
        return found

    @property
    def by_step(self) -> bool:
        """Whether it runs a Workflow: the IDs in its events are paths of steps."""
        return self.state is not None and self.state.code is None and not self.state.standalone

    @property
    def unsealed(self) -> int:
        """The ID of the first event that is not sealed. Sealing can leave no event over."""
        if self.tail:
            begins: int = self.tail[0]["eventId"]
            return begins
        return self.state.next_event_id if self.state is not None else 1


class Runs:
    """The runs of this operator."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    # Finding

    def entry(self, namespace: str, execution: WorkflowExecution, *, first_run_id: str = "") -> Entry:
        """The run that is meant: by run id, or the newest of a workflow id.

        Raises:
            RpcError: there is none.
        """
        if not execution.workflow_id and not execution.run_id:
            raise invalid("WorkflowId is not set on request.")
        directory = self.manager.directory
        if execution.run_id:
            if not given.is_uuid(execution.run_id):
                raise invalid("Invalid RunId.")
            entry = directory.get(execution.run_id)
            known = entry is not None and entry.namespace == namespace and not entry.kind.standalone
            if entry is None or not known or execution.workflow_id not in {"", entry.workflow_id}:
                raise not_found(NOT_FOUND.format(execution.workflow_id))
        else:
            entry = directory.newest(namespace, execution.workflow_id)
        if entry is None:
            raise not_found(NOT_FOUND.format(execution.workflow_id))
        if first_run_id and entry.first_uid != first_run_id:
            raise not_found("workflow execution not found: the newest run belongs to another chain")
        return entry

    def activity(self, namespace: str, activity_id: str, run_id: str) -> Entry:
        """The standalone activity that is meant: by run ID, or the newest of an activity ID.

        Raises:
            RpcError: it does not exist, or an ID cannot be one; the messages are Temporal's (chasm/lib/activity).
        """
        if not activity_id:
            raise invalid("activity ID is required")
        if len(activity_id) > given.MAX_ID:
            raise invalid(f"activity ID exceeds length limit. Length={len(activity_id)} Limit={given.MAX_ID}")
        if run_id and not given.is_uuid(run_id):
            raise invalid("invalid run id: must be a valid UUID")
        return self._standalone(namespace, activity_id, run_id, RunKind.ACTIVITY)

    def operation(self, namespace: str, operation_id: str, run_id: str) -> Entry:
        """The standalone Nexus operation that is meant: by run ID, or the newest of an operation ID.

        Raises:
            RpcError: it does not exist, or an ID cannot be one; the messages are Temporal's (chasm/lib/nexusoperation).
        """
        if not operation_id:
            raise invalid("operation_id is required")
        if len(operation_id) > given.MAX_ID:
            raise invalid(f"operation_id exceeds length limit. Length={len(operation_id)} Limit={given.MAX_ID}")
        if run_id and not given.is_uuid(run_id):
            raise invalid("run_id is not a valid UUID")
        return self._standalone(namespace, operation_id, run_id, RunKind.NEXUS_OPERATION)

    def _standalone(self, namespace: str, named: str, run_id: str, kind: RunKind) -> Entry:
        directory = self.manager.directory
        entry = directory.get(run_id) if run_id else directory.newest(namespace, named, kind=kind)
        if entry is None or (entry.kind, entry.namespace, entry.workflow_id) != (kind, namespace, named):
            raise not_found(_NOT_FOUND[kind].format(named))
        return entry

    async def reach(
        self, namespace: str, execution: WorkflowExecution, seconds: float, *, first_run_id: str = ""
    ) -> Entry:
        """The run that is meant, as `entry`: a client never sees the gap in which one run has closed and the next has not begun.

        Raises:
            RpcError: there is none, or the one that follows is not there in time.
        """
        gap = partial(self.manager.directory.gap, namespace, execution.workflow_id)

        def bridged(before: Entry) -> bool:
            return gap() is not before

        while not execution.run_id and (before := gap()) is not None:
            if not await self.wait_until(before.uid, partial(bridged, before), seconds):
                raise unavailable("the workflow continues in another run, which does not exist yet")
        entry = self.entry(namespace, execution, first_run_id=first_run_id)
        if entry.continues:
            await self.has_begun(entry.uid, seconds)
        return entry

    async def along(
        self, entry: Entry, execution: WorkflowExecution, seconds: float, do: Callable[[Entry], Awaitable[_Told]]
    ) -> _Told:
        """Do something with a run; if it closes first and continues in another one, with that.

        Args:
            entry: The run.
            execution: What the client has named: a run id means that run only.
            seconds: How long to wait for the one that follows.
            do: What to do.

        Raises:
            RpcError: what `do` raises; CompletedError if the workflow does not continue.
        """
        while True:
            try:
                return await do(entry)
            except CompletedError:
                if execution.run_id:
                    raise
                meant = WorkflowExecution(workflow_id=entry.workflow_id)
                after = await self.reach(entry.namespace, meant, seconds)
                if after.uid == entry.uid or after.first_uid != entry.first_uid:
                    raise
                entry = after

    async def has_begun(self, run_id: str, seconds: float) -> bool:
        """Whether a run has begun, or never will; waited for."""

        def so() -> bool:
            entry, run = self.manager.directory.get(run_id), self.manager.runs.get(run_id)
            waits = entry is not None and entry.standing is Standing.WAITING and not (run and run.unrecorded)
            return not waits or bool(self._damage(run_id))

        return await self.wait_until(run_id, so, seconds)

    async def view(self, entry: Entry, followed: Run | None = None) -> View:
        """A run as it is recorded; a start that waits for the first decision is recorded for that.

        Args:
            entry: The run.
            followed: The run as this process had it while it was open: if it has closed since, nothing is read.

        Raises:
            RpcError: it is gone, or the API server cannot be asked.
        """
        if followed is not None and followed.state is not None and followed.state.closed and not followed.gone:
            return View(entry, followed.object, followed.state)
        await self.wait_until(entry.uid, partial(self._is_taken_up, entry.uid), _RECORDED_WITHIN)
        if self.manager.runs.record_start(entry):
            recorded = partial(self._is_recorded, entry.uid)
            if not await self.wait_until(entry.uid, recorded, _RECORDED_WITHIN):
                raise unavailable("the start of the workflow was not recorded yet; it will be as soon as it can")
        return await self.view_of_worker(entry)

    def _is_taken_up(self, run_id: str) -> bool:
        """Whether a run has started here, or its status says why it has not."""
        run = self.manager.runs.get(run_id)
        if run is None or run.gone or run.state is not None:
            return True
        return bool((run.object.get("status") or {}).get("conditions"))

    def _is_recorded(self, run_id: str) -> bool:
        run = self.manager.runs.get(run_id)
        return run is None or run.gone or not run.unrecorded

    async def view_of_worker(self, entry: Entry) -> View:
        """A run as a worker that takes its task sees it, with a start that is not recorded yet.

        Raises:
            RpcError: it is gone, or the API server cannot be asked.
        """
        run = self.manager.runs.get(entry.uid)
        if run is not None and run.state is not None:
            return View(entry, run.object, run.state, run.unrecorded)
        try:
            url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
            obj = await self.manager.client.get(url)
            if obj["metadata"]["uid"] != entry.uid:
                raise _gone(entry)
            return View(entry, obj, stored_state(obj.get("status") or {}))
        except kube.NotFoundError:
            raise _gone(entry) from None
        except (kube.ApiError, *kube.TRANSIENT) as error:
            raise unavailable(str(error)) from error
        except DamagedStateError as error:
            raise damaged(str(error)) from error

    async def history(self, view: View, first: int = 1) -> tuple[ev.AnyEvent, ...]:
        """The history of a run from an event on; where its beginning is sealed, that is read too.

        Raises:
            RpcError: the API server cannot be asked, or something of it is missing.
        """
        if view.start:
            return tuple(view.start[first - 1 :])
        events, begins = view.tail, view.unsealed
        if first < begins:
            try:
                past = await past_of(self.manager.client, view.object)
            except (kube.ApiError, *kube.TRANSIENT) as error:
                raise unavailable(str(error)) from error
            if past.damage:
                raise damaged(past.damage[0].message)
            events, begins = past.events, 1
        return history.decode_events(events[max(first - begins, 0) :])

    async def last(self, view: View) -> ev.AnyEvent:
        """The last event of a run that has begun.

        Raises:
            RpcError: as `history`.
        """
        assert view.state is not None
        return (await self.history(view, view.state.next_event_id - 1))[-1]

    async def open_run(self, entry: Entry) -> Run:
        """A run that can be asked something; it may have closed.

        Raises:
            RpcError: it is gone, or the API server cannot be asked.
        """
        try:
            run = await self.manager.runs.find(entry)
        except (kube.ApiError, *kube.TRANSIENT) as error:
            raise unavailable(str(error)) from error
        if run is None:
            raise _gone(entry)
        return run

    # Asking

    async def ask(self, entry: Entry, request: inputs.Request) -> Answer:
        """Ask a run for something; its answer, once that is recorded. One that is damaged refuses."""
        answers: list[Answer] = []

        def told(given: Answer) -> None:
            answers.append(given)
            self.changed(entry.uid)

        with suppress(kube.ApiError, *kube.TRANSIENT):  # then it is asked again and again
            await self.manager.runs.find(entry)
        if not self._damage(entry.uid):  # or it would be done when that is repaired
            self.manager.runs.ask(entry, request, told)
        await self.wait_until(entry.uid, lambda: bool(answers or self._damage(entry.uid)), None)
        if not answers:
            self.manager.runs.withdraw(entry.uid, request.request_id)
            return Answer(ok=False, reason=_DAMAGED, message=self._damage(entry.uid))
        return answers[0]

    def _damage(self, run_id: str) -> str:
        """Why a run with a damaged status does not continue; empty for a run that continues."""
        run = self.manager.runs.get(run_id)
        if run is None or run.state is not None:
            return ""
        return message_of(run.object.get("status") or {}, ConditionReason.STATE_DAMAGED)

    async def demand(self, entry: Entry, request: inputs.Request) -> Answer:
        """Ask a run for something that it must do.

        Raises:
            RpcError: it does not; CompletedError where it has closed before, also if that is all that was wanted.
        """
        answer = await self.ask(entry, request)
        if not answer.ok or answer.reason == inputs.CLOSED:
            raise refusal(answer)
        return answer

    @asynccontextmanager
    async def storing_details(self, entry: Entry, scheduled_event_id: int, details: object) -> AsyncIterator[None]:
        """Store large heartbeat details before the block that gives them to a run, and remove those before, after it.

        Heartbeats cost no commit: the details would stay in memory for as long as none comes. Those that a commit has
        recorded stay.

        Args:
            entry: The run.
            scheduled_event_id: Of the activity.
            details: As JSON, or a reference that has its bytes.
        """
        run, reference = self.manager.runs.get(entry.uid), next(with_content(details), None)
        if reference is None or run is None or run.state is None or run.state.code is None:
            yield
            return
        owned_by, store = owner(entry.name, entry.uid), self.manager.blobs
        activity = run.state.activity(scheduled_event_id)
        before = reference_in(activity.heartbeat_details) if activity is not None else None
        saved = await store.save(entry.namespace, reference, owned_by)
        try:
            yield
        except RpcError:
            if saved is not None:
                await store.remove(entry.namespace, saved)
            raise
        store.cache.put(entry.namespace, reference.name, reference.content or b"")
        reference.content, reference.version = None, saved
        old = before.version if isinstance(before, Reference) else None
        if isinstance(old, Saved) and old.name not in referred_to(encoded(run.object.get("status") or {})):
            await store.remove(entry.namespace, old)

    # Waiting

    def changed(self, run_id: str) -> None:
        """A run has come to a new state."""
        for waiting in self._waiting.pop(run_id, set()):
            if not waiting.done():
                waiting.set_result(None)

    @contextmanager
    def next_change(self, run_id: str) -> Iterator[asyncio.Future[None]]:
        """Gives what is done once a run has come to a new state, or has gone."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(changed)
        try:
            yield changed
        finally:
            self._waiting.get(run_id, set()).discard(changed)

    async def wait_until(self, run_id: str, so: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until something is so of a run, looked at whenever it changes; whether it is. `seconds` None: for ever."""
        try:
            async with asyncio.timeout(seconds):
                while not so():
                    with self.next_change(run_id) as changed:
                        await changed
        except TimeoutError:
            return so()
        return True

    def is_closed(self, run_id: str) -> bool:
        """Whether a run has closed, or is gone."""
        run = self.manager.runs.get(run_id)
        if run is not None and run.state is not None:
            return run.state.closed or run.gone
        entry = self.manager.directory.get(run_id)
        return entry is None or entry.standing is Standing.CLOSED

    def run_id_of(self, namespace: str) -> Callable[[str], str]:
        """Finds the run id of a WorkflowRun of a namespace by its name."""

        def find(name: str) -> str:
            entry = self.manager.directory.named(namespace, name)
            return entry.uid if entry is not None else ""

        return find


def not_open(state: RunState) -> RpcError:
    """The error of what only an open standalone activity or Nexus operation can do."""
    return precondition(f"invalid transition from {'Canceled' if state.status == 'Cancelled' else state.status}")


def _gone(entry: Entry) -> RpcError:
    return not_found(_NOT_FOUND[entry.kind].format(entry.workflow_id))


def refusal(answer: Answer) -> RpcError:
    """What a run's refusal is to a client."""
    match answer.reason:
        case ConditionReason.TARGET_NOT_FOUND | inputs.CLOSED:
            return CompletedError()
        case ConditionReason.ACTIVITY_NOT_FOUND | "TaskNotFound":
            return not_found(answer.message)
        case inputs.CLOSING:
            return busy(answer.message)
        case _ if answer.reason == _DAMAGED:
            return damaged(answer.message)
        case _:
            return invalid(answer.message)
