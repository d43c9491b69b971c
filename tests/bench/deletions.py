"""The load of test_deletions.py, in a pod or on this machine: a worker and a client that measure which workflows stall meanwhile.

It runs 30 workflows at a time until it gets SIGTERM. It prints a line when each of them ends, and its figures as JSON at the end.
"""

import asyncio
import json
import os
import signal
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, TLSConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

AT_ONCE = 30
TIMEOUT = timedelta(seconds=40)
"""The start-to-close timeout of the activities, which return immediately: what takes as long has stalled."""
PERDURE = Path("/var/run/perdure")
"""The authority and the token of a pod; a server on this machine needs neither."""
ENDED = "ended"
_executed: list[str] = []


@activity.defn
async def greet(name: str) -> str:
    _executed.append(name)
    return name


@workflow.defn
class ThreeSteps:
    @workflow.run
    async def run(self) -> None:
        for name in ("a", "b", "c"):
            await workflow.execute_activity(greet, name, start_to_close_timeout=TIMEOUT)


def credentials() -> dict[str, Any]:
    if not PERDURE.exists():
        return {}
    token = (PERDURE / "token").read_text(encoding="ascii").strip()
    return {"tls": TLSConfig(server_root_ca_cert=(PERDURE / "ca.crt").read_bytes()), "api_key": token}


async def connect() -> Client:
    address, namespace = os.environ["TEMPORAL_ADDRESS"], os.environ["TEMPORAL_NAMESPACE"]
    while True:
        try:
            return await Client.connect(address, namespace=namespace, **credentials())
        except (RPCError, RuntimeError):
            await asyncio.sleep(1)


async def insist(client: Client, name: str) -> None:
    """Run a workflow to its end, however often the server does not answer."""
    handle: WorkflowHandle[ThreeSteps, None] | None = None
    while True:
        try:
            handle = handle or await client.start_workflow(
                ThreeSteps.run,
                id=name,
                task_queue="deletions",
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            await handle.result()
        except RPCError:
            await asyncio.sleep(0.2)
        else:
            return


async def main() -> None:
    client = await connect()
    stop, seconds, numbers = asyncio.Event(), list[float](), count()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def one_after_another() -> None:
        while not stop.is_set():
            began = time.monotonic()
            await insist(client, f"w{next(numbers)}")
            seconds.append(time.monotonic() - began)
            print(ENDED, flush=True)

    worker = Worker(
        client,
        task_queue="deletions",
        workflows=[ThreeSteps],
        activities=[greet],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        began = time.monotonic()
        await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))
    figures = {
        "workflows": len(seconds),
        "stalled": sum(each >= TIMEOUT.total_seconds() for each in seconds),
        "repeated": len(_executed) - 3 * len(seconds),
        "seconds": round(time.monotonic() - began, 1),
        "slowest": round(max(seconds), 1),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
