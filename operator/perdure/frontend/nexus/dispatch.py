"""Calls of Nexus handlers by clients, which the HTTP API offers."""

from perdure.controller.fleet.rendezvous import SHARDS
from perdure.controller.fleet.shards import Shards
from perdure.frontend.errors import invalid, too_late, unavailable
from perdure.frontend.messages.values import MAX_BLOB, name
from perdure.frontend.nexus.direct_calls import Answer, DirectCalls, DispatchNexusTaskRequest
from perdure.frontend.transport.rpc import LONGEST_POLL, CallContext
from perdure.kube.clock import now


class NexusDispatch:
    """Lets workers handle the calls of clients."""

    def __init__(self, shards: Shards, direct_calls: DirectCalls) -> None:
        self._shards = shards
        self._direct_calls = direct_calls

    async def dispatch_nexus_task(self, request: DispatchNexusTaskRequest, call: CallContext) -> Answer:
        """Pass a call to a worker, and wait for its response.

        Raises:
            RpcError: The call is invalid, no worker has answered it in time, or this operator could not receive the response.
        """
        name(request.task_queue, "TaskQueue")
        if request.request.start_operation.payload.ByteSize() > MAX_BLOB:
            raise invalid("input exceeds size limit")
        if not any(map(self._shards.owns_shard, range(SHARDS))):
            # The response of the worker would be routed to another member: one with few of many members may own none.
            raise unavailable("this operator owns no shard at the moment, so no response would reach it; retry later")
        request.request.scheduled_time.FromDatetime(now())
        try:
            return await self._direct_calls.make(request, call.within(LONGEST_POLL))
        except TimeoutError:
            raise too_late("upstream timeout") from None
