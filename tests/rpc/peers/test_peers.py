"""Operators recognize each other by tokens, over TLS, and know which of them handles an RPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import reduce
from operator import getitem
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetSystemInfoRequest,
    GetSystemInfoResponse,
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
    PollWorkflowTaskQueueRequest,
    RespondNexusTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    SignalWorkflowExecutionRequest,
)

from perdure.controller.fleet.shards import shard_of
from perdure.frontend.errors import RpcError, denied
from perdure.frontend.matching.queues import Kind, QueueName, queue_shard
from perdure.frontend.messages.tokens import NexusToken, WorkflowTaskToken, pack
from perdure.frontend.peers.calls import CALL, OFFER, PeerLostError
from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.peers.client import pack as pack_message
from perdure.frontend.peers.listener import listening_to_members
from perdure.frontend.peers.router import EVERYWHERE, SETTINGS, Router, shard_of_rpc
from perdure.frontend.peers.server import PeerServer, PeerSettings, serve_peers
from perdure.frontend.settings import Settings
from perdure.frontend.transport.certificates import CA_CERT, TLS_CERT, TLS_KEY, renewed
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.rpc import SERVICES, UNSERVED, CallContext, request_of
from perdure.frontend.transport.tls import Material, ServerCertificate
from perdure.kube.clock import now
from support.callers import ApiServer, token
from support.fleet import ServedFleet, in_memory_fleet
from support.ports import free_port

AUDIENCE = Settings().peer_audience
OPERATOR = "system:serviceaccount:orders:shop"
"""The user that the API server of these tests finds in every token."""


def certificate(*, authority: bool = True) -> ServerCertificate:
    """A certificate, without its authority if that is unknown."""
    made = renewed({}, ["perdure-temporal.perdure-system.svc"], now())
    return ServerCertificate(Material(made[TLS_KEY], made[TLS_CERT], None), made[CA_CERT].decode() if authority else "")


@asynccontextmanager
async def guarded(
    fleet: ServedFleet, path: Path, user: str, api: ApiServer, *, authority: bool = True
) -> AsyncIterator[tuple[PeerClient, list[str]]]:
    """Serve a member that authenticates other members, and yield a client of it and its callers."""
    api.audiences = [AUDIENCE]
    token_file = path / "token"
    token_file.write_text(token(aud=[AUDIENCE], sub=user))
    address, served = f"127.0.0.1:{free_port()}", certificate(authority=authority)
    principals: list[str] = []

    async def handler(request: Any, call: CallContext) -> GetSystemInfoResponse:
        del request
        principals.append(call.principal)
        return GetSystemInfoResponse(server_version="1")

    (member,) = fleet.fleet.members.values()
    door = Door(Guard(api, AUDIENCE), refusal_seconds=0)  # type: ignore[arg-type] # stands in for the client
    settings = PeerSettings(member="m", address=address, audience=AUDIENCE, token=str(token_file))
    async with serve_peers(member.frontend, {"GetSystemInfo": handler}, settings, served, door):
        client = PeerClient(PeerIdentity(name="other", token=token_file, served=served), lambda: {"m": address})
        try:
            yield client, principals
        finally:
            await client.close()


async def call(client: PeerClient, principal: str = "") -> GetSystemInfoResponse:
    response: GetSystemInfoResponse = await client.call(
        "m",
        "/temporal.api.workflowservice.v1.WorkflowService/GetSystemInfo",
        GetSystemInfoRequest(),
        encode=GetSystemInfoRequest.SerializeToString,
        decode=GetSystemInfoResponse.FromString,
        seconds=10,
        principal=principal,
    )
    return response


@pytest.mark.parametrize("authority", [True, False], ids=["an authority that is known", "one that is not"])
def test_a_member_authenticates_with_its_token_over_tls_and_forwards_the_caller(
    tmp_path: Path, *, authority: bool
) -> None:
    async def check(fleet: ServedFleet) -> None:
        api = ApiServer()
        async with guarded(fleet, tmp_path, OPERATOR, api, authority=authority) as (client, principals):
            assert (await call(client, "alice")).server_version == "1"
            assert principals == ["alice"]
            assert api.asked_for == [[AUDIENCE]]

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


NEWER = {
    "a field of a batch": [],
    "a field of an offer": ["offers", "r", 0, 0],
    "a field of a queue": ["offers", "r", 0, 1, "queue"],
}


@pytest.mark.parametrize("path", NEWER.values(), ids=NEWER)
def test_a_message_of_a_newer_member_is_refused_as_a_whole(tmp_path: Path, path: list[Any]) -> None:
    offer = {"run_id": "r", "scheduled_event_id": 2}
    to = {"queue": {"namespace": "default", "kind": "workflow", "name": "orders"}}
    batch: dict[str, Any] = {"session": "s", "whole": True, "offers": {"r": [[offer, to]]}}
    reduce(getitem, path, batch)["deadline"] = 5

    async def check(fleet: ServedFleet) -> None:
        (member,) = fleet.fleet.members.values()
        async with guarded(fleet, tmp_path, OPERATOR, ApiServer()) as (client, _):
            with pytest.raises(RpcError, match="an operator of another version has sent a message") as refused:
                await client.call("m", OFFER, batch, encode=pack_message, decode=bytes, seconds=10)
            assert refused.value.code is grpc.StatusCode.UNAVAILABLE, "so that workers and members retry"
            assert "unknown field `deadline`" in refused.value.message
            queue = QueueName("default", Kind.WORKFLOW, "orders")
            assert member.frontend.queues.statistics(queue).waiting == 0
            del reduce(getitem, path, batch)["deadline"]
            await client.call("m", OFFER, batch, encode=pack_message, decode=bytes, seconds=10)
            assert member.frontend.queues.statistics(queue).waiting == 1

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


@asynccontextmanager
async def slow(address: str) -> AsyncIterator[str]:
    """The address of a server that passes everything on to another one, but only a second after a client has connected."""
    host, _, port = address.partition(":")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        target.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)
        from_server, to_server = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy(reader, to_server), copy(from_server, writer))

    listening = free_port()
    async with await asyncio.start_server(serve, "127.0.0.1", listening):
        yield f"127.0.0.1:{listening}"


def test_a_member_that_needs_a_second_for_the_handshake_is_reached(tmp_path: Path) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with (
            guarded(fleet, tmp_path, OPERATOR, ApiServer()) as (client, principals),
            slow(client.addresses()["m"]) as address,
        ):
            client.addresses = lambda: {"m": address}
            assert (await call(client, "alice")).server_version == "1"
            assert principals == ["alice"]
            await client.close()

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


def test_callers_other_than_operators_of_the_release_are_rejected(tmp_path: Path) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with guarded(fleet, tmp_path, "system:serviceaccount:perdure-system:perdure", ApiServer()) as (
            client,
            called,
        ):
            # No answer to the RPC: a client would take `UNAUTHENTICATED` for a refusal of its own token, and workers would stop.
            with pytest.raises(PeerLostError, match=f"{OPERATOR} is not an operator of this release"):
                await call(client)
            (tmp_path / "token").write_text(token(aud=["perdure.dev/temporal"]))
            with pytest.raises(PeerLostError, match=r"the token is not for the audience 'perdure\.dev/fleet'"):
                await call(client)
            foreign = PeerClient(PeerIdentity(name="stranger", served=certificate()), client.addresses)
            with pytest.raises(PeerLostError):  # it does not trust the certificate
                await call(foreign)
            await foreign.close()
            assert not called

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


def test_a_member_without_a_token_treats_the_others_as_lost(tmp_path: Path) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with guarded(fleet, tmp_path, OPERATOR, ApiServer()) as (client, called):
            (tmp_path / "token").unlink()
            with pytest.raises(PeerLostError, match="the token for other operators cannot be read"):
                await call(client)
            assert not called

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


def shard(rpc: str, request: Any) -> int | None:
    return shard_of_rpc(rpc, request, {"run": "w"}.get)  # type: ignore[arg-type] # every run in these tests is known


def test_the_owner_of_a_queue_rechecks_permissions_at_the_member_that_forwarded_the_poll() -> None:
    refused: list[RpcError] = []

    async def recheck() -> None:
        for error in refused:
            raise error

    async def check(fleet: ServedFleet) -> None:
        first, second = fleet.fleet.members.values()
        addresses = {each.name: f"127.0.0.1:{free_port()}" for each in (first, second)}
        clients = [PeerClient(PeerIdentity(name=each.name), lambda: addresses) for each in (first, second)]
        frontends = [each.frontend for each in (first, second)]
        caller, owning = (
            Router(each.shards, each.directory, client) for each, client in zip(frontends, clients, strict=True)
        )
        long_ago = monotonic() - 60

        async def poll(request: Any, call: CallContext) -> PollActivityTaskQueueResponse:
            await owning.recheck_at(call.member, call.header(CALL), long_ago)
            return PollActivityTaskQueueResponse(activity_id=request.task_queue.name)

        polls = {"PollActivityTaskQueue": poll}
        stack = AsyncExitStack()
        for member, router in zip((first, second), (caller, owning), strict=True):
            served = PeerServer(member.frontend, router, polls, Door(None), "")
            listening = listening_to_members(addresses[member.name], served.admit, served.answer, None)
            await stack.enter_async_context(listening)
        queue = next(f"q{number}" for number in range(1_000) if queue_shard("default", f"q{number}") in second.shards)
        request = PollActivityTaskQueueRequest(namespace="default", task_queue=TaskQueue(name=queue))
        forward = caller.routed(polls)["PollActivityTaskQueue"]
        caller = CallContext(60.0, recheck=recheck)
        assert (await forward(request, caller)).activity_id == queue
        refused.append(denied("revoked"))
        with pytest.raises(RpcError, match="revoked") as error:
            await forward(request, caller)
        assert error.value.code is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(RpcError, match="no longer waits"):
            await owning.recheck_at(first.name, "of a poll that has ended", long_ago)
        for client in clients:
            await client.close()
        await stack.aclose()

    with in_memory_fleet(2) as fleet:
        fleet.do(check(fleet)).result(60)


def test_an_rpc_is_routed_to_the_owner_of_its_workflow_or_task_queue() -> None:
    execution = WorkflowExecution(workflow_id="w")
    w = shard_of("shop", "w")
    assert (
        shard("SignalWorkflowExecution", SignalWorkflowExecutionRequest(namespace="shop", workflow_execution=execution))
        == w
    )
    by_run = SignalWorkflowExecutionRequest(namespace="shop", workflow_execution=WorkflowExecution(run_id="run"))
    assert shard("SignalWorkflowExecution", by_run) == w
    task = WorkflowTaskToken(
        namespace="shop", run_id="r", workflow_id="w", scheduled=1, started=2, attempt=1, epoch="e"
    )
    completed = RespondWorkflowTaskCompletedRequest(namespace="shop", task_token=pack(task))
    assert shard("RespondWorkflowTaskCompleted", completed) == w
    nexus = NexusToken(namespace="shop", run_id="", call="c", shard=7)
    assert (
        shard("RespondNexusTaskCompleted", RespondNexusTaskCompletedRequest(namespace="shop", task_token=pack(nexus)))
        == 7
    )


def test_polls_of_a_sticky_queue_are_routed_to_the_owner_of_the_task_queue() -> None:
    queue = TaskQueue(name="sticky-1", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name="orders")
    sticky = PollWorkflowTaskQueueRequest(namespace="shop", task_queue=queue)
    normal = PollWorkflowTaskQueueRequest(namespace="shop", task_queue=TaskQueue(name="orders"))
    want = queue_shard("shop", "orders")
    assert (shard("PollWorkflowTaskQueue", sticky), shard("PollWorkflowTaskQueue", normal)) == (want, want)


ANYWHERE = {
    "CountActivityExecutions",
    "CountNexusOperationExecutions",
    "CountSchedules",
    "CountWorkers",
    "CountWorkflowExecutions",
    "DescribeBatchOperation",
    "DescribeNamespace",
    "DescribeWorker",
    "DescribeWorkerDeployment",
    "DescribeWorkerDeploymentVersion",
    "GetClusterInfo",
    "GetNexusEndpoint",
    "GetSearchAttributes",
    "GetSystemInfo",
    "ListActivityExecutions",
    "ListBatchOperations",
    "ListClosedWorkflowExecutions",
    "ListNamespaces",
    "ListNexusEndpoints",
    "ListNexusOperationExecutions",
    "ListOpenWorkflowExecutions",
    "ListSchedules",
    "ListSearchAttributes",
    "ListWorkerDeployments",
    "ListWorkers",
    "ListWorkflowExecutions",
    "ScanWorkflowExecutions",
    "StartBatchOperation",
    "StopBatchOperation",
    "UpdateNamespace",
}
"""RPCs that any member can handle: they read what all members know, or what is stored."""


def test_every_rpc_has_a_route() -> None:
    """A new RPC has to be added above, or be about a workflow, a Schedule or a task queue that its request names."""
    names = {name.removesuffix("Request") for module in SERVICES.values() for name in vars(module)}
    served = {name for name in names if any(hasattr(module, f"{name}Request") for module in SERVICES.values())} - set(
        UNSERVED
    )
    unnamed = {rpc for rpc in served if shard(rpc, _filled(rpc)) is None}
    assert unnamed - EVERYWHERE - SETTINGS == ANYWHERE


def _filled(rpc: str) -> Any:
    """A request in which everything is named that it can name."""
    request = request_of(rpc)()
    for field in request.DESCRIPTOR.fields:
        if field.name in {"namespace", "workflow_id", "activity_id", "operation_id", "schedule_id"}:
            setattr(request, field.name, "w")
        elif field.name in {"execution", "workflow_execution"}:
            getattr(request, field.name).workflow_id = "w"
    if rpc == "ExecuteMultiOperation":
        request.operations.add().start_workflow.workflow_id = "w"
    if "update_ref" in request.DESCRIPTOR.fields_by_name:
        request.update_ref.workflow_execution.workflow_id = "w"
    if "task_token" in request.DESCRIPTOR.fields_by_name:
        request.task_token = pack(NexusToken(namespace="w", run_id="", call="c", shard=1))
    return request
