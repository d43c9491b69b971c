"""The HTTP endpoints of the operator: /livez, /readyz, /metrics."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from perdure.observe import metrics

Check = Callable[[], str | None]
"""None when all is well; otherwise what is wrong."""


@asynccontextmanager
async def serve(port: int, *, live: Check, ready: Check) -> AsyncIterator[int]:
    """Answer probes and scrapes for the length of the block.

    Args:
        port: TCP port, 0 for any.
        live: whether the process works; if not, the kubelet restarts it.
        ready: whether it does its job now.

    Yields:
        The port that is listened on.
    """
    app = web.Application()
    app.add_routes(
        [
            web.get("/livez", lambda _: _answer(live)),
            web.get("/readyz", lambda _: _answer(ready)),
            web.get("/metrics", _metrics),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, port=port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _answer(check: Check) -> web.Response:
    wrong = check()
    return web.Response(text=wrong or "ok", status=503 if wrong else 200)


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=metrics.render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
