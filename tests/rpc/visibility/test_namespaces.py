"""Namespaces: their list, over HTTP and gRPC, for callers with different permissions, and their retention."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiohttp
import grpc
import pytest
from temporalio.api.enums.v1 import ArchivalState
from temporalio.api.namespace.v1 import NamespaceConfig, UpdateNamespaceInfo
from temporalio.api.workflowservice.v1 import ListNamespacesRequest, ListNamespacesResponse
from temporalio.client import Client

from perdure.frontend.errors import RpcError
from perdure.frontend.http.connections import Budgets, HttpConnections
from perdure.frontend.http.nexus import NexusGateway
from perdure.frontend.http.server import serve_http
from perdure.frontend.server import dispatch_rpc
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.rpc import rpcs
from perdure.simulation.cluster.store import ObjectKey
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


def retention_of(response: Any) -> timedelta:
    found: timedelta = response.config.workflow_execution_retention_ttl.ToTimedelta()
    return found


def keep(**duration: int) -> NamespaceConfig:
    config = NamespaceConfig()
    config.workflow_execution_retention_ttl.FromTimedelta(timedelta(**duration))
    return config


def stored(here: Served) -> dict[str, Any]:
    """The spec of the WorkflowDefaults of the namespace `default`."""
    found: dict[str, Any] = here.world.server.get(ObjectKey("workflowdefaults", "default", "default"))["spec"]
    return found


def namespaces(here: Served) -> None:
    here.world.server.create("namespaces", {"metadata": {"name": "default"}}, namespace="None")


@served
async def test_the_retention_of_a_namespace_is_that_of_its_workflow_defaults(here: Served) -> None:
    namespaces(here)
    assert retention_of(await here.call("DescribeNamespace")) == timedelta(days=1)
    rules = {"ttlSecondsAfterFinished": 7_200, "ttlSecondsAfterFailure": 60}
    here.world.create("WorkflowDefaults", "default", {"retention": rules})
    assert retention_of(await here.call("DescribeNamespace")) == timedelta(hours=2)
    await asyncio.sleep(70)  # a watch may have a gap
    (listed,) = (await here.call("ListNamespaces")).namespaces
    assert retention_of(listed) == timedelta(hours=2)


@served
async def test_an_update_of_the_retention_writes_the_workflow_defaults(here: Served) -> None:
    namespaces(here)
    assert retention_of(await here.call("UpdateNamespace", config=keep(days=3))) == timedelta(days=3)
    assert stored(here) == {"retention": {"ttlSecondsAfterFinished": 259_200}}
    more = {"runTimeout": "6h", "retention": {"ttlSecondsAfterFailure": 60, "failedRunsHistoryLimit": 5}}
    here.world.edit("workflowdefaults", "default", lambda obj: obj.update(spec=more))
    await here.call("UpdateNamespace", config=keep(days=2))
    assert stored(here) == {**more, "retention": {**more["retention"], "ttlSecondsAfterFinished": 172_800}}
    assert retention_of(await here.call("DescribeNamespace")) == timedelta(days=2)


@served
async def test_an_update_may_repeat_what_a_namespace_shows_and_change_nothing_else(here: Served) -> None:
    namespaces(here)
    shown = await here.call("DescribeNamespace")
    info = UpdateNamespaceInfo(description=shown.namespace_info.description, state=shown.namespace_info.state)
    config = NamespaceConfig()
    config.CopyFrom(shown.config)
    config.MergeFrom(keep(hours=1))
    answer = await here.call(
        "UpdateNamespace", update_info=info, config=config, replication_config=shown.replication_config
    )
    assert retention_of(answer) == timedelta(hours=1)
    assert answer.namespace_info == shown.namespace_info
    for fields, named in (
        ({"update_info": UpdateNamespaceInfo(description="ours")}, "update_info.description"),
        ({"update_info": UpdateNamespaceInfo(data={"team": "a"})}, "update_info.data"),
        (
            {"config": NamespaceConfig(history_archival_state=ArchivalState.ARCHIVAL_STATE_ENABLED)},
            "config.history_archival_state",
        ),
        ({"promote_namespace": True}, "promote_namespace"),
        ({"delete_bad_binary": "abc"}, "delete_bad_binary"),
    ):
        with pytest.raises(RpcError, match=f"^{named} cannot be changed") as refused:
            await here.call("UpdateNamespace", **fields)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    for invalid in (timedelta(0), timedelta(minutes=59), -timedelta(days=1), timedelta(days=30_000)):
        with pytest.raises(RpcError, match="A valid retention period is not set on request"):
            await here.call("UpdateNamespace", config=keep(seconds=int(invalid.total_seconds())))
    for seconds in (2**62, -(2**62)):
        odd = NamespaceConfig()
        odd.workflow_execution_retention_ttl.seconds = seconds
        with pytest.raises(RpcError, match="A valid retention period is not set on request"):
            await here.call("UpdateNamespace", config=odd)
    assert stored(here) == {"retention": {"ttlSecondsAfterFinished": 3_600}}


@served
async def test_a_namespace_that_does_not_exist_has_no_retention(here: Served) -> None:
    for rpc in ("DescribeNamespace", "UpdateNamespace"):
        with pytest.raises(RpcError) as refused:
            await here.call(rpc, namespace="nowhere")
        assert refused.value.code is grpc.StatusCode.NOT_FOUND
