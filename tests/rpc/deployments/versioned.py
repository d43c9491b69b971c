"""Workers with versions, and workflows on them."""

import json
from datetime import timedelta
from typing import Any

from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentOptions, WorkerDeploymentVersion
from temporalio.api.enums.v1 import (
    ContinueAsNewVersioningBehavior,
    VersioningBehavior,
    WorkerDeploymentVersionStatus,
    WorkerVersioningMode,
)
from temporalio.api.workflow.v1 import PostResetOperation, VersioningOverride

from rpc.served import Served

PINNED = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
AUTO_UPGRADE = VersioningBehavior.VERSIONING_BEHAVIOR_AUTO_UPGRADE
BY_UPGRADE = ContinueAsNewVersioningBehavior.CONTINUE_AS_NEW_VERSIONING_BEHAVIOR_AUTO_UPGRADE
USE_RAMPING_VERSION = ContinueAsNewVersioningBehavior.CONTINUE_AS_NEW_VERSIONING_BEHAVIOR_USE_RAMPING_VERSION
NAME = "shop"
MINUTE = timedelta(minutes=1)


def options(build: str) -> WorkerDeploymentOptions:
    mode = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    return WorkerDeploymentOptions(deployment_name=NAME, build_id=build, worker_versioning_mode=mode)


def version(build: str) -> WorkerDeploymentVersion:
    return WorkerDeploymentVersion(deployment_name=NAME, build_id=build)


def pinned_to(build: str) -> VersioningOverride:
    made = VersioningOverride()
    made.pinned.behavior = VersioningOverride.PinnedOverrideBehavior.PINNED_OVERRIDE_BEHAVIOR_PINNED
    made.pinned.version.CopyFrom(version(build))
    return made


def moved_to(build: str) -> PostResetOperation:
    """After a reset, pin the new run to a version."""
    made = PostResetOperation()
    made.update_workflow_options.workflow_execution_options.versioning_override.CopyFrom(pinned_to(build))
    made.update_workflow_options.update_mask.paths.append("versioning_override")
    return made


async def poll(here: Served, build: str, **fields: Any) -> Any:
    """Poll for a workflow task as a worker of a version; empty for an unversioned one."""
    return await here.call(
        "PollWorkflowTaskQueue", **({"deployment_options": options(build)} if build else {}), **fields
    )


async def decide(here: Served, build: str, behavior: int, *commands: Command, **fields: Any) -> Any:
    """Take the next workflow task of a version and answer it."""
    task = await poll(here, build)
    assert task.task_token, f"no workflow task for version {build}"
    await here.complete(task, *commands, deployment_options=options(build), versioning_behavior=behavior, **fields)
    return task


async def register(here: Served, *builds: str) -> None:
    """Let workers of versions poll once."""
    for build in builds:
        assert not (await poll(here, build)).task_token
        assert not (await here.call("PollActivityTaskQueue", deployment_options=options(build))).task_token


async def set_current(here: Served, build: str, **fields: Any) -> Any:
    return await here.call("SetWorkerDeploymentCurrentVersion", deployment_name=NAME, build_id=build, **fields)


async def start_on(here: Served, current: str, *others: str, **fields: Any) -> None:
    """Register versions, make the first one current, and start a workflow."""
    await register(here, *sorted((current, *others)))
    await set_current(here, current)
    await here.start(**fields)


async def signal(here: Served, workflow_id: str = "w") -> None:
    execution = WorkflowExecution(workflow_id=workflow_id)
    await here.call("SignalWorkflowExecution", workflow_execution=execution, signal_name="go")


async def describe(here: Served, workflow_id: str = "w") -> Any:
    return await here.call("DescribeWorkflowExecution", execution=WorkflowExecution(workflow_id=workflow_id))


async def versions_shown(here: Served) -> dict[str, Any]:
    """The search attributes about versions that are lists."""
    found = (await describe(here)).workflow_execution_info.search_attributes.indexed_fields
    names = ("BuildIds", "TemporalUsedWorkerDeploymentVersions")
    return {name: json.loads(found[name].data) for name in names if name in found}


def statuses(described: Any) -> dict[str, str]:
    info = described.worker_deployment_info
    name = WorkerDeploymentVersionStatus.Name
    prefix = "WORKER_DEPLOYMENT_VERSION_STATUS_"
    return {each.deployment_version.build_id: name(each.status).removeprefix(prefix) for each in info.version_summaries}
