"""The smallest example: a worker, and a client that starts a workflow, queries it, and signals it.

Without a cluster, start `make serve`, then `python hello.py`.
"""

import asyncio
import os
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker


@activity.defn
async def greet(name: str) -> str:
    """Return a greeting."""
    return f"hello {name}"


@workflow.defn
class HelloWorkflow:
    """Greets someone, and waits for an approval."""

    def __init__(self) -> None:
        self.approved_by = ""

    @workflow.run
    async def run(self, name: str) -> str:
        """Greet someone."""
        greeting = await workflow.execute_activity(greet, name, start_to_close_timeout=timedelta(minutes=1))
        await workflow.wait_condition(lambda: bool(self.approved_by))
        return f"{greeting}, approved by {self.approved_by}"

    @workflow.signal
    def approve(self, by: str) -> None:
        """Approve the greeting."""
        self.approved_by = by

    @workflow.query
    def waits(self) -> bool:
        """Whether the workflow waits for the approval."""
        return not self.approved_by


async def run(client: Client) -> str:
    """Run a worker until one workflow has completed, and return its result."""
    async with Worker(client, task_queue="hello", workflows=[HelloWorkflow], activities=[greet]):
        handle = await client.start_workflow(HelloWorkflow.run, "Ada", id="hello-ada", task_queue="hello")
        print("waits for the approval:", await handle.query(HelloWorkflow.waits))
        await handle.signal(HelloWorkflow.approve, "Grace")
        return await handle.result()


async def main() -> None:
    """Connect to the server, and print the result."""
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    print(await run(client))


if __name__ == "__main__":
    asyncio.run(main())
