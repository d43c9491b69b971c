"""The connections to the HTTP API, in three budgets, so that no kind of caller can use up the connections of another.

Callers with a valid token have one budget, senders of validly signed requests to Webhooks another, and strangers, who have shown
neither yet, the third. An honest caller is a stranger for some milliseconds. So when strangers use up their budget, the one that
has been connected for the longest time is disconnected. Connections count from the moment they are accepted, before TLS.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from perdure.frontend.transport.door import Door, Peer, peer_at, strangers_of
from perdure.frontend.transport.sockets import accepting
from perdure.observe import metrics

_HANDSHAKE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many connections of each kind may be open."""

    callers: int
    """Those with a valid token."""
    senders: int
    """Those with a valid signature."""
    strangers: int
    """All others."""

    @classmethod
    def of(cls, callers: int) -> Self:
        """Derive the budgets from the one of callers."""
        return cls(callers, strangers_of(callers), strangers_of(callers))


class HttpConnections:
    """The open connections to the HTTP API."""

    def __init__(self, budgets: Budgets, door: Door) -> None:
        """`door` knows which callers have shown a valid token."""
        self._budgets = budgets
        self._door = door
        self._strangers: dict[Peer, socket.socket] = {}
        """In the order of their arrival. A caller stays among them until its place is needed."""
        self._callers: set[Peer] = set()
        self._senders: set[Peer] = set()

    def open(self, peer: Peer, connection: socket.socket) -> None:
        """Count a new connection as one of a stranger, and make room for it."""
        while len(self._strangers) >= self._budgets.strangers:
            self._settle_oldest()
        self._strangers[peer] = connection

    def closed(self, peer: Peer) -> None:
        """Stop counting a connection."""
        self._strangers.pop(peer, None)
        self._callers.discard(peer)
        self._senders.discard(peer)

    def admit_sender(self, peer: Peer) -> bool:
        """Count a connection as one of a sender, because a request on it has a valid signature.

        Returns:
            Whether it may stay open after this request.
        """
        if peer in self._strangers and len(self._senders) < self._budgets.senders:
            del self._strangers[peer]
            self._senders.add(peer)
            self._door.admit(peer)
        return peer in self._senders or peer in self._callers

    def _settle_oldest(self) -> None:
        """Count the oldest connection among the strangers as one of a caller if it is, and close it otherwise."""
        peer, connection = next(iter(self._strangers.items()))
        del self._strangers[peer]
        if self._door.has_admitted(peer) and len(self._callers) < self._budgets.callers:
            self._callers.add(peer)
            return
        metrics.TEMPORAL_CONNECTIONS_CLOSED.inc()
        with suppress(OSError):  # it is already closed
            connection.shutdown(socket.SHUT_RDWR)


class HttpServer(web.Server):
    """Serves the connections, and counts them from the moment they are accepted."""

    def __init__(self, handler: Any, connections: HttpConnections) -> None:
        """`handler` answers requests."""
        super().__init__(handler, handler_cancellation=True, auto_decompress=False, access_log=None)
        self._counted = connections
        self._peers: dict[RequestHandler, Peer] = {}

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Handle the end of a connection."""
        super().connection_lost(handler, exc)
        self._forget(handler)

    @asynccontextmanager
    async def serving(self, listener: socket.socket, secured: ssl.SSLContext | None) -> AsyncIterator[None]:
        """Accept connections within the block, and close the listening socket and all connections at the end."""

        async def opened(connection: socket.socket, address: Any) -> None:
            await self._connect(connection, peer_at(address), secured)

        try:
            async with accepting(listener, opened):
                yield
        finally:
            await self.shutdown(1.0)

    async def _connect(self, connection: socket.socket, peer: Peer, secured: ssl.SSLContext | None) -> None:
        """Shake hands with the peer, and pass the connection on to a handler."""
        handler = self()
        self._peers[handler] = peer
        self._counted.open(peer, connection)
        seconds = _HANDSHAKE_SECONDS if secured else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: handler, connection, ssl=secured, ssl_handshake_timeout=seconds
            )
        except OSError:  # the peer speaks no TLS, took too long, or has gone
            self._forget(handler)

    def _forget(self, handler: RequestHandler) -> None:
        peer = self._peers.pop(handler, None)
        if peer is not None:
            self._counted.closed(peer)
