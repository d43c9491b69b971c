"""A client and a worker of Temporal's SDK, connected to an operator."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from support.cluster.namespace import Cluster
from support.sdk import registry
from support.sdk.memory import InMemory
from support.sdk.server import Operator


@dataclass
class Temporal:
    """A client, and the task queue of its worker."""

    client: Client
    operator: InMemory | Operator
    task_queue: str

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Worker]:
        options.setdefault("task_queue", self.task_queue)
        options.setdefault("workflows", registry.WORKFLOWS)
        options.setdefault("activities", registry.ACTIVITIES)
        async with Worker(self.client, **options) as worker:
            yield worker

    async def start(self, workflow: Any, *arguments: Any, **options: Any) -> WorkflowHandle[Any, Any]:
        options.setdefault("id", f"w-{uuid.uuid4().hex[:8]}")
        options.setdefault("task_queue", self.task_queue)
        return await self.client.start_workflow(workflow, args=list(arguments), **options)

    async def run(self, workflow: Any, *arguments: Any, **options: Any) -> Any:
        return await (await self.start(workflow, *arguments, **options)).result()

    @property
    def cluster(self) -> Cluster:
        """The namespace of the real cluster that is served."""
        assert isinstance(self.operator, Operator), "the test is to be marked `cluster`"
        return self.operator.cluster

    async def names(self, handle: WorkflowHandle[Any, Any]) -> list[str]:
        """The types of the events of a history, in CamelCase. Checks that it has no gaps."""
        return [name for name, _ in await self.history(handle)]

    async def history(self, handle: WorkflowHandle[Any, Any]) -> list[tuple[str, Any]]:
        """Type and attributes of each event."""
        events = [event async for event in handle.fetch_history_events()]
        assert [event.event_id for event in events] == list(range(1, len(events) + 1))
        found = []
        for event in events:
            name = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
            attributes = getattr(event, f"{name.lower()}_event_attributes")
            found.append(("".join(word.capitalize() for word in name.split("_")), attributes))
        return found


async def until(what: str, so: Any, seconds: float = 60.0) -> Any:
    """Wait until a condition is true; the timeout only ends a failed test."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = await so()
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        await asyncio.sleep(0.05)
