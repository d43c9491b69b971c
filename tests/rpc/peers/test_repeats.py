"""What members repeat after a lost one may have handled it, and how they learn that it may have."""

import asyncio
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    RespondActivityTaskFailedByIdRequest,
    SignalWorkflowExecutionRequest,
    SignalWorkflowExecutionResponse,
    StartWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)

from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import AllShards
from perdure.frontend.errors import RpcError
from perdure.frontend.peers.calls import LOST, CallFailedError, Failure, Headers, PeerLostError
from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.peers.forwarding import add_request_ids, is_repeatable
from perdure.frontend.peers.router import Router
from perdure.frontend.transport.rpc import CallContext, request_of

W = WorkflowExecution(workflow_id="w")
TERMINATE = TerminateWorkflowExecutionRequest(namespace="default", workflow_execution=W)
LOSSES = {
    "a broken connection": PeerLostError("the connection broke", may_have_acted=True),
    "a lost shard": CallFailedError(Failure(14, "this operator has lost shard 7", LOST)),
}


class OwnedByAnother(AllShards):
    """The shards of a process of which another one owns all, at first."""

    active = False

    def __init__(self) -> None:
        self.mine = False

    def owner(self, shard: int) -> str:
        del shard
        return "" if self.mine else "b"

    def owns_shard(self, shard: int) -> bool:
        del shard
        return self.mine


class Losing:
    """A connection to a member that fails the first call after it may have handled it."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.bodies: list[bytes] = []

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        del path, headers, authorization, seconds
        self.bodies.append(body)
        if len(self.bodies) == 1:
            raise self.error
        return SignalWorkflowExecutionResponse().SerializeToString()

    async def close(self) -> None:
        pass


def called(rpc: str, request: Any, connection: Losing) -> Any:
    """Call an RPC whose shard another member owns."""

    async def handler(_: Any, __: CallContext) -> Any:
        raise AssertionError("another member owns it")

    client = PeerClient(PeerIdentity(name="a"), lambda: {"b": "b"}, connect=lambda *_, **__: connection)
    routed = Router(OwnedByAnother(), Directory(), client).routed({rpc: handler})
    return asyncio.run(routed[rpc](request, CallContext(10)))  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", LOSSES)
def test_an_operator_repeats_a_signal_without_an_id_so_that_it_counts_once(loss: str) -> None:
    connection = Losing(LOSSES[loss])
    called(
        "SignalWorkflowExecution", SignalWorkflowExecutionRequest(namespace="default", workflow_execution=W), connection
    )
    first, second = (SignalWorkflowExecutionRequest.FromString(body).request_id for body in connection.bodies)
    assert first == second != ""


@pytest.mark.parametrize("loss", LOSSES)
def test_an_operator_does_not_repeat_what_could_count_twice(loss: str) -> None:
    connection = Losing(LOSSES[loss])
    with pytest.raises(RpcError, match="the operator was lost, and may have handled the call") as error:
        called("TerminateWorkflowExecution", TERMINATE, connection)
    assert error.value.code is grpc.StatusCode.UNAVAILABLE
    assert len(connection.bodies) == 1


def test_a_member_that_loses_a_shard_while_it_handles_a_call_may_have_acted() -> None:
    async def check() -> None:
        shards, began = OwnedByAnother(), asyncio.Event()
        router = Router(shards, Directory(), PeerClient(PeerIdentity(name="a"), dict))

        async def handler(_: Any, __: CallContext) -> Any:
            began.set()
            await asyncio.Event().wait()

        shards.mine = True
        handled = asyncio.ensure_future(
            router.handle("TerminateWorkflowExecution", handler, TERMINATE, CallContext(10))
        )
        await began.wait()
        shards.mine = False
        router.reassign()
        with pytest.raises(PeerLostError, match="lost shard") as error:
            await handled
        assert error.value.may_have_acted

    asyncio.run(check())


def test_requests_without_an_id_get_one_and_can_be_repeated() -> None:
    start, signal = StartWorkflowExecutionRequest(), SignalWorkflowExecutionRequest(request_id="given")
    update, both = UpdateWorkflowExecutionRequest(), ExecuteMultiOperationRequest()
    both.operations.add().start_workflow.SetInParent()
    both.operations.add().update_workflow.SetInParent()
    for request in (start, signal, update, both):
        add_request_ids(request)
    assert start.request_id
    assert signal.request_id == "given"
    assert update.request.meta.update_id
    assert both.operations[0].start_workflow.request_id
    assert both.operations[1].update_workflow.request.meta.update_id
    for request in (start, signal, update, both):
        assert is_repeatable(type(request).__name__.removesuffix("Request"), request)


def test_only_reads_calls_of_workers_and_identified_requests_are_repeated() -> None:
    terminate = TerminateWorkflowExecutionRequest(workflow_execution=WorkflowExecution(workflow_id="w"))
    add_request_ids(terminate)
    assert not is_repeatable("TerminateWorkflowExecution", terminate)
    assert not is_repeatable("RespondActivityTaskFailedById", RespondActivityTaskFailedByIdRequest()), (
        "it names no attempt"
    )
    for rpc in ("ListWorkflowExecutions", "RespondWorkflowTaskCompleted", "PollWorkflowTaskQueue", "QueryWorkflow"):
        assert is_repeatable(rpc, request_of(rpc)())
