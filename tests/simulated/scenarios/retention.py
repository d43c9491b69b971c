"""Namespaces that change how long, and how many of, their finished runs are kept, while operators die and runs finish."""

import asyncio
from collections import defaultdict
from random import Random

from perdure.api.phases import workflow_of
from perdure.runtime.retention import Policy, has_succeeded
from perdure.simulation.cluster.store import Object, ObjectKey
from simulated.checks.run_facts import is_over
from simulated.scenarios.definitions import CHILD, LOOP, PARENT
from simulated.world import World

_RUNS = 40
_LASTING = 120.0
_LONG = 9_000
"""Seconds to live of runs that must still exist at the end, unless a history limit has removed them."""
_DEFAULTS = ObjectKey("workflowdefaults", "default", "default")
_FAILS: Object = {"steps": [{"name": "stop", "fail": {"type": "Stopped", "message": "as planned"}}]}


async def retention(world: World) -> None:
    """Runs of all kinds finish under a retention that is edited, deleted, and created again."""
    random = world.random("retention")
    world.begin()
    for name, spec in (("child", CHILD), ("loop", LOOP), ("fails", _FAILS)):
        world.create("Workflow", name, spec)
    kinds: list[Object] = [
        {"inline": {"steps": [{"name": "one", "set": {"number": 1}}]}},
        {"workflow": {"name": "child"}},
        {"workflow": {"name": "fails"}},
        {"workflow": {"name": "loop"}, "input": {"n": 2}},
        {"inline": PARENT},
    ]
    for number in range(_RUNS):
        own = random.choice([{}, {}, {"ttlSecondsAfterFinished": random.choice([0, 60, _LONG])}])
        spec = {**random.choice(kinds), **own}
        world.loop.call_at(random.uniform(0, _LASTING), world.create, "WorkflowRun", f"run{number:02}", spec)
    edits = asyncio.create_task(_edit(world, random))
    await world.trouble(_LASTING)
    await edits
    await world.calm(_LASTING + 60)
    last = _retention(random)
    _set(world, last)
    await asyncio.sleep(600)
    await world.rest()
    _check(world, Policy.of({"retention": last}))


async def _edit(world: World, random: Random) -> None:
    for _ in range(8):
        await asyncio.sleep(random.uniform(1, _LASTING / 8))
        if _DEFAULTS in world.server.objects and random.random() < 0.2:
            world.delete("workflowdefaults", "default")
        else:
            _set(world, _retention(random))


def _set(world: World, retention: Object) -> None:
    if _DEFAULTS in world.server.objects:
        world.edit("workflowdefaults", "default", lambda obj: obj["spec"].update(retention=retention))
    else:
        world.create("WorkflowDefaults", "default", {"retention": retention})


def _retention(random: Random) -> Object:
    def rules() -> Object:
        return {
            name: random.choice(values)
            for name, values in (
                ("ttlSecondsAfterFinished", [0, 30, 200, _LONG]),
                ("ttlSecondsAfterFailure", [0, 100, _LONG]),
                ("successfulRunsHistoryLimit", [0, 3, 10, 1_000]),
                ("failedRunsHistoryLimit", [1, 3]),
            )
            if random.random() < 0.5
        }

    return {**rules(), "workflows": [{"name": name, **rules()} for name in ("child", "loop") if random.random() < 0.5]}


def _check(world: World, policy: Policy) -> None:
    """No run is left whose time is over, or that is beyond a limit: ten minutes have passed since the last change."""
    groups: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for name, run in world.runs().items():
        if not is_over(run):
            continue
        workflow, phase = workflow_of(run["spec"]), run["status"]["phase"]
        if run["spec"].get("ttlSecondsAfterFinished", policy.ttl(workflow, phase)) < _LONG:
            world.checker.fail(f"run {name} is not removed")
        groups[workflow, has_succeeded(phase)].append(name)
    for well, field in ((True, "successfulRunsHistoryLimit"), (False, "failedRunsHistoryLimit")):
        shared: list[str] = []
        for workflow, names in (
            (workflow, names) for (workflow, succeeded), names in groups.items() if succeeded is well
        ):
            limit = policy.workflows.get(workflow, {}).get(field)
            if limit is None:
                shared += names
            elif len(names) > limit:
                world.checker.fail(f"{len(names)} runs of {workflow} are left; {field} is {limit}: {names}")
        limit = policy.rules.get(field)
        if limit is not None and len(shared) > limit:
            world.checker.fail(f"{len(shared)} runs are left; {field} is {limit}: {shared}")
