"""The API server in memory against a real one. Set PERDURE_DIFFERENTIAL_REQUESTS for more, PERDURE_SEED to repeat."""

import os
from random import Random
from time import monotonic
from typing import Any

import aiohttp
import orjson
import pytest

from perdure.kube.access import find_access
from perdure.simulation.cluster.apiserver import ApiServer, Request
from simulated.apiserver.differential import KINDS, MERGE_PATCH, RandomRequest, differences
from simulated.loop import ShuffledLoop
from support.cluster.namespace import Cluster

REQUESTS = int(os.environ.get("PERDURE_DIFFERENTIAL_REQUESTS", "2000"))
SEED = int(os.environ.get("PERDURE_SEED", "1"))
EACH = 250
"""Requests of a seed; then everything is deleted, and the next seed begins."""

pytestmark = [pytest.mark.cluster, pytest.mark.own, pytest.mark.timeout(600 + REQUESTS // 20)]


class Real:
    """A real API server."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server

    async def __call__(self, asked: RandomRequest) -> tuple[int, Any]:
        data = None if asked.body is None else orjson.dumps(asked.body)
        headers = {"Content-Type": "application/json", **asked.headers}
        url = f"{self._server}{asked.path}"
        async with self._session.request(asked.method, url, params=asked.query, data=data, headers=headers) as response:
            return response.status, orjson.loads(await response.read())

    async def clear(self, namespace: str) -> None:
        """Delete all objects of a seed."""
        for kind in KINDS:
            url = f"{kind.root}/namespaces/{namespace}/{kind.plural}"
            _, found = await self(RandomRequest("GET", url, {}, {}, None))
            for name in [obj["metadata"]["name"] for obj in found["items"]]:
                if name not in "abcd":
                    continue
                none = {"metadata": {"finalizers": None}}
                await self(RandomRequest("PATCH", f"{url}/{name}", {}, {"Content-Type": MERGE_PATCH}, none))
                await self(RandomRequest("DELETE", f"{url}/{name}", {}, {}, {"gracePeriodSeconds": 0}))


def in_memory(server: ApiServer) -> Any:
    async def send(asked: RandomRequest) -> tuple[int, Any]:
        data = b"" if asked.body is None else orjson.dumps(asked.body)
        request = Request(
            method=asked.method, url=asked.path, query=asked.query, headers=asked.headers, body=data, actor="test"
        )
        answer = server.handle(request)
        return answer.status, orjson.loads(answer.body)

    return send


@pytest.mark.slow
async def test_responses_match_those_of_a_real_api_server(namespace: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    access, found, began = find_access(), [], monotonic()
    connector = aiohttp.TCPConnector(ssl=access.ssl_context() or False)
    async with aiohttp.ClientSession(connector=connector) as session:
        real = Real(session, access.server)
        for seed in range(SEED, SEED + max(1, REQUESTS // EACH)):
            loop = ShuffledLoop(Random(0))
            found += await differences(seed, EACH, namespace.namespace, in_memory(ApiServer(loop, Random(0))), real)
            loop.close()
            await real.clear(namespace.namespace)
    print(f"{REQUESTS} requests in {monotonic() - began:.0f} s, {len(found)} differences")
    assert not found, "\n".join(found[:20])
