"""The RPCs of Temporal's API, from the SDK package."""

from types import ModuleType
from typing import Any, Final

from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.workflowservice import v1 as workflowservice

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
