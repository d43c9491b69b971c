"""Limits of callers."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure.frontend.errors import RpcError
from perdure.frontend.transport.door import MessageMemory, Places, Shares
from perdure.frontend.transport.guard import Rate

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_rate_allows_its_burst_and_then_its_tokens_per_second() -> None:
    rate = Rate(2, 3)
    assert [rate.take("a", BEGIN) for _ in range(5)] == [True, True, True, False, False]
    assert rate.take("b", BEGIN)
    assert [rate.take("a", BEGIN + timedelta(seconds=1)) for _ in range(3)] == [True, True, False]


def test_places_are_limited_for_each_caller_and_in_total() -> None:
    places = Places("calls", each=2, total=3)
    with places.take("a"), places.take("a"):
        with pytest.raises(RpcError, match="too many calls: 2 for each caller"), places.take("a"):
            pass
        with places.take("b"), pytest.raises(RpcError, match="and 3 in all"), places.take("b"):
            pass
    with places.take("a"), places.take("a"):
        pass


async def test_a_caller_waits_for_memory_and_gets_at_most_half_of_it() -> None:
    memory, leave, second = MessageMemory(8, each=4), asyncio.Event(), asyncio.Event()
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


def test_shares_always_leave_room_for_another_tenant() -> None:
    shares = Shares(120)
    for tenant in ("a", "b", "c"):
        while shares.fits(tenant, 1):
            shares.add(tenant, 1)
    assert [shares.held(tenant) for tenant in ("a", "b", "c", "d")] == [60, 30, 15, 0]
    assert shares.fits("d", 1)
    shares.add("a", -60)
    assert shares.fits("d", 30)


async def test_memory_goes_first_to_the_tenant_that_holds_least() -> None:
    memory, order, granted = MessageMemory(8), list[str](), asyncio.Event()

    async def read(key: str) -> None:
        async with memory.hold(key, 2):
            order.append(key)
            granted.set()

    async with asyncio.TaskGroup() as group, memory.hold("hostile", 2), memory.hold("hostile", 2):
        async with memory.hold("other", 2):
            for key in ("hostile", "hostile", "late"):
                group.create_task(read(key))
            await asyncio.sleep(0)
            assert not order
        await granted.wait()
        assert order == ["late"]


async def test_waiting_for_memory_times_out() -> None:
    memory = MessageMemory(8)
    async with memory.hold("a", 4):
        with pytest.raises(RpcError, match="take too much memory; retry later"):
            async with memory.hold("a", 4, 0.0):
                pass
        async with memory.hold("b", 2):
            pass
    async with memory.hold("a", 4):
        pass


async def test_unused_memory_of_a_message_is_released() -> None:
    memory = MessageMemory(8, each=4)
    async with memory.hold("a", 4) as shrink, memory.hold("b", 4):
        waiting = asyncio.create_task(memory.hold("a", 4).__aenter__())
        await asyncio.sleep(0)
        shrink(0)
        await waiting
