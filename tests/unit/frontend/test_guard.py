"""Authentication and authorization: permissions are checked in the namespace of the request."""

import asyncio
import base64

import grpc
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.operatorservice.v1 import service_pb2 as operator_service
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeNamespaceRequest,
    ExecuteMultiOperationRequest,
    ListNamespacesRequest,
)
from temporalio.api.workflowservice.v1 import service_pb2 as workflow_service

from perdure.frontend.errors import RpcError
from perdure.frontend.server import guard_of
from perdure.frontend.settings import settings_of
from perdure.frontend.transport.guard import Guard, User, tenant_of
from perdure.frontend.transport.rights import FREE, needed
from perdure.frontend.transport.rpc import UNSERVED, check_inside, namespace_of
from support.callers import AUDIENCE, ApiServer, bearer, token
from support.clock import stopped_clock

CLIENT_RPCS = (
    "StartWorkflowExecution",
    "SignalWorkflowExecution",
    "DeleteWorkflowExecution",
    "CreateSchedule",
    "PatchSchedule",
    "DeleteSchedule",
    "DescribeSchedule",
    "ListWorkflowExecutions",
    "AddSearchAttributes",
    "PollWorkflowTaskQueue",
)


def both(outer: str, start: str, update: str) -> ExecuteMultiOperationRequest:
    request = ExecuteMultiOperationRequest(namespace=outer)
    request.operations.add().start_workflow.namespace = start
    request.operations.add().update_workflow.namespace = update
    return request


@pytest.mark.parametrize(("start", "update"), [("other", "orders"), ("orders", "other"), ("other", "other")])
def test_operations_in_a_request_cannot_target_another_namespace(start: str, update: str) -> None:
    with pytest.raises(RpcError, match="Operation namespace did not match request's namespace"):
        check_inside("ExecuteMultiOperation", "orders", both("orders", start, update))


def test_operations_without_a_namespace_inherit_that_of_the_request() -> None:
    request = both("orders", "", "orders")
    check_inside("ExecuteMultiOperation", "orders", request)
    assert request.operations[0].start_workflow.namespace == "orders"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", "x" * 64])
def test_an_invalid_namespace_is_rejected(name: str) -> None:
    with pytest.raises(RpcError, match="Namespace"):
        namespace_of("CountWorkflowExecutions", CountWorkflowExecutionsRequest(namespace=name))


def test_the_checked_namespace_is_that_of_the_request() -> None:
    assert namespace_of("DescribeNamespace", DescribeNamespaceRequest(id="bb")) == "bb"
    assert namespace_of("DescribeNamespace", DescribeNamespaceRequest(namespace="aa", id="bb")) == "aa"
    assert namespace_of("ListSearchAttributes", ListSearchAttributesRequest()) == "default"
    assert namespace_of("ListNamespaces", ListNamespacesRequest()) is None


async def test_a_denied_caller_gets_the_remedy_and_is_admitted_seconds_after_it() -> None:
    with stopped_clock() as clock:
        server = ApiServer()
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        user = await guard.authenticate(bearer(token()), "10.0.0.1")
        for rpc, role in (("StartWorkflowExecution", "client"), ("PollWorkflowTaskQueue", "worker")):
            with pytest.raises(RpcError, match=f"bind the ClusterRole perdure-temporal-{role} in namespace orders to"):
                await guard.authorize(user, rpc, "orders")
        server.allowed = True
        clock.at(3)
        await guard.authorize(user, "StartWorkflowExecution", "orders")
        server.allowed = False
        clock.at(20)
        await guard.authorize(user, "StartWorkflowExecution", "orders")
        asked = [(each["resource"], each["subresource"], each["namespace"]) for each in server.asked]
        assert asked == [
            ("workflowruns", "", "orders"),
            ("workflowruns", "temporal", "orders"),
            ("workflowruns", "tasks", "orders"),
            ("workflowruns", "", "orders"),
        ]


