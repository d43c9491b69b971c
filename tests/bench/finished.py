"""Fill a namespace with finished runs, written straight to the API server: ``python tests/bench/finished.py 10000 --bytes 0``.

Each is a copy of a recorded run that has just ended, so an operator keeps it for as long as its `ttlSecondsAfterFinished` says.
What an operator then takes in memory, and how long it takes to start, is in docs/sizing.md.
"""

import argparse
import asyncio
import json
import sys
import time
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.kube.clock import now
from perdure.runtime import status_texts

Json = dict[str, Any]
RUN: Json = json.loads((Path(__file__).parents[1] / "unit" / "cli" / "recorded" / "whole.json").read_text())


async def fill(client: kube.Client, given: argparse.Namespace) -> None:
    """Write runs, as the command line says."""
    url = kube.path(kube.PERDURE, given.namespace, "workflowruns")
    spec, status = deepcopy(RUN["spec"]), deepcopy(RUN["status"])
    if given.bytes:
        spec["input"] = {"blob": "x" * given.bytes}
    status["completionTime"] = now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body = {"apiVersion": RUN["apiVersion"], "kind": RUN["kind"], "spec": spec}
    numbers = iter(range(given.count))
    began = time.monotonic()

    async def write() -> None:
        for number in numbers:
            name = f"{given.prefix}-{number:06}"
            while True:
                try:
                    with suppress(kube.AlreadyExistsError):
                        await client.create(url, {**body, "metadata": {"name": name}})
                    await client.merge(f"{url}/{name}/status", {"status": status_texts.encode(status)})
                    break
                except (kube.ApiError, *kube.TRANSIENT) as error:
                    sys.stderr.write(f"{name}: {error!r}\n")
                    await asyncio.sleep(1)
            if number % 1_000 == 0:
                sys.stdout.write(f"{number} after {time.monotonic() - began:.0f} s\n")
                sys.stdout.flush()

    await asyncio.gather(*(write() for _ in range(given.at_once)))


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--bytes", type=int, default=0, help="of input that each has in addition")
    parser.add_argument("--namespace", default="finished")
    parser.add_argument("--prefix", default="finished")
    parser.add_argument("--at-once", type=int, default=16)
    given = parser.parse_args()
    async with kube.Client.open(find_access(), user_agent="perdure-bench") as client:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": given.namespace}}
        with suppress(kube.AlreadyExistsError):
            await client.create(kube.path(kube.CORE, None, "namespaces"), body)
        await fill(client, given)


if __name__ == "__main__":
    asyncio.run(_main())
