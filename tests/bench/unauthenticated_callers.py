"""Open many connections to the Temporal frontend, with random tokens and large messages. Prints the outcomes of the calls.

Arguments: file with the authority, address, seconds, connections. Every other connection sends tokens that have the form of a
ServiceAccount's for the frontend; the API server alone can tell that they are forged.
"""

import asyncio
import base64
import secrets
import sys
import time
from collections import Counter
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


async def main(authority: bytes, address: str, seconds: str, connections: str) -> None:
    credentials = grpc.ssl_channel_credentials(authority)
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 100),
    ]
    channels = [grpc.aio.secure_channel(address, credentials, options) for _ in range(int(connections))]
    found: Counter[str] = Counter()
    until = time.monotonic() + float(seconds)
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(float(seconds)))
        for number, channel in enumerate(channels):
            for _ in range(AT_ONCE):
                group.create_task(call(channel, found, until, shaped=bool(number % 2)))
    for channel in channels:
        await channel.close()
    print(orjson.dumps(found).decode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_bytes(), *sys.argv[2:]))
