"""Runs whose definitions copy parts of a library that is edited, damaged, and deleted while they start."""

import asyncio
from collections.abc import Iterator

from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.scenarios.definitions import activity, step
from simulated.world import World

_RUNS = 8
_EDITS = 12
_LIBRARY = ObjectKey("workflows", "default", "shared")


def _library(version: int) -> Object:
    """A library that has its version in an activity, in a block, and in a block that this one calls."""
    mark = {"image": "image", "command": ["work"], "args": [str(version)]}
    return {
        "activities": [activity("mark", container=mark)],
        "blocks": [
            {
                "name": "outer",
                "steps": [
                    {"name": "here", "set": {"here": version}},
                    {"name": "there", "call": {"block": "inner"}},
                ],
                "output": {"here": "${vars.here}", "there": "${steps.there.output}"},
            },
            {"name": "inner", "steps": [step("mark", "mark"), {"name": "v", "return": {"output": version}}]},
        ],
    }


_USER = {
    "activities": [{"name": "notify", "from": {"workflow": "shared", "activity": "mark"}, "startToCloseTimeout": "4m"}],
    "blocks": [{"name": "outer", "from": {"workflow": "shared"}}],
    "steps": [
        step("first", "notify"),
        {"name": "nap", "sleep": {"duration": "9s"}},
        {"name": "outer", "call": {"block": "outer"}},
        step("last", "notify"),
    ],
    "output": "${steps.outer.output}",
}


async def libraries(world: World) -> None:
    """A library is created late, edited, damaged, and replaced, while inline and other definitions that use it start."""
    random = world.random("libraries")
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 4))
    versions: dict[tuple[str, int], int] = {}
    """The version in each stored generation of the library, by UID."""

    def observe(write: Write) -> None:
        if write.key == _LIBRARY:
            meta, (mark,) = write.after["metadata"], write.after["spec"]["activities"]
            versions[meta["uid"], meta["generation"]] = int(mark["container"]["args"][0])

    world.server.observers.append(observe)
    world.begin()
    world.create("Workflow", "user", _USER)
    for i in range(_RUNS):
        spec = {"inline": _USER} if i % 2 else {"workflow": {"name": "user"}}
        world.loop.call_at(random.uniform(0, 50), world.create, "WorkflowRun", f"run{i}", spec)
    edits = asyncio.create_task(_edit(world))
    await world.trouble(60)
    await edits
    await world.calm(100)
    await world.rest()
    for name, run in world.runs().items():
        for problem in _problems(run, set(versions.values())):
            world.checker.fail(f"{name} {problem}")
    (ready,) = world.server.get(ObjectKey("workflows", "default", "user"))["status"]["conditions"]
    if ready["status"] != "True":
        world.checker.fail(f"the Workflow is not ready: {ready['reason']}: {ready['message']}")


async def _edit(world: World) -> None:
    """Change the library for a minute; in the end, it is valid."""
    random = world.random("edits")
    await asyncio.sleep(random.uniform(0, 8))
    world.create("Workflow", "shared", _library(0))
    for version in range(1, _EDITS):
        await asyncio.sleep(random.uniform(0.5, 6))
        kind = random.choice(("edit", "edit", "damage", "replace"))
        if kind == "replace":
            world.delete("workflows", "shared")
            await asyncio.sleep(random.uniform(0, 4))
            world.create("Workflow", "shared", _library(version))
            continue
        spec = _library(version)
        if kind == "damage":
            del spec["blocks"][version % 2]
        world.edit("workflows", "shared", lambda obj, spec=spec: obj.update(spec=spec))
    world.edit("workflows", "shared", lambda obj: obj.update(spec=_library(_EDITS)))


def _problems(run: Object, known: set[int]) -> Iterator[str]:
    """What is wrong with a closed run, which must use one version of the library."""
    status = run["status"]
    if status["phase"] != "Completed":
        yield f"is {status['phase']}: {status['conditions'][0].get('message')}"
        return
    used = {int(each["container"]["args"][0]) for each in status["definition"]["activities"]}
    used |= {status["output"]["here"], status["output"]["there"]}
    if len(used) != 1 or not used <= known:
        yield f"uses the versions {sorted(used)} of its library"
    (source,) = status["sources"]
    if source["workflow"] != "shared" or source["generation"] < 1:
        yield f"does not say what it uses: {source}"
