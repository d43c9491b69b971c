"""The queue, in virtual time: the loop's clock jumps to the next timer whenever nothing else is left to do."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.controller.errors import NotYetError
from perdure.observe.metrics import REGISTRY
from unit.controller.queue_driver import HOUR, QueueDriver, at, elapsed, in_virtual_time, metric

# Single flight

pytestmark = pytest.mark.usefixtures("quiet")


@in_virtual_time
async def test_repeated_wakes_before_processing_process_a_key_once() -> None:
    bench = QueueDriver()
    async with bench.queue() as queue:
        for _ in range(3):
            queue.wake("a")
        assert queue.depth == 1
        await asyncio.sleep(HOUR)
    assert bench.done == [(0, "a")]
    assert queue.depth == 0


@in_virtual_time
async def test_repeated_wakes_during_processing_process_a_key_once_more() -> None:
    bench = QueueDriver(takes=2)
    async with bench.queue() as queue:
        queue.wake("a")
        await asyncio.sleep(1)
        for _ in range(3):
            queue.wake("a")
        assert queue.depth == 1
        await asyncio.sleep(HOUR)
    assert bench.times("a") == [0, 2]


@in_virtual_time
async def test_a_timer_due_during_processing_processes_its_key_again() -> None:
    bench = QueueDriver(takes=10)
    async with bench.queue() as queue:
        queue.wake("a")
        queue.wake_at("a", at(3))
        await asyncio.sleep(HOUR)
    assert bench.times("a") == [0, 10]


@in_virtual_time
async def test_different_keys_are_processed_concurrently_by_the_workers() -> None:
    bench = QueueDriver(takes=1)
    async with bench.queue(workers=3) as queue:
        for key in "abcdefg":
            queue.wake(key)
        await asyncio.sleep(HOUR)
    assert bench.peak == 3
    assert [key for _, key in bench.done] == list("abcdefg")
    assert [when for when, _ in bench.done] == [0, 0, 0, 1, 1, 1, 2]


# Turns


@in_virtual_time
async def test_a_tenant_with_thousands_of_keys_delays_another_by_at_most_one_key() -> None:
    bench = QueueDriver(takes=1)
    async with bench.queue(workers=2, tenant=lambda key: key[0], name="thousands") as queue:
        for number in range(2_000):
            queue.wake(f"a{number}")
        queue.wake_at("b-due", at(10.5))
        await asyncio.sleep(5.5)
        queue.wake("b")
        await asyncio.sleep(HOUR)
    assert bench.times("b") == [6]
    assert bench.times("b-due") == [11]
    assert len(bench.done) == metric("count", "thousands") == 2_002
    # Two of them a second: the last one waits for 1,000 s.
    assert metric("sum", "thousands") == pytest.approx(sum(n // 2 for n in range(2_002)), abs=2_002)


@in_virtual_time
async def test_workers_reserved_for_other_tenants_process_their_keys_immediately() -> None:
    bench = QueueDriver(takes=100)
    async with bench.queue(workers=4, tenant=lambda key: key[0], each=3) as queue:
        for number in range(10):
            queue.wake(f"a{number}")
        await asyncio.sleep(1)
        queue.wake("b")
        await asyncio.sleep(1)
        assert len(bench.running) == 4
        await asyncio.sleep(HOUR)
    assert bench.times("b") == [1]
    assert [when for when, key in bench.done if key != "b"] == [0, 0, 0, 100, 100, 100, 200, 200, 200, 300]


# Parking


@dataclass
class Kitchen(QueueDriver):
    """Work on "a" needs a result that is computed elsewhere."""

    until: float | None = None
    made: "asyncio.Future[str] | None" = None
    served: list[str] = field(default_factory=list)

    async def work(self, key: str) -> None:
        await super().work(key)
        if key == "a" and self.made is not None:
            if not self.made.done():
                later = self.until is not None and self.until > elapsed()
                raise NotYetError(self.made, until=at(self.until or 0) if later else None)
            self.served.append(self.made.result())


@in_virtual_time
async def test_a_key_that_waits_for_a_future_occupies_no_worker_and_is_processed_when_it_is_done() -> None:
    kitchen = Kitchen(made=asyncio.get_running_loop().create_future())
    async with kitchen.queue(workers=1) as queue:
        queue.wake("a")
        queue.wake("b")
        await asyncio.sleep(50)
        queue.wake("a")  # something else has happened to it meanwhile
        await asyncio.sleep(50)
        assert kitchen.times("b") == [0]
        assert kitchen.made is not None
        kitchen.made.set_result("dish")
        await asyncio.sleep(HOUR)
        assert kitchen.served == ["dish"]
        queue.wake("a")
        await asyncio.sleep(50)
    assert kitchen.times("a") == [0, 50, 100, 100 + HOUR]


@in_virtual_time
async def test_a_key_that_waits_with_a_timeout_is_processed_when_it_expires() -> None:
    kitchen = Kitchen(made=asyncio.get_running_loop().create_future(), until=7)
    async with kitchen.queue() as queue:
        queue.wake("a")
        await asyncio.sleep(10)
        assert kitchen.times("a")[:2] == [0, 7]
        queue.forget("a")
        assert kitchen.made is not None
        kitchen.made.set_exception(RuntimeError("burnt"))
        kitchen.done.clear()
        await asyncio.sleep(HOUR)
    assert kitchen.done == []


# Failing


@in_virtual_time
async def test_a_failing_key_is_retried_with_backoff_up_to_30_s() -> None:
    bench = QueueDriver(failing={"a"})
    async with bench.queue() as queue:
        queue.wake("a")
        await asyncio.sleep(200)
        times = bench.times("a")
        waits = [round(later - earlier, 3) for earlier, later in pairwise(times)]
        assert waits[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6]
        assert set(waits[8:]) == {30}


@in_virtual_time
async def test_a_failing_key_does_not_delay_others() -> None:
    bench = QueueDriver(failing={"a"})
    async with bench.queue(workers=1) as queue:
        queue.wake("a")
        queue.wake("b")
        queue.wake_at("c", at(0.3))
        await asyncio.sleep(10)
    assert bench.times("b") == [0]
    assert bench.times("c") == [0.3]


@in_virtual_time
async def test_a_success_resets_the_backoff() -> None:
    bench = QueueDriver(failing={"a"})
    async with bench.queue() as queue:
        queue.wake("a")
        await asyncio.sleep(1)
        bench.failing.clear()
        await asyncio.sleep(10)
        assert bench.times("a") == [0, 0.2, 0.6, 1.4]
        bench.failing.add("a")
        queue.wake("a")
        await asyncio.sleep(0.3)
    assert bench.times("a")[4:] == [11, 11.2]


@in_virtual_time
async def test_waking_a_failing_key_skips_its_backoff() -> None:
    bench = QueueDriver(failing={"a"})
    async with bench.queue() as queue:
        queue.wake("a")
        await asyncio.sleep(0.1)
        queue.wake("a")
        await asyncio.sleep(0.01)
    assert bench.times("a") == [0, 0.1]


@in_virtual_time
async def test_a_failure_replaces_a_later_timer_and_keeps_an_earlier_one() -> None:
    bench = QueueDriver(failing={"early", "late"})
    async with bench.queue() as queue:
        queue.wake_at("early", at(0.1))
        queue.wake_at("late", at(5))
        queue.wake("early")
        queue.wake("late")
        await asyncio.sleep(0.25)
    assert bench.times("early") == [0, 0.1]
    assert bench.times("late") == [0, 0.2]


@in_virtual_time
async def test_a_forgotten_key_has_neither_timer_nor_failures() -> None:
    bench = QueueDriver(failing={"a"})
    async with bench.queue() as queue:
        queue.wake("a")
        await asyncio.sleep(5)
        queue.forget("a")
        assert queue.armed == 0
        bench.done.clear()
        await asyncio.sleep(HOUR)
        assert bench.done == []
        queue.wake("a")
        await asyncio.sleep(0.5)
    start, again, *_ = bench.times("a")
    assert again - start == pytest.approx(0.2)


# Random operations

happenings = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.5, 1.0, 7.0]),
        st.sampled_from("abc"),
        st.one_of(
            st.just("wake"),
            st.just("disarm"),
            st.just("breaks"),
            st.just("works"),
            st.sampled_from([-1.0, 0.0, 0.2, 3.0, 40.0]),
        ),
    ),
    max_size=30,
)


@given(happenings, st.sampled_from([0.0, 0.3, 2.0]), st.integers(1, 3))
def test_no_wake_is_lost_or_invented(events: list[tuple[float, str, str | float]], takes: float, workers: int) -> None:
    @in_virtual_time
    async def scenario() -> None:
        bench = QueueDriver(takes=takes)
        woken: list[tuple[float, str]] = []
        armed: dict[str, float] = {}
        causes: Counter[str] = Counter()
        async with bench.queue(workers) as queue:
            for wait, key, what in events:
                await asyncio.sleep(wait)
                match what:
                    case "wake":
                        woken.append((elapsed(), key))
                        causes[key] += 1
                        queue.wake(key)
                    case "disarm":
                        armed.pop(key, None)
                        queue.wake_at(key, None)
                    case "breaks":
                        bench.failing.add(key)
                    case "works":
                        bench.failing.discard(key)
                    case float(offset):
                        armed[key] = elapsed() + offset
                        causes[key] += 1
                        queue.wake_at(key, at(elapsed() + offset))
            bench.failing.clear()
            await asyncio.sleep(300)
            assert queue.depth == 0
            assert queue.armed == 0
        broke = {key for _, key, what in events if what == "breaks"}
        # A retry replaces the timer: finished work returns its next time again.
        due = [(when, key) for key, when in armed.items() if key not in broke]
        for when, key in woken + due:
            assert any(started >= when - 0.001 for started in bench.times(key))  # rounded, as they are
        for key in set("abc") - broke:
            assert len(bench.times(key)) <= causes[key]

    scenario()


def test_a_cancelled_queue_ends_immediately_even_during_processing() -> None:
    @in_virtual_time
    async def scenario() -> None:
        bench = QueueDriver(takes=HOUR)
        async with bench.queue() as queue:
            queue.wake("a")
            await asyncio.sleep(1)
            assert bench.running == {"a"}
        assert elapsed() == 1
        assert bench.running == set()

    scenario()


# Metrics


@in_virtual_time
async def test_each_queue_exposes_depth_waits_and_failures_as_metrics() -> None:
    def value(metric: str) -> float | None:
        return REGISTRY.get_sample_value(metric, {"queue": "tried"})

    bench = QueueDriver(failing={"a"}, takes=1.0)
    async with bench.queue(workers=1, name="tried") as queue:
        assert value("perdure_queue_depth") == 0
        for key in ("a", "b", "c"):
            queue.wake(key)
        assert value("perdure_queue_depth") == 3
        await asyncio.sleep(0.5)
        assert value("perdure_queue_depth") == 2
        await asyncio.sleep(2.0)
        assert value("perdure_queue_depth") == 1, "a, which failed, waits for its turn behind c"
        await asyncio.sleep(0.6)
        assert value("perdure_pass_failures_total") == 1
        assert metric("count", "tried") == 4
        assert metric("sum", "tried") == pytest.approx(0 + 1 + 2 + 1.8)


# Keys of others


@in_virtual_time
async def test_a_key_that_is_not_admitted_waits_until_it_is() -> None:
    bench, admitted = QueueDriver(), set[str]()
    async with bench.queue(admits=admitted.__contains__) as queue:
        queue.wake("a")
        queue.wake_at("b", at(5))
        await asyncio.sleep(10)
        assert bench.done == []
        queue.readmit()
        admitted.add("a")
        queue.readmit()
        await asyncio.sleep(1)
        assert bench.done == [(10, "a")]
        admitted.add("b")
        queue.readmit()
        await asyncio.sleep(HOUR)
    assert bench.done == [(10, "a"), (11, "b")]


@in_virtual_time
async def test_a_key_that_need_not_be_remembered_is_dropped() -> None:
    bench, admitted = QueueDriver(), set[str]()
    async with bench.queue(admits=admitted.__contains__, remembers=lambda key: key != "a") as queue:
        for key in ("a", "b", "c"):
            queue.wake(key)
        await asyncio.sleep(1)
        queue.forget("c")
        admitted |= {"a", "b", "c"}
        queue.readmit()
        await asyncio.sleep(HOUR)
    assert bench.done == [(1, "b")]


@in_virtual_time
async def test_keys_that_are_not_admitted_occupy_no_worker() -> None:
    bench = QueueDriver(takes=3)
    async with bench.queue(workers=1, admits=lambda key: key == "own") as queue:
        for number in range(100):
            queue.wake(f"{number}")
        queue.wake("own")
        await asyncio.sleep(HOUR)
    assert bench.done == [(0, "own")]


@in_virtual_time
async def test_drain_waits_for_keys_in_progress() -> None:
    bench, admitted = QueueDriver(takes=3), True
    async with bench.queue(admits=lambda _: admitted) as queue:
        await queue.drain()
        assert elapsed() == 0
        queue.wake("a")
        await asyncio.sleep(1)
        queue.wake("a")
        admitted = False
        await queue.drain()
        assert elapsed() == 3
        await asyncio.sleep(HOUR)
    assert bench.done == [(0, "a")]
