"""Admission of callers: which connections stay open, and which RPCs are served before their message is read.

An RPC is admitted by authentication, authorization, and limits of concurrent RPCs and of memory. A connection stays open if its
callers present a valid token, and if this process can serve them. gRPC's core cannot close a connection, or limit the connections
of an address. But the sockets belong to this process, so they can be found among its open files and shut down; for gRPC, the peer
has then disconnected.
"""

import asyncio
import ipaddress
import math
import os
import socket
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import Message

from perdure.frontend.errors import RpcError, exhausted, too_large, too_late
from perdure.frontend.messages import values
from perdure.frontend.transport.guard import Guard, User, VisibleNamespaces, tenant_of
from perdure.observe import metrics

MAX_MESSAGE = 4 * 1024 * 1024
"""Maximum size of a message, in bytes."""
MAX_READ = 2 * MAX_MESSAGE
"""Maximum size of a message that gRPC reads, in bytes. SDKs know the error of Temporal's server, but not that of gRPC in C."""
MAX_ANSWER = 32 * 1024 * 1024
"""Maximum size of a response, in bytes: a page of a history and, for a task, pending updates and queries of 2 MiB each."""
_MEMORY = 32 * MAX_MESSAGE
_READ_SECONDS = 10.0
"""A message arrives with the call; this is enough for 4 MiB over a slow line."""
_WAIT_SECONDS = 30.0
"""For memory to read a message."""
_PART = 64
"""Bytes in memory of an item of a list or a map, in addition to those of the message; it can have as few as two there."""
_UNCOUNTED, _MAX_PER_BYTE = 1024, _PART // 2
"""The parts of messages of less bytes, such as polls, are not counted."""
_COPIES = 3
"""Of a response that is being sent: as an object, its bytes, and the bytes in gRPC."""
_REFUSAL_SECONDS = 1.0

POLLS = frozenset({"PollActivityTaskQueue", "PollNexusTaskQueue", "PollWorkflowTaskQueue"})
"""RPCs in which workers wait for tasks. At the end of the wait, before it takes a task, the queue checks again whether the worker
may poll."""
WAITING = frozenset(
    {
        "DescribeActivityExecution",
        "DescribeNexusOperationExecution",
        "DispatchNexusTask",
        "ExecuteMultiOperation",
        "GetWorkflowExecutionHistory",
        "PollActivityExecution",
        "PollNexusOperationExecution",
        "PollActivityTaskQueue",
        "PollNexusTaskQueue",
        "PollWorkflowExecutionUpdate",
        "PollWorkflowTaskQueue",
        "QueryWorkflow",
        "UpdateWorkflowExecution",
    }
)
"""RPCs that wait (long polls). They have a separate limit, so that they cannot displace other RPCs."""


# Connections

_SWEEP_SECONDS = 5.0
_FLOOD_SWEEP_SECONDS = 0.25
"""The interval while strangers use more than half of their connections. A sweep of a thousand sockets takes some milliseconds."""
_FEWEST_STRANGERS = 16
_CLOSE_SECONDS = 0.1
"""Minimum interval between searches for sockets. With a thousand sockets, a search takes some milliseconds."""
_OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection."""

    address: str
    port: int


def peer_of(text: str) -> Peer:
    """Parse gRPC's name of a peer, such as ``ipv4:10.0.0.1:4711``. A peer with another format gets port 0."""
    _, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    return Peer(_address_of(host.strip("[]")), int(port)) if port.isdecimal() else Peer(text, 0)


def peer_at(address: Sequence[Any]) -> Peer:
    """The peer at the address of a socket: host, port, and for IPv6 more."""
    return Peer(_address_of(address[0]), address[1])


