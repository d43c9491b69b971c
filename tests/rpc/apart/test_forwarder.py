"""How a frontend of its own forwards: to whom, what it repeats, and what it checks itself. The operators are those of a test."""

import asyncio
from collections.abc import Callable, Sequence

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    SignalWorkflowExecutionRequest,
    SignalWorkflowExecutionResponse,
    StartBatchOperationRequest,
    StartBatchOperationResponse,
    TerminateWorkflowExecutionRequest,
    TerminateWorkflowExecutionResponse,
)

from perdure.controller.fleet.shards import ranked, shard_of
from perdure.frontend.apart.forwarder import Forwarder
from perdure.frontend.errors import RpcError, denied
from perdure.frontend.peers.calls import LOST, NOT_OWNER, CallFailedError, Failure, Headers, PeerLostError, stopping
from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.transport.rpc import CallContext

OPERATORS = ("a", "b", "c")
W = WorkflowExecution(workflow_id="w")
NOT_OWNED = CallFailedError(Failure(14, "not mine", NOT_OWNER))
SHARD_LOST = CallFailedError(Failure(14, "lost shard 7", LOST))
BROKEN = PeerLostError("the connection broke", may_have_acted=True)
Answer = Callable[[str, bytes], bytes]


class Operators:
    """The operators of a fleet, and the calls that they have got."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.called: list[str] = []
        self.bodies: list[bytes] = []
        self.members: dict[str, str] = {name: name for name in OPERATORS}
        self.others_over_grpc: frozenset[str] = frozenset()
        self.outdated_times = 0
        peers = PeerClient(PeerIdentity(name="f", is_frontend=True), lambda: self.members, connect=self.connect)
        self.handlers = Forwarder(self, peers).handlers()

    @property
    def others(self) -> dict[str, str]:
        return self.members

    def ranked(self, shard: int) -> list[str]:
        return ranked(shard, self.members)

    def outdated(self) -> None:
        self.outdated_times += 1

    def subscribe(self, changed: Callable[[], None]) -> None:
        del changed

    def connect(self, address: str, _: object, *, over_grpc: bool) -> "Wire":
        assert not over_grpc
        return Wire(self, address)


class Wire:
    """The connection to an operator."""

    def __init__(self, operators: Operators, name: str) -> None:
        self.operators = operators
        self.name = name

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        del path, headers, authorization, seconds
        self.operators.called.append(self.name)
        self.operators.bodies.append(body)
        return self.operators.answer(self.name, body)

    async def close(self) -> None:
        pass


def owners() -> list[str]:
    """The operators by their rank for the workflow of these tests."""
    return ranked(shard_of("default", "w"), OPERATORS)


def failing(errors: Sequence[Exception | None], response: bytes) -> Answer:
    """Fail the first calls, one after the other."""
    left = list(errors)

    def answer(_: str, __: bytes) -> bytes:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return response

    return answer


def signal(operators: Operators, seconds: float | None = 10) -> SignalWorkflowExecutionResponse:
    request = SignalWorkflowExecutionRequest(namespace="default", workflow_execution=W)
    found: SignalWorkflowExecutionResponse = asyncio.run(
        operators.handlers["SignalWorkflowExecution"](request, CallContext(seconds))  # type: ignore[arg-type]
    )
    return found


@pytest.mark.parametrize(
    ("errors", "want"),
    [
        ([], 1),
        ([NOT_OWNED], 2),
        ([NOT_OWNED, NOT_OWNED, NOT_OWNED, NOT_OWNED], 5),
        ([BROKEN], 2),
        ([SHARD_LOST], 2),
        ([CallFailedError(stopping())], 2),
    ],
    ids=[
        "the owner",
        "not the owner",
        "no owner at first",
        "a broken connection",
        "a lost shard",
        "an operator that stops",
    ],
)
def test_an_rpc_goes_to_the_owner_or_to_the_next_one(errors: list[Exception], want: int) -> None:
    operators = Operators(failing(errors, SignalWorkflowExecutionResponse().SerializeToString()))
    signal(operators)
    assert operators.called == [*owners(), *owners()][:want]
    assert operators.outdated_times == len(errors)
    ids = {SignalWorkflowExecutionRequest.FromString(body).request_id for body in operators.bodies}
    assert len(ids) == 1
    assert ids != {""}, "otherwise a repeated signal would count twice"


def test_operators_that_know_no_frontends_are_not_called() -> None:
    operators = Operators(failing((), SignalWorkflowExecutionResponse().SerializeToString()))
    operators.others_over_grpc = frozenset({owners()[0]})
    signal(operators)
    assert operators.called == [owners()[1]]


def test_an_rpc_waits_for_an_owner_until_shortly_before_its_deadline() -> None:
    operators = Operators(failing([NOT_OWNED] * 1_000, b""))
    with pytest.raises(RpcError, match="no operator could handle the call") as error:
        signal(operators, 1.2)
    assert error.value.code is grpc.StatusCode.UNAVAILABLE
    assert len(operators.called) > len(OPERATORS)


@pytest.mark.parametrize("error", [BROKEN, SHARD_LOST], ids=["a broken connection", "a lost shard"])
def test_an_rpc_that_could_count_twice_is_repeated_only_if_nothing_was_done(error: Exception) -> None:
    request = TerminateWorkflowExecutionRequest(namespace="default", workflow_execution=W)
    response = TerminateWorkflowExecutionResponse().SerializeToString()
    operators = Operators(failing([NOT_OWNED, error], response))
    with pytest.raises(RpcError, match="the operator was lost, and may have handled the call") as refused:
        asyncio.run(operators.handlers["TerminateWorkflowExecution"](request, CallContext(10)))  # type: ignore[arg-type]
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    assert operators.called == owners()[:2]


def test_thousands_of_waiting_calls_leave_operators_time_to_take_over() -> None:
    operators = Operators(failing([NOT_OWNED] * 1_000, b""))
    with pytest.raises(RpcError, match="no operator could handle the call"):
        signal(operators, 5)
    rounds = len(operators.called) / len(OPERATORS)
    assert rounds <= 8, "after 0.2, 0.4, and 0.8 s, and then each second"


def test_a_caller_sees_only_its_namespaces_page_by_page() -> None:
    every = [f"ns-{number}" for number in range(7)]

    def answer(_: str, body: bytes) -> bytes:
        start = int(ListNamespacesRequest.FromString(body).next_page_token or b"0")
        page = [DescribeNamespaceResponse(namespace_info=NamespaceInfo(name=name)) for name in every[start : start + 3]]
        following = str(start + 3).encode() if start + 3 < len(every) else b""
        return ListNamespacesResponse(namespaces=page, next_page_token=following).SerializeToString()

    async def visible(names: Sequence[str]) -> Sequence[str]:
        assert list(names) == every, "the answer is cached for all of them"
        return [name for name in names if name not in {"ns-1", "ns-4"}]

    handler = Operators(answer).handlers["ListNamespaces"]
    call = CallContext(None, visible=visible)
    first = asyncio.run(handler(ListNamespacesRequest(page_size=3), call))  # type: ignore[arg-type]
    rest = asyncio.run(handler(ListNamespacesRequest(next_page_token=first.next_page_token), call))  # type: ignore[arg-type]
    assert [each.namespace_info.name for each in first.namespaces] == ["ns-0", "ns-2", "ns-3"]
    assert [each.namespace_info.name for each in rest.namespaces] == ["ns-5", "ns-6"]


def test_a_batch_of_deletions_needs_the_right_to_delete() -> None:
    asked: list[str] = []

    async def permit(rpc: str) -> None:
        asked.append(rpc)
        raise denied("no")

    operators = Operators(failing((), StartBatchOperationResponse().SerializeToString()))
    handler = operators.handlers["StartBatchOperation"]
    request = StartBatchOperationRequest(namespace="default", job_id="j")
    request.deletion_operation.SetInParent()
    with pytest.raises(RpcError, match="no"):
        asyncio.run(handler(request, CallContext(None, permit=permit)))  # type: ignore[arg-type]
    assert (asked, operators.called) == (["DeleteWorkflowExecution"], [])
    request.termination_operation.SetInParent()
    asyncio.run(handler(request, CallContext(None, permit=permit)))  # type: ignore[arg-type]
    assert len(operators.called) == 1
