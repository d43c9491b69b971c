"""The Kubernetes permission that each RPC requires, which is the same as with kubectl. Pure.

Workers need a separate permission, to ``update`` ``workflowruns/tasks`` (a resource that exists only in roles): it allows them to
decide runs and to execute activities through the frontend, which validates everything; it does not allow them to write a status.

Likewise for clients: each permission to write an object has a counterpart for the frontend only, such as ``create``
``workflowruns/temporal``. It allows a client to use the frontend, and not to write the object itself.

What the frontend keeps in ConfigMaps has resources of its own, which exist only in roles: ``workerdeployments/temporal``,
``taskqueues/temporal``, ``searchattributes/temporal``, and ``nexusendpoints``, of the whole cluster. None of them allows writing
a ConfigMap.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource of a namespace."""

    verb: str
    resource: str
    subresource: str = ""
    group: str = "perdure.dev"

    @property
    def of_frontend(self) -> "Right | None":
        """The right to do the same only through the frontend; None if there is none."""
        writes = self.verb in _WRITES and self.resource in _WRITTEN and not self.subresource
        return Right(self.verb, self.resource, "temporal", self.group) if writes else None


_WRITES = frozenset({"create", "update", "delete"})
_WRITTEN = frozenset({"workflowruns", "operations", "schedules", "workflowdefaults"})
_WORK = Right("update", "workflowruns", "tasks")
_START = Right("create", "workflowruns")
_CREATE_OPERATION = Right("create", "operations")
_READ = Right("get", "workflowruns")
_LIST = Right("list", "workflowruns")
_DELETE = Right("delete", "workflowruns")
_GET_SCHEDULES, _LIST_SCHEDULES = Right("get", "schedules"), Right("list", "schedules")
_CREATE_SCHEDULE, _UPDATE_SCHEDULE = Right("create", "schedules"), Right("update", "schedules")
_ROUTE = Right("update", "workerdeployments", "temporal")
_DELETE_DEPLOYMENT = Right("delete", "workerdeployments", "temporal")
_CONFIGURE_QUEUE = Right("update", "taskqueues", "temporal")
_REGISTER = Right("update", "searchattributes", "temporal")
_SET_DEFAULTS = Right("update", "workflowdefaults")
_ADMINISTER = Right("*", "*", group="*")
"""Everything in the namespace: the right to call an RPC that this module does not know."""
_ENDPOINTS = "nexusendpoints"
"""A resource that exists only in roles, as of the whole cluster: an endpoint says which namespaces may call another one."""