def strangers_of(connections: int) -> int:
    """How many connections without a valid token may be open, next to a number of others."""
    return max(_FEWEST_STRANGERS, connections // 4)


def _address_of(host: str) -> str:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


class Connections:
    """The connections to the ports of the frontend.

    Args:
        ports: The served ports.
        grace: How long a connection may stay open without a valid token, in seconds.
        each: The most connections of an address without a valid token.
        strangers: The most connections without a valid token to each port. Beyond it, those that are open longest are closed,
            because an honest caller shows its token within milliseconds.
        serves: Returns whether this process can serve callers now. If it cannot for as long as `grace`, they should reach another
            operator.
    """

    def __init__(
        self,
        *ports: int,
        grace: float = 20.0,
        each: int = 64,
        strangers: int = 250,
        serves: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ports = ports
        self._grace = grace
        self._each = each
        self._strangers = strangers
        self._serves = serves
        self._served = math.inf
        """When this process could last serve callers; infinite before the first time."""
        self._known: set[Peer] = set()
        self._since: dict[Peer, float] = {}
        self._flooded = False
        """Whether strangers used more than half of their connections to a port at the last sweep."""
        self._closing: set[Peer] = set()

    def admit(self, peer: Peer) -> None:
        """Record that a caller on this connection has presented a valid token."""
        self._known.add(peer)

    def has_admitted(self, peer: Peer) -> bool:
        """Whether a caller on this connection has presented a valid token."""
        return peer in self._known

    def close(self, peer: Peer) -> None:
        """Close a connection soon, together with others, so that one search finds all their sockets."""
        if peer in self._known:
            return  # admitted callers may share it
        if not self._closing:
            asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.close_now)
        self._closing.add(peer)

    @asynccontextmanager
    async def guarded(self) -> AsyncIterator[None]:
        """Close connections without a valid token in time, within the block."""
        task = asyncio.create_task(self._sweep_periodically(), name="connections")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _sweep_periodically(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_FLOOD_SWEEP_SECONDS if self._flooded else _SWEEP_SECONDS)
            self.sweep(loop.time())

    def sweep(self, time: float) -> None:
        """Close connections that are open too long without a valid token.

        Of an address with too many of them, also close the newest ones, and of a port with too many, the oldest ones. If no
        caller was served for too long, close all connections.

        Args:
            time: The time of the event loop, in seconds.
        """
        present = {peer: port for peer, port, _ in self._accepted()}
        if self._serves():
            self._served = time
        elif time - self._served >= self._grace:
            self._closing |= present.keys()
            self.close_now()
            return
        self._known &= present.keys()
        self._since = {peer: self._since.get(peer, time) for peer in present.keys() - self._known}
        unknown: Counter[str] = Counter()
        of_port = Counter(present[peer] for peer in self._since)
        self._flooded = any(number > self._strangers // 2 for number in of_port.values())
        for peer, since in sorted(self._since.items(), key=lambda item: item[1]):
            unknown[peer.address] += 1
            if (
                time - since >= self._grace
                or unknown[peer.address] > self._each
                or of_port[present[peer]] > self._strangers
            ):
                of_port[present[peer]] -= 1
                self.close(peer)

    def close_now(self) -> None:
        """Close the connections passed to `close` immediately."""
        closing, self._closing = self._closing, set()
        for peer, _, connection in self._accepted():
            if peer in closing:
                metrics.TEMPORAL_CONNECTIONS_CLOSED.inc()
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accepted(self) -> Iterator[tuple[Peer, int, socket.socket]]:
        """Yield each connection, its port, and a duplicate of its socket, because gRPC may close its own."""
        for name in os.listdir(_OPEN_FILES) if _OPEN_FILES.exists() else ():  # noqa: PTH208 (names are all that is needed)
            with suppress(OSError):
                if not os.readlink(f"{_OPEN_FILES}/{name}").startswith("socket:"):  # noqa: PTH115
                    continue
                with socket.socket(fileno=os.dup(int(name))) as found:
                    if found.family not in {socket.AF_INET, socket.AF_INET6}:
                        continue
                    port = found.getsockname()[1]
                    if port in self._ports:
                        yield peer_at(found.getpeername()), port, found  # fails for the listening socket


# Limits


class Shares:
    """Divides an amount among tenants.

    Without a limit for each, a tenant may hold as much as is left. One alone can hold half, two can hold a third each, and
    so on: there is always something left for others.
    """

    def __init__(self, total: int, each: int | None = None) -> None:
        self._held: Counter[Hashable] = Counter()
        self._left = total
        self._each = each

    def held(self, key: Hashable) -> int:
        """Return the size that a tenant holds."""
        return self._held[key]

    def fits(self, key: Hashable, size: int) -> bool:
        """Whether a tenant may have `size` more."""
        if self._each is None:
            return self._held[key] + size <= self._left - size
        return size <= self._left and self._held[key] + size <= self._each

    def add(self, key: Hashable, size: int) -> None:
        """Increase the size that a tenant holds, or reduce it by a negative size."""
        self._left -= size
        self._held[key] += size
        if not self._held[key]:
            del self._held[key]


class Places:
    """Limits how many calls are in progress at the same time."""

    def __init__(self, noun: str, *, total: int, each: int | None = None) -> None:
        """Create free places.

        Args:
            noun: The noun for the calls in messages.
            total: The number of places.
            each: How many places a caller may hold; None: a share of them.
        """
        self._noun = noun
        self._total = total
        self._each = each
        self._shares = Shares(total, each)

    def free(self, key: Hashable) -> bool:
        """Whether there is a place for a caller."""
        return self._shares.fits(key, 1)

    @contextmanager
    def take(self, key: Hashable) -> Iterator[None]:
        """Hold a place within the block.

        Raises:
            RpcError: No place is free.
        """
        if not self.free(key):
            each = f"{self._each:,} for each caller" if self._each is not None else "a share for each namespace"
            raise exhausted(f"too many {self._noun}: {each} and {self._total:,} in all; retry later")
        self._shares.add(key, 1)
        try:
            yield
        finally:
            self._shares.add(key, -1)


class MessageMemory:
    """The memory for messages in progress, in bytes, in shares for tenants."""

    def __init__(self, total: int, *, each: int | None = None) -> None:
        """`each` is the limit for a tenant; None: a share."""
        self._shares = Shares(total, each)
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def hold(
        self, key: Hashable, size: int, seconds: float | None = None
    ) -> AsyncIterator[Callable[[int], None]]:
        """Reserve memory for a message of at most `size` bytes within the block, waiting for it if necessary.

        The block gets a function that releases the rest once the actual size of the message is known.

        Raises:
            RpcError: No memory becomes free within `seconds`.
        """
        await self._reserve(key, size, seconds)
        held = size

        def resize(to: int) -> None:
            nonlocal held
            self._shares.add(key, to - held)
            held = to
            self._grant()

        try:
            yield resize
        finally:
            resize(0)

    async def keep(self, key: Hashable, size: int, seconds: float | None) -> Callable[[], None]:
        """Reserve memory, and return a function that releases it.

        Args:
            key: The tenant.
            size: The bytes.
            seconds: How long to wait for them; None: they are taken even if there are too few.

        Raises:
            RpcError: No memory becomes free within `seconds`.
        """
        if seconds is None:
            self._shares.add(key, size)
        else:
            await self._reserve(key, size, seconds)

        def release() -> None:
            self._shares.add(key, -size)
            self._grant()

        return release

    async def _reserve(self, key: Hashable, size: int, seconds: float | None) -> None:
        if key not in self._waiting and self._shares.fits(key, size):
            self._shares.add(key, size)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = size, granted
        self._waiting.setdefault(key, deque()).append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await granted
        except (asyncio.CancelledError, TimeoutError) as error:
            if granted.done() and not granted.cancelled():
                self._shares.add(key, -size)
                self._grant()
            else:
                self._remove(key, waiter)
            if isinstance(error, TimeoutError):
                raise exhausted("the messages of this namespace take too much memory; retry later") from None
            raise

    def _grant(self) -> None:
        """Grant memory to those who wait: first to the tenants that hold least, and to the calls of each in order."""
        for key in sorted(self._waiting, key=self._shares.held):
            while (waiting := self._waiting.get(key)) and self._shares.fits(key, waiting[0][0]):
                size, granted = waiting[0]
                self._remove(key, waiting[0])
                if not granted.done():
                    self._shares.add(key, size)
                    granted.set_result(None)

    def _remove(self, key: Hashable, waiter: tuple[int, asyncio.Future[None]]) -> None:
        waiting = self._waiting.get(key)
        if waiting is None or waiter not in waiting:
            return
        waiting.remove(waiter)
        if not waiting:
            del self._waiting[key]


# The admission of an RPC


def size_of(request: Any, raw: bytes) -> int:
    """The size of a decoded message in memory, in bytes: at most `MAX_READ`. That of a small one is an upper limit.

    Raises:
        UnfitError: It has too many parts.
    """
    if len(raw) < _UNCOUNTED:
        return len(raw) * _MAX_PER_BYTE
    return len(raw) + (values.parts(request) * _PART if isinstance(request, Message) else 0)


class Door:
    """Admits RPCs.

    Args:
        guard: Authenticates callers; None: everyone is admitted.
        connections: Closes connections without a valid token.
        refusal_seconds: How long a caller without a valid token waits for its rejection, which costs nothing but memory.
        long_polls: The maximum number of waiting calls; None: as many as fit into memory.
    """

    def __init__(
        self,
        guard: Guard | None,
        connections: Connections | None = None,
        *,
        refusal_seconds: float = _REFUSAL_SECONDS,
        long_polls: Places | None = None,
    ) -> None:
        self._guard = guard
        self._namespaces = None if guard is None else VisibleNamespaces(guard)
        self._connections = connections
        self._refusal_seconds = refusal_seconds
        self._refusals = Places("refused calls", each=4, total=512)
        self._waiting = long_polls or Places("long polls and other calls that wait", total=8_000)
        self._others = Places("concurrent calls", total=1_000)
        self._memory = MessageMemory(_MEMORY)

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], peer: Peer) -> User | None:
        """Authenticate the caller. Delay the rejection of a caller without a valid token, or close its connection.

        Raises:
            RpcError: The caller is not admitted.
        """
        if self._guard is None:
            return None
        try:
            user = await self._guard.authenticate(metadata, peer.address)
        except RpcError:
            await self._delay_rejection(peer)
            raise
        self.admit(peer)
        return user

    def admit(self, peer: Peer) -> None:
        """Record that a caller on this connection was authenticated."""
        if self._connections is not None:
            self._connections.admit(peer)

    def has_admitted(self, peer: Peer) -> bool:
        """Whether a caller on this connection was authenticated; without authentication, always."""
        return self._connections is None or self._connections.has_admitted(peer)

    async def authorize(self, user: User | None, rpc: str, namespace: str | None) -> None:
        """Check that a user may call an RPC in a namespace.

        Raises:
            RpcError: The user may not call the RPC.
        """
        if self._guard is not None and user is not None:
            await self._guard.authorize(user, rpc, namespace)

    async def visible(self, user: User | None, names: Sequence[str]) -> Sequence[str]:
        """Return the namespaces that a user may describe, out of the given ones.

        Raises:
            RpcError: The user has too many lists to review, or the API server does not respond.
        """
        return names if self._namespaces is None or user is None else await self._namespaces.among(user, names)

    @asynccontextmanager
    async def place(self, rpc: str, user: User | None) -> AsyncIterator[None]:
        """Hold a place for an RPC within the block.

        Raises:
            RpcError: The caller, or all callers together, have too many open RPCs.
        """
        if self._guard is None:
            yield
            return
        with (self._waiting if rpc in WAITING else self._others).take(tenant_of(user)):
            yield

    @asynccontextmanager
    async def message(
        self, read: Callable[[], Awaitable[bytes]], user: User | None
    ) -> AsyncIterator[tuple[bytes, Callable[[int], None]]]:
        """Read the message of an RPC once memory for it is available, and hold the memory within the block.

        This is memory for the largest message, which gRPC takes as soon as it is asked to read. The block gets the message
        and a function that releases the rest once the size of the decoded message is known.

        Raises:
            RpcError: The message did not arrive in time, or is too large.
        """
        async with self._memory.hold(tenant_of(user), MAX_READ, _WAIT_SECONDS) as shrink:
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    raw = await read()
            except TimeoutError:
                raise too_late(f"the message was not received within {_READ_SECONDS:.0f} s") from None
            if len(raw) > MAX_MESSAGE:
                raise too_large(len(raw), MAX_MESSAGE)
            yield raw, shrink

    async def response(self, rpc: str, size: int, user: User | None) -> Callable[[], None]:
        """Reserve memory for a response of an RPC, until the returned function is called because the client has received it.

        It is not released earlier, as clients may send requests and read no responses. Tasks do not wait for memory.

        Raises:
            RpcError: The responses that other calls of the namespace have not received take too much memory.
        """
        size = min(size * _COPIES, _MEMORY // 4)
        return await self._memory.keep(tenant_of(user), size, None if rpc in POLLS else _WAIT_SECONDS)

    async def _delay_rejection(self, peer: Peer) -> None:
        if not self._refusals.free(peer):
            if self._connections is not None:
                self._connections.close(peer)
            return
        with self._refusals.take(peer):
            await asyncio.sleep(self._refusal_seconds)
