"""Unauthenticated callers of the Temporal frontend: their effect on running workflows and on the operator.

PERDURE_CALLERS sets the number of their connections (20 by default), PERDURE_SECONDS how long they last (10 by default). Every
other one sends tokens that only the API server can tell from real ones; all send messages of 4 MiB. Figures are printed, and
nothing is decided by them.
"""

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from bench.process_figures import figure, memory
from support.cluster.namespace import Cluster
from support.sdk import flows, registry
from support.sdk.accounts import CLIENT, WORKER, account
from support.sdk.server import Operator, serving

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(3600)]

CALLERS = int(os.environ.get("PERDURE_CALLERS", "20"))
SECONDS = float(os.environ.get("PERDURE_SECONDS", "10"))
AT_ONCE, STEPS = 10, 10
PROGRAM = Path(__file__).parent / "unauthenticated_callers.py"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "log"
    with serving(cluster, log, PERDURE_TEMPORAL_AUTHENTICATION="Kubernetes") as running:
        yield running


async def steps(client: Client, queue: str, until: asyncio.Event) -> list[float]:
    """Seconds of each step, an activity and a decision, of workflows that run until the event is set, some at once."""
    found: list[float] = []

    async def one() -> None:
        while not until.is_set():
            began = time.perf_counter()
            await client.execute_workflow(flows.Chain.run, STEPS, id=f"chain-{uuid.uuid4().hex}", task_queue=queue)
            found.append((time.perf_counter() - began) / STEPS)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return found


async def measured(operator: Operator, client: Client, queue: str, *, callers: int, authority: Path) -> str:
    """Measure for a few seconds, with the given number of unauthenticated callers."""
    over, peak = asyncio.Event(), memory(operator)
    cpu = await figure(operator, "process_cpu_seconds_total")
    running = asyncio.create_task(steps(client, queue, over))
    began, said = time.perf_counter(), ""
    arguments = (str(authority), operator.address, str(SECONDS), str(callers))
    program = await asyncio.create_subprocess_exec(
        "nice", sys.executable, str(PROGRAM), *arguments, stdout=asyncio.subprocess.PIPE
    )
    while program.returncode is None:
        peak = max(peak, memory(operator))
        await asyncio.wait({asyncio.create_task(program.wait())}, timeout=0.5)
    assert program.stdout is not None
    said = (await program.stdout.read()).decode().strip()
    took, used = time.perf_counter() - began, await figure(operator, "process_cpu_seconds_total") - cpu
    over.set()
    each = [1_000 * seconds for seconds in await running]
    return (
        f"{callers} callers: {len(each)} workflows, a step takes {median(each):.0f} ms (p50), "
        f"{quantiles(each, n=20)[-1]:.0f} ms (p95); the operator takes {100 * used / took:.0f} % of a core, "
        f"{peak / 1024 / 1024:.0f} MiB at most; answers to callers: {said}"
    )


async def test_cost_of_unauthenticated_callers(operator: Operator, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text(operator.authority, encoding="ascii")
    worker = await operator.connect(api_key=account(operator, "worker", WORKER))
    client = await operator.connect(api_key=account(operator, "client", CLIENT))
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    async with Worker(worker, task_queue=queue, workflows=registry.WORKFLOWS, activities=registry.ACTIVITIES):
        for callers in (0, 0, CALLERS):  # all caches are warm the second time
            print(await measured(operator, client, queue, callers=callers, authority=authority))
    for outcome in ("Valid", "Invalid", "Limited"):
        with suppress(StopIteration, RuntimeError):  # no previous value
            number = await figure(operator, f'perdure_temporal_token_reviews_total{{outcome="{outcome}"}}')
            print(f"token reviews {outcome}: {number:.0f}")
    print(f"connections closed: {await figure(operator, 'perdure_temporal_connections_closed_total'):.0f}")