def test_each_write_permission_has_a_frontend_only_counterpart() -> None:
    found = {(right.verb, right.resource): right.of_frontend for rpc in CLIENT_RPCS for right in needed(rpc)}
    with_counterpart = {key for key, other in found.items() if other is not None}
    assert with_counterpart == {
        ("create", "workflowruns"),
        ("delete", "workflowruns"),
        ("create", "operations"),
        ("create", "schedules"),
        ("update", "schedules"),
        ("delete", "schedules"),
    }
    assert all(other is None or other.subresource == "temporal" for other in found.values())


async def test_a_frontend_only_permission_suffices_for_a_client() -> None:
    server = ApiServer()
    server.only = frozenset({("create", "workflowruns/temporal")})
    guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
    user = await guard.authenticate(bearer(token()), "10.0.0.1")
    await guard.authorize(user, "StartWorkflowExecution", "orders")
    with pytest.raises(RpcError, match="cannot create operations"):
        await guard.authorize(user, "SignalWorkflowExecution", "orders")
    with pytest.raises(RpcError, match="cannot delete workflowruns"):
        await guard.authorize(user, "DeleteWorkflowExecution", "orders")


# --- Tokens -----------------------------------------------------------------------------------------------------------


async def code_of(guard: Guard, text: str, address: str = "10.0.0.1") -> grpc.StatusCode:
    try:
        await guard.authenticate(bearer(text), address)
    except RpcError as error:
        return error.code
    return grpc.StatusCode.OK


NONSENSE = {
    "none": "",
    "a word": "s3cret",
    "two parts": "a.b",
    "an empty signature": token().rpartition(".")[0] + ".",
    "characters of no token": "ä.ö.ü",
    "claims that are no JSON": "e30.e30x.e30",
    "claims that are a list": ".".join(
        base64.urlsafe_b64encode(part).decode() for part in (b'{"alg":"RS256"}', b"[]", b"x")
    ),
    "no algorithm": token().replace(token().split(".")[0], "e30"),
    "no issuer": token(iss=""),
    "an audience that is a number": token(aud=7),
    "expired": token(exp=1_600_000_000),
    "an expiry beyond all time": token(exp=1e300),
    "an expiry that is a word": token(exp="never"),
    "too long": token(pad="x" * 8_000),
    "nested deeply": token(pad=[]).replace(
        token(pad=[]).split(".")[1], base64.urlsafe_b64encode(b"[" * 3_000 + b"]" * 3_000).decode()
    ),
}


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
async def test_malformed_tokens_are_not_reviewed(text: str) -> None:
    server = ApiServer()
    guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
    assert await code_of(guard, text) is grpc.StatusCode.UNAUTHENTICATED
    assert not server.reviewed


async def test_a_valid_token_is_reviewed_again_after_30_seconds() -> None:
    with stopped_clock() as clock:
        server = ApiServer()
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        for seconds, reviews in ((0, 1), (29, 1), (31, 2)):
            clock.at(seconds)
            assert await code_of(guard, token()) is grpc.StatusCode.OK
            assert len(server.reviewed) == reviews
        server.valid = False
        clock.at(62)
        assert await code_of(guard, token()) is grpc.StatusCode.UNAUTHENTICATED


async def test_an_invalid_token_is_not_reviewed_again_for_ten_seconds() -> None:
    with stopped_clock() as clock:
        server = ApiServer()
        server.valid = False
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        for seconds, reviews in ((0, 1), (1, 1), (9, 1), (11, 2)):
            clock.at(seconds)
            assert await code_of(guard, token()) is grpc.StatusCode.UNAUTHENTICATED
            assert len(server.reviewed) == reviews


async def test_a_backward_clock_step_does_not_extend_a_review() -> None:
    with stopped_clock() as clock:
        server = ApiServer()
        server.allowed = True
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        user = await guard.authenticate(bearer(token()), "10.0.0.1")
        await guard.authorize(user, "ListWorkflowExecutions", "shop")
        server.valid = server.allowed = False
        clock.at(-3_600)
        assert await code_of(guard, token()) is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(RpcError):
            await guard.authorize(user, "ListWorkflowExecutions", "shop")
        server.valid = server.allowed = True
        clock.at(-7_200)
        assert await code_of(guard, token()) is grpc.StatusCode.OK
        await guard.authorize(user, "ListWorkflowExecutions", "shop")


