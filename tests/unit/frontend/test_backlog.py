"""The order of dispatch in a task queue."""

import asyncio
import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from perdure.frontend.matching.dispatch import LEVELS, ORDINARY, Backlog, Rank, Throttle
from perdure.frontend.matching.queues import Destination, Kind, Matching, Offer, QueueName, TaskQueues
from support.memory import bounded_memory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUE = QueueName("default", Kind.ACTIVITY, "orders")


@dataclass(frozen=True)
class Item:
    number: int
    rank: Rank = ORDINARY


def backlog(*items: Item) -> Backlog[Item]:
    made = Backlog[Item]()
    for item in items:
        made.put(item, NOW)
    return made


def emptied(waiting: Backlog[Item]) -> list[Item]:
    return [waiting.pop() for _ in range(len(waiting))]


async def allowed() -> None:
    pass


def test_without_priorities_items_are_first_in_first_out() -> None:
    items = [Item(number) for number in range(50)]
    assert emptied(backlog(*items)) == items


def test_more_urgent_levels_go_first_and_the_default_is_the_middle_level() -> None:
    items = [Item(number, Rank.of(key, "", 0)) for number, key in enumerate([5, 0, 1, 3, 2, 9, 4, 1])]
    assert [item.number for item in emptied(backlog(*items))] == [2, 7, 4, 1, 3, 6, 0, 5]
    assert Rank.of(9, "", 0).level == LEVELS


def test_a_tenant_with_many_items_delays_others_by_one_at_a_time() -> None:
    many = [Item(number, Rank(fairness_key="many")) for number in range(100)]
    items = [Item(number, Rank(fairness_key="few")) for number in range(100, 103)]
    found = emptied(backlog(*many, *items))
    assert [found.index(item) for item in items] == [1, 3, 5]


@pytest.mark.parametrize("seed", range(20))
def test_shares_follow_weights(seed: int) -> None:
    random = Random(seed)
    weights = {"a": 1.0, "b": 2.0, "c": 5.0}
    items = [Item(n, Rank(fairness_key=key, weight=weights[key])) for key in weights for n in range(400)]
    random.shuffle(items)
    found = Counter(item.rank.fairness_key for item in emptied(backlog(*items))[:400])
    for key, weight in weights.items():
        assert found[key] == pytest.approx(400 * weight / 8, abs=2)


def test_a_late_fairness_key_gets_its_share_only_from_its_arrival() -> None:
    waiting = backlog(*(Item(number, Rank(fairness_key="a")) for number in range(20)))
    for _ in range(10):
        waiting.pop()
    for number in range(100, 110):
        waiting.put(Item(number, Rank(fairness_key="b")), NOW)
    first = Counter(waiting.pop().rank.fairness_key for _ in range(10))
    assert first == {"a": 5, "b": 5}


@pytest.mark.parametrize("seed", range(50))
def test_each_item_is_returned_once_with_random_operations(seed: int) -> None:
    random = Random(seed)
    waiting, model = Backlog[Item](), set[Item]()
    for number in range(500):
        item = Item(random.randrange(60), Rank(random.randint(1, 5), random.choice("abc"), random.choice([0.5, 1, 3])))
        match random.randrange(4):
            case 0 | 1:
                waiting.put(item, NOW + timedelta(seconds=number))
                model.add(item)
            case 2:
                waiting.remove(item)
                model.discard(item)
            case _ if model:
                found = waiting.pop()
                assert found.rank.level == min(each.rank.level for each in model)
                model.remove(found)
        assert len(waiting) == len(model)
        assert set(waiting) == model
    assert set(emptied(waiting)) == model
    assert waiting.oldest is None