DEPRECATED = frozenset(
    {
        "DescribeDeployment",
        "GetCurrentDeployment",
        "GetDeploymentReachability",
        "GetWorkerBuildIdCompatibility",
        "GetWorkerTaskReachability",
        "GetWorkerVersioningRules",
        "ListDeployments",
        "SetCurrentDeployment",
        "UpdateWorkerBuildIdCompatibility",
        "UpdateWorkerVersioningRules",
    }
)
"""Earlier forms of worker versioning, which are not supported."""
FREE = frozenset({"GetSystemInfo", "GetClusterInfo", "GetSearchAttributes", "ListNamespaces"}) | DEPRECATED
"""RPCs for all authenticated users; they reveal nothing about a namespace that the user may not describe."""
OF_WORKERS = frozenset(
    {
        "PollActivityTaskQueue",
        "PollNexusTaskQueue",
        "PollWorkflowTaskQueue",
        "RecordActivityTaskHeartbeat",
        "RecordActivityTaskHeartbeatById",
        "RecordWorkerHeartbeat",
        "RespondActivityTaskCanceled",
        "RespondActivityTaskCanceledById",
        "RespondActivityTaskCompleted",
        "RespondActivityTaskCompletedById",
        "RespondActivityTaskFailed",
        "RespondActivityTaskFailedById",
        "RespondNexusTaskCompleted",
        "RespondNexusTaskFailed",
        "RespondQueryTaskCompleted",
        "RespondWorkflowTaskCompleted",
        "RespondWorkflowTaskFailed",
        "ShutdownWorker",
    }
)
"""RPCs of workers."""
_RIGHTS: dict[str, tuple[Right, ...]] = {
    "StartWorkflowExecution": (_START,),
    "SignalWithStartWorkflowExecution": (_START, _CREATE_OPERATION),
    "ExecuteMultiOperation": (_START, _CREATE_OPERATION),
    "SignalWorkflowExecution": (_CREATE_OPERATION,),
    "RequestCancelWorkflowExecution": (_CREATE_OPERATION,),
    "TerminateWorkflowExecution": (_CREATE_OPERATION,),
    "PauseWorkflowExecution": (_CREATE_OPERATION,),
    "UnpauseWorkflowExecution": (_CREATE_OPERATION,),
    "UpdateWorkflowExecution": (_CREATE_OPERATION,),
    "ResetWorkflowExecution": (_CREATE_OPERATION,),
    "PollWorkflowExecutionUpdate": (_READ,),
    "PauseActivity": (_CREATE_OPERATION,),
    "UnpauseActivity": (_CREATE_OPERATION,),
    "ResetActivity": (_CREATE_OPERATION,),
    "UpdateActivityOptions": (_CREATE_OPERATION,),
    "StartActivityExecution": (_START,),
    "PollActivityExecution": (_READ,),
    "DescribeActivityExecution": (_READ,),
    "ListActivityExecutions": (_LIST,),
    "CountActivityExecutions": (_LIST,),
    "RequestCancelActivityExecution": (_CREATE_OPERATION,),
    "TerminateActivityExecution": (_CREATE_OPERATION,),
    "DeleteActivityExecution": (_DELETE,),
    "PauseActivityExecution": (_CREATE_OPERATION,),
    "UnpauseActivityExecution": (_CREATE_OPERATION,),
    "ResetActivityExecution": (_CREATE_OPERATION,),
    "UpdateActivityExecutionOptions": (_CREATE_OPERATION,),
    "StartNexusOperationExecution": (_START,),
    "DispatchNexusTask": (_START,),
    "PollNexusOperationExecution": (_READ,),
    "DescribeNexusOperationExecution": (_READ,),
    "ListNexusOperationExecutions": (_LIST,),
    "CountNexusOperationExecutions": (_LIST,),
    "RequestCancelNexusOperationExecution": (_CREATE_OPERATION,),
    "TerminateNexusOperationExecution": (_CREATE_OPERATION,),
    "DeleteNexusOperationExecution": (_DELETE,),
    "StartBatchOperation": (_CREATE_OPERATION, _LIST),
    "StopBatchOperation": (_CREATE_OPERATION,),
    "DescribeBatchOperation": (_LIST,),
    "ListBatchOperations": (_LIST,),
    "ResetStickyTaskQueue": (_CREATE_OPERATION,),
    "DeleteWorkflowExecution": (_DELETE,),
    "QueryWorkflow": (_READ,),
    "DescribeWorkflowExecution": (_READ,),
    "GetWorkflowExecutionHistory": (_READ,),
    "GetWorkflowExecutionHistoryReverse": (_READ,),
    "GetArchivedRun": (_READ,),
    "ListArchivedRuns": (_LIST,),
    "ListWorkflowExecutions": (_LIST,),
    "ScanWorkflowExecutions": (_LIST,),
    "CountWorkflowExecutions": (_LIST,),
    "ListOpenWorkflowExecutions": (_LIST,),
    "ListClosedWorkflowExecutions": (_LIST,),
    "CreateSchedule": (_CREATE_SCHEDULE,),
    "DescribeSchedule": (_GET_SCHEDULES,),
    "UpdateSchedule": (_UPDATE_SCHEDULE,),
    "PatchSchedule": (_UPDATE_SCHEDULE, _CREATE_OPERATION),
    "DeleteSchedule": (Right("delete", "schedules"),),
    "ListScheduleMatchingTimes": (_GET_SCHEDULES,),
    "ListSchedules": (_LIST_SCHEDULES,),
    "CountSchedules": (_LIST_SCHEDULES,),
    "DescribeNamespace": (_READ,),
    "UpdateNamespace": (_SET_DEFAULTS,),
    "DescribeTaskQueue": (_READ,),
    "CountWorkers": (_READ,),
    "ListWorkers": (_READ,),
    "DescribeWorkerDeployment": (_READ,),
    "DescribeWorkerDeploymentVersion": (_READ,),
    "ListWorkerDeployments": (_LIST,),
    "SetWorkerDeploymentCurrentVersion": (_ROUTE,),
    "SetWorkerDeploymentRampingVersion": (_ROUTE,),
    "SetWorkerDeploymentManager": (_ROUTE,),
    "UpdateWorkerDeploymentVersionMetadata": (_ROUTE,),
    "DeleteWorkerDeployment": (_DELETE_DEPLOYMENT,),
    "DeleteWorkerDeploymentVersion": (_DELETE_DEPLOYMENT,),
    "UpdateWorkflowExecutionOptions": (_CREATE_OPERATION,),
    "UpdateTaskQueueConfig": (_CONFIGURE_QUEUE,),
    "DescribeWorker": (_READ,),
    "ListSearchAttributes": (_READ,),
    "AddSearchAttributes": (_REGISTER,),
    "RemoveSearchAttributes": (_REGISTER,),
    "CreateNexusEndpoint": (Right("create", _ENDPOINTS),),
    "UpdateNexusEndpoint": (Right("update", _ENDPOINTS),),
    "DeleteNexusEndpoint": (Right("delete", _ENDPOINTS),),
    "GetNexusEndpoint": (Right("get", _ENDPOINTS),),
    "ListNexusEndpoints": (Right("list", _ENDPOINTS),),
}


