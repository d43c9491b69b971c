"""Listening sockets: opened at an address, and accepting one connection at a time."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

_PAUSE_SECONDS: Final = 0.5
"""How long no connection is accepted after one could not be, for example because the process has too many open files."""


def listening(address: str) -> socket.socket:
    """A socket that listens at an address, such as ``[::]:7243``.

    Raises:
        OSError: The address is not available.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, dualstack_ipv6=host == "::")


@asynccontextmanager
async def accepting(
    listener: socket.socket, opened: Callable[[socket.socket, Any], Coroutine[Any, Any, None]]
) -> AsyncIterator[None]:
    """Accept connections within the block, and close the listening socket at the end.

    One at a time is accepted, so that everything else in the event loop has its turn during a flood of them.

    Args:
        listener: The listening socket.
        opened: Takes each connection and the address of its peer, and owns the connection from then on. Cancelled at the end.
    """
    listener.setblocking(False)
    connecting: set[asyncio.Task[None]] = set()

    async def accept() -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except ConnectionAbortedError:  # the peer has gone
                continue
            except OSError as error:
                structlog.get_logger("perdure.frontend").warning("Could not accept a connection", error=repr(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = loop.create_task(opened(connection, address), name="connection")
            connecting.add(task)
            task.add_done_callback(connecting.discard)
            await asyncio.sleep(0)

    task = asyncio.create_task(accept(), name="connections")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        listener.close()
        for each in connecting:
            each.cancel()
        if connecting:
            await asyncio.wait(set(connecting))
