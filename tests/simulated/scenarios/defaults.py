"""Runs that take the defaults of their namespace, which are edited, deleted, and created again while the runs start and go on."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from perdure.api import labels
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.scenarios.definitions import activity, step
from simulated.world import World

_RUNS = 8
_EDITS = 12
_DEFAULTS = ObjectKey("workflowdefaults", "default", "default")
_LIBRARY: Object = {
    "blocks": [{"name": "notify", "steps": [step("tell", "tell", input="${params}")]}],
    "activities": [activity("tell")],
}
_USER: Object = {
    "activities": [activity("work")],
    "steps": [
        step("first", "work"),
        {"name": "nap", "sleep": {"duration": "15s"}},
        step("second", "work"),
        {"name": "stop", "fail": {"type": "Stopped", "message": "as planned"}},
    ],
}


def _defaults(version: int) -> Object:
    """Defaults that have their version in the labels of runs and pods, and in the handler of failures."""
    labelled = {"labels": {"version": str(version)}}
    return {
        "onFailure": {"workflow": "library", "block": "notify", "input": str(version)},
        "runMetadata": labelled,
        "activities": {"podTemplate": {"metadata": labelled}},
    }


async def defaults(world: World) -> None:
    """A namespace has defaults, sometimes none, while runs start and operators die."""
    random = world.random("defaults")
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 4))
    used: defaultdict[str, set[str | None]] = defaultdict(set)
    """The versions of the defaults in the pods of each run, and in the input of its handler, by UID."""

    def observe(write: Write) -> None:
        if write.key.plural == "pods" and write.type == "ADDED":
            meta = write.after["metadata"]
            of_run = used[meta["labels"][labels.RUN_ID_LABEL]]
            of_run.add(meta["labels"].get("version"))
            if meta["labels"][labels.ACTIVITY_LABEL] == "tell":
                of_run.add(meta["annotations"][labels.INPUT_ANNOTATION].strip('"'))

    world.server.observers.append(observe)
    world.begin()
    world.create("Workflow", "library", _LIBRARY)
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
        for problem in _problems(run, used[run["metadata"]["uid"]]):
            world.checker.fail(f"{name} {problem}")


async def _edit(world: World) -> None:
    """Change the defaults for a minute."""
    random = world.random("edits")
    for version in range(_EDITS):
        await asyncio.sleep(random.uniform(0.5, 6))
        if _DEFAULTS not in world.server.objects:
            world.create("WorkflowDefaults", "default", _defaults(version))
        elif random.random() < 0.2:
            world.delete("workflowdefaults", "default")
        else:
            spec = _defaults(version)
            world.edit("workflowdefaults", "default", lambda obj, spec=spec: obj.update(spec=spec))


def _problems(run: Object, used: set[str | None]) -> Iterator[str]:
    """What is wrong with a closed run, all of which uses the defaults with which it started.

    The labels of the run itself are written before the start is: if that start is lost, the next one may find other defaults, and
    keeps the labels that the run has.
    """
    if run["status"]["phase"] != "Failed":
        yield f"is {run['status']['phase']}: {run['status']['conditions'][0].get('message')}"
        return
    if len(used) != 1:
        yield f"has pods and a handler of several versions of the defaults: {sorted(map(str, used))}"
