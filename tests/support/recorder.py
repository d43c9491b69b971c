"""A recorder of Kubernetes Events with an API server on loopback that takes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from perdure.kube.events import Recorder
from support.http_server import api_server


@asynccontextmanager
async def recording(backlog: int = 10, *, routine: bool = False) -> AsyncIterator[tuple[Recorder, asyncio.Queue[str]]]:
    """A recorder, and the notes that have reached the API server."""
    posted: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        posted.put_nowait(orjson.loads(await request.read())["note"])
        return web.json_response({}, status=201)

    async with api_server(answer) as client:
        yield Recorder(client, instance="test", backlog=backlog, routine=routine), posted