async def test_concurrent_calls_with_the_same_new_token_cause_one_review() -> None:
    server = ApiServer()
    guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
    assert set(await asyncio.gather(*(code_of(guard, token()) for _ in range(100)))) == {grpc.StatusCode.OK}
    assert len(server.reviewed) == 1


async def test_reviews_of_new_tokens_are_rate_limited_per_address_and_in_total() -> None:
    with stopped_clock() as clock:
        server = ApiServer()
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        assert await code_of(guard, token()) is grpc.StatusCode.OK
        server.valid = False
        codes = [await code_of(guard, token(number), "10.0.0.2") for number in range(100, 200)]
        assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 50 + [grpc.StatusCode.RESOURCE_EXHAUSTED] * 50
        assert len(server.reviewed) == 51
        for number in range(200, 700):
            await code_of(guard, token(number), f"10.1.0.{number}")
        assert len(server.reviewed) == 500
        # The previously valid token is reviewed again anyway, and later also others.
        server.valid = True
        clock.at(31)
        assert await code_of(guard, token()) is grpc.StatusCode.OK
        assert await code_of(guard, token(1), "10.0.0.2") is grpc.StatusCode.OK


async def test_permission_reviews_are_rate_limited_per_user() -> None:
    with stopped_clock() as clock:
        server = ApiServer()
        server.allowed = True
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        user = await guard.authenticate(bearer(token()), "10.0.0.1")
        refused = 0
        for number in range(600):
            try:
                await guard.authorize(user, "CountWorkflowExecutions", f"n{number}")
            except RpcError as error:
                assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED  # noqa: PT017
                refused += 1
        assert (refused, len(server.asked)) == (100, 500)
        clock.at(31)
        await guard.authorize(user, "CountWorkflowExecutions", "n0")


async def test_a_token_for_another_audience_is_rejected_with_the_remedy() -> None:
    server = ApiServer()
    guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
    for audience in ([], "https://kubernetes.default.svc", ["elsewhere"]):
        with pytest.raises(RpcError, match="kubectl create token SERVICEACCOUNT --audience="):
            await guard.authenticate(bearer(token(aud=audience)), "10.0.0.1")
    assert not server.reviewed


async def test_a_token_review_must_confirm_the_audience() -> None:
    server = ApiServer()
    guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
    server.audiences = []  # an authenticator without audiences
    assert await code_of(guard, token(1)) is grpc.StatusCode.UNAUTHENTICATED
    server.audiences = [AUDIENCE]
    assert await code_of(guard, token(2)) is grpc.StatusCode.OK
    assert server.asked_for == [[AUDIENCE], [AUDIENCE]]


async def test_tokens_for_the_api_server_are_accepted_if_enabled() -> None:
    server = ApiServer()
    guard = Guard(server, AUDIENCE, cluster_tokens=True)  # type: ignore[arg-type]
    server.audiences = ["https://kubernetes.default.svc"]
    assert await code_of(guard, token(aud=["https://kubernetes.default.svc"])) is grpc.StatusCode.OK
    assert await code_of(guard, token()) is grpc.StatusCode.UNAUTHENTICATED
    assert server.asked_for == [None, [AUDIENCE]]


