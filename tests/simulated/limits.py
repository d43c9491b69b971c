"""Runs that take WorkflowLimits, and a check at every write that there are never more of them than there is room for."""

import asyncio
from collections import defaultdict
from random import Random
from typing import Any

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.object_store import Write
from simulated.world import World

_CAPACITY = {"pool": 3, "mutex": 1}


def work(*limits: dict[str, Any]) -> dict[str, Any]:
    activity = {"name": "work", "container": {"image": "i"}, "startToCloseTimeout": "5m"}
    steps = [{"name": "work", "activity": {"name": "work"}}, {"name": "more", "activity": {"name": "work"}}]
    return {"limits": list(limits), "activities": [activity], "steps": steps}


class LimitWatch:
    """Checks at every write that no more runs are open, or have pods, than their limits have room for."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.takes: dict[str, list[tuple[str, str]]] = {}
        """By name of a run, the limits that it takes, and the keys."""
        self.began: list[str] = []
        self._open: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._pods: defaultdict[str, set[str]] = defaultdict(set)
        world.server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        after = write.after
        if write.key.plural == "pods":
            name = after["metadata"]["annotations"]["perdure.dev/run"]
            ended = write.type == "DELETED" or after["status"]["phase"] in {"Succeeded", "Failed"}
            (self._pods[name].discard if ended else self._pods[name].add)(write.key.name)
        elif write.key.plural == "workflowruns":
            name, status = write.key.name, after.get("status") or {}
            if status.get("state") and name not in self.began:
                self.began.append(name)
            is_open = bool(status.get("state")) and not status.get("completionTime") and write.type != "DELETED"
            for taken in self.takes.get(name, ()):
                (self._open[taken].add if is_open else self._open[taken].discard)(name)
        for name in {each for taken in self._open.values() for each in taken} | set(self._pods):
            for taken in self.takes.get(name, ()):
                self._check(taken, write)

    def _check(self, taken: tuple[str, str], write: Write) -> None:
        busy = self._open[taken] | {
            name for name, pods in self._pods.items() if pods and taken in self.takes.get(name, ())
        }
        if len(busy) > _CAPACITY[taken[0]]:
            self.world.checker.fail(f"{write.time:.3f} {write.actor}: {taken} is taken by {sorted(busy)}")


async def limits(world: World) -> None:
    """Runs that take a semaphore, a mutex for one of three keys, or both; some are terminated or deleted."""
    watch, random = LimitWatch(world), world.random("limits")
    world.script = lambda _pod: ContainerExit(after=random.uniform(0.5, 6))
    world.begin()
    for name, capacity in _CAPACITY.items():
        world.create("WorkflowLimit", name, {"capacity": capacity})
    names = []
    for i in range(24):
        await asyncio.sleep(random.uniform(0, 1.5))
        names.append(_start(world, watch, random, i))
    terminated, deleted = random.sample(names, 6), random.sample(names, 3)
    for name in terminated:
        world.loop.call_at(
            world.loop.time() + random.uniform(0, 60), lambda n=name: world.operate(f"end-{n}", n, terminate={})
        )
    for name in deleted:
        world.checker.named_again.add(name)
        world.loop.call_at(world.loop.time() + random.uniform(0, 60), lambda n=name: world.delete("workflowruns", n))
    await world.trouble(60)
    await world.calm(300)
    await world.rest()
    for name in set(names) - set(terminated) - set(deleted):
        if world.run(name)["status"]["phase"] != "Completed":
            world.checker.fail(f"{name} is {world.run(name)['status']['phase']}")
    for name in _CAPACITY:
        status = world.server.objects[next(k for k in world.server.objects if k.name == name)]["status"]
        if status["holders"] or status["waiters"]:
            world.checker.fail(f"in the end, {name} has {status['holders']} and {status['waiters']}")


def _start(world: World, watch: LimitWatch, random: Random, number: int) -> str:
    """Start a run that takes one or both limits; the mutex for one of three keys."""
    name, key = f"run{number:02}", random.choice("abc")
    takes = random.choice([["pool"], ["mutex"], ["mutex", "pool"]])
    watch.takes[name] = [(limit, key if limit == "mutex" else "") for limit in takes]
    limits = [{"name": limit, "key": "${input.key}" if limit == "mutex" else ""} for limit in takes]
    world.create("WorkflowRun", name, {"inline": work(*limits), "input": {"key": key}})
    return name
