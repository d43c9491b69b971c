"""Requests to Temporal's HTTP API, as curl sends them."""

import io
import json
from typing import Any

import aiohttp


class Http:
    """Sends requests as JSON."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        data = None if body is None else io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        async with self.session.request(method, f"{self.base}{path}", data=data, **more) as response:
            return response.status, json.loads(await response.read())
