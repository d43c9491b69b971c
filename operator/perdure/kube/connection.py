"""Requests to the API server, and its answers.

A refusal of the API server is an `ApiError`, from `perdure.kube.errors`.
Whatever else goes wrong on the way is an ``OSError``, ``aiohttp.ClientError`` or ``TimeoutError``.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson

from perdure.kube.access import Access
from perdure.kube.decoding import decode_answer
from perdure.kube.errors import error_of

Object = dict[str, Any]
"""A Kubernetes object, as JSON."""

TRANSIENT: Final = (OSError, aiohttp.ClientError, TimeoutError)
"""The errors of a request that did not reach the API server."""

_SILENT_SECONDS: Final = 70
"""Bookmarks come every minute; a watch that is silent for longer is dead."""


class Connection:
    """Sends requests to one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self.access = access
        self.session = session
        self._server = access.server.rstrip("/")  # it may have a path: some clusters share an address

    def authorization(self) -> dict[str, str]:
        """The header that lets a request in; read for each request, as the kubelet renews tokens."""
        bearer = self.access.bearer()
        return {"Authorization": f"Bearer {bearer}"} if bearer else {}

    async def request(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        """The answer to a request, decoded."""
        raw = await self.read(method, url, query=query, body=body, headers=headers)
        answer: Object = decode_answer(raw or b"", f"{method} {url}", aiohttp.ClientPayloadError)
        return answer

    async def read(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        most: int = 0,
    ) -> bytes | None:
        """The answer to a request, or None if it has more than `most` bytes; 0: it may have any number."""
        data = None if body is None else orjson.dumps(body)
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **self.authorization(),
            **(headers or {}),
        }
        async with self.session.request(
            method, f"{self._server}{url}", params=query, data=data, headers=sent
        ) as response:
            if response.status >= 400:  # noqa: PLR2004
                raise error_of(response.status, await response.read())
            if not most:
                return await response.read()
            found = bytearray()
            async for part in response.content.iter_any():
                found += part
                if len(found) > most:
                    response.close()
                    return None
            return bytes(found)

    @asynccontextmanager
    async def streamed(self, url: str, query: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that takes any time, but is never silent for long."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENT_SECONDS)
        async with self.session.get(
            f"{self._server}{url}", params=query, headers=self.authorization(), timeout=timeout
        ) as response:
            if response.status >= 400:  # noqa: PLR2004
                raise error_of(response.status, await response.read())
            yield response
