"""The port at which a member listens for the others: for calls as frames, and for those of earlier versions over gRPC."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

from perdure.frontend.peers.frames import PREAMBLE, Admit, Answer, FrameServer
from perdure.frontend.peers.over_grpc import serving_grpc
from perdure.frontend.transport.door import peer_at
from perdure.frontend.transport.sockets import accepting, listening
from perdure.frontend.transport.tls import ServerCertificate

_PREAMBLE_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 0.5
"""How long calls in progress may take when this member stops."""


@asynccontextmanager
async def listening_to_members(
    address: str, admit: Admit, answer: Answer, served: ServerCertificate | None
) -> AsyncIterator[None]:
    """Serve other members within the block.

    Args:
        address: The address to listen at, such as ``[::]:7234``.
        admit: Authenticates a caller.
        answer: Answers a call.
        served: The certificate that all members share; None without encryption.

    Raises:
        RuntimeError: The address is not available.
    """
    frames = FrameServer(admit, answer, served)
    try:
        listener = listening(address)
    except OSError as error:
        raise RuntimeError(f"other operators cannot be served at {address}: {error}") from error
    async with serving_grpc(admit, answer, served) as carry:

        async def opened(connection: socket.socket, found: Any) -> None:
            with suppress(OSError), ExitStack() as owned:
                owned.enter_context(connection)
                async with asyncio.timeout(_PREAMBLE_SECONDS):
                    first = await _first(connection)
                owned.pop_all()  # the callee owns it now
                serve = frames.serve if first == PREAMBLE else partial(carry, first)
                await serve(connection, peer_at(found))

        async with accepting(listener, opened):
            try:
                yield
            finally:
                await asyncio.wait({asyncio.ensure_future(frames.stop(_STOP_SECONDS))})


async def _first(connection: socket.socket) -> bytes:
    """Read the first bytes of a connection: at most a preamble, and less if they cannot be one."""
    loop, first = asyncio.get_running_loop(), b""
    while len(first) < len(PREAMBLE) and PREAMBLE.startswith(first):
        content = await loop.sock_recv(connection, len(PREAMBLE) - len(first))
        if not content:
            raise ConnectionResetError
        first += content
    return first
