"""Measures the requests of a client of the API server."""

from time import monotonic
from types import SimpleNamespace

import aiohttp

from perdure.observe import metrics

_NO_ANSWER = "none"
"""The code of a request without a response."""


def measuring() -> aiohttp.TraceConfig:
    """Create a configuration for a session that measures each request until its response begins."""
    config = aiohttp.TraceConfig()
    config.on_request_start.append(_start)
    config.on_request_end.append(_end)
    config.on_request_exception.append(_fail)
    return config


async def _start(_: aiohttp.ClientSession, request: SimpleNamespace, __: aiohttp.TraceRequestStartParams) -> None:
    request.started = monotonic()


async def _end(_: aiohttp.ClientSession, request: SimpleNamespace, end: aiohttp.TraceRequestEndParams) -> None:
    _observe(request, end.method, str(end.response.status))


async def _fail(_: aiohttp.ClientSession, request: SimpleNamespace, end: aiohttp.TraceRequestExceptionParams) -> None:
    _observe(request, end.method, _NO_ANSWER)


def _observe(request: SimpleNamespace, method: str, code: str) -> None:
    metrics.API_REQUESTS.labels(method=method, code=code).observe(monotonic() - request.started)