def test_removed_items_and_keys_free_their_memory() -> None:
    waiting = backlog(Item(-1, Rank(level=1, fairness_key="stays")))
    with bounded_memory(256 * 1024):  # all keys and items together take 2 MiB
        for number in range(5_000):
            item = Item(number, Rank(level=1, fairness_key=str(number)))
            waiting.put(item, NOW)
            waiting.remove(item)
    waiting.put(Item(0, Rank(level=1)), NOW)
    assert len(emptied(waiting)) == 2
    assert waiting.oldest is None


@pytest.mark.parametrize(
    ("per_second", "within_ten"), [(1, 10), (2, 21), (0.5, 5), (10, 109), (0, 0), (-1, 0), (math.nan, 0)]
)
def test_a_throttle_limits_items_per_second(per_second: float, within_ten: int) -> None:
    throttle, time, passed = Throttle(per_second), 0.0, 0
    while (seconds := throttle.wait(time)) < math.inf and (time := time + seconds) < 10 - 1e-9:
        throttle.count(time)
        passed += 1
    assert passed == within_ten


async def test_a_queue_respects_the_rate_limit_of_its_pollers() -> None:
    queues = TaskQueues()
    for number in range(3):
        queues.settle(str(number), {Offer("run", number): QUEUE})
    assert await queues.poll(QUEUE, "worker", 5, allowed, per_second=1) == Offer("run", 0)
    assert await queues.poll(QUEUE, "worker", 0.01, allowed, per_second=1) is None, "a second has not passed"
    assert await queues.poll(QUEUE, "worker", 5, allowed, per_second=1) == Offer("run", 1), "once it has"
    assert await queues.poll(QUEUE, "worker", 0.01, allowed, per_second=0) is None, "paused"
    assert await queues.poll(QUEUE, "worker", 5, allowed) == Offer("run", 2), "a poll without a limit lifts it"


async def test_an_urgent_offer_overtakes_in_a_queue() -> None:
    queues = TaskQueues()
    late, urgent = Offer("late", rank=Rank(level=5)), Offer("urgent", rank=Rank(level=1))
    queues.settle("late", {late: QUEUE})
    queues.settle("urgent", {urgent: QUEUE})
    assert await queues.poll(QUEUE, "worker", 1, allowed) == urgent
    raised = Offer("late", rank=Rank(level=2))
    queues.settle("late", {raised: QUEUE})
    assert await queues.poll(QUEUE, "worker", 1, allowed) == raised
    assert queues.statistics(QUEUE).waiting == 0


async def test_polls_through_a_member_that_leaves_end_and_get_no_task() -> None:
    left_behind: list[Offer] = []
    queues = TaskQueues(left_behind.append)
    through = [
        asyncio.create_task(queues.poll(QUEUE, "worker", 60, allowed, through=member)) for member in ("gone", "here")
    ]
    await asyncio.sleep(0)
    queues.end_polls("gone")
    queues.settle("run", {Offer("run"): QUEUE})
    assert await asyncio.gather(*through) == [None, Offer("run")]


async def test_a_task_that_is_offered_after_a_member_has_left_goes_to_the_poll_of_another_one() -> None:
    matching = Matching()
    matching.reassign({"gone": None, "here": None})
    polls = [
        asyncio.create_task(matching.queues.poll(QUEUE, "worker", 60, allowed, through=member))
        for member in ("gone", "here")
    ]
    await asyncio.sleep(0)
    matching.reassign({"here": None})
    matching.settle("run", {Offer("run"): Destination(QUEUE)})
    assert await asyncio.gather(*polls) == [None, Offer("run")]


async def test_an_offer_is_placed_again_when_the_last_poll_of_its_queue_ends_with_its_member() -> None:
    moved: list[Offer] = []
    queues = TaskQueues(moved.append)
    poll = asyncio.create_task(queues.poll(QUEUE, "worker", 60, allowed, per_second=0, through="gone"))
    await asyncio.sleep(0)
    queues.settle("run", {Offer("run"): QUEUE})
    queues.end_polls("gone")
    assert await poll is None
    assert moved == [Offer("run")]
    assert not queues.alive(QUEUE)
