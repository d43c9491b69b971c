"""Every RPC that Perdure does not serve has a reason, in the reference and in its error."""

import grpc
from temporalio.api.operatorservice.v1 import OperatorServiceStub
from temporalio.api.workflowservice.v1 import WorkflowServiceStub

from perdure.frontend.transport.rights import DEPRECATED
from perdure.frontend.transport.rpc import UNSERVED
from reference.rpcs import pages
from support.managers import client_without_server, frontend_over


def of_the_api() -> set[str]:
    channel = grpc.insecure_channel("localhost:1")  # never connected
    stubs = (WorkflowServiceStub(channel), OperatorServiceStub(channel))
    return {name for stub in stubs for name in vars(stub) if name[0].isupper()}


async def test_each_rpc_is_served_or_listed_with_a_reason() -> None:
    async with client_without_server() as client:
        served = frontend_over(client).handlers().keys() - DEPRECATED
    assert UNSERVED.keys() == of_the_api() - served
    assert all(UNSERVED.values())


def test_the_page_names_every_rpc() -> None:
    (text,) = pages().values()
    assert [name for name in of_the_api() if f"`{name}`" not in text] == []
