"""Finished runs leave the cluster for an archive that fails, while operators are killed between the write and the deletion.

The archive is a table or consists of files.
"""

import asyncio
from collections.abc import Callable

from perdure.runtime.retention import Limits
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.archive import Faults, SimulatedFiles, SimulatedTable
from simulated.checks.archive import ArchiveChecks
from simulated.scenarios.definitions import CHILD, LOOP, PARENT, activity, step
from simulated.world import World

_RUNS = 40
_LASTING = 150.0
_KEPT = 30
"""Finished runs that the namespace may keep: some go before their time to live."""


async def archive(world: World) -> None:
    """Runs of all kinds finish, are edited afterwards, and expire."""
    random = world.random("archive")
    world.limits = Limits(runs=_KEPT, size=0)
    # A batch of files takes a hundred requests, which the library of the bucket repeats.
    form, rate = random.choice([(SimulatedTable, 3.0), (SimulatedFiles, 0.2)])
    faults = Faults(world.loop, world.random("store"), rate=rate * world.setting.faults)
    world.archive = store = form(faults)
    checks = ArchiveChecks(world.server, store, world.checker.fail)
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 4))
    world.begin()
    for name, spec in (("child", CHILD), ("loop", LOOP)):
        world.create("Workflow", name, spec)
    kinds: list[Object] = [
        {"inline": {"steps": [{"name": "one", "set": {"number": 1}}]}},
        {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "20s"}}]}},
        {"inline": {"activities": [activity("work")], "steps": [step("work", "work")]}},
        {"workflow": {"name": "loop"}, "input": {"n": 2}},
        {"inline": PARENT},
    ]
    for number in range(_RUNS):
        name = f"run{number:02}"
        spec = {**random.choice(kinds), "ttlSecondsAfterFinished": random.choice([0, 0, 20, 90, 9_000])}
        begin = random.uniform(0, _LASTING)
        world.loop.call_at(begin, world.create, "WorkflowRun", name, spec)
        for _ in range(random.choice([0, 0, 1, 3])):
            world.loop.call_at(
                begin + random.uniform(5, 60), world.edit, "workflowruns", name, _annotated(random.random())
            )
    for _ in range(random.choice([0, 1, 2])):
        at = random.uniform(0, _LASTING)
        faults.outages.append((at, at + random.choice([3, 30, 120])))
    await world.trouble(_LASTING)
    await world.calm(max([_LASTING + 60, *(end + 60 for _, end in faults.outages)]))
    await asyncio.sleep(300)  # the runs that expire soon are gone, and those with hours to live stay
    await world.rest()
    checks.finish()


def _annotated(value: float) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        obj["metadata"].setdefault("annotations", {})["note"] = str(value)

    return change
