"""Costs in requests to the API server, counted in memory: `PYTHONPATH=operator:tests python -m bench.request_costs`.

Prints one line for each: requests, and bytes of their bodies and of their responses, per run, step, or start. Only requests of
the operators count: not the watches, and not what they do once a minute or second, however much there is. With `--operators 3`,
three share the work.
"""

import argparse
import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import structlog
from temporalio import activity, workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.simulation.cluster.apiserver import ApiServer, Request, Response
from perdure.simulation.cluster.store import Object
from simulated.world import Setting, World, simulate
from support.fleet import ServedFleet, in_memory_fleet
from support.sdk.memory import InMemory, serving_in_memory

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

RUNS = 100
_KINDS = {
    "workflowruns",
    "pods",
    "schedules",
    "operations",
    "retrypolicies",
    "workflowlimits",
    "webhooks",
    "payloads",
    "artifactsets",
    "cachedresults",
    "configmaps",
}
"""What is listed again and again."""
_WORK = {"name": "work", "startToCloseTimeout": "5m", "container": {"image": "image", "command": ["work"]}}


class Count:
    """Requests since it was cleared."""

    def __init__(self) -> None:
        """Count all requests from now on."""
        self.requests: Counter[str] = Counter()
        self.sent = self.received = 0
        handle = ApiServer.handle

        def counted(server: ApiServer, request: Request) -> Response:
            response = handle(server, request)
            path = request.url.partition("?")[0].rstrip("/")
            is_periodic = request.method == "GET" and path.split("/")[-1] in _KINDS
            if not is_periodic and "/leases" not in path:
                parts = path.split("/")
                kind = parts[parts.index("namespaces") + 2] if "namespaces" in parts[:-2] else parts[-1]
                self.requests[f"{request.method} {kind}"] += 1
                self.sent += len(request.body)
                self.received += len(response.body)
            return response

        ApiServer.handle = counted  # type: ignore[method-assign,assignment]

    def clear(self) -> None:
        self.requests.clear()
        self.sent = self.received = 0

    def show(self, what: str, number: int) -> None:
        total = self.requests.total() / number
        each = ", ".join(
            f"{name} {count / number:.2f}" for name, count in self.requests.most_common() if count >= number / 20
        )
        print(
            f"{what}: {total:.2f} requests, {self.sent / number:.0f} B sent, {self.received / number:.0f} B received ({each})"
        )


def steps(number: int, step: Callable[[int], Object]) -> Object:
    return {"inline": {"activities": [_WORK], "steps": [step(n) for n in range(number)]}}


def nap(number: int) -> Object:
    return {"name": f"nap-{number}", "sleep": {"duration": "5s"}}


def work(number: int) -> Object:
    return {"name": f"work-{number}", "activity": {"name": "work"}}


def of_workflows(count: Count, operators: int) -> None:
    """Runs of Workflows, in virtual time."""
    setting = Setting(seed=1, operators=operators, fleet=operators > 1, faults=0, kills=0)
    for what, spec in {
        "a run with one sleep": steps(1, nap),
        "a run with eleven sleeps": steps(11, nap),
        "a run with one activity in a pod": steps(1, work),
        "a run with eleven activities in pods": steps(11, work),
    }.items():

        async def scenario(world: World, what: str = what, spec: Object = spec) -> None:
            world.begin()
            await asyncio.sleep(15)
            count.clear()
            for number in range(RUNS):
                world.create("WorkflowRun", f"run-{number}", spec)
            await asyncio.sleep(600)
            assert all(run["status"]["phase"] == "Completed" for run in world.runs().values())
            count.show(what, RUNS)

        simulate(scenario, setting)

    async def schedules(world: World) -> None:
        world.begin()
        spec = {"intervals": [{"every": "60s"}], "workflowRunTemplate": {"spec": steps(1, nap)}}
        world.create("Schedule", "each-minute", spec)
        await asyncio.sleep(65)
        count.clear()
        await asyncio.sleep(RUNS * 60)
        count.show("a start by a Schedule, with a run with one sleep", RUNS)

    simulate(schedules, setting)


@activity.defn
async def echo(number: int) -> int:
    return number


@workflow.defn
class Calls:
    @workflow.run
    async def run(self, number: int) -> None:
        for each in range(number):
            await workflow.execute_activity(echo, each, start_to_close_timeout=timedelta(seconds=10))


async def of_code(count: Count, operators: int) -> None:
    """Workflows of an SDK, one after the other, in real time."""
    serving: AbstractContextManager[InMemory | ServedFleet]
    serving = serving_in_memory() if operators == 1 else in_memory_fleet(operators)
    with serving as server:
        client = await server.connect()
        worker = Worker(
            client,
            task_queue="costs",
            workflows=[Calls],
            activities=[echo],
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with worker:
            options: dict[str, Any] = {"task_queue": "costs"}
            await client.execute_workflow(Calls.run, 1, id="warm", **options)
            for number in (1, 11):
                count.clear()
                for run in range(RUNS // 5):
                    await client.execute_workflow(Calls.run, number, id=f"calls-{number}-{run}", **options)
                count.show(f"a workflow of code with {number} activities", RUNS // 5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="request_costs", description=__doc__)
    parser.add_argument("--operators", type=int, default=1, help="how many share the work (default: %(default)s)")
    chosen = parser.parse_args().operators
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    counting = Count()
    of_workflows(counting, chosen)
    asyncio.run(of_code(counting, chosen))
