"""Worker deployments: their versions, the routing of new and upgrading workflows to versions, and versioning overrides. Pure.

The rules and messages are those of Temporal's server (service/worker/workerdeployment, common/worker_versioning).
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace
from temporalio.api.workflow.v1 import VersioningOverride as ProtoOverride

from perdure.api.stored import StoredStruct
from perdure.engine.versioning import AUTO_UPGRADE, ONE_TIME, PINNED, DeploymentVersion, VersioningOverride
from perdure.frontend.errors import exhausted, invalid, not_found, precondition
from perdure.frontend.matching.queues import Kind
from perdure.frontend.messages.values import Time, UnfitError

MAX_DEPLOYMENTS = 100
"""Maximum number of deployments per namespace (matching.maxDeployments)."""
MAX_VERSIONS = 100
"""Maximum number of versions per deployment (matching.maxVersionsInDeployment)."""
MAX_QUEUES = 100
"""Maximum number of task queues per version (matching.maxTaskQueuesInDeploymentVersion)."""
UNVERSIONED = "__unversioned__"
"""The name of unversioned workers in the deprecated fields of messages."""
GRACE = timedelta(minutes=3)
"""Minimum draining time of a version, because a workflow on it may not have reported yet that it is pinned."""
_MAX_NAME = 480
_OVERRIDE_PATHS = {"versioning_override", "versioningOverride"}


class Version(StoredStruct, frozen=True, kw_only=True):
    """A version of a deployment."""

    create_time: Time
    task_queues: dict[Kind, tuple[str, ...]] = {}
    """The task queues that its workers have polled, by kind."""
    routing_changed_time: Time | None = None
    current_since_time: Time | None = None
    ramping_since_time: Time | None = None
    first_activation_time: Time | None = None
    last_current_time: Time | None = None
    last_deactivation_time: Time | None = None
    metadata: dict[str, Any] = {}
    last_modifier_identity: str = ""

    def polls(self, kind: Kind, queue: str) -> bool:
        """Whether its workers have polled a task queue."""
        return queue in self.task_queues.get(kind, ())


class WorkerDeployment(StoredStruct, frozen=True, kw_only=True):
    """A worker deployment, stored as JSON under its key in the ConfigMap."""

    create_time: Time
    versions: dict[str, Version] = {}
    """The versions by build ID."""
    current: str = ""
    """Build ID of the current version; empty: unversioned workers."""
    ramping: str | None = None
    """Build ID of the ramping version; empty: unversioned workers; None: no version is ramping."""
    percentage: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    current_changed_time: Time | None = None
    ramping_changed_time: Time | None = None
    percentage_changed_time: Time | None = None
    revision: int = 0
    """Number of changes of the routing."""
    changes: int = 0
    """Number of all changes by clients: the conflict token."""
    last_modifier_identity: str = ""
    manager_identity: str = ""

    @property
    def conflict_token(self) -> bytes:
        """The token that a client sends to ensure that the deployment has not changed since it was read."""
        return str(self.changes).encode()


Deployments = Mapping[str, WorkerDeployment]
"""The deployments by name."""


def check_name(value: str, field: str = "WorkerDeploymentName") -> None:
    """Check the name of a deployment, or a build ID (field `BuildID`).

    Raises:
        RpcError: The name is empty, too long, or has invalid characters.
    """
    if not value:
        raise invalid(f"{field} cannot be empty")
    if len(value.encode()) > _MAX_NAME:
        raise invalid(f"size of {field} larger than the maximum allowed")
    for character in ".:" if field == "WorkerDeploymentName" else "":
        if character in value:
            raise invalid(f"worker deployment name cannot contain '{character}'")
    if value.startswith("__"):
        raise invalid(f"{field} cannot start with '__'")


def no_deployment(name: str) -> Exception:
    """Build the error for a deployment that does not exist."""
    return not_found(f"no Worker Deployment found with name '{name}'; does your Worker Deployment have pollers?")


def check_room(known: Deployments) -> None:
    """Check that a namespace may have one more deployment.

    Raises:
        RpcError: The namespace has the maximum number of deployments.
    """
    if len(known) >= MAX_DEPLOYMENTS:
        raise exhausted(f"reached maximum deployments in namespace ({MAX_DEPLOYMENTS})")


# Changes by workers


def is_registered(known: Deployments, version: DeploymentVersion, kind: Kind, queue: str) -> bool:
    """Whether a version is recorded with a task queue that its workers poll."""
    found = known.get(version.deployment_name)
    build = found.versions.get(version.build_id) if found is not None else None
    return build is not None and build.polls(kind, queue)


def registered(
    known: Deployments,
    version: DeploymentVersion,
    kind: Kind,
    queue: str,
    time: datetime,
    *,
    removable: Callable[[DeploymentVersion], bool],
) -> Deployments:
    """The deployments after a worker of a version has polled a task queue.

    Args:
        known: The deployments.
        version: The version of the worker.
        kind: The kind of the task queue.
        queue: The task queue.
        time: The time.
        removable: Whether a version can be replaced by a new one, because no worker polls and no workflow is pinned to it.

    Raises:
        RpcError: There would be too many deployments, versions, or task queues.
    """
    if is_registered(known, version, kind, queue):
        return known
    name = version.deployment_name
    found = known.get(name)
    if found is None:
        check_room(known)
        found = WorkerDeployment(create_time=time)
    found = _with_version(found, version, time, removable)
    build = found.versions[version.build_id]
    queues = build.task_queues.get(kind, ())
    if sum(map(len, build.task_queues.values())) >= MAX_QUEUES:
        raise exhausted(f"maximum number of task queues ({MAX_QUEUES}) have been registered in deployment")
    build = replace(build, task_queues={**build.task_queues, kind: (*queues, queue)})
    return {**known, name: replace(found, versions={**found.versions, version.build_id: build})}


def _with_version(
    deployment: WorkerDeployment,
    version: DeploymentVersion,
    time: datetime,
    removable: Callable[[DeploymentVersion], bool],
) -> WorkerDeployment:
    if version.build_id in deployment.versions:
        return deployment
    versions = dict(deployment.versions)
    if len(versions) >= MAX_VERSIONS:
        free = (
            build
            for build in sorted(versions, key=lambda each: versions[each].create_time)
            if build not in {deployment.current, deployment.ramping}
            and removable(DeploymentVersion(deployment_name=version.deployment_name, build_id=build))
        )
        oldest = next(free, None)
        if oldest is None:
            raise exhausted(f"cannot add version, maximum number of versions ({MAX_VERSIONS}) has been reached")
        del versions[oldest]
    return replace(deployment, versions={**versions, version.build_id: Version(create_time=time)})


# Changes by clients


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingChange:
    """The fields of all requests that change the routing of a deployment."""

    name: str
    build_id: str
    identity: str = ""
    conflict_token: bytes = b""
    ignore_missing_task_queues: bool = False
    allow_no_pollers: bool = False


def check_change(deployment: WorkerDeployment, identity: str, conflict_token: bytes) -> None:
    """Check that a client may change a deployment.

    Raises:
        RpcError: The deployment has changed since the client read it, or another client manages it.
    """
    if conflict_token and conflict_token != deployment.conflict_token:
        raise precondition("conflict token mismatch")
    if deployment.manager_identity and deployment.manager_identity != identity:
        raise precondition(
            f"ManagerIdentity '{deployment.manager_identity}' is set and does not match user identity '{identity}'; to proceed, "
            "set your own identity as the ManagerIdentity, remove the ManagerIdentity, or wait for the other client to do so"
        )


def with_current(
    deployment: WorkerDeployment, change: RoutingChange, time: datetime, active: Callable[[str, str, str], bool]
) -> WorkerDeployment:
    """Return a deployment with another current version.

    Args:
        deployment: The deployment.
        change: The request; an empty build ID selects unversioned workers.
        time: The time.
        active: Whether a task queue of a version gets tasks, by build ID, kind, and name of the queue.

    Raises:
        RpcError: The change is not allowed.
    """
    build = change.build_id
    if build == deployment.current and change.identity == deployment.last_modifier_identity:
        return deployment
    deployment = _changeable(deployment, change, time)
    if build != deployment.current:
        _check_queues(deployment, change, "current", active)
        versions = dict(deployment.versions)
        if deployment.current:
            versions[deployment.current] = _deactivated(
                versions[deployment.current], time, active=deployment.ramping == deployment.current
            )
        if build:
            versions[build] = replace(
                _activated(versions[build], time),
                current_since_time=time,
                ramping_since_time=None,
                last_current_time=time,
            )
        deployment = replace(
            deployment, versions=versions, current=build, current_changed_time=time, revision=deployment.revision + 1
        )
        if deployment.ramping == build:
            deployment = replace(
                deployment, ramping=None, percentage=0.0, ramping_changed_time=time, percentage_changed_time=time
            )
    return replace(deployment, changes=deployment.changes + 1, last_modifier_identity=change.identity)


def with_ramping(
    deployment: WorkerDeployment,
    change: RoutingChange,
    percentage: float,
    time: datetime,
    active: Callable[[str, str, str], bool],
) -> WorkerDeployment:
    """Return a deployment with another ramping version or percentage.

    Args:
        deployment: The deployment.
        change: The request; an empty build ID selects unversioned workers or, with zero percent, no version.
        percentage: The percentage of workflows, from 0 to 100.
        time: The time.
        active: As in `with_current`.

    Raises:
        RpcError: The change is not allowed.
    """
    ramping = change.build_id if change.build_id or percentage else None
    same = ramping == deployment.ramping and percentage == deployment.percentage
    if same and change.identity == deployment.last_modifier_identity:
        return deployment
    if ramping is not None and ramping == deployment.current:
        shown = f"{change.name}.{ramping}" if ramping else UNVERSIONED
        raise precondition(f"requested ramping version {shown} is already current")
    deployment = _changeable(deployment, change, time)
    if not same:
        versions = dict(deployment.versions)
        if ramping != deployment.ramping:
            _check_queues(deployment, change, "ramping", active)
            if deployment.ramping:
                versions[deployment.ramping] = _deactivated(versions[deployment.ramping], time, active=False)
            if ramping:
                versions[ramping] = replace(_activated(versions[ramping], time), ramping_since_time=time)
        elif ramping:
            versions[ramping] = replace(versions[ramping], routing_changed_time=time)
        changed = time if ramping != deployment.ramping else deployment.ramping_changed_time
        deployment = replace(
            deployment,
            versions=versions,
            ramping=ramping,
            percentage=percentage,
            ramping_changed_time=changed,
            percentage_changed_time=time,
            revision=deployment.revision + 1,
        )
    return replace(deployment, changes=deployment.changes + 1, last_modifier_identity=change.identity)


def _changeable(deployment: WorkerDeployment, change: RoutingChange, time: datetime) -> WorkerDeployment:
    """The deployment and the requested version."""
    build = change.build_id
    if change.conflict_token and change.conflict_token != deployment.conflict_token:
        raise precondition("conflict token mismatch")
    if build and build not in deployment.versions and not change.allow_no_pollers:
        raise not_found(f"build ID '{build}' not found in Worker Deployment '{change.name}'")
    check_change(deployment, change.identity, change.conflict_token)
    if not build:
        return deployment
    return _with_version(
        deployment, DeploymentVersion(deployment_name=change.name, build_id=build), time, lambda _: False
    )


def _check_queues(
    deployment: WorkerDeployment, change: RoutingChange, noun: str, active: Callable[[str, str, str], bool]
) -> None:
    """Reject a version whose workers do not poll a task queue in which the current version has tasks."""
    if change.ignore_missing_task_queues or not change.build_id or not deployment.current:
        return
    current, proposed = deployment.versions[deployment.current], deployment.versions[change.build_id]
    for kind, queues in current.task_queues.items():
        for queue in queues:
            if not proposed.polls(kind, queue) and active(deployment.current, kind, queue):
                raise precondition(
                    f"proposed {noun} version '{change.name}:{change.build_id}' is missing active task queues from the current "
                    f"version; these would become unversioned if it is set as the {noun} version"
                )


def _activated(version: Version, time: datetime) -> Version:
    first = version.first_activation_time or time
    return replace(version, routing_changed_time=time, first_activation_time=first, last_deactivation_time=None)


def _deactivated(version: Version, time: datetime, *, active: bool) -> Version:
    return replace(
        version,
        routing_changed_time=time,
        current_since_time=None,
        ramping_since_time=version.ramping_since_time if active else None,
        last_deactivation_time=None if active else time,
    )


# Routing


def target(
    known: Deployments, kind: Kind, queue: str, workflow_id: str, *, ramped: bool = False
) -> DeploymentVersion | None:
    """The version for an unpinned workflow of a task queue; None: unversioned workers.

    The deployment is the one whose current or ramping version polls the queue; of several, the last changed one.

    Args:
        known: The deployments.
        kind: The kind of the task queue.
        queue: The task queue.
        workflow_id: The workflow ID, which determines together with the percentage whether to use the ramping version.
        ramped: Whether to use the ramping version, if there is one, regardless of the percentage.
    """
    current, ramping, percentage = routing(known, kind, queue)
    if ramped and ramping is not None and ramping[0] is not None:
        return ramping[0]
    if ramping is not None and percentage > 0 and _threshold(workflow_id) < percentage:
        return ramping[0]
    return current


def routing(
    known: Deployments, kind: Kind, queue: str
) -> tuple[DeploymentVersion | None, tuple[DeploymentVersion | None] | None, float]:
    """The current version of a task queue, its ramping version, and the percentage of workflows for the latter.

    A version of None stands for unversioned workers. The ramping version is in a tuple; it is None if no version is ramping.
    """
    of = [(name, each) for name, each in known.items() if any(v.polls(kind, queue) for v in each.versions.values())]
    current = _latest(
        (each.current_changed_time or each.create_time, DeploymentVersion(deployment_name=name, build_id=each.current))
        for name, each in of
        if each.current and each.versions[each.current].polls(kind, queue)
    )
    ramps = [
        (
            each.percentage_changed_time or each.create_time,
            DeploymentVersion(deployment_name=name, build_id=each.ramping) if each.ramping else None,
            each.percentage,
        )
        for name, each in of
        if each.ramping is not None and (not each.ramping or each.versions[each.ramping].polls(kind, queue))
    ]
    versioned = [ramp for ramp in ramps if ramp[1] is not None] or ramps
    if not versioned:
        return current, None, 0.0
    _, ramping, percentage = max(versioned, key=lambda ramp: ramp[0])
    return current, (ramping,), percentage


def _latest(found: Any) -> DeploymentVersion | None:
    return max(found, key=lambda each: each[0], default=(None, None))[1]


def _threshold(workflow_id: str) -> float:
    """A number from 0 to 100 that depends only on the workflow ID."""
    digest = hashlib.blake2b(workflow_id.encode(), digest_size=4).digest()
    return 100 * int.from_bytes(digest) / 2**32


def drainage(version: Version, *, pinned: bool, time: datetime) -> str:
    """Return Draining or Drained for a version that was current or ramping before; empty if it never was."""
    if version.last_deactivation_time is None:
        return ""
    if pinned or time < version.last_deactivation_time + GRACE:
        return "Draining"
    return "Drained"


def status_of(deployment: WorkerDeployment, build: str, drained: str) -> str:
    """The status of a version, as a name of WorkerDeploymentVersionStatus."""
    if build == deployment.current:
        return "Current"
    if build == deployment.ramping:
        return "Ramping"
    return drained or "Inactive"


def without_version(deployment: WorkerDeployment, name: str, build: str, identity: str) -> WorkerDeployment:
    """Return a deployment without one of its versions.

    Raises:
        RpcError: The version is current or ramping, or another client manages the deployment.
    """
    if build in {deployment.current, deployment.ramping}:
        raise precondition(f"version '{name}:{build}' cannot be deleted since it is current or ramping")
    check_change(deployment, identity, b"")
    kept = {each: version for each, version in deployment.versions.items() if each != build}
    return replace(deployment, versions=kept, last_modifier_identity=identity)


def with_manager(deployment: WorkerDeployment, manager: str, identity: str, conflict_token: bytes) -> WorkerDeployment:
    """Return a deployment that only one client may change; if `manager` is empty, any client may change it.

    Raises:
        RpcError: The deployment has changed since the client read it.
    """
    if (manager, identity) == (deployment.manager_identity, deployment.last_modifier_identity):
        return deployment
    if conflict_token and conflict_token != deployment.conflict_token:
        raise precondition("conflict token mismatch")
    return replace(
        deployment, manager_identity=manager, last_modifier_identity=identity, changes=deployment.changes + 1
    )


def with_metadata(
    deployment: WorkerDeployment, build: str, upserted: Mapping[str, Any], removed: Collection[str], identity: str
) -> WorkerDeployment:
    """Return a deployment with other metadata for a version."""
    version = deployment.versions[build]
    metadata = {key: value for key, value in {**version.metadata, **upserted}.items() if key not in removed}
    version = replace(version, metadata=metadata, last_modifier_identity=identity)
    return replace(deployment, versions={**deployment.versions, build: version})


# Overrides


def changes_override(request: Any) -> bool:
    """Whether a request to update the options of a workflow changes its versioning override.

    Args:
        request: A message with the fields `workflow_execution_options` and `update_mask`.

    Raises:
        UnfitError: The request is incomplete, or changes another option.
    """
    if not request.HasField("workflow_execution_options"):
        raise UnfitError("WorkflowExecutionOptions is required")
    if not request.HasField("update_mask"):
        raise UnfitError("UpdateMask is required")
    for path in request.update_mask.paths:
        if path not in _OVERRIDE_PATHS:
            raise UnfitError(f"update_mask: `{path}` cannot be changed, only `versioning_override`")
    return bool(request.update_mask.paths)


def override_of(proto: ProtoOverride) -> VersioningOverride:
    """Convert a client's versioning override.

    Raises:
        UnfitError: The override is incomplete.
    """
    kind = proto.WhichOneof("override")
    if kind == "auto_upgrade":
        if not proto.auto_upgrade:
            raise UnfitError("auto-upgrade override must be true")
        return VersioningOverride(behavior=AUTO_UPGRADE)
    if kind == "pinned":
        if not proto.pinned.HasField("version"):
            raise UnfitError("must provide version if override is pinned.")
        if not proto.pinned.behavior:
            raise UnfitError("must specify pinned override behavior if override is pinned.")
        return VersioningOverride(behavior=PINNED, version=_pinned_version(proto.pinned.version))
    if kind == "one_time":
        if not proto.one_time.HasField("target_deployment_version"):
            raise UnfitError("must provide target deployment version if override is one-time.")
        return VersioningOverride(behavior=ONE_TIME, version=_pinned_version(proto.one_time.target_deployment_version))
    raise UnfitError("override behavior is required")


def _pinned_version(proto: Any) -> DeploymentVersion:
    if not proto.deployment_name:
        raise UnfitError("WorkerDeploymentName cannot be empty")
    if not proto.build_id:
        raise UnfitError("BuildID cannot be empty")
    return DeploymentVersion(deployment_name=proto.deployment_name, build_id=proto.build_id)


def override_refused(known: Deployments, override: VersioningOverride | None, queue: str) -> str:
    """Why a run of a task queue cannot have an override; empty if it can."""
    version = override.version if override is not None else None
    if version is None or is_registered(known, version, Kind.WORKFLOW, queue):
        return ""
    return f"Pinned version '{version}' is not present in task queue '{queue}' of type 'Workflow'"
