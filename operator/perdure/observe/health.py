"""The HTTP endpoints of the operator: /livez, /readyz, /metrics."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from perdure.observe import metrics

Check = Callable[[], str | None]
"""Returns the problem, or None if there is none."""


@asynccontextmanager
async def serve(
    port: int, *, live: Check, ready: Check, measure: Callable[[], None], host: str | None = None
) -> AsyncIterator[int]:
    """Serve probes and scrapes within the block.

    Args:
        port: The TCP port, 0 for any.
        live: Checks whether the process works; if not, the kubelet restarts it.
        ready: Checks whether the process is ready.
        measure: Sets the metrics that are measured only when they are read.
        host: The address to listen on; None for all addresses.

    Yields:
        The port that the server listens on.
    """
    app = web.Application()
    app.add_routes(
        [
            web.get("/livez", _probe(live)),
            web.get("/readyz", _probe(ready)),
            web.get("/metrics", _metrics(measure)),
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


def _probe(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        wrong = check()
        return _close_connection(web.Response(text=wrong or "ok", status=503 if wrong else 200))

    return answer


def _metrics(measure: Callable[[], None]) -> Callable[[web.Request], Awaitable[web.Response]]:
    headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

    async def answer(_: web.Request) -> web.Response:
        measure()
        return _close_connection(web.Response(body=metrics.render(), headers=headers))

    return answer


def _close_connection(response: web.Response) -> web.Response:
    """Close the connection after a response: on shutdown, kopf would wait five seconds for an open connection."""
    response.force_close()
    return response
