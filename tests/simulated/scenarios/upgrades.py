"""The scenario of upgrades and rollbacks: operators of different versions work on the same objects."""

import asyncio
from collections.abc import Callable

from perdure.api.state_versions import NEWEST, version_of
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import CHILD, FLOW, LOOP, PARENT
from simulated.world import RECORD, World
from support.faulty.newer import HOLD_BACK, NEWER, OLDER, Forms

_REPLACEMENTS = 6


async def upgrades(world: World) -> None:
    """Operators are upgraded, rolled back in time, upgraded again, and rolled back too late, while all kinds of runs continue."""
    random, fail = world.random("upgrades"), world.checker.fail
    forms = world.share_versions()
    old, new = random.choice([(OLDER, NEWEST), (NEWEST, NEWER)])
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 8))
    world.begin(reads=old)
    world.create("Workflow", "child", CHILD)
    world.create("Workflow", "loop", LOOP)
    world.create("WorkflowLimit", "oven", {"capacity": 1})
    template = {"spec": {"workflow": {"name": "child"}}}
    often = {"intervals": [{"every": "60s"}], "catchupWindow": "10m", "overlapPolicy": "AllowAll"}
    world.create("Schedule", "every", {**often, "workflowRunTemplate": template, "successfulRunsHistoryLimit": 100})
    _start_runs(world, "a")
    await asyncio.sleep(random.uniform(2, 10))
    await _replace_all(world, new)
    await asyncio.sleep(random.uniform(0, HOLD_BACK / 2))
    await _replace_all(world, old)  # a rollback in time: the old operators can read everything
    _check_all_readable(world, old)
    _start_runs(world, "b")
    await asyncio.sleep(random.uniform(2, 20))
    await _replace_all(world, new)
    if random.random() < 0.5:
        forms.finishing = True
        await _finish(world, new)
    else:
        await asyncio.sleep(HOLD_BACK + 60)
    _start_runs(world, "c")
    await asyncio.sleep(random.uniform(10, 20))
    await world.replace(
        random.choice(world.operators), random.uniform(0, 3), reads=old
    )  # a rollback that comes too late
    await asyncio.sleep(30)
    for i in range(_REPLACEMENTS):
        await asyncio.sleep(random.uniform(2, 20))
        if i < 2:
            for group in "abc":
                world.operate(f"go-{group}{i}", f"flow-{group}{i}", signal={"name": "go", "input": {"i": i}})
        await world.replace(
            random.choice(world.operators), random.uniform(0, 3), reads=new if random.random() < 0.6 else old
        )
    await _replace_all(world, new)
    await world.calm(world.loop.time())
    world.edit("schedules", "every", lambda obj: obj["spec"].update(paused=True))
    await world.rest()
    for name, run in world.runs().items():
        _check_end(name, run["status"], fail)
    _check_met(forms, new, fail, always=not world.setting.fleet)


def _start_runs(world: World, group: str) -> None:
    limited = {**FLOW, "limits": [{"name": "oven"}]}
    world.create("WorkflowRun", f"flow-{group}0", {"inline": FLOW})
    world.create("WorkflowRun", f"flow-{group}1", {"inline": limited})
    world.create("WorkflowRun", f"parent-{group}", {"inline": PARENT})
    world.create("WorkflowRun", f"chain-{group}", {"workflow": {"name": "loop"}, "input": {"n": 3}})


async def _replace_all(world: World, reads: int) -> None:
    """Replace all operators by those of another version, one after the other."""
    random = world.random(f"replacements at {world.loop.time()}")
    for operator in [each for each in world.operators if each.reads != reads]:
        await world.replace(operator, random.uniform(0, 3), reads=reads)


async def _finish(world: World, version: int) -> None:
    """Finish an upgrade on request, as `perdure fleet --finish-upgrade` does, once the operators have recorded it."""
    for _ in range(60):
        await asyncio.sleep(2)
        found = [each for each in world.server.of("configmaps") if each["metadata"]["name"] == RECORD]
        if found and found[0]["data"].get("next") == str(version):
            world.edit("configmaps", RECORD, lambda obj: obj["data"].update(finish=str(version)))
            await asyncio.sleep(30)
            return
    world.checker.fail(f"no operator has recorded the upgrade to state version {version}")


def _check_all_readable(world: World, reads: int) -> None:
    for plural in ("workflowruns", "schedules", "workflowlimits"):
        for obj in world.server.of(plural):
            if version_of(obj.get("status") or {}) > reads:
                world.checker.fail(
                    f"{plural} {obj['metadata']['name']} cannot be read after a rollback during the hold-back"
                )


def _check_end(name: str, status: Object, fail: Callable[[str], None]) -> None:
    if status["phase"] not in {"Completed", "ContinuedAsNew"}:
        fail(f"{name} is {status['phase']}: {status.get('failure')}")
    if name.startswith("flow-") and status.get("output") != {"i": int(name[-1])}:
        fail(f"{name} has the output {status.get('output')}")
    if any(each["reason"] == "NewerState" for each in status["conditions"]):
        fail(f"{name} still reports that it cannot be read")


def _check_met(forms: Forms, new: int, fail: Callable[[str], None], *, always: bool) -> None:
    """Check that the new form was written, or a later one that the world of mixed versions has finished the upgrade to, and that
    operators have met what they cannot read: `always`, or by chance.
    """
    written = sum(number for version, number in forms.written.items() if version >= new)
    if not written or (always and not forms.met):
        fail(f"state version {new} was written {written} times, and reported {forms.met} times")
