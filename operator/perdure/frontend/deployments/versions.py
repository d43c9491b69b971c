"""The versions of worker deployments: which one a worker polls for, and which one gets a task.

The first poll of a version registers its task queue; several registrations are combined in one write. Changes of the routing are
recorded as Events.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from temporalio.api.enums.v1 import VersioningBehavior, WorkerVersioningMode

from perdure.api.reasons import EventReason
from perdure.engine.state import PendingActivity, RunState
from perdure.engine.versioning import PINNED, UNVERSIONED, USE_RAMPING_VERSION, DeploymentVersion
from perdure.frontend.deployments import rules
from perdure.frontend.deployments.rules import Deployments, WorkerDeployment, registered
from perdure.frontend.errors import RpcError, invalid
from perdure.frontend.matching.dispatch import TaskQueueSettings, Throttle
from perdure.frontend.matching.queues import Kind, Matching, QueueName
from perdure.frontend.messages import values
from perdure.frontend.messages.values import from_enum
from perdure.frontend.registry import EntryKind, NamespaceRegistry, fits_key
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder

_BURST = 20
"""Number of undelayed writes per namespace; after that, one write per second."""
_MAX_THROTTLES = 1_000
"""Maximum number of throttles before unused ones are dropped."""
_VERSIONED = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
RECONNECT_WITHIN = timedelta(seconds=30)
"""How long workers may take to reconnect after a restart of the operator."""
NOT_READ = DeploymentVersion(deployment_name="?", build_id="?")
"""The version of tasks whose routing is not read yet; no worker polls for it."""


def _check_routing(deployment: WorkerDeployment) -> None:
    for build in (deployment.current, deployment.ramping):
        if build and build not in deployment.versions:
            raise ValueError(f"it routes to version '{build}', which it does not have")


WORKER_DEPLOYMENTS = EntryKind(
    type=WorkerDeployment,
    noun="worker deployment",
    config_map="perdure-worker-deployments",
    fresh=timedelta(seconds=10),
    check=_check_routing,
)


@dataclass(frozen=True, slots=True)
class Registration:
    """A task queue that workers of a version poll."""

    version: DeploymentVersion
    kind: Kind
    queue: str


_Pending = dict[Registration, asyncio.Future[None]]


class Registrations:
    """Registers task queues. Registrations that come while a namespace waits for its next write are combined in it."""

    def __init__(
        self,
        registry: NamespaceRegistry[WorkerDeployment],
        removable: Callable[[str], Callable[[DeploymentVersion], bool]],
    ) -> None:
        """Create registrations.

        Args:
            registry: The registry to write to.
            removable: Returns, by namespace, whether a version can be replaced by a new one.
        """
        self._registry = registry
        self._removable = removable
        self._waiting: dict[str, _Pending] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._throttles: dict[str, Throttle] = {}

    async def add(self, namespace: str, registration: Registration) -> None:
        """Register a task queue.

        Raises:
            RpcError: There are too many deployments, versions or task queues, or the API server does not respond.
        """
        self._with(self._registry.known(namespace), namespace, registration)  # may reject without a request
        waiting = self._waiting.setdefault(namespace, {})
        if registration not in waiting:
            waiting[registration] = asyncio.get_running_loop().create_future()
        registered_then = waiting[registration]
        if namespace not in self._writing:
            self._writing[namespace] = asyncio.get_running_loop().create_task(
                self._write_all(namespace), name="worker deployments"
            )
        await asyncio.shield(registered_then)

    async def _write_all(self, namespace: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            while namespace in self._waiting:
                throttle = self._throttle(namespace)
                await asyncio.sleep(throttle.wait(loop.time()))
                throttle.count(loop.time())
                await self._write(namespace, self._waiting.pop(namespace))
        finally:
            del self._writing[namespace]
            for future in self._waiting.pop(namespace, {}).values():
                future.cancel()

    def _throttle(self, namespace: str) -> Throttle:
        if namespace not in self._throttles and len(self._throttles) >= _MAX_THROTTLES:
            time = asyncio.get_running_loop().time()
            self._throttles = {name: each for name, each in self._throttles.items() if each.wait(time)}
        return self._throttles.setdefault(namespace, Throttle(per_second=1.0, at_once=_BURST))

    async def _write(self, namespace: str, waiting: _Pending) -> None:
        refused: dict[Registration, RpcError] = {}

        def change(known: Deployments) -> Deployments:
            refused.clear()
            for each in waiting:
                try:
                    known = self._with(known, namespace, each)
                except RpcError as error:
                    refused[each] = error
            return known

        try:
            await self._registry.change(namespace, change)
        except RpcError as error:
            refused = dict.fromkeys(waiting, error)
        for each, future in waiting.items():
            if each in refused:
                future.set_exception(refused[each])
                future.exception()  # the poller may have disconnected
            else:
                future.set_result(None)

    def _with(self, known: Deployments, namespace: str, each: Registration) -> Deployments:
        return registered(known, each.version, each.kind, each.queue, now(), removable=self._removable(namespace))


def version_of(options: Any) -> DeploymentVersion | None:
    """The version of a worker, from its deployment options; None for an unversioned worker.

    Raises:
        RpcError: The options are not valid.
    """
    values.name(options.deployment_name, "WorkerDeploymentName", required=False)
    values.name(options.build_id, "BuildID", required=False)
    if options.worker_versioning_mode != _VERSIONED:
        return None
    if not options.deployment_name:
        raise invalid("versioned worker must have deployment name")
    if not options.build_id:
        raise invalid("versioned worker must have build id")
    if ":" in options.deployment_name or "." in options.deployment_name:
        raise invalid("deployment name cannot contain ':' or '.'")
    rules.check_name(options.deployment_name)
    rules.check_name(options.build_id, "BuildID")
    if not fits_key(options.deployment_name):
        raise invalid("size of WorkerDeploymentName larger than the maximum allowed")
    return DeploymentVersion(deployment_name=options.deployment_name, build_id=options.build_id)


def queue_of(name: QueueName, version: DeploymentVersion | None) -> QueueName:
    """The part of a task queue that the workers of a version poll; None: unversioned workers."""
    return QueueName(name.namespace, name.kind, name.name, str(version) if version is not None else "")


class Versions:
    """Registers the versions that poll, and routes tasks to them."""

    def __init__(
        self,
        registry: NamespaceRegistry[rules.WorkerDeployment],
        task_queues: NamespaceRegistry[TaskQueueSettings],
        matching: Matching,
        pinned: Callable[[str], Collection[DeploymentVersion]],
    ) -> None:
        """Create a router.

        Args:
            registry: The worker deployments.
            task_queues: The settings of task queues.
            matching: The matching, to see which task queues are polled.
            pinned: The versions that open workflows of a namespace are pinned to.
        """
        self.registry = registry
        self._task_queues = task_queues
        self._matching = matching
        self.pinned = pinned
        """Returns the versions that open workflows of a namespace are pinned to."""
        self._registrations = Registrations(registry, self._removable)
        self._start_time = now()

    async def polled_queue(self, name: QueueName, options: Any, *, sticky: bool = False) -> QueueName:
        """Return the part of a task queue that a worker polls, once the settings of the task queue are known.

        The version of the worker is registered. Only the first poll of each queue writes.

        Unversioned workers need no worker deployments: they get unversioned tasks even if the deployments cannot be read.

        Args:
            name: The task queue that the poll names.
            options: The deployment options of the worker.
            sticky: Whether the queue is the sticky queue of this worker.

        Raises:
            RpcError: The options are invalid, there are too many versions, or the API server does not answer.
        """
        queue = await self._registered(name, options, sticky=sticky)
        with suppress(RpcError):  # tasks continue at the last known rate
            await self._task_queues.load(name.namespace)
        return queue

    async def _registered(self, name: QueueName, options: Any, *, sticky: bool) -> QueueName:
        version = version_of(options)
        if version is None or sticky:
            with suppress(RpcError):
                await self.registry.load(name.namespace)
            return name
        known = await self.registry.load(name.namespace)
        if not rules.is_registered(known, version, name.kind, name.name):
            await self._registrations.add(name.namespace, Registration(version, name.kind, name.name))
        return queue_of(name, version)

    def _removable(self, namespace: str) -> Callable[[DeploymentVersion], bool]:
        pinned = cache(lambda: self.pinned(namespace))
        return lambda version: not self.has_pollers(namespace, version) and version not in pinned()

    def has_pollers(self, namespace: str, version: DeploymentVersion) -> bool:
        """Whether workers of a version poll, have just polled, or have not had time to poll yet."""
        if now() < self._start_time + RECONNECT_WITHIN:
            return True
        found = self.registry.known(namespace).get(version.deployment_name)
        build = found.versions.get(version.build_id) if found is not None else None
        return build is not None and any(
            self._matching.alive(QueueName(namespace, Kind(kind), queue, str(version)))
            for kind, queues in build.task_queues.items()
            for queue in queues
        )

    def of_task(self, namespace: str, state: RunState) -> DeploymentVersion | None:
        """The version that decides a run next; None: unversioned workers, `NOT_READ`: not known yet."""
        code = state.code
        if code is None:
            return None
        pinned, known = code.versioning.pinned_to, self.registry.known(namespace)
        if pinned is not None and (
            code.previous_started_event_id
            or code.versioning.override is not None
            or rules.is_registered(known, pinned, Kind.WORKFLOW, code.task_queue)
        ):
            return pinned
        if not self.registry.is_known(namespace):
            return None if code.previous_started_event_id and not code.versioning.behavior else NOT_READ
        ramped = code.versioning.initial_behavior == USE_RAMPING_VERSION and not code.previous_started_event_id
        return rules.target(known, Kind.WORKFLOW, code.task_queue, state.workflow_id, ramped=ramped)

    def of_activity(self, namespace: str, state: RunState, activity: PendingActivity) -> DeploymentVersion | None:
        """The version that gets an activity; None: unversioned workers, `NOT_READ`: not known yet.

        Activities of a pinned workflow stay on its version if that version polls their task queue.
        """
        pinned, known = (
            state.code.versioning.pinned_to if state.code is not None else None,
            self.registry.known(namespace),
        )
        if pinned is not None and rules.is_registered(known, pinned, Kind.ACTIVITY, activity.task_queue):
            return pinned
        if not self.registry.is_known(namespace) and (state.code is None or state.code.versioning != UNVERSIONED):
            return NOT_READ
        return rules.target(known, Kind.ACTIVITY, activity.task_queue, state.workflow_id)

    def of_closed(
        self, namespace: str, task_queue: str, workflow_id: str, attributes: Mapping[str, Any]
    ) -> DeploymentVersion | None:
        """The version that answers queries about a closed run, by its search attributes; None: unversioned workers."""
        found = {name: value["value"] for name, value in attributes.items() if isinstance(value, dict)}
        if found.get("TemporalWorkflowVersioningBehavior") == PINNED:
            name, _, build = str(found.get("TemporalWorkerDeploymentVersion", "")).partition(":")
            return DeploymentVersion(deployment_name=name, build_id=build)
        return rules.target(self.registry.known(namespace), Kind.WORKFLOW, task_queue, workflow_id)

    def target_changed(self, namespace: str, state: RunState) -> bool:
        """Whether a run is pinned by its worker (not by an override) while new runs of its task queue use another version."""
        code = state.code
        if code is None or code.versioning.pinned_to is None or code.versioning.override is not None:
            return False
        target = rules.target(self.registry.known(namespace), Kind.WORKFLOW, code.task_queue, state.workflow_id)
        return target is not None and target != code.versioning.pinned_to


def reported(request: Any) -> dict[str, Any]:
    """The fields of `TaskCompleted` for the version and the versioning behavior that a worker reports.

    Raises:
        RpcError: An unversioned worker reports a behavior.
    """
    version = version_of(request.deployment_options)
    behavior = from_enum(VersioningBehavior, request.versioning_behavior)
    if version is None and request.versioning_behavior:
        raise invalid(
            "versioning behavior cannot be specified without deployment options being set with versioned mode"
        )
    return {
        "worker_deployment_name": request.deployment_options.deployment_name,
        "deployment_version": version,
        "versioning_behavior": behavior if request.versioning_behavior else "",
    }


def report_routing(recorder: Recorder, config_map: kube.Object, before: Deployments, after: Deployments) -> None:
    """Record each change of a current or ramping version.

    Args:
        recorder: Records Events.
        config_map: The ConfigMap of the deployments, as stored.
        before: The deployments before the change.
        after: The deployments now.
    """
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config_map["metadata"]}
    for name, current in after.items():
        was = before.get(name, WorkerDeployment(create_time=current.create_time))
        if current.current != was.current:
            builds = f"{_build_text(current.current)}, was {_build_text(was.current)}"
            note = f"Worker deployment `{name}`: the current version is {builds}"
            reason = EventReason.CURRENT_VERSION_CHANGED
            recorder.record(about, kind="Normal", reason=reason, note=note, action="SetCurrentVersion")
        if (current.ramping, current.percentage) != (was.ramping, was.percentage):
            note = f"Worker deployment `{name}`: {_ramp(current)}, was: {_ramp(was)}"
            reason = EventReason.RAMPING_VERSION_CHANGED
            recorder.record(about, kind="Normal", reason=reason, note=note, action="SetRampingVersion")


def _build_text(build_id: str) -> str:
    return f"`{build_id}`" if build_id else "unversioned"


def _ramp(deployment: WorkerDeployment) -> str:
    if deployment.ramping is None:
        return "no version is ramping"
    return f"{deployment.percentage:g}% go to {_build_text(deployment.ramping)}"
