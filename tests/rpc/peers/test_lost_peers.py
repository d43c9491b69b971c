"""Calls and tasks forwarded by a lost operator: the others detect the loss and repeat them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from temporalio.api.common.v1 import ActivityType, WorkflowExecution
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetSystemInfoRequest,
    GetSystemInfoResponse,
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    StartActivityExecutionRequest,
)
from temporalio.client import Client

from perdure.controller.fleet.shards import owners
from perdure.frontend.matching.queues import Kind, QueueName, queue_shard
from perdure.frontend.peers.calls import TAKE, PeerLostError
from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.peers.offers import FleetMembers
from perdure.frontend.peers.server import PeerSettings, serve_peers
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.rpc import CallContext
from support.fleet import Fleet, ServedFleet, in_memory_fleet
from support.ports import free_port

_TASK_TIMEOUT = timedelta(minutes=5)
"""Longer than the test: no task starts again because of it."""
_HELD_SECONDS = 1.2
"""How long a response is late: longer than an operator waits for open calls when it stops."""


@dataclass
class Wire:
    """Forwards connections to a port until it is cut: both sides keep their connections but receive nothing."""

    port: int
    is_cut: bool = False
    responds: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while nothing arrives at clients, which then comes late."""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a client has closed its connection."""

    def __post_init__(self) -> None:
        self.responds.set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        from_port, to_port = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers += [writer, to_port]
        await asyncio.gather(self._carry_from_client(reader, to_port), self._carry_to_client(from_port, writer))

    async def _carry_from_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._carry(reader, writer)
        self.left.set()

    async def _carry_to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._carry(reader, writer, self.responds)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may: asyncio.Event | None = None
    ) -> None:
        with suppress(OSError):
            while content := await reader.read(64 * 1024):
                if may is not None:
                    await may.wait()
                if not self.is_cut:
                    writer.write(content)

    def close(self) -> None:
        """Close all connections."""
        for writer in self.writers:
            writer.transport.abort()


@asynccontextmanager
async def wire(port: int) -> AsyncIterator[tuple[Wire, str]]:
    """A wire to a port of this machine, and the address of its other end."""
    carried = Wire(port)
    server = await asyncio.start_server(carried.connect, "127.0.0.1", 0)
    try:
        yield carried, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        carried.close()


@dataclass
class Called:
    """A call in progress over a wire."""

    client: PeerClient
    addresses: dict[str, str]
    """The members that the client knows."""
    wire: Wire
    response: "asyncio.Task[GetSystemInfoResponse]"
    respond: asyncio.Event
    """Set to let the member respond."""
    ended: asyncio.Event
    """Set once the member has responded, or has given up."""


@asynccontextmanager
async def called(fleet: ServedFleet) -> AsyncIterator[Called]:
    """Call a member, which waits."""
    begun, respond, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def handler(request: Any, call: CallContext) -> GetSystemInfoResponse:
        del request, call
        begun.set()
        try:
            await respond.wait()
        finally:
            ended.set()
        return GetSystemInfoResponse(server_version="1")

    (member,) = fleet.fleet.members.values()
    port = free_port()
    settings = PeerSettings(member="m", address=f"127.0.0.1:{port}", audience="", token="")
    async with (
        asyncio.timeout(30),
        serve_peers(member.frontend, {"GetSystemInfo": handler}, settings, None, Door(None)),
        wire(port) as (carried, address),
    ):
        addresses = {"m": address}
        client = PeerClient(PeerIdentity(name="other"), lambda: addresses)
        response = asyncio.ensure_future(
            client.call(
                "m",
                "/temporal.api.workflowservice.v1.WorkflowService/GetSystemInfo",
                GetSystemInfoRequest(),
                encode=GetSystemInfoRequest.SerializeToString,
                decode=GetSystemInfoResponse.FromString,
                seconds=None,
            )
        )
        await begun.wait()
        yield Called(client, addresses, carried, response, respond, ended)
        await client.close()


def test_both_sides_of_a_call_detect_a_lost_peer() -> None:
    async def check(fleet: ServedFleet) -> None:
        async with called(fleet) as call:
            call.wire.is_cut = True
            with pytest.raises(PeerLostError):
                await call.response
            await call.ended.wait()

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(90)


def test_the_connection_to_a_former_member_closes_after_its_last_call() -> None:
    async def check(fleet: ServedFleet) -> None:
        async with called(fleet) as call:
            call.addresses.clear()
            call.client.close_unused()
            call.respond.set()
            assert (await call.response).server_version == "1"
            await call.wire.left.wait()

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(90)


def placed(fleet: Fleet, namespace: str, queue_at: str, run_at: str) -> tuple[str, str]:
    """A task queue that one operator owns, and a workflow ID that another one owns."""
    by_shard = owners(fleet.members)
    names = [f"lost-{number}" for number in range(1_000)]
    queue = next(name for name in names if by_shard[queue_shard(namespace, name)] == queue_at)
    return queue, next(name for name in names if fleet.owner_of(name) == run_at)


async def poll(client: Client, queue: str) -> PollWorkflowTaskQueueResponse:
    request = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="me")
    return await client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(seconds=60))


@pytest.mark.parametrize("owner_of_queue", ["the owner of the run", "another one", "the lost one"])
async def test_a_task_forwarded_by_a_killed_operator_goes_to_another_worker(owner_of_queue: str) -> None:
    with in_memory_fleet(3) as fleet:
        run_at, other, lost = fleet.fleet.members
        queue_at = {"the owner of the run": run_at, "another one": other, "the lost one": lost}[owner_of_queue]
        queue, workflow_id = placed(fleet.fleet, fleet.namespace, queue_at, run_at)
        left, stays = await fleet.connect(lost), await fleet.connect(other)
        await stays.start_workflow("Any", id=workflow_id, task_queue=queue, task_timeout=_TASK_TIMEOUT)
        first = await poll(left, queue)
        assert first.workflow_execution.workflow_id == workflow_id
        await asyncio.wrap_future(fleet.do(fleet.fleet.kill(lost)))
        second = await poll(stays, queue)
        assert second.workflow_execution == WorkflowExecution(
            workflow_id=workflow_id, run_id=first.workflow_execution.run_id
        )
        assert second.attempt == 1


async def test_a_waiting_poll_moves_to_the_new_owner_of_its_task_queue() -> None:
    with in_memory_fleet(3) as fleet:
        run_at, other, leaving = fleet.fleet.members
        queue, workflow_id = placed(fleet.fleet, fleet.namespace, leaving, run_at)
        client = await fleet.connect(other)
        polled = asyncio.create_task(poll(client, queue))
        queues, name = fleet.fleet.members[leaving].frontend.queues, QueueName(fleet.namespace, Kind.WORKFLOW, queue)
        await asyncio.wrap_future(fleet.do(fleet.fleet.until(lambda: queues.alive(name))))
        await asyncio.wrap_future(fleet.do(fleet.fleet.hand_over(leaving)))
        await asyncio.wrap_future(fleet.do(fleet.fleet.complete()))
        await client.start_workflow("Any", id=workflow_id, task_queue=queue, task_timeout=_TASK_TIMEOUT)
        assert (await polled).workflow_execution.workflow_id == workflow_id


class WithoutFirstTask(PeerClient):
    """The connections to other members, one of which has handed out a task whose response does not arrive."""

    def __init__(self, name: str, addresses: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(PeerIdentity(name=name), addresses)
        self.taken = Event()

    async def call(self, member: str, path: str, request: Any, **options: Any) -> Any:
        response = await super().call(member, path, request, **options)
        if path == TAKE and not self.taken.is_set():
            self.taken.set()
            await asyncio.Event().wait()
        return response


async def test_a_task_that_a_remote_worker_does_not_receive_goes_to_the_next_one() -> None:
    with in_memory_fleet(2) as fleet:
        run_at, queue_at = fleet.fleet.members
        queue, workflow_id = placed(fleet.fleet, fleet.namespace, queue_at, run_at)
        client = await fleet.connect(queue_at)
        await client.start_workflow("Any", id=workflow_id, task_queue=queue, task_timeout=_TASK_TIMEOUT)
        frontend = fleet.fleet.members[queue_at].frontend
        peers = WithoutFirstTask(queue_at, lambda: frontend.shards.others)
        frontend.matching.join(FleetMembers(frontend.shards, frontend.matching, frontend.deployments, peers))
        first = asyncio.create_task(poll(client, queue))
        assert await asyncio.to_thread(peers.taken.wait, 60)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        second = await poll(client, queue)
        await asyncio.wrap_future(fleet.do(peers.close()))
        assert second.workflow_execution.workflow_id == workflow_id
        assert second.attempt == 1


def test_a_task_on_its_way_through_a_leaving_operator_reaches_its_worker() -> None:
    async def check(served: ServedFleet) -> None:
        fleet = served.fleet
        (leaving,) = fleet.members
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            wires: list[Wire] = []

            async def reach(address: str) -> str:
                carried, reached = await stack.enter_async_context(wire(int(address.rpartition(":")[2])))
                wires.append(carried)
                return reached

            fleet.reach = reach
            stays = await fleet.start()
            await fleet.complete()
            (carried,) = wires
            queue, activity_id = placed(fleet, served.namespace, stays.name, stays.name)
            worker, client = await served.connect(leaving), await served.connect(stays.name)
            polled = asyncio.create_task(
                worker.workflow_service.poll_activity_task_queue(
                    PollActivityTaskQueueRequest(namespace=served.namespace, task_queue=TaskQueue(name=queue))
                )
            )
            name = QueueName(served.namespace, Kind.ACTIVITY, queue)
            await fleet.until(lambda: stays.frontend.queues.alive(name))
            carried.responds.clear()
            started = StartActivityExecutionRequest(
                namespace=served.namespace,
                activity_id=activity_id,
                activity_type=ActivityType(name="Do"),
                task_queue=TaskQueue(name=queue),
            )
            started.start_to_close_timeout.FromTimedelta(_TASK_TIMEOUT)
            await client.workflow_service.start_activity_execution(started)
            await fleet.until(lambda: stays.frontend.queues.load(name).last_used is not None)
            left = asyncio.create_task(fleet.leave(leaving))
            await fleet.until(lambda: leaving not in fleet.members)
            await asyncio.sleep(_HELD_SECONDS)
            carried.responds.set()
            assert (await polled).activity_id == activity_id
            await left

    with in_memory_fleet(1) as served:
        served.do(check(served)).result(90)
