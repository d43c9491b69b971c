"""The network between workers, clients and operators loses calls as a real one does, and no other way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simulated.sdk.wires import BrokenError, LateError, Wires
from simulated.world import Setting, World, simulate
from support.faulty.operators import FaultyOperator


def play(scenario: Callable[[World, Wires, FaultyOperator, FaultyOperator], Awaitable[None]]) -> None:
    """Run a scenario with two operators."""

    async def begin(world: World) -> None:
        world.begin()
        await asyncio.sleep(5)
        first, second = world.operators
        await scenario(world, Wires(world.random("wires"), world.faults), first, second)

    assert simulate(begin, Setting(seed=0, operators=2, faults=0, kills=0)).violations == []


async def fifty_seconds() -> str:
    await asyncio.sleep(50)
    return "done"


def test_a_call_returns_the_response() -> None:
    async def scenario(world: World, wires: Wires, first: FaultyOperator, second: FaultyOperator) -> None:
        assert await wires.carry(first, fifty_seconds, source=second) == "done"
        assert 50 < world.loop.time() - 5 < 51

    play(scenario)


def test_a_caller_notices_that_the_operator_was_killed() -> None:
    async def scenario(world: World, wires: Wires, first: FaultyOperator, _: FaultyOperator) -> None:
        call = asyncio.create_task(wires.carry(first, fifty_seconds))
        await asyncio.sleep(10)
        world.operators.remove(first)
        await first.kill()
        with pytest.raises(BrokenError, match="killed"):
            await call

    play(scenario)


def test_a_call_ends_with_its_deadline() -> None:
    async def scenario(world: World, wires: Wires, first: FaultyOperator, _: FaultyOperator) -> None:
        with pytest.raises(LateError):
            await wires.carry(first, fifty_seconds, seconds=20)
        assert 20 <= world.loop.time() - 5 < 21

    play(scenario)


@pytest.mark.parametrize("blocked", ["frozen", "cut off"])
def test_each_side_notices_within_six_seconds_that_the_other_is_unreachable(blocked: str) -> None:
    async def scenario(world: World, wires: Wires, first: FaultyOperator, second: FaultyOperator) -> None:
        cancelled = list[float]()

        async def handle() -> Any:
            try:
                return await fifty_seconds()
            except asyncio.CancelledError:
                cancelled.append(world.loop.time())
                raise

        call = asyncio.create_task(wires.carry(first, handle, source=second))
        await asyncio.sleep(10)
        if blocked == "frozen":
            second.freeze(30)
        else:
            wires.cut(first.name, second.name, 30)
        with pytest.raises(BrokenError, match="does not respond"):
            await call
        await asyncio.sleep(0.1)
        assert 15 < cancelled[0] < 22

    play(scenario)


def test_a_handler_ends_soon_after_its_caller_disconnects() -> None:
    async def scenario(world: World, wires: Wires, first: FaultyOperator, _: FaultyOperator) -> None:
        ended = list[float]()

        async def handle() -> None:
            try:
                await fifty_seconds()
            finally:
                ended.append(world.loop.time())

        call = asyncio.create_task(wires.carry(first, handle))
        await asyncio.sleep(10)
        call.cancel()
        await asyncio.sleep(0.1)
        assert 15 < ended[0] < 15.1

    play(scenario)
