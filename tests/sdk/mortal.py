"""A worker in its own process that gets stuck and reports it, for tests that kill it.

Arguments: the address of the operator, the namespace, the authority to trust, the task queue, and where it gets stuck: `task`
or `activity`.
"""

import asyncio
import sys
import threading
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.service import TLSConfig
from temporalio.worker import UnsandboxedWorkflowRunner, Worker


@activity.defn
async def greet(name: str) -> str:
    return name


@activity.defn
async def carry() -> None:
    """Heartbeats once, and never ends."""
    activity.heartbeat("half")
    await asyncio.Event().wait()


@workflow.defn(name="Chain")
class StuckChain:
    """As `flows.Chain`, up to the second decision."""

    @workflow.run
    async def run(self, length: int) -> int:
        del length
        await workflow.execute_activity(greet, "0", start_to_close_timeout=timedelta(seconds=20))
        print("stuck", flush=True)
        threading.Event().wait()
        return 0


async def main(address: str, namespace: str, authority: str, task_queue: str, where: str) -> None:
    tls = TLSConfig(server_root_ca_cert=authority.encode())
    client = await Client.connect(address, namespace=namespace, tls=tls)
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[StuckChain] if where == "task" else [],
        activities=[greet, carry],
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,  # or the SDK would notice that the workflow is stuck
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
