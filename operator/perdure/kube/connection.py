"""Requests to the API server, and its responses.

If a request fails, the connection raises a `RequestError` from `perdure.kube.errors`.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import orjson

from perdure.kube.access import Access
from perdure.kube.decoding import decode_answer
from perdure.kube.errors import error_of, no_response

Object = dict[str, Any]
"""A Kubernetes object, as JSON."""

_SILENT_SECONDS: Final = 70
"""Seconds of silence after which a watch is stale: bookmarks arrive every minute."""


class Connection:
    """Sends requests to one API server."""

    def __init__(self, access: Access, session: aiohttp.ClientSession) -> None:
        self.access = access
        self.session = session
        self._server = access.server.rstrip("/")  # it may contain a path, because some clusters share an address

    def authorization(self) -> dict[str, str]:
        """The header that authenticates a request. The token is read for each request, because the kubelet renews it."""
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
        """Send a request, and return the decoded response."""
        raw = await self.read(method, url, query=query, body=body, headers=headers)
        answer: Object = decode_answer(raw or b"", f"{method} {url}")
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
        """Send a request, and return the response, or None if it exceeds `most` bytes; 0: no limit."""
        data = None if body is None else orjson.dumps(body)
        with no_response(OSError, aiohttp.ClientError):
            sent = {
                "Content-Type": "application/json",
                "Accept": "application/json",
                **self.authorization(),
                **(headers or {}),
            }
            async with self.session.request(
                method, f"{self._server}{url}", params=query, data=data, headers=sent, allow_redirects=False
            ) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:  # an API server redirects nothing
                    raise error_of(response.status, await response.read())
                if not most:
                    return await response.read()
                body = bytearray()
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > most:
                        response.close()
                        return None
                return bytes(body)

    @asynccontextmanager
    async def streamed(self, url: str, query: Mapping[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Stream a response that may take any time, but is never silent for long."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_SILENT_SECONDS)
        with no_response(OSError, aiohttp.ClientError):
            async with self.session.get(
                f"{self._server}{url}",
                params=query,
                headers=self.authorization(),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:  # an API server redirects nothing
                    raise error_of(response.status, await response.read())
                yield response
