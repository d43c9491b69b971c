"""Calls of Nexus handlers by clients, kept in memory while the client waits for the response.

No run repeats such a call. If there is no response in time, or the operator ends, the client retries it.
"""

import asyncio
import uuid
from dataclasses import dataclass, field

from temporalio.api.nexus.v1 import Request
from temporalio.api.workflowservice.v1 import RespondNexusTaskCompletedRequest, RespondNexusTaskFailedRequest

from perdure.frontend.matching.offers import Destination, Matching, key_of
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.nexus.calls import set_request_timeout
from perdure.kube.clock import monotonic

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

    async def make(self, request: DispatchNexusTaskRequest, seconds: float) -> Answer:
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
