"""Attempts whose containers outlast them: programs that ignore SIGTERM, and nodes that are lost."""

import asyncio
from functools import partial
from random import Random
from typing import Any, Final

from perdure.api import labels
from perdure.simulation.cluster.kubelet import ContainerExit, grace_seconds
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import activity, step
from simulated.scenarios.limits import ActivityWatch, check_free
from simulated.world import World

LOST_SECONDS: Final = 90
"""How long a lost node stays silent after the grace period of a pod."""
_LAST: Final = 4
"""This attempt of each activity ends by itself."""
_RETRY: Final = {"exponential": {"initialInterval": "1s", "maximumInterval": "3s"}}


def stubborn(name: str, **more: Any) -> Object:
    """An activity with a short timeout, whose pods have 20 s to stop."""
    patch = {"terminationGracePeriodSeconds": 20}
    return activity(name, **{"startToCloseTimeout": "8s", "retryPolicy": _RETRY, "podSpecPatch": patch, **more})


ACTIVITIES: Final = {
    "alone": stubborn("alone"),
    "quick": stubborn("quick", podReplacementPolicy="TerminatingOrFailed"),
    "guarded": stubborn("guarded", limits=[{"name": "mutex"}]),
    "stranded": stubborn("stranded"),
}


class Outlasting:
    """The script of pods that hang in most of their attempts, and of how they stop."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._stops: dict[str, float] = {}
        """By UID, how long a pod runs after its grace period."""

    def script(self, pod: Object) -> ContainerExit:
        """Hang, unless it is the last attempt; ignore SIGTERM, or be on a lost node."""
        meta = pod["metadata"]
        kind, attempt = meta["labels"][labels.ACTIVITY_LABEL], int(meta["annotations"][labels.ATTEMPT_ANNOTATION])
        lost = self._random.random() < {"stranded": 0.5, "guarded": 0.2}.get(kind, 0.0)
        hangs = self._random.random() < 0.7 and attempt < _LAST
        if hangs and lost:
            self._stops[meta["uid"]] = LOST_SECONDS
        elif self._random.random() < 0.7:
            self._stops[meta["uid"]] = 0
        return ContainerExit(after=None if hangs else self._random.uniform(0.5, 6))

    def stops(self, pod: Object) -> float | None:
        """When the pod stops after its deletion."""
        extra = self._stops.get(pod["metadata"]["uid"])
        return None if extra is None else grace_seconds(pod) + extra


async def replacements(world: World) -> None:
    """Attempts time out, are lost, or are failed by a client, while their containers run on; some of them hold a mutex."""
    random, pods = world.random("replacements"), Outlasting(world.random("outlasting"))
    world.script, world.stops = pods.script, pods.stops
    world.checker.attempts.may_overlap = {"quick"}
    world.checker.attempts.exclusive = {"guarded"}
    ActivityWatch(world).takes = {"guarded": [("mutex", "")]}
    world.begin()
    world.create("WorkflowLimit", "mutex", {"capacity": 1})
    steps = [step(kind, kind, input={}) | {"needs": []} for kind in ACTIVITIES]
    names = [f"run{i}" for i in range(5)]
    world.checker.failed_by_clients = set(names[:2])
    for name in names:
        await asyncio.sleep(random.uniform(0, 3))
        world.create("WorkflowRun", name, {"inline": {"activities": list(ACTIVITIES.values()), "steps": steps}})
    for i in range(8):
        failed = {"step": random.choice(list(ACTIVITIES)), "failure": {"type": "Asked", "message": "by a client"}}
        fail = partial(world.operate, f"fail{i}", random.choice(names[:2]), completeActivity=failed)
        world.loop.call_later(random.uniform(0, 60), fail)
        world.loop.call_later(random.uniform(0, 60), _lose_pod, world, random)
    await world.trouble(80)
    await world.calm(200)
    await world.rest()
    for name in names:
        if world.run(name)["status"]["phase"] != "Completed":
            world.checker.fail(f"{name} is {world.run(name)['status']['phase']}")
    check_free(world)


def _lose_pod(world: World, random: Random) -> None:
    live = [pod["metadata"]["name"] for pod in world.server.of("pods") if "deletionTimestamp" not in pod["metadata"]]
    if live:
        world.delete("pods", random.choice(live))
