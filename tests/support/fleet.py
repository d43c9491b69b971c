"""Several operators that serve SDKs together, in real time, with one API server in memory. Any of them can be killed.

Their connections to each other are real. A Service stands before them, as in a cluster: each new connection goes to one of those
that are ready.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from random import Random
from threading import Thread
from typing import Any, TypeVar

from temporalio.client import Client

from perdure.controller.fleet.membership import Membership
from perdure.controller.fleet.observer import ObservedFleet, ObserverSettings
from perdure.controller.fleet.shards import SHARDS, shard_of
from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.apart.server import serve as serve_apart
from perdure.frontend.core import Frontend
from perdure.frontend.server import serve
from perdure.frontend.settings import Settings
from perdure.kube.access import Access
from perdure.kube.client import Client as KubeClient
from perdure.kube.client import Object
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.process import Session, task_factory
from support.faulty.faults import Faults
from support.faulty.operators import FaultyOperator
from support.operator import OPEN
from support.ports import free_port
from support.threads import join

_GRPC_TASKS = frozenset({"AioServer._request_call", "AioServer._server_main_loop"})
"""Tasks of a gRPC server in which it waits for calls. gRPC's core writes into what they hold, until the server is stopped."""
_LEASE_SECONDS = 2
"""Shorter than in a cluster: tests wait for take-overs."""
_CHUNK = 64 * 1024

_Done = TypeVar("_Done")


@dataclass
class Member:
    """One operator."""

    name: str
    port: int
    frontend: Frontend
    operator: FaultyOperator
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    serving: "asyncio.Task[None] | None" = None
    connections: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def shards(self) -> frozenset[int]:
        """The shards that it owns."""
        membership = self.operator.manager.shards
        assert isinstance(membership, Membership)
        return membership.shards


async def _directly(address: str) -> str:
    return address


def _task_factory(loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None) -> "asyncio.Task[Any]":
    """Create tasks that end with their operator, except for tasks that a gRPC server ends itself."""
    if coro.__qualname__ in _GRPC_TASKS:
        return asyncio.Task(coro, loop=loop, context=context)
    return task_factory(loop, coro, context)


@dataclass
class FrontendApart:
    """A frontend that is a process of its own."""

    port: int
    http_port: int
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    serving: "asyncio.Task[None] | None" = None
    connections: set[asyncio.StreamWriter] = field(default_factory=set)

    async def stop(self) -> None:
        """Stop it as SIGTERM does."""
        self.stopping.set()
        assert self.serving is not None
        await self.serving


