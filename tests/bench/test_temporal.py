"""Workflows as code: how many in a second, how soon a signal is answered, what they write, and what sleeping ones cost.

PERDURE_WORKFLOWS says how many run (100 by default), PERDURE_SLEEPING how many sleep (200 by default).
With PERDURE_TEMPORAL_REFERENCE, the address of a Temporal server, the same is asked of that one in the same run. Figures are
printed, and nothing is decided by them.
"""

import asyncio
import os
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from bench.process_figures import figure, memory
from support.cluster.audit import what, writes
from support.cluster.namespace import Cluster
from support.sdk import flows, registry
from support.sdk.client import until
from support.sdk.server import Operator, serving

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(3600)]

WORKFLOWS = int(os.environ.get("PERDURE_WORKFLOWS", "100"))
SLEEPING = int(os.environ.get("PERDURE_SLEEPING", "200"))
REFERENCE = os.environ.get("PERDURE_TEMPORAL_REFERENCE")
AT_ONCE = 20
TRIPS = 30


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    with serving(cluster, tmp_path_factory.mktemp("operator") / "log") as running:
        yield running


async def servers(operator: Operator) -> dict[str, Client]:
    """A client of each server that is measured."""
    found = {"Perdure": await operator.connect()}
    if REFERENCE:
        found["Temporal"] = await Client.connect(REFERENCE, namespace="default")
    return found


@asynccontextmanager
async def working(client: Client) -> AsyncIterator[str]:
    """A worker, and its task queue."""
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=registry.WORKFLOWS, activities=registry.ACTIVITIES):
        yield queue


async def at_once(number: int, work: Callable[[int], Awaitable[Any]]) -> float:
    """Do something a number of times, some concurrently, and return the seconds that it took."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(which: int) -> None:
        async with gate:
            await work(which)

    began = time.perf_counter()
    await asyncio.gather(*map(one, range(number)))
    return time.perf_counter() - began


async def test_workflows_per_second_and_signal_latency(operator: Operator) -> None:
    rates, trips = {}, {}
    for name, client in (await servers(operator)).items():
        async with working(client) as queue:

            async def greet(number: int, client: Client = client, queue: str = queue) -> None:
                await client.execute_workflow(flows.Greet.run, "you", id=f"greet-{queue}-{number}", task_queue=queue)

            async def trip(number: int, client: Client = client, queue: str = queue) -> float:
                box = await client.start_workflow(flows.Box.run, id=f"box-{queue}-{number}", task_queue=queue)
                assert await box.query(flows.Box.look) == []
                began = time.perf_counter()
                await box.signal(flows.Box.close)
                await box.result()
                return time.perf_counter() - began

            await at_once(AT_ONCE, lambda number: greet(-number - 1))  # nothing is cold any more
            rates[name] = WORKFLOWS / await at_once(WORKFLOWS, greet)
            trips[name] = [await trip(number) for number in range(TRIPS)]
    for name, rate in rates.items():
        print(
            f"{name}: {rate:.1f} workflows with one activity a second, {AT_ONCE} at once; "
            f"from a signal to the result {1000 * median(trips[name]):.0f} ms (p50), {1000 * max(trips[name]):.0f} ms at most"
        )
    if REFERENCE:
        print(
            f"Perdure to Temporal: {rates['Perdure'] / rates['Temporal']:.2f} of the workflows a second, "
            f"{median(trips['Perdure']) / median(trips['Temporal']):.2f} times the way of a signal"
        )


async def test_writes_per_workflow_task(operator: Operator) -> None:
    client = (await servers(operator))["Perdure"]
    tasks: Counter[str] = Counter()
    async with working(client) as queue:
        before = Counter(map(what, writes(operator.namespace)))
        handles = {
            "one activity": await client.start_workflow(flows.Greet.run, "you", id=f"one-{queue}", task_queue=queue),
            "ten activities, one after the other": await client.start_workflow(
                flows.Chain.run, 10, id=f"ten-{queue}", task_queue=queue
            ),
        }
        for name, handle in handles.items():
            await handle.result()
            events = [event async for event in handle.fetch_history_events()]
            tasks[name] = sum(event.HasField("workflow_task_completed_event_attributes") for event in events)
    cost = Counter(map(what, writes(operator.namespace))) - before
    cost.pop("create events", None)
    print(f"{dict(tasks)} workflow tasks, {cost.total() / tasks.total():.2f} writes for each: {dict(cost)}")


async def test_memory_of_sleeping_workflows(operator: Operator) -> None:
    client = (await servers(operator))["Perdure"]
    async with working(client) as queue:
        before, written = memory(operator), await figure(operator, "perdure_commits_total")

        async def sleep(number: int) -> None:
            await client.start_workflow(flows.Sleeper.run, 86_400, id=f"asleep-{queue}-{number}", task_queue=queue)

        took = await at_once(SLEEPING, sleep)

        async def asleep() -> bool:  # one write each: its start and its timer
            return await figure(operator, "perdure_commits_total") >= written + SLEEPING

        await until("all to sleep", asleep, seconds=1800)
        after = memory(operator)
        print(
            f"{SLEEPING:,} workflows started in {took:.0f} s; asleep, each takes {(after - before) / SLEEPING / 1024:.1f} KiB"
        )
        operator.kill()
        began = time.perf_counter()
        await asyncio.to_thread(operator.start)
        ready = time.perf_counter() - began

        async def armed() -> bool:
            return await figure(operator, "perdure_timers") >= SLEEPING

        await until("all timers to be armed again", armed, seconds=1800)
        print(
            f"killed and started again: ready after {ready:.1f} s, all timers armed after {time.perf_counter() - began:.1f} s, "
            f"{memory(operator) / 2**20:.0f} MiB"
        )
