"""A recorder of Kubernetes Events with an API server on loopback that takes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.events import Recorder


@asynccontextmanager
async def recording(backlog: int = 10, *, routine: bool = False) -> AsyncIterator[tuple[Recorder, asyncio.Queue[str]]]:
    """A recorder, and the notes that have reached the API server."""
    posted: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        posted.put_nowait(orjson.loads(await request.read())["note"])
        return web.json_response({}, status=201)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = "http://{}:{}".format(*runner.addresses[0][:2])
    async with Client.open(Access(server=address), user_agent="test") as client:
        yield Recorder(client, instance="test", backlog=backlog, routine=routine), posted
    await runner.cleanup()
