"""Admission of an RPC before its message is read: authentication, authorization, and limits of concurrent RPCs and of memory."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from google.protobuf.message import Message

from perdure.frontend.errors import RpcError, exhausted, too_large, too_late
from perdure.frontend.messages import values
from perdure.frontend.transport.connections import Connections, Peer
from perdure.frontend.transport.guard import Guard, User, VisibleNamespaces, tenant_of

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
_SMALL, _MAX_PER_BYTE = 1024, _PART // 2
"""The parts of messages of less bytes, such as polls, are not counted."""
_COPIES = 3
"""Of a response that is being sent: as an object, its bytes, and the bytes in gRPC."""
_REFUSAL_SECONDS = 1.0

POLLS = frozenset({"PollActivityTaskQueue", "PollNexusTaskQueue", "PollWorkflowTaskQueue"})
"""RPCs in which workers wait for tasks. Before a worker gets a task, the queue checks again whether it may have it."""
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
            RpcError: There is no memory within `seconds`.
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
            RpcError: There is no memory within `seconds`.
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


def size_of(request: Any, raw: bytes) -> int:
    """The size of a decoded message in memory, in bytes: at most `MAX_READ`. That of a small one is an upper limit.

    Raises:
        UnfitError: It has too many parts.
    """
    if len(raw) < _SMALL:
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
        if self._connections is not None:
            self._connections.admit(peer)
        return user

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
