"""What a fleet costs: the CPU time of all its members for each SDK workflow and for each run without pods, by their number."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from temporalio.client import Client

from bench.costs import ApiServerCosts
from bench.fleets import Member, started, wait
from bench.hello import greet_all, working
from bench.results import Result
from bench.schedules import QUICK, create_all
from perdure.controller.fleet.shards import SHARDS
from support.cluster.namespace import Cluster, run_manifest, temporary_namespace
from support.sdk.server import Operator

FLEETS: Final = (1, 2, 3)
WORKERS: Final = 6
"""Workers, each with a connection of its own, which are spread over the members as a Service does."""
WORKFLOWS: Final = 50
"""Workflows of each worker."""
RUNS: Final = 300


async def measure_members(operator: Operator) -> list[Result]:
    """Run workflows and runs in fleets of one, two, and three members. The first figures are those to compare with."""
    results: list[Result] = []
    first: list[Result] = []
    for number in FLEETS:
        with (
            temporary_namespace(operator.cluster, excluded=True) as namespace,
            TemporaryDirectory() as folder,
            started(namespace, Path(folder), number) as members,
        ):
            await asyncio.to_thread(wait, members, lambda: _is_complete(members))
            found = [*await _sdk(namespace, members), *await _yaml(namespace, members)]
        first = first or found
        for result, alone in zip(found, first, strict=True):
            compared = ("one member", alone.figure) if number > 1 else ("", None)
            results.append(Result(f"{number} members: {result.what}", result.unit, result.figure, *compared))
    return results


def _is_complete(members: Sequence[Member]) -> bool:
    if sum(each.check() for each in members) < len(members):
        return False
    found = [each.metrics() for each in members]
    return len(members) == 1 or (
        all(each["perdure_fleet_members"] == len(members) for each in found)
        and sum(each["perdure_fleet_shards"] for each in found) == SHARDS
    )


def _cpu(members: Sequence[Member]) -> float:
    """Milliseconds of CPU time that all members have used."""
    return sum(1000 * each.metrics()["process_cpu_seconds_total"] for each in members)


async def _sdk(namespace: Cluster, members: Sequence[Member]) -> list[Result]:
    addresses = islice(cycle(each.address for each in members), WORKERS)
    async with AsyncExitStack() as stack:
        clients = [await Client.connect(each, namespace=namespace.namespace) for each in addresses]
        queues = [await stack.enter_async_context(working(each)) for each in clients]
        pairs = list(zip(clients, queues, strict=True))
        await asyncio.gather(
            *(greet_all(client, queue, 5, 5) for client, queue in pairs)
        )  # caches are warm from here on
        api, before = ApiServerCosts(namespace), _cpu(members)
        took = max(found[0] for found in await asyncio.gather(*(greet_all(*each, WORKFLOWS, 4) for each in pairs)))
        await asyncio.sleep(2)  # the last Events are written a moment later
        spent, (api_cpu, requests) = _cpu(members) - before, api.spent()
    number = WORKERS * WORKFLOWS
    return [
        Result("CPU of all members for each SDK workflow", "ms", spent / number),
        Result("SDK workflows", "/s", number / took),
        Result("CPU of the API server for each SDK workflow", "ms", api_cpu / number),
        Result("requests for each SDK workflow", "", requests / number),
    ]


async def _yaml(namespace: Cluster, members: Sequence[Member]) -> list[Result]:
    runs = [run_manifest(f"quick-{number}", {"inline": QUICK}) for number in range(RUNS)]
    api, before = ApiServerCosts(namespace), _cpu(members)
    await create_all("workflowruns", namespace.namespace, runs)
    namespace.wait("all runs to close", lambda: _completed(namespace) == RUNS)
    await asyncio.sleep(2)
    spent, (api_cpu, requests) = _cpu(members) - before, api.spent()
    return [
        Result("CPU of all members for each YAML run", "ms", spent / RUNS),
        Result("CPU of the API server for each YAML run", "ms", api_cpu / RUNS),
        Result("requests for each YAML run", "", requests / RUNS),
        Result("memory of the largest member", "MiB", max(each.memory("Rss") for each in members)),
    ]


def _completed(namespace: Cluster) -> int:
    names = namespace("get", "workflowruns", "--field-selector=status.phase=Completed", "-o=name")
    return sum("quick-" in name for name in names.splitlines())
