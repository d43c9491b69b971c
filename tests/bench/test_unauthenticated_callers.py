"""Unauthenticated callers of the frontend: their effect on running workflows, on senders of webhooks, and on the operator.

PERDURE_CALLERS sets the number of their connections (20 by default), PERDURE_SECONDS how long they last (10 by default), and
PERDURE_ATTACKS what they do (`tokens` by default; unauthenticated_callers.py lists all). Figures are printed, and nothing is
decided by them.
"""

import asyncio
import hashlib
import hmac
import os
import ssl
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

import aiohttp
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from bench.process_figures import figure, memory
from support.cluster.namespace import Cluster
from support.cluster.process import free_port
from support.sdk import flows, registry
from support.sdk.accounts import CLIENT, WORKER, account
from support.sdk.server import Operator, serving

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench, pytest.mark.timeout(3600)]

CALLERS = int(os.environ.get("PERDURE_CALLERS", "20"))
SECONDS = float(os.environ.get("PERDURE_SECONDS", "10"))
ATTACKS = os.environ.get("PERDURE_ATTACKS", "tokens").split(",")
AT_ONCE, STEPS = 10, 10
KEY = "a key of the benchmark"
BODY = b'{"start": false}'
WEBHOOK = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "Webhook",
    "metadata": {"name": "bench"},
    "spec": {
        "signature": {"secret": {"name": "bench-webhook"}},
        "when": "${body.start}",
        "start": {"workflow": {"name": "none"}},
    },
}
PROGRAM = Path(__file__).parent / "unauthenticated_callers.py"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "log"
    http = f"127.0.0.1:{free_port()}"
    with serving(
        cluster, log, PERDURE_TEMPORAL_AUTHENTICATION="Kubernetes", PERDURE_TEMPORAL_HTTP_ADDRESS=http
    ) as running:
        running.cluster("create", "secret", "generic", "bench-webhook", f"--from-literal=secret={KEY}")
        running.cluster.apply(WEBHOOK)
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


async def webhooks(operator: Operator, until: asyncio.Event) -> tuple[list[float], int]:
    """Seconds of signed requests, each on a connection of its own, until the event is set; and how many failed."""
    url = f"https://{operator.options['PERDURE_TEMPORAL_HTTP_ADDRESS']}/webhooks/{operator.namespace}/bench"
    headers = {"X-Hub-Signature-256": hmac.new(KEY.encode(), BODY, hashlib.sha256).hexdigest()}
    secured, found, failed = ssl.create_default_context(cadata=operator.authority), [], 0
    while not until.is_set():
        began = time.perf_counter()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, data=BODY, headers=headers, ssl=secured) as a,
            ):
                a.raise_for_status()
                found.append(time.perf_counter() - began)
        except aiohttp.ClientError:
            failed += 1
        await asyncio.sleep(0.1)
    return found, failed


async def connections(operator: Operator, key: str, until: asyncio.Event) -> list[float]:
    """Seconds until a new client is connected, until the event is set."""
    found = []
    while not until.is_set():
        began = time.perf_counter()
        with suppress(RuntimeError, TimeoutError):
            async with asyncio.timeout(10):
                await operator.connect(api_key=key)
        found.append(time.perf_counter() - began)
        await asyncio.sleep(0.1)
    return found


def spread(found: list[float]) -> str:
    """The median and the 95th percentile."""
    each = [1_000 * seconds for seconds in found]
    high = quantiles(each, n=20, method="inclusive")[-1]
    return f"{median(each):.0f} ms (p50), {high:.0f} ms (p95), {max(each):.0f} ms (maximum)"


async def measured(
    operator: Operator, client: Client, key: str, queue: str, *, attack: str, callers: int, authority: Path
) -> str:
    """Measure for a few seconds, with the given number of unauthenticated callers."""
    over, peak = asyncio.Event(), memory(operator)
    cpu = await figure(operator, "process_cpu_seconds_total")
    running = asyncio.create_task(steps(client, queue, over))
    sending = asyncio.create_task(webhooks(operator, over))
    connecting = asyncio.create_task(connections(operator, key, over))
    began, said = time.perf_counter(), ""
    http = operator.options["PERDURE_TEMPORAL_HTTP_ADDRESS"]
    arguments = (attack, str(authority), operator.address, http, str(SECONDS), str(callers))
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
    each, (sent, failed), connected = await running, await sending, await connecting
    return (
        f"{attack}, {callers} callers: {len(each)} workflows, a step takes {spread(each)}; {len(sent)} webhook requests, "
        f"{spread(sent)}, {failed} failed; a client connects in {spread(connected)}; the operator takes "
        f"{100 * used / took:.0f} % of a core, {peak / 1024 / 1024:.0f} MiB at most; answers to callers: {said}"
    )


async def test_cost_of_unauthenticated_callers(operator: Operator, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_text(operator.authority, encoding="ascii")
    worker = await operator.connect(api_key=account(operator, "worker", WORKER))
    key = account(operator, "client", CLIENT)
    client = await operator.connect(api_key=key)
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    async with Worker(worker, task_queue=queue, workflows=registry.WORKFLOWS, activities=registry.ACTIVITIES):
        # All caches are warm the second time.
        for attack, callers in ((ATTACKS[0], 0), (ATTACKS[0], 0), *((attack, CALLERS) for attack in ATTACKS)):
            print(await measured(operator, client, key, queue, attack=attack, callers=callers, authority=authority))
    for outcome in ("Valid", "Invalid", "Limited"):
        with suppress(StopIteration, RuntimeError):  # no previous value
            number = await figure(operator, f'perdure_temporal_token_reviews_total{{outcome="{outcome}"}}')
            print(f"token reviews {outcome}: {number:.0f}")
    print(f"connections closed: {await figure(operator, 'perdure_temporal_connections_closed_total'):.0f}")
