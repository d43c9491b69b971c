"""The frontend of one operator: its state, which follows the runs, and its RPCs."""

import uuid
from collections import Counter
from contextlib import suppress
from typing import Any

from temporalio.api.common.v1 import Payloads

from perdure.archive.rows import SearchableArchive
from perdure.controller.manager import Manager
from perdure.controller.workers import FollowedRun
from perdure.engine.state import PendingActivity, PendingOperation, RunState
from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.activities.changes import ActivityChanges
from perdure.frontend.activities.standalone import StandaloneActivities
from perdure.frontend.activities.tasks import ActivityTasks
from perdure.frontend.deployments.managed import ManagedDeployments
from perdure.frontend.deployments.rpcs import WorkerDeploymentRpcs
from perdure.frontend.deployments.rules import is_registered
from perdure.frontend.deployments.versions import (
    NOT_READ,
    RECONNECT_WITHIN,
    WORKER_DEPLOYMENTS,
    Versions,
    queue_of,
    report_routing,
)
from perdure.frontend.errors import RpcError, unimplemented
from perdure.frontend.matching.dispatch import TASK_QUEUES, rank_of
from perdure.frontend.matching.queues import Destination, Kind, Matching, Offer, QueueName, TaskId
from perdure.frontend.messages.payloads import to_json
from perdure.frontend.nexus.endpoints import EndpointRegistry, NexusEndpoints
from perdure.frontend.nexus.operations import StandaloneNexusOperations
from perdure.frontend.nexus.tasks import DirectCalls, NexusTasks, OpenHandlerCalls
from perdure.frontend.registry import NamespaceRegistry
from perdure.frontend.runs.gateway import LargePayloads, RunGateway
from perdure.frontend.runs.starts import FirstTasks, RunCreator
from perdure.frontend.schedules.rpcs import ScheduleRpcs
from perdure.frontend.settings import Settings
from perdure.frontend.system import System
from perdure.frontend.task_queues import TaskQueueRpcs
from perdure.frontend.transport.rights import DEPRECATED
from perdure.frontend.transport.rpc import DEFAULT_NAMESPACE, CallContext, Handler, is_rpc
from perdure.frontend.visibility.index import Visibility
from perdure.frontend.visibility.lists import Listing
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry, SearchAttributeRpcs
from perdure.frontend.workers import KnownWorkers, WorkerRpcs
from perdure.frontend.workflows.batches import Batches
from perdure.frontend.workflows.control import WorkflowControl
from perdure.frontend.workflows.descriptions import WorkflowDescriptions
from perdure.frontend.workflows.histories import Histories
from perdure.frontend.workflows.queries import Queries, QueryDispatch, WorkflowQueries
from perdure.frontend.workflows.starts import WorkflowStarts
from perdure.frontend.workflows.tasks import TaskDispatch, WorkflowTasks
from perdure.frontend.workflows.updates import RecordedUpdates, Updates, WorkflowUpdates
from perdure.kube import client as kube
from perdure.kube.clock import now


