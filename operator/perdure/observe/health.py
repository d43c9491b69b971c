"""The HTTP endpoints of the operator: /livez, /readyz, /metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from perdure.observe import metrics

Check = Callable[[], str | None]
"""None if healthy; otherwise the problem."""


@asynccontextmanager
async def serve(port: int, *, live: Check, ready: Check, host: str | None = None) -> AsyncIterator[int]:
    """Answer probes and scrapes for the length of the block.

    Args:
        port: TCP port, 0 for any.
        live: whether the process works; if not, the kubelet restarts it.
        ready: whether it does its job now.
        host: the address to listen on, None for all there are.

    Yields:
        The port that is listened on.
    """
    app = web.Application()
    app.add_routes(
        [
            web.get("/livez", _answering(live)),
            web.get("/readyz", _answering(ready)),
            web.get("/metrics", _metrics),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _answering(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = check()
        return _closing(web.Response(text=wrong or "ok", status=503 if wrong else 200))

    return answer


async def _metrics(_: web.Request) -> web.Response:
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
    return _closing(web.Response(body=metrics.render(), headers=headers))


def _closing(response: web.Response) -> web.Response:
    """The last one of its connection: at the end, kopf would wait five seconds for a connection that is kept open."""
    response.force_close()
    return response
