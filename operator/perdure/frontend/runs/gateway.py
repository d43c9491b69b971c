"""The runs of this operator, as RPCs see them: find and read them, pass requests to them, and wait for changes.

Large payloads are stored separately from runs, and read for messages to clients and workers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import grpc
import msgspec
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent

from perdure.api.phases import RunKind
from perdure.api.reasons import ConditionReason
from perdure.archive.rows import (
    EMPTY,
    Archive,
    ArchiveRejectedError,
    ArchiveUnavailableError,
    omitted_bytes,
    payloads_of,
)
from perdure.controller.directory import Directory, Entry, Standing, entry_of
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.payloads import Blobs, LostBlobError
from perdure.controller.reconcile.newer_states import NewerStateError, message_for, reported
from perdure.controller.recorded_state import DamagedStateError, stored_state
from perdure.controller.runs.run import Run
from perdure.controller.runs.status import message_of
from perdure.controller.runs.store import past_of
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.inputs import Answer
from perdure.engine.state import Code, RunState
from perdure.engine.versioning import DeploymentVersion
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
from perdure.frontend.matching.dispatch import Throttle
from perdure.frontend.messages import values
from perdure.frontend.messages.histories import Historian
from perdure.frontend.messages.payloads import KnownBlobs, resolved
from perdure.frontend.messages.values import UNLIMITED
from perdure.frontend.transport.door import MessageMemory
from perdure.kube import client as kube
from perdure.kube.paths import escaped

NO_RUN = {
    RunKind.WORKFLOW: "workflow not found for ID: {}",
    RunKind.ACTIVITY: "activity not found for ID: {}",
    RunKind.NEXUS_OPERATION: "nexus operation not found for ID: {}",
}
_STANDALONE_IDS = {
    RunKind.ACTIVITY: ("activity ID", "invalid run id: must be a valid UUID"),
    RunKind.NEXUS_OPERATION: ("operation_id", "run_id is not a valid UUID"),
}
"""Temporal's name of the ID, and its message for a run ID that cannot be one (chasm/lib/activity, chasm/lib/nexusoperation)."""
_RECORDED_WITHIN = 20.0
"""How long a client waits for the record of a workflow's start, in seconds."""
_LOOKUPS_PER_SECOND: Final = 20.0
"""The most lookups per second in a namespace, so that requests for nonexistent runs do not burden the API server."""
_ALL_AT_ONCE: Final = "0"
"""The `limit` of a list without pages, which the API server serves from its cache, and not from etcd."""
_MEMORY = 128 * 1024 * 1024
"""Maximum size of large payloads that are read concurrently, in bytes; one namespace gets at most half of it."""
_Message = TypeVar("_Message")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class View:
    """The recorded state of a run."""

    entry: Entry
    object: kube.Object
    state: RunState | None
    """The state; None before the run has begun."""
    start: Sequence[ev.AnyEvent] = ()
    """The whole history of a run whose start is not recorded yet; only workers see it."""
    payloads: Mapping[str, bytes] = field(default_factory=dict)
    """The large payloads of an archived run, by name; those of a run in the cluster are read when they are needed."""

    @property
    def tail(self) -> list[kube.Object]:
        """The unsealed end of the history, as JSON."""
        found: list[kube.Object] = ((self.object.get("status") or {}).get("history") or {}).get("events") or []
        return found

    @property
    def by_step(self) -> bool:
        """Whether the IDs in its events are paths of steps, because it runs a Workflow."""
        return self.state is not None and not self.state.for_clients

    @property
    def unsealed(self) -> int:
        """The ID of the first unsealed event, or of the next event if all are sealed."""
        if self.tail:
            begins: int = self.tail[0]["eventId"]
            return begins
        return self.state.next_event_id if self.state is not None else 1


