"""Who may do what, and where: the namespace that is checked is the one that is meant."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeNamespaceRequest,
    ExecuteMultiOperationRequest,
    ListNamespacesRequest,
)

from perdure.frontend import guard as of_guard
from perdure.frontend.errors import RpcError
from perdure.frontend.guard import Guard
from perdure.frontend.namespaces import namespace_of
from perdure.frontend.service.call import Call
from perdure.kube import clock

CALL = Call(None, (("authorization", "Bearer token"),))


class ApiServer:
    """Answers reviews: the token is right, and what is allowed is a matter of the test."""

    def __init__(self) -> None:
        self.allowed = False
        self.asked: list[dict[str, Any]] = []

    async def create(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        if url.endswith("tokenreviews"):
            return {"status": {"authenticated": True, "user": {"username": "system:serviceaccount:orders:shop"}}}
        self.asked.append(body["spec"]["resourceAttributes"])
        return {"status": {"allowed": self.allowed}}


def both(outer: str, start: str, update: str) -> ExecuteMultiOperationRequest:
    request = ExecuteMultiOperationRequest(namespace=outer)
    request.operations.add().start_workflow.namespace = start
    request.operations.add().update_workflow.namespace = update
    return request


@pytest.mark.parametrize(("start", "update"), [("other", "orders"), ("orders", "other"), ("other", "other")])
def test_operations_inside_a_request_reach_no_other_namespace(start: str, update: str) -> None:
    with pytest.raises(RpcError, match="Operation namespace did not match request's namespace"):
        namespace_of("ExecuteMultiOperation", both("orders", start, update))


def test_operations_that_name_no_namespace_are_about_that_of_the_request() -> None:
    request = both("orders", "", "orders")
    assert namespace_of("ExecuteMultiOperation", request) == "orders"
    assert request.operations[0].start_workflow.namespace == "orders"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "x" * 64])
def test_what_cannot_be_a_namespace_is_refused_before_anything_is_done(name: str) -> None:
    with pytest.raises(RpcError, match="Namespace"):
        namespace_of("CountWorkflowExecutions", CountWorkflowExecutionsRequest(namespace=name))


def test_the_namespace_that_is_checked_is_the_one_that_is_told_of() -> None:
    assert namespace_of("DescribeNamespace", DescribeNamespaceRequest(id="bb")) == "bb"
    assert namespace_of("DescribeNamespace", DescribeNamespaceRequest(namespace="aa", id="bb")) == "aa"
    assert namespace_of("ListSearchAttributes", ListSearchAttributesRequest()) == "default"
    assert namespace_of("ListNamespaces", ListNamespacesRequest()) is None


async def test_who_is_refused_is_told_the_remedy_and_let_in_seconds_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    server, begin = ApiServer(), clock.now()
    guard = Guard(server)  # type: ignore[arg-type]
    monkeypatch.setattr(of_guard, "now", lambda: begin)
    for rpc, role in (("StartWorkflowExecution", "client"), ("PollWorkflowTaskQueue", "worker")):
        with pytest.raises(RpcError, match=f"bind the ClusterRole perdure-temporal-{role} in namespace orders to"):
            await guard.admit(rpc, "orders", CALL)
    server.allowed = True
    monkeypatch.setattr(of_guard, "now", lambda: begin + timedelta(seconds=3))
    await guard.admit("StartWorkflowExecution", "orders", CALL)
    server.allowed = False
    monkeypatch.setattr(of_guard, "now", lambda: begin + timedelta(seconds=20))
    await guard.admit("StartWorkflowExecution", "orders", CALL)
    assert [asked["namespace"] for asked in server.asked] == ["orders"] * 3
