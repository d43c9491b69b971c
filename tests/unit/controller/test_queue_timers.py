"""Keys that are due at a time."""

import asyncio
import random

import pytest

from support.memory import bounded_memory
from unit.controller.queue_driver import HOUR, QueueDriver, at, in_virtual_time

# Timers

pytestmark = pytest.mark.usefixtures("quiet")


@in_virtual_time
async def test_a_key_is_processed_once_at_its_time() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        queue.wake_at("a", at(HOUR))
        assert queue.armed == 1
        await asyncio.sleep(2 * HOUR)
    assert bench.done == [(HOUR, "a")]
    assert queue.armed == 0


@in_virtual_time
async def test_a_time_in_the_past_fires_immediately() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        await asyncio.sleep(5)
        queue.wake_at("a", at(-100))
        await asyncio.sleep(5)
    assert bench.done == [(5, "a")]


@pytest.mark.parametrize(
    ("armed_for", "want"),
    [
        ([10, 20], [20]),
        ([20, 10], [10]),
        ([10, 10], [10]),
        ([10, None], []),
        ([10, None, 10], [10]),
        ([10, 20, 10], [10]),
        ([None], []),
    ],
    ids=["later", "earlier", "the same", "never", "never, and again", "later and back", "never, from the beginning"],
)
def test_only_the_last_timer_of_a_key_fires(armed_for: list[float | None], want: list[float]) -> None:
    @in_virtual_time
    async def scenario() -> None:
        bench = QueueDriver()
        async with bench.queue() as queue:
            for offset in armed_for:
                queue.wake_at("a", None if offset is None else at(offset))
                await asyncio.sleep(0.001)
            await asyncio.sleep(HOUR)
        assert bench.times("a") == want

    scenario()


@in_virtual_time
async def test_a_timer_neither_fires_early_nor_prevents_a_wake() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        queue.wake_at("a", at(10))
        await asyncio.sleep(1)
        queue.wake("a")
        await asyncio.sleep(100)
    assert bench.times("a") == [1, 10]


@in_virtual_time
async def test_thousands_of_timers_fire_in_the_order_of_their_times() -> None:
    bench = QueueDriver()
    dice = random.Random(7)
    times = {f"k{index}": dice.randrange(1, 2_000) for index in range(5_000)}
    async with bench.queue() as queue:
        for key, offset in times.items():
            queue.wake_at(key, at(offset))
        assert queue.armed == 5_000
        await asyncio.sleep(2_001)
    # The sort is stable: equal times keep the order in which they were armed.
    assert [key for _, key in bench.done] == sorted(times, key=lambda key: times[key])
    assert all(when == times[key] for when, key in bench.done)


@in_virtual_time
async def test_rearmed_timers_do_not_accumulate() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        with bounded_memory(512 * 1024):  # an entry takes 100 bytes
            for offset in range(50_000):
                queue.wake_at("often", at(HOUR + offset))
        await asyncio.sleep(2 * HOUR + 50_000)
    assert bench.done == [(HOUR + 49_999, "often")]


@in_virtual_time
async def test_repeated_timers_for_the_same_time_do_not_accumulate() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        with bounded_memory(512 * 1024):
            for _ in range(20_000):
                queue.wake_at("again", None)
                queue.wake_at("again", at(HOUR))
        queue.wake_at("other", at(HOUR))
        await asyncio.sleep(9 * HOUR)
    assert bench.done == [(HOUR, "again"), (HOUR, "other")]


# The wall clock


@in_virtual_time
async def test_a_forward_clock_step_delays_due_timers_by_at_most_half_a_minute() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        queue.wake_at("a", at(10 * HOUR))
        await asyncio.sleep(100)
        bench.clock_is_off = 10 * HOUR
        await asyncio.sleep(31)
    ((when, _),) = bench.done
    assert 100 <= when <= 130


@in_virtual_time
async def test_a_backward_clock_step_fires_no_timer_early() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        queue.wake_at("a", at(100))
        await asyncio.sleep(50)
        bench.clock_is_off = -HOUR
        await asyncio.sleep(2 * HOUR)
    assert bench.times("a") == [HOUR + 100]
