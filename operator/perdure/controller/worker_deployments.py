"""WorkerDeployments: the operator runs the workers of Temporal SDKs, one Deployment for each version of their code.

All that a reconciliation needs to know is elsewhere: which version gets runs in the worker deployment of the namespace (a
ConfigMap, which RPCs change, too), the pods in Deployments whose names are locks, the tasks in the memory of the frontend. So
each reconciliation plans from scratch (`runtime/workers/plan.py`) and can be repeated at any point:

| the operator is killed | what exists afterwards | what the next operator does |
| --- | --- | --- |
| after a Deployment was created, before the status | a Deployment that the object owns | finds it by its name |
| after the routing was changed, before the status | the routing | reports it |
| after a Deployment was deleted, before its version is | a version without a Deployment | removes it when no worker polls |

A new process does not know when a version last had a task: it counts the idle time from its own start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, Self

import pydantic

from perdure.api.kinds.status import find_condition, read_conditions
from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec, WorkerDeploymentStatus
from perdure.api.labels import API_VERSION, WORKER_DEPLOYMENT_LABEL, WORKER_VERSION_LABEL
from perdure.api.models import mistakes, unknown_field
from perdure.api.names import worker_version_name
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.api.state_versions import QUEUE_LOADS
from perdure.controller.errors import RefusedError
from perdure.controller.fleet.shards import Shards
from perdure.controller.queue import Key, KeyedQueue, WorkersKey
from perdure.controller.reconcile.newer_states import NewerStateReports, message_for
from perdure.controller.reconcile.record import Status, write_status
from perdure.controller.state_versions import state_versions
from perdure.controller.workflows.version_activities import ActivitiesNotReadyError, VersionActivities
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.attempts import PodSettings
from perdure.runtime.workers import status as statuses
from perdure.runtime.workers import versions as workers
from perdure.runtime.workers.plan import Facts, Plan, Route, Version, plan, with_memory
from perdure.runtime.workers.status import Verdict

_AGAIN: Final = timedelta(minutes=1)
"""How long to wait after the API server has refused an object, or a change of the routing."""
_SOON: Final = timedelta(seconds=3)
"""When to look again after something was changed."""
_JSON_PATCH_TEMPLATE: Final = "/metadata/annotations/perdure.dev~1worker-template"


class WorkerRouting(Protocol):
    """The worker deployments and task queues of the frontend."""

    async def facts(self, namespace: str, name: str, target: str, queues: Sequence[str], now: datetime) -> Facts:
        """Return what is known of a worker deployment, its versions, and their tasks.

        Args:
            namespace: The namespace.
            name: The name of the deployment.
            target: Build ID of the version that counts as registered if its workers have polled all of `queues`.
            queues: The task queues.
            now: The time.

        Raises:
            RequestError: The API server did not respond.
        """
        ...

    async def route(self, namespace: str, name: str, route: Route) -> None:
        """Change the current or the ramping version.

        Raises:
            RefusedError: The change is not allowed; the message says why.
            RequestError: The API server did not respond.
        """
        ...

    async def forget(self, namespace: str, name: str, build_id: str) -> None:
        """Remove a version that gets no runs, and whose workers do not poll.

        Raises:
            RefusedError: The change is not allowed; the message says why.
            RequestError: The API server did not respond.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeployment:
    """A WorkerDeployment: the object and its parsed spec."""

    object: kube.Object
    spec: WorkerDeploymentSpec | None
    """The spec; None if it is invalid."""
    mistakes: tuple[str, ...] = ()
    newer: str = ""
    """What only a newer version can read in its spec or in its status; empty if there is nothing."""

    @classmethod
    def read(cls, obj: kube.Object) -> Self:
        """Read a WorkerDeployment."""
        newer = WorkerDeploymentStatus.newer_part(obj.get("status") or {}, state_versions().reads)
        try:
            spec = WorkerDeploymentSpec.parse(obj.get("spec") or {})
        except pydantic.ValidationError as error:
            newer = unknown_field(error, "spec") or newer
            return cls(object=obj, spec=None, mistakes=tuple(mistakes(error)), newer=newer)
        return cls(object=obj, spec=spec, newer=newer)

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata."""
        metadata: dict[str, Any] = self.object["metadata"]
        return metadata

    def condition(self, kind: ConditionType) -> tuple[bool, str, str]:
        """Whether a condition of the status is True, its reason, and its message; empty if it is not set."""
        found = find_condition(read_conditions(self.object.get("status") or {}), kind)
        return (False, "", "") if found is None else (found.status == "True", found.reason, found.message)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a reconciliation."""

    status: Status
    due: datetime | None


