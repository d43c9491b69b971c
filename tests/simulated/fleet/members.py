"""Conditions of the members of a fleet in a simulation."""

import asyncio
from collections.abc import Callable

from perdure.controller.fleet.shards import SHARDS
from simulated.world import Setting, World


async def until(is_so: Callable[[], bool], limit: float = 60) -> float:
    """Seconds until something is so."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    while not is_so() and loop.time() < start + limit:  # noqa: ASYNC110 - whatever has to become so has no event
        await asyncio.sleep(0.01)
    return loop.time() - start


def is_covered(world: World) -> bool:
    return frozenset[int]().union(*(each.shards for each in world.operators)) == frozenset(range(SHARDS))


def is_divided(world: World) -> bool:
    """Whether each operator owns shards, and together all of them."""
    return is_covered(world) and all(each.shards for each in world.operators)


def calm(seed: int, operators: int = 3) -> Setting:
    return Setting(seed=seed, operators=operators, fleet=True, faults=0, kills=0)
