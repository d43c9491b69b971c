"""New runs wait while their namespace has too many open runs, or the operator has little memory left."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.controller.capacity import CapacitySettings
from perdure.simulation.cluster.store import Object
from simulated.scenarios.definitions import CHILD, parent_of
from simulated.world import Setting, World, simulate

LIMIT = 3
NAP: Object = {"steps": [{"name": "nap", "sleep": {"duration": "150s"}}]}


def play(scenario: Callable[[World], Awaitable[None]], **setting: Any) -> None:
    result = simulate(scenario, Setting(**{"seed": 0, "faults": 0.0, "kills": 0, **setting}))
    assert not result.violations


def reasons(world: World, name: str) -> set[str]:
    """The reasons in the conditions of a run."""
    status = world.run_as_stored(name).get("status") or {}
    return {each["reason"] for each in status.get("conditions") or ()}


def open_runs(world: World) -> int:
    return sum(each["status"].get("phase") == "Running" for each in world.runs().values() if each.get("status"))


@pytest.mark.parametrize("operators", [1, 3])
def test_runs_beyond_the_limit_wait_for_others_to_close(operators: int) -> None:
    async def scenario(world: World) -> None:
        world.capacity = CapacitySettings(open_runs=LIMIT)
        world.begin()
        await asyncio.sleep(30)
        for number in range(9):
            world.create("WorkflowRun", f"run{number}", {"inline": NAP})
            await asyncio.sleep(12 if operators > 1 else 0)  # until all members have seen the others
        await asyncio.sleep(20)
        assert open_runs(world) == LIMIT
        assert reasons(world, "run8") == {"TooManyOpenRuns"}
        await world.rest(limit=600)  # three at a time
        assert {run["status"]["phase"] for run in world.runs().values()} == {"Completed"}

    play(scenario, operators=operators, fleet=operators > 1)


def test_a_waiting_run_takes_little_memory_and_can_be_cancelled_and_deleted() -> None:
    async def scenario(world: World) -> None:
        world.capacity = CapacitySettings(open_runs=1)
        world.begin()
        await asyncio.sleep(5)
        for name in ("first", "cancelled", "deleted", "last"):
            world.create("WorkflowRun", name, {"inline": NAP})
            await asyncio.sleep(20)
        assert [run.ref.name for run in world.operators[0].manager.runs.all()] == ["first"]
        world.operate("stop", "cancelled", cancel={})
        world.delete("workflowruns", "deleted")
        await asyncio.sleep(20)
        assert world.run("cancelled")["status"]["phase"] == "Cancelled"
        await world.rest(limit=300)
        assert world.run("last")["status"]["phase"] == "Completed"

    play(scenario)


def test_children_and_next_runs_start_anyway() -> None:
    async def scenario(world: World) -> None:
        world.capacity = CapacitySettings(open_runs=1)
        world.create("Workflow", "child", CHILD)
        world.begin()
        loop = {
            "steps": [{"name": "again", "when": "${input.n > 0}", "continueAsNew": {"input": {"n": "${input.n - 1}"}}}]
        }
        world.create("WorkflowRun", "parent", {"inline": parent_of({"name": "child"}, {}, "Terminate")})
        await world.rest(limit=120)
        world.create("WorkflowRun", "chain", {"inline": loop, "input": {"n": 2}})
        await world.rest(limit=120)
        phases = [run["status"]["phase"] for run in world.runs().values()]
        assert sorted(phases) == ["Completed", "Completed", "Completed", "ContinuedAsNew", "ContinuedAsNew"]

    play(scenario)


def test_new_runs_wait_for_memory_and_open_ones_go_on() -> None:
    used = 0.5

    async def scenario(world: World) -> None:
        nonlocal used
        world.capacity = CapacitySettings(memory_in_use=lambda: used)
        world.begin()
        await asyncio.sleep(5)
        world.create("WorkflowRun", "open", {"inline": NAP})
        await asyncio.sleep(30)
        used = 0.95
        world.create("WorkflowRun", "new", {"inline": NAP})
        await asyncio.sleep(200)
        assert world.run("open")["status"]["phase"] == "Completed"
        assert reasons(world, "new") == {"MemoryShortage"}
        used = 0.6
        await world.rest(limit=300)
        assert world.run("new")["status"]["phase"] == "Completed"

    play(scenario)