class Fleet:
    """The operators, and the Service before them. All of it is called in its event loop."""

    def __init__(
        self, loop: ClusterLoop, namespaces: tuple[str, ...], settings: Settings, lease_seconds: int = _LEASE_SECONDS
    ) -> None:
        self._lease_seconds = lease_seconds
        self.members: dict[str, Member] = {}
        self.frontends: list[FrontendApart] = []
        self.crashes: list[str] = []
        self.kubernetes = ApiServer(loop, Random(0))
        self.reach: Callable[[str], Awaitable[str]] = _directly
        """The address at which the others reach an operator that starts, given the one that it serves."""
        self._loop = loop
        self._namespaces = namespaces
        self._settings = settings
        self._random = Random(1)
        self._number = 0
        for name in namespaces:
            self.kubernetes.create("namespaces", {"metadata": {"name": name}}, namespace="None")

    async def start(self) -> Member:
        """Start one more operator, and wait until it is ready."""
        name, port, peer = f"operator-{self._number}", free_port(), f"127.0.0.1:{free_port()}"
        self._number += 1
        operator = FaultyOperator(
            name,
            self._loop,
            Random(name),
            self.kubernetes,
            Faults(self._loop, Random(2), rate=0, delay=0.002),
            lag=0.005,
            skew=0.0,
            limits=Limits(),
            trace=None,
            crashed=self.crashes.append,
            frontend=replace(self._settings, member=name, peer_address=peer),
            namespaces=self._namespaces,
            fleet="fleet",
            address=await self.reach(peer),
            lease_seconds=self._lease_seconds,
        )
        member = Member(name, port, operator.frontend, operator)

        async def served() -> None:
            async with serve(operator.frontend, f"127.0.0.1:{port}"):
                await member.stopping.wait()

        member.serving = operator.do(served())
        self.members[name] = member
        await self.until(lambda: bool(member.shards))
        return member

    async def start_frontend(self, reviews: str = "", **options: Any) -> FrontendApart:
        """Start a frontend that is a process of its own, and wait until it is ready.

        Args:
            reviews: The address of the API server that reviews tokens; empty: callers are not authenticated.
            options: Other settings.
        """
        name, port, http_port = f"frontend-{len(self.frontends)}", free_port(), free_port()
        settings = replace(
            self._settings,
            member=name,
            apart=False,
            http_address=f"127.0.0.1:{http_port}",
            authentication=bool(reviews),
            **options,
        )
        client = KubeClient(Access(server=""), Session(self.kubernetes, name))  # type: ignore[arg-type] # it stands in for aiohttp's
        client.access = Access(server=reviews)  # reviews have connections of their own
        observed = ObservedFleet(client, ObserverSettings(fleet="fleet", seconds=self._lease_seconds))
        started = FrontendApart(port, http_port)
        is_serving = asyncio.Event()

        async def served() -> None:
            observing = asyncio.create_task(observed.run())
            try:
                namespaces = ServedNamespaces(self._namespaces)
                async with serve_apart(client, observed, namespaces, settings, f"127.0.0.1:{port}"):
                    is_serving.set()
                    await started.stopping.wait()
            finally:
                observing.cancel()

        started.serving = asyncio.create_task(served())
        self.frontends.append(started)
        await is_serving.wait()
        await observed.known()
        return started

    async def until(self, so: Callable[[], bool], seconds: float = 30) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(seconds):
            while not so():  # noqa: ASYNC110 (whatever has to become so has no event)
                await asyncio.sleep(0.02)

    async def complete(self) -> None:
        """Wait until every shard has an owner."""
        await self.until(lambda: sum(len(each.shards) for each in self.members.values()) == SHARDS)

    async def kill(self, name: str) -> None:
        """Kill an operator, which loses its memory."""
        member = self.members.pop(name)
        for writer in member.connections:
            writer.transport.abort()
        await member.operator.kill()

    async def cut_off(self, name: str) -> None:
        """Cut an operator off the API server, for longer than its Lease lasts; it stays."""
        self.members[name].operator.freeze(3 * self._lease_seconds)
        await self.until(lambda: not self.members[name].shards)
        others = [each for each in self.members.values() if each.name != name]
        await self.until(lambda: sum(len(each.shards) for each in others) == SHARDS)

    async def hand_over(self, name: str) -> None:
        """Have an operator leave its shards to the others. It still serves callers."""
        operator = self.members[name].operator
        await operator.do(operator.manager.shards.leave(operator.manager.drain, operator.operations.drain))

    async def leave(self, name: str) -> None:
        """Stop an operator as SIGTERM does."""
        await self.hand_over(name)
        member = self.members.pop(name)
        member.stopping.set()
        assert member.serving is not None
        await member.serving
        await member.operator.kill()

    def owner_of(self, workflow_id: str) -> str:
        """The operator that owns a workflow ID."""
        shard = shard_of(self._namespaces[0], workflow_id)
        return next(name for name, each in self.members.items() if shard in each.shards)

    # The Service

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection on to an operator that is ready."""
        if self.frontends:
            ready: list[Any] = [each for each in self.frontends if not each.stopping.is_set()]
        else:
            ready = [each for each in self.members.values() if each.operator.manager.shards.active]
        if not ready:
            writer.transport.abort()
            return
        member = self._random.choice(ready)
        member.connections.add(writer)
        with suppress(OSError):
            to, back = await asyncio.open_connection("127.0.0.1", member.port)
            await asyncio.wait(
                [asyncio.ensure_future(_pipe(reader, back)), asyncio.ensure_future(_pipe(to, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
            back.transport.abort()
        writer.transport.abort()
        member.connections.discard(writer)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await reader.read(_CHUNK):
            writer.write(content)
            await writer.drain()


@dataclass(frozen=True)
class ServedFleet:
    """A fleet in its own thread, for tests."""

    fleet: Fleet
    address: str
    """Of the Service."""
    namespace: str
    _loop: ClusterLoop
    http_address: str = ""
    """There is no HTTP API."""

    def do(self, work: Coroutine[Any, Any, _Done]) -> "Future[_Done]":
        """Have something done in the thread of the fleet."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def connect(self, member: str = "", **options: Any) -> Client:
        """Connect a client, to the Service or to one operator."""
        address = f"127.0.0.1:{self.fleet.members[member].port}" if member else self.address
        return await Client.connect(address, **{"namespace": self.namespace, **options})


@contextmanager
def in_memory_fleet(
    size: int,
    *others: str,
    namespace: str = "default",
    address: str = "127.0.0.1:0",
    settings: Settings = OPEN,
    frontends: int = 0,
    objects: Sequence[Object] = (),
    lease_seconds: int = _LEASE_SECONDS,
) -> Iterator[ServedFleet]:
    """A fleet of operators that serves a namespace and `others` within the block.

    With `frontends`, these are processes of their own. `objects` of Perdure's kinds exist from the start. `lease_seconds` is the
    duration of the Leases of members.
    """
    loop = ClusterLoop()
    loop.set_task_factory(_task_factory)
    found: Future[ServedFleet] = Future()
    stop = asyncio.Event()

    async def run() -> None:
        fleet = Fleet(
            loop, (namespace, *others), replace(settings, apart=settings.apart or bool(frontends)), lease_seconds
        )
        for each in objects:
            fleet.kubernetes.create(f"{each['kind'].lower()}s", each, namespace=namespace)
        host, _, port = address.rpartition(":")
        service = await asyncio.start_server(fleet.connect, host, int(port))
        try:
            await asyncio.gather(*(fleet.start() for _ in range(size)))
            await fleet.until(lambda: all(each.shards for each in fleet.members.values()))
            await fleet.complete()
            for _ in range(frontends):
                await fleet.start_frontend()
            listening = service.sockets[0].getsockname()[1]
            found.set_result(ServedFleet(fleet, f"{host}:{listening}", namespace, loop))
            await stop.wait()
        finally:
            service.close()
            for each in fleet.frontends:
                await each.stop()
            for name in list(fleet.members):
                await fleet.kill(name)
        assert not fleet.crashes, fleet.crashes

    def work() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(run())
        except BaseException as error:
            if found.done():
                raise
            found.set_exception(error)
        finally:
            loop.close()

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        yield found.result(timeout=60)
    finally:
        loop.call_soon_threadsafe(stop.set)
        join(thread, loop)
