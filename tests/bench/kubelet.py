"""A simulated kubelet: every pod of activities in a namespace runs, and succeeds a moment later. A process of its own.

The pods name a scheduler that does not exist, so no node takes them; their status is written here. Everything else about them is
real: they are made, watched, finalized and deleted by the API server.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from perdure.kube.access import Access, find_access
from perdure.kube.client import CORE, ApiError, Client, path

Json = dict[str, Any]

RESULT = '{"ok": true}'
SCHEDULER = "simulated"
"""Name of the scheduler in the pods."""


@asynccontextmanager
async def watching(access: Access, namespace: str) -> AsyncIterator[AsyncIterator[Json]]:
    """Yield pods as they are created and changed, without end."""
    connector = aiohttp.TCPConnector(ssl=access.ssl_context() or False)
    bearer = access.bearer()
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    unlimited = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=unlimited) as session:
        yield _watch(session, f"{access.server}{path(CORE, namespace, 'pods')}")


async def _watch(session: aiohttp.ClientSession, url: str) -> AsyncIterator[Json]:
    while True:
        query = {"watch": "true", "labelSelector": "perdure.dev/run-id", "timeoutSeconds": "240"}
        async with session.get(url, params=query) as answer:
            answer.raise_for_status()
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = orjson.loads(line)
                    if event["type"] in {"ADDED", "MODIFIED"}:
                        yield event["object"]


async def finish(client: Client, pod: Json) -> None:
    """Write that a pod has run, and succeeded."""
    meta = pod["metadata"]
    then = meta["creationTimestamp"]
    states = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {
                "terminated": {
                    "exitCode": 0,
                    "reason": "Completed",
                    "message": RESULT,
                    "startedAt": then,
                    "finishedAt": then,
                }
            },
        }
        for container in pod["spec"]["containers"]
    ]
    try:
        await client.merge(
            path(CORE, meta["namespace"], "pods", meta["name"], "status"),
            {"status": {"phase": "Succeeded", "startTime": then, "containerStatuses": states}},
        )
    except ApiError as error:
        print(f"{meta['name']}: {error}", file=sys.stderr)


async def main(namespace: str) -> None:
    access = find_access()
    async with (
        Client.open(access, user_agent="perdure-bench") as client,
        watching(access, namespace) as pods,
        asyncio.TaskGroup() as group,
    ):
        started: set[str] = set()
        print("ready", flush=True)
        async for pod in pods:
            uid = pod["metadata"]["uid"]
            if uid not in started:
                started.add(uid)
                group.create_task(finish(client, pod))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
