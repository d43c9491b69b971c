"""The RPCs of Temporal's API, from the SDK package: their messages, and why the operator does not serve some of them."""

from functools import cache
from types import ModuleType
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.workflowservice import v1 as workflowservice

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

SERVICES: Final[dict[str, ModuleType]] = {
    "temporal.api.workflowservice.v1.WorkflowService": workflowservice,
    "temporal.api.operatorservice.v1.OperatorService": operatorservice,
}


def service_of(rpc: str) -> str:
    """The service that an RPC belongs to.

    Raises:
        KeyError: The RPC does not exist.
    """
    for service, module in SERVICES.items():
        if hasattr(module, f"{rpc}Request"):
            return service
    raise KeyError(rpc)


def request_of(rpc: str) -> Any:
    """The class of the requests of an RPC."""
    return getattr(SERVICES[service_of(rpc)], f"{rpc}Request")


def response_of(rpc: str) -> Any:
    """The class of the responses of an RPC."""
    return getattr(SERVICES[service_of(rpc)], f"{rpc}Response")


@cache
def head_of(kind: Any) -> Any:
    """A class of messages that have only those fields of a request that name its namespace. All others it leaves encoded."""
    named = [kind.fields_by_name[name] for name in ("namespace", "id") if name in kind.fields_by_name]
    file = FileDescriptorProto(name=f"{kind.full_name}.head", package="perdure.head", syntax="proto3")
    head = file.message_type.add(name=kind.name)
    for field in named:
        if field.type == FieldDescriptor.TYPE_STRING:
            head.field.add(name=field.name, number=field.number, type=field.type, label=field.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"perdure.head.{kind.name}"))
