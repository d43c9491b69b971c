"""Frontends of their own authenticate and authorize callers, and operators believe them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web
from temporalio.api.workflowservice.v1 import ListNamespacesRequest
from temporalio.client import Client
from temporalio.service import RetryConfig, RPCError, RPCStatusCode

from perdure.api.labels import CREATED_BY_ANNOTATION
from perdure.kube.client import Object
from rpc.http.calls import Http
from support.callers import ApiServer, token
from support.fleet import FrontendApart, ServedFleet, in_memory_fleet
from support.http_server import serving

USER = "system:serviceaccount:orders:shop"


@dataclass
class Guarded:
    """A frontend that authenticates callers, and the API server that reviews their tokens."""

    fleet: ServedFleet
    api: ApiServer
    frontend: FrontendApart

    async def connect(self) -> Client:
        return await Client.connect(
            f"127.0.0.1:{self.frontend.port}",
            rpc_metadata={"authorization": f"Bearer {token()}"},
            retry_config=RetryConfig(max_retries=0),
        )

    def runs(self) -> list[Object]:
        return self.fleet.fleet.kubernetes.of("workflowruns")


@pytest.fixture(scope="module")
def fleet() -> Iterator[ServedFleet]:
    with in_memory_fleet(1, "other", frontends=1, lease_seconds=10) as served:
        yield served


@pytest.fixture
async def guarded(fleet: ServedFleet, tmp_path: Path) -> AsyncIterator[Guarded]:
    api, shown = ApiServer(), tmp_path / "token"
    shown.write_text(token())

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        found = await api.create(request.path, orjson.loads(await request.read()))
        return web.Response(body=orjson.dumps(found), status=201, content_type="application/json")

    async with serving(answer) as address:
        started = fleet.fleet.start_frontend(address, peer_token=str(shown))
        frontend = await asyncio.wrap_future(fleet.do(started))
        yield Guarded(fleet, api, frontend)
        await asyncio.wrap_future(fleet.do(frontend.stop()))


async def test_the_user_of_a_call_reaches_the_operator(guarded: Guarded) -> None:
    guarded.api.only = frozenset({("create", "workflowruns/temporal")})
    client = await guarded.connect()
    await client.start_workflow("Any", id="named", task_queue="nobody")
    (run,) = [each for each in guarded.runs() if each["spec"].get("workflowId") == "named"]
    assert run["metadata"]["annotations"][CREATED_BY_ANNOTATION] == USER


async def test_a_caller_without_the_permission_does_not_reach_an_operator(guarded: Guarded) -> None:
    client, before = await guarded.connect(), len(guarded.runs())
    with pytest.raises(RPCError, match=f"{USER} cannot create workflowruns in namespace 'default'") as error:
        await client.start_workflow("Any", id="denied", task_queue="nobody")
    assert error.value.status is RPCStatusCode.PERMISSION_DENIED
    assert len(guarded.runs()) == before


async def test_a_caller_without_a_valid_token_is_refused(guarded: Guarded) -> None:
    guarded.api.valid = False
    with pytest.raises(RuntimeError, match="the token is not, or no longer, that of a ServiceAccount"):
        await guarded.connect()
    async with aiohttp.ClientSession() as session:
        http = Http(session, f"http://127.0.0.1:{guarded.frontend.http_port}")
        status, refused = await http.call("GET", "/api/v1/namespaces/default/workflows/any")
    assert (status, refused["code"]) == (401, 16)


async def test_a_caller_lists_only_the_namespaces_that_it_may_describe(guarded: Guarded) -> None:
    client = await guarded.connect()
    listed = await client.workflow_service.list_namespaces(ListNamespacesRequest())
    assert [each.namespace_info.name for each in listed.namespaces] == []
