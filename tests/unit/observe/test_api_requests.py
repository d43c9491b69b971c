"""Metrics about requests to the API server."""

import pytest
from aiohttp import web

from perdure.kube.access import Access
from perdure.kube.client import Client, NoResponseError, NotFoundError
from perdure.observe import metrics
from support.http_server import WEB, Server


def measured(method: str, code: str) -> tuple[float, float]:
    """The number of requests, and their duration together."""
    count, total = (
        metrics.REGISTRY.get_sample_value(
            f"perdure_api_request_duration_seconds_{suffix}", {"method": method, "code": code}
        )
        or 0.0
        for suffix in ("count", "sum")
    )
    return count, total


async def test_requests_are_measured_by_method_and_code() -> None:
    before = [measured("GET", "200"), measured("GET", "404"), measured("GET", "none")]
    async with Server().serve() as server:
        access = Access(server=server.address)
        async with Client.open(access, user_agent="u", traces=[metrics.request_tracing()]) as client:
            server.answer = lambda _: web.json_response({"metadata": {"name": "web"}})
            await client.get(WEB)
            server.refuse(404, "NotFound")
            with pytest.raises(NotFoundError):
                await client.get(WEB)
    async with Client.open(access, user_agent="u", traces=[metrics.request_tracing()]) as client:
        with pytest.raises(NoResponseError):
            await client.get(WEB)
    after = [measured("GET", "200"), measured("GET", "404"), measured("GET", "none")]
    for (count, total), (earlier, spent) in zip(after, before, strict=True):
        assert count == earlier + 1
        assert 0 < total - spent < 30
