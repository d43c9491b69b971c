"""Fair scheduling: no tenant waits for the backlog of another one."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.controller.queue import FairPool, FairQueue


def taken(queue: FairQueue[str]) -> str:
    found = queue.take()
    assert found is not None
    return found[1]


def test_items_of_one_tenant_keep_their_order() -> None:
    queue: FairQueue[str] = FairQueue(slots=9, each=9)
    for item in "abc":
        queue.put("one", item)
    assert [taken(queue) for _ in range(3)] == list("abc")
    assert queue.take() is None


def test_a_new_tenant_goes_before_waiting_items_of_a_busy_one() -> None:
    queue: FairQueue[str] = FairQueue(slots=4, each=4)
    for number in range(1_000):
        queue.put("busy", f"busy-{number}")
    assert taken(queue) == "busy-0"
    queue.put("new", "new")
    assert taken(queue) == "new"


def test_a_tenant_never_exceeds_its_limit_of_items_in_progress() -> None:
    queue: FairQueue[str] = FairQueue(slots=4, each=2)
    for item in "abc":
        queue.put("one", item)
    assert [taken(queue), taken(queue)] == ["a", "b"]
    assert queue.take() is None
    queue.done("one")
    assert taken(queue) == "c"


def test_tenants_with_slow_items_get_no_more_slots() -> None:
    queue: FairQueue[str] = FairQueue(slots=4, each=4)
    for _ in range(10):
        queue.put("slow", "slow")
        queue.put("quick", "quick")
    assert Counter(taken(queue) for _ in range(4)) == {"slow": 2, "quick": 2}
    for _ in range(5):  # the slow ones stay in progress
        queue.done("quick")
        assert taken(queue) == "quick"


events = st.lists(st.one_of(st.sampled_from(["take", "done"]), st.sampled_from("abcd")), max_size=200)


@given(events, st.integers(1, 6), st.integers(1, 6))
def test_random_operations_keep_the_limits_and_lose_no_item(events: list[str], slots: int, each: int) -> None:
    queue: FairQueue[int] = FairQueue(slots=slots, each=each)
    waiting: dict[str, list[int]] = {}
    busy: Counter[str] = Counter()
    for number, event in enumerate(events):
        if event == "take":
            ready = {name for name, items in waiting.items() if items and busy[name] < each}
            found = queue.take()
            if busy.total() >= slots or not ready:
                assert found is None
                continue
            assert found is not None
            tenant, item = found
            assert waiting[tenant].pop(0) == item
            assert busy[tenant] == min(busy[name] for name in ready)
            busy[tenant] += 1
        elif event == "done":
            tenant = next(iter(+busy), "")
            if tenant:
                queue.done(tenant)
                busy[tenant] -= 1
        else:
            queue.put(event, number)
            waiting.setdefault(event, []).append(number)
        assert len(queue) == sum(map(len, waiting.values()))
        assert queue.in_progress == busy.total() <= slots


@given(st.integers(2, 8), st.integers(1, 4))
def test_busy_tenants_take_turns(tenants: int, slots: int) -> None:
    queue: FairQueue[str] = FairQueue(slots=slots, each=slots)
    for name in map(str, range(tenants)):
        for _ in range(20):
            queue.put(name, name)
    served: Counter[str] = Counter()
    running: list[str] = []
    while served.total() < 10 * tenants:
        while (found := queue.take()) is not None:
            served[found[0]] += 1
            running.append(found[0])
        queue.done(running.pop(0))
    assert max(served.values()) - min(served.values()) <= slots


# The pool


async def test_a_pool_limits_concurrent_jobs_and_returns_their_results() -> None:
    pool, running, peak = FairPool(slots=3, each=2), 0, 0

    async def job() -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        return running

    await asyncio.gather(*(pool.submit("one", job) for _ in range(6)))
    assert peak == 2
    await asyncio.gather(*(pool.submit(name, job) for name in "abcdef"))
    assert peak == 3
    assert len(pool) == 0


async def test_a_failed_job_raises_for_its_caller_and_frees_its_slot() -> None:
    pool = FairPool(slots=1, each=1)

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    failing, working = pool.submit("one", fail), pool.submit("one", work)
    with pytest.raises(ValueError, match="no"):
        await failing
    assert await working == "done"


async def test_a_job_without_remaining_callers_is_not_run() -> None:
    pool, done = FairPool(slots=1, each=1), []
    release = asyncio.Event()
    first = pool.submit("one", release.wait)

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("work")

    second, third = pool.submit("one", work), pool.submit("one", work)
    second.cancel()
    release.set()
    await first
    await third
    assert done == ["work"]
