"""A small HTTP server on loopback in place of the API server, which answers as a test defines or records Kubernetes Events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from perdure.kube.access import Access
from perdure.kube.client import CORE, Client, path
from perdure.kube.events import Recorder

PODS = path(CORE, "default", "pods")
WEB = path(CORE, "default", "pods", "web")


@asynccontextmanager
async def serving(answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Answer requests on loopback until the end of the block; the address of the server."""
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def api_server(answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[Client]:
    """A client of an API server that answers all requests with a function."""
    async with serving(answer) as address, Client.open(Access(server=address), user_agent="perdure-test") as client:
        yield client


@dataclass
class Server:
    """Answers as a test defines, and records the requests."""

    answer: Callable[[web.BaseRequest], web.StreamResponse] = lambda _: web.json_response({})
    asked: list[web.BaseRequest] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    address: str = ""
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Server"]:
        self.answers.set()
        async with serving(self._handle) as self.address:
            yield self

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        self.asked.append(request)
        self.bodies.append(orjson.loads(raw) if raw else None)
        await self.answers.wait()
        return self.answer(request)

    def refuse(self, code: int, reason: str, message: str = "no") -> None:
        body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
        self.answer = lambda _: web.json_response(body, status=code)


@asynccontextmanager
async def recording(backlog: int = 10, *, routine: bool = False) -> AsyncIterator[tuple[Recorder, asyncio.Queue[str]]]:
    """A recorder, and the notes that have reached the API server."""
    posted: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        posted.put_nowait(orjson.loads(await request.read())["note"])
        return web.json_response({}, status=201)

    async with api_server(answer) as client:
        yield Recorder(client, instance="test", backlog=backlog, routine=routine), posted
