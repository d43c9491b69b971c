"""Finished runs, written straight to the API server in place of the operator that would have executed them."""

import asyncio
import sys
import time
from contextlib import suppress

from perdure.api.labels import API_VERSION
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.runtime import status_encoding
from support.cluster.namespace import Json

AT_ONCE = 32
PROGRESS = 10_000


async def fill(namespace: str, run: Json, number: int) -> None:
    """Copy a run that has just finished, so an operator keeps the copies for their `ttlSecondsAfterFinished`."""
    url = kube.path(kube.PERDURE, namespace, "workflowruns")
    change = {"status": status_encoding.encode(run["status"])}
    body = {"apiVersion": API_VERSION, **{key: run[key] for key in ("kind", "spec")}}
    numbers = iter(range(number))
    began = time.monotonic()

    async def write(client: kube.Client) -> None:
        for each in numbers:
            name = f"finished-{each:06}"
            while True:
                try:
                    with suppress(kube.AlreadyExistsError):
                        await client.create(url, {**body, "metadata": {"name": name}})
                    await client.merge(f"{url}/{name}/status", change)
                    break
                except kube.RequestError as error:
                    print(f"{name}: {error!r}", file=sys.stderr)
                    await asyncio.sleep(1)
            if each % PROGRESS == PROGRESS - 1:
                print(f"{each + 1} finished runs after {time.monotonic() - began:.0f} s", file=sys.stderr)

    async with kube.Client.open(find_access(), user_agent="perdure-bench", connections=AT_ONCE) as client:
        await asyncio.gather(*(write(client) for _ in range(AT_ONCE)))
