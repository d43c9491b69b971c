"""Attack the frontend without a valid token or signature, over many connections. Prints the outcomes.

Arguments: the attack, a file with the authority, the addresses of gRPC and of the HTTP API, seconds, connections. The attacks:

tokens: calls with random tokens and large messages. Every other connection sends tokens that have the form of a ServiceAccount's
    for the frontend; the API server alone can tell that they are forged.
idle: connections on which nothing arrives, half of them to gRPC and half to the HTTP API. A closed one is opened again.
headers: requests to a Webhook, of whose headers one byte arrives each second.
bodies: requests to a Webhook, of whose bodies one byte arrives each second.
64KB: requests to a Webhook with the largest body, of which 64 KB arrive each second.
"""

import asyncio
import base64
import secrets
import ssl
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
import orjson

METHOD = "/temporal.api.workflowservice.v1.WorkflowService/StartWorkflowExecution"
BODY = secrets.token_bytes(4 * 1024 * 1024 - 16)
AT_ONCE = 10
"""Calls at once on a connection."""


def token(*, shaped: bool) -> str:
    if not shaped:
        return secrets.token_urlsafe(64)
    claims = {
        "aud": ["perdure.dev/temporal"],
        "exp": int(time.time()) + 3_600,  # noqa: TID251
        "iss": "https://kubernetes.default.svc.cluster.local",
        "sub": "system:serviceaccount:default:default",
    }
    header = {"alg": "RS256", "kid": "8zQtNbQhwEzmyyEMFSBDSa1n0kn4YKfsxzXdRRTI5Yw"}
    parts = (orjson.dumps(header), orjson.dumps(claims), secrets.token_bytes(256))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


async def call(channel: grpc.aio.Channel, found: Counter[str], until: float, *, shaped: bool) -> None:
    method = channel.unary_unary(METHOD)
    while (left := until - time.monotonic()) > 0:
        try:
            await method(BODY, metadata=(("authorization", f"Bearer {token(shaped=shaped)}"),), timeout=left)
        except grpc.aio.AioRpcError as error:
            found[error.code().name] += 1
        else:
            found["OK"] += 1


async def forged_calls(authority: bytes, address: str, seconds: float, connections: int) -> Counter[str]:
    credentials = grpc.ssl_channel_credentials(authority)
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 100),
    ]
    channels = [grpc.aio.secure_channel(address, credentials, options) for _ in range(connections)]
    found: Counter[str] = Counter()
    until = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(seconds))
        for number, channel in enumerate(channels):
            for _ in range(AT_ONCE):
                group.create_task(call(channel, found, until, shaped=bool(number % 2)))
    for channel in channels:
        await channel.close()
    return found


HEAD = b"POST /webhooks/default/none HTTP/1.1\r\nHost: x\r\n"
LENGTH = 256 * 1024


async def send_nothing(writer: asyncio.StreamWriter) -> None:
    """Wait: the other side closes the connection."""


async def send_headers(writer: asyncio.StreamWriter) -> None:
    """Send headers, a byte each second."""
    writer.write(HEAD + b"X-Slow: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(1)


async def send_body(writer: asyncio.StreamWriter) -> None:
    """Send a body, a byte each second."""
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % LENGTH)
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(1)


async def send_bodies(writer: asyncio.StreamWriter) -> None:
    """Send the largest bodies, 64 KB a second."""
    while True:
        writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % LENGTH)
        for _ in range(LENGTH // 8_192):
            writer.write(b"x" * 8_192)
            await writer.drain()
            await asyncio.sleep(8_192 / 64_000)


SLOW = {"idle": send_nothing, "headers": send_headers, "bodies": send_body, "64KB": send_bodies}


async def slow_connections(
    attack: str, authority: bytes, addresses: list[str], seconds: float, connections: int
) -> Counter[str]:
    secured = None if attack == "idle" else ssl.create_default_context(cadata=authority.decode())
    found: Counter[str] = Counter()

    async def stay(address: str) -> None:
        host, _, port = address.rpartition(":")
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, int(port), ssl=secured)
            except OSError:
                found["not connected"] += 1
                await asyncio.sleep(0.1)
                continue
            found["connected"] += 1
            sending = asyncio.create_task(SLOW[attack](writer))
            with suppress(OSError):
                while data := await reader.read(65_536):
                    found[data[9:12].decode(errors="replace") if data.startswith(b"HTTP") else "data"] += 1
            found["closed"] += 1
            sending.cancel()
            with suppress(OSError, asyncio.CancelledError):
                await sending
            writer.close()

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(stay(addresses[number % len(addresses)]))
    return found


async def main() -> None:
    attack, authority, address, http, seconds, connections = sys.argv[1:]
    trusted = Path(authority).read_bytes()  # noqa: ASYNC240 (nothing else runs yet)
    if attack == "tokens":
        found = await forged_calls(trusted, address, float(seconds), int(connections))
    else:
        addresses = [address, http] if attack == "idle" else [http]
        found = await slow_connections(attack, trusted, addresses, float(seconds), int(connections))
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    asyncio.run(main())
