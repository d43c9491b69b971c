"""Bounds on what callers may take."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure.frontend.admission import MessageMemory, Places, Rate
from perdure.frontend.errors import RpcError

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_rate_allows_its_burst_and_then_so_many_a_second() -> None:
    rate = Rate(2, 3)
    assert [rate.take("a", BEGIN) for _ in range(5)] == [True, True, True, False, False]
    assert rate.take("b", BEGIN)
    assert [rate.take("a", BEGIN + timedelta(seconds=1)) for _ in range(3)] == [True, True, False]


def test_places_are_counted_for_each_caller_and_in_all() -> None:
    places = Places("calls", each=2, total=3)
    with places.take("a"), places.take("a"):
        with pytest.raises(RpcError, match="too many calls: 2 for each caller"), places.take("a"):
            pass
        with places.take("b"), pytest.raises(RpcError, match="and 3 in all"), places.take("b"):
            pass
    with places.take("a"), places.take("a"):
        pass


async def test_memory_is_waited_for_and_one_caller_leaves_half_of_it_to_others() -> None:
    memory, leave, second = MessageMemory(8), asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def read(key: str, size: int = 4) -> None:
        async with memory.hold(key, size):
            order.append(key)
            if len(order) == 2:
                second.set()
            await leave.wait()

    async with asyncio.TaskGroup() as group:
        for key in ("a", "a", "b", "c"):
            group.create_task(read(key))
        await second.wait()
        assert order == ["a", "b"]
        cancelled = asyncio.create_task(read("d"))
        await asyncio.sleep(0)
        cancelled.cancel()
        leave.set()
    assert sorted(order) == ["a", "a", "b", "c"]
    async with memory.hold("a", 4), memory.hold("b", 4):
        pass


async def test_what_a_message_does_not_need_is_given_to_others() -> None:
    memory = MessageMemory(8)
    async with memory.hold("a", 4) as shrink, memory.hold("b", 4):
        waiting = asyncio.create_task(memory.hold("a", 4).__aenter__())
        await asyncio.sleep(0)
        shrink(0)
        await waiting
