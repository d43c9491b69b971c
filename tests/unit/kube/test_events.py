"""Notes of Kubernetes Events, as the API server takes them: with an API server on loopback that counts as it does."""

import asyncio

import orjson
import pytest
from aiohttp import web

from perdure.kube.access import Access
from perdure.kube.client import Client
from perdure.kube.events import Recorder

ABOUT = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "WorkflowRun",
    "metadata": {"name": "order", "namespace": "shop", "uid": "uid"},
}


@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("short  and\nplain", "short and plain"),
        ("x" * 2_000, "x" * 1_024),
        ("é" * 2_000, "é" * 512),
        ("x" + "漢" * 2_000, "x" + "漢" * 341),
        ("🚲" * 300, "🚲" * 256),
        ("half \ud83d of a pair", "half ? of a pair"),
    ],
)
async def test_a_note_is_cut_to_what_the_api_server_takes(note: str, kept: str) -> None:
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
        recorder = Recorder(client, instance="test")
        working = asyncio.create_task(recorder.run())
        recorder.record(ABOUT, kind="Normal", reason="Told", note=note, action="Tell")
        assert await asyncio.wait_for(posted.get(), 30) == kept
        working.cancel()
    await runner.cleanup()
