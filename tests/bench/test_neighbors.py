"""The effect of other namespaces: how long a small run without pods takes, from its creation to its end, while others
have invalid runs, heavy definitions, failing pods or many open runs.

Pods always load the machine of a kind cluster; the case with the same number of pods, but without runs, shows how much.

One of them opens runs as fast as it can. Its operator has low limits, which stop it: PERDURE_FLOOD_OPEN open runs in a namespace,
and as many finished ones (50 by default; retention keeps each for a minute, so measure for some minutes to see it).

PERDURE_NEIGHBORS scales their load: 1 is 1,000 invalid runs, 60 definitions of 600 expressions, 100 failing pods and 200
open runs (a twentieth by default). PERDURE_MEASURE_SECONDS sets how long each case is measured (5 by default).
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.process_figures import figure, memory
from perdure.api.reasons import ConditionReason
from perdure.kube import client as kube
from perdure.kube.access import find_access
from perdure.kube.client import Client
from support.cluster.namespace import Cluster, python, temporary_namespace
from support.sdk.server import Operator, serving

pytestmark = [pytest.mark.cluster, pytest.mark.bench, pytest.mark.alone, pytest.mark.timeout(3600)]

SCALE = float(os.environ.get("PERDURE_NEIGHBORS", "0.05"))
MEASURED = float(os.environ.get("PERDURE_MEASURE_SECONDS", "5"))
MOST = int(os.environ.get("PERDURE_FLOOD_OPEN", "50"))
FLOODING = 16
"""Runs that the neighbor creates at the same time."""
EXPRESSIONS = 600
PATIENCE = 300
"""Seconds after which a small run that has not ended fails the test."""

Json = dict[str, Any]


def invalid(_: int) -> Json:
    return {"steps": [{"name": "nap", "sleep": {"until": "2027-06-31T00:00:00Z"}}]}


def heavy(number: int) -> Json:
    """A unique definition."""
    texts = [f"${{input.a{number} + {n} > 3 ? [1, 2, 3].map(x, x * {n}) : [int(input.b)]}}" for n in range(EXPRESSIONS)]
    values = [texts[n : n + 6] for n in range(0, EXPRESSIONS, 6)]
    steps: list[Json] = [{"name": f"s{n}", "needs": [], "set": {"v": value}} for n, value in enumerate(values)]
    return {"steps": [*steps, {"name": "stay", "waitForSignal": {"name": "go"}}]}


def failing(_: int) -> Json:
    work = python("import sys; print('about to fail'); sys.exit(3)")
    retry = {"exponential": {"maximumAttempts": 1}}
    return {
        "activities": [{**work, "name": "work", "retryPolicy": retry}],
        "steps": [{"name": "work", "activity": {"name": "work"}}],
    }


def failing_pod(number: int) -> Json:
    """A pod without a run that fails like those of `failing`."""
    container = {**failing(number)["activities"][0]["container"], "name": "main"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"noise-{number}"},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def open_run(_: int) -> Json:
    return {"steps": [{"name": "stay", "waitForSignal": {"name": "go"}}]}


CASES: dict[str, tuple[Callable[[int], Json], int]] = {
    "nothing": (open_run, 0),
    "1,000 invalid runs": (invalid, 1_000),
    "60 heavy definitions": (heavy, 60),
    "100 failing pods": (failing, 100),
    "100 failing pods without runs": (failing_pod, 100),
    "200 open runs": (open_run, 200),
}
QUICK: Json = {
    "steps": [
        {"name": "double", "set": {"v": "${input * 2}"}},
        {"name": "end", "return": {"output": "${vars.v}"}},
    ]
}


@dataclass(frozen=True)
class Space:
    """A namespace, with its own connection."""

    client: Client
    namespace: str

    @property
    def url(self) -> str:
        return kube.path(kube.PERDURE, self.namespace, "workflowruns")

    async def create_pod(self, body: Json) -> None:
        await self.client.create(kube.path(kube.CORE, self.namespace, "pods"), body)

    async def create(self, name: str, definition: Json, **spec: Any) -> None:
        body = {
            "apiVersion": "perdure.dev/v1alpha1",
            "kind": "WorkflowRun",
            "metadata": {"name": name},
            "spec": {"inline": definition, **spec},
        }
        await self.client.create(self.url, body)

    async def time(self, name: str) -> float:
        """How long a small run takes, in seconds."""
        begun = time.monotonic()
        await self.create(name, QUICK, input=21)
        while time.monotonic() - begun < PATIENCE:
            status = (await self.client.get(f"{self.url}/{name}")).get("status") or {}
            if status.get("completionTime"):
                assert status["phase"] == "Completed", status["conditions"]
                return time.monotonic() - begun
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} has not ended")

    async def standings(self) -> "Standings":
        """How far its runs are."""
        runs = [run.get("status") or {} for run in await self.client.lists.all(self.url)]
        ended = sum("completionTime" in status for status in runs)
        opened = sum("completionTime" not in status and "state" in status for status in runs)
        waiting = sum(
            "state" not in status and status["conditions"][0]["reason"] == ConditionReason.TOO_MANY_OPEN_RUNS
            for status in runs
            if status.get("conditions")
        )
        return Standings(open=opened, waiting=waiting, ended=ended, total=len(runs))

    async def closed_or_reported(self) -> tuple[int, int]:
        """Of all runs: how many have ended, and how many have a condition."""
        runs = [run.get("status") or {} for run in await self.client.lists.all(self.url)]
        return sum("completionTime" in status for status in runs), sum("conditions" in status for status in runs)


@dataclass(frozen=True)
class Standings:
    """How far the runs of a namespace are."""

    open: int
    waiting: int
    """For others to close, because of the limit."""
    ended: int
    total: int

    @property
    def new(self) -> int:
        """Runs that the operator has not looked at."""
        return self.total - self.open - self.waiting - self.ended


@asynccontextmanager
async def space(cluster: Cluster) -> AsyncIterator[Space]:
    async with Client.open(find_access(), user_agent="perdure-bench", connections=16) as client:
        yield Space(client, cluster.namespace)


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Cluster]:
    """The namespace of the neighbors."""
    name = f"neighbors-{time.time_ns():x}"
    cluster("create", "namespace", name)
    try:
        yield Cluster(cluster.kubectl, cluster.kubeconfig, name)
    finally:
        cluster("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("case", CASES)
async def test_duration_of_a_small_run_next_to_noisy_neighbors(
    case: str, namespace: Cluster, other: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    make, count = CASES[case][0], round(CASES[case][1] * SCALE)
    async with space(namespace) as mine, space(other) as theirs:
        quiet = [await mine.time(f"quiet-{n}") for n in range(10)]

        async def create(number: int) -> None:
            if make is failing_pod:
                await theirs.create_pod(make(number))
            else:
                await theirs.create(f"noise-{number}", make(number))

        async def crowd() -> None:
            for begin in range(0, count, 10):
                await asyncio.gather(*map(create, range(begin, min(begin + 10, count))))

        begun = time.monotonic()
        noise = asyncio.create_task(crowd())
        taken: list[float] = []
        while time.monotonic() - begun < MEASURED or not noise.done():
            taken.append(await mine.time(f"small-{len(taken)}"))
        await noise
        ended, reported = await theirs.closed_or_reported()
        runs = 0 if make is failing_pod else count
        while (await theirs.closed_or_reported())[1] < runs:  # the operator reports each of them in some way
            assert time.monotonic() - begun < PATIENCE + MEASURED
            await asyncio.sleep(1)
        settled = time.monotonic() - begun
    before, taken = sorted(quiet), sorted(taken)
    p50, p99 = taken[len(taken) // 2], taken[min(len(taken) - 1, int(len(taken) * 0.99))]
    print(
        f"  with {count:,} of {case}: {len(taken)} small runs, p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms,"
        f" largest {taken[-1] * 1e3:.0f} ms; before: p50 {before[5] * 1e3:.0f} ms, largest {before[-1] * 1e3:.0f} ms;"
        f" of theirs {reported} had a condition then, {ended} had ended, all had one after {settled:.0f} s"
    )


@pytest.fixture
def limited(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Operator, Cluster]]:
    """An operator with low limits, and the namespace of the neighbor, which it serves as well."""
    limits = {"PERDURE_OPEN_RUNS": str(MOST), "PERDURE_FINISHED_RUNS": str(MOST)}
    with (
        temporary_namespace(cluster, excluded=True) as neighbor,
        serving(cluster, tmp_path / "log", neighbor.namespace, **limits) as operator,
    ):
        yield operator, neighbor


async def test_a_tenant_that_opens_runs_as_fast_as_it_can(
    limited: tuple[Operator, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of its runs end soon, and half stay open, until the limit of open runs stops both."""
    operator, neighbor = limited
    monkeypatch.setenv("KUBECONFIG", str(neighbor.kubeconfig))
    async with space(operator.cluster) as mine, space(neighbor) as theirs:
        quiet = [await mine.time(f"quiet-{n}") for n in range(10)]
        memory_before = memory(operator)
        flooding, created, peak = True, 0, 0

        async def flood() -> None:
            nonlocal created
            while flooding:
                number, created = created, created + 1
                await theirs.create(f"noise-{number}", open_run(number) if number % 2 else QUICK, input=21)

        begun = time.monotonic()
        noise = asyncio.gather(*(flood() for _ in range(FLOODING)))
        taken: list[float] = []
        while time.monotonic() - begun < MEASURED or created < 4 * MOST:
            taken.append(await mine.time(f"small-{len(taken)}"))
            peak = max(peak, memory(operator))
        flooding = False
        await noise
        took = time.monotonic() - begun
        while (found := await theirs.standings()).new:  # until the operator has looked at each of them
            assert time.monotonic() - begun < PATIENCE + MEASURED
            peak = max(peak, memory(operator))
            await asyncio.sleep(1)
        settled = time.monotonic() - begun
        waiting = await figure(operator, 'perdure_runs_waiting_for_capacity{cause="OpenRuns"}')
        afterwards = [await mine.time(f"after-{n}") for n in range(10)]
    assert found.open <= MOST
    assert found.waiting == waiting > 0
    print(
        f"  {created:,} runs created at {created / took:.0f}/s, all looked at after {settled:.0f} s: {found.open:,} open"
        f" (limit {MOST:,}), {found.waiting:,} wait for it, {found.ended:,} ended, {created - found.total:,} deleted by retention"
    )
    for what, figures in (("before", quiet), ("meanwhile", taken), ("afterwards", afterwards)):
        ordered = sorted(figures)
        p50, p99 = (ordered[int(len(ordered) * share)] * 1e3 for share in (0.5, 0.99))
        print(
            f"  {len(ordered)} small runs {what}: p50 {p50:.0f} ms, p99 {p99:.0f} ms, largest {ordered[-1] * 1e3:.0f} ms"
        )
    print(f"  memory of the operator: {memory_before / 2**20:.0f} MiB before, {peak / 2**20:.0f} MiB at most")
