"""The shared state of the frontend's services (runs, task queues, updates, queries), which follows the runs."""

import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payloads

from perdure.controller.workers import Followed
from perdure.engine.state import PendingActivity, PendingOperation, RunState
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments import routing_events
from perdure.frontend.deployments.rules import is_registered
from perdure.frontend.deployments.stored import TASK_QUEUES, WORKER_DEPLOYMENTS
from perdure.frontend.deployments.versions import NOT_READ, Versions
from perdure.frontend.errors import RpcError
from perdure.frontend.matching.offers import Matching
from perdure.frontend.matching.queues import Kind, QueueName
from perdure.frontend.messages.payloads import to_json
from perdure.frontend.nexus.calls import HandlerCallsOpen
from perdure.frontend.nexus.direct_calls import DirectCalls
from perdure.frontend.nexus.endpoints import EndpointRegistry
from perdure.frontend.offers import offers_of
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.first_tasks import FirstTasks
from perdure.frontend.runs.gateway import RunGateway
from perdure.frontend.runs.large_payloads import LargePayloads
from perdure.frontend.settings import Settings
from perdure.frontend.transport.namespaces import DEFAULT
from perdure.frontend.visibility.index import Visibility
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.frontend.workers.registry import KnownWorkers
from perdure.frontend.workflows.queries import Queries
from perdure.frontend.workflows.query_dispatch import QueryDispatch
from perdure.frontend.workflows.recorded_updates import RecordedUpdates
from perdure.frontend.workflows.updates import Updates
from perdure.kube import client as kube
from perdure.kube.clock import now

_WORKERS_COME_WITHIN = timedelta(seconds=30)
"""How long workers may take to reconnect after a restart of the operator."""


