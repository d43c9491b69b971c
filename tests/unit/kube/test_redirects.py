"""The client does not follow redirects: another server would get the object, for example a Secret."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from perdure.kube.access import Access
from perdure.kube.client import CORE, ApiError, Client, path

SECRETS = path(CORE, "default", "secrets")


async def watched(client: Client) -> None:
    async for _ in client.watch(SECRETS):
        pass


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "request_with",
    [
        lambda client: client.get(f"{SECRETS}/key"),
        lambda client: client.create(SECRETS, {"data": {"password": "s3cret"}}),
        lambda client: client.delete(f"{SECRETS}/key", uid="u"),
        watched,
    ],
    ids=["get", "create", "delete", "watch"],
)
async def test_a_redirect_is_an_error_and_is_not_followed(
    servers: tuple[str, list[str]], request_with: Callable[[Client], Awaitable[Any]], status: int
) -> None:
    address, requests = servers
    async with Client.open(Access(server=f"{address}/{status}", token="t"), user_agent="test") as client:
        with pytest.raises(ApiError) as caught:
            await request_with(client)
    assert caught.value.status == status
    assert not requests


@pytest.fixture
async def servers() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a server that redirects to another one, and the requests to that one."""
    requests: list[str] = []

    async def other(request: web.Request) -> web.Response:
        requests.append(f"{request.method} {request.path} {request.headers} {await request.text()}")
        return web.json_response({})

    async def redirects(request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]), headers={"Location": target})

    there, here = web.Application(), web.Application()
    there.router.add_route("*", "/{path:.*}", other)
    here.router.add_route("*", "/{status}/{path:.*}", redirects)
    async with TestServer(there) as receiver, TestServer(here) as server:
        target = str(receiver.make_url("/"))
        yield str(server.make_url("/")).rstrip("/"), requests
