"""Members of a fleet lose and gain shards, and the right to decide, while their runs hibernate."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from simulated.world import Setting, World, simulate


async def asleep(world: World) -> None:
    """Start the members, and three runs that sleep for 1,000 seconds; wait until these hibernate."""
    world.begin()
    await asyncio.sleep(30)
    for number in range(3):
        world.create(
            "WorkflowRun", f"run{number}", {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1000s"}}]}}
        )
    await asyncio.sleep(900)
    assert sum(len(each.manager.runs.hibernation) for each in world.operators) == 3


async def outage(world: World) -> None:
    """No member reaches the API server while the timers are due, for longer than a Lease lasts."""
    now = world.loop.time()
    world.faults.outages.append((now + 50, now + 50 + 80))


async def kill(world: World) -> None:
    """All members but one are killed before the timers are due."""
    for victim in world.operators[1:]:
        await victim.kill()
        world.operators.remove(victim)


@pytest.mark.parametrize("trouble", [outage, kill], ids=lambda each: each.__name__)
@pytest.mark.parametrize("members", [1, 3])
def test_timers_fire(trouble: Callable[[World], Awaitable[None]], members: int) -> None:
    async def scenario(world: World) -> None:
        await asleep(world)
        await trouble(world)
        await world.rest(limit=300)

    assert not simulate(scenario, Setting(seed=0, operators=members, fleet=True, faults=0.0, kills=0)).violations
