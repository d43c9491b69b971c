from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import aiohttp
import pytest

from rpc.http.calls import Http
from support.operator import OPEN, in_memory
from support.ports import free_port


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, str]]:
    """The addresses of a frontend: for SDKs, and of the HTTP API."""
    port = free_port()
    with in_memory(settings=replace(OPEN, http_address=f"127.0.0.1:{port}")) as server:
        yield server.address, f"http://127.0.0.1:{port}"


@pytest.fixture
async def http(address: tuple[str, str]) -> AsyncIterator[Http]:
    """Sends requests to the HTTP API."""
    async with aiohttp.ClientSession() as session:
        yield Http(session, address[1])