class RunChanges:
    """Lets callers wait for changes of runs."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """The futures of the callers that wait for a change of a run, in order."""

    def changed(self, run_id: str) -> None:
        """Notify the callers that wait for a change of a run."""
        for waiting in self._waiting.pop(run_id, {}):
            if not waiting.done():
                waiting.set_result(None)

    @contextmanager
    def next_change(self, run_id: str) -> Iterator[asyncio.Future[None]]:
        """Return a future that is done once a run has changed or was deleted."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, {})[changed] = None
        try:
            yield changed
        finally:
            waiting = self._waiting.get(run_id, {})
            waiting.pop(changed, None)
            if not waiting:
                self._waiting.pop(run_id, None)

    async def wait_until(self, run_id: str, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until a condition holds, and return whether it does. It is checked at each change of the run. None: no limit."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    with self.next_change(run_id) as changed:
                        await changed
        except TimeoutError:
            return condition()
        return True


class RunGateway:
    """The runs of this operator."""

    def __init__(
        self, client: kube.Client, directory: Directory, open_runs: WorkflowRuns, archive: Archive | None = None
    ) -> None:
        """Create the gateway.

        Args:
            client: Reads the runs that are not in memory.
            directory: The entries of all runs.
            open_runs: The runs that this process works on; they get the requests.
            archive: Has finished runs that are no longer in the cluster; None without an archive.
        """
        self.archive = archive
        """Has finished runs that are no longer in the cluster; None without an archive."""
        self._client = client
        self._directory = directory
        self._open_runs = open_runs
        self._lookup = _RunLookup(client, directory, open_runs)
        self.changes = RunChanges()

    # Known runs

    def state(self, run_id: str) -> RunState | None:
        """Return the state of a run that this process has in memory and that has started."""
        run = self._open_runs.get(run_id)
        return run.state if run is not None else None

    def code(self, run_id: str) -> Code | None:
        """Return the part of the state that only a run decided by workers has; None for any other run."""
        state = self.state(run_id)
        return state.code if state is not None else None

    def pinned_versions(self, namespace: str) -> set[DeploymentVersion]:
        """The versions that open workflows of a namespace are pinned to."""
        pinned = {
            run.state.code.versioning.pinned_to
            for run in self._open_runs.all()
            if run.ref.namespace == namespace and run.state and run.state.code and not run.state.closed
        }
        return {version for version in pinned if version is not None} | set(
            self._open_runs.hibernation.pinned(namespace)
        )

    def is_closed(self, run_id: str) -> bool:
        """Whether a run has closed or was deleted."""
        run = self._open_runs.get(run_id)
        if run is not None and run.state is not None:
            return run.state.closed or run.deleted
        entry = self._directory.get(run_id)
        return entry is None or entry.standing is Standing.CLOSED

    # Find

    async def catch_up(self, namespace: str) -> None:
        """Ensure that all runs of a namespace are known that existed when this operator last gained shards.

        Raises:
            RpcError: The API server does not respond.
        """
        try:
            await self._open_runs.catch_up(namespace)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    async def find(self, namespace: str, execution: WorkflowExecution, *, first_run_id: str = "") -> Entry:
        """Find a run by run ID, or the newest run of a workflow ID.

        Raises:
            RpcError: The run does not exist, or the API server does not respond.
        """
        if not execution.workflow_id and not execution.run_id:
            raise invalid("WorkflowId is not set on request.")
        if execution.run_id and not values.is_uuid(execution.run_id):
            raise invalid("Invalid RunId.")
        entry = self._known(namespace, execution)
        if entry is None and await self._lookup.find(namespace, execution.workflow_id):
            entry = self._known(namespace, execution)
        if entry is None:
            raise not_found(NO_RUN[RunKind.WORKFLOW].format(execution.workflow_id))
        if first_run_id and entry.first_uid != first_run_id:
            raise not_found("workflow execution not found: the newest run belongs to another chain")
        await self._awaken(entry)
        return entry

    async def _awaken(self, entry: Entry) -> None:
        """Read a hibernated run, because a client asks for it.

        Raises:
            RpcError: The API server does not respond.
        """
        if entry.uid not in self._open_runs.hibernation:
            return
        try:
            await self._open_runs.find(entry)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    def _known(self, namespace: str, execution: WorkflowExecution) -> Entry | None:
        if not execution.run_id:
            return self._directory.newest(namespace, execution.workflow_id)
        entry = self._directory.get(execution.run_id)
        if entry is None or entry.namespace != namespace or entry.kind.standalone:
            return None
        return entry if execution.workflow_id in {"", entry.workflow_id} else None

    def find_standalone(self, kind: RunKind, namespace: str, named: str, run_id: str) -> Entry:
        """Find a standalone activity or Nexus operation by its run ID, or the newest of an ID.

        Raises:
            RpcError: It does not exist, or an ID cannot be one.
        """
        what, malformed = _STANDALONE_IDS[kind]
        if not named:
            raise invalid(f"{what} is required")
        check_length(named, what)
        if run_id and not values.is_uuid(run_id):
            raise invalid(malformed)
        known = self._directory
        entry = known.get(run_id) if run_id else known.newest(namespace, named, kind=kind)
        if entry is None or (entry.kind, entry.namespace, entry.workflow_id) != (kind, namespace, named):
            raise not_found(NO_RUN[kind].format(named))
        return entry

    async def find_activity(self, request: Any) -> Entry:
        """Find the run of an activity that a request names: a workflow or, without a workflow ID, a standalone activity.

        Raises:
            RpcError: The run does not exist, or the API server does not respond.
        """
        if request.workflow_id:
            execution = WorkflowExecution(workflow_id=request.workflow_id, run_id=request.run_id)
            return await self.find(request.namespace, execution)
        return self.find_standalone(RunKind.ACTIVITY, request.namespace, request.activity_id, request.run_id)

    async def reach(
        self, namespace: str, execution: WorkflowExecution, seconds: float, *, first_run_id: str = ""
    ) -> Entry:
        """Find a run like `find`. If it has closed and continues in a run that has not started yet, wait for that run.

        Raises:
            RpcError: The run does not exist, or the next run does not start in time.
        """
        gap = partial(self._directory.gap, namespace, execution.workflow_id)

        def bridged(before: Entry) -> bool:
            return gap() is not before

        while not execution.run_id and (before := gap()) is not None:
            if not await self.changes.wait_until(before.uid, partial(bridged, before), seconds):
                raise unavailable("the workflow continues in another run, which does not exist yet")
        entry = await self.find(namespace, execution, first_run_id=first_run_id)
        if entry.continues:
            await self.has_started(entry.uid, seconds)
        return entry

    async def follow_chain(
        self, entry: Entry, execution: WorkflowExecution, seconds: float, do: Callable[[Entry], Awaitable[_Result]]
    ) -> _Result:
        """Do something with a run or, if it closes first and continues in another run, with that run.

        Args:
            entry: The run.
            execution: The execution from the client. A run ID selects only that run.
            seconds: How long to wait for the next run.
            do: The function to call.

        Raises:
            RpcError: `do` raised it, or the workflow does not continue (CompletedError).
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

    async def has_started(self, run_id: str, seconds: float) -> bool:
        """Wait until a run has started or can never start, and return whether it has started."""

        def is_decided() -> bool:
            entry, run = self._directory.get(run_id), self._open_runs.get(run_id)
            waits = entry is not None and entry.standing is Standing.WAITING and not (run and run.unrecorded)
            return not waits or self.unreadable(run_id) is not None

        return await self.changes.wait_until(run_id, is_decided, seconds)

    # Read

    async def archived(self, namespace: str, execution: WorkflowExecution, error: RpcError) -> View:
        """Return a workflow run from the archive, because it was not found in the cluster.

        Args:
            namespace: The namespace.
            execution: The run, or a workflow ID for its newest run.
            error: Why it was not found. It is raised if the archive does not have the run.

        Raises:
            RpcError: The archive does not have the run, or cannot be used.
        """
        found = await self._archived(RunKind.WORKFLOW, namespace, execution, error)
        if size := omitted_bytes(found):
            raise damaged(
                f"the history of this run has {size:,} bytes: too large for the archive, which has only its summary"
            )
        try:
            return View(entry_of(found), found, stored_state(found), payloads=payloads_of(found))
        except DamagedStateError as wrong:
            raise damaged(str(wrong)) from wrong
        except NewerStateError as wrong:
            raise unavailable(message_for(str(wrong))) from wrong

    async def _archived(
        self, kind: RunKind, namespace: str, execution: WorkflowExecution, error: RpcError
    ) -> kube.Object:
        if self.archive is None or error.code is not grpc.StatusCode.NOT_FOUND:
            raise error
        try:
            found = await self.archive.find(namespace, kind, execution.workflow_id, execution.run_id)
        except ArchiveUnavailableError as unavailable_:
            raise unavailable(f"{error.message}; it may be archived, but {unavailable_}") from unavailable_
        except ArchiveRejectedError:
            raise error from None
        if found is None:
            raise error
        return found

    async def view(self, entry: Entry, followed: Run | None = None) -> View:
        """Return the recorded state of a run. A start that waits for the first decision is recorded first.

        Args:
            entry: The run.
            followed: The run in this process while it was open. If it has closed since, nothing is read.

        Raises:
            RpcError: The run was deleted, or the API server does not respond.
        """
        if followed is not None and followed.state is not None and followed.state.closed and not followed.deleted:
            return View(entry, followed.record.latest(), followed.state)
        await self.changes.wait_until(entry.uid, partial(self._has_started_or_failed, entry.uid), _RECORDED_WITHIN)
        if self._open_runs.record_start(entry):
            recorded = partial(self._is_recorded, entry.uid)
            if not await self.changes.wait_until(entry.uid, recorded, _RECORDED_WITHIN):
                raise unavailable("the start of the workflow has not been recorded yet; the operator keeps trying")
        return await self.view_of_worker(entry)

    def _has_started_or_failed(self, run_id: str) -> bool:
        """Whether a run has started here, or its status shows why not."""
        run = self._open_runs.get(run_id)
        if run is None or run.deleted or run.state is not None:
            return True
        return bool(run.record.status.get("conditions"))

    def _is_recorded(self, run_id: str) -> bool:
        run = self._open_runs.get(run_id)
        return run is None or run.deleted or not run.unrecorded

    async def view_of_worker(self, entry: Entry) -> View:
        """Return a run for the worker that takes its task, including a start that is not recorded yet.

        Raises:
            RpcError: The run was deleted, or the API server does not respond.
        """
        run = self._open_runs.get(entry.uid)
        if run is not None and run.state is not None:
            return View(entry, run.record.latest(), run.state, run.unrecorded)
        try:
            obj = await self._client.get(run_url(entry))
            if obj["metadata"]["uid"] != entry.uid:
                raise run_deleted(entry)
            return View(entry, obj, stored_state(obj))
        except kube.NotFoundError:
            raise run_deleted(entry) from None
        except kube.RequestError as error:
            raise unavailable(str(error)) from error
        except DamagedStateError as error:
            raise damaged(str(error)) from error
        except NewerStateError as error:
            raise unavailable(message_for(str(error))) from error

    async def history(self, view: View, first: int = 1) -> tuple[ev.AnyEvent, ...]:
        """Return the history of a run starting at an event, including sealed events.

        Raises:
            RpcError: The API server does not respond, or a part of the history is missing.
        """
        if view.start:
            return tuple(view.start[first - 1 :])
        events, begins = view.tail, view.unsealed
        if first < begins:
            try:
                past = await past_of(self._client, view.object)
            except kube.RequestError as error:
                raise unavailable(str(error)) from error
            except NewerStateError as error:
                raise unavailable(message_for(str(error))) from error
            if past.damage:
                raise damaged(past.damage[0].message)
            events, begins = past.events, 1
        try:
            return history.decode_events(events[max(first - begins, 0) :])
        except msgspec.ValidationError as error:
            raise unavailable(message_for(f"its history: {error}")) from error

    async def last(self, view: View) -> ev.AnyEvent:
        """Return the last event of a run that has begun.

        Raises:
            RpcError: As for `history`.
        """
        assert view.state is not None
        return (await self.history(view, view.state.next_event_id - 1))[-1]

    # Request

    async def request(self, entry: Entry, request: inputs.Request) -> Answer:
        """Pass a request to a run, and return its answer once the answer is recorded. A run that cannot be read rejects it."""
        answers: list[Answer] = []
        refused: Answer | None = None

        def answered(answer: Answer) -> None:
            answers.append(answer)
            self.changes.changed(entry.uid)

        def is_settled() -> bool:
            nonlocal refused
            refused = self.unreadable(entry.uid)
            return bool(answers) or refused is not None

        with suppress(kube.RequestError):  # the queue then retries
            await self._open_runs.find(entry)
        if not is_settled():  # otherwise, the request would be processed after a repair
            self._open_runs.send(entry, request, answered)
        await self.changes.wait_until(entry.uid, is_settled, None)
        if not answers and refused is not None:
            self._open_runs.withdraw(entry.uid, request.request_id)
            return refused
        return answers[0]

    def unreadable(self, run_id: str) -> Answer | None:
        """The answer to requests for a run whose status is damaged, or was written by a newer version; None for other runs."""
        run = self._open_runs.get(run_id)
        if run is None or run.state is not None:
            return None
        status = run.record.status
        damage, newer = message_of(status, ConditionReason.STATE_DAMAGED), reported(status)
        if damage or newer:
            reason = ConditionReason.STATE_DAMAGED if damage else ConditionReason.NEWER_STATE
            return Answer(ok=False, reason=reason.value, message=damage or newer)
        return None

    async def demand(self, entry: Entry, request: inputs.Request) -> Answer:
        """Pass a request to a run, which must accept it.

        Raises:
            RpcError: The run rejected the request; a CompletedError if it had already closed, even if that was requested.
        """
        answer = await self.request(entry, request)
        if not answer.ok or answer.reason == inputs.CLOSED:
            raise refusal(answer)
        return answer

    def send(self, entry: Entry, request: inputs.Request) -> None:
        """Pass a request to a run without waiting for its answer."""
        self._open_runs.send(entry, request, lambda _: None)

    async def delete(self, entry: Entry) -> None:
        """Remove a run with its history from the cluster. This stops an open run."""
        await self._client.delete(run_url(entry), uid=entry.uid)

    async def delete_everywhere(
        self, kind: RunKind, namespace: str, execution: WorkflowExecution, find: Callable[[], Awaitable[Entry]]
    ) -> None:
        """Remove a run with its history from the cluster and from the archive. This stops an open run.

        Args:
            kind: The kind of the run.
            namespace: The namespace.
            execution: The run, or an ID for its newest run.
            find: Finds it in the cluster.

        Raises:
            RpcError: Neither has the run, or the archive cannot be used.
        """
        try:
            entry = await find()
        except RpcError as error:
            entry = entry_of(await self._archived(kind, namespace, execution, error))
        else:
            await self.delete(entry)
        if self.archive is not None:
            try:
                await self.archive.delete(entry.ref)
            except ArchiveUnavailableError as error:
                raise unavailable(f"the run may still be archived: {error}") from error


class _RunLookup:
    """Reads runs that were created a moment ago, such as those of a Schedule that another operator owns."""

    def __init__(self, client: kube.Client, directory: Directory, open_runs: WorkflowRuns) -> None:
        self._client = client
        self._directory = directory
        self._open_runs = open_runs
        self._throttles: dict[str, Throttle] = {}
        """By namespace."""

    async def find(self, namespace: str, workflow_id: str) -> bool:
        """Read the unknown runs of a workflow ID, and return whether there are any.

        Nothing is read without a workflow ID, or if there were too many lookups in the namespace.

        Raises:
            RpcError: The API server does not respond.
        """
        if not workflow_id or not self._admits(namespace):
            return False
        try:
            return await self._read_all(namespace, workflow_id)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    def _admits(self, namespace: str) -> bool:
        throttle = self._throttles.setdefault(namespace, Throttle(_LOOKUPS_PER_SECOND))
        time = asyncio.get_running_loop().time()
        if throttle.wait(time):
            return False
        throttle.count(time)
        return True

    async def _read_all(self, namespace: str, workflow_id: str) -> bool:
        url, found = kube.path(kube.PERDURE, namespace, "workflowruns"), False
        for selected in ("spec.workflowId", "metadata.name"):  # a run without a workflow ID has its name as the ID
            selector = f"{selected}={escaped(workflow_id)}"
            async for page in self._client.lists.versions(url, fieldSelector=selector, limit=_ALL_AT_ONCE):
                for each in page:
                    if self._directory.get(each.uid) is None:
                        found = await self._read(url, each.name) or found
        return found

    async def _read(self, url: str, name: str) -> bool:
        try:
            obj = await self._client.get(f"{url}/{name}")
        except kube.NotFoundError:
            return False
        self._open_runs.add_created(obj)
        return True


class LargePayloads:
    """Reads the large payloads of messages."""

    def __init__(self, blobs: Blobs, directory: Directory) -> None:
        self._blobs = blobs
        self._directory = directory
        self._memory = MessageMemory(_MEMORY, each=_MEMORY // 2)

    async def build(
        self,
        namespace: str,
        make: Callable[[], _Message],
        limit: int = UNLIMITED,
        *,
        payloads: Mapping[str, bytes] = EMPTY,
    ) -> _Message:
        """Build a message from a run's state or events, with the large payloads that it needs.

        Args:
            namespace: Namespace of the run.
            make: Builds the message. It is called again once the payloads were read.
            limit: The total size limit of large payloads in bytes; payloads beyond it stay empty.
            payloads: Large payloads that are known, by name.

        Raises:
            RpcError: A payload does not exist.
            RequestError: The Kubernetes API request failed.
        """
        known = KnownBlobs(dict(payloads), limit=limit)

        async def read() -> None:
            async with self._memory.hold(namespace, min(known.missing_bytes, _MEMORY // 2)):
                for name, reference in known.missing.items():
                    try:
                        known.contents[name] = await self._blobs.load(namespace, reference)
                    except LostBlobError as error:
                        raise damaged(str(error)) from error

        return await resolved(known, make, read)

    async def page(
        self,
        namespace: str,
        events: Sequence[ev.AnyEvent],
        *,
        by_step: bool = False,
        payloads: Mapping[str, bytes] = EMPTY,
    ) -> list[HistoryEvent]:
        """Convert the first events, up to the size limit of a response, to Temporal's events.

        See `Historian` for `by_step`, and `build` for `payloads`.
        """
        historian = self.historian(namespace, by_step=by_step)
        return await self.build(namespace, lambda: historian.page(events), payloads=payloads)

    def historian(self, namespace: str, *, by_step: bool = False) -> Historian:
        """Build a Historian for a namespace."""
        return Historian(namespace, partial(self._directory.run_id_of, namespace), by_step=by_step)


def run_url(entry: Entry) -> str:
    """Return the path of a WorkflowRun in the Kubernetes API."""
    return kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)


def check_length(value: str, what: str) -> None:
    """Check the length of an ID.

    Raises:
        RpcError: The ID is too long; the message is Temporal's.
    """
    if len(value) > values.MAX_ID:
        raise invalid(f"{what} exceeds length limit. Length={len(value)} Limit={values.MAX_ID}")


def run_deleted(entry: Entry) -> RpcError:
    """Build the error for a run that was deleted."""
    return not_found(NO_RUN[entry.kind].format(entry.workflow_id))


def not_open(state: RunState) -> RpcError:
    """Build the error for a request that requires an open standalone activity or Nexus operation."""
    return precondition(f"invalid transition from {'Canceled' if state.status == 'Cancelled' else state.status}")


def refusal(answer: Answer) -> RpcError:
    """The error for a client whose request a run rejected."""
    match answer.reason:
        case ConditionReason.TARGET_NOT_FOUND | inputs.CLOSED:
            return CompletedError()
        case ConditionReason.ACTIVITY_NOT_FOUND | "TaskNotFound":
            return not_found(answer.message)
        case inputs.CLOSING:
            return busy(answer.message)
        case ConditionReason.STATE_DAMAGED:
            return damaged(answer.message)
        case ConditionReason.NEWER_STATE:
            return unavailable(answer.message)
        case _:
            return invalid(answer.message)
