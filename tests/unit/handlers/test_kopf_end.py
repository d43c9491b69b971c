"""The effect of the end of kopf on other tasks of the process."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import kopf

from perdure.handlers.watch import ForeignTasks

_PATH = "/perdure.test/Greet"


async def greet(_: Any, context: Any) -> bytes:
    name: bytes = await context.read()
    return b"Hello, " + name


async def called(channel: grpc.aio.Channel) -> bytes:
    response: bytes = await channel.unary_unary(_PATH)(b"you", timeout=30)
    return response


async def test_a_grpc_server_continues_after_kopf_has_ended() -> None:
    """Each call makes gRPC wait for the next one in a task that is younger than kopf."""
    kopf_ends = asyncio.Event()
    root = asyncio.create_task(kopf_ends.wait())
    running = asyncio.create_task(kopf.run_tasks([root], ignored=ForeignTasks()))
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    method = grpc.stream_unary_rpc_method_handler(greet)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("perdure.test", {"Greet": method}),))
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await called(channel) == b"Hello, you"
        kopf_ends.set()
        await running
        assert await called(channel) == b"Hello, you"
    await server.stop(None)
