"""What the Schedule of the scenario `mixed` has to start."""

import asyncio
from datetime import timedelta

from simulated.loop import START
from simulated.world import World

_CATCH_UP_SECONDS = 120
"""How long the Schedule may take to start what is due, although requests fail: retries are up to 30 s apart."""


async def wait_for_starts(world: World) -> None:
    """Wait until the Schedule has started what was due."""
    for _ in range(_CATCH_UP_SECONDS):
        if not (missing := _not_started(world)):
            return
        await asyncio.sleep(1)
    world.checker.fail(f"the schedule has not started {missing[:4]}")


def _not_started(world: World) -> list[str]:
    """The runs that were due but do not exist, without the latest, for which a run may just be made."""
    seconds = range(10, int(world.loop.time()) + 1, 10)
    due = [(START + timedelta(seconds=each)).strftime("every-%Y%m%dt%H%M%Sz") for each in seconds]
    return sorted(set(due[:-1]) - world.runs().keys())
