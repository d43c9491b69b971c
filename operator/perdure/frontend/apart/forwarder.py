"""Forward each RPC to the operator that can handle it, and wait for the next one if that operator is lost.

What is repeated after a loss is the same for frontends and for operators that forward: see `peers.forwarding`. A frontend also
tries the operators that are not the owner by its view, because theirs may be newer.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from random import SystemRandom
from typing import Any, Final, Protocol, TypeVar

from temporalio.api.workflowservice.v1 import ListNamespacesRequest, ListNamespacesResponse

from perdure.frontend.errors import unavailable
from perdure.frontend.matching.polls import LONGEST_POLL
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.peers.calls import Failure, PeerLostError
from perdure.frontend.peers.client import NotOwnerError, PeerClient, failure_of
from perdure.frontend.peers.forwarding import (
    RETRY_SECONDS,
    Forwarding,
    add_request_ids,
    check_repeatable,
    is_repeatable,
)
from perdure.frontend.peers.router import shard_of_rpc
from perdure.frontend.system import MAX_NAMESPACES
from perdure.frontend.transport.door import POLLS
from perdure.frontend.transport.rpc import SERVED, CallContext, Handler, status_of
from perdure.frontend.workflows.batches import rpc_of_batch
from perdure.kube.clock import monotonic
from perdure.observe import metrics

_PATIENCE_SECONDS: Final = LONGEST_POLL
"""How long an RPC without a deadline waits for an owner."""
_LONGEST_PAUSE_SECONDS: Final = 1.0
"""The longest time between two rounds. Thousands of polls may wait for the next owner, and must not keep it from taking over."""

Made = TypeVar("Made")


class Operators(Protocol):
    """The operators, as `ObservedFleet` knows them."""

    @property
    def others(self) -> Mapping[str, str]:
        """The addresses of the operators, by name."""

    @property
    def others_over_grpc(self) -> Collection[str]:
        """Those of earlier versions, which know no frontends of their own."""

    def ranked(self, shard: int) -> list[str]:
        """The operators, with the probable owner of a shard first, then the one that takes over if that is lost, and so on."""

    def outdated(self) -> None:
        """Learn soon which operators there are."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function whenever there are other operators."""


class Forwarder(Forwarding):
    """Forwards the RPCs of the callers of a frontend."""

    def __init__(self, fleet: Operators, client: PeerClient) -> None:
        """Create it without RPCs.

        Args:
            fleet: The operators.
            client: Calls the operators.
        """
        super().__init__(client)
        self._fleet = fleet
        self._random = SystemRandom()
        fleet.subscribe(self.changed.set)

    def handlers(self) -> dict[str, Handler]:
        """The handlers of all RPCs."""
        return {
            **{rpc: self._handler(rpc) for rpc in SERVED},
            "ListNamespaces": self._list_namespaces,
            "StartBatchOperation": self._start_batch_operation,
        }

    def _handler(self, rpc: str) -> Handler:
        async def handle(request: Any, call: CallContext) -> Any:
            return await self.to_owner(rpc, request, call)

        return handle

    async def to_owner(self, rpc: str, request: Any, call: CallContext) -> Any:
        """Let the operator that owns the target of an RPC handle it, or any operator if it has no target.

        Raises:
            RpcError: The error of the operator; UNAVAILABLE if none could handle the RPC in time.
        """
        add_request_ids(request)

        async def forward(member: str, seconds_left: float | None) -> Any:
            return await self.forward(member, rpc, request, replace(call, seconds_left=seconds_left))

        shard = shard_of_rpc(rpc, request, lambda _: "")
        return await self._call_first(
            shard, call, forward, repeatable=is_repeatable(rpc, request), is_poll=rpc in POLLS
        )

    async def to_any(
        self,
        path: str,
        message: bytes,
        decode: Callable[[bytes], Made],
        call: CallContext,
        *,
        repeatable: bool,
        shard: int = -1,
    ) -> Made:
        """Let any operator answer a call that is not an RPC of Temporal's API.

        Args:
            path: The path of the call.
            message: The message.
            decode: Decodes the response.
            call: The call of the client.
            repeatable: Whether the call can be repeated after it may have been handled.
            shard: The shard whose owner is called first; none if negative.

        Raises:
            RpcError: The error of the operator; UNAVAILABLE if none could handle the call in time.
        """

        async def forward(member: str, seconds_left: float | None) -> Made:
            made: Made = await self._client.call(
                member,
                path,
                message,
                encode=bytes,
                decode=decode,
                seconds=seconds_left,
                metadata=tuple(call.metadata),
                principal=call.principal,
            )
            return made

        return await self._call_first(None if shard < 0 else shard, call, forward, repeatable=repeatable)

    async def _call_first(
        self,
        shard: int | None,
        call: CallContext,
        forward: Callable[[str, float | None], Awaitable[Made]],
        *,
        repeatable: bool,
        is_poll: bool = False,
    ) -> Made:
        """Call the operators in turn, until one has handled the call."""
        began = monotonic()
        until, pause = began + call.within(_PATIENCE_SECONDS), RETRY_SECONDS
        while True:
            error: Exception = PeerLostError("no operator is known")
            for member in self._candidates(shard):
                left = None if call.seconds_left is None else max(call.seconds_left - (monotonic() - began), 0.0)
                try:
                    return await forward(member, left)
                except (NotOwnerError, PeerLostError) as lost:
                    error = lost
                metrics.FLEET_OWNER_MISMATCHES.inc()
                self._fleet.outdated()
                check_repeatable(error, repeatable=repeatable)
                if monotonic() >= until:
                    break
            if self.draining and is_poll:
                raise unavailable("this frontend is shutting down; retry")
            if monotonic() + RETRY_SECONDS >= until:
                raise unavailable(f"no operator could handle the call: {error}; retry later")
            has_changed = await self.wait_for_change(min(pause, until - monotonic()))
            pause = RETRY_SECONDS if has_changed else min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _candidates(self, shard: int | None) -> list[str]:
        """The operators to try, in this order."""
        earlier = self._fleet.others_over_grpc
        if shard is not None:
            found = self._fleet.ranked(shard)
        else:
            found = list(self._fleet.others)
            self._random.shuffle(found)
        return [member for member in found if member not in earlier]

    async def asked(self, call_id: str) -> Failure | None:
        """Say why the client of a forwarded poll no longer waits, or may no longer poll; None if it does and may."""
        try:
            await self.recheck(call_id)
        except Exception as error:  # noqa: BLE001 (each becomes a status)
            return failure_of(status_of("", error))
        return None

    # RPCs about what the caller may see and do, which only this process knows

    async def _list_namespaces(self, request: ListNamespacesRequest, call: CallContext) -> ListNamespacesResponse:
        """List the namespaces that the caller may describe."""
        found, token = {}, b""
        while True:
            asked = ListNamespacesRequest(page_size=MAX_NAMESPACES, next_page_token=token)
            page: ListNamespacesResponse = await self.to_owner("ListNamespaces", asked, call)
            found.update({each.namespace_info.name: each for each in page.namespaces})
            token = page.next_page_token
            if not token:
                break
        visible, token = page_of(
            await call.visible(sorted(found)), request.next_page_token, request.page_size, MAX_NAMESPACES
        )
        return ListNamespacesResponse(namespaces=[found[name] for name in visible], next_page_token=token)

    async def _start_batch_operation(self, request: Any, call: CallContext) -> Any:
        """Check that the caller may also call the RPC of which the batch has many."""
        if (rpc := rpc_of_batch(request)) is not None:
            await call.permit(rpc)
        return await self.to_owner("StartBatchOperation", request, call)
