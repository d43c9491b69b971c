"""RPCs that other members handle, and the polls among them, whose tasks are on their way through this process.

A member that is not the owner of a workflow or a task queue says so, and has done nothing: the RPC goes to another one. If the
connection breaks, or the member loses the shard meanwhile, it may have handled the RPC. Then only RPCs are repeated that have no
other effect the second time: those that only read, those of workers for a task with its token, and those with a request ID, which
is added if the client has sent none. For all others, the client gets UNAVAILABLE, as if it had been connected to that member.
"""

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from temporalio.api.workflowservice.v1 import ExecuteMultiOperationRequest, UpdateWorkflowExecutionRequest

from perdure.frontend.errors import RpcError, not_found, unavailable
from perdure.frontend.peers.calls import END_POLLS, PeerLostError
from perdure.frontend.peers.client import NotOwnerError, PeerClient
from perdure.frontend.transport.door import POLLS
from perdure.frontend.transport.rights import changes
from perdure.frontend.transport.rpc import CallContext, response_of, service_of
from perdure.kube.clock import monotonic
from perdure.observe import metrics

RETRY_SECONDS: Final = 0.2
"""How long an RPC waits before it looks for an owner again, unless the fleet changes earlier."""
_DRAIN_SECONDS: Final = 2.0
"""How long a leaving process waits for the responses to the polls that it has forwarded."""


@dataclass(frozen=True, slots=True)
class _ForwardedPoll:
    """A poll that another member handles."""

    call: CallContext
    """The call of the worker."""
    member: str


class Forwarding:
    """Forwards RPCs, and ends the forwarded polls when this process leaves."""

    def __init__(self, client: PeerClient) -> None:
        """`client` calls the members."""
        self._client = client
        self._polls: dict[str, _ForwardedPoll] = {}
        """The forwarded polls, by the IDs of their calls."""
        self.changed = asyncio.Event()
        """Set when other members own shards than before."""
        self.draining = False
        """Whether this process leaves, so that polls are not repeated."""

    async def forward(self, member: str, rpc: str, request: Any, call: CallContext) -> Any:
        """Call an RPC at a member.

        Raises:
            PeerLostError: The member could not be reached, or stopped before it responded.
            NotOwnerError: The member has rejected the RPC, and has done nothing.
            RpcError: The error of the member.
        """
        response = response_of(rpc)
        metrics.FLEET_FORWARDED_RPCS.labels(rpc=rpc).inc()
        call_id = uuid.uuid4().hex if rpc in POLLS else ""
        if call_id:
            self._polls[call_id] = _ForwardedPoll(call, member)
        try:
            return await self._client.call(
                member,
                f"/{service_of(rpc)}/{rpc}",
                request,
                encode=type(request).SerializeToString,
                decode=response.FromString,
                seconds=call.seconds_left,
                metadata=tuple(call.metadata),
                principal=call.principal,
                call_id=call_id,
            )
        finally:
            self._polls.pop(call_id, None)

    async def recheck(self, call_id: str) -> None:
        """Check whether the client of a forwarded poll still waits and may still poll.

        Raises:
            RpcError: The client no longer waits, or may no longer poll.
        """
        poll = self._polls.get(call_id)
        if poll is None:
            raise not_found("the worker no longer waits")
        await poll.call.recheck()

    async def drain(self) -> None:
        """Have their owners respond to the forwarded polls, because this process leaves. No new ones may arrive.

        If they were cancelled instead, a task whose response is on its way here would be lost: it counts as handed out. Each
        poll gets its task, or none.
        """
        self.draining = True
        until = monotonic() + _DRAIN_SECONDS
        while self._polls and monotonic() < until:
            # Again, because a poll may have arrived at its owner only after the last call.
            await asyncio.gather(*map(self._end_polls, {poll.member for poll in self._polls.values()}))
            await self.wait_for_change()

    async def _end_polls(self, member: str) -> None:
        with suppress(NotOwnerError, PeerLostError, RpcError):  # a lost member responds to nothing
            await self._client.call(member, END_POLLS, "", encode=str.encode, decode=bytes, seconds=_DRAIN_SECONDS)

    async def wait_for_change(self, seconds: float = RETRY_SECONDS) -> bool:
        """Wait until other members own shards than before, or for some seconds; return whether they do."""
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self.changed.wait()
        return False


# Repeated calls


def check_repeatable(error: Exception, *, repeatable: bool) -> None:
    """Check that a call which has failed with an error can be repeated.

    Args:
        error: Why no member has answered the call.
        repeatable: Whether the call has no other effect if it is repeated.

    Raises:
        RpcError: A member may have handled the call, and a second time could have another effect.
    """
    if isinstance(error, PeerLostError) and error.may_have_acted and not repeatable:
        raise unavailable(f"the operator was lost, and may have handled the call: {error}")


def add_request_ids(request: Any) -> None:
    """Give a request the IDs that it can have and has not, so that it has no second effect if it is repeated."""
    for message, field in _ids(request):
        if not getattr(message, field):
            setattr(message, field, uuid.uuid4().hex)


def is_repeatable(rpc: str, request: Any) -> bool:
    """Whether an RPC that a member may have handled has no other effect if it is repeated."""
    if rpc.endswith("ById"):
        return False  # it names no attempt: a repeated failure would end the next one, too
    return not changes(rpc) or bool(_ids(request))


def _ids(request: Any) -> list[tuple[Any, str]]:
    """The messages and fields of a request by which an operator recognizes that it is repeated."""
    if isinstance(request, UpdateWorkflowExecutionRequest):
        return [(request.request.meta, "update_id")]
    if isinstance(request, ExecuteMultiOperationRequest):
        parts = [getattr(each, each.WhichOneof("operation") or "", None) for each in request.operations]
        return [found for part in parts if part is not None for found in _ids(part)]
    return [(request, "request_id")] if "request_id" in request.DESCRIPTOR.fields_by_name else []
