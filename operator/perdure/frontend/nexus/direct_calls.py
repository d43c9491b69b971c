"""Calls of Nexus handlers by clients, which the HTTP API offers, kept in memory while the client waits for the response.

No run repeats such a call. If there is no response in time, or the operator ends, the client retries it.
"""

import asyncio
import uuid
from dataclasses import dataclass, field

from temporalio.api.nexus.v1 import Request
from temporalio.api.workflowservice.v1 import RespondNexusTaskCompletedRequest, RespondNexusTaskFailedRequest

from perdure.controller.fleet.shards import SHARDS, Shards
from perdure.frontend.errors import invalid, too_late, unavailable
from perdure.frontend.matching.queues import Destination, Kind, Matching, Offer, QueueName, key_of
from perdure.frontend.messages.values import MAX_BLOB, name
from perdure.frontend.nexus.calls import set_request_timeout
from perdure.frontend.transport.rpc import LONGEST_POLL, CallContext
from perdure.kube.clock import monotonic, now

Answer = RespondNexusTaskCompletedRequest | RespondNexusTaskFailedRequest
"""The response of a worker to a call."""


@dataclass(frozen=True, slots=True)
class DispatchNexusTaskRequest:
    """A call of a handler. The public API has no message for it: clients send HTTP requests."""

    namespace: str
    """The namespace whose workers handle the call."""
    task_queue: str
    request: Request


@dataclass(slots=True)
class DirectCall:
    """A call that a client waits for."""

    queue: QueueName
    deadline: float
    """The deadline, as a time of `monotonic`."""
    received: Request
    answer: "asyncio.Future[Answer]"
    call_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def offer(self) -> Offer:
        """The offer in the task queue."""
        return Offer("", query=self.call_id)

    def request(self) -> Request:
        """The request for a worker that takes the call now."""
        made = Request()
        made.CopyFrom(self.received)
        set_request_timeout(made, self.deadline - monotonic())
        return made


class DirectCalls:
    """The calls that clients wait for."""

    def __init__(self, matching: Matching) -> None:
        """Offer calls through `matching`."""
        self._matching = matching
        self._calls: dict[str, DirectCall] = {}

    async def call(self, request: DispatchNexusTaskRequest, seconds: float) -> Answer:
        """Call a handler.

        Raises:
            TimeoutError: No worker has responded within `seconds`.
        """
        queue = QueueName(request.namespace, Kind.NEXUS, request.task_queue)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        call = DirectCall(queue, monotonic() + seconds, request.request, answer)
        self._calls[call.call_id] = call
        try:
            self._matching.settle(key_of(call.offer), {call.offer: Destination(queue)})
            async with asyncio.timeout(seconds):
                return await answer
        finally:
            self._calls.pop(call.call_id, None)
            self._matching.settle(key_of(call.offer), {})

    def get(self, call_id: str) -> DirectCall | None:
        """Return an open call."""
        return self._calls.get(call_id)

    def report(self, call_id: str, namespace: str, answer: Answer) -> bool:
        """Pass the response of a worker to the client; return whether the client was waiting. A call has one response."""
        call = self._calls.get(call_id)
        if call is None or call.queue.namespace != namespace or call.answer.done():
            return False
        call.answer.set_result(answer)
        return True


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
            return await self._direct_calls.call(request, call.within(LONGEST_POLL))
        except TimeoutError:
            raise too_late("upstream timeout") from None
