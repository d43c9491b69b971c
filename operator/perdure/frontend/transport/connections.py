"""Close connections to the frontend whose callers present no valid token, and all if it cannot serve for a while.

gRPC's core cannot close a connection, or limit the connections of an address. But the sockets belong to this process, so they
can be found among its open files and shut down; for gRPC, the peer has then disconnected.
"""

import asyncio
import ipaddress
import math
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from perdure.observe import metrics

_SWEEP_SECONDS = 5.0
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
    return Peer(_address(host.strip("[]")), int(port)) if port.isdecimal() else Peer(text, 0)


def _address(host: str) -> str:
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
        serves: Returns whether this process can serve callers now. If it cannot for as long as `grace`, they should reach another
            operator.
    """

    def __init__(
        self, *ports: int, grace: float = 20.0, each: int = 64, serves: Callable[[], bool] = lambda: True
    ) -> None:
        self._ports = ports
        self._grace = grace
        self._each = each
        self._serves = serves
        self._served = math.inf
        """When this process could last serve callers; infinite before the first time."""
        self._known: set[Peer] = set()
        self._since: dict[Peer, float] = {}
        self._closing: set[Peer] = set()

    def admit(self, peer: Peer) -> None:
        """Record that a caller on this connection has presented a valid token."""
        self._known.add(peer)

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
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep(loop.time())

    def sweep(self, time: float) -> None:
        """Close connections that are open too long without a valid token, and the newest ones of an address with too many.

        If no caller was served for too long, close all connections.

        Args:
            time: The time of the event loop, in seconds.
        """
        present = {peer for peer, _ in self._accepted()}
        if self._serves():
            self._served = time
        elif time - self._served >= self._grace:
            self._closing |= present
            self.close_now()
            return
        self._known &= present
        self._since = {peer: self._since.get(peer, time) for peer in present - self._known}
        unknown: Counter[str] = Counter()
        for peer, since in sorted(self._since.items(), key=lambda item: item[1]):
            unknown[peer.address] += 1
            if time - since >= self._grace or unknown[peer.address] > self._each:
                self.close(peer)

    def close_now(self) -> None:
        """Close the connections passed to `close` immediately."""
        closing, self._closing = self._closing, set()
        for peer, connection in self._accepted():
            if peer in closing:
                metrics.TEMPORAL_CONNECTIONS_CLOSED.inc()
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accepted(self) -> Iterator[tuple[Peer, socket.socket]]:
        """Yield each connection with a duplicate of its socket, because gRPC may close its own."""
        for name in os.listdir(_OPEN_FILES) if _OPEN_FILES.exists() else ():  # noqa: PTH208 (names are all that is needed)
            with suppress(OSError):
                if not os.readlink(f"{_OPEN_FILES}/{name}").startswith("socket:"):  # noqa: PTH115
                    continue
                with socket.socket(fileno=os.dup(int(name))) as found:
                    if (
                        found.family not in {socket.AF_INET, socket.AF_INET6}
                        or found.getsockname()[1] not in self._ports
                    ):
                        continue
                    host, port = found.getpeername()[:2]  # fails for the listening socket
                    yield Peer(_address(host), port), found
