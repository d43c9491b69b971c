"""Which callers of an operator may name users, and what a frontend of its own may call."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetSystemInfoRequest,
    GetSystemInfoResponse,
    PollActivityTaskQueueRequest,
    PollActivityTaskQueueResponse,
)

from perdure.frontend.errors import RpcError, denied
from perdure.frontend.matching.queues import queue_shard
from perdure.frontend.peers import server as peer_server
from perdure.frontend.peers.calls import OFFER, RECHECK, RELOAD, RETURN, TAKE, Failure, PeerLostError
from perdure.frontend.peers.client import PeerClient, PeerIdentity, failure_of, open_connection, pack
from perdure.frontend.peers.http_calls import DISPATCH, GET_ARCHIVED, LIST_ARCHIVED, NexusCall, answers
from perdure.frontend.peers.server import PeerSettings, serve_peers
from perdure.frontend.settings import Settings
from perdure.frontend.transport.door import Door
from perdure.frontend.transport.guard import Guard
from perdure.frontend.transport.rpc import CallContext, request_of, response_of, service_of
from perdure.frontend.visibility.archived import GetArchivedRunRequest, ListArchivedRunsRequest
from support.callers import ApiServer, token
from support.fleet import ServedFleet, in_memory_fleet
from support.ports import free_port

AUDIENCE = Settings().peer_audience
OPERATOR = "system:serviceaccount:perdure-system:perdure"
FRONTEND = "system:serviceaccount:perdure-system:perdure-frontend"
OTHER = "system:serviceaccount:shop:web"


class Served:
    """A member that authenticates callers, and one of these."""

    def __init__(self, identity: PeerIdentity, address: str) -> None:
        connect = partial(open_connection, asked=self.asked)
        self.client = PeerClient(identity, lambda: {"m": address}, connect=connect)
        self.principals: list[str] = []
        self.refused: Failure | None = None
        self.questions: list[str] = []

    async def asked(self, call_id: str) -> Failure | None:
        self.questions.append(call_id)
        return self.refused

    async def call(self, rpc: str, request: Any, **options: Any) -> Any:
        return await self.client.call(
            "m",
            f"/{service_of(rpc)}/{rpc}",
            request,
            encode=request_of(rpc).SerializeToString,
            decode=response_of(rpc).FromString,
            seconds=10,
            **options,
        )


@asynccontextmanager
async def served(fleet: ServedFleet, path: Path, user: str) -> AsyncIterator[Served]:
    """A member whose release has frontends, called by a user whose token the API server accepts."""
    api, address = ApiServer(), f"127.0.0.1:{free_port()}"
    api.audiences, api.user = [AUDIENCE], user
    own, shown = path / "own", path / "shown"
    own.write_text(token(aud=[AUDIENCE], sub=OPERATOR))
    shown.write_text(token(aud=[AUDIENCE], sub=user))
    found: Served

    async def get_system_info(_: GetSystemInfoRequest, call: CallContext) -> GetSystemInfoResponse:
        found.principals.append(call.principal)
        return GetSystemInfoResponse(server_version="1")

    async def poll_activity_task_queue(
        _: PollActivityTaskQueueRequest, call: CallContext
    ) -> PollActivityTaskQueueResponse:
        await call.recheck()
        return PollActivityTaskQueueResponse(activity_id="a")

    handlers = {"GetSystemInfo": get_system_info, "PollActivityTaskQueue": poll_activity_task_queue}
    (member,) = fleet.fleet.members.values()
    door = Door(Guard(api, AUDIENCE), refusal_seconds=0)  # type: ignore[arg-type] # stands in for the client
    settings = PeerSettings(member="m", address=address, audience=AUDIENCE, token=str(own), frontend_user=FRONTEND)
    identity = PeerIdentity(name="caller", token=shown, is_frontend=True)
    async with serve_peers(member.frontend, handlers, settings, None, door, answers(member.frontend)):
        found = Served(identity, address)
        try:
            yield found
        finally:
            await found.client.close()


def test_a_frontend_names_the_users_of_its_calls(tmp_path: Path) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with served(fleet, tmp_path, FRONTEND) as member:
            await member.call("GetSystemInfo", GetSystemInfoRequest(), principal="alice")
            assert member.principals == ["alice"]

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


def test_nobody_else_names_users_even_with_the_header_of_a_frontend(tmp_path: Path) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with served(fleet, tmp_path, OTHER) as member:
            with pytest.raises(PeerLostError, match=f"{OTHER} is not an operator of this release"):
                await member.call("GetSystemInfo", GetSystemInfoRequest(), principal="alice")
            assert member.principals == []

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


@pytest.mark.parametrize("path", [OFFER, TAKE, RETURN, RELOAD, RECHECK])
def test_a_frontend_cannot_act_as_an_operator(tmp_path: Path, path: str) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with served(fleet, tmp_path, FRONTEND) as member:
            with pytest.raises(PeerLostError, match=f"UNIMPLEMENTED: this operator has no {path}"):
                await member.client.call("m", path, b"", encode=bytes, decode=bytes, seconds=10)

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            f"/{service_of('PollActivityTaskQueue')}/PollActivityTaskQueue",
            PollActivityTaskQueueRequest(namespace="kube-system").SerializeToString(),
        ),
        (DISPATCH, pack(NexusCall(namespace="kube-system", task_queue="q", request=b""))),
        (GET_ARCHIVED, pack(GetArchivedRunRequest("kube-system", "a", ""))),
        (LIST_ARCHIVED, pack(ListArchivedRunsRequest("kube-system", "", "", 1, ""))),
    ],
    ids=["an RPC", "Nexus", "a run of the archive", "a list of the archive"],
)
def test_a_frontend_reaches_no_namespace_that_the_operator_does_not_serve(
    tmp_path: Path, path: str, message: bytes
) -> None:
    async def check(fleet: ServedFleet) -> None:
        async with served(fleet, tmp_path, FRONTEND) as member:
            with pytest.raises(RpcError, match="Namespace kube-system is not found"):
                await member.client.call("m", path, message, encode=bytes, decode=bytes, seconds=10)

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)


def test_an_operator_asks_a_frontend_whether_a_worker_still_may_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_server, "CHECKED_SECONDS", 0.0)

    async def check(fleet: ServedFleet) -> None:
        (member,) = fleet.fleet.members.values()
        queue = next(f"q{n}" for n in range(1_000) if queue_shard("default", f"q{n}") in member.shards)
        request = PollActivityTaskQueueRequest(namespace="default", task_queue=TaskQueue(name=queue))
        async with served(fleet, tmp_path, FRONTEND) as called:
            assert (await called.call("PollActivityTaskQueue", request, call_id="1")).activity_id == "a"
            called.refused = failure_of(denied("revoked"))
            with pytest.raises(RpcError, match="revoked"):
                await called.call("PollActivityTaskQueue", request, call_id="2")
            assert called.questions == ["1", "2"]

    with in_memory_fleet(1) as fleet:
        fleet.do(check(fleet)).result(60)
