"""The connections of a process over a network that delays and loses requests and responses."""

import asyncio

import aiohttp
from aiohttp.client import IDEMPOTENT_METHODS

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response, refused
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.process import Session, Trace
from perdure.simulation.cluster.store import Refusal
from simulated.faults import Fate, Faults


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
        fate = self._faults.fate(request.url)
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
