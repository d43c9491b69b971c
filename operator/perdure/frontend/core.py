"""What the services of the frontend share: runs, task queues, updates, queries, and how a run's news reaches them."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payloads
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome

from perdure.controller.directory import Entry
from perdure.controller.payloads.payload_store import LostBlobError
from perdure.controller.workers import Followed
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.history import decode_events
from perdure.engine.state import PendingActivity, PendingOperation, RunState
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend import failures, priorities, routing_events
from perdure.frontend.admission import MessageMemory
from perdure.frontend.deployments import is_registered
from perdure.frontend.direct_calls import DirectCalls
from perdure.frontend.endpoints import EndpointRegistry
from perdure.frontend.errors import RpcError, damaged
from perdure.frontend.given import UNLIMITED
from perdure.frontend.history import Historian, update_request
from perdure.frontend.matching import Destination, Matching, key_of
from perdure.frontend.namespace_registry import NamespaceRegistry
from perdure.frontend.namespaces import DEFAULT
from perdure.frontend.nexus import HandlerCallsOpen
from perdure.frontend.payloads import KnownBlobs, looking_up, payloads, to_json
from perdure.frontend.queries import Queries, Query
from perdure.frontend.queues import Kind, Offer, QueueName
from perdure.frontend.runs import Runs, View
from perdure.frontend.search_attributes import Registry
from perdure.frontend.stored import TASK_QUEUES, WORKER_DEPLOYMENTS
from perdure.frontend.updates import Update, Updates
from perdure.frontend.versions import NOT_READ, Versions, queue_of
from perdure.frontend.visibility import Visibility
from perdure.frontend.workers import KnownWorkers
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.callbacks import UPDATE_LOST

_Made = TypeVar("_Made")
_MEMORY = 128 * 1024 * 1024
"""Bytes of large payloads that are read at the same time; of one namespace half as many."""
_STICKY_SECONDS = 5.0
"""How long a query waits for the worker that has the workflow in memory."""
_WORKERS_COME_WITHIN = timedelta(seconds=30)
"""After a restart of the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the administrator of the operator decides."""

    authentication: bool = True
    """Whether callers show a token of Kubernetes. Without, the address has to be a loopback one."""
    audience: str = "perdure.dev/temporal"
    """That the tokens of callers must be for."""
    cluster_tokens: bool = False
    """Whether tokens for the API server are accepted, too."""
    in_the_clear: bool = False
    """Whether there may be no TLS at an address that others reach."""
    certificate: str = ""
    """Path of the TLS certificate, PEM; empty: there is no such file."""
    key: str = ""
    """Path of its key, PEM."""
    namespace: str = ""
    """The operator's."""
    secret: str = ""
    """Name of the Secret where the operator stores a certificate of its own; empty: it makes none."""
    names: tuple[str, ...] = ()
    """DNS names and IP addresses in that certificate."""
    authorities: str = ""
    """Name of the ConfigMaps with the authorities that clients should trust; empty: there are none."""
    publish: bool = True
    """Whether there is one in each namespace that is served, not only in the operator's."""
    client_authority: str = ""
    """Path of the authorities of clients' certificates, PEM; empty: clients need none."""
    http_address: str = ""
    """Where Temporal's HTTP API is served; empty: it is not."""
    member: str = ""
    """The name of this member of the fleet."""
    peer_address: str = ""
    """Where other members of the fleet forward RPCs to; empty: there are none."""
    peer_audience: str = "perdure.dev/fleet"
    """That the tokens of other members must be for."""
    peer_token: str = ""
    """Path of a token for that audience."""
    max_connections: int = 1_000
    """Connections at the same time, of gRPC and as many of HTTP; more are closed as they come."""
    suggest_events: int = 4_096
    """Events of a history from which on workers get the suggestion to continue as new."""


