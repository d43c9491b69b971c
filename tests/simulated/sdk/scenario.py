"""Runs that SDK workers decide: workers and clients call the frontends of the operators, while all of them fail now and then."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from random import Random
from typing import Any

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import CHILD, activity, step
from simulated.sdk.acknowledged import Acknowledged
from simulated.sdk.activity_workers import ActivityWorker
from simulated.sdk.clients import Client
from simulated.sdk.eager import EagerTasks
from simulated.sdk.frontends import Caller, Frontends
from simulated.sdk.script import WORKFLOWS
from simulated.sdk.wires import Wires
from simulated.sdk.workflow_workers import WorkflowWorker
from simulated.world import World

_TOOLS = {"activities": [activity("steady"), activity("flaky")], "steps": [step("work", "steady")]}


class Crowd:
    """The workers and clients of a world. A worker that dies is replaced."""

    def __init__(self, world: World, frontends: Frontends) -> None:
        """The frontends are those of the operators."""
        self.acknowledged = Acknowledged(world.checker.fail)
        self._world = world
        self._frontends = frontends
        self._eager = EagerTasks()
        self._numbers = count()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start all workers and clients."""
        for kind in (WorkflowWorker, WorkflowWorker, ActivityWorker, ActivityWorker):
            self._tasks.append(asyncio.create_task(self._replace(kind)))
        for number in range(WORKFLOWS):
            client = Client(f"flow{number}", *self._process(f"client {number}"), self.acknowledged, self._eager)
            self._world.clients.append(asyncio.create_task(client.run()))

    def _process(self, name: str) -> tuple[Caller, Random]:
        random = self._world.random(name)
        return Caller(self._frontends, random), random

    async def _replace(self, kind: type[WorkflowWorker] | type[ActivityWorker]) -> None:
        while True:
            name = f"{kind.__name__}-{next(self._numbers)}"
            caller, random = self._process(name)
            fail = self._world.checker.fail
            await kind(name, caller, random, self.acknowledged, self._eager, fail=fail).run()
            self._world.trace(f"{name} has died", name)
            await asyncio.sleep(random.uniform(0.2, 8))

    def also(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something until the end."""
        self._tasks.append(asyncio.create_task(work))

    async def end(self) -> None:
        """End everyone."""
        everyone = [*self._tasks, *self._world.clients]
        for task in everyone:
            task.cancel()
        for ended in await asyncio.gather(*everyone, return_exceptions=True):
            if isinstance(ended, Exception):
                self._world.checker.fail(f"a worker or a client has failed: {ended!r}")


def pods(random: Random) -> Callable[[Object], ContainerExit]:
    """How the pods of activities end that workflows as code use."""

    def script(pod: Object) -> ContainerExit:
        after = random.choice([random.uniform(0, 0.5), random.uniform(0, 6)])
        if pod["metadata"]["labels"]["perdure.dev/activity"] == "flaky" and random.random() < 0.3:
            return ContainerExit(after=after, code=1, message='{"type": "Flaky", "message": "no"}')
        return ContainerExit(after=after)

    return script


async def _cut_off(world: World, wires: Wires) -> None:
    """Cut members of the fleet off from each other now and then, while the API server reaches both."""
    random = world.random("cuts")
    for _ in range(world.setting.kills):
        await asyncio.sleep(random.uniform(0, 40))
        names, seconds = [each.name for each in world.operators], random.choice([2, 8, 25])
        if len(names) > 1:
            wires.cut(*random.sample(names, 2), seconds)


@asynccontextmanager
async def crowd(world: World) -> AsyncIterator[None]:
    """Let SDK workers and clients call the operators that start within the block. What these acknowledge is checked at the end.

    Raises:
        ValueError: Several operators do not share the work. Operators that serve SDKs do: otherwise, one may reject a run whose
            start another one has acknowledged but not recorded.
    """
    if world.setting.operators > 1 and not world.setting.fleet:
        raise ValueError("several operators that serve SDKs share the work: add --fleet")
    wires = Wires(world.random("wires"), world.faults)
    world.frontends = frontends = Frontends(world.loop, wires, world.checker.fail)
    world.create("Workflow", "tools", _TOOLS)
    everyone = Crowd(world, frontends)
    everyone.begin()
    try:
        if world.setting.fleet:
            everyone.also(_cut_off(world, wires))
        yield
    finally:
        await everyone.end()
    everyone.acknowledged.check(world.runs().values(), world.checker.history)


async def code(world: World) -> None:
    """Workflows of SDK workers with activities by workers and by pods, timers, children, signals and updates; some are reset."""
    async with crowd(world):
        world.script = pods(world.random("script"))
        world.create("Workflow", "child", CHILD)
        world.begin()
        await world.trouble(90)
        await world.calm(120)
        await world.rest()
