"""Workflows and activities of the tests with Temporal's SDK that pass on large payloads."""

import asyncio
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from support.sdk.flows import SHORT

ONCE = RetryPolicy(maximum_attempts=1)
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0)


@activity.defn
async def echo(content: bytes) -> bytes:
    return content


@activity.defn
async def beat_at_length(size: int) -> int:
    """Heartbeats with large details in its first attempt; the next one returns their size."""
    if activity.info().attempt == 1:
        for filler in (b"a", b"b"):
            activity.heartbeat(filler * size)
            await asyncio.sleep(0.05)
        raise ApplicationError("again", type="Again")
    (details,) = activity.info().heartbeat_details
    return len(details) if set(details) == {ord("b")} else 0


@activity.defn
async def give(size: int) -> bytes:
    return b"r" * size


@workflow.defn
class Carries:
    """Passes on large values in every way; with a negative number it waits until it is closed."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.open = True

    @workflow.run
    async def run(self, content: bytes, left: int) -> bytes:
        self.got.append(len(content))
        if left > 0:
            content = await workflow.execute_activity(echo, content, start_to_close_timeout=SHORT)
            content = await workflow.execute_child_workflow(Carries.run, args=[content, 0])
            workflow.continue_as_new(args=[content, left - 1])
        if left < 0:
            await workflow.wait_condition(lambda: not self.open)
        return content

    @workflow.signal
    async def take(self, content: bytes) -> None:
        self.got.append(len(content))

    @workflow.signal
    async def close(self) -> None:
        self.open = False

    @workflow.update
    async def change(self, content: bytes) -> bytes:
        self.got.append(len(content))
        return content[::-1]

    @workflow.query
    def sizes(self) -> list[int]:
        return self.got


@workflow.defn
class BeatsAtLength:
    @workflow.run
    async def run(self, size: int) -> int:
        return await workflow.execute_activity(
            beat_at_length, size, start_to_close_timeout=SHORT, heartbeat_timeout=SHORT, retry_policy=QUICK
        )


@workflow.defn
class Gives:
    """Calls an activity with a large result."""

    @workflow.run
    async def run(self, size: int) -> int:
        return len(await workflow.execute_activity(give, size, start_to_close_timeout=SHORT, retry_policy=ONCE))
