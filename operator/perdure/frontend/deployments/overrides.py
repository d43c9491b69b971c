"""Versioning overrides that clients set on workflows. Pure."""

from typing import Any

from temporalio.api.workflow.v1 import VersioningOverride as ProtoOverride

from perdure.engine.versioning import AUTO_UPGRADE, ONE_TIME, PINNED, DeploymentVersion, VersioningOverride
from perdure.frontend.deployments.rules import Deployments, is_registered
from perdure.frontend.matching.queues import Kind
from perdure.frontend.messages.values import UnfitError

_PATHS = {"versioning_override", "versioningOverride"}


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
        if path not in _PATHS:
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
        return VersioningOverride(behavior=PINNED, version=_version(proto.pinned.version))
    if kind == "one_time":
        if not proto.one_time.HasField("target_deployment_version"):
            raise UnfitError("must provide target deployment version if override is one-time.")
        return VersioningOverride(behavior=ONE_TIME, version=_version(proto.one_time.target_deployment_version))
    raise UnfitError("override behavior is required")


def _version(proto: Any) -> DeploymentVersion:
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
