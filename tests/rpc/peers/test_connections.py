"""Connections between operators, in both forms: calls, errors, deadlines, cancellation, tokens, and what strangers may do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from temporalio.api.errordetails.v1 import NotFoundFailure

from perdure.frontend.errors import STATUS_DETAILS, RpcError, not_found
from perdure.frontend.peers.calls import (
    AUTHORIZATION,
    HANDLED,
    NOT_OWNER,
    Caller,
    Failure,
    Headers,
    PeerCall,
    PeerLostError,
)
from perdure.frontend.peers.client import NotOwnerError, PeerClient, PeerIdentity
from perdure.frontend.peers.frames import PREAMBLE
from perdure.frontend.peers.listener import listening_to_members
from perdure.frontend.transport.certificates import CA_CERT, TLS_CERT, TLS_KEY, renewed
from perdure.frontend.transport.door import MAX_ANSWER, MAX_READ, Peer
from perdure.frontend.transport.tls import Material, ServerCertificate
from perdure.kube.clock import now
from support.ports import free_port

MIB = 2**20


async def echo(call: PeerCall) -> bytes | Failure:
    return call.body


@dataclass
class Served:
    """A member that answers calls, and a client of it."""

    client: PeerClient
    address: str
    token: Path
    shown: list[str] = field(default_factory=list)
    """The tokens that were checked."""
    refused: Failure | None = None

    async def call(self, body: bytes = b"", seconds: float | None = 10, path: str = "/s/m") -> bytes:
        response: bytes = await self.client.call(
            "m", path, body, encode=bytes, decode=bytes, seconds=seconds, metadata=(("client-name", "go"),)
        )
        return response

    async def admit(self, headers: Headers, peer: Peer) -> Caller | Failure:
        assert peer.address == "127.0.0.1"
        assert peer.port
        self.shown.append(str(dict(headers)[AUTHORIZATION]))
        return self.refused or Caller.MEMBER


@asynccontextmanager
async def serving(
    path: Path, answer: Callable[[PeerCall], Awaitable[bytes | Failure]], *, over_grpc: bool = False, tls: bool = True
) -> AsyncIterator[Served]:
    made = renewed({}, ["perdure-temporal.perdure-system.svc"], now())
    material = Material(made[TLS_KEY], made[TLS_CERT], None)
    served = ServerCertificate(material, made[CA_CERT].decode()) if tls else None
    token, address = path / "token", f"127.0.0.1:{free_port()}"
    token.write_text("first")
    client = PeerClient(
        PeerIdentity(name="other", token=token, served=served),
        lambda: {"m": address},
        over_grpc=lambda: {"m"} if over_grpc else (),
    )
    found = Served(client, address, token)
    try:
        async with listening_to_members(address, found.admit, answer, served):
            yield found
    finally:
        await client.close()


def run(check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a check in the event loop that operators use."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(check(), 60))


forms = pytest.mark.parametrize("over_grpc", [False, True], ids=["frames", "grpc"])


@forms
@pytest.mark.parametrize("tls", [True, False], ids=["encrypted", "in the clear"])
def test_calls_are_answered_in_any_order(tmp_path: Path, *, over_grpc: bool, tls: bool) -> None:
    gate = asyncio.Event()

    async def answer(call: PeerCall) -> bytes | Failure:
        assert call.header("client-name") == "go"
        assert call.header("perdure-member") == "other"
        assert not call.header(AUTHORIZATION), "no handler gets the token of a member"
        assert call.seconds_left is not None
        assert 5 < call.seconds_left <= 10
        if call.body == b"last":
            await gate.wait()
        gate.set()
        return call.body * 2

    async def check() -> None:
        async with serving(tmp_path, answer, over_grpc=over_grpc, tls=tls) as served:
            last = asyncio.create_task(served.call(b"last"))
            await asyncio.sleep(0)
            assert await served.call(b"first") == b"firstfirst"
            assert await last == b"lastlast"
            assert set(served.shown) == {"Bearer first"}

    run(check)


@forms
def test_errors_keep_their_code_message_and_details(tmp_path: Path, *, over_grpc: bool) -> None:
    error = not_found("no such workflow")
    details = dict(error.trailers())[STATUS_DETAILS]
    failures = {
        b"handled": Failure(5, "no such workflow", HANDLED, details),
        b"elsewhere": Failure(14, "not mine", NOT_OWNER),
        b"unknown": Failure(12, "no such call"),
    }

    async def answer(call: PeerCall) -> bytes | Failure:
        return failures[call.body]

    async def check() -> None:
        async with serving(tmp_path, answer, over_grpc=over_grpc) as served:
            with pytest.raises(RpcError, match="no such workflow") as handled:
                await served.call(b"handled")
            assert handled.value.code is grpc.StatusCode.NOT_FOUND
            (detail,) = handled.value.status().details
            assert detail.Is(NotFoundFailure.DESCRIPTOR)
            with pytest.raises(NotOwnerError):
                await served.call(b"elsewhere")
            with pytest.raises(PeerLostError, match="no such call"):
                await served.call(b"unknown")

    run(check)


@forms
@pytest.mark.parametrize("how", ["deadline", "cancelled"])
def test_a_caller_that_gives_up_ends_the_call(tmp_path: Path, how: str, *, over_grpc: bool) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def answer(call: PeerCall) -> bytes | Failure:
        if call.body:
            return call.body
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async def check() -> None:
        async with serving(tmp_path, answer, over_grpc=over_grpc) as served:
            assert await served.call(b"connected") == b"connected"
            waiting = asyncio.create_task(served.call(seconds=0.3 if how == "deadline" else None))
            await began.wait()
            if how == "deadline":
                with pytest.raises(RpcError) as late:
                    await waiting
                assert late.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
            else:
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await ended.wait()
            assert await served.call(b"again") == b"again", "the connection stays"

    run(check)


@forms
def test_a_message_or_a_response_that_is_too_large_fails_its_call_only(tmp_path: Path, *, over_grpc: bool) -> None:
    async def answer(call: PeerCall) -> bytes | Failure:
        return bytes(int(call.body)) if len(call.body) < 20 else b"read"

    async def check() -> None:
        async with serving(tmp_path, answer, over_grpc=over_grpc) as served:
            for body in (bytes(MAX_READ + 1), str(MAX_ANSWER + 1).encode()):
                with pytest.raises(RpcError) as refused:
                    await served.call(body)
                assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert await served.call(bytes(MAX_READ)) == b"read"
            assert len(await served.call(str(MAX_ANSWER).encode())) == MAX_ANSWER

    run(check)


@forms
def test_many_large_responses_arrive_whole(tmp_path: Path, *, over_grpc: bool) -> None:
    async def answer(call: PeerCall) -> bytes | Failure:
        return call.body * MIB

    async def check() -> None:
        async with serving(tmp_path, answer, over_grpc=over_grpc) as served:
            found = await asyncio.gather(*(served.call(bytes([number])) for number in range(40)))
            assert [(each[:1], len(each), len(set(each))) for each in found] == [
                (bytes([number]), MIB, 1) for number in range(40)
            ]

    run(check)


@forms
def test_each_call_shows_the_current_token(tmp_path: Path, *, over_grpc: bool) -> None:
    async def check() -> None:
        async with serving(tmp_path, echo, over_grpc=over_grpc) as served:
            await served.call()
            served.token.write_text("renewed")
            await served.call()
            assert served.shown[-1] == "Bearer renewed"
            served.refused = Failure(16, "the token was revoked")
            with pytest.raises(PeerLostError, match="the token was revoked"):
                await served.call()
            served.refused = None
            assert await served.call(b"valid") == b"valid"

    run(check)


def test_a_refused_operator_is_told_why_and_disconnected(tmp_path: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, echo) as served:
            served.refused = Failure(7, "not an operator of this release")
            calls = [asyncio.create_task(served.call()) for _ in range(5)]
            for call in calls:
                with pytest.raises(PeerLostError, match="not an operator of this release"):
                    await call
            assert len(served.shown) == 1, "a stranger's calls are not read"
            served.refused = None
            assert await served.call(b"admitted") == b"admitted"

    run(check)


@pytest.mark.parametrize(
    "content",
    [
        PREAMBLE + b"\x00\x00\x00\x05\x95\x02\x01\xa1/\xc0",
        PREAMBLE + b"\x00\x00\x40\x00",
        PREAMBLE + b"\x00\x00\x00\x01\xc1",
        PREAMBLE + b"\x00\x00\x00\x06\x95\x02\x01\xa1/\xc0\x90",
        PREAMBLE + b"\x00\x00\x00\x08\x96\x02\x01\xa1/\xc0\x90\xc4\x00",
    ],
    ids=[
        "a frame that ends early",
        "a frame that is longer than a token",
        "no MessagePack",
        "a part of a call",
        "a call without token",
    ],
)
def test_a_stranger_that_does_not_say_who_it_is_is_disconnected(tmp_path: Path, content: bytes) -> None:
    async def check() -> None:
        async with serving(tmp_path, echo, tls=False) as served:
            host, _, port = served.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(content)
            with suppress(ConnectionError):
                await reader.read()  # pings, until the connection ends
            writer.close()
            assert not served.shown

    run(check)


def test_a_member_that_stops_ends_open_calls_and_refuses_new_ones(tmp_path: Path) -> None:
    began, respond = asyncio.Event(), asyncio.Event()

    async def answer(call: PeerCall) -> bytes | Failure:
        began.set()
        await (respond.wait() if call.body == b"short" else asyncio.Event().wait())
        return call.body

    async def check() -> None:
        async with serving(tmp_path, answer) as served:
            short, long = (asyncio.create_task(served.call(each, seconds=None)) for each in (b"short", b"long"))
            await began.wait()
            asyncio.get_running_loop().call_later(0.2, respond.set)
            late = asyncio.get_running_loop().create_task(after(0.1, lambda: served.call(b"short")))
            stopped = served
        assert await short == b"short", "it had a moment to end"
        for lost in (late, long):
            with pytest.raises(PeerLostError):
                await lost
        with pytest.raises(PeerLostError):
            await stopped.call()

    run(check)


async def after(seconds: float, call: Callable[[], Coroutine[Any, Any, bytes]]) -> bytes:
    await asyncio.sleep(seconds)
    return await call()


def test_a_member_that_is_back_is_reached_again(tmp_path: Path) -> None:
    async def check() -> None:
        async with serving(tmp_path, echo, tls=False) as served:
            assert await served.call(b"before") == b"before"
            address = served.address
        client = PeerClient(PeerIdentity(name="other", token=served.token), lambda: {"m": address})
        served.client = client
        with pytest.raises(PeerLostError, match="ConnectionRefused"):
            await served.call()
        async with listening_to_members(address, served.admit, echo, None):
            await asyncio.sleep(0.15)  # a failed attempt counts for a moment
            assert await served.call(b"after") == b"after"
        with pytest.raises(PeerLostError):
            await served.call()
        await client.close()

    run(check)
