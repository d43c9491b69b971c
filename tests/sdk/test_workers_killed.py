"""A worker is killed with -9 in the middle of its work, and another one continues."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import TimeoutType

from support.sdk import flows
from support.sdk.client import Temporal, until

pytestmark = pytest.mark.cluster

MORTAL = Path(__file__).parent / "mortal.py"


@asynccontextmanager
async def stuck_worker(temporal: Temporal, where: str) -> AsyncIterator[Process]:
    """A worker that gets stuck; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(MORTAL),
        temporal.operator.address,
        temporal.operator.namespace,
        temporal.operator.authority,
        temporal.task_queue,
        where,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def test_another_worker_completes_the_workflow_task_of_a_killed_worker(
    temporal: Temporal,
) -> None:
    handle = await temporal.start(flows.Chain.run, 3, task_timeout=timedelta(seconds=4))
    async with stuck_worker(temporal, "task") as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"stuck\n"
    async with temporal.worker():
        assert await handle.result() == 3
    events = await temporal.history(handle)
    assert [name for name, _ in events].count("ActivityTaskCompleted") == 3
    timed_out = [said.timeout_type for name, said in events if name == "WorkflowTaskTimedOut"]
    assert TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE in timed_out


@pytest.mark.parametrize("ended_by", ["heartbeat_timeout", "start_to_close_timeout"])
async def test_the_next_attempt_continues_from_the_heartbeat_of_a_killed_worker(
    temporal: Temporal, ended_by: str
) -> None:
    async with temporal.worker(activities=[]):
        handle = await temporal.start(flows.Call.run, "carry", [], {ended_by: 3, "retry": {"initial_interval": 0.1}})
        async with stuck_worker(temporal, "activity"):

            async def has_beaten() -> Any:
                pending = (await handle.describe()).raw_description.pending_activities
                return pending and pending[0].HasField("heartbeat_details")

            await until("the heartbeat", has_beaten)
        async with temporal.worker(workflows=[]):
            attempt, *details = await handle.result()
        [started] = [said for name, said in await temporal.history(handle) if name == "ActivityTaskStarted"]
    assert details == ["half"]
    assert started.attempt == attempt > 1
    assert started.last_failure.HasField("timeout_failure_info")
