"""Which connections to the HTTP API stay open, and whose request gives way to a new one."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from perdure.frontend.http.connections import Budgets, HttpConnections
from perdure.frontend.http.webhooks import UnsignedRequests
from perdure.frontend.transport.door import Connections, Door, Peer
from perdure.frontend.transport.guard import Guard
from support.callers import AUDIENCE, ApiServer

ONE, TWO, THREE = (Peer("10.0.0.1", port) for port in (1, 2, 3))


@contextmanager
def opened(connections: HttpConnections, *peers: Peer) -> Iterator[dict[Peer, socket.socket]]:
    """Connections of the given peers: the ends that the peers hold."""
    with ExitStack() as stack:
        found = {}
        for peer in peers:
            ours, theirs = map(stack.enter_context, socket.socketpair())
            theirs.setblocking(False)
            connections.open(peer, ours)
            found[peer] = theirs
        yield found


def closed(theirs: socket.socket) -> bool:
    try:
        return theirs.recv(1) == b""
    except BlockingIOError:
        return False


def guarded() -> Door:
    return Door(Guard(ApiServer(), AUDIENCE), Connections(0))  # type: ignore[arg-type]


def test_the_oldest_stranger_gives_way() -> None:
    connections = HttpConnections(Budgets(callers=1, senders=1, strangers=2), guarded())
    with opened(connections, ONE, TWO, THREE) as ends:
        assert {peer: closed(end) for peer, end in ends.items()} == {ONE: True, TWO: False, THREE: False}


def test_a_sender_gives_way_to_no_stranger_and_survives_the_sweep() -> None:
    door = guarded()
    connections = HttpConnections(Budgets(callers=1, senders=1, strangers=2), door)
    with opened(connections, ONE, TWO) as ends:
        assert connections.admit_sender(ONE)
        assert not connections.admit_sender(TWO), "another sender has the only place"
        assert (door.has_admitted(ONE), door.has_admitted(TWO)) == (True, False)
        with opened(connections, *(Peer("10.0.0.9", port) for port in range(5))):
            assert (closed(ends[ONE]), closed(ends[TWO])) == (False, True)


async def test_a_new_request_displaces_the_oldest_of_the_address_with_the_most() -> None:
    requests, over = UnsignedRequests(total=3, seconds=3_600), asyncio.Event()
    displaced: list[str] = []
    arrived = asyncio.Semaphore(0)

    async def request(name: str) -> None:
        try:
            async with requests.place(name[0]):
                arrived.release()
                await over.wait()
        except TimeoutError:
            displaced.append(name)

    async with asyncio.TaskGroup() as group:
        for name in ("other", "slow 1", "slow 2", "slow 3", "yet another"):
            group.create_task(request(name))
            await arrived.acquire()
        over.set()
    assert displaced == ["slow 1", "slow 2"]
