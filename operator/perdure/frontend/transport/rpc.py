"""The processing of an RPC over any transport: authentication, authorization, limits, and errors."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf.message import Message

from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.errors import RpcError, invalid, namespace_not_found, unavailable
from perdure.frontend.messages import values
from perdure.frontend.messages.values import UnfitError
from perdure.frontend.transport.audit import recorded
from perdure.frontend.transport.call import CallContext
from perdure.frontend.transport.connections import Peer
from perdure.frontend.transport.door import POLLS, WAITING, Door, size_of
from perdure.frontend.transport.namespaces import check_inside, namespace_of
from perdure.kube import client as kube
from perdure.observe import metrics

LONG = 16 * 1024
"""Bytes of a message that is decoded only for a caller who may send it: small parts take far more memory than they have bytes."""
Handler = Callable[[Any, CallContext], Awaitable[Any]]


class IncomingCall(Protocol):
    """A call that arrives over gRPC or HTTP."""

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Headers with lowercase names."""

    @property
    def peer(self) -> Peer:
        """The other end of the connection."""

    @property
    def seconds_left(self) -> float | None:
        """The time until the caller gives up; None: never."""

    async def read(self) -> bytes:
        """Read the message.

        Raises:
            RpcError: The message is missing.
        """

    def after_sending(self, release: Callable[[], None]) -> None:
        """Call a function once the response is sent, or the client has gone."""

    async def head(self, raw: bytes) -> Any:
        """Decode as little of the message as shows its namespace.

        Raises:
            RpcError: it is not a request of this RPC.
        """

    async def decode(self, raw: bytes) -> Any:
        """Decode the message.

        Raises:
            RpcError: The message is not a request of this RPC.
        """


@dataclass(frozen=True, slots=True)
class Rpc:
    """A served RPC."""

    service: str
    name: str
    handler: Handler
    request: Any
    """The class of its requests."""
    served: ServedNamespaces
    ready: Callable[[], Awaitable[None]]
    door: Door

    async def answer(self, call: IncomingCall) -> Any:
        """Authenticate the caller, then read the message, and handle it.

        Raises:
            RpcError: The RPC failed.
        """
        try:
            response = await self._handle(call)
        except Exception as error:  # noqa: BLE001 (each becomes a status)
            failure = status_of(self.name, error)
            error.__traceback__ = (
                None  # its frames refer to the request, and would keep it until the garbage collection
            )
            metrics.RPCS.labels(rpc=self.name, code=failure.code.name).inc()
            raise failure from None
        metrics.RPCS.labels(rpc=self.name, code="OK").inc()
        return response

    async def _handle(self, incoming: IncomingCall) -> Any:
        metadata, peer = incoming.metadata, incoming.peer
        user = await self.door.authenticate(metadata, peer)
        principal = user.name if user is not None else ""
        with recorded(self.name, principal, peer.address) as record:
            async with self.door.place(self.name, user), self.door.message(incoming.read, user) as (raw, shrink):
                decode = incoming.decode if len(raw) < LONG else incoming.head
                record.request = request = await decode(raw)
                if len(raw) < LONG:
                    shrink(size_of(request, raw))
                await self.ready()
                namespace = namespace_of(self.name, request)
                await self.door.authorize(user, self.name, namespace)
                if len(raw) >= LONG:
                    record.request = request = await incoming.decode(raw)
                    shrink(size_of(request, raw))
                check_inside(self.name, namespace, request)
                values.name(getattr(request, "identity", ""), "Identity", required=False)
                if namespace and namespace not in self.served:
                    raise namespace_not_found(namespace)

                async def recheck() -> None:
                    await self.door.authorize(await self.door.authenticate(metadata, peer), self.name, namespace)

                visible = partial(self.door.visible, user)
                call = CallContext(incoming.seconds_left, metadata, principal, recheck, visible=visible)
                record.response = await self.handler(request, call)
                if self.name in WAITING - POLLS:  # a task that is refused only now would be lost
                    await recheck()
                if isinstance(record.response, Message) and (size := record.response.ByteSize()) >= LONG:
                    incoming.after_sending(await self.door.response(self.name, size, user))
                return record.response


def status_of(rpc: str, error: Exception) -> RpcError:
    """The status that the caller gets for an error."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, UnfitError):
        return invalid(str(error))
    log = structlog.get_logger("perdure.frontend").bind(rpc=rpc)
    if isinstance(error, kube.RequestError):
        log.warning("The Kubernetes API request failed", error=repr(error))
        return unavailable(str(error))
    log.error("An RPC has failed", exc_info=error)
    return RpcError(grpc.StatusCode.INTERNAL, repr(error))
