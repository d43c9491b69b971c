"""The scenario of upgrades and rollbacks: two versions of the operator work on the same objects."""

import asyncio
from collections.abc import Callable

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.definitions import CHILD, FLOW, LOOP, PARENT
from simulated.newer import Forms
from simulated.world import World

_REPLACEMENTS = 6


async def upgrades(world: World) -> None:
    """Operators are replaced by newer and by older ones, while runs, families, chains, and a Schedule continue."""
    random, fail = world.random("upgrades"), world.checker.fail
    of_today = set[str]()

    def is_of_today(actor: str) -> bool:
        of_today.update(each.name for each in world.operators if not each.newer)
        of_today.difference_update(each.name for each in world.operators if each.newer)
        return actor in of_today

    forms = Forms(
        is_of_today,
        lambda write, wrong: fail(f"{write.time:.3f} {write.actor}: {write.key.plural} {write.key.name} {wrong}"),
    )
    world.server.observers.append(forms.observe)
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 8))
    world.begin()
    world.create("Workflow", "child", CHILD)
    world.create("Workflow", "loop", LOOP)
    template = {"spec": {"workflow": {"name": "child"}}}
    often = {"intervals": [{"every": "10s"}], "catchupWindow": "10m", "overlapPolicy": "AllowAll"}
    world.create("Schedule", "every", {**often, "workflowRunTemplate": template, "successfulRunsHistoryLimit": 100})
    for i in range(4):
        world.create("WorkflowRun", f"flow{i}", {"inline": FLOW})
        world.create("WorkflowRun", f"parent{i}", {"inline": PARENT})
        world.create("WorkflowRun", f"chain{i}", {"workflow": {"name": "loop"}, "input": {"n": 3}})
    await asyncio.sleep(random.uniform(2, 10))
    for newer in (True, False):  # an upgrade, and its rollback
        for operator in list(world.operators):
            await world.replace(operator, random.uniform(0, 3), newer=newer)
        await asyncio.sleep(10)
    for i in range(_REPLACEMENTS):
        await asyncio.sleep(random.uniform(2, 20))
        if i < 4:
            world.operate(f"go{i}", f"flow{i}", signal={"name": "go", "input": {"i": i}})
        await world.replace(random.choice(world.operators), random.uniform(0, 3), newer=random.random() < 0.6)
    for operator in [each for each in world.operators if not each.newer]:
        await world.replace(operator, random.uniform(0, 3), newer=True)
    await world.calm(world.loop.time())
    world.edit("schedules", "every", lambda obj: obj["spec"].update(paused=True))
    await world.rest()
    for name, run in world.runs().items():
        _check_end(name, run["status"], fail)
    if not forms.newer or not forms.met:
        fail(f"the newer form was written {forms.newer} times, and reported {forms.met} times")


def _check_end(name: str, status: Object, fail: Callable[[str], None]) -> None:
    if status["phase"] not in {"Completed", "ContinuedAsNew"}:
        fail(f"{name} is {status['phase']}: {status.get('failure')}")
    if name.startswith("flow") and status.get("output") != {"i": int(name.removeprefix("flow"))}:
        fail(f"{name} has the output {status.get('output')}")
    if any(each["reason"] == "NewerState" for each in status["conditions"]):
        fail(f"{name} still reports that it cannot be read")
