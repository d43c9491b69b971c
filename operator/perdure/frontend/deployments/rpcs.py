"""RPCs about worker deployments, and their messages."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from temporalio.api.deployment.v1 import (
    RoutingConfig,
    VersionMetadata,
    WorkerDeploymentInfo,
    WorkerDeploymentVersion,
    WorkerDeploymentVersionInfo,
)
from temporalio.api.enums.v1 import (
    RoutingConfigUpdateState,
    TaskQueueType,
    VersionDrainageStatus,
    WorkerDeploymentVersionStatus,
)
from temporalio.api.workflowservice import v1 as api
from temporalio.api.workflowservice.v1 import ListWorkerDeploymentsResponse

from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments import rules as model
from perdure.frontend.deployments.rules import (
    UNVERSIONED,
    Deployments,
    RoutingChange,
    Version,
    WorkerDeployment,
    status_of,
)
from perdure.frontend.deployments.versions import Versions
from perdure.frontend.errors import invalid, not_found, precondition
from perdure.frontend.matching.queues import Kind, QueueName, TaskQueues
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import MAX_MEMO, check_total_size, set_time, to_enum
from perdure.frontend.registry import NamespaceRegistry, fits_key
from perdure.frontend.transport.rpc import CallContext
from perdure.kube.clock import now

_IDLE = 1e-3
"""Tasks per second below which a task queue counts as unused."""

Drained = Mapping[str, str]
"""The drainage status of each version, by build ID."""
TYPES = {
    Kind.WORKFLOW: TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    Kind.ACTIVITY: TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    Kind.NEXUS: TaskQueueType.TASK_QUEUE_TYPE_NEXUS,
}
_TIMES = (
    "create_time",
    "current_since_time",
    "ramping_since_time",
    "first_activation_time",
    "last_current_time",
    "last_deactivation_time",
)


_PAGE = 100


class WorkerDeploymentRpcs:
    """Shows worker deployments and changes their routing."""

    def __init__(
        self, deployments: NamespaceRegistry[WorkerDeployment], versions: Versions, queues: TaskQueues
    ) -> None:
        self._deployments = deployments
        self._versions = versions
        self._queues = queues

    async def describe_worker_deployment(
        self, request: api.DescribeWorkerDeploymentRequest, call: CallContext
    ) -> api.DescribeWorkerDeploymentResponse:
        """Describe a deployment and its versions."""
        found = await self._find(request.namespace, request.deployment_name)
        info = _deployment_info(request.deployment_name, found, self._drainage(request, request.deployment_name, found))
        return api.DescribeWorkerDeploymentResponse(conflict_token=found.conflict_token, worker_deployment_info=info)

    async def list_worker_deployments(
        self, request: api.ListWorkerDeploymentsRequest, call: CallContext
    ) -> api.ListWorkerDeploymentsResponse:
        """List the deployments, the newest first."""
        known = await self._deployments.load(request.namespace)
        listed = [
            _deployment_summary(name, found, self._drainage(request, name, found))
            for name, found in sorted(known.items(), key=lambda each: each[1].create_time, reverse=True)
        ]
        page, token = page_of(
            listed, request.next_page_token, request.page_size, _PAGE, lambda each: 2 * each.ByteSize()
        )
        return api.ListWorkerDeploymentsResponse(worker_deployments=page, next_page_token=token)

    async def describe_worker_deployment_version(
        self, request: api.DescribeWorkerDeploymentVersionRequest, call: CallContext
    ) -> api.DescribeWorkerDeploymentVersionResponse:
        """Describe a version and the task queues that its workers poll."""
        version = _version(request)
        known = await self._deployments.load(request.namespace)
        found = known.get(version.deployment_name)
        if found is None or version.build_id not in found.versions:
            raise not_found("Worker Deployment Version not found")
        drained = self._drainage(request, version.deployment_name, found)
        response = api.DescribeWorkerDeploymentVersionResponse(
            worker_deployment_version_info=_version_info(version, found, drained[version.build_id])
        )
        for kind, queue in _task_queues_of(found.versions[version.build_id]):
            described = response.version_task_queues.add(name=queue, type=TYPES[kind])
            if request.report_task_queue_stats:
                stats = self._queues.statistics(QueueName(request.namespace, kind, queue, str(version)))
                described.stats.approximate_backlog_count = stats.waiting
                described.stats.approximate_backlog_age.FromTimedelta(stats.age)
                described.stats.tasks_add_rate, described.stats.tasks_dispatch_rate = stats.added, stats.dispatched
        return response

    async def set_worker_deployment_current_version(
        self, request: api.SetWorkerDeploymentCurrentVersionRequest, call: CallContext
    ) -> api.SetWorkerDeploymentCurrentVersionResponse:
        """Route new and upgrading workflows to a version."""
        change, time = _routing_change(request), now()
        before, after = await self._change(
            request, lambda found: model.with_current(found, change, time, self._active(request))
        )
        return api.SetWorkerDeploymentCurrentVersionResponse(
            conflict_token=after.conflict_token,
            previous_version=_version_text(change.name, before.current),
            previous_deployment_version=_version_or_none(change.name, before.current),
        )

    async def set_worker_deployment_ramping_version(
        self, request: api.SetWorkerDeploymentRampingVersionRequest, call: CallContext
    ) -> api.SetWorkerDeploymentRampingVersionResponse:
        """Route a percentage of new and upgrading workflows to a version."""
        if not 0 <= request.percentage <= 100:  # noqa: PLR2004 (percent)
            raise invalid("Percentage must be between 0 and 100 (inclusive)")
        change, time = _routing_change(request), now()
        before, after = await self._change(
            request,
            lambda found: model.with_ramping(found, change, request.percentage, time, self._active(request)),
        )
        return api.SetWorkerDeploymentRampingVersionResponse(
            conflict_token=after.conflict_token,
            previous_version="" if before.ramping is None else _version_text(change.name, before.ramping),
            previous_deployment_version=_version_or_none(change.name, before.ramping or ""),
            previous_percentage=before.percentage,
        )

    async def set_worker_deployment_manager(
        self, request: api.SetWorkerDeploymentManagerRequest, call: CallContext
    ) -> api.SetWorkerDeploymentManagerResponse:
        """Let only one client change a deployment."""
        if not request.identity:
            raise invalid("Identity is required")
        manager = request.identity if request.self else request.manager_identity
        before, after = await self._change(
            request,
            lambda found: model.with_manager(found, manager, request.identity, request.conflict_token),
        )
        return api.SetWorkerDeploymentManagerResponse(
            conflict_token=after.conflict_token, previous_manager_identity=before.manager_identity
        )

    async def update_worker_deployment_version_metadata(
        self, request: api.UpdateWorkerDeploymentVersionMetadataRequest, call: CallContext
    ) -> api.UpdateWorkerDeploymentVersionMetadataResponse:
        """Set and remove metadata of a version."""
        check_total_size(request.upsert_entries.values(), MAX_MEMO)
        version, upserted = _version(request), data.fields_to_json(request.upsert_entries) or {}
        build = version.build_id

        def change(known: Deployments) -> Deployments:
            found = known.get(version.deployment_name)
            if found is None or build not in found.versions:
                raise not_found("Worker Deployment Version not found")
            changed = model.with_metadata(found, build, upserted, request.remove_entries, request.identity)
            return {**known, version.deployment_name: changed}

        known = await self._deployments.change(request.namespace, change)
        made = _metadata_message(known[version.deployment_name].versions[build])
        return api.UpdateWorkerDeploymentVersionMetadataResponse(metadata=made)

    async def delete_worker_deployment(
        self, request: api.DeleteWorkerDeploymentRequest, call: CallContext
    ) -> api.DeleteWorkerDeploymentResponse:
        """Delete a deployment without versions. A missing deployment counts as deleted."""
        model.check_name(request.deployment_name)

        def delete(known: Deployments) -> Deployments:
            found = known.get(request.deployment_name)
            if found is not None and found.versions:
                raise precondition("deployment has versions, can't be deleted")
            return {name: each for name, each in known.items() if name != request.deployment_name}

        await self._deployments.change(request.namespace, delete)
        return api.DeleteWorkerDeploymentResponse()

    async def delete_worker_deployment_version(
        self, request: api.DeleteWorkerDeploymentVersionRequest, call: CallContext
    ) -> api.DeleteWorkerDeploymentVersionResponse:
        """Delete an unused version. A missing version counts as deleted."""
        version = _version(request)
        name, build = version.deployment_name, version.build_id

        def delete(known: Deployments) -> Deployments:
            found = known.get(name)
            if found is None:
                raise model.no_deployment(name)
            if build not in found.versions:
                return known
            kept = model.without_version(found, name, build, request.identity)
            if self._versions.has_pollers(request.namespace, version):
                raise precondition(f"version '{version}' cannot be deleted since it has active pollers")
            draining = self._drainage(request, name, found)[build] == "Draining"
            if draining and not request.skip_drainage:
                raise precondition(f"version '{version}' cannot be deleted since it is draining")
            return {**known, name: kept}

        await self._deployments.change(request.namespace, delete)
        return api.DeleteWorkerDeploymentVersionResponse()

    async def _find(self, namespace: str, name: str) -> WorkerDeployment:
        model.check_name(name)
        found = (await self._deployments.load(namespace)).get(name)
        if found is None:
            raise model.no_deployment(name)
        return found

    async def _change(
        self, request: Any, change: Callable[[WorkerDeployment], WorkerDeployment]
    ) -> tuple[WorkerDeployment, WorkerDeployment]:
        """Change the deployment of a request; return it before and after the change."""
        name = request.deployment_name
        model.check_name(name)
        before: list[WorkerDeployment] = []

        def changed(known: Deployments) -> Deployments:
            found = known.get(name)
            if found is None:
                if not getattr(request, "allow_no_pollers", False):
                    raise model.no_deployment(name)
                model.check_room(known)
                found = WorkerDeployment(create_time=now())
            before[:] = [found]
            return {**known, name: change(found)}

        if not fits_key(name):
            raise invalid("size of WorkerDeploymentName larger than the maximum allowed")
        after = await self._deployments.change(request.namespace, changed)
        return before[0], after[name]

    def _active(self, request: Any) -> Callable[[str, str, str], bool]:
        """Return a function that says whether a task queue of a version gets tasks, by build ID, kind, and name."""

        def active(build: str, kind: str, queue: str) -> bool:
            version = DeploymentVersion(deployment_name=request.deployment_name, build_id=build)
            stats = self._queues.statistics(QueueName(request.namespace, Kind(kind), queue, str(version)))
            return bool(stats.waiting) or stats.added > _IDLE

        return active

    def _drainage(self, request: Any, name: str, deployment: WorkerDeployment) -> dict[str, str]:
        """The drainage status of each version of a deployment."""
        time, pinned = now(), self._versions.pinned(request.namespace)
        return {
            build: model.drainage(
                version, pinned=DeploymentVersion(deployment_name=name, build_id=build) in pinned, time=time
            )
            for build, version in deployment.versions.items()
        }


def _routing_change(request: Any) -> RoutingChange:
    build, shown = request.build_id, request.version
    if not build and shown not in {"", model.UNVERSIONED}:
        prefix = f"{request.deployment_name}."
        if not shown.startswith(prefix):
            raise invalid(
                f"invalid version string '{shown}' does not match deployment name '{request.deployment_name}'"
            )
        build = shown.removeprefix(prefix)
    if build:
        model.check_name(build, "BuildID")
    return RoutingChange(
        name=request.deployment_name,
        build_id=build,
        identity=request.identity,
        conflict_token=request.conflict_token,
        ignore_missing_task_queues=request.ignore_missing_task_queues,
        allow_no_pollers=request.allow_no_pollers,
    )


def _version(request: Any) -> DeploymentVersion:
    """The version in a request, including its deprecated fields."""
    name, build = request.deployment_version.deployment_name, request.deployment_version.build_id
    if not request.HasField("deployment_version"):
        name, dot, build = request.version.partition(".")
        if not dot:
            raise invalid(
                f'invalid version string "{request.version}", expected format is "<deployment_name>.<build_id>"'
            )
    model.check_name(name)
    model.check_name(build, "BuildID")
    return DeploymentVersion(deployment_name=name, build_id=build)


def _version_text(deployment_name: str, build: str) -> str:
    """Convert a version to text for the deprecated fields of messages."""
    return f"{deployment_name}.{build}" if build else UNVERSIONED


def _version_or_none(deployment_name: str, build: str) -> WorkerDeploymentVersion | None:
    """A version; None for unversioned workers."""
    return WorkerDeploymentVersion(deployment_name=deployment_name, build_id=build) if build else None


def _routing_config(name: str, deployment: WorkerDeployment) -> RoutingConfig:
    """The routing of a deployment."""
    made = RoutingConfig(
        current_deployment_version=_version_or_none(name, deployment.current),
        current_version=_version_text(name, deployment.current),
        ramping_deployment_version=_version_or_none(name, deployment.ramping or ""),
        ramping_version="" if deployment.ramping is None else _version_text(name, deployment.ramping),
        ramping_version_percentage=deployment.percentage,
        revision_number=deployment.revision,
    )
    set_time(made, "current_version_changed_time", deployment.current_changed_time)
    set_time(made, "ramping_version_changed_time", deployment.ramping_changed_time)
    set_time(made, "ramping_version_percentage_changed_time", deployment.percentage_changed_time)
    return made


def _deployment_info(name: str, deployment: WorkerDeployment, drained: Drained) -> WorkerDeploymentInfo:
    """Convert a deployment, with its newest version first."""
    newest = sorted(deployment.versions, key=lambda build: deployment.versions[build].create_time, reverse=True)
    made = WorkerDeploymentInfo(
        name=name,
        version_summaries=[_version_summary(name, deployment, build, drained) for build in newest],
        routing_config=_routing_config(name, deployment),
        last_modifier_identity=deployment.last_modifier_identity,
        manager_identity=deployment.manager_identity,
        routing_config_update_state=RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED,
    )
    made.create_time.FromDatetime(deployment.create_time)
    return made


def _deployment_summary(
    name: str, deployment: WorkerDeployment, drained: Drained
) -> ListWorkerDeploymentsResponse.WorkerDeploymentSummary:
    """Describe a deployment in a list."""
    made = ListWorkerDeploymentsResponse.WorkerDeploymentSummary(
        name=name, routing_config=_routing_config(name, deployment)
    )
    made.create_time.FromDatetime(deployment.create_time)
    latest = max(deployment.versions, key=lambda build: deployment.versions[build].create_time, default="")
    for field, build in (
        ("latest_version_summary", latest),
        ("current_version_summary", deployment.current),
        ("ramping_version_summary", deployment.ramping),
    ):
        if build:
            getattr(made, field).CopyFrom(_version_summary(name, deployment, build, drained))
    return made


def _version_summary(
    name: str, deployment: WorkerDeployment, build: str, drained: Drained
) -> WorkerDeploymentInfo.WorkerDeploymentVersionSummary:
    version_of = deployment.versions[build]
    made = WorkerDeploymentInfo.WorkerDeploymentVersionSummary(
        version=_version_text(name, build),
        deployment_version=_version_or_none(name, build),
        status=to_enum(WorkerDeploymentVersionStatus, status_of(deployment, build, drained[build])),
        drainage_status=to_enum(VersionDrainageStatus, drained[build]),
    )
    for field in _TIMES:
        set_time(made, field, getattr(version_of, field))
    set_time(made, "routing_update_time", version_of.routing_changed_time)
    _set_drainage(made, version_of, drained[build])
    if build == deployment.current:  # without a status, like Temporal's server
        set_time(made.drainage_info, "last_changed_time", version_of.current_since_time)
        set_time(made.drainage_info, "last_checked_time", version_of.current_since_time)
    return made


def _version_info(which: DeploymentVersion, deployment: WorkerDeployment, drained: str) -> WorkerDeploymentVersionInfo:
    """Describe a version."""
    build, version_of = which.build_id, deployment.versions[which.build_id]
    made = WorkerDeploymentVersionInfo(
        version=_version_text(which.deployment_name, build),
        deployment_version=_version_or_none(which.deployment_name, build),
        status=to_enum(WorkerDeploymentVersionStatus, status_of(deployment, build, drained)),
        ramp_percentage=deployment.percentage if build == deployment.ramping else 0,
        metadata=_metadata_message(version_of) if version_of.metadata else None,
        last_modifier_identity=version_of.last_modifier_identity,
    )
    for field in ("create_time", "routing_changed_time", "current_since_time", "ramping_since_time"):
        set_time(made, field, getattr(version_of, field))
    for kind, queue in _task_queues_of(version_of):
        made.task_queue_infos.add(name=queue, type=TYPES[kind])
    _set_drainage(made, version_of, drained)
    return made


def _metadata_message(version_of: Version) -> VersionMetadata:
    """The metadata of a version."""
    made = VersionMetadata()
    for key, value in version_of.metadata.items():
        payload = data.one_payload(value)
        if payload is not None:
            made.entries[key].CopyFrom(payload)
    return made


def _task_queues_of(version_of: Version) -> Iterator[tuple[Kind, str]]:
    """The task queues that the workers of a version have polled."""
    for kind, queues in sorted(version_of.task_queues.items()):
        for queue in sorted(queues):
            yield Kind(kind), queue


def _set_drainage(info: Any, version_of: Version, drained: str) -> None:
    if drained:
        info.drainage_info.status = to_enum(VersionDrainageStatus, drained)
        set_time(info.drainage_info, "last_changed_time", version_of.last_deactivation_time)
        set_time(info.drainage_info, "last_checked_time", now())
