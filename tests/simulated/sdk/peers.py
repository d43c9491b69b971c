"""The connections between the frontends of a fleet, over the simulated network instead of gRPC's."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio

from perdure.frontend.peers.client import PeerClient, PeerIdentity
from perdure.frontend.peers.server import PeerServer, connect
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.rpc import Handler
from simulated.sdk.wires import BrokenError, LateError, Wires
from support.faulty.operators import FaultyOperator

_Headers = Sequence[tuple[str, str | bytes]]


def address_of(name: str) -> str:
    """Where other members reach a member of the fleet."""
    return f"{name}:7234"


class Peers:
    """The members of a fleet that serve others."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._members: dict[str, tuple[FaultyOperator, Sequence[grpc.GenericRpcHandler]]] = {}
        """By address."""

    def join(self, operator: FaultyOperator, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Connect an operator with the others; return handlers that forward the calls of workers and clients."""
        frontend, shards = operator.frontend, operator.manager.shards

        def open_channel(address: str, _: object) -> "_Channel":
            return _Channel(self, operator, address)

        client = PeerClient(PeerIdentity(name=operator.name), lambda: shards.others, open_channel)
        router, _ = operator.within(connect, frontend, client)
        server = PeerServer(frontend, router, handlers, Door(None), "")
        self._members[address_of(operator.name)] = operator, server.generic_handlers()
        return router.routed(handlers)

    async def call(self, source: FaultyOperator, address: str, path: str, call: "_Call") -> bytes:
        """Call a member.

        Raises:
            AioRpcError: It has not responded, or its response is an error.
        """
        target, served = self._members[address]
        details = _Details(path, call.invocation_metadata())
        answer = next(filter(None, (each.service(details) for each in served))).stream_unary
        try:
            response: bytes = await self._wires.carry(
                target, lambda: answer(None, call), source=source, seconds=call.time_remaining()
            )
        except LateError as error:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from error
        except BrokenError as error:
            raise _error(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        except _AbortError as error:
            raise _error(error.code, error.message, call.trailers) from error
        return response


def _error(code: grpc.StatusCode, message: str, trailers: _Headers = ()) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailers), message)


class _Channel:
    """The connection of a member to an address."""

    def __init__(self, peers: Peers, source: FaultyOperator, address: str) -> None:
        self._peers = peers
        self._source = source
        self._address = address

    def unary_unary(
        self, path: str, *, request_serializer: Callable[[Any], bytes], response_deserializer: Callable[[bytes], Any]
    ) -> Callable[..., Awaitable[Any]]:
        """Return what makes the calls of one RPC, like `grpc.aio.Channel.unary_unary`."""

        async def call(request: Any, *, timeout: float | None, metadata: _Headers) -> Any:  # noqa: ASYNC109 (gRPC's form)
            made = _Call(request_serializer(request), metadata, timeout)
            return response_deserializer(await self._peers.call(self._source, self._address, path, made))

        return call

    async def close(self) -> None:
        """Do nothing: the calls have ended."""


@dataclass(frozen=True, slots=True)
class _Details:
    """The call that a handler is wanted for."""

    method: str
    invocation_metadata: _Headers


class _AbortError(Exception):
    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Call:
    """A call that has arrived at a member, like `grpc.aio.ServicerContext`."""

    def __init__(self, raw: bytes, headers: _Headers, seconds: float | None) -> None:
        self._raw = raw
        self._headers = headers
        self._until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        self.trailers: _Headers = ()

    def invocation_metadata(self) -> _Headers:
        return self._headers

    def peer(self) -> str:
        return "ipv4:10.0.0.2:4711"

    def time_remaining(self) -> float | None:
        return None if self._until is None else max(self._until - asyncio.get_running_loop().time(), 0.0)

    async def read(self) -> bytes:
        return self._raw

    def set_trailing_metadata(self, trailers: _Headers) -> None:
        self.trailers = trailers

    async def abort(self, code: grpc.StatusCode, message: str) -> NoReturn:
        raise _AbortError(code, message)