class Core:
    """The state of the frontend, which is not needed after a restart."""

    runs: RunGateway

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings = settings or Settings()
        self.epoch = uuid.uuid4().hex
        self._begun = now()
        self.matching = Matching()
        self.queues = self.matching.queues
        self.workers = KnownWorkers(self.queues)
        self.updates = Updates()
        self.queries = Queries()
        self.visibility = Visibility()
        self.registry = SearchAttributeRegistry(lambda: self.runs.manager.client, self.visibility.coded_types)
        self.endpoints = EndpointRegistry(lambda: self.runs.manager.client, settings.namespace or DEFAULT)
        self.deployments = NamespaceRegistry(
            WORKER_DEPLOYMENTS,
            lambda: self.runs.manager.client,
            self._route_again,
            written=lambda *change: routing_events.report(self.runs.manager.tools.recorder, *change),
        )
        self.task_queues = NamespaceRegistry(TASK_QUEUES, lambda: self.runs.manager.client, self._configure_queues)
        self.versions = Versions(self.deployments, self.matching, self.pinned_versions)
        self.calls = HandlerCallsOpen(self)
        self.direct_calls = DirectCalls(self.matching)
        self.payloads = LargePayloads(self._attached)
        self.recorded_updates = RecordedUpdates(self.updates, self._attached, self.payloads)
        self.query_dispatch = QueryDispatch(self._attached, self.matching, self.versions, self.visibility)
        self.first_tasks = FirstTasks(self._attached, self.follow)

    def _attached(self) -> RunGateway:
        return self.runs

    # From the controller

    def follow(self, run: Followed) -> None:
        """Process the new state of a run."""
        state, run_id = run.state, run.ref.uid
        if not self.runs.manager.shards.holds(run.ref.namespace, run.ref.workflow_id):
            self.runs.changes.changed(run_id)  # the run is a guest, which its owner follows
            return
        if state is None or state.closed or run.gone:
            self.matching.settle(run_id, {})
        else:
            self.matching.settle(run_id, offers_of(run, state, now(), self.versions, self.first_tasks))
            if run.unrecorded:
                self.visibility.started(run_id, state.start_time)
        self.calls.follow(run, None if run.gone else state)
        if state is not None and state.closed:
            self.recorded_updates.closed(run, state)
        if run.gone:
            self._abort(run_id)
        self.runs.changes.changed(run_id)

    def left(self, run: Followed) -> None:
        """Release a run that another member of the fleet owns now."""
        run_id = run.ref.uid
        self.matching.settle(run_id, {})
        self.calls.follow(run, None)
        self.updates.leave(run_id)
        self.queries.leave(run_id)

    def _route_again(self, namespace: str) -> None:
        """Route waiting tasks again after the worker deployments of a namespace have changed."""
        for run in self.runs.manager.runs.all():
            if run.ref.namespace == namespace:
                self.follow(run)

    def _configure_queues(self, namespace: str) -> None:
        """Apply changed settings of the task queues of a namespace."""
        self.queues.configure(namespace, self.task_queues.known(namespace))

    async def polled_queue(self, name: QueueName, options: Any, *, sticky: bool = False) -> QueueName:
        """Return the part of a task queue that a worker polls, once the settings of the task queue are known.

        Args:
            name: The task queue.
            options: The deployment options of the worker.
            sticky: Whether the queue is the sticky queue of this worker.

        Raises:
            RpcError: The options are invalid, there are too many versions, or the API server does not respond.
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
        """Process the creation, change, or deletion of a WorkflowRun."""
        self.visibility.seen(obj, deleted=deleted)
        if not hasattr(self, "runs"):
            return
        run_id = obj["metadata"]["uid"]
        if deleted:
            self.matching.settle(run_id, {})
            self._abort(run_id)
        self.runs.changes.changed(run_id)

    def forget_tasks(self) -> None:
        """Invalidate all workflow tasks dispatched by this member, because other members own its shards now."""
        self.epoch = uuid.uuid4().hex

    async def reload(self, namespace: str) -> None:
        """Reload settings that another member has changed: the settings of a namespace, or the Nexus endpoints."""
        self.endpoints.expire()
        if namespace:
            self.registry.expire(namespace)
            for each in (self.deployments, self.task_queues):
                with suppress(RpcError):
                    await each.reload(namespace)

    def _abort(self, run_id: str) -> None:
        """Abort requests that wait for a deleted run."""
        self.updates.abort(run_id)
        self.queries.abort(run_id)

    def version_of(self, namespace: str, state: RunState, activity: PendingActivity | None = None) -> str:
        """The version whose workers get a run's workflow task, or one of its activities; empty: unversioned or unknown."""
        versions = self.versions
        found = versions.of_activity(namespace, state, activity) if activity else versions.of_task(namespace, state)
        return str(found) if found is not None and found != NOT_READ else ""

    async def has_task_queue(self, namespace: str, task_queue: str, version: DeploymentVersion) -> bool:
        """Whether workers of a version decide workflows of a task queue.

        Raises:
            RequestError: The API server did not respond.
        """
        return is_registered(await self.deployments.read(namespace), version, Kind.WORKFLOW, task_queue)

    def polled(
        self, namespace: str, task_queue: str, *, activities: bool = False, version: str = "", reported: bool = False
    ) -> bool:
        """Whether a worker polls a task queue, has just polled it, or has not had time to poll it yet.

        A worker whose activity slots are all in use does not poll until one is free, so it counts as polling for minutes. If the
        run already reports that no worker polls (`reported`), only a poll changes that, not the start of this process.
        """
        if not reported and now() < self._begun + _WORKERS_COME_WITHIN:
            return True
        queue = QueueName(namespace, Kind.ACTIVITY if activities else Kind.WORKFLOW, task_queue, version)
        return self.matching.alive(queue) or (activities and self.matching.has_pollers(queue))

    def handled(self, namespace: str, operation: PendingOperation, *, reported: bool = False) -> bool:
        """Whether a worker polls for calls of an endpoint, has just polled, or has not had time to poll yet.

        The result reveals nothing about an endpoint that does not admit the namespace, or that was not read yet.
        """
        endpoint = self.endpoints.known(operation.endpoint_id, operation.endpoint)
        if endpoint is None:
            return not reported
        if not endpoint.admits(namespace) or (not reported and now() < self._begun + _WORKERS_COME_WITHIN):
            return True
        return self.matching.alive(QueueName(endpoint.namespace, Kind.NEXUS, endpoint.task_queue))

    def inlined(self, content: bytes) -> object:
        """A large payload as an inline value, for readers of JSON.

        Raises:
            UnfitError: The payload is too large.
        """
        value: object = to_json(Payloads.FromString(content).payloads)
        return value

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        """The search attributes for filters in a namespace: the registered ones, and those of its runs."""
        return {**self.visibility.attribute_types(namespace), **await self.registry.types(namespace)}