async def test_tokens_of_a_provider_are_accepted_for_the_configured_client_only() -> None:
    """The API server reviews them as its own: for an audience that it does not know, it accepts none of them."""
    server = ApiServer()
    settings = settings_of(
        {
            "PERDURE_TEMPORAL_OIDC_ISSUER": "https://id.example.com",
            "PERDURE_TEMPORAL_OIDC_CLIENT_IDS": "kubernetes,perdure-ui",
        }
    )
    guard = guard_of(server, settings)  # type: ignore[arg-type]
    server.audiences = ["https://kubernetes.default.svc"]
    provider = {"iss": "https://id.example.com", "sub": "ada"}
    assert await code_of(guard, token(aud="perdure-ui", **provider)) is grpc.StatusCode.OK
    assert await code_of(guard, token(aud=["other", "kubernetes"], **provider)) is grpc.StatusCode.OK
    assert server.asked_for == [None, None]
    for foreign in (
        token(aud="another-app", **provider),
        token(aud=["https://kubernetes.default.svc"]),
        token(aud="perdure-ui", iss="https://id.example.com.example.org"),
    ):
        assert await code_of(guard, foreign) is grpc.StatusCode.UNAUTHENTICATED
    assert len(server.asked_for) == 2
    server.valid = False
    assert await code_of(guard, token(1, aud="perdure-ui", **provider)) is grpc.StatusCode.UNAUTHENTICATED


def test_workers_can_register_versions_but_routing_requires_another_permission() -> None:
    of_worker = needed("PollWorkflowTaskQueue")
    assert [(right.verb, right.resource, right.subresource) for right in of_worker] == [
        ("update", "workflowruns", "tasks")
    ]
    for rpc, verb, resource in (
        ("SetWorkerDeploymentCurrentVersion", "update", "workerdeployments"),
        ("SetWorkerDeploymentRampingVersion", "update", "workerdeployments"),
        ("DeleteWorkerDeploymentVersion", "delete", "workerdeployments"),
        ("UpdateTaskQueueConfig", "update", "taskqueues"),
        ("AddSearchAttributes", "update", "searchattributes"),
    ):
        (right,) = needed(rpc)
        assert (right.verb, right.resource, right.subresource) == (verb, resource, "temporal"), rpc


def test_each_served_rpc_has_a_permission_of_its_own() -> None:
    served = {
        name
        for service in (operator_service.DESCRIPTOR, workflow_service.DESCRIPTOR)
        for each in service.services_by_name.values()
        for name in each.methods_by_name
        if name not in UNSERVED
    }
    every = needed("AnRpcOfANewerVersion")
    assert sorted(name for name in served if needed(name) == every) == sorted(FREE - UNSERVED.keys())


async def test_an_unknown_rpc_requires_all_permissions() -> None:
    server = ApiServer()
    server.only = frozenset({("update", "workflowruns/tasks"), ("create", "workflowruns")})
    with stopped_clock() as clock:
        guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
        user = await guard.authenticate(bearer(token()), "10.0.0.1")
        with pytest.raises(RpcError, match=r"cannot \* \* in namespace 'orders', which AnRpcOfANewerVersion requires"):
            await guard.authorize(user, "AnRpcOfANewerVersion", "orders")
        server.only = frozenset({("*", "*")})
        clock.at(3)
        await guard.authorize(user, "AnRpcOfANewerVersion", "orders")
    assert server.asked[-1]["group"] == "*"


async def test_authorizers_get_the_extra_attributes_of_a_user() -> None:
    """As kube-apiserver does for its own requests: https://kubernetes.io/docs/reference/access-authn-authz/authorization/."""
    server = ApiServer()
    server.allowed = True
    server.extra = {"authentication.kubernetes.io/pod-name": ["worker-1"], "example.com/scopes": ["a", "b"]}
    guard = Guard(server, AUDIENCE)  # type: ignore[arg-type]
    user = await guard.authenticate(bearer(token()), "10.0.0.1")
    await guard.authorize(user, "PollWorkflowTaskQueue", "orders")
    assert server.subjects[-1]["extra"] == server.extra


@pytest.mark.parametrize(
    ("name", "tenant"),
    [("system:serviceaccount:orders:shop", "orders"), ("orders", "user orders"), ("jane", "user jane")],
)
def test_the_service_accounts_of_a_namespace_share_limits(name: str, tenant: str) -> None:
    assert tenant_of(User(name, "", ())) == tenant