def needed(rpc: str) -> tuple[Right, ...]:
    """The permissions that an RPC requires. One that is not listed here requires all permissions in the namespace."""
    if rpc in OF_WORKERS:
        return (_WORK,)
    return _RIGHTS.get(rpc, (_ADMINISTER,))


def changes(rpc: str) -> bool:
    """Whether an RPC of a client changes something; False for RPCs of workers."""
    return rpc in _RIGHTS and any(right.verb not in {"get", "list"} for right in _RIGHTS[rpc])


def answers(rpc: str) -> bool:
    """Whether an RPC is a decision or report of a worker; False for polls and heartbeats."""
    return rpc.startswith("Respond")


_WORKER, _CLIENT = "perdure-temporal-worker", "perdure-temporal-client"
_MAINTAINER = "perdure-temporal-maintainer"


def remedy(user: str, namespace: str | None, right: Right) -> str:
    """Describe how to grant a permission to a user, with a role of the chart if possible.

    Args:
        user: The user.
        namespace: The namespace; None: all namespaces.
        right: The missing right.
    """
    if namespace is None:
        return f"bind a ClusterRole with this permission to {user}, with a ClusterRoleBinding"
    if right == _WORK:
        role = f"the ClusterRole {_WORKER}"
    elif right == _READ:
        role = f"the ClusterRole {_CLIENT}, or {_WORKER} for a worker,"
    elif right in {_ROUTE, _DELETE_DEPLOYMENT, _CONFIGURE_QUEUE, _REGISTER, _SET_DEFAULTS}:
        role = f"the ClusterRole {_MAINTAINER}"
    elif right in {_DELETE, _ADMINISTER}:
        role = "a Role with this permission"
    else:
        role = f"the ClusterRole {_CLIENT}"
    return f"bind {role} in namespace {namespace} to {user}"
