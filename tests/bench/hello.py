"""Workflows of SDK workers: how many a second, how long one takes, what it costs, and whether a long history slows it down."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from statistics import median

from temporalio.client import Client
from temporalio.worker import Worker

from bench.costs import ApiServerCosts, cpu_of_server, operator_cpu
from bench.results import Result
from support.sdk import activities, flows
from support.sdk.server import Operator

WORKFLOWS = 300
ALONE = 40
AT_ONCE = 20
LENGTH = 150
"""Activities of the long workflow, each with a timer after it."""


@asynccontextmanager
async def working(client: Client) -> AsyncIterator[str]:
    """A worker, and its task queue."""
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    async with Worker(client, task_queue=queue, workflows=[flows.Greet, flows.Chain], activities=[activities.greet]):
        yield queue


async def greet_all(client: Client, queue: str, number: int, at_once: int) -> tuple[float, list[float]]:
    """Run workflows, some at once; seconds that all took, and that each took."""
    gate = asyncio.Semaphore(at_once)
    latencies: list[float] = []

    async def one() -> None:
        async with gate:
            began = time.perf_counter()
            await client.execute_workflow(flows.Greet.run, "you", id=f"hello-{uuid.uuid4()}", task_queue=queue)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(number)))
    return time.perf_counter() - began, latencies


async def measure_hello(operator: Operator, temporal: str | None) -> list[Result]:
    """Hello workflows, on Perdure and, if it has an address, on Temporal's server."""
    client = await operator.connect()
    address, _, namespace = (temporal or "").partition("/")
    other = await Client.connect(address, namespace=namespace or "default") if address else None
    async with working(client) as queue:
        await greet_all(client, queue, AT_ONCE, AT_ONCE)  # caches are warm from here on
        alone = median((await greet_all(client, queue, ALONE, 1))[1])
        api, cpu = ApiServerCosts(operator.cluster), operator_cpu(operator)
        worker = time.process_time()
        took, latencies = await greet_all(client, queue, WORKFLOWS, AT_ONCE)
        worker_cpu = time.process_time() - worker
        await asyncio.sleep(2)  # the last Events are written a moment later
        cpu_of_operator = operator_cpu(operator) - cpu
        api_cpu, requests = api.spent()
    theirs: tuple[float | None, ...] = (None,) * 5
    if other is not None:
        async with working(other) as queue:
            await greet_all(other, queue, AT_ONCE, AT_ONCE)
            other_alone = median((await greet_all(other, queue, ALONE, 1))[1])
            before, worker = cpu_of_server(address), time.process_time()
            other_took, other_latencies = await greet_all(other, queue, WORKFLOWS, AT_ONCE)
            after, other_worker = cpu_of_server(address), time.process_time() - worker
        other_cpu = None if before is None or after is None else (after - before) / WORKFLOWS
        theirs = (
            WORKFLOWS / other_took,
            1000 * other_alone,
            1000 * median(other_latencies),
            other_cpu,
            1000 * other_worker / WORKFLOWS,
        )
    name = "Temporal's server" if other else ""
    figures = (
        WORKFLOWS / took,
        1000 * alone,
        1000 * median(latencies),
        cpu_of_operator / WORKFLOWS,
        1000 * worker_cpu / WORKFLOWS,
    )
    what = (
        (f"SDK hello workflows, {AT_ONCE} in parallel", "/s"),
        ("latency of one alone, p50", "ms"),
        (f"latency of {AT_ONCE} in parallel, p50", "ms"),
        ("CPU of the server for each", "ms"),
        ("CPU of worker and client for each", "ms"),
    )
    return [
        *(Result(*words, mine, name, other_) for words, mine, other_ in zip(what, figures, theirs, strict=True)),
        Result("CPU of the API server for each", "ms", api_cpu / WORKFLOWS),
        Result("requests to the API server for each", "", requests / WORKFLOWS),
    ]


async def measure_growth(operator: Operator) -> list[Result]:
    """The time of an activity and a timer at the end of a long history, compared with its beginning."""
    client = await operator.connect()
    async with working(client) as queue:
        handle = await client.start_workflow(flows.Chain.run, LENGTH, id=f"long-{uuid.uuid4()}", task_queue=queue)
        await handle.result()
        times = [
            event.event_time.ToDatetime().timestamp()
            async for event in handle.fetch_history_events()
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
    steps = [after - before for before, after in pairwise(times)]
    part = LENGTH // 10
    first, last = (1000 * median(some) for some in (steps[:part], steps[-part:]))
    return [Result(f"activity and timer of 50 ms, last tenth of {LENGTH}", "ms", last, "first tenth", first)]
