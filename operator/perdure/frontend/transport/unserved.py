"""The RPCs of Temporal's API that the operator does not serve, and why."""

from collections.abc import Callable
from typing import Any, Final, NoReturn

import grpc

from perdure.frontend.transport.rights import DEPRECATED

_VERSIONING: Final = "Temporal deprecated this form of worker versioning. Use worker deployments."
_RULES: Final = "Temporal's server disables workflow rules by default. To pause an activity, call `PauseActivity`."
_KUBERNETES: Final = "Namespaces are those of Kubernetes: create and delete them with kubectl."
_CLUSTERS: Final = "Perdure runs in one cluster and does not replicate."
_CREATED: Final = "A worker that polls creates its deployment and its version."
_COMPUTE: Final = "Kubernetes runs and scales workers."
_CONFIG: Final = "No SDK applies the configuration that a server sends. Set worker options in the worker's code."

UNSERVED: Final = {
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


def refusing(reason: str) -> Callable[[Any, Any], Any]:
    """Return a handler that responds with UNIMPLEMENTED and the reason, without reading the message."""

    async def refuse(unread: Any, context: Any) -> NoReturn:  # noqa: ARG001 (gRPC's form)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, reason)
        raise AssertionError  # `abort` raises

    return refuse
