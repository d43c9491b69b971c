"""The list of namespaces, over HTTP and gRPC, for callers with different permissions."""

import base64
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from temporalio.api.workflowservice.v1 import ListNamespacesRequest, ListNamespacesResponse
from temporalio.client import Client

from perdure.frontend.http.connections import Budgets, HttpConnections
from perdure.frontend.http.nexus import NexusGateway
from perdure.frontend.http.server import serve_http
from perdure.frontend.server import dispatch_rpc
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.rpc import rpcs
from rpc.http.calls import Http
from rpc.served import Served, served
from support.callers import AUDIENCE, ApiServer, token
from support.fleet import Member, ServedFleet, in_memory_fleet

NAMES = ("billing", "orders", "shop", "support")
GRANTED = {
    "ada": {"orders", "support"},
    "bob": {"billing"},
    "eve": set(),
    "root": {""},
}
"""The namespaces in which users may read runs; empty: in all."""


class Reviews(ApiServer):
    """Knows users by the subject of their token, and their permissions."""

    async def create(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        if url.endswith("tokenreviews"):
            claims = body["spec"]["token"].split(".")[1]
            self.user = json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"]
            return await super().create(url, body)
        wanted = body["spec"]["resourceAttributes"]
        reads = (wanted["verb"], wanted["resource"], wanted["subresource"]) == ("get", "workflowruns", "")
        return {"status": {"allowed": reads and wanted["namespace"] in GRANTED[body["spec"]["user"]]}}


@pytest.fixture(scope="module")
def fleet() -> Iterator[ServedFleet]:
    with in_memory_fleet(2, *NAMES, namespace="default") as found:
        yield found


@asynccontextmanager
async def guarded(member: Member) -> AsyncIterator[Http]:
    """Serve the handlers of an operator to callers with tokens."""
    listening = socket.create_server(("127.0.0.1", 0))
    door = Door(Guard(Reviews(), AUDIENCE), refusal_seconds=0.0)  # type: ignore[arg-type]

    frontend, manager = member.frontend, member.operator.manager
    offered = rpcs(frontend.handlers(), manager.served, manager.first_lists.wait, door)
    nexus = NexusGateway(dispatch_rpc(frontend, door), frontend.endpoints)
    async with (
        serve_http(offered, [nexus], listening, HttpConnections(Budgets.of(10), door), secured=None),
        aiohttp.ClientSession() as session,
    ):
        yield Http(session, f"http://127.0.0.1:{listening.getsockname()[1]}")


async def listed(http: Http, user: str, path: str = "/api/v1/namespaces") -> tuple[list[str], str]:
    """The names of a page, and the token of the next one."""
    headers = {"Authorization": f"Bearer {token(sub=user)}"}
    status, found = await http.call("GET", path, headers=headers)
    assert status == 200, found
    names = [each["namespaceInfo"]["name"] for each in found.get("namespaces", ())]
    return names, found.get("nextPageToken", "")


@pytest.mark.parametrize("path", ["/api/v1/namespaces", "/cluster/namespaces"])
def test_every_operator_lists_the_namespaces_that_the_caller_may_describe(fleet: ServedFleet, path: str) -> None:
    async def check() -> None:
        for member in fleet.fleet.members.values():
            async with guarded(member) as http:
                for user, want in (
                    ("ada", ["orders", "support"]),
                    ("bob", ["billing"]),
                    ("eve", []),
                    ("root", sorted(("default", *NAMES))),
                ):
                    assert await listed(http, user, path) == (want, "")

    fleet.do(check()).result()


def test_pages_reveal_nothing_about_other_namespaces(fleet: ServedFleet) -> None:
    async def check() -> None:
        [member, _] = fleet.fleet.members.values()
        async with guarded(member) as http:
            names, following = await listed(http, "ada", "/api/v1/namespaces?pageSize=1")
            assert (names, base64.b64decode(following)) == (["orders"], b"1")
            page = f"/api/v1/namespaces?pageSize=1&nextPageToken={following}"
            assert await listed(http, "ada", page) == (["support"], "")
            assert await listed(http, "eve", page) == ([], "")

    fleet.do(check()).result()


def test_a_caller_without_a_valid_token_gets_no_list(fleet: ServedFleet) -> None:
    async def check() -> None:
        [member, _] = fleet.fleet.members.values()
        async with guarded(member) as http:
            assert (await http.call("GET", "/api/v1/namespaces"))[0] == 401

    fleet.do(check()).result()


async def test_all_served_namespaces_are_listed_in_pages_without_authentication(fleet: ServedFleet) -> None:
    client = await Client.connect(fleet.address)
    found, following = [], b""
    while True:
        request = ListNamespacesRequest(page_size=2, next_page_token=following)
        page = await client.workflow_service.list_namespaces(request)
        assert len(page.namespaces) <= 2
        found += [each.namespace_info.name for each in page.namespaces]
        following = page.next_page_token
        if not following:
            break
    assert found == sorted(("default", *NAMES))


@served
async def test_an_operator_of_all_namespaces_lists_those_that_the_caller_may_describe(here: Served) -> None:
    for name in NAMES:
        here.world.server.create("namespaces", {"metadata": {"name": name}}, namespace="None")
    response: ListNamespacesResponse = await here.call("ListNamespaces")
    assert [each.namespace_info.name for each in response.namespaces] == sorted(NAMES)