class WorkerDeployments:
    """All WorkerDeployments that this operator watches."""

    def __init__(
        self,
        client: kube.Client,
        recorder: Recorder,
        shards: Shards,
        queue: KeyedQueue[Key],
        settings: PodSettings,
        activities: VersionActivities,
    ) -> None:
        """Create it without WorkerDeployments.

        Args:
            client: For requests to the API server.
            recorder: For Events.
            shards: The other members of the fleet, which have tasks, too.
            queue: The queue that calls `reconcile`.
            settings: The settings of pods.
            activities: Finds the activities of versions.
        """
        self._client = client
        self._recorder = recorder
        self._shards = shards
        self._queue = queue
        self._settings = settings
        self._activities = activities
        self._held: set[str] = set()
        """UIDs of the Deployments whose revisions this process keeps."""
        self._routing: WorkerRouting | None = None
        self._known: dict[tuple[str, str], KnownDeployment] = {}
        self._newer: dict[tuple[str, str], NewerStateReports] = {}
        self._versions: dict[tuple[str, str], Mapping[str, Version]] = {}
        """The versions of each WorkerDeployment that the last reconciliation found."""

    def serve(self, routing: WorkerRouting) -> None:
        """Run workers from now on, for the frontend of this operator."""
        self._routing = routing
        for place in self._known:
            self._queue.wake(WorkersKey(*place))

    def update(self, obj: kube.Object) -> None:
        """Process the creation or change of a WorkerDeployment."""
        self._keep(obj)
        self._queue.wake(WorkersKey(obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a WorkerDeployment. The garbage collector deletes its Deployments."""
        place = obj["metadata"]["namespace"], obj["metadata"]["name"]
        known = self._known.get(place)
        if known is not None and known.metadata["uid"] == obj["metadata"]["uid"]:
            self._forget(place)
        self._queue.forget(WorkersKey(*place))

    def _forget(self, place: tuple[str, str]) -> None:
        for known in (self._known, self._newer, self._versions):
            known.pop(place, None)

    def _keep(self, obj: kube.Object) -> None:
        """Keep a version of an object, unless a newer one is known."""
        meta = obj["metadata"]
        place = meta["namespace"], meta["name"]
        known = self._known.get(place)
        if known is not None and known.metadata["uid"] != meta["uid"]:
            self._forget(place)
            known = None
        if known is None or kube.older(known.metadata["resourceVersion"], meta["resourceVersion"]):
            self._known[place] = KnownDeployment.read(obj)

    # From the frontend

    def tasks_wait(self, namespace: str, version: str) -> None:
        """Start workers for a version without pods, because a task waits for it.

        Args:
            namespace: The namespace.
            version: The version of a worker deployment, as `<name>:<build ID>`.
        """
        name, _, build = version.partition(":")
        found = self._versions.get((namespace, name), {}).get(build)
        if found is not None and (found.deployed is None or not found.deployed.replicas):
            self._queue.wake(WorkersKey(namespace, name))

    def routing_changed(self, namespace: str) -> None:
        """Plan again, because a worker of a new version has polled, or the routing was changed."""
        for place in self._known:
            if place[0] == namespace:
                self._queue.wake(WorkersKey(*place))

    def explain(self, namespace: str, task_queue: str) -> str:
        """Say what the WorkerDeployment of a task queue reports; empty if there is none."""
        for (where, name), known in self._known.items():
            if where == namespace and known.spec is not None and task_queue in known.spec.task_queues:
                done, _, message = known.condition(ConditionType.ROLLED_OUT)
                is_ready, _, state = known.condition(ConditionType.READY)
                return f"WorkerDeployment `{name}`: {state if done or not is_ready or not message else message}"
        return ""

    # Reconciliation

    async def reconcile(self, namespace: str, name: str, now: datetime) -> datetime | None:
        """Run the workers of a WorkerDeployment, and return when to look again.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        place = namespace, name
        known = self._known.get(place)
        if known is None:
            return None
        outcome = await self._outcome(known, now)
        if outcome is None:
            return None

        async def compute(obj: kube.Object) -> Status | None:
            if obj is known.object:
                return outcome.status
            current = KnownDeployment.read(obj)
            if current.newer or obj["metadata"]["uid"] != known.metadata["uid"]:
                return None
            return state_versions().stamp(outcome.status, obj.get("status"))

        url = kube.path(kube.PERDURE, namespace, "workerdeployments", name)
        obj = await write_status(self._client, url, compute, known.object)
        if obj is None:
            self._forget(place)
            return None
        if obj is not known.object:
            self._report(known, KnownDeployment.read(obj))
            self._keep(obj)
        return outcome.due

    async def _outcome(self, known: KnownDeployment, now: datetime) -> _Outcome | None:
        """Do what is due, and return the status; None: there is nothing to do or to report."""
        meta, stored = known.metadata, known.object.get("status") or {}
        if known.newer:
            place = meta["namespace"], meta["name"]
            reports = self._newer.setdefault(place, NewerStateReports("WorkerDeployment", meta["namespace"]))
            status = reports.ready_status(known.object, message_for(known.newer), now)
            return None if status is None else _Outcome(status, None)
        if known.spec is None:
            verdict = Verdict(False, ConditionReason.INVALID_SPEC, "; ".join(known.mistakes))
            return self._unchanged(known, {ConditionType.READY: verdict}, None, now)
        if self._routing is None:
            message = "The operator does not run workers: Temporal SDKs or WorkerDeployments are disabled"
            verdict = Verdict(False, ConditionReason.NOT_SERVED, message)
            return self._unchanged(known, {ConditionType.READY: verdict}, None, now)
        facts = await self._facts(known, known.spec, self._routing, now)
        target = facts.versions[workers.build_id(known.spec)]
        decided = plan(known.spec, target.build_id, workers.template_hash(known.spec), facts, now)
        waits, revisions = "", dict[str, str]()
        if target.deployed is None and decided.replicas.get(target.build_id) is not None:
            try:
                revisions = await self._activities.find(known.metadata["namespace"], known.spec)
            except ActivitiesNotReadyError as error:
                waits = str(error)
                others = {build: pods for build, pods in decided.replicas.items() if build != target.build_id}
                decided = replace(decided, replicas=others)
        try:
            facts, changed, refused = await self._apply(known, known.spec, self._routing, facts, decided, revisions)
        except kube.ApiError as error:
            if not _is_refusal(error):
                raise
            verdict = Verdict(
                False, ConditionReason.POD_REFUSED, f"The API server refused a Deployment: {error.message}"
            )
            verdicts = {ConditionType.ROLLED_OUT: verdict}
            if not facts.current:
                verdicts[ConditionType.READY] = verdict
            return self._unchanged(known, verdicts, now + _AGAIN, now)
        target = facts.versions[target.build_id]
        verdicts = {
            ConditionType.READY: statuses.ready(known.spec, target, facts, now),
            ConditionType.ROLLED_OUT: statuses.rolled_out(known.spec, target, facts, now, refused, waits),
        }
        status = statuses.status(known.object, known.spec, facts, decided, verdicts, now)
        again = [now + _SOON] if changed else []
        again += [now + _AGAIN] if refused else []
        due = min([*again, *([decided.due] if decided.due is not None else [])], default=None)
        return _Outcome(state_versions().stamp(status, stored), due)

    @staticmethod
    def _unchanged(
        known: KnownDeployment, verdicts: dict[ConditionType, Verdict], due: datetime | None, now: datetime
    ) -> _Outcome:
        """The status with other conditions, and otherwise as it is."""
        before = known.object.get("status") or {}
        kept = [each for each in before.get("conditions") or () if each.get("type") not in verdicts]
        kept = [each for each in kept if each.get("type") != ConditionType.NEWER_STATE]
        found = [*kept, *statuses.conditions(known.object, verdicts, now)]
        status = {
            "replicas": 0,
            "readyReplicas": 0,
            "versions": [],
            **before,
            "observedGeneration": known.metadata.get("generation", 1),
            "conditions": found,
        }
        return _Outcome(state_versions().stamp(status, before), due)

    async def _facts(
        self, known: KnownDeployment, spec: WorkerDeploymentSpec, routing: WorkerRouting, now: datetime
    ) -> Facts:
        """Read what exists."""
        namespace, name, uid = (known.metadata[key] for key in ("namespace", "name", "uid"))
        target = workers.build_id(spec)
        facts = await routing.facts(namespace, name, target, spec.task_queues, now)
        selector = f"{WORKER_DEPLOYMENT_LABEL}={name}"
        found = await self._client.lists.all(kube.path(kube.APPS, namespace, "deployments"), labelSelector=selector)
        owned = {workers.build_of(each): each for each in found if workers.is_owned(each, uid)}
        for each in [each for each in owned.values() if each["metadata"]["uid"] not in self._held]:
            await self._activities.hold(each)
            self._held.add(each["metadata"]["uid"])
        pods: list[kube.Object] = []
        if any(map(workers.is_unsettled, owned.values())):
            pods = await self._client.lists.all(kube.path(kube.CORE, namespace, "pods"), labelSelector=selector)
        drained = statuses.drained_times(known.object.get("status") or {})
        before = self._versions.get((namespace, name), {})
        versions = {}
        for build in {*facts.versions, *owned, target}:
            version = facts.versions.get(build) or Version.unseen(build, now)
            deployment = owned.get(build)
            if deployment is not None:
                of = [
                    each for each in pods if (each["metadata"].get("labels") or {}).get(WORKER_VERSION_LABEL) == build
                ]
                version = replace(version, deployed=workers.deployed(deployment, of, now))
            version = replace(version, drained_time=drained.get(build))
            versions[build] = with_memory(version, before.get(build), now)
        loads_known = not self._shards.others or state_versions().writes >= QUEUE_LOADS
        return replace(facts, versions=versions, loads_known=loads_known)

    async def _apply(
        self,
        known: KnownDeployment,
        spec: WorkerDeploymentSpec,
        routing: WorkerRouting,
        facts: Facts,
        decided: Plan,
        revisions: Mapping[str, str],
    ) -> tuple[Facts, bool, str]:
        """Do what is planned, and return what exists now, whether something was changed, and why the routing was not.

        Args:
            known: The WorkerDeployment.
            spec: Its spec.
            routing: Changes the routing.
            facts: What exists.
            decided: What to do.
            revisions: The revisions with the activities of a version that gets its Deployment now, by Workflow.

        Raises:
            RequestError: The API server refused a change, or did not respond.
        """
        namespace, name, target = known.metadata["namespace"], known.metadata["name"], workers.build_id(spec)
        url = kube.path(kube.APPS, namespace, "deployments")
        versions, changed, refused = dict(facts.versions), False, ""
        try:
            if decided.route is not None:
                changed = True
                await routing.route(namespace, name, decided.route)
            for build in decided.forget:
                await routing.forget(namespace, name, build)
                changed = True
        except RefusedError as error:
            refused = error.message
        for build in decided.remove:
            at = kube.path(kube.APPS, namespace, "deployments", worker_version_name(name, build))
            await self._client.delete(at)
            versions[build] = replace(versions[build], deployed=None)
            note = f"Removed version `{build}`: no open run is pinned to it"
            self._record(known, "Normal", EventReason.VERSION_REMOVED, note, "Remove")
            changed = True
        for build, wanted in decided.replicas.items():
            version = versions[build]
            at = kube.path(kube.APPS, namespace, "deployments", worker_version_name(name, build))
            if version.deployed is None:
                if wanted is None:
                    continue
                made = await self._client.create(
                    url, workers.deployment(known.object, spec, wanted, self._settings, revisions)
                )
                versions[build] = replace(version, deployed=workers.deployed(made, (), version.active))
                note = f"Created Deployment `{made['metadata']['name']}` for version `{build}`"
                self._record(known, "Normal", EventReason.VERSION_CREATED, note, "Create")
                changed = True
                continue
            if build == target and decided.update:
                template = workers.pod_template(name, spec, self._settings)
                operations: list[kube.Object] = [
                    {"op": "replace", "path": "/spec/template", "value": template},
                    {"op": "add", "path": _JSON_PATCH_TEMPLATE, "value": workers.template_hash(spec)},
                ]
                await self._client.patch(at, operations)
                changed = True
            if wanted is not None and wanted != version.deployed.replicas:
                await self._client.merge(at, {"spec": {"replicas": wanted}})
                self._scaled(known, version, version.deployed.replicas, wanted)
                versions[build] = replace(version, deployed=replace(version.deployed, replicas=wanted))
                changed = True
        self._versions[namespace, name] = versions
        return replace(facts, versions=versions), changed, refused

    # Events

    def _scaled(self, known: KnownDeployment, version: Version, before: int, after: int) -> None:
        direction = ("FromZero" if not before else "Up") if after > before else "Down" if after else "ToZero"
        metrics.WORKER_SCALINGS.labels(known.metadata["namespace"], direction).inc()
        load = version.load
        why = f"{load.waiting} tasks wait" if load.waiting else f"{load.in_progress} tasks are in progress"
        why = "it has no tasks" if load.idle else why
        note = f"Version `{version.build_id}`: {after} pods, was {before}; {why}"
        self._record(known, "Normal", EventReason.WORKERS_SCALED, note, "Scale")

    def _report(self, before: KnownDeployment, after: KnownDeployment) -> None:
        """Record an Event for each condition that became False, or is False for another reason, if someone must act."""
        for kind in (ConditionType.READY, ConditionType.ROLLED_OUT):
            _, reason, message = after.condition(kind)
            event = _EVENTS.get(reason)
            if event is not None and before.condition(kind)[1] != reason:
                self._record(after, "Warning", event, message, "Check")
                return

    def _record(self, known: KnownDeployment, kind: str, reason: EventReason, note: str, action: str) -> None:
        about = {"apiVersion": API_VERSION, "kind": "WorkerDeployment", "metadata": known.metadata}
        self._recorder.record(about, kind=kind, reason=reason, note=note, action=action)


_EVENTS: Final[Mapping[str, EventReason]] = {
    ConditionReason.WORKERS_FAILING: EventReason.WORKERS_FAILING,
    ConditionReason.ROUTING_REFUSED: EventReason.ROUTING_REFUSED,
    ConditionReason.POD_REFUSED: EventReason.POD_REFUSED,
    ConditionReason.INVALID_SPEC: EventReason.INVALID_SPEC,
    ConditionReason.NEWER_STATE: EventReason.NEWER_STATE,
}
_REFUSALS: Final = frozenset({400, 403, 409, 413, 422})
"""Codes with which the API server refuses an object that someone must change, or a name that is taken."""


def _is_refusal(error: kube.ApiError) -> bool:
    return error.status in _REFUSALS
