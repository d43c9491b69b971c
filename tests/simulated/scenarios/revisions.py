"""Runs of a Workflow that is edited, deleted, and created again, while revisions that nothing needs are deleted at once."""

import asyncio
import itertools
from datetime import timedelta
from random import Random

from perdure.controller.workflows.revisions import LOOK_SECONDS, RevisionRetention
from perdure.simulation.cluster.apiserver import Request
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import activity, step
from simulated.world import World

_VERSIONS = 3
_LOOKS = 10
_RUNS = 80


def _workflow(version: int) -> Object:
    """A definition that has its version in an activity, and in its output at the end."""
    mark = {"image": "image", "command": ["work"], "args": [str(version)]}
    return {
        "activities": [activity("mark", container=mark)],
        "steps": [
            {"name": "begin", "set": {"begun": version}},
            {"name": "nap", "when": "${input.nap != '0s'}", "sleep": {"duration": "${input.nap}"}},
            step("mark", "mark") | {"when": "${input.work}"},
        ],
        "output": {"begun": "${vars.begun}", "ended": version},
    }


def _run(random: Random) -> Object:
    inputs = {"nap": random.choice(["0s", "0s", "0s", "20s", "90s"]), "work": random.random() < 0.1}
    return {"workflow": {"name": "edited"}, "input": inputs, "ttlSecondsAfterFinished": random.choice([0, 0, 60])}


async def revisions(world: World) -> None:
    """Runs start while nothing, or only a sleeping run, needs the revision that they start with."""
    world.revisions = RevisionRetention(history=0, unused_for=timedelta(0))
    random = world.random("revisions")
    world.script = lambda _: ContainerExit(after=random.uniform(0.1, 4))
    world.begin()
    lasting = LOOK_SECONDS * _LOOKS
    for i in range(_RUNS):
        # Most of them start when the operators look for unused revisions, or soon after.
        at = random.randrange(_LOOKS) * LOOK_SECONDS + random.uniform(0, random.choice([3, 3, LOOK_SECONDS]))
        world.loop.call_at(at, world.create, "WorkflowRun", f"run{i:03}", _run(random))
    _interfere(world, lasting)
    users = asyncio.create_task(_edit(world, lasting))
    await world.trouble(lasting)
    await users
    await world.calm(lasting + 60 + 3 * LOOK_SECONDS)
    end = world.loop.time() + 10 * LOOK_SECONDS
    while len(list(world.server.of("workflowrevisions"))) > 1:  # all but the current one
        if world.loop.time() > end:
            world.checker.fail("revisions that nothing needs are not deleted")
            break
        await asyncio.sleep(5)
    await world.rest()
    for name, run in world.runs().items():
        status = run["status"]
        if status["phase"] != "Completed":
            world.checker.fail(f"{name} is {status['phase']}: {status['conditions'][0].get('message')}")
        elif status["output"]["begun"] != status["output"]["ended"]:
            world.checker.fail(f"{name} uses several versions: {status['output']}")


def _interfere(world: World, until: float) -> None:
    """Sometimes a run starts, and the Workflow changes, just when an operator looks for the runs of a revision."""
    random = world.random("interference")
    names = (f"meanwhile{i:03}" for i in itertools.count())

    def interfere(request: Request) -> None:
        if not request.query.get("fieldSelector", "").startswith("status.revision.name=") or world.loop.time() > until:
            return
        if random.random() < 0.3:
            spec = _workflow(random.randrange(_VERSIONS))
            change = random.uniform(0, 0.1)
            world.loop.call_later(change, world.edit, "workflows", "edited", lambda obj: obj.update(spec=spec))
            world.loop.call_later(
                change + random.uniform(-0.05, 0.05), world.create, "WorkflowRun", next(names), _run(random)
            )

    world.server.interceptors.append(interfere)


async def _edit(world: World, lasting: float) -> None:
    """Change the Workflow, in the end to the first version; it comes back to earlier versions all the time."""
    random = world.random("edits")
    world.create("Workflow", "edited", _workflow(0))
    while world.loop.time() < lasting:
        await asyncio.sleep(random.choice([random.uniform(0, 5), random.uniform(5, LOOK_SECONDS)]))
        spec = _workflow(random.randrange(_VERSIONS))
        if random.random() < 0.4:
            world.delete("workflows", "edited")
            await asyncio.sleep(random.choice([0, random.uniform(0, 2 * LOOK_SECONDS)]))
            world.create("Workflow", "edited", spec)
        else:
            world.edit("workflows", "edited", lambda obj, spec=spec: obj.update(spec=spec))
    world.edit("workflows", "edited", lambda obj: obj.update(spec=_workflow(0)))
