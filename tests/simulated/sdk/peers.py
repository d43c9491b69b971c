"""The connections between the frontends of a fleet, over the simulated network."""

from collections.abc import Mapping

from perdure.frontend.peers.calls import CallFailedError, Failure, Headers, PeerCall, PeerLostError, too_late
from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.peers.server import PeerServer, connect
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.rpc import Handler
from perdure.kube.clock import monotonic
from simulated.sdk.wires import BrokenError, LateError, Wires
from support.faulty.operators import FaultyOperator


def address_of(name: str) -> str:
    """Where other members reach a member of the fleet."""
    return f"{name}:7234"


class Peers:
    """The members of a fleet that serve others."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._members: dict[str, tuple[FaultyOperator, PeerServer]] = {}
        """By address."""

    def join(self, operator: FaultyOperator, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Connect an operator with the others; return handlers that forward the calls of workers and clients."""
        frontend, shards = operator.frontend, operator.manager.shards

        def connection(address: str, _: object, *, over_grpc: bool) -> "_Connection":
            del over_grpc
            return _Connection(self, operator, address)

        client = PeerClient(PeerIdentity(name=operator.name), lambda: shards.others, connect=connection)
        router, _ = operator.within(connect, frontend, client)
        server = PeerServer(frontend, router, handlers, Door(None), "")
        self._members[address_of(operator.name)] = operator, server
        return router.routed(handlers)

    async def call(self, source: FaultyOperator, address: str, call: PeerCall) -> bytes:
        """Call a member.

        Raises:
            CallFailedError: The response is an error.
            PeerLostError: It has not responded.
        """
        target, served = self._members[address]
        try:
            response: bytes | Failure = await self._wires.carry(
                target, lambda: served.answer(call), source=source, seconds=call.seconds_left
            )
        except LateError:
            raise CallFailedError(too_late()) from None
        except BrokenError as error:
            raise PeerLostError(str(error)) from error
        if isinstance(response, Failure):
            raise CallFailedError(response)
        return response


class _Connection:
    """The connection of a member to an address."""

    def __init__(self, peers: Peers, source: FaultyOperator, address: str) -> None:
        self._peers = peers
        self._source = source
        self._address = address

    async def call(self, path: str, body: bytes, headers: Headers, authorization: str, seconds: float | None) -> bytes:
        """Call the member."""
        del authorization
        until = None if seconds is None else monotonic() + seconds
        return await self._peers.call(self._source, self._address, PeerCall(path, headers, body, until))

    async def close(self) -> None:
        """Do nothing: the calls have ended."""
