"""Stands in for `aiohttp.ClientSession`, between the operator's own client and the API server in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import aiohttp

from simulated.apiserver import Answer, ApiServer, Refusal, Request
from simulated.faults import Fate, Faults
from simulated.loop import Loop

Trace = Callable[[str, str], None]
"""Takes a line of the timeline, and the text to find it by."""


class Session:
    """The connections of one process. Once it is dead, nothing is sent any more and nothing arrives."""

    def __init__(self, loop: Loop, server: ApiServer, faults: Faults, actor: str, trace: Trace) -> None:
        self._loop = loop
        self._server = server
        self._faults = faults
        self._actor = actor
        self._trace = trace
        self._stands_until = 0.0
        self.dead = False
        self.headers: dict[str, str] = {}

    def freeze(self, seconds: float) -> None:
        """Take no answers for a while: the process stands still."""
        self._stands_until = max(self._stands_until, self._loop.time() + seconds)

    def request(
        self,
        method: str,
        url: str,
        *,
        params: dict[str, str] | None = None,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
        **_: Any,
    ) -> "_Exchange":
        """As `aiohttp.ClientSession.request`."""
        request = Request(
            method=method, url=url, query=params or {}, headers=headers or {}, body=data or b"", actor=self._actor
        )
        return _Exchange(self, request)

    def get(self, url: str, **options: Any) -> "_Exchange":
        """As `aiohttp.ClientSession.get`."""
        return self.request("GET", url, **options)

    async def exchange(self, request: Request) -> Answer:
        """Send a request, and wait for its answer.

        Raises:
            OSError, aiohttp.ClientError, TimeoutError: it was lost, or its answer.
        """
        if self.dead:
            raise asyncio.CancelledError
        answer: asyncio.Future[Answer] = self._loop.create_future()
        fate = self._faults.fate()
        self._loop.call_later(fate.arrives_after, self._arrive, request, fate, answer)
        return await answer

    def _arrive(self, request: Request, fate: Fate, answer: asyncio.Future[Answer]) -> None:
        if self.dead and not fate.survives:
            return
        stands = max(0.0, self._stands_until - self._loop.time())
        after = stands + fate.answered_after
        if fate.dropped:
            self._tell(request, "is lost")
            self._loop.call_later(after, _fail, answer, aiohttp.ServerDisconnectedError())
        elif fate.refused:
            self._tell(request, f"is refused: {fate.refused}")
            refusal = Refusal(fate.refused, "InternalError", "a fault of the simulation")
            self._loop.call_later(after, _give, answer, refusal.answer())
        else:
            given = self._server.handle(request)
            self._tell(request, f"{given.status}{' (the answer is lost)' if fate.unanswered else ''}")
            if fate.unanswered:
                self._loop.call_later(after, _fail, answer, TimeoutError())
            else:
                self._loop.call_later(after, _give, answer, given)

    def _tell(self, request: Request, what: str) -> None:
        body = request.body.decode()
        selected = "&".join(f"{key}={value}" for key, value in request.query.items())
        self._trace(f"{request.method:6} {request.url} {selected} → {what}  {body[:300]}", f"{request.url} {body}")


def _give(answer: asyncio.Future[Answer], given: Answer) -> None:
    if not answer.done():
        answer.set_result(given)


def _fail(answer: asyncio.Future[Answer], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


class _Exchange:
    """As the response of aiohttp, within its `async with`."""

    def __init__(self, session: Session, request: Request) -> None:
        self._session = session
        self._request = request
        self._answer = Answer(0, b"")

    async def __aenter__(self) -> Self:
        self._answer = await self._session.exchange(self._request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def content(self) -> Self:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._answer.body

    def close(self) -> None:
        """The rest of the answer is not wanted."""

    async def read(self) -> bytes:
        return self._answer.body
