"""The connections of a process over a network that delays and loses requests and responses, and whose watches lag.

Watches are in order within a kind, but not across kinds, and have gaps.
"""

import asyncio
from random import Random
from typing import Any

import aiohttp
from aiohttp.client import IDEMPOTENT_METHODS

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response, refused
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.process import Session, Trace, Watch
from perdure.simulation.cluster.store import Refusal
from support.faulty.faults import Fate, Faults


class FaultySession(Session):
    """Requests take time, and some fail. A request sent before the process died may still arrive."""

    def __init__(self, loop: ClusterLoop, server: ApiServer, faults: Faults, actor: str, trace: Trace | None) -> None:
        super().__init__(server, actor)
        self._loop = loop
        self._faults = faults
        self._trace = trace
        self._stands_until = 0.0

    @property
    def is_frozen(self) -> bool:
        """Whether the process is suspended."""
        return self._loop.time() < self._stands_until

    def freeze(self, seconds: float) -> None:
        """Suspend the process: it receives no responses for a while."""
        self._stands_until = max(self._stands_until, self._loop.time() + seconds)

    async def exchange(self, request: Request) -> Response:
        """Send a request, and wait for its response.

        If the connection breaks, a request that may be repeated is sent once more, as aiohttp does: it may be done twice.

        Raises:
            OSError, aiohttp.ClientError, TimeoutError: The request or its response was lost.
        """
        try:
            return await self._send(request)
        except aiohttp.ServerDisconnectedError:
            if request.method not in IDEMPOTENT_METHODS:
                raise
            return await self._send(request)

    async def _send(self, request: Request) -> Response:
        if self.dead:
            raise asyncio.CancelledError
        answer: asyncio.Future[Response] = self._loop.create_future()
        fate = self._faults.fate(request.method, request.url)
        self._loop.call_later(fate.arrives_after, self._meet, request, fate, answer)
        return await answer

    def _meet(self, request: Request, fate: Fate, answer: asyncio.Future[Response]) -> None:
        if self.dead and not fate.survives:
            return
        stands = max(0.0, self._stands_until - self._loop.time())
        after = stands + fate.answered_after
        if fate.dropped:
            self._trace_request(request, "is lost")
            self._loop.call_later(after, _fail, answer, aiohttp.ServerDisconnectedError())
        elif fate.refused:
            self._trace_request(request, f"is refused: {fate.refused}")
            refusal = Refusal(fate.refused, "InternalError", "a fault of the simulation")
            self._loop.call_later(after, _give, answer, refused(refusal))
        else:
            response = self.arrive(request)
            self._trace_request(request, f"{response.status}{' (the answer is lost)' if fate.unanswered else ''}")
            if fate.unanswered:
                lost = aiohttp.ServerDisconnectedError() if fate.breaks else TimeoutError()
                self._loop.call_later(after, _fail, answer, lost)
            else:
                self._loop.call_later(after, _give, answer, response)

    def _trace_request(self, request: Request, what: str) -> None:
        if self._trace is None:
            return
        body = request.body.decode()
        selected = "&".join(f"{key}={value}" for key, value in request.query.items())
        self._trace(f"{request.method:6} {request.url} {selected} → {what}  {body[:300]}", f"{request.url} {body}")


def _give(answer: asyncio.Future[Response], response: Response) -> None:
    if not answer.done():
        answer.set_result(response)


def _fail(answer: asyncio.Future[Response], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


_LONGEST_BACKOFF_SECONDS = 10.0


class LaggingWatch(Watch):
    """The watch of a process on a kind. After a gap, it lists existing objects, but never reports deletions within the gap."""

    def __init__(self, random: Random, lag: float, faults: Faults, *args: Any, **options: Any) -> None:
        """`lag` is the mean of its delays, in seconds, and `faults` has the outages; the rest is as for a Watch."""
        super().__init__(*args, **options)
        self.has_failed = False
        """Whether the connection was ever interrupted."""
        self._faults = faults
        self._random = random
        self._lag = lag
        self._last = 0.0
        self._deaf = False

    def is_connected(self) -> bool:
        """Whether the connection holds. An outage of the API server breaks it; the watch connects again some seconds later."""
        outage = next((end for start, end in self._faults.outages if start <= self.loop.time() < end), None)
        if outage is not None:
            self.interrupt(outage - self.loop.time() + self._random.uniform(0, _LONGEST_BACKOFF_SECONDS))
        return not self._deaf

    def schedule(self, type_: str | None, obj: dict[str, Any]) -> None:
        """Schedule the delivery of an event after all earlier ones."""
        self._last = max(self._last, self.loop.time() + self._random.expovariate(1 / self._lag)) + 2e-6
        self.loop.call_at(self._last, self.deliver, type_, obj)

    def interrupt(self, seconds: float) -> None:
        """Receive no events for a while, and then list, as a client with a broken connection does."""
        if not self._deaf:
            self._deaf = self.has_failed = True
            self.loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._deaf = False
        if self.open:
            self.list()