class Core:
    """The state of the frontend. Nothing in it is needed after a restart."""

    runs: Runs

    def __init__(self, settings: Settings = Settings()) -> None:
        self.settings = settings
        self.epoch = uuid.uuid4().hex
        self._begun = now()
        self.matching = Matching()
        self.queues = self.matching.queues
        self.workers = KnownWorkers(self.queues)
        self.updates = Updates()
        self.queries = Queries()
        self.visibility = Visibility()
        self.registry = Registry(lambda: self.runs.manager.client, self.visibility.coded_types)
        self.endpoints = EndpointRegistry(lambda: self.runs.manager.client, settings.namespace or DEFAULT)
        self.deployments = NamespaceRegistry(
            WORKER_DEPLOYMENTS,
            lambda: self.runs.manager.client,
            self._route_again,
            written=lambda *change: routing_events.report(self.runs.manager.recorder, *change),
        )
        self.task_queues = NamespaceRegistry(TASK_QUEUES, lambda: self.runs.manager.client, self._configure_queues)
        self.versions = Versions(self.deployments, self.matching, self.pinned_versions)
        self.calls = HandlerCallsOpen(self)
        self.direct_calls = DirectCalls(self.matching)
        self._memory = MessageMemory(_MEMORY)
        self._tasks: set[asyncio.Task[None]] = set()
        self.reserved: set[tuple[str, str]] = set()
        """Namespaces and names of runs whose first task no worker gets yet: it is for their client, or waits for an update."""

    # From the controller

    def follow(self, run: Followed) -> None:
        """A run has come to a new state."""
        state, run_id = run.state, run.ref.uid
        if not self.runs.manager.shards.holds(run.ref.namespace, run.ref.workflow_id):
            self.runs.changed(run_id)  # it is a guest: its owner follows it
            return
        if state is None or state.closed or run.gone:
            self.matching.settle(run_id, {})
        else:
            self.matching.settle(run_id, self._offers(run, state, now()))
            if run.unrecorded:
                self.visibility.started(run_id, state.start_time)
        self.calls.follow(run, None if run.gone else state)
        if state is not None and state.closed:
            self._end_updates(run, state)
        if run.gone:
            self._abort(run_id)
        self.runs.changed(run_id)

    def left(self, run: Followed) -> None:
        """This process no longer works on a run: another member of the fleet does."""
        run_id = run.ref.uid
        self.matching.settle(run_id, {})
        self.calls.follow(run, None)
        self.updates.leave(run_id)
        self.queries.leave(run_id)

    def _route_again(self, namespace: str) -> None:
        """The worker deployments of a namespace have changed: what waits in task queues may go to other versions."""
        for run in self.runs.manager.runs.all():
            if run.ref.namespace == namespace:
                self.follow(run)

    def _configure_queues(self, namespace: str) -> None:
        """The settings of task queues of a namespace have changed."""
        self.queues.configure(namespace, self.task_queues.known(namespace))

    async def polled_queue(self, name: QueueName, options: Any, *, sticky: bool = False) -> QueueName:
        """Return the part of a task queue that a worker polls, once the settings of the task queue are known.

        Args:
            name: The task queue.
            options: The deployment options of the worker.
            sticky: Whether that is the queue of this one worker.

        Raises:
            RpcError: the options are invalid, there are too many versions, or the API server does not answer.
        """
        queue = await self.versions.polled_queue(name, options, sticky=sticky)
        with suppress(RpcError):  # tasks continue at the last known rate
            await self.task_queues.load(name.namespace)
        return queue

    def pinned_versions(self, namespace: str) -> set[DeploymentVersion]:
        """The versions that open workflows of a namespace are pinned to."""
        pinned = {
            run.state.code.versioning.pinned_to
            for run in self.runs.manager.runs.all()
            if run.ref.namespace == namespace and run.state and run.state.code and not run.state.closed
        }
        return {version for version in pinned if version is not None}

    def seen(self, obj: kube.Object, *, deleted: bool) -> None:
        """A WorkflowRun is there, has changed, or is gone."""
        self.visibility.seen(obj, deleted=deleted)
        if not hasattr(self, "runs"):
            return
        run_id = obj["metadata"]["uid"]
        if deleted:
            self.matching.settle(run_id, {})
            self._abort(run_id)
        self.runs.changed(run_id)

    def forget_tasks(self) -> None:
        """Other members own the shards of this one: no workflow task that it has handed out counts anymore."""
        self.epoch = uuid.uuid4().hex

    async def reload(self, namespace: str) -> None:
        """Read the settings of a namespace again, which another member has changed, or the Nexus endpoints."""
        self.endpoints.expire()
        if namespace:
            self.registry.expire(namespace)
            for each in (self.deployments, self.task_queues):
                with suppress(RpcError):
                    await each.reload(namespace)

    def _abort(self, run_id: str) -> None:
        """A run was deleted: nobody will answer what waits for it."""
        self.updates.abort(run_id)
        self.queries.abort(run_id)

    def version_of(self, namespace: str, state: RunState, activity: PendingActivity | None = None) -> str:
        """The version whose workers get a run's workflow task, or an activity of it; empty: unversioned ones, or not known."""
        versions = self.versions
        found = versions.of_activity(namespace, state, activity) if activity else versions.of_task(namespace, state)
        return str(found) if found is not None and found != NOT_READ else ""

    async def has_task_queue(self, namespace: str, task_queue: str, version: DeploymentVersion) -> bool:
        """Whether workers of a version decide workflows of a task queue.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not respond.
        """
        return is_registered(await self.deployments.read(namespace), version, Kind.WORKFLOW, task_queue)

    def polled(self, namespace: str, task_queue: str, *, activities: bool = False, version: str = "") -> bool:
        """Whether a worker asks for workflow tasks of a task queue, or did a moment ago; or has not had the time to.

        One that does as many activities as it can asks for none until one of them is done: it is known for minutes.
        """
        if now() < self._begun + _WORKERS_COME_WITHIN:
            return True
        queue = QueueName(namespace, Kind.ACTIVITY if activities else Kind.WORKFLOW, task_queue, version)
        return self.matching.alive(queue) or (activities and self.matching.has_pollers(queue))

    def handled(self, namespace: str, operation: PendingOperation) -> bool:
        """Whether a worker asks for calls of an operation's endpoint, or did a moment ago; or has not had the time to.

        Reveals nothing about an endpoint that does not admit the namespace, or that was not read yet.
        """
        endpoint = self.endpoints.known(operation.endpoint_id, operation.endpoint)
        if now() < self._begun + _WORKERS_COME_WITHIN or endpoint is None or not endpoint.admits(namespace):
            return True
        return self.matching.alive(QueueName(endpoint.namespace, Kind.NEXUS, endpoint.task_queue))

    def _offers(self, run: Followed, state: RunState, time: datetime) -> dict[Offer, Destination]:
        namespace, run_id = run.ref.namespace, run.ref.uid
        offers: dict[Offer, Destination] = {}
        task = state.offered_task()
        if state.code is not None and task is not None and (namespace, run.ref.name) not in self.reserved:
            version = self.versions.of_task(namespace, state)
            queue = queue_of(QueueName(namespace, Kind.WORKFLOW, state.code.task_queue), version)
            sticky = task.sticky_queue if version == state.code.versioning.version else ""
            rank = priorities.rank(state.code.priority)
            offers[Offer(run_id, task.scheduled_event_id, task.attempt, rank=rank)] = Destination(queue, sticky)
        inherited = state.code.priority if state.code is not None else None
        queues: dict[str, QueueName] = {}  # one for many activities: each costs a look at all deployments
        for activity in state.offered_activities(time):
            rank = priorities.rank(inherited, activity.priority)
            offer = Offer(run_id, activity.scheduled_event_id, activity.attempt, rank=rank)
            if activity.task_queue not in queues:
                queue = QueueName(namespace, Kind.ACTIVITY, activity.task_queue)
                queues[activity.task_queue] = queue_of(queue, self.versions.of_activity(namespace, state, activity))
            offers[offer] = Destination(queues[activity.task_queue])
        return offers

    # Updates

    async def readmit(self, view: View) -> None:
        """Take in the updates that a reset has brought to a run, and no worker has accepted or rejected."""
        code, run_id = view.state.code if view.state is not None else None, view.entry.uid
        admitted = code.admitted if code else {}
        wanted = {name: event_id for name, event_id in admitted.items() if self.updates.get(run_id, name) is None}
        for event in await self.runs.history(view, min(wanted.values())) if wanted else ():
            if isinstance(event, ev.WorkflowExecutionUpdateAdmitted) and event.update_id in wanted:
                request = await self.whole(view.entry.namespace, partial(update_request, event))
                self.updates.admit(run_id, event.update_id, request, event.principal)

    def _end_updates(self, run: Followed, state: RunState) -> None:
        """A run has closed: accepted updates that have not ended fail, and the others get an answer."""
        records = state.code.updates if state.code else {}
        for update in self.updates.open(run.ref.uid):
            record = records.get(update.update_id)
            if record is None:
                update.abort()
            elif record.completed_event_id:
                event = next((e for e in self.tail_of(run) if e.event_id == record.completed_event_id), None)
                if isinstance(event, ev.WorkflowExecutionUpdateCompleted):
                    self._spawn(self._end_update(run.ref.namespace, update, event))
            else:
                update.end(Outcome(failure=failures.to_proto(UPDATE_LOST)))

    async def _end_update(self, namespace: str, update: Update, event: ev.WorkflowExecutionUpdateCompleted) -> None:
        """Tell what an update has come to. If that cannot be read now, clients ask again."""
        try:
            update.end(await self.whole(namespace, lambda: outcome_of(event)))
        except (RpcError, kube.ApiError, *kube.TRANSIENT):
            update.abort()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="end of an update")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @staticmethod
    def tail_of(run: Followed) -> tuple[ev.AnyEvent, ...]:
        """The end of the history of a run that this process works on."""
        return decode_events(run.object["status"]["history"]["events"])

    # Large payloads

    async def whole(self, namespace: str, make: Callable[[], _Made], most: int = UNLIMITED) -> _Made:
        """What is made of a run's state or events, with the large payloads in it.

        Args:
            namespace: Of the run.
            make: Makes it; called again once what it needs was read.
            most: Bytes of large payloads that it may have in all; others stay empty.

        Raises:
            RpcError: one is gone.
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part.
        """
        known = KnownBlobs(most=most)
        while True:
            known.missing.clear()
            with looking_up(known):
                made = make()
            if not known.missing:
                return made
            async with self._memory.hold(namespace, min(known.missing_bytes, _MEMORY // 2)):
                for name, reference in known.missing.items():
                    try:
                        known.contents[name] = await self.runs.manager.blobs.load(namespace, reference)
                    except LostBlobError as error:
                        raise damaged(str(error)) from error

    async def page(self, namespace: str, events: Sequence[ev.AnyEvent], *, by_step: bool = False) -> list[HistoryEvent]:
        """As many of the events, from the first on, as fit into one answer; as Temporal's.

        `by_step` as for `Historian`.
        """
        return await self.whole(namespace, lambda: self.historian(namespace, by_step=by_step).page(events))

    def inlined(self, content: bytes) -> object:
        """A large payload as a value of its own, for those who read JSON.

        Raises:
            UnfitError: it is too large for that.
        """
        found: object = to_json(Payloads.FromString(content).payloads)
        return found

    def historian(self, namespace: str, *, by_step: bool = False) -> Historian:
        """Turns histories of a namespace into Temporal's; `by_step` as there."""
        return Historian(namespace, self.runs.run_id_of(namespace), by_step=by_step)

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        """The search attributes that filters can name in a namespace: those of its runs, and those that are registered."""
        return {**self.visibility.attribute_types(namespace), **await self.registry.types(namespace)}

    # Queries

    def dispatch_query(self, entry: Entry, query: Query) -> None:
        """Have a worker answer a query: with the workflow task that is due, or by itself."""
        run = self.runs.manager.runs.get(entry.uid)
        state = run.state if run is not None else None
        code = state.code if state is not None else None
        if state is not None and code is not None and not state.closed:
            if code.task is not None and not code.deciding:
                query.attached = True
                return
            if code.deciding or not code.previous_started_event_id:
                query.attached = True  # goes with the next task or, where none follows, by itself after this one
                return
        query.attached = False
        version = self.versions.of_task(entry.namespace, state) if state is not None else self._version_of_closed(entry)
        sticky_queue = ""
        if code is not None and version == code.versioning.version:
            sticky_queue = code.sticky_queue
        self._offer_query(entry, query, sticky_queue, version)

    def _version_of_closed(self, entry: Entry) -> DeploymentVersion | None:
        """Return the version whose workers answer queries about a closed run."""
        record = self.visibility.get(entry.namespace, entry.uid)
        if record is None:
            return None
        return self.versions.of_closed(
            record.namespace, record.task_queue, record.workflow_id, record.search_attributes
        )

    def _offer_query(self, entry: Entry, query: Query, sticky_queue: str, version: DeploymentVersion | None) -> None:
        record = self.visibility.get(entry.namespace, entry.uid)
        normal = QueueName(entry.namespace, Kind.WORKFLOW, record.task_queue if record is not None else "")
        normal = queue_of(normal, version)
        offer = Offer(entry.uid, query=query.query_id)
        key = key_of(offer)
        self.matching.settle(key, {offer: Destination(normal, sticky_queue)})
        query.answer.add_done_callback(lambda _: self.matching.settle(key, {}))
        if sticky_queue:
            asyncio.get_running_loop().call_later(_STICKY_SECONDS, self._leave_sticky, query, offer, normal)

    def _leave_sticky(self, query: Query, offer: Offer, normal: QueueName) -> None:
        if not query.answer.done():
            self.matching.settle(key_of(offer), {offer: Destination(normal)})

    def release(self, namespace: str, name: str) -> None:
        """Let any worker have the first task of a run, if it was reserved."""
        if (namespace, name) not in self.reserved:
            return
        self.reserved.discard((namespace, name))
        entry = self.runs.manager.directory.named(namespace, name)
        run = self.runs.manager.runs.get(entry.uid) if entry is not None else None
        if run is not None:
            self.follow(run)

    def want_task(self, run: Followed) -> None:
        """Have a worker asked soon: an update waits for it."""
        entry = self.runs.manager.directory.get(run.ref.uid)
        if entry is not None:
            self.runs.manager.runs.ask(entry, inputs.TaskWanted(request_id=uuid.uuid4().hex), lambda _: None)


def outcome_of(event: ev.WorkflowExecutionUpdateCompleted) -> Outcome:
    """What an update has come to."""
    if event.failure is not None:
        return Outcome(failure=failures.to_proto(event.failure))
    outcome = Outcome()
    outcome.success.SetInParent()
    found = payloads(event.result)
    if found is not None:
        outcome.success.CopyFrom(found)
    return outcome
