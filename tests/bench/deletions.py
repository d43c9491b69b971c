"""What runs in the pod of test_deletions.py: a worker and a client that measure which workflows stall meanwhile.

Arguments: the number of workflows. It prints a line when the first workflows run, and its figures as JSON at the end.
"""

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, TLSConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

AT_ONCE = 30
TIMEOUT = timedelta(seconds=40)
"""The start-to-close timeout of the activities, which return immediately: what takes as long has stalled."""
PERDURE = Path("/var/run/perdure")
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


async def connect() -> Client:
    tls = TLSConfig(server_root_ca_cert=(PERDURE / "ca.crt").read_bytes())
    token = (PERDURE / "token").read_text(encoding="ascii").strip()
    while True:
        try:
            return await Client.connect(
                os.environ["TEMPORAL_ADDRESS"], namespace=os.environ["TEMPORAL_NAMESPACE"], tls=tls, api_key=token
            )
        except (RPCError, RuntimeError):
            await asyncio.sleep(1)


async def insist(client: Client, name: str) -> None:
    """Run a workflow to its end, however often the operator does not answer."""
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


async def main(number: int) -> None:
    client = await connect()
    gate, seconds = asyncio.Semaphore(AT_ONCE), list[float]()

    async def one(which: int) -> None:
        async with gate:
            began = time.monotonic()
            await insist(client, f"w{which}")
            seconds.append(time.monotonic() - began)

    worker = Worker(
        client,
        task_queue="deletions",
        workflows=[ThreeSteps],
        activities=[greet],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        await insist(client, "first")
        print("running", flush=True)
        began = time.monotonic()
        await asyncio.gather(*map(one, range(number)))
    figures = {
        "workflows": len(seconds),
        "stalled": sum(each >= TIMEOUT.total_seconds() for each in seconds),
        "repeated": len(_executed) - 3 * (number + 1),
        "seconds": round(time.monotonic() - began, 1),
        "slowest": round(max(seconds), 1),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
