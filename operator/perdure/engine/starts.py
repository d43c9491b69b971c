"""Starts of workflows by workflows, and the relations between runs."""

from datetime import timedelta
from typing import Any

from perdure.api.stored import StoredStruct
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.retry import RetryPolicy
from perdure.engine.versioning import DeploymentVersion, InheritedAutoUpgradeInfo, VersioningOverride

MAX_CHILD_DEPTH = 20
"""Maximum number of ancestors of a run: enough to divide work into levels, but few enough to stop a workflow that starts itself
before it fills the namespace. Temporal has no limit; Argo stops templates that call each other 100 times."""


SHORTEST_RUN = timedelta(seconds=1)
"""Minimum time between the first steps of a run and of the next run (Temporal: WorkflowIdReuseMinimalInterval)."""


class Callback(StoredStruct, frozen=True, kw_only=True):
    """The caller of a Nexus operation that the end of a workflow completes."""

    url: str
    header: dict[str, str] = {}
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


class StartExtras(StoredStruct, frozen=True, kw_only=True):
    """Options of a Temporal client for a run that it starts, in addition to the spec. Opaque to the engine."""

    identity: str = ""
    header: Any = None
    memo: Any = None
    user_metadata: Any = None
    cron_schedule: str = ""
    initiator: str = ""
    last_completion_result: Any = None
    continued_failure: Failure | None = None
    priority: Any = None
    root_workflow_id: str = ""
    root_run_id: str = ""
    request_id: str = ""
    completion_callbacks: tuple[Callback, ...] = ()
    eager_execution_accepted: bool = False
    links: Any = None
    versioning_override: VersioningOverride | None = None
    inherited_pinned_version: DeploymentVersion | None = None
    inherited_auto_upgrade_info: InheritedAutoUpgradeInfo | None = None
    endpoint_id: str = ""
    """The ID of the endpoint of a standalone Nexus operation."""
    handler_namespace: str = ""
    """The namespace of the endpoint of a standalone Nexus operation."""

    def inherited_versions(self) -> dict[str, DeploymentVersion]:
        """The versions that continuing runs and children inherit, by field."""
        override, upgrade = self.versioning_override, self.inherited_auto_upgrade_info
        inherited = {
            "versioning_override": override.version if override is not None else None,
            "inherited_pinned_version": self.inherited_pinned_version,
            "inherited_auto_upgrade_info": upgrade.source_deployment_version if upgrade is not None else None,
        }
        return {field: version for field, version in inherited.items() if version is not None}


class WorkflowStart(StoredStruct, frozen=True, kw_only=True):
    """The run that a start creates."""

    workflow_type: str
    """Name of a Workflow, or the type of a workflow that SDK workers run."""
    task_queue: str = ""
    """The task queue of the SDK workers; empty for a Workflow."""
    workflow_id: str
    workflow_id_reuse_policy: str = "AllowDuplicateFailedOnly"
    input: Any = None
    workflow_execution_timeout: timedelta | None = None
    workflow_run_timeout: timedelta | None = None
    workflow_task_timeout: timedelta | None = None
    retry_policy: RetryPolicy | None = None
    search_attributes: dict[str, Any] = {}
    extras: StartExtras | None = None


class RestartedOperation(StoredStruct, frozen=True, kw_only=True):
    """A Nexus operation that starts again after a reset."""

    request_id: str
    """The ID of the new request: with the old one, the handler would find the operation that was canceled."""
    input: Any = None


class ParentReference(StoredStruct, frozen=True, kw_only=True):
    """The run that a child belongs to."""

    name: str
    """Name of the WorkflowRun, in the same namespace."""
    workflow_id: str
    run_id: str
    initiated_event_id: int


class ExternalReference(StoredStruct, frozen=True, kw_only=True):
    """The run that sent a signal or a cancellation request to another one, and the event that recorded its decision."""

    workflow_id: str
    run_id: str
    initiated_event_id: int


class CarriedSignal(StoredStruct, frozen=True, kw_only=True):
    """A signal that one run passes to the next."""

    signal_name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    header: Any = None
    external: ExternalReference | None = None


def too_deep(depth: int) -> Failure | None:
    """Why a child with this number of ancestors cannot start; None if it can."""
    if depth <= MAX_CHILD_DEPTH:
        return None
    message = (
        f"the child would have {depth} ancestors, but at most {MAX_CHILD_DEPTH} are allowed; check that the workflow does not "
        "start itself endlessly, and use continueAsNew to repeat it"
    )
    return Failure(kind=FailureKind.APPLICATION, type="ChildDepthExceeded", message=message, non_retryable=True)
