"""The page of Temporal's RPCs: which ones the operator serves, and why it does not serve the others."""

from typing import Final

from temporalio.api.operatorservice.v1 import service_pb2 as operator_service
from temporalio.api.workflowservice.v1 import service_pb2 as workflow_service

from perdure.frontend.configuration import Settings
from perdure.frontend.rights import DEPRECATED
from perdure.frontend.server import Frontend
from reference.markdown import page, table

_VERSIONING: Final = "Temporal deprecated this form of worker versioning. Use worker deployments."
_RULES: Final = "Temporal's server disables workflow rules by default. To pause an activity, call `PauseActivity`."
_KUBERNETES: Final = "Namespaces are those of Kubernetes: create and delete them with kubectl."
_CLUSTERS: Final = "Perdure runs in one cluster and does not replicate."
_CREATED: Final = "A worker that polls creates its deployment and its version."
_COMPUTE: Final = "Kubernetes runs and scales workers."
_CONFIG: Final = "No SDK applies the configuration that a server sends. Set worker options in the worker's code."

UNSUPPORTED: Final = {
    "CreateWorkerDeployment": _CREATED,
    "CreateWorkerDeploymentVersion": _CREATED,
    "UpdateWorkerDeploymentVersionComputeConfig": _COMPUTE,
    "ValidateWorkerDeploymentVersionComputeConfig": _COMPUTE,
    **dict.fromkeys(sorted(DEPRECATED), _VERSIONING),
    "CreateWorkflowRule": _RULES,
    "DeleteWorkflowRule": _RULES,
    "DescribeWorkflowRule": _RULES,
    "ListWorkflowRules": _RULES,
    "TriggerWorkflowRule": _RULES,
    "FetchWorkerConfig": _CONFIG,
    "UpdateWorkerConfig": _CONFIG,
    "ListTaskQueuePartitions": "A task queue has no partitions.",
    "PollWorkflowExecutionTimeSkipping": "Time is skipped in tests only: `perdure simulate` and the SDKs' test servers.",
    "ListArchivedWorkflowExecutions": (
        "Perdure has no archive. `ttlSecondsAfterFinished` sets how long a closed run is kept."
    ),
    "RegisterNamespace": _KUBERNETES,
    "UpdateNamespace": _KUBERNETES,
    "DeprecateNamespace": _KUBERNETES,
    "DeleteNamespace": _KUBERNETES,
    "AddOrUpdateRemoteCluster": _CLUSTERS,
    "ListClusters": _CLUSTERS,
    "RemoveRemoteCluster": _CLUSTERS,
}
"""RPCs that return UNIMPLEMENTED, and the reason or the alternative."""

_HEAD: Final = """\
The operator serves Temporal's gRPC API on port 7233. RPCs that it does not serve return `UNIMPLEMENTED`.
[Compatibility with Temporal](../temporal-compatibility.md) lists how served RPCs differ."""


def pages() -> dict[str, str]:
    """Write the page."""
    served = Frontend(Settings(authentication=False)).handlers().keys() - DEPRECATED
    parts = [_HEAD]
    for title, file in (("WorkflowService", workflow_service), ("OperatorService", operator_service)):
        names = sorted(file.DESCRIPTOR.services_by_name[title].methods_by_name)
        parts += [
            f"## {title}",
            f"Served: {', '.join(f'`{name}`' for name in names if name in served)}.",
            "Not served:",
            table(("RPC", "reason"), ((f"`{name}`", UNSUPPORTED[name]) for name in names if name not in served)),
        ]
    return {"rpcs.md": page("RPCs", "the services of operator/perdure/frontend", *parts)}
