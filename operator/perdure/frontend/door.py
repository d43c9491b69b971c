"""What happens to an RPC before its message is read: who calls, and is there room for another one?"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from perdure.frontend.admission import MessageMemory, Places
from perdure.frontend.connections import Connections, Peer
from perdure.frontend.errors import RpcError, too_large, too_late
from perdure.frontend.guard import Guard, User

MAX_MESSAGE = 4 * 1024 * 1024
"""Bytes of a message."""
MAX_READ = 2 * MAX_MESSAGE
"""Bytes of a message that gRPC reads. SDKs know the refusal of Temporal's server, and not that of gRPC in C."""
MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer: a page of a history, and with a workflow task the updates and queries that wait, of 2 MiB each."""
_MEMORY = 32 * MAX_MESSAGE
_READ_SECONDS = 30.0
_REFUSAL_SECONDS = 1.0

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
"""RPCs that are there to wait. They have places of their own, so that many of them leave room for the others."""


class Door:
    """Admits RPCs.

    Args:
        guard: Knows callers; None: everyone is let in.
        connections: Closes those of callers that show no valid token.
        refusal_seconds: How long a caller without a valid token waits for the refusal: so long it costs nothing but memory.
        long_polls: How many calls may wait; None: as many as fit into memory.
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
        self._connections = connections
        self._refusal_seconds = refusal_seconds
        self._refusals = Places("refused calls", each=4, total=512)
        self._waiting = long_polls or Places("long polls and other calls that wait", each=2_000, total=8_000)
        self._others = Places("concurrent calls", each=500, total=1_000)
        self._memory = MessageMemory(_MEMORY)

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], peer: Peer) -> User | None:
        """Find out who calls. A caller who shows no valid token waits for the refusal, or loses the connection.

        Raises:
            RpcError: the caller is not let in.
        """
        if self._guard is None:
            return None
        try:
            user = await self._guard.authenticate(metadata, peer.address)
        except RpcError:
            await self._hold_back(peer)
            raise
        if self._connections is not None:
            self._connections.admit(peer)
        return user

    async def authorize(self, user: User | None, rpc: str, namespace: str | None) -> None:
        """Let a user call an RPC about a namespace.

        Raises:
            RpcError: the user may not.
        """
        if self._guard is not None and user is not None:
            await self._guard.authorize(user, rpc, namespace)

    @asynccontextmanager
    async def place(self, rpc: str, user: User | None) -> AsyncIterator[None]:
        """Hold a place for an RPC for the length of the block.

        Raises:
            RpcError: the caller, or all callers together, have too many open.
        """
        if self._guard is None:
            yield
            return
        with (self._waiting if rpc in WAITING else self._others).take(user):
            yield

    @asynccontextmanager
    async def message(self, read: Callable[[], Awaitable[bytes]], user: User | None) -> AsyncIterator[bytes]:
        """Read the message of an RPC once there is memory for it, which is held for the length of the block.

        Raises:
            RpcError: it did not come, or not in time, or is too large.
        """
        async with self._memory.hold(user, MAX_READ) as shrink:
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    raw = await read()
            except TimeoutError:
                raise too_late(f"the message was not received within {_READ_SECONDS:.0f} s") from None
            if len(raw) > MAX_MESSAGE:
                raise too_large(len(raw), MAX_MESSAGE)
            shrink(len(raw))
            yield raw

    async def _hold_back(self, peer: Peer) -> None:
        if not self._refusals.free(peer):
            if self._connections is not None:
                self._connections.close(peer)
            return
        with self._refusals.take(peer):
            await asyncio.sleep(self._refusal_seconds)
