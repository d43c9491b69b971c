"""Worker deployments as Temporal's messages. Pure."""

from collections.abc import Iterator, Mapping
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
from temporalio.api.workflowservice.v1 import ListWorkerDeploymentsResponse

from perdure.engine.versioning import DeploymentVersion
from perdure.frontend.deployments.rules import UNVERSIONED, Version, WorkerDeployment, status_of
from perdure.frontend.matching.queues import Kind
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.enums import to_enum
from perdure.kube.clock import now

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


def text(deployment_name: str, build: str) -> str:
    """Convert a version to text for the deprecated fields of messages."""
    return f"{deployment_name}.{build}" if build else UNVERSIONED


def version_or_none(deployment_name: str, build: str) -> WorkerDeploymentVersion | None:
    """A version; None for unversioned workers."""
    return WorkerDeploymentVersion(deployment_name=deployment_name, build_id=build) if build else None


def routing(name: str, found: WorkerDeployment) -> RoutingConfig:
    """The routing of a deployment."""
    made = RoutingConfig(
        current_deployment_version=version_or_none(name, found.current),
        current_version=text(name, found.current),
        ramping_deployment_version=version_or_none(name, found.ramping or ""),
        ramping_version="" if found.ramping is None else text(name, found.ramping),
        ramping_version_percentage=found.percentage,
        revision_number=found.revision,
    )
    _set(made, "current_version_changed_time", found.current_changed_time)
    _set(made, "ramping_version_changed_time", found.ramping_changed_time)
    _set(made, "ramping_version_percentage_changed_time", found.percentage_changed_time)
    return made


def deployment(name: str, found: WorkerDeployment, drained: Drained) -> WorkerDeploymentInfo:
    """Convert a deployment, with its newest version first."""
    newest = sorted(found.versions, key=lambda build: found.versions[build].create_time, reverse=True)
    made = WorkerDeploymentInfo(
        name=name,
        version_summaries=[_version_summary(name, found, build, drained) for build in newest],
        routing_config=routing(name, found),
        last_modifier_identity=found.last_modifier_identity,
        manager_identity=found.manager_identity,
        routing_config_update_state=RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED,
    )
    made.create_time.FromDatetime(found.create_time)
    return made


def summary(
    name: str, found: WorkerDeployment, drained: Drained
) -> ListWorkerDeploymentsResponse.WorkerDeploymentSummary:
    """A deployment in a list."""
    made = ListWorkerDeploymentsResponse.WorkerDeploymentSummary(name=name, routing_config=routing(name, found))
    made.create_time.FromDatetime(found.create_time)
    latest = max(found.versions, key=lambda build: found.versions[build].create_time, default="")
    for field, build in (
        ("latest_version_summary", latest),
        ("current_version_summary", found.current),
        ("ramping_version_summary", found.ramping),
    ):
        if build:
            getattr(made, field).CopyFrom(_version_summary(name, found, build, drained))
    return made


def _version_summary(
    name: str, found: WorkerDeployment, build: str, drained: Drained
) -> WorkerDeploymentInfo.WorkerDeploymentVersionSummary:
    version_of = found.versions[build]
    made = WorkerDeploymentInfo.WorkerDeploymentVersionSummary(
        version=text(name, build),
        deployment_version=version_or_none(name, build),
        status=to_enum(WorkerDeploymentVersionStatus, status_of(found, build, drained[build])),
        drainage_status=to_enum(VersionDrainageStatus, drained[build]),
    )
    for field in _TIMES:
        _set(made, field, getattr(version_of, field))
    _set(made, "routing_update_time", version_of.routing_changed_time)
    _set_drainage(made, version_of, drained[build])
    if build == found.current:  # without a status, like Temporal's server
        _set(made.drainage_info, "last_changed_time", version_of.current_since_time)
        _set(made.drainage_info, "last_checked_time", version_of.current_since_time)
    return made


def version(which: DeploymentVersion, found: WorkerDeployment, drained: str) -> WorkerDeploymentVersionInfo:
    """A version."""
    build, version_of = which.build_id, found.versions[which.build_id]
    made = WorkerDeploymentVersionInfo(
        version=text(which.deployment_name, build),
        deployment_version=version_or_none(which.deployment_name, build),
        status=to_enum(WorkerDeploymentVersionStatus, status_of(found, build, drained)),
        ramp_percentage=found.percentage if build == found.ramping else 0,
        metadata=metadata(version_of) if version_of.metadata else None,
        last_modifier_identity=version_of.last_modifier_identity,
    )
    for field in ("create_time", "routing_changed_time", "current_since_time", "ramping_since_time"):
        _set(made, field, getattr(version_of, field))
    for kind, queue in task_queues(version_of):
        made.task_queue_infos.add(name=queue, type=TYPES[kind])
    _set_drainage(made, version_of, drained)
    return made


def metadata(version_of: Version) -> VersionMetadata:
    """The metadata of a version."""
    made = VersionMetadata()
    for key, value in version_of.metadata.items():
        payload = data.one_payload(value)
        if payload is not None:
            made.entries[key].CopyFrom(payload)
    return made


def task_queues(version_of: Version) -> Iterator[tuple[Kind, str]]:
    """The task queues that the workers of a version have polled."""
    for kind, queues in sorted(version_of.task_queues.items()):
        for queue in sorted(queues):
            yield Kind(kind), queue


def _set_drainage(made: Any, version_of: Version, drained: str) -> None:
    if drained:
        made.drainage_info.status = to_enum(VersionDrainageStatus, drained)
        _set(made.drainage_info, "last_changed_time", version_of.last_deactivation_time)
        _set(made.drainage_info, "last_checked_time", now())


def _set(made: Any, field: str, time: Any) -> None:
    if time is not None:
        getattr(made, field).FromDatetime(time)
