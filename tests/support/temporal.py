"""A server that speaks Temporal's API: Perdure, or Temporal's own."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import grpc
from google.protobuf.message import Message
from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.operatorservice.v1 import OperatorServiceStub
from temporalio.api.workflowservice import v1 as workflowservice
from temporalio.api.workflowservice.v1 import WorkflowServiceStub


@dataclass
class Server:
    """A server that speaks Temporal's API."""

    address: str
    namespace: str
    authority: str = ""
    """Certificate of the authority to trust; empty: without TLS."""
    http_address: str = ""
    """Where it serves HTTP; empty: unknown, or nowhere."""
    cluster: Any = None
    """The API server in memory; None: a real one, or another process has it."""

    @cached_property
    def channel(self) -> grpc.Channel:
        if self.authority:
            return grpc.secure_channel(self.address, grpc.ssl_channel_credentials(self.authority.encode()))
        return grpc.insecure_channel(self.address)

    def rpc(self, name: str) -> tuple[Any, type[Message], type[Message]]:
        """The method of that name, and the types of its request and of its response."""
        for module, stub in ((workflowservice, WorkflowServiceStub), (operatorservice, OperatorServiceStub)):
            request = getattr(module, f"{name}Request", None)
            if request is not None:
                return getattr(stub(self.channel), name), request, getattr(module, f"{name}Response")
        raise LookupError(name)
