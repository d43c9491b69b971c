"""A replacement for `aiohttp.ClientSession`, between the operator's own client and the in-memory API server."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response


class Session:
    """The connections of one process. Requests take no time. Once the process is dead, no request or response arrives."""

    def __init__(self, server: ApiServer, actor: str) -> None:
        """Open the connections of a client named `actor`."""
        self._server = server
        self._actor = actor
        self.dead = False
        self.headers: dict[str, str] = {}

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
        """Send a request, like `aiohttp.ClientSession.request`."""
        request = Request(
            method=method, url=url, query=params or {}, headers=headers or {}, body=data or b"", actor=self._actor
        )
        return _Exchange(self, request)

    def get(self, url: str, **options: Any) -> "_Exchange":
        """Send a GET request, like `aiohttp.ClientSession.get`."""
        return self.request("GET", url, **options)

    async def exchange(self, request: Request) -> Response:
        """Send a request, and wait for its response."""
        if self.dead:
            raise asyncio.CancelledError
        return self.arrive(request)

    def arrive(self, request: Request) -> Response:
        """Pass a request that has arrived to the API server."""
        return self._server.handle(request)


class _Exchange:
    """The context manager and response of a request, like those of aiohttp."""

    def __init__(self, session: Session, request: Request) -> None:
        self._session = session
        self._request = request
        self._answer = Response(0, b"")

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
        """Discard the rest of the response."""

    async def read(self) -> bytes:
        return self._answer.body
