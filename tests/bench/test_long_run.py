"""A run with thousands of activities on simulated nodes: the cost of an activity at the start and at the end of the run.

PERDURE_ACTIVITIES sets their number (10,000 by default), PERDURE_AT_ONCE how many are open at the same time. The operator runs
in this process, so that every byte that it sends is counted; `kubelet.py`, a separate process, ends the pods.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import orjson
import pytest

import perdure.handlers.main as operator
from bench.counting import TALLY, CountedRequest, CountingClient
from perdure.kube.access import find_access
from perdure.kube.client import PERDURE, Client, Object, path
from support.cluster.namespace import Cluster, check_history
from support.manuals import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.bench, pytest.mark.alone, pytest.mark.own, pytest.mark.timeout(7200)]

ACTIVITIES = int(os.environ.get("PERDURE_ACTIVITIES", "10000"))
AT_ONCE = int(os.environ.get("PERDURE_AT_ONCE", "50"))
PORT = 18282
LARGEST = 256 * 1024
"""Bytes that no object of ours may reach."""


@contextmanager
def kubelet(namespace: Cluster) -> Any:
    environment = {
        **os.environ,
        "KUBECONFIG": str(namespace.kubeconfig),
        "PYTHONPATH": f"{REPOSITORY / 'operator'}:{REPOSITORY / 'tests'}",
    }
    program = [sys.executable, str(REPOSITORY / "tests" / "bench" / "kubelet.py"), namespace.namespace]
    process = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def operating(namespace: Cluster) -> AsyncIterator[None]:
    """The operator, in this process, for one namespace."""
    stop = asyncio.Event()
    options = operator.OperatorOptions(namespaces=(namespace.namespace,), port=PORT, log_level="warning")
    work = asyncio.create_task(operator.operate(options, find_access(), stop=stop))
    try:
        yield
    finally:
        stop.set()
        await work


def manifest() -> dict[str, Any]:
    pod = {"schedulerName": "simulated", "containers": [{"name": "main", "image": "none"}]}
    work = {"name": "work", "startToCloseTimeout": "1h", "podTemplate": {"spec": pod}}
    loop = {"items": f"${{lists.range({ACTIVITIES})}}", "maxConcurrency": AT_ONCE}
    steps = [
        {"name": "all", "forEach": loop, "activity": {"name": "work", "input": {"n": "${item}"}}},
        {"name": "end", "return": {"output": "done"}},
    ]
    return {"inline": {"activities": [work], "steps": steps}}


async def largest_while_it_runs(client: Client, namespace: Cluster) -> tuple[int, Object]:
    """Bytes of the largest state of the run that was seen, and the run, closed."""
    largest = 0
    while True:
        run = await client.get(path(PERDURE, namespace.namespace, "workflowruns", "long"))
        largest = max(largest, len(orjson.dumps(run)))
        if (run.get("status") or {}).get("completionTime"):
            return largest, run
        await asyncio.sleep(0.5)


async def test_an_activity_costs_the_same_at_the_end_of_a_long_run(
    namespace: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.setattr(operator, "Client", CountingClient)
    TALLY.requests.clear()
    with kubelet(namespace):
        async with operating(namespace), Client.open(find_access(), user_agent="perdure-bench") as client:
            namespace.start("long", manifest())
            begun = time.monotonic()
            largest, run = await largest_while_it_runs(client, namespace)
            spent = time.monotonic() - begun
    assert run["status"]["phase"] == "Completed", run["status"].get("failure")
    report(namespace, largest, spent)


def what(asked: CountedRequest) -> str:
    return f"{asked.verb} {asked.kind}"


def report(namespace: Cluster, largest_run: int, spent: float) -> None:
    run = namespace.with_history("long")
    check_history(run)
    events = run["status"]["history"]["events"]
    segments = namespace.segments(run)
    largest = max(largest_run, *(len(orjson.dumps(segment)) for segment in segments))
    writes = [asked for asked in TALLY.requests if asked.verb != "get"]
    created = [asked.moment for asked in writes if what(asked) == "post pods"]
    assert len(created) == ACTIVITIES
    made = created[AT_ONCE:]  # the first ones start together; from then on, one ends for each that starts
    tenth = len(made) // 10
    parts = {"first decile": (made[0], made[tenth]), "last decile": (made[-tenth - 1], made[-1])}
    print(
        f"\n{ACTIVITIES:,} activities, {AT_ONCE} at once, in {spent:,.0f} s: {len(events):,} events, {len(segments)} segments, "
        f"{sum(asked.size for asked in writes) / 2**20:,.1f} MiB sent; largest object {largest / 1024:,.0f} KiB "
        f"(run {largest_run / 1024:,.0f} KiB)"
    )
    cost: dict[str, float] = {}
    for part, (start, end) in parts.items():
        sent: Counter[str] = Counter()
        times: Counter[str] = Counter()
        for asked in writes:
            if start <= asked.moment < end:
                sent[what(asked)] += asked.size
                times[what(asked)] += 1
        cost[part] = sum(sent.values()) / tenth
        print(
            f"  {part}: {1000 * (end - start) / tenth:,.1f} ms, {cost[part]:,.0f} bytes and "
            f"{sum(times.values()) / tenth:.2f} writes for each activity"
        )
        for name, size in sent.most_common():
            print(f"    {times[name] / tenth:5.2f} x {name:24} {size / tenth:8,.0f} bytes")
    assert largest < LARGEST
    # Bytes, not time: they do not depend on the load of the machine, except for the size of a commit.
    assert cost["last decile"] < 1.5 * cost["first decile"]
