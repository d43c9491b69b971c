"""Reports of runs whose task queues have no workers."""

import asyncio
from typing import Any

import pytest

from support.sdk import flows
from support.sdk.client import Temporal

pytestmark = pytest.mark.cluster


async def missing_worker_message(temporal: Temporal, handle: Any) -> str:
    """The message of the run about its missing worker, once it has one."""
    cluster = temporal.cluster
    [name] = [
        run["metadata"]["name"]
        for run in cluster.list("workflowruns")
        if run["metadata"]["uid"] == handle.first_execution_run_id
    ]
    reported = await asyncio.to_thread(cluster.condition, "workflowrun", name, "NoWorker")
    return str(reported["message"])


@pytest.mark.slow
async def test_a_missing_workflow_worker_is_reported_without_other_events(temporal: Temporal) -> None:
    async with temporal.worker():
        box = await temporal.start(flows.Box.run)
        await box.signal(flows.Box.put, "a")
        assert await box.query(flows.Box.look) == ["a"]
    await box.signal(flows.Box.close)  # it was polled a moment ago
    assert await missing_worker_message(temporal, box) == f"no worker polls the task queue `{temporal.task_queue}`"
    async with temporal.worker():
        assert await box.result() == ["a"]


async def test_a_missing_activity_worker_is_reported_until_one_polls(temporal: Temporal) -> None:
    unserved = f"{temporal.task_queue}-elsewhere"
    options = {"task_queue": unserved, "start_to_close_timeout": 60}
    async with temporal.worker():
        call = await temporal.start(flows.Call.run, "greet", ["ada"], options)
        said = await missing_worker_message(temporal, call)
        assert said == f"activity `greet`: no worker polls the task queue `{unserved}` for activities"
        async with temporal.worker(task_queue=unserved, workflows=[]):
            assert await call.result() == "Hello, ada"


async def test_a_missing_worker_of_a_step_is_reported(temporal: Temporal) -> None:
    cluster, queue = temporal.cluster, f"{temporal.task_queue}-elsewhere"
    work = {"name": "greet", "worker": {"taskQueue": queue}, "startToCloseTimeout": "1m"}
    steps = [{"name": "hello", "activity": {"name": "greet", "input": "ada"}}]
    steps.append({"name": "end", "return": {"output": "${steps.hello.output}"}})
    await asyncio.to_thread(cluster.start, "by-steps", {"inline": {"activities": [work], "steps": steps}})
    reported = await asyncio.to_thread(cluster.condition, "workflowrun", "by-steps", "NoWorker")
    assert reported["message"] == f"step `hello`: no worker polls the task queue `{queue}` for activities"
    async with temporal.worker(task_queue=queue, workflows=[]):
        assert (await asyncio.to_thread(cluster.closed, "by-steps"))["output"] == "Hello, ada"