class Frontend:
    """The frontend of one operator. Its state is not needed after a restart."""

    def __init__(self, manager: Manager, settings: Settings) -> None:
        """Create the frontend for the objects of a manager; it does not follow the runs until it is attached to the manager."""
        self.settings = settings
        self.epoch = uuid.uuid4().hex
        self._start_time = now()
        self.client = client = manager.client
        self.served = manager.served
        self.shards = manager.shards
        self.directory = manager.directory
        self.webhooks = manager.webhooks
        self.ready = manager.first_lists.wait
        """Wait until all runs are known."""
        self._services = manager.services
        self._policies = manager.policies
        self._schedules = manager.schedules
        self._open_runs = manager.runs
        self.runs = RunGateway(client, self.directory, self._open_runs, manager.archive)
        self.matching = Matching()
        self.queues = self.matching.queues
        self.workers = KnownWorkers(self.queues)
        self.visibility = Visibility()
        self.search_attributes = SearchAttributeRegistry(client, self.visibility)
        self.endpoints = EndpointRegistry(client, settings.namespace or DEFAULT_NAMESPACE)
        self.deployments = NamespaceRegistry(
            WORKER_DEPLOYMENTS,
            client,
            self._route_again,
            written=lambda *change: report_routing(manager.services.recorder, *change),
        )
        self.task_queues = NamespaceRegistry(TASK_QUEUES, client, self._configure_queues)
        self.versions = Versions(self.deployments, self.task_queues, self.matching, self.runs.pinned_versions)
        self._deployment_rpcs = WorkerDeploymentRpcs(self.deployments, self.versions, self.queues)
        self.managed = ManagedDeployments(
            self.deployments, self.versions, self.matching, self._deployment_rpcs, self._pinned_runs
        )
        self._worker_deployments = manager.worker_deployments
        if settings.runs_workers:
            self._worker_deployments.serve(self.managed)
            self.matching.starved = lambda queue: self._worker_deployments.tasks_wait(queue.namespace, queue.version)
        self.calls = OpenHandlerCalls(
            served=self.served,
            directory=self.directory,
            open_runs=self._open_runs,
            runs=self.runs,
            matching=self.matching,
            endpoints=self.endpoints,
        )
        self.direct_calls = DirectCalls(self.matching)
        self.payloads = LargePayloads(manager.services.blobs, self.directory)
        self.updates = Updates()
        self.recorded_updates = RecordedUpdates(self.runs, self.updates, self.payloads)
        self.queries = Queries()
        self.query_dispatch = QueryDispatch(self.runs, self.matching, self.versions, self.visibility)
        archive = self.runs.archive if isinstance(self.runs.archive, SearchableArchive) else None
        self.listing = Listing(client, self.directory, self.runs, self.visibility, self.search_attributes, archive)
        self.first_tasks = FirstTasks(self.directory, self._open_runs, self.follow)

    # RPCs

    def handlers(self) -> dict[str, Handler]:
        """The served RPCs by name."""
        client, served, directory, open_runs = self.client, self.served, self.directory, self._open_runs
        blobs, definitions, limits = self._services.blobs, self._services.definitions, self._services.limits
        runs, payloads, deployments = self.runs, self.payloads, self.deployments
        search_attributes = self.search_attributes
        creator = RunCreator(
            client=client,
            blobs=blobs,
            directory=directory,
            open_runs=open_runs,
            runs=runs,
            first_tasks=self.first_tasks,
            ready=self.ready,
        )
        control = WorkflowControl(
            client=client,
            definitions=definitions,
            open_runs=open_runs,
            runs=runs,
            visibility=self.visibility,
            deployments=deployments,
        )
        activities = ActivityTasks(
            blobs=blobs,
            directory=directory,
            open_runs=open_runs,
            runs=runs,
            matching=self.matching,
            versions=self.versions,
            payloads=payloads,
        )
        dispatch = TaskDispatch(
            directory=directory,
            runs=runs,
            matching=self.matching,
            versions=self.versions,
            payloads=payloads,
            queries=self.queries,
            updates=self.updates,
            epoch=lambda: self.epoch,
            suggest_events=self.settings.suggest_events,
        )
        tasks = WorkflowTasks(
            directory=directory,
            open_runs=open_runs,
            runs=runs,
            dispatch=dispatch,
            activities=activities,
            matching=self.matching,
            versions=self.versions,
            payloads=payloads,
            queries=self.queries,
            query_dispatch=self.query_dispatch,
            updates=self.updates,
            endpoints=self.endpoints,
            search_attributes=search_attributes,
            visibility=self.visibility,
            workers=self.workers,
            limits=limits,
        )
        queries = WorkflowQueries(
            runs=runs,
            definitions=definitions,
            deployments=deployments,
            queries=self.queries,
            dispatch=self.query_dispatch,
            visibility=self.visibility,
            console_url=self.settings.console_url,
        )
        updates = WorkflowUpdates(
            runs=runs,
            updates=self.updates,
            recorded_updates=self.recorded_updates,
            payloads=payloads,
            first_tasks=self.first_tasks,
            served=served,
        )
        starts = WorkflowStarts(
            directory=directory,
            runs=runs,
            served=served,
            ready=self.ready,
            creator=creator,
            first_tasks=self.first_tasks,
            tasks=dispatch,
            updates=self.updates,
            workflow_updates=updates,
            deployments=deployments,
            search_attributes=search_attributes,
            limits=limits,
        )
        found: dict[str, Handler] = {}
        for service in (
            dispatch,
            tasks,
            activities,
            StandaloneActivities(runs, creator, search_attributes, served),
            StandaloneNexusOperations(runs, creator, payloads, self.endpoints, search_attributes),
            starts,
            control,
            queries,
            WorkflowDescriptions(directory, runs, payloads),
            updates,
            Histories(directory, open_runs, runs, payloads),
            self.listing,
            ScheduleRpcs(client, directory, self._schedules, search_attributes),
            ActivityChanges(runs),
            Batches(client, directory, runs, self.listing, control),
            TaskQueueRpcs(self.queues, deployments, self.task_queues),
            WorkerRpcs(self.workers),
            self._deployment_rpcs,
            NexusTasks(
                matching=self.matching,
                versions=self.versions,
                calls=self.calls,
                direct_calls=self.direct_calls,
                workers=self.workers,
                shards=self.shards,
            ),
            NexusEndpoints(self.endpoints, served),
            System(client, served, self._policies.known),
            SearchAttributeRpcs(search_attributes),
        ):
            found |= _handlers_of(service)
        return found | dict.fromkeys(DEPRECATED, _deprecated)

    # From the controller

    def follow(self, run: FollowedRun) -> None:
        """Process the new state of a run."""
        state, run_id = run.state, run.ref.uid
        if not self.shards.holds(run.ref.namespace, run.ref.workflow_id):
            self.runs.changes.changed(run_id)  # the run is a guest, which its owner follows
            return
        if state is None or state.closed or run.deleted:
            self.matching.hold(run_id, {})
            self.matching.settle(run_id, {})
        else:
            self.matching.hold(run_id, self._started(run.ref.namespace, state))
            self.matching.settle(run_id, self._offers(run, state))
            if run.unrecorded:
                self.visibility.started(run_id, state.start_time)
        self.calls.follow(run, None if run.deleted else state)
        if state is not None and state.closed:
            self.recorded_updates.closed(run, state)
        if run.deleted:
            self._abort(run_id)
        self.runs.changes.changed(run_id)

    def _offers(self, run: FollowedRun, state: RunState) -> dict[Offer, Destination]:
        """The available workflow task and activities of a run, with their task queues."""
        namespace, run_id = run.ref.namespace, run.ref.uid
        offers: dict[Offer, Destination] = {}
        task = state.offered_task()
        if task is not None and (
            task.scheduled_event_id not in run.admitted or self.first_tasks.is_reserved(namespace, run.ref.name)
        ):
            task = None
        if state.code is not None and task is not None:
            version = self.versions.of_task(namespace, state)
            queue = queue_of(QueueName(namespace, Kind.WORKFLOW, state.code.task_queue), version)
            sticky = task.sticky_queue if version == state.code.versioning.version else ""
            rank = rank_of(state.code.priority)
            offers[Offer(run_id, task.scheduled_event_id, task.attempt, rank=rank)] = Destination(queue, sticky)
        inherited = state.code.priority if state.code is not None else None
        queues: dict[str, QueueName] = {}  # shared by many activities, because each lookup checks all deployments
        for activity in state.offered_activities(now()):
            if activity.scheduled_event_id not in run.admitted:
                continue
            rank = rank_of(inherited, activity.priority)
            offer = Offer(run_id, activity.scheduled_event_id, activity.attempt, rank=rank)
            if activity.task_queue not in queues:
                queue = QueueName(namespace, Kind.ACTIVITY, activity.task_queue)
                queues[activity.task_queue] = queue_of(queue, self.versions.of_activity(namespace, state, activity))
            offers[offer] = Destination(queues[activity.task_queue])
        return offers

    def _started(self, namespace: str, state: RunState) -> dict[TaskId, QueueName]:
        """The workflow task and the activities of a run that workers have, and the queues in which they would be offered."""
        found: dict[TaskId, QueueName] = {}
        task = state.code.task if state.code is not None else None
        if state.code is not None and task is not None and task.started_time is not None:
            queue = QueueName(namespace, Kind.WORKFLOW, state.code.task_queue)
            found[task.scheduled_event_id, task.attempt] = queue_of(queue, self.versions.of_task(namespace, state))
        for activity in state.open_activities():
            if activity.by_worker and activity.started_time is not None:
                queue = QueueName(namespace, Kind.ACTIVITY, activity.task_queue)
                version = self.versions.of_activity(namespace, state, activity)
                found[activity.scheduled_event_id, activity.attempt] = queue_of(queue, version)
        return found

    def awaits(self, run_id: str) -> bool:
        """Whether a client waits for the answer to a query or for an update of a run."""
        return bool(self.queries.waiting(run_id) or self.updates.open(run_id))

    def hibernate(self, namespace: str, run_id: str) -> None:
        """Pack the record of an open run."""
        self.visibility.pack(namespace, run_id)

    def release(self, run: FollowedRun) -> None:
        """Release a run that this process has no longer in memory."""
        run_id = run.ref.uid
        self.matching.hold(run_id, {})
        self.matching.settle(run_id, {})
        self.calls.follow(run, None)
        self.updates.leave(run_id)
        self.queries.leave(run_id)

    def _route_again(self, namespace: str) -> None:
        """Route waiting tasks again after the worker deployments of a namespace have changed."""
        self._worker_deployments.routing_changed(namespace)
        for run in self._open_runs.all():
            if run.ref.namespace == namespace:
                self.follow(run)

    def _pinned_runs(self, namespace: str) -> Counter[DeploymentVersion]:
        """How many open runs of a namespace are pinned to each version.

        The runs of other members are known by their recorded state; those of this member also before it is recorded.
        """
        found = self.visibility.pinned(namespace)
        for version in self.runs.pinned_versions(namespace):
            found[version] = max(found[version], 1)
        return found

    def _configure_queues(self, namespace: str) -> None:
        """Apply changed settings of the task queues of a namespace."""
        self.queues.configure(namespace, self.task_queues.known(namespace))

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a WorkflowRun."""
        self.visibility.update(obj)
        self.runs.changes.changed(obj["metadata"]["uid"])

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a WorkflowRun."""
        run_id = obj["metadata"]["uid"]
        self.visibility.delete(obj)
        self.matching.hold(run_id, {})
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
            self.search_attributes.expire(namespace)
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
        if not reported and now() < self._start_time + RECONNECT_WITHIN:
            return True
        queue = QueueName(namespace, Kind.ACTIVITY if activities else Kind.WORKFLOW, task_queue, version)
        return self.matching.alive(queue) or (activities and self.matching.has_pollers(queue))

    def explain(self, namespace: str, task_queue: str) -> str:
        """Say what the WorkerDeployment that runs the workers of a task queue reports; empty if there is none."""
        return self._worker_deployments.explain(namespace, task_queue)

    def handled(self, namespace: str, operation: PendingOperation, *, reported: bool = False) -> bool:
        """Whether a worker polls for calls of an endpoint, has just polled, or has not had time to poll yet.

        The result reveals nothing about an endpoint that does not admit the namespace, or that was not read yet.
        """
        endpoint = self.endpoints.known(operation.endpoint_id, operation.endpoint)
        if endpoint is None:
            return not reported
        if not endpoint.admits(namespace) or (not reported and now() < self._start_time + RECONNECT_WITHIN):
            return True
        return self.matching.alive(QueueName(endpoint.namespace, Kind.NEXUS, endpoint.task_queue))

    def inlined(self, content: bytes) -> object:
        """A large payload as an inline value, for readers of JSON.

        Raises:
            UnfitError: The payload is too large.
        """
        value: object = to_json(Payloads.FromString(content).payloads)
        return value


async def _deprecated(request: Any, call: CallContext) -> Any:
    """Reject an earlier form of worker versioning."""
    del call
    rpc = type(request).__name__.removesuffix("Request")
    raise unimplemented(f"{rpc} is deprecated and not supported: use worker deployments (`temporal worker deployment`)")


def _handlers_of(service: object) -> dict[str, Handler]:
    """The methods of a part of the frontend that are RPCs of Temporal's API.

    The generated servicers cannot be used: gRPC would read whole messages before the caller is authenticated.
    """
    rpcs = {method: "".join(map(str.capitalize, method.split("_"))) for method in vars(type(service))}
    return {rpc: getattr(service, method) for method, rpc in rpcs.items() if is_rpc(rpc)}
